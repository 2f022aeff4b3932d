package kube_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"example.com/typedqueue"
	"example.com/typedqueue/kube/internal/sample"
)

// newScenario has faults all the time, and for a while more faults than successes, with
// changes so close together that many come while their object is being reconciled.
func newScenario(seed uint64) sample.Scenario {
	return sample.Scenario{
		Seed:    seed,
		Objects: 1000,
		Workers: 32,
		Work:    20 * time.Millisecond,
		Phases: []sample.Phase{
			{Changes: 1000, Every: time.Millisecond, Conflicts: 0.1, Errors: 0.05},
			{Changes: 1000, Every: 200 * time.Microsecond, Conflicts: 0.4, Errors: 0.2},
			{Changes: 1000, Every: 2 * time.Millisecond, Conflicts: 0.2, Errors: 0.1},
		},
	}
}

// sampleQueue is a queue under the sample controller.
type sampleQueue struct {
	sample.Queue
	loop sample.Loop
	ours *typedqueue.RateLimitingQueue[cache.ObjectName] // what is inside; nil if it is client-go's
}

func oursByHand() sampleQueue {
	q := typedqueue.NewRateLimitingQueue(sample.NewLimiter(), typedqueue.Options{TrackTime: true})
	return sampleQueue{q, sample.ByHand, q}
}

func oursWithRun() sampleQueue {
	q := oursByHand()
	q.loop = func(ctx context.Context, _ sample.Queue, workers int, reconcile func(context.Context, cache.ObjectName) error) error {
		return q.ours.Run(ctx, typedqueue.RunOptions[cache.ObjectName]{Workers: workers}, reconcile)
	}
	return q
}

func clientGoByHand() sampleQueue {
	return sampleQueue{workqueue.NewTypedRateLimitingQueue(sample.NewLimiter()), sample.ByHand, nil}
}

// TestSampleController runs one controller with the same objects, changes and faults on our
// queue and on client-go's. What it brings about is what the user wants, and so the same.
func TestSampleController(t *testing.T) {
	queues := []struct {
		name string
		make func() sampleQueue
	}{{"client-go", clientGoByHand}, {"ours", oursByHand}, {"ours, Run", oursWithRun}}
	for _, seed := range []uint64{1, 2} { // a failure comes again with its seed
		var rows []sample.Row
		var tables []map[cache.ObjectName]int32
		for _, q := range queues {
			synctest.Test(t, func(t *testing.T) {
				row, table, err := runSample(t, newScenario(seed), q.make())
				if err != nil {
					t.Errorf("%s, seed %d: %v", q.name, seed, err)
				}
				row.Name = q.name
				rows, tables = append(rows, row), append(tables, table)
			})
		}
		if t.Failed() {
			return
		}
		var side strings.Builder
		if err := sample.WriteTable(&side, rows); err != nil {
			t.Fatal(err)
		}
		t.Logf("seed %d, %d objects left:\n%s", seed, len(tables[0]), &side)
		for i := range queues {
			if !maps.Equal(tables[i], tables[0]) {
				t.Errorf("seed %d: %s has brought about something else than %s", seed, queues[i].name, queues[0].name)
			}
			if rows[i].Changes != rows[0].Changes {
				t.Errorf("seed %d: under %s the user did something else", seed, queues[i].name)
			}
		}
	}
}

// runSample runs s in a bubble until all is quiet, and stops. It returns what the run was,
// what it brought about, and all that was wrong with it.
func runSample(t *testing.T, s sample.Scenario, q sampleQueue) (sample.Row, map[cache.ObjectName]int32, error) {
	t.Helper()
	r, err := sample.Start(t.Context(), s, q, q.loop)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Play(t.Context()); err != nil {
		t.Fatal(err)
	}
	settled, late := r.Settle(time.Second)
	time.Sleep(time.Hour) // whatever is late would come now
	synctest.Wait()
	figures := r.Figures()
	wrong := errors.Join(late, r.Check(), happened(s, figures), forgotten(s, q), counted(q, figures.Counts))
	if err := r.Stop(); err != nil {
		wrong = errors.Join(wrong, fmt.Errorf("the loop returned %w", err))
	}
	if n := q.Len(); n != 0 || !q.ShuttingDown() {
		wrong = errors.Join(wrong, fmt.Errorf("after the drain: Len %d, ShuttingDown %t", n, q.ShuttingDown()))
	}
	time.Sleep(time.Minute) // client-go's queue has goroutines that find out later
	return sample.Row{Figures: figures, Settled: settled}, r.Table(), wrong
}

// happened reports what should have come up in a run of s, and has not, or the reverse.
func happened(s sample.Scenario, f sample.Figures) error {
	changes := 0
	for _, p := range s.Phases {
		changes += p.Changes
	}
	const few = 100
	switch {
	case f.Created+f.Updated+f.Deleted != changes, min(f.Created, f.Updated, f.Deleted) < few:
		return fmt.Errorf("of %d changes: %+v", changes, f.Changes)
	case f.Injected < few, f.Errors < few, f.Conflicts == 0:
		return fmt.Errorf("faults have not come up: %+v", f.Faults)
	case f.Retries < f.Injected+f.Errors+f.Conflicts: // and where the object has been deleted
		return fmt.Errorf("%d retries after %+v", f.Retries, f.Faults)
	case f.Merged() < few:
		return fmt.Errorf("hardly a change has come while its object was in the queue: %d merged", f.Merged())
	case f.Overlaps != 0:
		return fmt.Errorf("two workers had one key, %d times", f.Overlaps)
	}
	return nil
}

// forgotten reports the first object of which failures are remembered: all have succeeded in
// the end.
func forgotten(s sample.Scenario, q sample.Queue) error {
	for name := range s.Names() {
		if n := q.NumRequeues(name); n != 0 {
			return fmt.Errorf("NumRequeues(%v) = %d", name, n)
		}
	}
	return nil
}

// counted reports what is left in an idle queue, and where ours has counted something else
// than the controller.
func counted(q sampleQueue, c sample.Counts) error {
	if n := q.Len(); n != 0 {
		return fmt.Errorf("%d items are left in the queue", n)
	}
	if q.ours == nil {
		return nil
	}
	s := q.ours.Stats()
	if s.Ready+s.Processing+s.Waiting != 0 || s.LongestProcessing != 0 || s.UnfinishedWork != 0 {
		return fmt.Errorf("something is left in the queue: %+v", s)
	}
	if s.Adds != uint64(c.Reconciles) || s.Retries != uint64(c.Retries) || s.StrayDones != 0 || s.Dropped != 0 {
		return fmt.Errorf("the queue has counted %+v, and the controller %+v", s, c)
	}
	return nil
}

// lossy loses every hundredth Add, deaf what is added while it is processing, noRetries what
// is to be tried again. eager takes an item for done once it is handed out, and resentful
// forgets no failure.
type (
	lossy struct {
		sample.Queue
		n *atomic.Int64
	}
	deaf struct {
		*typedqueue.RateLimitingQueue[cache.ObjectName]
	}
	noRetries struct{ sample.Queue }
	eager     struct{ sample.Queue }
	resentful struct{ sample.Queue }
)

func (q lossy) Add(name cache.ObjectName) {
	if q.n.Add(1)%100 != 0 {
		q.Queue.Add(name)
	}
}

func (q deaf) Add(name cache.ObjectName) {
	for _, p := range q.Snapshot().Processing {
		if p.Item == name {
			return
		}
	}
	q.RateLimitingQueue.Add(name)
}

func (noRetries) AddRateLimited(cache.ObjectName) {}

func (q eager) Get() (name cache.ObjectName, shutdown bool) {
	name, shutdown = q.Queue.Get()
	q.Queue.Done(name)
	return name, shutdown
}

func (resentful) Forget(cache.ObjectName) {}

// TestSampleControllerFinds breaks the queue: the run must show it.
func TestSampleControllerFinds(t *testing.T) {
	const lost = "has status"
	for name, test := range map[string]struct {
		broken func(sampleQueue) sample.Queue
		want   string
	}{
		"every hundredth Add is lost": {func(q sampleQueue) sample.Queue { return lossy{q, new(atomic.Int64)} }, lost},
		"an Add while processing is":  {func(q sampleQueue) sample.Queue { return deaf{q.ours} }, lost},
		"retries are":                 {func(q sampleQueue) sample.Queue { return noRetries{q} }, lost},
		"one key in two hands":        {func(q sampleQueue) sample.Queue { return eager{q} }, "two workers had one key"},
		"failures are remembered":     {func(q sampleQueue) sample.Queue { return resentful{q} }, "NumRequeues"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := oursByHand()
				q.Queue = test.broken(q)
				_, _, err := runSample(t, newScenario(1), q)
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("nobody has noticed: %v", err)
				}
				t.Log(err)
			})
		})
	}
}
