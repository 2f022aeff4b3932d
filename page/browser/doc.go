// Package browser holds the tests of package page in a real browser, headless Chromium. It is a
// module of its own, so that whoever imports package page gets nothing of what drives the browser.
package browser
