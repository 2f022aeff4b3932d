module example.com/typedqueue/page

go 1.25.0

require example.com/typedqueue v0.0.0

require golang.org/x/time v0.15.0 // indirect

replace example.com/typedqueue => ../
