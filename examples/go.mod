module example.com/typedqueue/examples

go 1.25.0

require (
	example.com/typedqueue v0.0.0
	example.com/typedqueue/page v0.0.0
	github.com/fsnotify/fsnotify v1.10.1
)

require (
	golang.org/x/sys v0.13.0 // indirect
	golang.org/x/time v0.15.0 // indirect
)

replace example.com/typedqueue => ../

replace example.com/typedqueue/page => ../page
