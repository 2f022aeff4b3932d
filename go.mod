module example.com/typedqueue

go 1.25.0

require (
	github.com/google/go-cmp v0.7.0 // indirect
	golang.org/x/time v0.15.0 // indirect
	pgregory.net/rapid v1.3.0 // indirect
)
