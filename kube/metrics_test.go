package kube_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"

	"example.com/typedqueue"
	"example.com/typedqueue/kube"
)

// shown is what a meter shows.
type shown struct{ depth, adds, retries, latency, work, unfinished, longest float64 }

func (m *meter) shows() shown {
	return shown{
		m.depth.get(), m.adds.get(), m.retries.get(), m.latency.get(), m.work.get(),
		m.unfinished.get(), m.longest.get(),
	}
}

func expect[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if d := cmp.Diff(want, got, cmp.AllowUnexported(shown{})); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// published returns a queue of ours whose metrics p keeps.
func published(provider workqueue.MetricsProvider) (*kube.Publisher, *typedqueue.RateLimitingQueue[string]) {
	p := kube.NewPublisher(provider, "pods")
	return p, typedqueue.NewRateLimitingQueue(
		typedqueue.NewItemFastSlowRateLimiter[string](time.Second, time.Second, 0),
		typedqueue.Options{Metrics: p.Metrics()},
	)
}

func TestPublisher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m meter
		p, q := published(&m)
		q.AddAll("a", "b", "c")
		time.Sleep(2 * time.Second)
		q.Get()
		q.Get()
		time.Sleep(3 * time.Second)
		q.AddRateLimited("a")
		q.Done("a")
		q.Add("b")
		expect(t, "before Publish", m.shows(), shown{latency: 4, work: 3})
		p.Publish(q)
		expect(t, "after it", m.shows(), shown{depth: 1, adds: 4, retries: 1, latency: 4, work: 3, unfinished: 3, longest: 3})
		p.Publish(q)
		expect(t, "after another", m.shows(), shown{depth: 1, adds: 4, retries: 1, latency: 4, work: 3, unfinished: 3, longest: 3})

		q.ShutDown()
		q.Done("b")
		for range q.Consume(t.Context()) {
		}
		p.Publish(q)
		expect(t, "at the end", m.shows(), shown{adds: 4, retries: 1, latency: 9, work: 6})
	})
}

func TestPublisherRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m meter
		p, q := published(&m)
		q.Add("a")
		ctx, stop := context.WithCancel(t.Context())
		ended := begin(func() { p.Run(ctx, q, time.Second) })
		synctest.Wait()
		expect(t, "at once", m.depth.get(), 1)

		q.Get()
		time.Sleep(time.Second - time.Nanosecond)
		synctest.Wait()
		expect(t, "before the next time", m.shows(), shown{depth: 1, adds: 1})
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		expect(t, "then", m.shows(), shown{adds: 1, unfinished: 1, longest: 1})

		time.Sleep(time.Second / 2)
		q.ShutDown()
		q.Done("a")
		stop()
		expect(t, "Run", ended.state(), "returned")
		expect(t, "at the end", m.shows(), shown{adds: 1, work: 1.5})
	})
}

type withoutRetries struct{ *kube.Recorder }

func (withoutRetries) NewRetriesMetric(string) workqueue.CounterMetric { return nil }

func TestPublisherBadInput(t *testing.T) {
	p, q := published(new(meter))
	var none context.Context
	for what, f := range map[string]func(){
		"provider":                 func() { kube.NewPublisher(nil, "pods") },
		"nil metric":               func() { kube.NewPublisher(withoutRetries{new(kube.Recorder)}, "pods") },
		"interval is not positive": func() { p.Run(t.Context(), q, 0) },
		"context":                  func() { p.Run(none, q, time.Second) },
		"nil queue":                func() { p.Publish(nil) },
		"queue":                    func() { p.Run(t.Context(), nil, time.Second) },
	} {
		if got := attempt(f); !strings.HasPrefix(got, "panics: typedqueue: ") || !strings.Contains(got, what) {
			t.Errorf("%s: %s", what, got)
		}
	}
}

// TestPublisherRandomly publishes at random moments of a random life.
func TestPublisherRandomly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m meter
		p, q := published(&m)
		r := rand.New(rand.NewPCG(1, 2))
		var held []string
		for i := range 5000 {
			item := string(rune('a' + r.IntN(5)))
			switch r.IntN(6) {
			case 0:
				q.Add(item)
			case 1:
				q.AddRateLimited(item)
			case 2:
				if got, ok := q.TryGet(); ok {
					held = append(held, got)
				}
			case 3:
				if len(held) > 0 {
					q.Done(held[0])
					held = held[1:]
				}
			case 4:
				time.Sleep(time.Duration(r.IntN(1000)) * time.Millisecond)
				synctest.Wait()
			case 5:
				p.Publish(q)
				got, s := m.shows(), q.Stats()
				got.latency, got.work = 0, 0
				want := shown{
					depth: float64(q.Len()), adds: float64(s.Adds), retries: float64(s.Retries),
					unfinished: s.UnfinishedWork.Seconds(), longest: s.LongestProcessing.Seconds(),
				}
				if got != want {
					t.Fatalf("step %d: got %+v, want %+v", i, got, want)
				}
			}
		}
	})
}

// busy has workers and producers use q at once, until n items have been done, and shuts it
// down.
func busy(q workqueue.TypedRateLimitingInterface[string], n int) {
	var workers, producers sync.WaitGroup
	for range 3 {
		workers.Go(func() {
			for {
				item, shutdown := q.Get()
				if shutdown {
					return
				}
				q.Done(item)
			}
		})
	}
	for w := range 3 {
		producers.Go(func() {
			for i := range n / 3 {
				q.Add(fmt.Sprint(w, i))
			}
		})
	}
	producers.Wait()
	q.ShutDown() // the backlog is handed out
	workers.Wait()
}

func TestPublisherConcurrently(t *testing.T) {
	const n = 3000
	var m meter
	p, q := published(&m)
	ctx, stop := context.WithCancel(t.Context())
	var publishers sync.WaitGroup
	for range 2 {
		publishers.Go(func() { p.Run(ctx, q, 10*time.Microsecond) })
	}
	busy(q, n)
	stop()
	publishers.Wait()
	got := m.shows()
	got.latency, got.work = 0, 0
	expect(t, "at the end", got, shown{adds: n})
}

// promProvider is a provider whose metrics are those of Prometheus, with a label for the name.
type promProvider struct {
	depth, unfinished, longest *prometheus.GaugeVec
	adds, retries              *prometheus.CounterVec
	latency, work              *prometheus.HistogramVec
}

func newPromProvider(reg *prometheus.Registry) promProvider {
	gauge := func(name string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name}, []string{"name"})
	}
	counter := func(name string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name}, []string{"name"})
	}
	histogram := func(name string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name}, []string{"name"})
	}
	p := promProvider{
		gauge("depth"), gauge("unfinished"), gauge("longest"),
		counter("adds"), counter("retries"), histogram("latency"), histogram("work"),
	}
	reg.MustRegister(p.depth, p.unfinished, p.longest, p.adds, p.retries, p.latency, p.work)
	return p
}

func (p promProvider) NewDepthMetric(name string) workqueue.GaugeMetric {
	return p.depth.WithLabelValues(name)
}
func (p promProvider) NewAddsMetric(name string) workqueue.CounterMetric {
	return p.adds.WithLabelValues(name)
}
func (p promProvider) NewRetriesMetric(name string) workqueue.CounterMetric {
	return p.retries.WithLabelValues(name)
}
func (p promProvider) NewLatencyMetric(name string) workqueue.HistogramMetric {
	return p.latency.WithLabelValues(name)
}
func (p promProvider) NewWorkDurationMetric(name string) workqueue.HistogramMetric {
	return p.work.WithLabelValues(name)
}
func (p promProvider) NewUnfinishedWorkSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return p.unfinished.WithLabelValues(name)
}
func (p promProvider) NewLongestRunningProcessorSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return p.longest.WithLabelValues(name)
}

// gathered returns what reg shows of gauges and counters, and how many observations of
// histograms.
func gathered(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.Metric {
			all[f.GetName()] += m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return all
}

// With the metrics of Prometheus, and queues of one name: the sum, as client-go's queues show.
func TestPublisherPrometheus(t *testing.T) {
	reg := prometheus.NewRegistry()
	provider := newPromProvider(reg)
	for range 2 {
		p, q := published(provider)
		q.AddAll("a", "b", "c")
		p.Publish(q)
		q.Get()
		q.Done("a")
		p.Publish(q)
	}
	expect(t, "gathered", gathered(t, reg), map[string]float64{
		"depth": 4, "adds": 6, "retries": 0, "latency": 2, "work": 2, "unfinished": 0, "longest": 0,
	})
}

// leaping is a provider whose depth can move by more than one, and counts how often it does.
type leaping struct {
	meter
	gauge leapingGauge
}

type leapingGauge struct {
	metric
	leaps int
}

func (g *leapingGauge) Add(by float64)                         { g.leaps++; g.add(by) }
func (l *leaping) NewDepthMetric(string) workqueue.GaugeMetric { return &l.gauge }

// What can move in one step does, so that nobody sees it on the way.
func TestPublisherLeaps(t *testing.T) {
	var l leaping
	p, q := published(&l)
	q.AddAll("a", "b", "c")
	p.Publish(q)
	expect(t, "depth", l.gauge.get(), 3)
	for range 2 {
		q.Get()
	}
	p.Publish(q)
	expect(t, "depth", l.gauge.get(), 1)
	expect(t, "steps", l.gauge.leaps, 2)
}

// told collects the durations that Metrics are told.
type told struct{ waited, worked []time.Duration }

func (d *told) metrics(string) typedqueue.Metrics {
	return typedqueue.Metrics{
		Waited: func(w time.Duration) { d.waited = append(d.waited, w) },
		Worked: func(w time.Duration) { d.worked = append(d.worked, w) },
	}
}

// recordings make the others' queues, that report to a Recorder.
var recordings = map[string]func(r *kube.Recorder, name string) workqueue.TypedRateLimitingInterface[string]{
	"client-go": func(r *kube.Recorder, name string) workqueue.TypedRateLimitingInterface[string] {
		return workqueue.NewTypedRateLimitingQueueWithConfig(aSecond(),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: name, MetricsProvider: r})
	},
	"controller-runtime": func(r *kube.Recorder, name string) workqueue.TypedRateLimitingInterface[string] {
		return priorityqueue.New(name, func(o *priorityqueue.Opts[string]) {
			o.RateLimiter, o.MetricProvider = aSecond(), r
		})
	},
}

func aSecond() workqueue.TypedRateLimiter[string] {
	return workqueue.NewTypedItemFastSlowRateLimiter[string](time.Second, time.Second, 0)
}

func TestRecorder(t *testing.T) {
	for whose, record := range recordings {
		t.Run(whose, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var d told
				r := kube.Recorder{Metrics: d.metrics}
				testRecorder(t, &r, record(&r, "pods"), &d)
			})
		})
	}
}

// testRecorder shuts q down.
func testRecorder(t *testing.T, r *kube.Recorder, q workqueue.TypedRateLimitingInterface[string], d *told) {
	stats := func() typedqueue.Stats {
		synctest.Wait()
		return r.Queue("pods").Stats()
	}
	q.Add("a")
	synctest.Wait()
	q.Add("b")
	q.AddRateLimited("c")
	expect(t, "two ready, one waiting", stats(), typedqueue.Stats{Ready: 2, Adds: 2, Retries: 1})

	time.Sleep(100 * time.Millisecond)
	q.Get()
	q.Get()
	expect(t, "two processing", stats(), typedqueue.Stats{Processing: 2, Adds: 2, Retries: 1})

	time.Sleep(500 * time.Millisecond)
	q.Done("a")
	expect(t, "one processing, half a second later", stats(), typedqueue.Stats{
		Processing: 1, Adds: 2, Retries: 1, UnfinishedWork: 800 * time.Millisecond, LongestProcessing: 400 * time.Millisecond,
	})

	time.Sleep(500 * time.Millisecond)
	expect(t, "one was due", stats(), typedqueue.Stats{
		Ready: 1, Processing: 1, Adds: 3, Retries: 1, UnfinishedWork: 900 * time.Millisecond, LongestProcessing: 900 * time.Millisecond,
	})
	q.ShutDown()
	q.Done("b")
	expect(t, "after shutdown", stats(), typedqueue.Stats{Ready: 1, Adds: 3, Retries: 1})
	expect(t, "waited", d.waited, []time.Duration{100 * time.Millisecond, 100 * time.Millisecond})
	expect(t, "worked", d.worked, []time.Duration{500 * time.Millisecond, time.Second})
}

// TestRecorderRandomly compares with what a worker knows.
func TestRecorderRandomly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r kube.Recorder
		q := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Name: "pods", MetricsProvider: &r})
		random := rand.New(rand.NewPCG(1, 2))
		ready, held := make(map[string]bool), make(map[string]bool) // dirty, processing
		adds := uint64(0)
		for i := range 5000 {
			item := string(rune('a' + random.IntN(5)))
			switch random.IntN(3) {
			case 0:
				if !ready[item] {
					adds++
				}
				ready[item] = true
				q.Add(item)
			case 1:
				if q.Len() > 0 {
					got, _ := q.Get()
					delete(ready, got)
					held[got] = true
				}
			case 2:
				if held[item] {
					delete(held, item)
					q.Done(item)
				}
			}
			got, want := r.Queue("pods").Stats(), typedqueue.Stats{Ready: len(ready), Processing: len(held), Adds: adds}
			if got != want {
				t.Fatalf("step %d: got %+v, want %+v", i, got, want)
			}
		}
		q.ShutDown()
	})
}

func TestRecorderNames(t *testing.T) {
	asked := make(map[string]int)
	r := kube.Recorder{Metrics: func(name string) typedqueue.Metrics {
		asked[name]++
		return typedqueue.Metrics{}
	}}
	for _, name := range []string{"pods", "nodes", "pods"} {
		for _, record := range recordings {
			q := record(&r, name)
			q.Add("a")
			q.Len() // controller-runtime's counts when it is asked
			q.ShutDown()
		}
	}
	expect(t, "times that Metrics was called", asked, map[string]int{"pods": 1, "nodes": 1})
	expect(t, "queue of a name", r.Queue("pods").Stats(), typedqueue.Stats{Ready: 4, Adds: 4})
	var names []string
	for name, q := range r.All() {
		if q != r.Queue(name) {
			t.Errorf("All has another queue for %s", name)
		}
		names = append(names, name)
		if name == "nodes" {
			r.Queue("services") // while it iterates
		}
	}
	expect(t, "names", names, []string{"nodes", "pods"})
	expect(t, "names after it", len(maps.Collect(r.All())), 3)
	for range r.All() {
		break
	}
	if got := r.Queue("none").Stats(); got != (typedqueue.Stats{}) {
		t.Errorf("Stats of a queue that nobody made: %+v", got)
	}
}

func TestRecorderConcurrently(t *testing.T) {
	const n = 3000
	var waited, worked atomic.Int64
	r := kube.Recorder{Metrics: func(string) typedqueue.Metrics {
		return typedqueue.Metrics{
			Waited: func(time.Duration) { waited.Add(1) },
			Worked: func(time.Duration) { worked.Add(1) },
		}
	}}
	names := []string{"a", "a", "b"} // two of one name at once
	var queues sync.WaitGroup
	for _, name := range names {
		queues.Go(func() {
			busy(workqueue.NewTypedRateLimitingQueueWithConfig(
				workqueue.DefaultTypedControllerRateLimiter[string](),
				workqueue.TypedRateLimitingQueueConfig[string]{Name: name, MetricsProvider: &r}), n)
		})
	}
	queues.Wait()
	expect(t, "a", r.Queue("a").Stats(), typedqueue.Stats{Adds: 2 * n})
	expect(t, "b", r.Queue("b").Stats(), typedqueue.Stats{Adds: n})
	expect(t, "durations", []int64{waited.Load(), worked.Load()}, []int64{3 * n, 3 * n})
}

// TestRoundTrip: what our queue says, published and recorded, is what it said.
func TestRoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var direct, round told
		r := kube.Recorder{Metrics: round.metrics}
		p := kube.NewPublisher(&r, "pods")
		m, d := p.Metrics(), direct.metrics("")
		q := typedqueue.NewRateLimitingQueue(
			typedqueue.NewItemExponentialFailureRateLimiter[string](time.Millisecond, time.Minute),
			typedqueue.Options{Metrics: typedqueue.Metrics{
				Waited: func(w time.Duration) { m.Waited(w); d.Waited(w) },
				Worked: func(w time.Duration) { m.Worked(w); d.Worked(w) },
			}},
		)
		random := rand.New(rand.NewPCG(1, 2))
		for i := range 2000 {
			q.Add(fmt.Sprint(random.IntN(9)))
			time.Sleep(time.Duration(random.IntN(1e9)))
			if item, ok := q.TryGet(); ok && random.IntN(3) == 0 {
				q.AddRateLimited(item)
			}
			if random.IntN(4) > 0 || q.Stats().Processing > 5 {
				for _, held := range q.Snapshot().Processing {
					q.Done(held.Item)
				}
			}
			p.Publish(q)
			got, want := r.Queue("pods").Stats(), q.Stats()
			want.Waiting, want.Merged, want.Dropped, want.StrayDones = 0, 0, 0, 0
			if got != want {
				t.Fatalf("step %d: got %+v, want %+v", i, got, want)
			}
		}
		q.ShutDown()
		if len(direct.waited) == 0 || len(direct.worked) == 0 || !slices.Equal(direct.waited, round.waited) || !slices.Equal(direct.worked, round.worked) {
			t.Error("durations are not those that went in")
		}
	})
}
