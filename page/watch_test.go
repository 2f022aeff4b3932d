package page_test

import (
	"context"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/typedqueue"
	"example.com/typedqueue/page"
)

func TestWatch_Names(t *testing.T) {
	p := page.New(page.Options{})
	a, b := new(typedqueue.Queue[int]), new(typedqueue.Queue[int])
	fifo := typedqueue.NewFIFO(func(i int) (int, error) { return i, nil })
	first := must(page.Watch(p, "name", a))
	if _, err := page.Watch(p, "name", b); !errors.Is(err, page.ErrTaken) || !strings.HasPrefix(err.Error(), "typedqueue: ") {
		t.Errorf("a name that is taken: %v", err)
	}
	if _, err := page.Watch(p, "", b); err == nil || errors.Is(err, page.ErrTaken) {
		t.Errorf("an empty name: %v", err)
	}
	a.Add(1)
	a.ShutDown()
	wantShown(t, ask(p, ""), "name shut down – 0 1 0")
	must(page.WatchFIFO(p, "name", fifo)) // takes its place
	wantNotShown(t, ask(p, ""), "shut down")
	first.Remove() // of the one that was there before
	wantShown(t, ask(p, "?queue=name"), "name Oldest")
	if _, err := page.Watch(p, "name", b); !errors.Is(err, page.ErrTaken) {
		t.Errorf("a name that is taken by a FIFO: %v", err)
	}
	fifo.Close()
	wantShown(t, ask(p, ""), "name shut down")
	last := must(page.Watch(p, "name", b))
	last.Remove()
	last.Remove()
	wantShown(t, ask(p, ""), "There are no queues.")
	runtime.KeepAlive([]any{a, b, fifo})
}

func TestWatch_Panics(t *testing.T) {
	p := page.New(page.Options{})
	var none context.Context
	for name, f := range map[string]func(){
		"nil page":       func() { _, _ = page.Watch(nil, "q", new(typedqueue.Queue[int])) },
		"nil queue":      func() { _, _ = page.Watch(p, "q", (*typedqueue.Queue[int])(nil)) },
		"nil FIFO":       func() { _, _ = page.WatchFIFO(p, "q", (*typedqueue.FIFO[int, int])(nil)) },
		"nil context":    func() { p.Record(none) },
		"negative Stuck": func() { page.New(page.Options{Stuck: -1}) },
	} {
		func() {
			defer func() {
				if got, ok := recover().(string); !ok || !strings.HasPrefix(got, "typedqueue: ") {
					t.Errorf("%s: %v", name, got)
				}
			}()
			f()
		}()
	}
}

// Samples are taken each second while Record runs, and when somebody looks; not when nobody does,
// and not twice within half a second.
func TestRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := page.New(page.Options{})
		q := new(typedqueue.Queue[int])
		must(page.Watch(p, "q", q))
		samples := func() (ago []float64) {
			for _, s := range read(t, ask(p, "?queue=q&format=json")).Queues.Items[0].History {
				ago = append(ago, s.AgoSeconds)
			}
			return ago
		}
		ctx, cancel := context.WithCancel(t.Context())
		var recording sync.WaitGroup
		for range 3 { // no more samples than of one
			recording.Go(func() { p.Record(ctx) })
		}
		time.Sleep(2400 * time.Millisecond)
		if got, want := fmt.Sprint(samples()), "[2.4 1.4 0.4]"; got != want {
			t.Errorf("samples %s, want %s", got, want)
		}
		time.Sleep(100 * time.Millisecond)
		if got, want := fmt.Sprint(samples()), "[2.5 1.5 0.5 0]"; got != want {
			t.Errorf("samples %s, want %s", got, want)
		}
		cancel()
		recording.Wait()
		time.Sleep(time.Minute)
		if got, want := fmt.Sprint(samples()), "[62.5 61.5 60.5 60 0]"; got != want {
			t.Errorf("samples %s, want %s", got, want)
		}
		time.Sleep(239900 * time.Millisecond)
		if got, want := fmt.Sprint(samples()), "[299.9 239.9 0]"; got != want {
			t.Errorf("samples %s, want %s", got, want)
		}
		p.Record(ctx) // done already: nothing
		runtime.KeepAlive(q)
	})
}

// Record does not keep a queue alive, nor its samples for ever.
func TestRecord_Collected(t *testing.T) {
	p := page.New(page.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	var recording sync.WaitGroup
	recording.Go(func() { p.Record(ctx) })
	collected := make(chan struct{})
	func() {
		q := new(typedqueue.Queue[int])
		must(page.Watch(p, "q", q))
		ask(p, "")
		runtime.AddCleanup(q, func(c chan struct{}) { close(c) }, collected)
	}()
	waitCollected(t, collected)
	cancel()
	recording.Wait()
}

// Keys whose text is dangerous to make.
type (
	panics  int
	nested  int
	mutable struct{ n int }
	shy     struct{ p *mutable }
	selfish struct{ f func() }
)

func (panics) String() string { panic("boom") }

// String panics with a value that panics when fmt prints it.
func (nested) String() string { panic(panics(0)) }

func (s *selfish) String() string { s.f(); return "selfish" }

func TestPage_TextOfKeys(t *testing.T) {
	p := page.New(page.Options{})
	q := typedqueue.NewQueue[any](typedqueue.Options{})
	must(page.Watch(p, "q", q))
	pointer := &mutable{}
	calls := func() {
		q.Len()                    // the queue's lock is free
		q.Cancel("none")           // also for a change
		ask(p, "?queue=q&key=zzz") // and so is the page's
		e, err := page.Watch(p, "other", new(typedqueue.Queue[int]))
		if err == nil {
			e.Remove()
		}
	}
	var called atomic.Bool
	q.AddAll(panics(1), nested(2), pointer, shy{pointer}, nil, "", 3.5, struct{ A, B string }{"x", "y"},
		&selfish{func() {
			if called.CompareAndSwap(false, true) {
				calls()
			}
		}}, errors.New("an error"), (*selfish)(nil), time.Second)

	stop := make(chan struct{})
	var changing sync.WaitGroup
	changing.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				pointer.n++ // a race, if the page read it
				runtime.Gosched()
			}
		}
	})
	body := ask(p, "?queue=q")
	close(stop)
	changing.Wait()
	wantShown(t, body,
		"1 %!v(PANIC=String method: boom)", "2 (the text of a page_test.nested panics)",
		"3 *page_test.mutable(0x", "4 {0x", "5 &lt;nil&gt;", "6 (empty)", "7 3.5", "8 {x y}", "9 selfish", "10 an error", "11 &lt;nil&gt;", "12 1s")
	wantShown(t, ask(p, "?queue=q&key=selfish"), "9 selfish")
	runtime.KeepAlive(q)
}

// hostile are texts that must do nothing but be seen. The tests in a browser have more.
var hostile = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `' onfocus='alert(1)' autofocus='`,
	"</title></style></script><script>alert(1)</script>", "{{.Title}}${alert(1)}", "javascript:alert(1)", "a\x00b\x1b[31mc\u009bd",
	"\u202egnp.exe", "\xff\xfe", "line\nbreak\ttab", "]]>", "<!--", "&lt;&#x27;", "\u2028", "data:text/html,<b>",
	strings.Repeat("k", 1<<20), strings.Repeat("ü", 1<<19),
}

func TestPage_HostileText(t *testing.T) {
	p := page.New(page.Options{Title: hostile[3], Stuck: time.Nanosecond})
	var queues []any
	for i, text := range hostile {
		if len(text) > 256 {
			if _, err := page.Watch(p, text, new(typedqueue.Queue[int])); err == nil || errors.Is(err, page.ErrTaken) {
				t.Errorf("a name of %d bytes: %v", len(text), err)
			}
			text = text[:256]
		}
		q := typedqueue.NewDelayingQueue[string](typedqueue.Options{TrackTime: true})
		must(page.Watch(p, text, q))
		q.AddAll(hostile[i:]...)
		q.Get()
		q.AddAfter(hostile[i]+"later", time.Hour)
		queues = append(queues, q)
	}
	plain := page.New(page.Options{})
	tags := strings.Count(ask(plain, "?queue=none"), "<script")
	values := regexp.MustCompile(` value="[^"]*"`) // what somebody has typed stays as it is
	for _, text := range append([]string{""}, hostile[:len(hostile)-2]...) {
		for _, parameter := range []string{"queue", "key", "name"} {
			w := httptest.NewRecorder()
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.URL.RawQuery = url.Values{parameter: {text}}.Encode()
			p.ServeHTTP(w, r)
			body := values.ReplaceAllString(w.Body.String(), "")
			if w.Code != http.StatusOK {
				t.Errorf("%s=%q: %d", parameter, text, w.Code)
			}
			if n := strings.Count(body, "<script"); n != tags {
				t.Errorf("%s=%q: %d scripts, want %d", parameter, text, n, tags)
			}
			for _, never := range []string{"<img", "\x00", "\x1b", "\u009b", "\u202e", "\xff", "\u2028", "<b>", `href="javascript`, `href="data`, "autofocus='"} {
				if strings.Contains(body, never) {
					t.Errorf("%s=%q: the page has %q", parameter, text, never)
				}
			}
			if len(body) > 1<<20 {
				t.Errorf("%s=%q: %d bytes", parameter, text, len(body))
			}
		}
	}
	// A long name is found by its link, and by a part of it that is not shown.
	if r := read(t, ask(p, "?key=kklater&format=json")); r.Queues.Items[0].Keys.Waiting.Total == 0 {
		t.Error("nothing waits")
	} else if !strings.Contains(ask(p, "?key=kklater"), "1,048,581 bytes in all") {
		t.Error("a long key is not found by its end, or does not tell its length")
	}
	for _, link := range regexp.MustCompile(`id="queue-\d+" href="([^"]*)"`).FindAllStringSubmatch(ask(p, ""), -1) {
		if body := ask(p, html.UnescapeString(link[1])); strings.Contains(body, "No such queue") {
			t.Errorf("nothing is at %s", link[1])
		} else if hidden := regexp.MustCompile(`name="queue" value="([^"]*)"`).FindStringSubmatch(body); hidden == nil || strings.ContainsFunc(html.UnescapeString(hidden[1]), func(r rune) bool { return !strconv.IsPrint(r) || r == '\ufffd' }) {
			t.Errorf("at %s a form would not send %q as it is", link[1], hidden)
		}
	}
	runtime.KeepAlive(queues)
}

// held is a queue of the caller's around ours that waits before it answers.
type held struct {
	*typedqueue.Queue[int]
	stats, shutDown func()
}

func (h *held) Stats() typedqueue.Stats { h.stats(); return h.Queue.Stats() }
func (h *held) ShuttingDown() bool      { h.shutDown(); return false }

// A queue that does not answer holds up who asks for it, and not the page.
func TestPage_HeldQueue(t *testing.T) {
	p := page.New(page.Options{})
	other := new(typedqueue.Queue[int])
	look, claim := func() { ask(p, "") }, func() { _, _ = page.Watch(p, "held", other) }
	for _, c := range []struct {
		ask   func()
		waits func(h *held, wait func())
	}{
		{look, func(h *held, wait func()) { h.stats = wait }},
		{look, func(h *held, wait func()) { h.shutDown = wait }},
		{claim, func(h *held, wait func()) { h.shutDown = wait }},
	} {
		asked, release := make(chan struct{}), make(chan struct{})
		h := &held{new(typedqueue.Queue[int]), func() {}, func() {}}
		c.waits(h, func() { close(asked); <-release })
		e := must(page.Watch(p, "held", h))
		var asking sync.WaitGroup
		asking.Go(c.ask)
		<-asked
		must(page.Watch(p, "other", other)).Remove()
		close(release)
		asking.Wait()
		e.Remove()
		runtime.KeepAlive(h)
	}
}

// Everything at once, for the race detector.
func TestPage_Concurrent(t *testing.T) {
	p := page.New(page.Options{Stuck: time.Microsecond})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { p.Record(ctx) })
	q := typedqueue.NewRateLimitingQueue[int](nil, typedqueue.Options{TrackTime: true})
	must(page.Watch(p, "q", q))
	running.Go(func() {
		_ = q.Run(ctx, typedqueue.RunOptions[int]{Workers: 2}, func(context.Context, int) error { return errors.New("again") })
	})
	var looking sync.WaitGroup
	for i := range 4 {
		looking.Go(func() {
			for k := range 50 {
				q.Add(k)
				if e, err := page.Watch(p, fmt.Sprint(i, k%3), new(typedqueue.Queue[int])); err == nil && k%2 == 0 {
					e.Remove()
				}
				for _, query := range []string{"", "?queue=q", "?key=1&format=json"} {
					if body := ask(p, query); body == "" {
						t.Error("no answer")
					}
				}
			}
		})
	}
	looking.Wait()
	cancel()
	running.Wait()
}
