package typedqueue_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"example.com/typedqueue"
)

func ExampleQueue() {
	q := typedqueue.NewQueue[string](typedqueue.Options{})
	q.AddAll("a", "b", "a") // a is there already
	item, _ := q.Get()
	q.Add(item) // while it is processed: once more after Done
	q.Done(item)
	q.ShutDown() // what is in the queue is still handed out
	for {
		item, shutdown := q.Get()
		if shutdown {
			break
		}
		fmt.Println(item)
		q.Done(item)
	}
	// Output:
	// b
	// a
}

func ExampleQueue_AddWithPriority() {
	q := typedqueue.NewQueue[string](typedqueue.Options{})
	q.AddAll("resync 1", "resync 2")
	q.AddWithPriority("user is waiting", 10)
	item, priority, _ := q.GetWithPriority()
	fmt.Println(item, priority)
	// Output: user is waiting 10
}

// A worker that needs no retries is a range loop. Done follows each round, however it ends.
func ExampleQueue_Consume() {
	q := typedqueue.NewQueue[int](typedqueue.Options{})
	q.AddAll(1, 2, 3)
	q.ShutDown()
	for item := range q.Consume(context.Background()) {
		fmt.Println(item)
	}
	// Output:
	// 1
	// 2
	// 3
}

// A program that is told to stop gives its workers some time to finish.
func ExampleQueue_Drain() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	q := typedqueue.NewRateLimitingQueue[string](nil, typedqueue.Options{})
	var workers sync.WaitGroup
	workers.Go(func() {
		_ = q.Run(context.WithoutCancel(ctx), typedqueue.RunOptions[string]{Workers: 2},
			func(_ context.Context, key string) error { return nil })
	})
	q.AddAll("a", "b", "c")

	stop() // in a real program: <-ctx.Done()
	deadline, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := q.Drain(deadline); err != nil {
		fmt.Println("not everything is done:", err)
	}
	workers.Wait()
	fmt.Println(q.Len(), "left")
	// Output: 0 left
}

func ExampleDelayingQueue() {
	q := typedqueue.NewDelayingQueue[string](typedqueue.Options{})
	q.AddAfter("certificate", 90*24*time.Hour)
	q.AddAfter("certificate", time.Millisecond) // the earlier moment wins
	fmt.Println(q.Len(), q.Waiting())
	item, _ := q.Get()
	fmt.Println(item, q.Waiting())
	// Output:
	// 0 1
	// certificate 0
}

// A debouncer: the item becomes ready when it has been left alone for a while.
func ExampleDelayingQueue_Reschedule() {
	q := typedqueue.NewDelayingQueue[string](typedqueue.Options{})
	for range 100 {
		q.Reschedule("config.yaml", 10*time.Millisecond) // written again
	}
	item, _ := q.Get()
	fmt.Println(item, "has settled")
	q.Done(item)
	fmt.Println(q.Len(), q.Waiting())
	// Output:
	// config.yaml has settled
	// 0 0
}

// The worker pool that most controllers need.
func ExampleRateLimitingQueue_Run() {
	limiter := typedqueue.NewItemExponentialFailureRateLimiter[string](time.Millisecond, time.Minute)
	q := typedqueue.NewRateLimitingQueue(limiter, typedqueue.Options{})
	q.AddAll("flaky", "broken", "hopeless")

	var mu sync.Mutex
	tries := map[string]int{}
	reconcile := func(_ context.Context, key string) error {
		mu.Lock()
		defer mu.Unlock()
		tries[key]++
		switch {
		case key == "broken":
			return errors.New("it never works")
		case key == "hopeless":
			return typedqueue.Terminal(errors.New("no such thing"))
		case tries[key] < 3:
			return errors.New("not this time")
		}
		return nil
	}
	givenUp := make(chan string, 2)
	var pool sync.WaitGroup
	pool.Go(func() {
		err := q.Run(context.Background(), typedqueue.RunOptions[string]{
			Workers:     2,
			MaxAttempts: 5,
			GiveUp:      func(key string, err error) { givenUp <- key + ": " + err.Error() },
		}, reconcile)
		fmt.Println("Run:", err)
	})

	all := []string{<-givenUp, <-givenUp}
	slices.Sort(all)
	fmt.Println(all[0])
	fmt.Println(all[1])
	q.ShutDownWithDrain()
	pool.Wait()
	fmt.Println("flaky took", tries["flaky"], "tries, broken", tries["broken"])
	// Output:
	// broken: it never works
	// hopeless: typedqueue: terminal: no such thing
	// Run: <nil>
	// flaky took 3 tries, broken 5
}

// The same loop by hand, as it is written with client-go.
func ExampleRateLimitingQueue() {
	var q typedqueue.RateLimitingQueue[string] // the zero value is ready to use
	q.Add("a")
	tries := 0
	work := func() bool {
		key, shutdown := q.Get()
		if shutdown {
			return false
		}
		defer q.Done(key)
		tries++
		if tries < 3 { // it failed
			q.AddRateLimited(key)
			return true
		}
		fmt.Println(key, "succeeded after", q.NumRequeues(key), "failures")
		q.Forget(key)
		q.ShutDown()
		return true
	}
	for work() {
	}
	// Output: a succeeded after 2 failures
}

func ExampleRequeueAfter() {
	q := typedqueue.NewRateLimitingQueue[string](nil, typedqueue.Options{})
	q.Add("lease")
	renewed := 0
	err := q.Run(context.Background(), typedqueue.RunOptions[string]{}, func(context.Context, string) error {
		if renewed++; renewed == 3 {
			q.ShutDown()
			return nil
		}
		return typedqueue.RequeueAfter(time.Millisecond) // not a failure
	})
	fmt.Println(renewed, err)
	// Output: 3 <nil>
}

func ExampleTerminal() {
	err := fmt.Errorf("reconcile: %w", typedqueue.Terminal(os.ErrNotExist))
	var terminal *typedqueue.TerminalError
	fmt.Println(errors.As(err, &terminal), errors.Is(err, os.ErrNotExist), typedqueue.Terminal(nil))
	// Output: true true <nil>
}

func ExampleItemExponentialFailureRateLimiter() {
	l := typedqueue.NewItemExponentialFailureRateLimiter[string](5*time.Millisecond, 30*time.Millisecond)
	for range 4 {
		fmt.Println(l.When("a"))
	}
	fmt.Println(l.NumRequeues("a"))
	l.Forget("a")
	fmt.Println(l.When("a"))
	// Output:
	// 5ms
	// 10ms
	// 20ms
	// 30ms
	// 4
	// 5ms
}

func ExampleItemFastSlowRateLimiter() {
	l := typedqueue.NewItemFastSlowRateLimiter[string](time.Second, time.Minute, 2)
	fmt.Println(l.When("a"), l.When("a"), l.When("a"))
	// Output: 1s 1s 1m0s
}

func ExampleBucketRateLimiter() {
	l := typedqueue.NewBucketRateLimiter[string](rate.NewLimiter(rate.Every(time.Hour), 2))
	for _, item := range []string{"a", "b", "c"} {
		fmt.Println(l.When(item).Round(time.Minute))
	}
	// Output:
	// 0s
	// 0s
	// 1h0m0s
}

// Limiters are combined: here, back-off of each item, spread by half, but never more than a
// minute.
func ExampleWithJitterRateLimiter() {
	l := typedqueue.NewWithMaxWaitRateLimiter(
		typedqueue.NewWithJitterRateLimiter(
			typedqueue.NewItemExponentialFailureRateLimiter[string](time.Second, time.Hour), 0.5),
		time.Minute)
	first := l.When("a")
	fmt.Println(first >= time.Second, first <= 1500*time.Millisecond)
	for range 20 {
		l.When("a")
	}
	fmt.Println(l.When("a"))
	// Output:
	// true true
	// 1m0s
}

func ExampleMaxOfRateLimiter() {
	l := typedqueue.NewMaxOfRateLimiter[string](
		typedqueue.NewItemExponentialFailureRateLimiter[string](time.Second, time.Hour),
		typedqueue.NewItemFastSlowRateLimiter[string](0, 5*time.Second, 1),
	)
	fmt.Println(l.When("a"), l.When("a"))
	// Output: 1s 5s
}

func ExampleWithMaxWaitRateLimiter() {
	l := typedqueue.NewWithMaxWaitRateLimiter(
		typedqueue.NewItemFastSlowRateLimiter[string](time.Second, math.MaxInt64, 1), time.Minute)
	fmt.Println(l.When("a"), l.When("a"))
	// Output: 1s 1m0s
}

func ExampleMetrics() {
	var worked time.Duration
	q := typedqueue.NewQueue[string](typedqueue.Options{Metrics: typedqueue.Metrics{
		Worked: func(d time.Duration) { worked += d },
	}})
	q.Add("a")
	item, _ := q.Get()
	q.Done(item)
	fmt.Println(worked >= 0, q.Stats().Adds)
	// Output: true 1
}

// What is stuck? TrackTime makes the ages known.
func ExampleSnapshot() {
	q := typedqueue.NewDelayingQueue[string](typedqueue.Options{TrackTime: true})
	q.AddAll("a", "b", "c")
	q.Get()
	q.AddAfter("d", time.Hour)
	s := q.Snapshot()
	fmt.Println("ready:", s.Ready)
	fmt.Println("processing:", s.Processing[0].Item, s.Processing[0].For > 0)
	fmt.Println("waiting:", s.Waiting[0].Item, s.Waiting[0].In.Round(time.Minute))
	// Output:
	// ready: [b c]
	// processing: a true
	// waiting: d 1h0m0s
}

func ExampleStats() {
	q := typedqueue.NewQueue[string](typedqueue.Options{})
	q.AddAll("a", "a", "b")
	q.Done("c") // nobody has it
	s := q.Stats()
	fmt.Println(s.Ready, s.Adds, s.Merged, s.StrayDones)
	// Output: 2 2 1 1
}

// A pod is what the examples of object queues carry.
type pod struct {
	Namespace, Name, Node string
	Version               int
}

func (p *pod) GetNamespace() string { return p.Namespace }
func (p *pod) GetName() string      { return p.Name }
func (p *pod) String() string       { return fmt.Sprintf("%s@%d", p.Name, p.Version) }

func ExampleStore() {
	s := typedqueue.NewStore(typedqueue.MetaNamespaceKey[*pod])
	_ = s.Add(&pod{"web", "a", "node-1", 1})
	_ = s.Update(&pod{"web", "a", "node-2", 2})
	p, ok := s.GetByKey(typedqueue.NamespacedName{Namespace: "web", Name: "a"})
	fmt.Println(p, ok, s.Len())
	// Output: a@2 true 1
}

func ExampleIndex() {
	s := typedqueue.NewStore(typedqueue.MetaNamespaceKey[*pod])
	_ = s.Replace([]*pod{{"web", "a", "node-1", 1}, {"web", "b", "node-2", 1}, {"db", "c", "node-1", 1}})
	byNode, err := typedqueue.NewIndex(s, func(p *pod) ([]string, error) { return []string{p.Node}, nil })
	if err != nil {
		panic(err)
	}
	fmt.Println(len(byNode.Get("node-1")), len(byNode.Get("node-2")))
	s.DeleteKey(typedqueue.NamespacedName{Namespace: "web", Name: "b"})
	fmt.Println(byNode.Values())
	// Output:
	// 2 1
	// [node-1]
}

func ExampleNamespacedName() {
	n, err := typedqueue.ParseNamespacedName("kube-system/coredns")
	fmt.Println(n.Namespace, n.Name, n, err)
	// Output: kube-system coredns kube-system/coredns <nil>
}

func ExampleKeyError() {
	s := typedqueue.NewStore(func(p *pod) (string, error) {
		if p.Name == "" {
			return "", errors.New("no name")
		}
		return p.Name, nil
	})
	err := s.Replace([]*pod{{Name: "a"}, {Node: "node-1"}}) // all or nothing
	var keyErr *typedqueue.KeyError[*pod]
	fmt.Println(errors.As(err, &keyErr), keyErr.Err, keyErr.Obj.Node, s.Len())
	// Output: true no name node-1 0
}

func ExampleFIFO() {
	q := typedqueue.NewFIFO(func(p *pod) (string, error) { return p.Name, nil })
	_ = q.Add(&pod{Name: "a", Version: 1})
	_ = q.Add(&pod{Name: "b", Version: 1})
	_ = q.Add(&pod{Name: "a", Version: 2}) // keeps its place, and is newer
	for q.Len() > 0 {
		_, _ = q.Pop(context.Background(), func(key string, p *pod, _ bool) error {
			fmt.Println(key, p.Version)
			return nil
		})
	}
	// Output:
	// a 2
	// b 1
}

func ExampleRequeue() {
	q := typedqueue.NewFIFO(func(p *pod) (string, error) { return p.Name, nil })
	_ = q.Add(&pod{Name: "a", Version: 1})
	_, err := q.Pop(context.Background(), func(string, *pod, bool) error {
		return typedqueue.Requeue(errors.New("try again"))
	})
	fmt.Println(err)
	fmt.Println(q.ListKeys())
	// Output:
	// typedqueue: requeue: try again
	// [a]
}

func ExampleDeltaFIFO() {
	store := typedqueue.NewStore(func(p *pod) (string, error) { return p.Name, nil })
	q := typedqueue.NewDeltaFIFO(func(p *pod) (string, error) { return p.Name, nil },
		typedqueue.DeltaFIFOOptions[string, *pod]{KnownObjects: store})
	_ = q.Add(&pod{Name: "a", Version: 1})
	_ = q.Update(&pod{Name: "a", Version: 2})
	_ = q.Replace(nil) // a list without a: it must have been deleted
	_, _ = q.Pop(context.Background(), func(key string, deltas typedqueue.Deltas[*pod], _ bool) error {
		for _, d := range deltas {
			fmt.Println(key, d.Type, d.Object, d.FinalStateUnknown)
		}
		return nil
	})
	// Output:
	// a Added a@1 false
	// a Updated a@2 false
	// a Deleted a@2 true
}

// The pipeline of an informer: a source writes to a DeltaFIFO, its consumer keeps a Store up
// to date and tells handlers, which add keys to a work queue, whose workers read the Store.
func ExampleApply() {
	type name = typedqueue.NamespacedName
	store := typedqueue.NewStore(typedqueue.MetaNamespaceKey[*pod])
	changes := typedqueue.NewDeltaFIFO(typedqueue.MetaNamespaceKey[*pod],
		typedqueue.DeltaFIFOOptions[name, *pod]{KnownObjects: store})
	queue := typedqueue.NewRateLimitingQueue[name](nil, typedqueue.Options{})

	// The source: a list, and then what a watch reports.
	_ = changes.Replace([]*pod{{"web", "a", "node-1", 1}, {"web", "b", "node-2", 1}})
	_ = changes.Update(&pod{"web", "a", "node-3", 2})
	_ = changes.Delete(&pod{"web", "b", "node-2", 1})
	changes.Close()

	// The consumer.
	handler := typedqueue.Handler[name, *pod]{
		OnAdd:    func(key name, _ *pod, _ bool) { queue.Add(key) },
		OnUpdate: func(key name, _, _ *pod) { queue.Add(key) },
		OnDelete: func(key name, _ *pod, _ bool) { queue.Add(key) },
	}
	for {
		_, err := changes.Pop(context.Background(), func(key name, deltas typedqueue.Deltas[*pod], isInInitialList bool) error {
			if err := typedqueue.Apply(store, key, deltas, isInInitialList, handler); err != nil {
				return typedqueue.Requeue(err)
			}
			return nil
		})
		if errors.Is(err, typedqueue.ErrClosed) {
			break
		}
	}
	fmt.Println("synced:", changes.HasSynced())

	// The workers: each key once, whatever happened to it.
	queue.ShutDown()
	for key := range queue.Consume(context.Background()) {
		if p, ok := store.GetByKey(key); ok {
			fmt.Println(key, "is on", p.Node)
		} else {
			fmt.Println(key, "is gone")
		}
	}
	// Output:
	// synced: true
	// web/a is on node-3
	// web/b is gone
}

func ExampleDeltas() {
	deltas := typedqueue.Deltas[string]{
		{Type: typedqueue.Added, Object: "v1"},
		{Type: typedqueue.Deleted, Object: "v1", FinalStateUnknown: true},
	}
	fmt.Println(deltas.Oldest().Type, deltas.Newest().Type, deltas.Newest().FinalStateUnknown)
	// Output: Added Deleted true
}

func ExampleHandler() {
	store := typedqueue.NewStore(func(p *pod) (string, error) { return p.Name, nil })
	handler := typedqueue.Handler[string, *pod]{
		OnUpdate: func(key string, old, new *pod) { fmt.Println(key, old.Version, "->", new.Version) },
		OnDelete: func(key string, p *pod, finalStateUnknown bool) { fmt.Println(key, "gone at", p.Version) },
	}
	err := typedqueue.Apply(store, "a", typedqueue.Deltas[*pod]{
		{Type: typedqueue.Added, Object: &pod{Name: "a", Version: 1}}, // nobody wants to know
		{Type: typedqueue.Updated, Object: &pod{Name: "a", Version: 2}},
		{Type: typedqueue.Deleted, ObjectMissing: true, FinalStateUnknown: true}, // the stored one, then
	}, false, handler)
	fmt.Println(err)
	// Output:
	// a 1 -> 2
	// a gone at 2
	// <nil>
}

func ExampleOptions() {
	q := typedqueue.NewQueue[string](typedqueue.Options{TrackTime: true})
	q.Add("a")
	q.Get()
	fmt.Println(q.Stats().LongestProcessing > 0)
	// Output: true
}

func ExampleRunOptions() {
	q := typedqueue.NewRateLimitingQueue[string](nil, typedqueue.Options{})
	q.Add("a")
	opts := typedqueue.RunOptions[string]{
		MaxAttempts: 2,
		GiveUp: func(key string, err error) {
			fmt.Println("gave up", key, "for", err)
			q.ShutDown()
		},
	}
	_ = q.Run(context.Background(), opts, func(context.Context, string) error { return errors.New("it does not work") })
	// Output: gave up a for it does not work
}

// TestControllerInBubble shows how to test a controller of one's own: in a bubble the
// back-off of an hour takes no time, and the outcome is the same each time.
func TestControllerInBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := typedqueue.NewRateLimitingQueue(
			typedqueue.NewItemExponentialFailureRateLimiter[string](time.Minute, time.Hour), typedqueue.Options{})
		start := time.Now()
		var tries []time.Duration
		go func() {
			_ = q.Run(t.Context(), typedqueue.RunOptions[string]{}, func(context.Context, string) error {
				tries = append(tries, time.Since(start))
				if len(tries) < 4 {
					return errors.New("not yet")
				}
				return nil
			})
		}()
		q.Add("key")
		time.Sleep(10 * time.Minute) // of the bubble's clock
		synctest.Wait()              // the controller has nothing more to do
		q.ShutDown()
		if want := []time.Duration{0, time.Minute, 3 * time.Minute, 7 * time.Minute}; !slices.Equal(tries, want) {
			t.Errorf("tried at %v, want %v", tries, want)
		}
	})
}
