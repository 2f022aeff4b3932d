package kube

import (
	"context"
	"iter"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"

	"example.com/typedqueue"
)

// StatsQueue is any of our queues, or a [RecordedQueue]: what tells its Stats.
type StatsQueue interface {
	Stats() typedqueue.Stats
}

// A Publisher keeps the metrics of a client-go MetricsProvider up to date from one of our
// queues: component-base's, controller-runtime's, or your own. Make it with NewPublisher,
// give Metrics to the queue, and call Publish before somebody looks, or let Run do it:
//
//	p := kube.NewPublisher(provider, "pods")
//	q := typedqueue.NewRateLimitingQueue[string](nil, typedqueue.Options{Metrics: p.Metrics()})
//	go p.Run(ctx, q, 500*time.Millisecond) // as often as client-go's queues do
//
// All methods may be called from any goroutine. A Publisher is for one queue: make another
// for the next, which may have the same name.
type Publisher struct {
	latency, work       workqueue.HistogramMetric
	unfinished, longest workqueue.SettableGaugeMetric
	adds, retries       workqueue.CounterMetric
	depth               workqueue.GaugeMetric

	mu        sync.Mutex       // guards what follows, and orders the calls of Publish
	published typedqueue.Stats // what the metrics show
}

// NewPublisher makes all of provider's metrics for name, which is passed on as it is. A nil
// provider panics, and so does one that makes a nil metric.
func NewPublisher(provider workqueue.MetricsProvider, name string) *Publisher {
	if provider == nil {
		panic("typedqueue: nil provider")
	}
	p := &Publisher{
		latency:    provider.NewLatencyMetric(name),
		work:       provider.NewWorkDurationMetric(name),
		unfinished: provider.NewUnfinishedWorkSecondsMetric(name),
		longest:    provider.NewLongestRunningProcessorSecondsMetric(name),
		adds:       provider.NewAddsMetric(name),
		retries:    provider.NewRetriesMetric(name),
		depth:      provider.NewDepthMetric(name),
	}
	if slices.Contains([]any{p.latency, p.work, p.unfinished, p.longest, p.adds, p.retries, p.depth}, nil) {
		panic("typedqueue: the provider has made a nil metric for " + name)
	}
	return p
}

// Metrics returns the functions that report, in seconds, how long each item waited and was
// worked on, for the Options of the queue. They make it track time.
func (p *Publisher) Metrics() typedqueue.Metrics {
	return typedqueue.Metrics{
		Waited: func(d time.Duration) { p.latency.Observe(d.Seconds()) },
		Worked: func(d time.Duration) { p.work.Observe(d.Seconds()) },
	}
}

// Publish brings depth, adds, retries, unfinished work and longest running processor up to
// what q says now, also after shutdown. Depth is Len: client-go's also counts what is
// processing and dirty. Retries are calls of AddRateLimited: client-go's are calls of
// AddAfter as well. What waits, merged calls and the like have no metric there.
//
// Depth and the counters are moved by the difference to the last call, so that of several
// queues with one name they show the sum, and the other two are those of the queue that was
// published last: both as in client-go. They move in one step if a metric has a method
// Add(float64), as those of Prometheus have, and otherwise by calls of Inc and Dec. The
// metrics must not call Publish. It takes as long as q.Stats and the metrics do. A nil q
// panics.
func (p *Publisher) Publish(q StatsQueue) {
	if q == nil {
		panic("typedqueue: nil queue")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now, last := q.Stats(), p.published
	moveGauge(p.depth, now.Ready-last.Ready)
	moveCounter(p.adds, last.Adds, now.Adds)
	moveCounter(p.retries, last.Retries, now.Retries)
	p.unfinished.Set(now.UnfinishedWork.Seconds())
	p.longest.Set(now.LongestProcessing.Seconds())
	p.published = now
}

// Run calls Publish at once, at each interval, and a last time when ctx is done; then it
// returns. It starts no goroutine and does not end with the queue: have ctx outlive the
// workers, or what they do after that is not published, as with client-go after a shutdown.
// A nil ctx or q panics, and so does an interval of 0 or less.
func (p *Publisher) Run(ctx context.Context, q StatsQueue, interval time.Duration) {
	if ctx == nil {
		panic("typedqueue: nil context")
	}
	if interval <= 0 {
		panic("typedqueue: interval is not positive: " + interval.String())
	}
	t := time.NewTicker(interval)
	defer t.Stop()
	for {
		p.Publish(q)
		select {
		case <-t.C:
		case <-ctx.Done():
			p.Publish(q)
			return
		}
	}
}

// adder is a counter or gauge that can move by more than one.
type adder interface{ Add(float64) }

func moveCounter(m workqueue.CounterMetric, from, to uint64) {
	by := max(from, to) - from // never back, should it be another queue
	if a, ok := m.(adder); ok {
		a.Add(float64(by))
		return
	}
	for range by {
		m.Inc()
	}
}

func moveGauge(m workqueue.GaugeMetric, by int) {
	if a, ok := m.(adder); ok {
		a.Add(float64(by))
		return
	}
	for range by {
		m.Inc()
	}
	for range -by {
		m.Dec()
	}
}

// A Recorder is the other direction: a client-go MetricsProvider that keeps what queues of
// client-go and controller-runtime report, and tells it as our queues do, in Stats. So
// whatever shows our queues shows theirs beside them. Give it to the MetricsProvider of
// their configuration. A queue without a name reports nothing to anybody.
//
// The zero Recorder is ready to use; it must not be copied after first use. All methods may
// be called from any goroutine. Queues of one name are recorded as one, which shows their
// sum, but for the ages, which are those of the queue that reported last.
type Recorder struct {
	// Metrics, if not nil, is called once for each name, when the first queue of it is
	// made, and returns what is told how long items waited and were worked on. It must not
	// ask the Recorder for that name. client-go calls what it returns under the queue's
	// lock, so that, unlike with our queues, must not call the queue. Set it before first
	// use.
	Metrics func(name string) typedqueue.Metrics

	mu     sync.Mutex                // guards queues
	queues map[string]*RecordedQueue // by name
}

var _ workqueue.MetricsProvider = (*Recorder)(nil)

// Queue returns what is recorded of the queues called name, from now on if there are none
// yet.
func (r *Recorder) Queue(name string) *RecordedQueue {
	q := r.need(name)
	q.made.Do(func() { // with r unlocked, as Metrics is the caller's
		if r.Metrics != nil {
			q.metrics = r.Metrics(name)
		}
	})
	return q
}

func (r *Recorder) need(name string) *RecordedQueue {
	r.mu.Lock()
	defer r.mu.Unlock()
	q := r.queues[name]
	if q == nil {
		if r.queues == nil {
			r.queues = make(map[string]*RecordedQueue)
		}
		q = new(RecordedQueue)
		r.queues[name] = q
	}
	return q
}

// All iterates over the queues recorded so far, by name, in the order of names.
func (r *Recorder) All() iter.Seq2[string, *RecordedQueue] {
	return func(yield func(string, *RecordedQueue) bool) {
		r.mu.Lock()
		queues := maps.Clone(r.queues)
		r.mu.Unlock()
		for _, name := range slices.Sorted(maps.Keys(queues)) {
			if !yield(name, queues[name]) {
				return
			}
		}
	}
}

// NewDepthMetric is for the queue to call, as are the others that begin with New.
func (r *Recorder) NewDepthMetric(name string) workqueue.GaugeMetric {
	return depthMetric{r.Queue(name)}
}

// NewAddsMetric is for the queue to call.
func (r *Recorder) NewAddsMetric(name string) workqueue.CounterMetric {
	return addsMetric{r.Queue(name)}
}

// NewLatencyMetric is for the queue to call.
func (r *Recorder) NewLatencyMetric(name string) workqueue.HistogramMetric {
	return latencyMetric{r.Queue(name)}
}

// NewWorkDurationMetric is for the queue to call.
func (r *Recorder) NewWorkDurationMetric(name string) workqueue.HistogramMetric {
	return workMetric{r.Queue(name)}
}

// NewUnfinishedWorkSecondsMetric is for the queue to call.
func (r *Recorder) NewUnfinishedWorkSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return unfinishedMetric{r.Queue(name)}
}

// NewLongestRunningProcessorSecondsMetric is for the queue to call.
func (r *Recorder) NewLongestRunningProcessorSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return longestMetric{r.Queue(name)}
}

// NewRetriesMetric is for the queue to call.
func (r *Recorder) NewRetriesMetric(name string) workqueue.CounterMetric {
	return retriesMetric{r.Queue(name)}
}

// RecordedQueue is what a Recorder knows of the queues of one name.
type RecordedQueue struct {
	made    sync.Once          // sets metrics
	metrics typedqueue.Metrics // constant after that

	mu    sync.Mutex // guards stats
	stats typedqueue.Stats
}

// Stats returns what the queues of the name have reported. Ready is their depth, which in
// client-go counts what is processing and dirty too; Processing is how many items were handed
// out and not done; Retries are calls of AddAfter and AddRateLimited, in controller-runtime
// those with a delay. The ages are those reported last, up to half a second ago, and 0 if
// nothing is processing. Nothing is reported of Waiting, Merged, Dropped and StrayDones: they
// are 0. A call of a queue's reports in several steps, so Stats may show a part of it. Where
// client-go's own numbers are wrong, after a stray Done, so are these.
func (q *RecordedQueue) Stats() typedqueue.Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.stats
	if s.Processing == 0 { // theirs freeze at shutdown
		s.UnfinishedWork, s.LongestProcessing = 0, 0
	}
	return s
}

// record changes the stats.
func (q *RecordedQueue) record(change func(*typedqueue.Stats)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	change(&q.stats)
}

// The metrics that a queue is given: each is the RecordedQueue, seen by one of its numbers.
type (
	depthMetric      struct{ q *RecordedQueue }
	addsMetric       struct{ q *RecordedQueue }
	latencyMetric    struct{ q *RecordedQueue }
	workMetric       struct{ q *RecordedQueue }
	unfinishedMetric struct{ q *RecordedQueue }
	longestMetric    struct{ q *RecordedQueue }
	retriesMetric    struct{ q *RecordedQueue }
)

func (m depthMetric) Inc()   { m.q.record(func(s *typedqueue.Stats) { s.Ready++ }) }
func (m depthMetric) Dec()   { m.q.record(func(s *typedqueue.Stats) { s.Ready-- }) }
func (m addsMetric) Inc()    { m.q.record(func(s *typedqueue.Stats) { s.Adds++ }) }
func (m retriesMetric) Inc() { m.q.record(func(s *typedqueue.Stats) { s.Retries++ }) }

// Observe is told of an item that was handed out.
func (m latencyMetric) Observe(seconds float64) {
	m.q.record(func(s *typedqueue.Stats) { s.Processing++ })
	tell(m.q.metrics.Waited, seconds)
}

// Observe is told of an item that was done, if it had been handed out.
func (m workMetric) Observe(seconds float64) {
	m.q.record(func(s *typedqueue.Stats) { s.Processing-- })
	tell(m.q.metrics.Worked, seconds)
}

func (m unfinishedMetric) Set(seconds float64) {
	m.q.record(func(s *typedqueue.Stats) { s.UnfinishedWork = duration(seconds) })
}

func (m longestMetric) Set(seconds float64) {
	m.q.record(func(s *typedqueue.Stats) { s.LongestProcessing = duration(seconds) })
}

func tell(f func(time.Duration), seconds float64) {
	if f != nil {
		f(duration(seconds))
	}
}

// duration is the inverse of time.Duration.Seconds.
func duration(seconds float64) time.Duration {
	return time.Duration(math.Round(seconds * float64(time.Second)))
}
