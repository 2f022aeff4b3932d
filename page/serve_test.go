package page_test

import (
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/typedqueue"
	"example.com/typedqueue/page"
)

// answer is an answer as it came over HTTP.
type answer struct {
	*http.Response
	body string
}

func get(t *testing.T, method, url string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{res, string(body)}
}

func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL + "/"
}

// ask returns the answer to a query without a network, for bubbles.
func ask(p *page.Page, query string) string {
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/"+query, nil))
	return w.Body.String()
}

// What JSON says, as far as a test reads it.
type (
	report struct {
		Stuck  list
		Queues struct {
			Total, Matching int
			Items           []queue
		}
	}
	queue struct {
		Name                       string
		ShutDown, Stuck            bool
		OldestSeconds              *float64
		Ready, Processing, Waiting int
		Adds                       struct {
			Total     int
			PerSecond *float64
		}
		Keys    struct{ Processing, Ready, Waiting list }
		History []struct{ AgoSeconds float64 }
	}
	list struct {
		Total, Matching int
		Items           []item
	}
	item struct {
		Queue, Key         string
		KeyBytes, Position int
		ForSeconds         *float64
		InSeconds          *float64
		Stuck              bool
	}
)

func read(t *testing.T, body string) (r report) {
	t.Helper()
	if err := json.Unmarshal([]byte(body), &r); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	return r
}

func (l list) keys() string {
	var all []string
	for _, it := range l.Items {
		all = append(all, it.Key)
	}
	return strings.Join(all, " ")
}

func must[V any](v V, err error) V {
	if err != nil {
		panic(err)
	}
	return v
}

// shown returns the text of an HTML page, without its tags, script and style.
func shown(body string) string {
	body = regexp.MustCompile(`(?s)<(script|style)>.*?</(script|style)>`).ReplaceAllString(body, "")
	body = regexp.MustCompile(`<[^>]*>`).ReplaceAllString(body, " ")
	return strings.Join(strings.Fields(body), " ")
}

func wantShown(t *testing.T, body string, texts ...string) {
	t.Helper()
	text := shown(body)
	for _, want := range texts {
		if !strings.Contains(text, want) {
			t.Errorf("not there: %q\n%.1000s", want, text)
		}
	}
}

func wantNotShown(t *testing.T, body string, texts ...string) {
	t.Helper()
	text := shown(body)
	for _, not := range texts {
		if strings.Contains(text, not) {
			t.Errorf("there: %q\n%.1000s", not, text)
		}
	}
}

// Every kind of queue, over HTTP.
func TestPage_Kinds(t *testing.T) {
	p := page.New(page.Options{})
	url := serve(t, p)
	tracked := typedqueue.Options{TrackTime: true}

	plain := typedqueue.NewQueue[int](tracked)
	must(page.Watch(p, "plain", plain))
	delaying := typedqueue.NewDelayingQueue[string](tracked)
	must(page.Watch(p, "delaying", delaying))
	limited := typedqueue.NewRateLimitingQueue[[2]int](nil, typedqueue.Options{})
	must(page.Watch(p, "limited", limited))
	fifo := typedqueue.NewFIFO(func(s string) (string, error) { return s, nil })
	must(page.WatchFIFO(p, "fifo", fifo))
	deltas := typedqueue.NewDeltaFIFO(func(i int) (int, error) { return i, nil }, typedqueue.DeltaFIFOOptions[int, int]{})
	must(page.WatchFIFO(p, "deltas", deltas))

	plain.AddAll(1, 2, 3)
	plain.Get()
	delaying.AddAfter("later", time.Hour)
	delaying.AddAfter("much later", 2*time.Hour)
	limited.Add([2]int{1, 2})
	limited.Get()
	must(0, fifo.Replace([]string{"a", "b"}))
	must(0, deltas.Add(7))

	all := read(t, get(t, http.MethodGet, url+"?format=json").body)
	got := make(map[string][4]int)
	for _, q := range all.Queues.Items {
		got[q.Name] = [4]int{q.Ready, q.Processing, q.Waiting, q.Adds.Total}
	}
	want := map[string][4]int{
		"plain": {2, 1, 0, 3}, "delaying": {0, 0, 2, 0}, "limited": {0, 1, 0, 1}, "fifo": {2, 0, 0, 2}, "deltas": {1, 0, 0, 1},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}

	q := read(t, get(t, http.MethodGet, url+"?queue=plain&format=json").body).Queues.Items[0]
	if got := q.Keys.Processing.keys() + "|" + q.Keys.Ready.keys(); got != "1|2 3" {
		t.Errorf("keys of plain: %s", got)
	}
	if q.OldestSeconds == nil || *q.OldestSeconds <= 0 || q.Keys.Processing.Items[0].ForSeconds == nil {
		t.Error("plain tells no age")
	}
	q = read(t, get(t, http.MethodGet, url+"?queue=delaying&format=json").body).Queues.Items[0]
	if got := q.Keys.Waiting.keys(); got != "later much later" {
		t.Errorf("keys of delaying: %s", got)
	}
	wantShown(t, get(t, http.MethodGet, url+"?queue=delaying").body, "in 59 m 59 s later", "in 1 h 59 m much later")
	wantShown(t, get(t, http.MethodGet, url+"?queue=limited").body, "Oldest in processing unknown", "[1 2]")
	wantShown(t, get(t, http.MethodGet, url+"?queue=deltas").body, "Ready 1 next first 1 7")
	wantShown(t, get(t, http.MethodGet, url).body, "1 of the queues does not tell how long.", "limited unknown 1 0 0")

	popped := make(chan struct{})
	var popping sync.WaitGroup
	popping.Go(func() {
		_, _ = fifo.Pop(t.Context(), func(string, string, bool) error { popped <- struct{}{}; <-popped; return nil })
	})
	<-popped
	body := get(t, http.MethodGet, url+"?queue=fifo").body
	wantShown(t, body, "Processing 1 longest first A queue of this kind does not tell its keys.", "Ready 1 next first 1 b")
	if body := get(t, http.MethodGet, url+"?queue=fifo&format=json").body; !strings.Contains(body, `"processing": null`) {
		t.Errorf("a FIFO tells what it does not know: %s", body)
	}
	popped <- struct{}{}
	popping.Wait()
	for _, q := range []any{plain, delaying, limited, fifo, deltas} {
		runtime.KeepAlive(q)
	}
}

// The schema is a promise: each name and value of a run in which everything is known.
func TestPage_JSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := page.New(page.Options{Title: "Mine", Stuck: 5 * time.Second})
		q := typedqueue.NewRateLimitingQueue[string](nil, typedqueue.Options{TrackTime: true})
		must(page.Watch(p, "<a>", q))
		q.AddAll("x", "y", "z", "x")
		ask(p, "")
		q.Get()
		time.Sleep(2500 * time.Millisecond)
		q.AddRateLimited("w")
		q.AddAfter("later", time.Minute)
		q.Done("none")
		time.Sleep(3500 * time.Millisecond) // w is ready meanwhile
		const want = `{
	"title": "Mine",
	"at": "2000-01-01T00:00:06Z",
	"stuckAfterSeconds": 5,
	"queues": {
		"total": 1,
		"matching": 1,
		"items": [
			{
				"name": "\u003ca\u003e",
				"shutDown": false,
				"stuck": true,
				"oldestSeconds": 6,
				"unfinishedSeconds": 6,
				"ready": 3,
				"processing": 1,
				"waiting": 1,
				"adds": {
					"total": 4,
					"perSecond": 0.16666666666666666
				},
				"merged": {
					"total": 1,
					"perSecond": 0
				},
				"retries": {
					"total": 1,
					"perSecond": 0.16666666666666666
				},
				"dropped": {
					"total": 0,
					"perSecond": 0
				},
				"strayDones": {
					"total": 1,
					"perSecond": 0.16666666666666666
				},
				"rateSeconds": 6,
				"keys": {
					"processing": {
						"total": 1,
						"matching": 1,
						"items": [
							{
								"key": "x",
								"forSeconds": 6,
								"stuck": true
							}
						]
					},
					"ready": {
						"total": 3,
						"matching": 3,
						"items": [
							{
								"key": "y",
								"position": 1
							}
						]
					},
					"waiting": {
						"total": 1,
						"matching": 1,
						"items": [
							{
								"key": "later",
								"inSeconds": 56.5
							}
						]
					}
				},
				"history": [
					{
						"agoSeconds": 6,
						"oldestSeconds": null,
						"ready": 3,
						"processing": 0,
						"waiting": 0,
						"adds": 3
					},
					{
						"agoSeconds": 0,
						"oldestSeconds": 6,
						"ready": 3,
						"processing": 1,
						"waiting": 1,
						"adds": 4
					}
				]
			}
		]
	}
}
`
		if got := ask(p, "?queue=%3Ca%3E&limit=1&format=json"); got != want {
			t.Errorf("got %s", got)
		}
		const stuck = `"stuck": {
		"total": 1,
		"matching": 1,
		"items": [
			{
				"queue": "\u003ca\u003e",
				"key": "x",
				"forSeconds": 6,
				"stuck": true
			}
		]
	},`
		if got := ask(p, "?format=json"); !strings.Contains(got, stuck) {
			t.Errorf("got %s", got)
		}
		runtime.KeepAlive(q)
	})
}

// What is stuck is first, longest first, from all queues, and says for how long.
func TestPage_Stuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := page.New(page.Options{})
		watch := func(name string) *typedqueue.Queue[string] {
			q := typedqueue.NewQueue[string](typedqueue.Options{TrackTime: true})
			must(page.Watch(p, name, q))
			return q
		}
		calm, a, b := watch("0 calm"), watch("a"), watch("b")
		for i, q := range []*typedqueue.Queue[string]{b, a, b, a} { // in turn
			q.Add(fmt.Sprint("key", i))
			q.Get()
			time.Sleep(10 * time.Second)
		}
		time.Sleep(20*time.Second - time.Nanosecond)
		wantShown(t, ask(p, ""), "Nothing is stuck Stuck is what has been processed for 1 m or longer.", "Ready, five minutes 0 calm –")
		time.Sleep(time.Nanosecond)
		wantShown(t, ask(p, ""), "Stuck 1 Processed for Key Queue 1 m key0 b")
		time.Sleep(11 * time.Second)
		body := ask(p, "")
		wantShown(t, body, "Stuck 2 Processed for Key Queue 1 m 11 s key0 b 1 m 01 s key1 a", "Queues 3")
		if !strings.Contains(body, "<title>2 stuck – Queues</title>") {
			t.Error("the title does not tell")
		}
		if s, q := strings.Index(shown(body), "Stuck 2"), strings.Index(shown(body), "Queues 3"); s > q {
			t.Error("what is stuck comes after the queues")
		}
		for i, row := range []string{`id="queue-3"`, `id="queue-2"`, `id="queue-1"`} { // b, a, calm
			if rows := regexp.MustCompile(`id="queue-\d+"`).FindAllString(body, -1); rows[i] != row {
				t.Errorf("the queues come as %s", rows)
			}
		}
		if n := strings.Count(body, `<tr class="late">`); n != 4 { // two keys, two queues
			t.Errorf("%d rows are marked", n)
		}
		time.Sleep(20 * time.Second)
		wantShown(t, ask(p, ""), "1 m 31 s key0 b 1 m 21 s key1 a 1 m 11 s key2 b 1 m 01 s key3 a")
		wantShown(t, ask(p, "?key=y2"), "Stuck 1 Processed for Key Queue 1 m 11 s key2 b")
		wantShown(t, ask(p, "?name=a"), "Stuck 2 Processed for Key Queue 1 m 21 s key1 a 1 m 01 s key3 a")
		wantShown(t, ask(p, "?limit=3"), "1 m 11 s key2 b The 3 oldest of 4. Up to 1,000")
		wantShown(t, ask(p, "?queue=a"), "a stuck Oldest in processing 1 m 21 s", "1 m 21 s key1 1 m 01 s key3")
		b.Done("key0")
		wantNotShown(t, ask(p, ""), "key0")
		runtime.KeepAlive([]any{calm, a, b})
	})
}

func TestPage_Headers(t *testing.T) {
	p := page.New(page.Options{})
	url := serve(t, p)
	want := map[string]string{
		"X-Frame-Options":        "DENY",
		"X-Content-Type-Options": "nosniff",
		"Referrer-Policy":        "no-referrer",
		"Cache-Control":          "no-store",
	}
	policy := regexp.MustCompile(`^default-src 'none'; script-src 'sha256-[A-Za-z0-9+/]{43}='; style-src 'sha256-[A-Za-z0-9+/]{43}='; ` +
		`connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'$`)
	for _, c := range []struct {
		method, query string
		status        int
		kind          string
	}{
		{"GET", "", 200, "text/html; charset=utf-8"},
		{"HEAD", "", 200, "text/html; charset=utf-8"},
		{"GET", "?format=json", 200, "application/json"},
		{"GET", "?queue=none", 404, "text/html; charset=utf-8"},
		{"GET", "?queue=none&format=json", 404, "application/json"},
		{"GET", "?limit=0", 400, "text/plain; charset=utf-8"},
		{"GET", "?limit=1001", 400, "text/plain; charset=utf-8"},
		{"GET", "?limit=x", 400, "text/plain; charset=utf-8"},
		{"GET", "?refresh=on", 400, "text/plain; charset=utf-8"},
		{"GET", "?format=xml", 400, "text/plain; charset=utf-8"},
		{"GET", "?key=" + strings.Repeat("k", 1025), 400, "text/plain; charset=utf-8"},
		{"GET", "?key=%zz", 400, "text/plain; charset=utf-8"},
		{"GET", "?key=a;b", 400, "text/plain; charset=utf-8"},
		{"POST", "", 405, "text/plain; charset=utf-8"},
		{"DELETE", "?queue=none", 405, "text/plain; charset=utf-8"},
		{"OPTIONS", "", 405, "text/plain; charset=utf-8"},
	} {
		a := get(t, c.method, url+c.query)
		if a.StatusCode != c.status || a.Header.Get("Content-Type") != c.kind {
			t.Errorf("%s %s: %d %s", c.method, c.query, a.StatusCode, a.Header.Get("Content-Type"))
		}
		for name, value := range want {
			if got := a.Header.Values(name); !slices.Equal(got, []string{value}) {
				t.Errorf("%s %s: %s is %q", c.method, c.query, name, got)
			}
		}
		if got := a.Header.Get("Content-Security-Policy"); !policy.MatchString(got) {
			t.Errorf("%s %s: policy %s", c.method, c.query, got)
		}
		if allow := a.Header.Get("Allow"); (allow == "GET, HEAD") != (c.status == 405) {
			t.Errorf("%s %s: allow %q", c.method, c.query, allow)
		}
		if c.method == "HEAD" && (a.body != "" || a.ContentLength <= 0) {
			t.Errorf("HEAD has a body of %d, and a length of %d", len(a.body), a.ContentLength)
		}
	}
}

// Every link leads back to the handler, wherever that is.
func TestPage_AnyPrefix(t *testing.T) {
	p := page.New(page.Options{})
	q := typedqueue.NewQueue[string](typedqueue.Options{})
	const name = "a/b?c=d&e#f%g:h"
	must(page.Watch(p, name, q))
	q.Add("key")
	mux := http.NewServeMux()
	mux.Handle("/debug/queues", p)
	mux.Handle("/stripped/", http.StripPrefix("/stripped/", p))
	mux.Handle("/{$}", p)
	base := serve(t, mux)
	links := regexp.MustCompile(`(?:href|src|action)="([^"]*)"`)
	for _, prefix := range []string{"", "debug/queues", "stripped/", "stripped/deeper"} {
		at := must(url.Parse(base + prefix))
		seen := map[string]bool{at.String(): true}
		for todo := []string{at.String()}; len(todo) > 0; todo = todo[1:] {
			a := get(t, http.MethodGet, todo[0])
			if a.StatusCode != http.StatusOK {
				t.Fatalf("%s: %s", todo[0], a.Status)
			}
			for _, link := range links.FindAllStringSubmatch(a.body, -1) {
				target := must(must(url.Parse(todo[0])).Parse(html.UnescapeString(link[1])))
				if target.Path != at.Path || target.Host != at.Host {
					t.Errorf("at %s a link leads to %s", todo[0], target)
				}
				if !seen[target.String()] {
					seen[target.String()] = true
					todo = append(todo, target.String())
				}
			}
		}
		if len(seen) < 6 { // each of two pages, held still or not, and as JSON
			t.Errorf("under %q there are only %v", prefix, seen)
		}
	}
	if r := read(t, get(t, http.MethodGet, base+"?queue="+url.QueryEscape(name)+"&format=json").body); r.Queues.Items[0].Keys.Ready.keys() != "key" {
		t.Error("a name is not found by its link")
	}
	runtime.KeepAlive(q)
}

func TestPage_Filters(t *testing.T) {
	p := page.New(page.Options{})
	first, second := new(typedqueue.DelayingQueue[string]), new(typedqueue.Queue[int])
	must(page.Watch(p, "first", first))
	must(page.Watch(p, "second", second))
	first.AddAll("apple", "banana", "apricot")
	first.AddAfter("apex", time.Hour)
	for i := range 2500 {
		second.Add(i)
	}
	names := func(query string) string {
		var all []string
		for _, q := range read(t, ask(p, query+"&format=json")).Queues.Items {
			all = append(all, q.Name)
		}
		return strings.Join(all, " ")
	}
	for query, want := range map[string]string{
		"?": "first second", "?name=ir": "first", "?name=s": "first second", "?name=none": "", "?queue=second": "second", "?limit=1": "first",
	} {
		if got := names(query); got != want {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}

	// A key is looked for in every queue, and says its place in line.
	r := read(t, ask(p, "?key=ap&format=json"))
	keys := r.Queues.Items[0].Keys
	if got := keys.Ready.keys() + "|" + keys.Waiting.keys(); got != "apple apricot|apex" || keys.Ready.Matching != 2 || keys.Ready.Total != 3 {
		t.Errorf("found %s, %+v", got, keys)
	}
	if got := keys.Ready.Items[1].Position; got != 3 {
		t.Errorf("apricot is in place %d", got)
	}
	wantShown(t, ask(p, "?key=ap"), "Ready 2 of 3 next first 1 apple 3 apricot")
	wantNotShown(t, ask(p, "?key=ap"), "banana")

	// Lists are cut, and say so.
	for query, want := range map[string]list{
		"?queue=second":                  {Total: 2500, Matching: 2500, Items: make([]item, 100)},
		"?queue=second&limit=7":          {Total: 2500, Matching: 2500, Items: make([]item, 7)},
		"?queue=second&limit=1000":       {Total: 2500, Matching: 2500, Items: make([]item, 1000)},
		"?queue=second&key=9&limit=1000": {Total: 2500, Matching: 637, Items: make([]item, 637)},
		"?queue=second&key=9":            {Total: 2500, Matching: 637, Items: make([]item, 100)},
		"?queue=second&key=none":         {Total: 2500},
	} {
		got := read(t, ask(p, query+"&format=json")).Queues.Items[0].Keys.Ready
		if got.Total != want.Total || got.Matching != want.Matching || len(got.Items) != len(want.Items) {
			t.Errorf("%s: %d of %d of %d", query, len(got.Items), got.Matching, got.Total)
		}
	}
	wantShown(t, ask(p, "?queue=second"), "Ready 2,500 next first", "The first 100 of 2,500. Up to 1,000")
	wantShown(t, ask(p, "?queue=second&key=9"), "Ready 637 of 2,500 next first", "The first 100 of 637. Up to 1,000")
	wantShown(t, ask(p, "?queue=second&limit=1000"), "The first 1,000 of 2,500. Waiting")
	wantShown(t, ask(p, "?limit=1"), "1 of 2 queues. Up to 1,000")
	wantShown(t, ask(p, "?limit=1&key=a"), "1 of 2 queues; keys are looked for in these only.")
	if body := ask(p, "?name=none&format=json"); !strings.Contains(body, `"items": []`) || strings.Contains(body, `"items": null`) {
		t.Errorf("no queues: %s", body)
	}
	wantShown(t, ask(p, "?name=none"), "Queues 0 of 2 No queue has a name like this.")
	runtime.KeepAlive([]any{first, second})
}

// However many queues have the key, a page has no more than 1000 rows of keys.
func TestPage_Room(t *testing.T) {
	p := page.New(page.Options{})
	var queues []any
	for i := range 20 {
		q := new(typedqueue.Queue[int])
		must(page.Watch(p, fmt.Sprint(i), q))
		for k := range 90 {
			q.Add(k)
		}
		queues = append(queues, q)
	}
	rows := 0
	for _, q := range read(t, ask(p, "?key=&name=&format=json")).Queues.Items {
		rows += len(q.Keys.Ready.Items)
	}
	if rows != 0 {
		t.Errorf("%d keys without a filter", rows)
	}
	for _, q := range read(t, ask(p, "?key=8&format=json")).Queues.Items {
		rows += len(q.Keys.Ready.Items)
		if q.Keys.Ready.Matching != 18 {
			t.Errorf("%d match", q.Keys.Ready.Matching)
		}
	}
	if rows != 20*18 {
		t.Errorf("%d keys with an 8, want %d", rows, 20*18)
	}
	for i := range queues { // now more than there is room for
		for k := range 90 {
			queues[i].(*typedqueue.Queue[int]).Add(8000 + k)
		}
	}
	rows = 0
	for _, q := range read(t, ask(p, "?key=8&format=json")).Queues.Items {
		rows += len(q.Keys.Ready.Items)
	}
	if rows != 1000 {
		t.Errorf("%d keys, want 1000", rows)
	}
	wantShown(t, ask(p, "?key=8"), "No room for these.")
	runtime.KeepAlive(queues)
}

// The page of one queue has room for all three of its lists, up to the limit.
func TestPage_RoomOfOneQueue(t *testing.T) {
	p := page.New(page.Options{})
	q := new(typedqueue.DelayingQueue[int])
	must(page.Watch(p, "q", q))
	for i := range 1200 {
		q.Add(i)
		q.Get()
		q.Add(2000 + i)
		q.AddAfter(4000+i, time.Hour)
	}
	for limit, want := range map[int]int{7: 7, 900: 900, 1000: 1000} {
		keys := read(t, ask(p, fmt.Sprintf("?queue=q&limit=%d&format=json", limit))).Queues.Items[0].Keys
		if a, b, c := len(keys.Processing.Items), len(keys.Ready.Items), len(keys.Waiting.Items); a != want || b != want || c != want {
			t.Errorf("limit %d: %d, %d and %d keys", limit, a, b, c)
		}
	}
	wantNotShown(t, ask(p, "?queue=q&limit=1000"), "No room for these.")
	runtime.KeepAlive(q)
}

// Of queues whose names look alike all are shown, and the form asks for what a browser can send.
func TestPage_NamesThatLookAlike(t *testing.T) {
	p := page.New(page.Options{})
	a, b := new(typedqueue.Queue[int]), new(typedqueue.Queue[int])
	must(page.Watch(p, "\x00", a))
	must(page.Watch(p, `\x00`, b))
	if got := read(t, ask(p, "?queue=%5Cx00&limit=1&format=json")).Queues.Items; len(got) != 2 {
		t.Errorf("%d queues are shown, want 2", len(got))
	}
	if got := read(t, ask(p, "?name=%5Cx00&format=json")).Queues.Items; len(got) != 2 {
		t.Errorf("%d queues are found by what is shown of their names, want 2", len(got))
	}
	if body := ask(p, "?queue=%00"); !strings.Contains(body, `name="queue" value="\x00"`) {
		t.Errorf("the form's name of the queue cannot be sent: %s", body)
	}
	runtime.KeepAlive([]any{a, b})
}

// counting is a queue of the caller's around ours that counts what it is asked.
type counting struct {
	*typedqueue.Queue[string]
	snapshots, stats atomic.Int32
}

func (c *counting) Snapshot() typedqueue.Snapshot[string] {
	c.snapshots.Add(1)
	return c.Queue.Snapshot()
}

func (c *counting) Stats() typedqueue.Stats {
	c.stats.Add(1)
	return c.Queue.Stats()
}

// Only what shows keys asks for keys, which takes O(n) under the queue's lock.
func TestPage_AsksOnlyForWhatItShows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := page.New(page.Options{})
		watch := func(name string) *counting {
			c := &counting{Queue: typedqueue.NewQueue[string](typedqueue.Options{TrackTime: true})}
			must(page.Watch(p, name, c))
			return c
		}
		calm, late := watch("calm"), watch("late")
		expect := func(query string, ofCalm, ofLate int32) {
			t.Helper()
			ask(p, query)
			if c, l := calm.snapshots.Swap(0), late.snapshots.Swap(0); c != ofCalm || l != ofLate {
				t.Errorf("%q took %d and %d snapshots, want %d and %d", query, c, l, ofCalm, ofLate)
			}
			if c, l := calm.stats.Swap(0), late.stats.Swap(0); c != 1 || l != 1 {
				t.Errorf("%q asked %d and %d times for Stats, want 1", query, c, l)
			}
		}
		late.Add("a")
		late.Get()
		expect("", 0, 0)
		expect("?name=l&format=json", 0, 0)
		expect("?queue=calm", 1, 0)
		expect("?key=x", 1, 1)
		time.Sleep(time.Minute)
		expect("", 0, 1)
		expect("?name=calm", 0, 0)
		expect("?key=a", 1, 1) // not twice, although it is stuck and matches
	})
}

// stalled is a reader that takes nothing until it is released.
type stalled struct {
	*httptest.ResponseRecorder
	writing, release chan struct{}
}

func (s stalled) Write(b []byte) (int, error) {
	close(s.writing)
	<-s.release
	return s.ResponseRecorder.Write(b)
}

// While somebody reads slowly, nothing is held: no lock of the page or of a queue, and no queue.
func TestPage_SlowReader(t *testing.T) {
	p := page.New(page.Options{})
	q := new(typedqueue.Queue[string])
	e := must(page.Watch(p, "q", q))
	q.AddAll("a", "b")
	s := stalled{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}
	var serving sync.WaitGroup
	serving.Go(func() { p.ServeHTTP(s, httptest.NewRequest(http.MethodGet, "/?queue=q", nil)) })
	<-s.writing

	q.Add("c")
	q.Get()
	wantShown(t, ask(p, "?queue=q"), "Ready 2 next first 1 b 2 c")
	e.Remove()
	e = must(page.Watch(p, "q", q))
	collected := make(chan struct{})
	runtime.AddCleanup(q, func(c chan struct{}) { close(c) }, collected)
	q = nil
	waitCollected(t, collected)

	close(s.release)
	serving.Wait()
	wantShown(t, s.Body.String(), "Ready 2 next first 1 a 2 b")
	runtime.KeepAlive(e)
}

func waitCollected(t *testing.T, collected chan struct{}) {
	t.Helper()
	for {
		runtime.GC()
		select {
		case <-collected:
			return
		case <-t.Context().Done():
			t.Fatal("the queue is kept alive")
		case <-time.After(time.Millisecond):
		}
	}
}

// A queue disappears with its last pointer, and its name is free.
func TestPage_Collected(t *testing.T) {
	p := page.New(page.Options{})
	stays := new(typedqueue.Queue[int])
	must(page.Watch(p, "stays", stays))
	collected := make(chan struct{})
	func() {
		q := new(typedqueue.DelayingQueue[int])
		q.AddAfter(1, time.Hour)
		must(page.Watch(p, "goes", q))
		wantShown(t, ask(p, "?queue=goes"), "goes")
		runtime.AddCleanup(q, func(c chan struct{}) { close(c) }, collected)
		runtime.KeepAlive(q)
	}()
	waitCollected(t, collected)
	wantNotShown(t, ask(p, ""), "goes")
	wantShown(t, ask(p, ""), "Queues 1 Queue", "stays")
	wantShown(t, ask(p, "?queue=goes"), "No such queue")
	if got, want := ask(p, "?queue=goes&format=json"), `"error": "there is no queue of this name`; !strings.Contains(got, want) {
		t.Errorf("got %s", got)
	}
	must(page.Watch(p, "goes", new(typedqueue.Queue[int])))
	runtime.KeepAlive(stays)
}
