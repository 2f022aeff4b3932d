package prometheus_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"example.com/typedqueue"
	queueprom "example.com/typedqueue/prometheus"
)

// clientGo are the names and types of the metrics of a client-go queue; ours has more.
var (
	clientGo = map[string]dto.MetricType{
		"workqueue_depth":                             dto.MetricType_GAUGE,
		"workqueue_adds_total":                        dto.MetricType_COUNTER,
		"workqueue_queue_duration_seconds":            dto.MetricType_HISTOGRAM,
		"workqueue_work_duration_seconds":             dto.MetricType_HISTOGRAM,
		"workqueue_unfinished_work_seconds":           dto.MetricType_GAUGE,
		"workqueue_longest_running_processor_seconds": dto.MetricType_GAUGE,
		"workqueue_retries_total":                     dto.MetricType_COUNTER,
	}
	additions = map[string]dto.MetricType{
		"workqueue_processing":       dto.MetricType_GAUGE,
		"workqueue_waiting":          dto.MetricType_GAUGE,
		"workqueue_merged_total":     dto.MetricType_COUNTER,
		"workqueue_dropped_total":    dto.MetricType_COUNTER,
		"workqueue_stray_done_total": dto.MetricType_COUNTER,
	}
)

// exposed returns the names and types of all metrics.
func exposed() map[string]dto.MetricType {
	all := maps.Clone(clientGo)
	maps.Copy(all, additions)
	return all
}

// registered returns a new Collector in a new registry.
func registered() (*queueprom.Collector, *prometheus.Registry) {
	c, r := queueprom.NewCollector(), prometheus.NewPedanticRegistry()
	r.MustRegister(c)
	return c, r
}

// newQueue returns a queue that a series of that name watches and measures. Its limiter says 1 s,
// 2 s, 4 s and so on.
func newQueue(c *queueprom.Collector, name string) (*typedqueue.RateLimitingQueue[string], *queueprom.Series) {
	s := c.MustClaim(name)
	limiter := typedqueue.NewItemExponentialFailureRateLimiter[string](time.Second, time.Minute)
	q := typedqueue.NewRateLimitingQueue(limiter, typedqueue.Options{Metrics: s.Metrics()})
	queueprom.Watch(s, q)
	return q, s
}

// gather returns what a scrape of r would show, by name of metric.
func gather(t testing.TB, r prometheus.Gatherer) map[string]*dto.MetricFamily {
	t.Helper()
	all, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	byName := make(map[string]*dto.MetricFamily)
	for _, f := range all {
		byName[f.GetName()] = f
	}
	return byName
}

// value returns a gauge or counter, and 0 if there is no series of that queue.
func value(families map[string]*dto.MetricFamily, metric, queue string) float64 {
	m := find(families, metric, queue)
	return m.GetGauge().GetValue() + m.GetCounter().GetValue()
}

func find(families map[string]*dto.MetricFamily, metric, queue string) *dto.Metric {
	for _, m := range families[metric].GetMetric() {
		if label(m, "name") == queue {
			return m
		}
	}
	return nil
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// queues returns the names of the queues in families, sorted.
func queues(families map[string]*dto.MetricFamily) []string {
	names := make(map[string]bool)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			names[label(m, "name")] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// scrape gets and parses what server shows, as Prometheus does. It may be called from any
// goroutine.
func scrape(t *testing.T, server *httptest.Server) map[string]*dto.MetricFamily {
	t.Helper()
	response, err := server.Client().Get(server.URL)
	if err != nil {
		t.Error(err)
		return nil
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Errorf("%v, %v:\n%s", response.Status, err, body)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(body))
	if err != nil {
		t.Error(err)
	}
	return families
}

// serve serves what g gathers over HTTP, and returns where.
func serve(t *testing.T, g prometheus.Gatherer) *httptest.Server {
	server := httptest.NewServer(promhttp.HandlerFor(g, promhttp.HandlerOpts{}))
	t.Cleanup(server.Close)
	return server
}

// A run of which everything is known to the nanosecond, scraped over HTTP. The network has no
// place in a bubble, so the metrics are gathered in it and served after it.
func TestCollector_HTTP(t *testing.T) {
	var working, shutDown []*dto.MetricFamily
	synctest.Test(t, func(t *testing.T) { // so nothing of ours can go on running either
		c, r := registered()
		q, _ := newQueue(c, "orders")
		q.AddAll("a", "b", "a") // one of them merges
		time.Sleep(2 * time.Second)
		a, _ := q.TryGet() // after 2 s
		time.Sleep(3 * time.Second)
		q.AddRateLimited(a) // in 1 s
		q.Done(a)           // after 3 s
		q.Done("x")         // a stray
		time.Sleep(time.Second)
		synctest.Wait()
		q.TryGet() // b, after 6 s
		time.Sleep(500 * time.Millisecond)
		q.AddAfter("c", time.Hour)
		working, _ = r.Gather()

		q.ShutDown() // nothing freezes
		q.TryGet()   // a, after 500 ms
		time.Sleep(time.Second)
		shutDown, _ = r.Gather()
	})
	families := make(chan []*dto.MetricFamily, 1)
	server := serve(t, prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return <-families, nil }))

	want := map[string]float64{
		"workqueue_depth":                             1, // a
		"workqueue_adds_total":                        3,
		"workqueue_unfinished_work_seconds":           0.5,
		"workqueue_longest_running_processor_seconds": 0.5,
		"workqueue_retries_total":                     1,
		"workqueue_processing":                        1, // b
		"workqueue_waiting":                           1, // c
		"workqueue_merged_total":                      1,
		"workqueue_dropped_total":                     0,
		"workqueue_stray_done_total":                  1,
	}
	families <- working
	got := scrape(t, server)
	wantValues(t, got, "orders", want)
	wantHistogram(t, got, "workqueue_queue_duration_seconds", "orders", 2, 2+6)
	wantHistogram(t, got, "workqueue_work_duration_seconds", "orders", 1, 3)

	want["workqueue_depth"], want["workqueue_processing"] = 0, 2
	want["workqueue_waiting"], want["workqueue_dropped_total"] = 0, 1
	want["workqueue_unfinished_work_seconds"], want["workqueue_longest_running_processor_seconds"] = 2.5, 1.5
	families <- shutDown
	got = scrape(t, server)
	wantValues(t, got, "orders", want)
	wantHistogram(t, got, "workqueue_queue_duration_seconds", "orders", 3, 2+6+0.5)
}

// wantValues compares all gauges and counters of a queue.
func wantValues(t *testing.T, families map[string]*dto.MetricFamily, queue string, want map[string]float64) {
	t.Helper()
	got := make(map[string]float64)
	for name, f := range families {
		if m := find(families, name, queue); m != nil && f.GetType() != dto.MetricType_HISTOGRAM {
			got[name] = value(families, name, queue)
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func wantHistogram(t *testing.T, families map[string]*dto.MetricFamily, metric, queue string, count uint64, sum float64) {
	t.Helper()
	h := find(families, metric, queue).GetHistogram()
	if h.GetSampleCount() != count || math.Abs(h.GetSampleSum()-sum) > 1e-9 {
		t.Errorf("%s: %d of %v s in all, want %d of %v s", metric, h.GetSampleCount(), h.GetSampleSum(), count, sum)
	}
}

func TestCollector_Golden(t *testing.T) {
	c, r := registered()
	q := typedqueue.NewQueue[int](typedqueue.Options{})
	queueprom.Watch(c.MustClaim("plain"), q)
	q.AddAll(1, 2, 2)
	q.TryGet()
	q.Done(3)
	f := typedqueue.NewFIFO(func(i int) (int, error) { return i, nil })
	queueprom.Watch(c.MustClaim("objects"), f)
	if err := f.Replace([]int{1, 2, 3}); err != nil {
		t.Fatal(err)
	}
	c.MustClaim("not yet watched").Metrics()

	const want = `
# HELP workqueue_adds_total How often an item became ready, or was added while it was processed.
# TYPE workqueue_adds_total counter
workqueue_adds_total{name="objects"} 3
workqueue_adds_total{name="plain"} 2
# HELP workqueue_depth Items that are ready to be handed out.
# TYPE workqueue_depth gauge
workqueue_depth{name="objects"} 3
workqueue_depth{name="plain"} 1
# HELP workqueue_dropped_total Items that waited when the queue was shut down, or were to wait after that.
# TYPE workqueue_dropped_total counter
workqueue_dropped_total{name="objects"} 0
workqueue_dropped_total{name="plain"} 0
# HELP workqueue_longest_running_processor_seconds For how long the item that is processed for the longest time has been so.
# TYPE workqueue_longest_running_processor_seconds gauge
workqueue_longest_running_processor_seconds{name="objects"} 0
workqueue_longest_running_processor_seconds{name="plain"} 0
# HELP workqueue_merged_total Calls that changed nothing because of an earlier one.
# TYPE workqueue_merged_total counter
workqueue_merged_total{name="objects"} 0
workqueue_merged_total{name="plain"} 1
# HELP workqueue_processing Items that are handed out and not yet done.
# TYPE workqueue_processing gauge
workqueue_processing{name="objects"} 0
workqueue_processing{name="plain"} 1
# HELP workqueue_retries_total Retries that the rate limiter was asked for.
# TYPE workqueue_retries_total counter
workqueue_retries_total{name="objects"} 0
workqueue_retries_total{name="plain"} 0
# HELP workqueue_stray_done_total Calls of Done for an item that was not processing: a fault of the caller.
# TYPE workqueue_stray_done_total counter
workqueue_stray_done_total{name="objects"} 0
workqueue_stray_done_total{name="plain"} 1
# HELP workqueue_unfinished_work_seconds For how long the items that are processed now have been so, in sum.
# TYPE workqueue_unfinished_work_seconds gauge
workqueue_unfinished_work_seconds{name="objects"} 0
workqueue_unfinished_work_seconds{name="plain"} 0
# HELP workqueue_waiting Items that are due later.
# TYPE workqueue_waiting gauge
workqueue_waiting{name="objects"} 0
workqueue_waiting{name="plain"} 0
`
	if err := testutil.GatherAndCompare(r, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	runtime.KeepAlive(q)
	runtime.KeepAlive(f)
}

// Promlint has nothing against any of the names, client-go's included.
func TestCollector_Lint(t *testing.T) {
	c, r := registered()
	q, _ := newQueue(c, "q")
	problems, err := testutil.GatherAndLint(r)
	if err != nil || len(problems) != 0 {
		t.Error(problems, err)
	}
	runtime.KeepAlive(q)
}

func TestCollector_NamesTypesLabels(t *testing.T) {
	c, r := registered()
	q, _ := newQueue(c, "q")
	got := make(map[string]dto.MetricType)
	for name, f := range gather(t, r) {
		got[name] = f.GetType()
		for _, m := range f.GetMetric() {
			if l := m.GetLabel(); len(l) != 1 || l[0].GetName() != "name" || l[0].GetValue() != "q" {
				t.Errorf("%s has the labels %v", name, l)
			}
		}
	}
	if !maps.Equal(got, exposed()) {
		t.Errorf("got  %v\nwant %v", got, exposed())
	}
	runtime.KeepAlive(q)
}

// The bounds are those that dashboards and recording rules may name, and native
// histograms come with them.
func TestCollector_Histograms(t *testing.T) {
	c, r := registered()
	q, s := newQueue(c, "q")
	m := s.Metrics() // the same histograms each time
	s.Metrics()
	m.Waited(1500 * time.Millisecond)
	h := find(gather(t, r), "workqueue_queue_duration_seconds", "q").GetHistogram()
	var bounds []string
	for _, b := range h.GetBucket() {
		bounds = append(bounds, fmt.Sprintf("%.0e:%d", b.GetUpperBound(), b.GetCumulativeCount()))
	}
	want := "1e-08:0 1e-07:0 1e-06:0 1e-05:0 1e-04:0 1e-03:0 1e-02:0 1e-01:0 1e+00:0 1e+01:1 1e+02:1 1e+03:1"
	if got := strings.Join(bounds, " "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if len(h.GetPositiveSpan()) != 1 || h.GetSchema() != 3 {
		t.Errorf("no native histogram of factor 1.1: %v", h)
	}
	runtime.KeepAlive(q)
}

func TestCollector_CreatedTimestamps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r := registered()
		claimed := time.Now()
		q, _ := newQueue(c, "q")
		time.Sleep(time.Hour)
		families := gather(t, r)
		adds := find(families, "workqueue_adds_total", "q").GetCounter().GetCreatedTimestamp().AsTime()
		if !adds.Equal(claimed) {
			t.Errorf("the counter began at %v, want %v", adds, claimed)
		}
		runtime.KeepAlive(q)
	})
}

func TestClaim(t *testing.T) {
	c := queueprom.NewCollector()
	for _, name := range []string{"", "\xff", "a\xc3"} {
		if s, err := c.Claim(name); s != nil || err == nil || errors.Is(err, queueprom.ErrClaimed) {
			t.Errorf("Claim(%q) = %v, %v", name, s, err)
		}
	}
	first, err := c.Claim("größe") // what is UTF-8 is good
	if err != nil {
		t.Fatal(err)
	}
	if s, err := c.Claim("größe"); s != nil || !errors.Is(err, queueprom.ErrClaimed) || !strings.Contains(err.Error(), `"größe"`) {
		t.Errorf("second Claim = %v, %v", s, err)
	}
	first.Remove()
	second, err := c.Claim("größe")
	if err != nil || second == first {
		t.Error(second, err)
	}
	first.Remove() // not its own any more
	if _, err := c.Claim("größe"); !errors.Is(err, queueprom.ErrClaimed) {
		t.Error("Remove of an old series removed a new one:", err)
	}
}

// Who leads again makes the queue of a controller anew, and the old one may still be there.
func TestClaim_AfterShutDown(t *testing.T) {
	type queue interface{ Stats() typedqueue.Stats }
	for name, start := range map[string]func(s *queueprom.Series) (q queue, fill, end func()){
		"work queue": func(s *queueprom.Series) (queue, func(), func()) {
			q := typedqueue.NewQueue[int](typedqueue.Options{})
			queueprom.Watch(s, q)
			return q, func() { q.Add(1) }, q.ShutDown
		},
		"FIFO": func(s *queueprom.Series) (queue, func(), func()) {
			q := typedqueue.NewFIFO(func(i int) (int, error) { return i, nil })
			queueprom.Watch(s, q)
			return q, func() { _ = q.Add(1) }, q.Close
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, r := registered()
			first, fillFirst, end := start(c.MustClaim("q"))
			fillFirst()
			if _, err := c.Claim("q"); !errors.Is(err, queueprom.ErrClaimed) {
				t.Errorf("Claim while the queue is in use: %v", err)
			}
			end()
			if got := find(gather(t, r), "workqueue_adds_total", "q").GetCounter().GetValue(); got != 1 {
				t.Errorf("after the end adds are %v, want 1", got)
			}
			second, _, _ := start(c.MustClaim("q"))
			if got := find(gather(t, r), "workqueue_adds_total", "q").GetCounter().GetValue(); got != 0 {
				t.Errorf("of the next queue adds are %v, want 0", got)
			}
			runtime.KeepAlive(first)
			runtime.KeepAlive(second)
		})
	}
}

// What is special in Prometheus' format comes through it.
func TestClaim_Escaping(t *testing.T) {
	const name = "a\"b\\c\n{d}"
	c, r := registered()
	q, _ := newQueue(c, name)
	if got := queues(scrape(t, serve(t, r))); !slices.Equal(got, []string{name}) {
		t.Errorf("got %q, want %q", got, name)
	}
	runtime.KeepAlive(q)
}

func TestPanics(t *testing.T) {
	c := queueprom.NewCollector()
	q, s := newQueue(c, "q")
	for name, call := range map[string]func(){
		"MustClaim":   func() { c.MustClaim("q") },
		"nil queue":   func() { queueprom.Watch(c.MustClaim("nil"), (*typedqueue.Queue[int])(nil)) },
		"nil series":  func() { queueprom.Watch(nil, q) },
		"Watch again": func() { queueprom.Watch(s, q) },
		"nil registry": func() {
			_, err := queueprom.RegisterWithControllerRuntime(nil)
			t.Error(err)
		},
	} {
		func() {
			defer func() {
				if p := fmt.Sprint(recover()); !strings.HasPrefix(p, "typedqueue: ") {
					t.Errorf("%s panics with %q", name, p)
				}
			}()
			call()
		}()
	}
	if _, err := c.Claim("after"); err != nil { // no lock is held
		t.Error(err)
	}
}

func TestRemove(t *testing.T) {
	c, r := registered()
	q, s := newQueue(c, "q")
	other, _ := newQueue(c, "other")
	q.AddAll("a", "b")
	q.TryGet()
	if got := queues(gather(t, r)); !slices.Equal(got, []string{"other", "q"}) {
		t.Error(got)
	}
	s.Remove()
	s.Remove()
	q.Done("a") // still measured, for nobody
	if got := queues(gather(t, r)); !slices.Equal(got, []string{"other"}) {
		t.Error("after Remove:", got)
	}

	again, _ := newQueue(c, "q")
	families := gather(t, r)
	if v := value(families, "workqueue_adds_total", "q"); v != 0 {
		t.Error("the name begins again with", v)
	}
	wantHistogram(t, families, "workqueue_queue_duration_seconds", "q", 0, 0)

	late := c.MustClaim("late")
	late.Remove()
	queueprom.Watch(late, again)
	if got := queues(gather(t, r)); !slices.Equal(got, []string{"other", "q"}) {
		t.Error("after Watch of a removed series:", got)
	}
	runtime.KeepAlive(other)
	runtime.KeepAlive(again)
}

// A queue that nobody has is collected, with what it measures and what waits in it, its
// series vanish, and its name is free. Every kind of queue can be watched so.
func TestCollected(t *testing.T) {
	key := func(i int) (int, error) { return i, nil }
	c, r := registered()
	kept, _ := newQueue(c, "kept")
	for name, watch := range map[string]func(*queueprom.Series){
		"Queue": func(s *queueprom.Series) {
			q := typedqueue.NewQueue[int](typedqueue.Options{Metrics: s.Metrics()})
			q.AddAll(1, 2)
			q.TryGet()
			queueprom.Watch(s, q)
		},
		"DelayingQueue": func(s *queueprom.Series) {
			q := typedqueue.NewDelayingQueue[int](typedqueue.Options{Metrics: s.Metrics()})
			q.AddAfter(1, time.Hour)
			queueprom.Watch(s, q)
		},
		"RateLimitingQueue": func(s *queueprom.Series) {
			q := typedqueue.NewRateLimitingQueue[int](nil, typedqueue.Options{Metrics: s.Metrics()})
			q.AddRateLimited(1)
			queueprom.Watch(s, q)
		},
		"FIFO": func(s *queueprom.Series) { queueprom.Watch(s, typedqueue.NewFIFO(key)) },
		"DeltaFIFO": func(s *queueprom.Series) {
			queueprom.Watch(s, typedqueue.NewDeltaFIFO(key, typedqueue.DeltaFIFOOptions[int, int]{}))
		},
	} {
		s := c.MustClaim(name)
		watch(s) // and the queue is gone
		left := weak.Make(s)
		for i := 0; slices.Contains(queues(gather(t, r)), name) || left.Value() != nil; i++ {
			if i == 10 {
				t.Fatalf("%s is still there", name)
			}
			runtime.GC()
		}
		if _, err := c.Claim(name); err != nil {
			t.Error(err)
		}

		// Nobody needs to have looked before the name is free.
		watch(c.MustClaim(name + " again"))
		for i := range 10 {
			runtime.GC()
			s, err := c.Claim(name + " again")
			if err == nil {
				s.Remove()
				break
			}
			if i == 9 {
				t.Error(err)
			}
		}
	}
	if got := queues(gather(t, r)); !slices.Equal(got, []string{"kept"}) {
		t.Error(got)
	}
	runtime.KeepAlive(kept)
}

// While a metric is sent, a queue and the Collector can be used: no lock is held.
func TestCollect_HoldsNoLock(t *testing.T) {
	c := queueprom.NewCollector()
	q, s := newQueue(c, "q")
	ch := make(chan prometheus.Metric)
	go func() {
		defer close(ch)
		c.Collect(ch)
	}()
	n := 0
	for range ch {
		n++
		q.Add("a")
		q.Len()
		s.Remove()
		c.MustClaim(fmt.Sprint(n))
	}
	if n != len(exposed()) {
		t.Errorf("got %d metrics, want %d", n, len(exposed()))
	}
}

// Scrapes while queues work, are shut down, removed and claimed again: none fails.
func TestCollector_Concurrent(t *testing.T) {
	c, r := registered()
	server := serve(t, r)
	stop := make(chan struct{})
	var scrapers, lives sync.WaitGroup
	for range 2 {
		scrapers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					scrape(t, server)
				}
			}
		})
	}
	for i := range 4 {
		lives.Go(func() {
			for range 50 {
				lifeOfAQueue(c, fmt.Sprint("q", i))
			}
		})
	}
	lives.Wait()
	close(stop)
	scrapers.Wait()
	if got := queues(gather(t, r)); len(got) != 0 {
		t.Error(got)
	}
}

// lifeOfAQueue makes a queue, works through it, and removes it.
func lifeOfAQueue(c *queueprom.Collector, name string) {
	q, s := newQueue(c, name)
	defer s.Remove()
	for i := range 20 {
		q.Add(fmt.Sprint(i))
	}
	q.AddAfter("later", time.Hour)
	var workers sync.WaitGroup
	for range 2 {
		workers.Go(func() {
			for item := range q.Consume(context.Background()) {
				if item == "7" {
					q.AddRateLimited(item)
				}
			}
		})
	}
	q.ShutDownWithDrain()
	workers.Wait()
}

// From scrape to scrape no counter falls, however busy the queue is, and at the end each is
// exact.
func TestCollector_Monotone(t *testing.T) {
	const items, adders = 2000, 2
	c, r := registered()
	q, _ := newQueue(c, "q")
	var work sync.WaitGroup
	for n := range adders {
		work.Go(func() {
			for i := range items {
				q.Add(fmt.Sprint(n, i))
			}
		})
		work.Go(func() {
			for range items {
				item, _ := q.Get()
				q.Done(item)
				q.Done(item) // nobody has it any more
			}
		})
	}
	done := make(chan struct{})
	go func() { defer close(done); work.Wait() }()

	counts := make(map[string]float64)
	for finished := false; !finished; {
		select {
		case <-done:
			finished = true // one more scrape
		default:
		}
		for name, n := range counters(gather(t, r)) {
			if n < counts[name] {
				t.Fatalf("%s fell from %v to %v", name, counts[name], n)
			}
			counts[name] = n
		}
	}
	runtime.KeepAlive(q) // or it may be gone at the last scrape
	want := map[string]float64{
		"workqueue_adds_total":             items * adders,
		"workqueue_queue_duration_seconds": items * adders,
		"workqueue_work_duration_seconds":  items * adders,
		"workqueue_retries_total":          0,
		"workqueue_merged_total":           0,
		"workqueue_dropped_total":          0,
		"workqueue_stray_done_total":       items * adders,
	}
	if !maps.Equal(counts, want) {
		t.Errorf("got  %v\nwant %v", counts, want)
	}
}

// counters returns the counters of the queue q, and how much its histograms have seen.
func counters(families map[string]*dto.MetricFamily) map[string]float64 {
	counts := make(map[string]float64)
	for name, f := range families {
		switch m := find(families, name, "q"); f.GetType() {
		case dto.MetricType_COUNTER:
			counts[name] = m.GetCounter().GetValue()
		case dto.MetricType_HISTOGRAM:
			counts[name] = float64(m.GetHistogram().GetSampleCount())
		}
	}
	return counts
}

func TestRegistries(t *testing.T) {
	c, r := registered()
	if err := r.Register(queueprom.NewCollector()); err == nil {
		t.Error("a registry took two collectors")
	}
	if !r.Unregister(c) {
		t.Error("it cannot be unregistered")
	}

	wrapped := prometheus.NewPedanticRegistry()
	prometheus.WrapRegistererWith(prometheus.Labels{"shard": "7"}, wrapped).MustRegister(c)
	q, _ := newQueue(c, "q")
	if m := find(gather(t, wrapped), "workqueue_depth", "q"); label(m, "shard") != "7" {
		t.Error(m)
	}
	runtime.KeepAlive(q)
}

// In a registry without controller-runtime's collectors; with them is a test of module kube.
func TestRegisterWithControllerRuntime(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	c, err := queueprom.RegisterWithControllerRuntime(r)
	if err != nil {
		t.Fatal(err)
	}
	q, _ := newQueue(c, "q")
	families := gather(t, r)
	for name := range exposed() {
		m := find(families, name, "q")
		want := []string{"controller=q", "name=q"}
		if name == "workqueue_depth" {
			want = append(want, "priority=")
		}
		var got []string
		for _, l := range m.GetLabel() {
			got = append(got, l.GetName()+"="+l.GetValue())
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s has the labels %q, want %q", name, got, want)
		}
	}
	runtime.KeepAlive(q)

	if _, err := queueprom.RegisterWithControllerRuntime(r); err == nil {
		t.Error("a registry took two collectors")
	}
}

// A registry with another idea of one of the metrics gets an error at once, not a broken
// scrape, and nothing of ours.
func TestRegisterWithControllerRuntime_Mismatch(t *testing.T) {
	const name = "workqueue_retries_total"
	for what, theirs := range map[string]*prometheus.Desc{
		"help":   prometheus.NewDesc(name, "Another text.", []string{"name", "controller"}, nil),
		"labels": prometheus.NewDesc(name, "Another text.", []string{"name"}, nil),
	} {
		r := prometheus.NewRegistry()
		r.MustRegister(only{theirs})
		if _, err := queueprom.RegisterWithControllerRuntime(r); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", what, err)
		}
		if got := gather(t, r); len(got) != 1 {
			t.Errorf("%s: %v", what, got)
		}
	}
}

// only is a collector of one counter.
type only struct{ desc *prometheus.Desc }

func (o only) Describe(ch chan<- *prometheus.Desc) { ch <- o.desc }
func (o only) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(o.desc, prometheus.CounterValue, 1, []string{"q", "q"}[:strings.Count(o.desc.String(), "controller")+1]...)
}
