package browser

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"example.com/typedqueue"
	"example.com/typedqueue/page"
)

// live is a page with one queue.
func live(t *testing.T, opts page.Options) (*page.Page, *typedqueue.RateLimitingQueue[string]) {
	t.Helper()
	p := page.New(opts)
	q := typedqueue.NewRateLimitingQueue[string](nil, typedqueue.Options{TrackTime: true})
	_, err := page.Watch(p, "orders", q)
	must(t, err)
	t.Cleanup(func() { runtime.KeepAlive(q) })
	return p, q
}

// has is an expression that tells whether an element has a text.
func has(selector, text string) string {
	return fmt.Sprintf(`!!document.querySelector(%q)?.innerText.includes(%q)`, selector, text)
}

// What the tests trust in: that the browser's complaints arrive.
func TestComplaints(t *testing.T) {
	t.Parallel()
	for name, html := range map[string]string{
		"a script that the policy forbids": `<script>1</script>`,
		"a handler":                        `<body onload="alert(1)">`,
		"a style":                          `<p style="color:red">`,
		"a picture":                        `<img src="/x.png">`,
	} {
		url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Security-Policy", "default-src 'none'")
			_, _ = io.WriteString(w, "<!DOCTYPE html>"+html)
		}))
		b := watched(t, 800, 600)
		b.do(chromedp.Navigate(url))
		for len(b.complaints()) == 0 {
			select {
			case <-b.ctx.Done():
				t.Fatalf("no complaint about %s", name)
			case <-time.After(5 * time.Millisecond):
			}
		}
	}
}

// A key that gets stuck is on the page, marked, within a second of it.
func TestLive_StuckKey(t *testing.T) {
	t.Parallel()
	p, q := live(t, page.Options{Stuck: 200 * time.Millisecond})
	url := serve(t, p)
	first, own := open(t, 1000, 800), open(t, 1000, 800)
	first.do(chromedp.Navigate(url))
	own.do(chromedp.Navigate(url + "?queue=orders"))
	first.until(has(".fine", "Nothing is stuck"))

	// How long that takes is measured in the page: from when the key was handed out, or is
	// stuck, to the change of the document.
	watch := func(b *tab, selector, text string) {
		eval[bool](b, fmt.Sprintf(`(() => {
			new MutationObserver(() => { if (!window.seen && %s) window.seen = Date.now() }).observe(document.body, { subtree: true, childList: true });
			return true;
		})()`, has(selector, text)))
	}
	watch(first, ".stuck", "order 17")
	watch(own, `[data-of="Processing"]`, "order 17")
	q.Add("order 17")
	q.Get()
	handed := time.Now()
	own.until(`!!window.seen`)
	first.until(`!!window.seen`)
	own.until(has(`[data-of="Processing"] .late`, "order 17"))
	for name, late := range map[string]time.Duration{
		"processing": time.UnixMilli(eval[int64](own, `window.seen`)).Sub(handed),
		"stuck":      time.UnixMilli(eval[int64](first, `window.seen`)).Sub(handed.Add(200 * time.Millisecond)),
	} {
		t.Logf("shown as %s after %v", name, late)
	}
	first.until(`document.title === "1 stuck – Queues"`)
	q.Done("order 17")
	first.until(has(".fine", "Nothing is stuck"))
	own.until(`!` + has("main", "order 17"))
}

// The page asks so often that what is new is there within a second: between two questions, and
// from one to its answer on the screen, there is less.
func TestLive_Interval(t *testing.T) {
	t.Parallel()
	p, _ := live(t, page.Options{})
	url := serve(t, p)
	b := open(t, 1000, 800)
	b.do(chromedp.Navigate(url))
	asked := `performance.getEntriesByType("resource").filter(e => e.initiatorType === "fetch")`
	b.until(asked + `.length > 3`)
	gaps := eval[[]float64](b, `(() => { const all = `+asked+`; return all.slice(1).map((e, i) => e.responseEnd - all[i].startTime) })()`)
	if slices.Min(gaps) >= 1000 { // the quickest: others are the machine's
		t.Errorf("from a question to the next answer: %v ms", gaps)
	}
}

// Without JavaScript it shows the same, loads itself anew, and can be filtered.
func TestLive_WithoutScript(t *testing.T) {
	t.Parallel()
	p, q := live(t, page.Options{Stuck: time.Millisecond})
	q.AddAll("order 1", "order 2", "other")
	q.Get()
	url := serve(t, p)
	b := open(t, 1000, 800, withoutScript())
	b.do(chromedp.Navigate(url))
	if text := b.text(); !strings.Contains(text, "order 1") || !strings.Contains(text, "Stuck") {
		t.Errorf("shown: %s", text)
	}
	b.click("table.queues a")
	b.until(has(`[data-of="Ready"]`, "order 2"))
	b.typeInto("input[name=key]", "other\r")
	b.until(has(`[data-of="Ready"]`, "other") + `&& !` + has("main", "order 2"))
	if eval[bool](b, `location.search.includes("queue=orders")`) != true {
		t.Error("the filter has lost the queue")
	}
	q.Add("another")
	b.until(has(`[data-of="Ready"]`, "another"))
	b.click("nav a") // hold still
	b.until(`location.search.includes("refresh=off")`)
	if eval[int](b, `document.querySelectorAll("noscript").length`) != 0 {
		t.Error("it does not stand still")
	}
}

// What somebody types, focuses or selects survives that the page is made anew.
func TestLive_Focus(t *testing.T) {
	t.Parallel()
	p, q := live(t, page.Options{})
	q.AddAll("order 1", "order 2")
	url := serve(t, p)
	b := open(t, 1000, 800)
	b.do(chromedp.Navigate(url + "?key=order"))
	b.typeInto("input[name=name]", "ord")
	renew(b)
	if got := eval[string](b, `document.activeElement.name + "=" + document.activeElement.value + " key=" + document.forms[0].key.value`); got != "name=ord key=order" {
		t.Errorf("after a refresh: %s", got)
	}
	// By keyboard to the link of the queue.
	for range 20 {
		b.do(chromedp.KeyEvent("\t"))
		if strings.HasPrefix(eval[string](b, `document.activeElement.id`), "queue-") {
			break
		}
	}
	renew(b)
	renew(b)
	if got := eval[string](b, `document.activeElement.id + " " + document.activeElement.matches(":focus-visible") + " " + document.activeElement.isConnected`); got != "queue-1 true true" {
		t.Errorf("after a refresh the focus is at %s", got)
	}
	b.do(chromedp.KeyEvent("\r"))
	b.until(`location.search === "?key=order&queue=orders"`)
	b.until(has(`[data-of="Ready"]`, "order 2"))

	eval[bool](b, `(() => {
		getSelection().selectAllChildren(document.querySelector('[data-of="Ready"] .text'));
		document.getElementById("live").old = true;
		return true;
	})()`)
	b.until(has("#notice", "Held while text is selected."))
	if !eval[bool](b, `document.getElementById("live").old === true && getSelection().toString() === "order 1"`) {
		t.Error("the selection was taken away")
	}
	eval[bool](b, `(() => { getSelection().removeAllRanges(); return true })()`)
	b.until(`!document.getElementById("live").old && document.getElementById("notice").innerText === ""`)
}

// A page that stands still sets no timer, and goes on when it is asked to.
func TestLive_Still(t *testing.T) {
	t.Parallel()
	p, q := live(t, page.Options{})
	url := serve(t, p)
	b := open(t, 1000, 800, countTimers())
	b.do(chromedp.Navigate(url + "?queue=orders&refresh=off"))
	b.until(`document.readyState === "complete"`)
	if n := eval[int](b, `timers`); n != 0 {
		t.Errorf("a page that stands still has set %d timers", n)
	}
	q.Add("order 1")
	b.click("nav a") // refresh
	b.until(`location.search === "?queue=orders" && document.readyState === "complete"`)
	if eval[int](b, `timers`) == 0 {
		t.Error("a page that is live has set no timer")
	}
	b.until(has(`[data-of="Ready"]`, "order 1"))
}

// A process that does not answer is not taken for one in which nothing happens.
func TestLive_NoAnswer(t *testing.T) {
	t.Parallel()
	p, q := live(t, page.Options{})
	q.Add("order 1")
	server := httptest.NewServer(p)
	defer server.Close()
	address := server.Listener.Addr().String()
	b := watched(t, 1000, 800) // it may complain of the connection
	b.do(chromedp.Navigate(server.URL))
	server.CloseClientConnections()
	server.Close()
	b.until(has("#notice", "No answer since"))

	again := httptest.NewUnstartedServer(p) // as a process that has been restarted
	must(t, again.Listener.Close())
	l, err := net.Listen("tcp", address)
	must(t, err)
	again.Listener = l
	again.Start()
	defer again.Close()
	b.until(`document.getElementById("notice").innerText === ""`)
}

// hostile are keys that must do nothing but be seen.
var hostile = []string{
	`<script>alert(1)</script>`, `<img src=x onerror=alert(1)>`, `"><svg onload=alert(1)>`, `' onmouseover='alert(1)`,
	`</bdi></td></table></main></script><script>alert(1)</script>`, `</title><script>alert(1)</script>`, `</style><style>*{display:none}</style>`,
	`javascript:alert(1)`, `data:text/html,<script>alert(1)</script>`, `{{.Title}}`, `{{template "queue"}}`, `${alert(1)}`, `<%= 1 %>`, `[[constructor]]`,
	`<!-- `, `-->`, `]]>`, `<![CDATA[`, `&lt;b&gt;`, `&#x3c;b&#x3e;`, `<noscript><p title="</noscript><img src=x onerror=alert(1)>">`,
	`<meta http-equiv="refresh" content="0;url=//example.com">`, `<base href="//example.com">`, `<form action="//example.com"><input name=queue>`,
	`<iframe srcdoc="<script>alert(1)</script>">`, `<template><script>alert(1)</script></template>`, `<math><mtext><script>alert(1)</script>`,
	"nul\x00nul", "esc\x1b[2Jesc", "c1\u009b31m", "back\b\b\bspace", "line\nfeed\r\nand\ttab", "sep\u2028\u2029",
	"rtl\u202egnp.exe", "isolate\u2067abc", "mark\u200f", "zero\u200b\u200cwidth\ufeff", "tag\U000e0041", "bad\xff\xfe\xc3(utf8", "\xed\xa0\x80", "\ufffd",
	"zalgo" + strings.Repeat("\u0301\u0348", 60), strings.Repeat("wide", 1<<18), strings.Repeat("界", 1<<18), strings.Repeat("<b>", 1<<18),
	"", " ", "  two  spaces  ", "עברית وعربي", "id", "live", "notice", "__proto__",
}

// Names and keys of every kind are only text: no script runs, the policy is not broken, and
// nothing of them is an element, or turns the text around it.
func TestHostile(t *testing.T) {
	t.Parallel()
	p := page.New(page.Options{Stuck: time.Nanosecond, Title: hostile[0]})
	var queues []*typedqueue.DelayingQueue[string]
	for i, text := range hostile {
		q := typedqueue.NewDelayingQueue[string](typedqueue.Options{TrackTime: true})
		name := text
		if len(name) > 256 || name == "" {
			name = fmt.Sprint("long or empty ", i)
		}
		_, err := page.Watch(p, name, q)
		must(t, err)
		q.Add(text)
		q.Get()
		q.AddAll(hostile...)
		for _, later := range hostile {
			q.AddAfter(later+" later", time.Hour)
		}
		queues = append(queues, q)
	}
	defer runtime.KeepAlive(queues)
	url := serve(t, p)
	b := open(t, 1000, 800)
	queries := []string{"?limit=1000", "?limit=1000&key=" + "alert"}
	b.do(chromedp.Navigate(url))
	links := eval[[]string](b, `[...document.querySelectorAll("table.queues a")].map(a => a.getAttribute("href"))`)
	if len(links) != len(hostile) {
		t.Fatalf("%d queues are shown of %d", len(links), len(hostile))
	}
	for _, query := range append(queries, links...) {
		b.do(chromedp.Navigate(url + "/" + query))
		b.until(`document.readyState === "complete"`)
		if bad := eval[[]string](b, strays); len(bad) > 0 {
			t.Errorf("%s: the page has %q", query, bad)
		}
		if strings.Contains(query, "queue=") && eval[bool](b, has("h2", "No such queue")) {
			t.Errorf("%s leads nowhere", query)
		}
	}

	// And put into the document by the script.
	b.do(chromedp.Navigate(url + "/" + links[3]))
	renew(b)
	if bad := eval[[]string](b, strays); len(bad) > 0 {
		t.Errorf("after a refresh the page has %q", bad)
	}
	texts := strings.Join(eval[[]string](b, `[...document.querySelectorAll('[data-of="Ready"] .text')].map(e => e.textContent)`), "\n")
	for _, want := range []string{
		hostile[0], hostile[4], "{{.Title}}", "&lt;b&gt;", `nul\x00nul`, `esc\x1b[2Jesc`, `c1\u009b31m`, `line\nfeed\r\nand\ttab`, `rtl\u202egnp.exe`, `bad\xff\xfe\xc3(utf8`,
		"(empty)", "  two  spaces  ", "wide… 1,048,576 bytes in all", "עברית وعربي",
	} {
		if !strings.Contains(texts, want) {
			t.Errorf("not shown: %q", want)
		}
	}
}

// strays returns what is in the document that the template does not put there: elements,
// attributes and characters.
const strays = `(() => {
	const elements = new Set("HTML HEAD META TITLE NOSCRIPT STYLE BODY HEADER H1 NAV A FORM LABEL INPUT BUTTON P MAIN SECTION H2 H3 SPAN SMALL STRONG TABLE THEAD TBODY TR TH TD BDI I DIV FIGURE FIGCAPTION FOOTER SCRIPT svg rect path".split(" "));
	const bad = [];
	for (const e of document.querySelectorAll("*")) {
		if (!elements.has(e.tagName)) bad.push(e.tagName);
		for (const a of e.attributes) {
			if (a.name.startsWith("on") || a.name === "style" || a.name === "src" || a.name === "srcdoc" || a.name === "action") bad.push(a.name);
			if (a.name === "href" && !/^\?[-\w.%+=&*]*$/.test(a.value)) bad.push("href " + a.value);
		}
		if (e.tagName === "BDI" && e.innerHTML.replace(/<\/?i>/g, "").includes("<")) bad.push(e.innerHTML);
	}
	if (document.scripts.length !== 1) bad.push(document.scripts.length + " scripts");
	if (/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/u.test(document.body.innerText.replaceAll(/[\n\t]/g, ""))) bad.push("characters that cannot be seen");
	return bad;
})()`

// Many queues and many keys: the page stays small and quick, and says how many there are.
func TestMany(t *testing.T) {
	t.Parallel()
	p := page.New(page.Options{})
	var queues []*typedqueue.Queue[string]
	for i := range 100 {
		q := typedqueue.NewQueue[string](typedqueue.Options{TrackTime: true})
		_, err := page.Watch(p, fmt.Sprintf("queue %02d", i), q)
		must(t, err)
		queues = append(queues, q)
	}
	for k := range 100_000 {
		queues[42].Add(fmt.Sprintf("key %d", k))
	}
	defer runtime.KeepAlive(queues)
	stop := make(chan struct{})
	var working sync.WaitGroup
	defer working.Wait()
	defer close(stop)
	working.Go(func() { // the queue goes on while it is looked at
		for k := 0; ; k++ {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
			key, _ := queues[42].Get()
			queues[42].Done(key)
			queues[42].Add(key)
		}
	})
	url := serve(t, p)
	b := open(t, 1000, 800)
	b.do(chromedp.Navigate(url))
	if n := eval[int](b, `document.querySelectorAll("table.queues tbody tr").length`); n != 100 {
		t.Errorf("%d queues are shown", n)
	}
	for query, want := range map[string]string{
		"":                            "Queues 100",
		"?queue=queue+42":             "of 100,000",
		"?queue=queue+42&key=99":      "of 100,000",
		"?key=99":                     "of 100,000",
		"?queue=queue+42&limit=1000":  "The first 1,000 of ",
		"?queue=queue+42&key=nowhere": "0 of 100,000",
	} {
		b.do(chromedp.Navigate(url + "/" + query))
		if text := eval[string](b, `document.body.innerText.replaceAll(/\s+/g, " ")`); !strings.Contains(text, want) && !strings.Contains(text, strings.ReplaceAll(want, "100,000", "99,999")) {
			t.Errorf("%s: %.400s", query, text)
		}
		renew(b)
		took := eval[float64](b, `Math.max(...performance.getEntriesByType("resource").map(e => e.duration))`)
		size := eval[float64](b, `document.documentElement.outerHTML.length`)
		t.Logf("%-30q %4.0f ms for an answer, %4.0f kB", query, took, size/1000)
		if size > 400_000 {
			t.Errorf("%s: the page has %.0f bytes", query, size)
		}
	}
}

// renew waits until the page has been made anew.
func renew(b *tab) {
	b.Helper()
	eval[bool](b, `(() => { document.getElementById("live").old = true; return true })()`)
	b.until(`!document.getElementById("live").old`)
}
