// Package prometheus shows the queues of typedqueue to Prometheus, under the names that
// client-go's work queues have there, so that dashboards and alerts made for those go on
// working.
//
// A queue is made with the functions that measure it, and can be watched only once it is made.
// So its name is claimed first, as a [Series], which has those functions and then watches it:
//
//	collector := queueprom.NewCollector()
//	prometheus.MustRegister(collector) // once
//
//	orders := collector.MustClaim("orders")
//	q := typedqueue.NewRateLimitingQueue[string](nil, typedqueue.Options{Metrics: orders.Metrics()})
//	queueprom.Watch(orders, q)
//
// (As client_golang's package has the same name, this one is imported as queueprom here.)
//
// Gauges and counters are read from the queue's Stats when somebody scrapes, in one step for
// each queue: they agree with one another and with Len, and do not freeze at shutdown. Nothing
// runs between scrapes but the two histograms of durations, which the queue itself feeds.
//
// The series of a queue vanish with it: when its [Series] is removed, at the first scrape
// after the queue has been collected, which a Collector does not prevent, or when the queue has
// been shut down and another claims its name.
package prometheus

import (
	"errors"
	"fmt"
	"sync"
	"time"
	"unicode/utf8"
	"weak"

	"github.com/prometheus/client_golang/prometheus"

	"example.com/typedqueue"
)

// ErrClaimed is what Claim returns, wrapped, if the name belongs to another series.
var ErrClaimed = errors.New("typedqueue: name is claimed already")

// Collector is a prometheus.Collector of any number of queues, which are told apart by the
// label name. It is made by NewCollector or RegisterWithControllerRuntime; the zero Collector
// is not usable. All methods may be called from any goroutine. While metrics are sent and
// encoded, no lock is held, neither the Collector's nor a queue's.
type Collector struct {
	controllerRuntime bool               // has its labels and help texts
	descs             []*prometheus.Desc // of families, in their order
	described         []*prometheus.Desc // those that nobody else has registered

	mu     sync.Mutex         // guards everything below, and the series' own fields
	series map[string]*Series // by name; those of a collected queue stay until somebody looks
}

// NewCollector returns a Collector without queues, to be registered once with a registry.
// Each of its metrics has the one label name, as client-go's have. A registry that has
// client-go's work queue metrics from elsewhere refuses it, since it accepts a name only once;
// for controller-runtime's there is RegisterWithControllerRuntime.
func NewCollector() *Collector {
	c := newCollector(false)
	c.described = c.descs
	return c
}

func newCollector(controllerRuntime bool) *Collector {
	c := &Collector{controllerRuntime: controllerRuntime, series: make(map[string]*Series)}
	for i := range families {
		f := &families[i]
		c.descs = append(c.descs, prometheus.NewDesc(f.name, c.help(f), c.labels(f), nil))
	}
	return c
}

func (c *Collector) help(f *family) string {
	if c.controllerRuntime && f.theirs != "" {
		return f.theirs
	}
	return f.help
}

func (c *Collector) labels(f *family) []string {
	switch {
	case !c.controllerRuntime:
		return []string{"name"}
	case f.name == depth:
		return []string{"name", "controller", "priority"}
	default:
		return []string{"name", "controller"}
	}
}

// labelValues returns the values of labels. The priority is empty, as it is of those queues
// of controller-runtime that have none.
func (c *Collector) labelValues(f *family, name string) []string {
	return []string{name, name, ""}[:len(c.labels(f))]
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.described {
		ch <- d
	}
}

// Collect implements prometheus.Collector. It calls Stats once for each queue, which takes O(n)
// with n items in processing.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	for _, l := range c.live() {
		stats := l.queue.Stats() // not under mu: it may wait for the queue's lock
		for i := range families {
			f := &families[i]
			if f.histogram != nil && l.durations == nil {
				continue
			}
			ch <- f.metric(c.descs[i], l, stats, c.labelValues(f, l.name))
		}
	}
}

// live is a series whose queue is there, and is kept alive by this.
type live struct {
	name      string
	created   time.Time
	queue     source
	durations *durations
}

// live returns all series with a queue, and forgets those whose queue has been collected.
func (c *Collector) live() []live {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]live, 0, len(c.series))
	for name, s := range c.series {
		if s.queue == nil {
			continue
		}
		q := s.queue()
		if q == nil {
			delete(c.series, name)
			continue
		}
		all = append(all, live{name, s.created, q, s.durations})
	}
	return all
}

// Claim returns a new Series under name, to which nobody else has a right until it is removed,
// or its queue has been collected or shut down: then the next Claim takes its place. Two queues of one name would be one series to Prometheus,
// which refuses a scrape with such; so the second Claim is an error here, which matches
// ErrClaimed. A name that is empty or not valid UTF-8 is an error as well. A name that is
// claimed again begins with counters at 0, as if the process had been restarted.
func (c *Collector) Claim(name string) (*Series, error) {
	if name == "" || !utf8.ValidString(name) {
		return nil, fmt.Errorf("typedqueue: %q cannot be the name of a series: it is empty or not valid UTF-8", name)
	}
	old := c.claimed(name)
	if old != nil && !old.over() {
		return nil, fmt.Errorf("%w: %q", ErrClaimed, name)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.series[name]; now != nil && now != old { // somebody was quicker
		return nil, fmt.Errorf("%w: %q", ErrClaimed, name)
	}
	s := &Series{collector: c, name: name, created: time.Now()}
	c.series[name] = s
	return s, nil
}

func (c *Collector) claimed(name string) *Series {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.series[name]
}

// MustClaim is Claim that panics with the error.
func (c *Collector) MustClaim(name string) *Series {
	s, err := c.Claim(name)
	if err != nil {
		panic(err)
	}
	return s
}

// Series is all that Prometheus gets to know of one queue. It is made by Claim; the zero
// Series is not usable. All methods may be called from any goroutine.
type Series struct {
	collector *Collector
	name      string
	created   time.Time

	// The collector's mu guards these.
	queue     func() source // nil until Watch; it returns nil once the queue has been collected
	durations *durations    // nil until Metrics
}

// source is a queue.
type source interface{ Stats() typedqueue.Stats }

// durations are a series' histograms.
type durations struct{ waited, worked prometheus.Histogram }

// over reports whether there was a queue, and that is gone or has been shut down.
func (s *Series) over() bool {
	s.collector.mu.Lock()
	queue := s.queue
	s.collector.mu.Unlock()
	if queue == nil {
		return false
	}
	switch q := queue().(type) { // not under mu, as Stats is not
	case nil:
		return true
	case interface{ ShuttingDown() bool }:
		return q.ShuttingDown()
	case interface{ IsClosed() bool }: // a FIFO or DeltaFIFO
		return q.IsClosed()
	}
	return false
}

// Metrics returns the functions that measure how long items are ready and how long they are
// processed, for the Options of the one queue that Watch will be given. Without them the
// series has no histograms, and of what is processed no ages, unless the queue tracks time
// otherwise: they are 0, as they are of a FIFO or DeltaFIFO, which takes none. The functions
// never block.
func (s *Series) Metrics() typedqueue.Metrics {
	s.collector.mu.Lock()
	defer s.collector.mu.Unlock()
	if s.durations == nil {
		s.durations = s.collector.measure(s.name)
	}
	waited, worked := s.durations.waited, s.durations.worked
	return typedqueue.Metrics{
		Waited: func(d time.Duration) { waited.Observe(d.Seconds()) },
		Worked: func(d time.Duration) { worked.Observe(d.Seconds()) },
	}
}

// measure returns the histograms of the series under name. Each has its own vector: so it
// has the Desc that was registered, and nobody needs to delete it from one.
func (c *Collector) measure(name string) *durations {
	var d durations
	for i := range families {
		f := &families[i]
		if f.histogram == nil {
			continue
		}
		vec := prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    f.name,
			Help:    c.help(f),
			Buckets: buckets,
			// Native ones besides, as controller-runtime has them.
			NativeHistogramBucketFactor:     1.1,
			NativeHistogramMaxBucketNumber:  100,
			NativeHistogramMinResetDuration: time.Hour,
		}, c.labels(f))
		*f.histogram(&d) = vec.WithLabelValues(c.labelValues(f, name)...).(prometheus.Histogram)
	}
	return &d
}

// buckets are the bounds that controller-runtime's histograms have, 10 ns to 1000 s. Those
// of Kubernetes' own components are the first ten of them.
var buckets = prometheus.ExponentialBuckets(10e-9, 10, 12)

// Watch makes queue what series shows, from now on: before, it shows nothing. The queue may be
// anything with Stats: a typedqueue.Queue, DelayingQueue, RateLimitingQueue, FIFO or DeltaFIFO,
// or a type of the caller's around one. It is not kept alive, so that its series vanish when
// nobody else has this very pointer any more. A series has one queue: a second call
// panics, and so do a nil queue and a nil series. Watch of a removed series has no effect.
//
// (It is no method of Series because Go's methods have no type parameters, and a weak pointer
// needs the type.)
func Watch[T any, Q interface {
	*T
	Stats() typedqueue.Stats
}](series *Series, queue Q) {
	if series == nil {
		panic("typedqueue: nil series")
	}
	if queue == nil {
		panic("typedqueue: nil queue")
	}
	series.collector.mu.Lock()
	defer series.collector.mu.Unlock()
	if series.queue != nil {
		panic(fmt.Sprintf("typedqueue: the series %q watches a queue already", series.name))
	}
	w := weak.Make((*T)(queue))
	series.queue = func() source {
		if q := w.Value(); q != nil {
			return Q(q)
		}
		return nil
	}
}

// Remove makes the series vanish at once, and its name free. It does nothing to the queue,
// nor to a later series of the same name; what the queue measures from then on is lost. It
// may be called again.
func (s *Series) Remove() {
	c := s.collector
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.series[s.name] == s {
		delete(c.series, s.name)
	}
}
