module example.com/typedqueue/page/browser

go 1.26.0

require (
	example.com/typedqueue v0.0.0
	example.com/typedqueue/page v0.0.0
	github.com/chromedp/cdproto v0.159.0
	github.com/chromedp/chromedp v0.23.0
)

require (
	github.com/go-json-experiment/json v0.0.0-20260213210345-44df1a37e875 // indirect
	golang.org/x/time v0.15.0 // indirect
)

replace example.com/typedqueue => ../../

replace example.com/typedqueue/page => ../
