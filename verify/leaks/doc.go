// Package leaks checks that queues and stores which are dropped leave nothing behind: no
// goroutine, and no memory. It has no API.
package leaks
