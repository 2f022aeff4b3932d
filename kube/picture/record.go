package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"example.com/typedqueue"
	"example.com/typedqueue/kube"
	"example.com/typedqueue/kube/internal/sample"
)

// scenario is slow enough to be seen: eight workers can do some 270 reconciles in a second.
var scenario = sample.Scenario{
	Seed:    1,
	Objects: 1000,
	Workers: 8,
	Work:    15 * time.Millisecond,
	Phases: []sample.Phase{
		{Name: "initial list", Changes: 70, Every: 100 * time.Millisecond},
		{Name: "steady changes", Changes: 600, Every: 10 * time.Millisecond},
		{Name: "burst", Changes: 1500, Every: time.Millisecond},
		{Name: "recovery", Changes: 50, Every: 100 * time.Millisecond},
		{Name: "conflicts and errors", Changes: 600, Every: 10 * time.Millisecond, Conflicts: 0.4, Errors: 0.2},
		{Name: "calm", Changes: 40, Every: 100 * time.Millisecond},
	},
}

// window is the time between points, as the interval of scrapes is that of a dashboard.
const window = 250 * time.Millisecond

// point is the state at one moment.
type point struct {
	at      time.Duration   // since the controller's workers began
	phase   string          // of the scenario
	depth   int             // items that are ready
	waited  []time.Duration // how long those were ready that were handed out since the last point; sorted
	retries int             // so far
}

// recording is a run, point by point, and in figures.
type recording struct {
	points []point
	row    sample.Row
}

// record runs s on q until all is as it should be.
func record(ctx context.Context, s sample.Scenario, q queue) (recording, error) {
	r, err := sample.Start(ctx, s, q, sample.ByHand)
	if err != nil {
		return recording{}, err
	}
	rec := recording{row: sample.Row{Name: q.name}}
	played := make(chan struct{})
	var scraping sync.WaitGroup
	scraping.Go(func() { rec.points = scrape(r, q, played) })
	err = r.Play(ctx)
	if err == nil {
		rec.row.Settled, err = r.Settle(10 * time.Second)
	}
	close(played)
	scraping.Wait()
	rec.row.Figures = r.Figures()
	if stopped := r.Stop(); err == nil {
		err = stopped
	}
	return rec, err
}

// scrape collects points until done is closed.
func scrape(r *sample.Run, q queue, done <-chan struct{}) (points []point) {
	begin := time.Now()
	tick := time.NewTicker(window)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-done:
			return points
		}
		points = append(points, point{
			at:      time.Since(begin),
			phase:   r.Phase(),
			depth:   q.Len(),
			waited:  q.waits.take(),
			retries: int(q.stats().Retries),
		})
	}
}

// queue is a queue under the controller, with its own metrics.
type queue struct {
	sample.Queue
	name  string
	waits *waits
	stats func() typedqueue.Stats
}

func newOurs() queue {
	w := new(waits)
	q := typedqueue.NewRateLimitingQueue(sample.NewLimiter(), typedqueue.Options{Metrics: typedqueue.Metrics{Waited: w.add}})
	return queue{q, "ours", w, q.Stats}
}

func newClientGo() queue {
	const name = "client-go" // without one there are no metrics
	w := new(waits)
	r := &kube.Recorder{Metrics: func(string) typedqueue.Metrics { return typedqueue.Metrics{Waited: w.add} }}
	q := workqueue.NewTypedRateLimitingQueueWithConfig(sample.NewLimiter(), workqueue.TypedRateLimitingQueueConfig[cache.ObjectName]{
		Name:            name,
		MetricsProvider: r,
	})
	return queue{q, name, w, r.Queue(name).Stats}
}

// waits are how long items were ready that have been handed out.
type waits struct {
	mu  sync.Mutex // guards all
	all []time.Duration
}

func (w *waits) add(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, d)
}

// take returns, sorted, what has been added since the last take.
func (w *waits) take() []time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.all
	w.all = nil
	slices.Sort(all)
	return all
}
