package typedqueue

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/google/go-cmp/cmp"
)

// Whatever DESIGN says of Queue holds for every work queue, so each test here runs with
// each of them, the zero values included, in a bubble of its own.

// workQueue is what all work queues have.
type workQueue[T comparable] interface {
	Add(item T)
	AddAll(items ...T)
	AddWithPriority(item T, priority int)
	Get() (item T, shutdown bool)
	GetWithPriority() (item T, priority int, shutdown bool)
	GetContext(ctx context.Context) (T, error)
	TryGet() (item T, ok bool)
	Done(item T)
	Consume(ctx context.Context) iter.Seq[T]
	Cancel(item T) bool
	Len() int
	ShutDown()
	ShutDownWithDrain()
	Drain(ctx context.Context) error
	ShuttingDown() bool
	Stats() Stats
	Snapshot() Snapshot[T]
}

// delayedQueue is what the work queues with delays have.
type delayedQueue[T comparable] interface {
	workQueue[T]
	AddAfter(item T, delay time.Duration)
	AddAfterWithPriority(item T, delay time.Duration, priority int)
	Reschedule(item T, delay time.Duration)
	Waiting() int
}

var (
	_ workQueue[string]    = (*Queue[string])(nil)
	_ delayedQueue[string] = (*DelayingQueue[string])(nil)
	_ delayedQueue[string] = (*RateLimitingQueue[string])(nil)
)

// kind is one type of work queue.
type kind[T comparable] struct {
	name string
	make func(Options) workQueue[T]
	zero func() workQueue[T]
}

func kinds[T comparable]() []kind[T] {
	return []kind[T]{
		{
			"Queue",
			func(o Options) workQueue[T] { return NewQueue[T](o) },
			func() workQueue[T] { return new(Queue[T]) },
		},
		{
			"DelayingQueue",
			func(o Options) workQueue[T] { return NewDelayingQueue[T](o) },
			func() workQueue[T] { return new(DelayingQueue[T]) },
		},
		{
			"RateLimitingQueue",
			func(o Options) workQueue[T] { return NewRateLimitingQueue[T](nil, o) },
			func() workQueue[T] { return new(RateLimitingQueue[T]) },
		},
	}
}

// eachKind runs f in a bubble for each kind of work queue.
func eachKind[T comparable](t *testing.T, f func(t *testing.T, newQueue func(Options) workQueue[T])) {
	t.Helper()
	for _, k := range kinds[T]() {
		t.Run(k.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, k.make) })
		})
	}
}

// eachQueue runs f in a bubble with an empty queue of each kind, and with each zero value.
func eachQueue[T comparable](t *testing.T, f func(t *testing.T, q workQueue[T])) {
	t.Helper()
	for _, k := range kinds[T]() {
		t.Run(k.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, k.make(Options{})) })
		})
		t.Run("zero "+k.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, k.zero()) })
		})
	}
}

// coreOf returns the core of q.
func coreOf[T comparable](q workQueue[T]) *core[T, struct{}] {
	switch q := q.(type) {
	case *Queue[T]:
		return &q.core
	case *DelayingQueue[T]:
		return &q.core
	case *RateLimitingQueue[T]:
		return &q.core
	}
	panic("unknown kind of queue")
}

// lockOf returns the lock of q.
func lockOf[T comparable](q workQueue[T]) *sync.Mutex { return &coreOf(q).mu }

// want fails the test unless q holds what state says: the ready items in order, those in
// processing, and those that wait, for instance "[a b] [c] [d]". It also fails if any two
// of the ways to look into a queue disagree (Q11).
func want[T comparable](t *testing.T, q workQueue[T], state string) {
	t.Helper()
	snap, stats, n := q.Snapshot(), q.Stats(), q.Len()
	held, waits := []T{}, []T{}
	for _, p := range snap.Processing {
		held = append(held, p.Item)
	}
	for _, w := range snap.Waiting {
		waits = append(waits, w.Item)
	}
	if got := fmt.Sprint(snap.Ready, held, waits); got != state {
		t.Errorf("queue holds %s, want %s", got, state)
	}
	if n != len(snap.Ready) || stats.Ready != len(snap.Ready) ||
		stats.Processing != len(held) || stats.Waiting != len(waits) {
		t.Errorf("Q11: Len = %d, Stats = %+v, Snapshot = %+v", n, stats, snap)
	}
	if d, ok := q.(delayedQueue[T]); ok && d.Waiting() != len(waits) {
		t.Errorf("Q11: Waiting = %d, want %d", d.Waiting(), len(waits))
	}
}

// wantStats fails the test unless q.Stats returns exactly w.
func wantStats[T comparable](t *testing.T, q workQueue[T], w Stats) {
	t.Helper()
	if diff := cmp.Diff(w, q.Stats()); diff != "" {
		t.Errorf("Stats (-want +got):\n%s", diff)
	}
}

// take gets what is ready first, which must be item.
func take[T comparable](t *testing.T, q workQueue[T], item T) {
	t.Helper()
	if got, ok := q.TryGet(); !ok || got != item {
		t.Fatalf("TryGet = %v, %v; want %v", got, ok, item)
	}
}

// wantOrder gets and finishes all that is ready, and fails the test unless these are the
// items and priorities of want, for instance "b:5 a:0".
func wantOrder[T comparable](t *testing.T, q workQueue[T], want string) {
	t.Helper()
	var got []string
	for q.Len() > 0 {
		item, priority, shutdown := q.GetWithPriority()
		if shutdown {
			t.Fatal("GetWithPriority reports shutdown, though something is ready")
		}
		got = append(got, fmt.Sprint(item, ":", priority))
		q.Done(item)
	}
	if got := strings.Join(got, " "); got != want {
		t.Errorf("order is %q, want %q", got, want)
	}
}

// background runs f in a goroutine and returns a function that waits until all is blocked
// and reports whether f has returned.
func background(f func()) (returned func() bool) {
	var done atomic.Bool
	go func() {
		f()
		done.Store(true)
	}()
	return func() bool {
		synctest.Wait()
		return done.Load()
	}
}

// wantPanic fails the test unless f panics with a string that starts as the package's
// panics do.
func wantPanic(t *testing.T, call string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		r := recover()
		if s, ok := r.(string); !ok || !strings.HasPrefix(s, "typedqueue: ") {
			t.Errorf("%s: panic value is %#v, want a string that starts with %q", call, r, "typedqueue: ")
		}
	}()
	f()
	t.Errorf("%s: no panic", call)
}

// scaled returns n, or less in short runs and under the race detector.
func scaled(n int) int {
	if testing.Short() || raceDetector() {
		return n / 10
	}
	return n
}

func raceDetector() bool {
	info, _ := debug.ReadBuildInfo()
	return info != nil && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

func TestQueue_Q1_Order(t *testing.T) {
	type q = workQueue[string]
	for _, tt := range []struct {
		name string
		do   func(q q)
		want string
	}{
		{"oldest first", func(q q) { q.Add("c"); q.Add("a"); q.Add("b") }, "c:0 a:0 b:0"},
		{"ready keeps its place", func(q q) { q.Add("a"); q.Add("b"); q.Add("a") }, "a:0 b:0"},
		{"AddAll is Add in order", func(q q) { q.AddAll("b", "a", "b", "c") }, "b:0 a:0 c:0"}, // W89
		{"higher first", func(q q) {
			q.AddWithPriority("low", -1)
			q.Add("plain")
			q.AddWithPriority("high", 1)
		}, "high:1 plain:0 low:-1"},
		{"oldest first within each", func(q q) {
			for _, item := range []string{"a", "b", "c"} {
				q.AddWithPriority(item+"+", 7)
				q.Add(item)
				q.AddWithPriority(item+"-", -7)
			}
		}, "a+:7 b+:7 c+:7 a:0 b:0 c:0 a-:-7 b-:-7 c-:-7"},
		{"higher moves to the end", func(q q) { // W64
			q.Add("a")
			q.AddWithPriority("b", 5)
			q.AddWithPriority("a", 5)
		}, "b:5 a:5"},
		{"0 is higher than negative", func(q q) {
			q.AddWithPriority("a", -5)
			q.Add("b")
			q.Add("a")
		}, "b:0 a:0"},
		{"from the middle of one to the end of another", func(q q) {
			q.AddAll("a", "b", "c")
			q.AddWithPriority("d", 1)
			q.AddWithPriority("b", 1)
		}, "d:1 b:1 a:0 c:0"},
		{"lower changes nothing", func(q q) {
			q.AddWithPriority("a", 5)
			q.AddWithPriority("b", 5)
			q.AddWithPriority("a", 4)
			q.Add("a")
			q.AddWithPriority("a", -1)
		}, "a:5 b:5"},
		{"equal changes nothing", func(q q) {
			q.AddWithPriority("a", 5)
			q.AddWithPriority("b", 5)
			q.AddWithPriority("a", 5)
		}, "a:5 b:5"},
		{"extremes", func(q q) {
			q.AddWithPriority("least", math.MinInt)
			q.AddWithPriority("most", math.MaxInt)
			q.Add("plain")
		}, fmt.Sprintf("most:%d plain:0 least:%d", math.MaxInt, math.MinInt)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachQueue(t, func(t *testing.T, q workQueue[string]) {
				tt.do(q)
				items := []string{}
				for s := range strings.FieldsSeq(tt.want) {
					item, _, _ := strings.Cut(s, ":")
					items = append(items, item)
				}
				want(t, q, fmt.Sprintf("%v [] []", items))
				wantOrder(t, q, tt.want)
			})
		})
	}
}

// Each kind of getter hands out the same.
func TestQueue_Q1_AllGetters(t *testing.T) {
	eachQueue(t, func(t *testing.T, q workQueue[int]) {
		q.AddAll(1, 2, 3, 4, 5)
		q.AddWithPriority(0, 1)
		if item, shutdown := q.Get(); item != 0 || shutdown {
			t.Errorf("Get = %v, %v", item, shutdown)
		}
		if item, priority, shutdown := q.GetWithPriority(); item != 1 || priority != 0 || shutdown {
			t.Errorf("GetWithPriority = %v, %v, %v", item, priority, shutdown)
		}
		if item, err := q.GetContext(t.Context()); item != 2 || err != nil {
			t.Errorf("GetContext = %v, %v", item, err)
		}
		if item, ok := q.TryGet(); item != 3 || !ok {
			t.Errorf("TryGet = %v, %v", item, ok)
		}
		for item := range q.Consume(t.Context()) {
			if item != 4 {
				t.Errorf("Consume yields %v", item)
			}
			want(t, q, "[5] [0 1 2 3 4] []")
			break
		}
		want(t, q, "[5] [0 1 2 3] []")
	})
}

func TestQueue_Q2_ReadyOnce(t *testing.T) {
	eachQueue(t, func(t *testing.T, q workQueue[string]) {
		q.Add("a")
		q.Add("a")
		q.AddAll("a", "a")
		q.AddWithPriority("a", 3)
		q.AddWithPriority("a", 1)
		want(t, q, "[a] [] []")
		wantOrder(t, q, "a:3")
		want(t, q, "[] [] []")
	})
}

// W03, W77
func TestQueue_Q3_NotHandedOutBeforeDone(t *testing.T) {
	eachQueue(t, func(t *testing.T, q workQueue[string]) {
		q.Add("a")
		take(t, q, "a")
		q.Add("a")
		q.AddAll("a")
		q.AddWithPriority("a", 9)
		want(t, q, "[] [a] []")
		if item, ok := q.TryGet(); ok || item != "" {
			t.Errorf("TryGet = %q, %v", item, ok)
		}
		got := background(func() {
			if item, shutdown := q.Get(); item != "a" || shutdown {
				t.Errorf("Get = %q, %v", item, shutdown)
			}
		})
		if got() {
			t.Fatal("Q3: Get returned before Done")
		}
		q.Done("a")
		if !got() {
			t.Error("Q4: Get sleeps after Done of an item that was added meanwhile")
		}
		want(t, q, "[] [a] []")
		q.Done("a")
		want(t, q, "[] [] []")
	})
}

func TestQueue_Q4_ReadyAtDone(t *testing.T) {
	type q = workQueue[string]
	for _, tt := range []struct {
		name string
		do   func(q q) // a is processing, handed out with priority 7
		want string
	}{
		{"not added", func(q q) { q.Add("b") }, "b:0"},
		{"at the tail", func(q q) { q.AddAll("a", "b", "c") }, "b:0 c:0 a:0"},
		{"once", func(q q) { q.AddAll("a", "a"); q.Add("a") }, "a:0"},
		{"highest priority, rising", func(q q) {
			q.AddWithPriority("a", -1)
			q.AddWithPriority("a", 3)
			q.AddWithPriority("b", 3)
			q.AddWithPriority("c", 2)
		}, "b:3 a:3 c:2"},
		{"highest priority, falling", func(q q) {
			q.AddWithPriority("a", 3)
			q.Add("a")
			q.AddWithPriority("a", -1)
			q.AddWithPriority("b", 3)
		}, "b:3 a:3"},
		{"asked for meanwhile, not before", func(q q) {
			q.AddWithPriority("a", -2)
			q.AddWithPriority("b", -1)
		}, "b:-1 a:-2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachQueue(t, func(t *testing.T, q workQueue[string]) {
				q.AddWithPriority("a", 7)
				take(t, q, "a")
				tt.do(q)
				q.Done("a")
				wantOrder(t, q, tt.want)
			})
		})
	}
}

// W01, W04
func TestQueue_Q5_StrayDone(t *testing.T) {
	eachQueue(t, func(t *testing.T, q workQueue[string]) {
		q.Done("a") // nothing in the queue
		want(t, q, "[] [] []")
		q.Add("a")
		q.Done("a") // ready
		q.Done("a")
		want(t, q, "[a] [] []")
		take(t, q, "a")
		q.Done("b") // another than Get returned
		want(t, q, "[] [a] []")
		q.Add("a")
		q.Done("c")
		want(t, q, "[] [a] []")
		q.Done("a")
		want(t, q, "[a] [] []")
		q.Done("a") // a second time
		want(t, q, "[a] [] []")
		take(t, q, "a")
		q.Done("a")
		q.Done("a")
		want(t, q, "[] [] []")
		wantStats(t, q, Stats{Adds: 2, StrayDones: 7})
	})
}

// Done of one of many that are processing ends that one, in whatever order.
func TestQueue_Q5_DoneOfMany(t *testing.T) {
	const n = 50
	eachQueue(t, func(t *testing.T, q workQueue[int]) {
		for i := range n {
			q.Add(i)
			take(t, q, i)
		}
		q.Add(n)
		q.Done(n)
		q.Done(n + 1)
		for left, i := range rand.New(rand.NewPCG(1, 1)).Perm(n) {
			q.Done(i)
			q.Done(i)
			if s := q.Stats(); s.Processing != n-1-left || s.StrayDones != uint64(3+left) {
				t.Fatalf("after Done of %d: %+v", i, s)
			}
		}
		want(t, q, fmt.Sprintf("[%d] [] []", n))
	})
}

func TestQueue_Q5_DoneIsByValue(t *testing.T) {
	eachQueue(t, func(t *testing.T, q workQueue[string]) {
		q.Add("a")
		take(t, q, "a") // by one worker
		q.Done("a")
		q.Add("a")
		take(t, q, "a") // by another
		q.Done("a")     // by the first, who is wrong
		want(t, q, "[] [] []")
		wantStats(t, q, Stats{Adds: 2})
	})
}

// W21
func TestQueue_Q6_AddsNothingAfterShutDown(t *testing.T) {
	eachQueue(t, func(t *testing.T, q workQueue[string]) {
		q.AddAll("a", "b")
		take(t, q, "a")
		if q.ShuttingDown() {
			t.Error("ShuttingDown before ShutDown")
		}
		q.ShutDown()
		if !q.ShuttingDown() {
			t.Error("not ShuttingDown after ShutDown")
		}
		before := q.Stats()
		for _, item := range []string{"a", "b", "c"} {
			q.Add(item)
			q.AddWithPriority(item, 5)
			q.AddAll(item, item)
			if d, ok := q.(delayedQueue[string]); ok {
				for _, delay := range []time.Duration{-1, 0, 1, time.Hour} {
					d.AddAfter(item, delay)
					d.AddAfterWithPriority(item, delay, 5)
					d.Reschedule(item, delay)
				}
			}
			if r, ok := q.(*RateLimitingQueue[string]); ok {
				r.AddRateLimited(item)
				r.AddRateLimitedWithPriority(item, 5)
				if n := r.NumRequeues(item); n != 0 {
					t.Errorf("NumRequeues after shutdown = %d", n)
				}
			}
		}
		time.Sleep(2 * time.Hour)
		want(t, q, "[b] [a] []")
		wantStats(t, q, before)
		q.Done("a")
		wantOrder(t, q, "b:0")
		want(t, q, "[] [] []")
	})
}

// W19, W22
func TestQueue_Q6_BacklogIsHandedOut(t *testing.T) {
	eachQueue(t, func(t *testing.T, q workQueue[string]) {
		q.AddAll("a", "b")
		q.AddWithPriority("c", 1)
		q.ShutDown()
		if item, shutdown := q.Get(); item != "c" || shutdown {
			t.Errorf("Get = %q, %v", item, shutdown)
		}
		if item, err := q.GetContext(t.Context()); item != "a" || err != nil {
			t.Errorf("GetContext = %q, %v", item, err)
		}
		if item, ok := q.TryGet(); item != "b" || !ok {
			t.Errorf("TryGet = %q, %v", item, ok)
		}
		wantShutDown(t, q)
		want(t, q, "[] [c a b] []")
	})
}

// wantShutDown fails the test unless each getter reports shutdown, with a zero item.
func wantShutDown(t *testing.T, q workQueue[string]) {
	t.Helper()
	if item, shutdown := q.Get(); item != "" || !shutdown {
		t.Errorf("Get = %q, %v", item, shutdown)
	}
	if item, priority, shutdown := q.GetWithPriority(); item != "" || priority != 0 || !shutdown {
		t.Errorf("GetWithPriority = %q, %v, %v", item, priority, shutdown)
	}
	if item, err := q.GetContext(t.Context()); item != "" || !errors.Is(err, ErrShutDown) {
		t.Errorf("GetContext = %q, %v", item, err)
	}
	if item, ok := q.TryGet(); item != "" || ok {
		t.Errorf("TryGet = %q, %v", item, ok)
	}
	for item := range q.Consume(t.Context()) {
		t.Errorf("Consume yields %q", item)
	}
}

func TestQueue_Q6_WhatDoneMakesReady(t *testing.T) {
	eachQueue(t, func(t *testing.T, q workQueue[string]) {
		q.Add("a")
		take(t, q, "a")
		q.AddWithPriority("a", 4)
		q.ShutDown()
		wantShutDown(t, q) // it is the other worker's to get
		q.Done("a")
		want(t, q, "[a] [] []")
		wantOrder(t, q, "a:4")
		wantShutDown(t, q)
		want(t, q, "[] [] []")
	})
}

// W19
func TestQueue_Q6_EveryGetterWakes(t *testing.T) {
	for _, end := range []struct {
		name string
		down func(workQueue[string])
	}{
		{"ShutDown", workQueue[string].ShutDown},
		{"ShutDownWithDrain", workQueue[string].ShutDownWithDrain},
		{"Drain", func(q workQueue[string]) { _ = q.Drain(context.Background()) }},
	} {
		t.Run(end.name, func(t *testing.T) {
			eachQueue(t, func(t *testing.T, q workQueue[string]) {
				var getters []func() bool
				for range 5 {
					getters = append(getters,
						background(func() {
							if item, shutdown := q.Get(); item != "" || !shutdown {
								t.Errorf("Get = %q, %v", item, shutdown)
							}
						}),
						background(func() {
							if item, priority, shutdown := q.GetWithPriority(); item != "" || priority != 0 || !shutdown {
								t.Errorf("GetWithPriority = %q, %v, %v", item, priority, shutdown)
							}
						}),
						background(func() {
							if item, err := q.GetContext(t.Context()); item != "" || !errors.Is(err, ErrShutDown) {
								t.Errorf("GetContext = %q, %v", item, err)
							}
						}),
						background(func() {
							for item := range q.Consume(t.Context()) {
								t.Errorf("Consume yields %q", item)
							}
						}))
				}
				for _, returned := range getters {
					if returned() {
						t.Fatal("a getter returned, though nothing is ready")
					}
				}
				end.down(q)
				for i, returned := range getters {
					if !returned() {
						t.Errorf("getter %d still sleeps", i)
					}
				}
			})
		})
	}
}

// W16: in any order, one after the other and at once.
func TestQueue_Q6_AgainIsHarmless(t *testing.T) {
	ends := []func(workQueue[string]){
		workQueue[string].ShutDown,
		workQueue[string].ShutDownWithDrain,
		func(q workQueue[string]) { _ = q.Drain(context.Background()) },
	}
	eachKind(t, func(t *testing.T, newQueue func(Options) workQueue[string]) {
		for _, first := range ends {
			for _, second := range ends {
				for _, third := range ends {
					q := newQueue(Options{})
					first(q)
					second(q)
					third(q)
					wantShutDown(t, q)

					q = newQueue(Options{})
					q.Add("a")
					take(t, q, "a")
					var all []func() bool
					for _, end := range []func(workQueue[string]){first, second, third} {
						all = append(all, background(func() { end(q) }))
					}
					q.Done("a")
					for _, returned := range all {
						if !returned() {
							t.Error("hangs")
						}
					}
				}
			}
		}
	})
}

// W12: it waits for what is ready, too.
func TestQueue_Q7_DrainWaitsForReadyAndProcessing(t *testing.T) {
	eachQueue(t, func(t *testing.T, q workQueue[string]) {
		q.AddAll("a", "b")
		drained := background(q.ShutDownWithDrain)
		step := func(do func(), wantDrained bool, what string) {
			t.Helper()
			do()
			if got := drained(); got != wantDrained {
				t.Fatalf("after %s: drained is %v", what, got)
			}
		}
		step(func() {}, false, "the start, with two items ready")
		if !q.ShuttingDown() {
			t.Error("ShutDownWithDrain has not shut the queue down")
		}
		step(func() { take(t, q, "a"); q.Done("a") }, false, "the first Done")
		step(func() { take(t, q, "b") }, false, "the last Get")
		step(func() { q.Add("c") }, false, "an Add, which must be refused")
		step(func() { q.Done("x") }, false, "a stray Done")
		step(func() { q.Done("b") }, true, "the last Done")
		want(t, q, "[] [] []")
	})
}

// W12
func TestQueue_Q7_DrainWaitsForDirty(t *testing.T) {
	eachQueue(t, func(t *testing.T, q workQueue[string]) {
		q.Add("a")
		take(t, q, "a")
		q.Add("a")
		drained := background(q.ShutDownWithDrain)
		q.Done("a")
		if drained() {
			t.Fatal("drained with an item that Done has made ready")
		}
		take(t, q, "a")
		if drained() {
			t.Fatal("drained with an item in processing")
		}
		q.Done("a")
		if !drained() {
			t.Error("not drained")
		}
	})
}

func TestQueue_Q7_CancelEndsDrain(t *testing.T) {
	eachQueue(t, func(t *testing.T, q workQueue[string]) {
		q.AddAll("a", "b")
		take(t, q, "a")
		q.Add("a")
		drained := background(q.ShutDownWithDrain)
		q.Cancel("a") // of its second run only
		q.Done("a")
		if drained() {
			t.Fatal("drained with an item ready")
		}
		q.Cancel("b")
		if !drained() {
			t.Error("not drained after Cancel of the last item")
		}
	})
}

// W16
func TestQueue_Q7_DrainAfterShutDown(t *testing.T) {
	eachQueue(t, func(t *testing.T, q workQueue[string]) {
		q.AddAll("a")
		q.ShutDown()
		drained := background(q.ShutDownWithDrain)
		if drained() {
			t.Fatal("drained with an item ready")
		}
		take(t, q, "a")
		if drained() {
			t.Fatal("drained with an item in processing")
		}
		q.Done("a")
		if !drained() {
			t.Error("not drained")
		}
		q.ShutDownWithDrain() // at once
	})
}

func TestQueue_Q7_AllDrainersReturn(t *testing.T) {
	for _, end := range []string{"Done", "ShutDown"} {
		t.Run(end, func(t *testing.T) {
			eachQueue(t, func(t *testing.T, q workQueue[string]) {
				q.Add("a")
				take(t, q, "a")
				var drainers []func() bool
				for range 5 {
					drainers = append(drainers, background(q.ShutDownWithDrain), background(func() {
						err := q.Drain(t.Context())
						if end == "Done" && err != nil || end == "ShutDown" && !errors.Is(err, ErrShutDown) {
							t.Errorf("Drain: %v", err)
						}
					}))
				}
				for _, drained := range drainers {
					if drained() {
						t.Fatal("drained with an item in processing")
					}
				}
				if end == "Done" {
					q.Done("a")
				} else {
					q.ShutDown()
				}
				for i, drained := range drainers {
					if !drained() {
						t.Errorf("drainer %d still waits", i)
					}
				}
			})
		})
	}
}

func TestQueue_Q7_ShutDownReleasesEachTime(t *testing.T) {
	eachQueue(t, func(t *testing.T, q workQueue[string]) {
		q.Add("a")
		for range 3 {
			drained := background(q.ShutDownWithDrain)
			if drained() {
				t.Fatal("drained with an item ready")
			}
			q.ShutDown()
			if !drained() {
				t.Fatal("not released by ShutDown")
			}
		}
		want(t, q, "[a] [] []")
		drained := background(q.ShutDownWithDrain)
		take(t, q, "a")
		q.Done("a")
		if !drained() {
			t.Error("not drained")
		}
	})
}

// W15
func TestQueue_Q7_DrainErrors(t *testing.T) {
	const left = "3 items are ready and 2 processing"
	for _, tt := range []struct {
		name    string
		ctx     func(*testing.T) context.Context
		then    func(workQueue[int])
		want    error
		after   time.Duration
		message string
	}{
		{
			"deadline", func(t *testing.T) context.Context {
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				t.Cleanup(cancel)
				return ctx
			}, nil, context.DeadlineExceeded, 50 * time.Millisecond, left,
		},
		{
			"cancelled", func(t *testing.T) context.Context {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Second, cancel)
				return ctx
			}, nil, context.Canceled, time.Second, left,
		},
		{
			"cancelled with a cause", func(t *testing.T) context.Context { // ctx's error, not its cause
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Second, func() { cancel(errors.New("cause")) })
				return ctx
			}, nil, context.Canceled, time.Second, left,
		},
		{
			"done from the start", func(t *testing.T) context.Context {
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				return ctx
			}, nil, context.Canceled, 0, left,
		},
		{
			"released", (*testing.T).Context, func(q workQueue[int]) {
				time.AfterFunc(time.Minute, q.ShutDown)
			}, ErrShutDown, time.Minute, left,
		},
		{
			"counts are those of the end", (*testing.T).Context, func(q workQueue[int]) {
				time.AfterFunc(time.Minute, func() {
					q.TryGet()
					q.TryGet()
					q.Done(0)
					q.ShutDown()
				})
			}, ErrShutDown, time.Minute, "1 items are ready and 3 processing",
		},
		{
			"drained", (*testing.T).Context, func(q workQueue[int]) {
				time.AfterFunc(time.Minute, func() {
					q.Cancel(2)
					q.Cancel(3)
					q.Cancel(4)
					q.Done(0)
					q.Done(1)
				})
			}, nil, time.Minute, "",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachQueue(t, func(t *testing.T, q workQueue[int]) {
				q.AddAll(0, 1, 2, 3, 4)
				take(t, q, 0)
				take(t, q, 1)
				q.Add(1) // dirty, but not ready
				q.Cancel(1)
				if tt.then != nil {
					tt.then(q)
				}
				start := time.Now()
				err := q.Drain(tt.ctx(t))
				if took := time.Since(start); took != tt.after {
					t.Errorf("Drain took %v, want %v", took, tt.after)
				}
				if !errors.Is(err, tt.want) {
					t.Errorf("Drain: %v, want %v", err, tt.want)
				}
				if err != nil && !strings.Contains(err.Error(), tt.message) {
					t.Errorf("Drain: %q does not say %q", err, tt.message)
				}
				if !q.ShuttingDown() {
					t.Error("Drain has not shut the queue down")
				}
			})
		})
	}
}

// There is nothing left, so Drain returns nil whatever became of its context.
func TestQueue_Q7_DrainOfIdle(t *testing.T) {
	eachQueue(t, func(t *testing.T, q workQueue[string]) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := q.Drain(ctx); err != nil {
			t.Errorf("Drain: %v", err)
		}
		if !q.ShuttingDown() {
			t.Error("Drain has not shut the queue down")
		}
	})
}

// W14: a ShutDown right behind the drain releases it.
func TestQueue_Q7_ShutDownRacesDrain(t *testing.T) {
	eachKind(t, func(t *testing.T, newQueue func(Options) workQueue[int]) {
		for range scaled(10_000) {
			q := newQueue(Options{})
			q.Add(1)
			q.Get()
			drained := make(chan bool)
			go func() {
				q.ShutDownWithDrain()
				close(drained)
			}()
			for !q.ShuttingDown() {
				runtime.Gosched()
			}
			q.ShutDown()
			<-drained // or the bubble reports a deadlock
		}
	})
}

// Done races with Cancel, the drain's deadline and other drains.
func TestQueue_Q7_DoneRacesDrain(t *testing.T) {
	eachKind(t, func(t *testing.T, newQueue func(Options) workQueue[int]) {
		for range scaled(3_000) {
			q := newQueue(Options{})
			q.AddAll(1, 2, 3)
			q.Get()
			q.Get()
			var all sync.WaitGroup
			for range 2 {
				all.Go(q.ShutDownWithDrain)
			}
			all.Go(func() { q.Done(1) })
			all.Go(func() { q.Done(2) })
			all.Go(func() { q.Cancel(3) })
			all.Wait()
			want(t, q, "[] [] []")
		}
	})
}

// W20
func TestQueue_Q6_ShutDownRacesAddAndGet(t *testing.T) {
	eachKind(t, func(t *testing.T, newQueue func(Options) workQueue[int]) {
		for round := range scaled(200) {
			q := newQueue(Options{})
			var all sync.WaitGroup
			for i := range 20 {
				all.Go(func() {
					for {
						q.Add(i)
						item, shutdown := q.Get()
						if shutdown {
							return
						}
						q.Done(item)
						runtime.Gosched() // else each runs for as long as the scheduler lets it
					}
				})
			}
			for range round % 50 {
				runtime.Gosched()
			}
			q.ShutDown()
			all.Wait()
			if n := q.Len(); n != 0 {
				t.Fatalf("all getters were told of the shutdown, with %d items ready", n)
			}
		}
	})
}

// W25
func TestQueue_Q8_GetContext(t *testing.T) {
	eachQueue(t, func(t *testing.T, q workQueue[string]) {
		ctx, cancel := context.WithCancel(t.Context())
		got := background(func() {
			if item, err := q.GetContext(ctx); item != "" || !errors.Is(err, context.Canceled) {
				t.Errorf("GetContext = %q, %v", item, err)
			}
		})
		if got() {
			t.Fatal("GetContext returned, though nothing is ready")
		}
		cancel()
		if !got() {
			t.Fatal("GetContext still sleeps")
		}
		q.Add("a")
		if item, err := q.GetContext(ctx); item != "" || !errors.Is(err, context.Canceled) {
			t.Errorf("GetContext with a done context = %q, %v", item, err)
		}
		for item := range q.Consume(ctx) {
			t.Errorf("Consume with a done context yields %q", item)
		}
		want(t, q, "[a] [] []")
		if item, err := q.GetContext(t.Context()); item != "a" || err != nil {
			t.Errorf("GetContext = %q, %v", item, err)
		}
		q.Done("a")

		caused, cancelCause := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancelCause(errors.New("cause")) })
		for range 2 { // while it sleeps, and before
			if item, err := q.GetContext(caused); item != "" || !errors.Is(err, context.Canceled) {
				t.Errorf("GetContext = %q, %v", item, err)
			}
		}

		start := time.Now()
		ctx, cancel = context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if item, err := q.GetContext(ctx); item != "" || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("GetContext = %q, %v", item, err)
		}
		if took := time.Since(start); took != time.Hour {
			t.Errorf("GetContext took %v", took)
		}
		if q.ShuttingDown() {
			t.Error("a done context has shut the queue down")
		}
	})
}

// Of many getters that sleep, each Add wakes one who takes it: none is lost, and none is
// handed out twice.
func TestQueue_Q8_OneByOne(t *testing.T) {
	const n = 20
	eachQueue(t, func(t *testing.T, q workQueue[int]) {
		var got atomic.Int64
		for i := range n {
			go func() {
				var item int
				if i%2 == 0 {
					item, _ = q.Get()
				} else {
					item, _ = q.GetContext(t.Context())
				}
				got.Add(1)
				q.Done(item)
			}()
		}
		synctest.Wait()
		for i := range n / 2 {
			q.Add(i)
			synctest.Wait()
			if got.Load() != int64(i+1) {
				t.Fatalf("after %d Adds, %d getters have an item", i+1, got.Load())
			}
		}
		all := make([]int, n-n/2)
		for i := range all {
			all[i] = i
		}
		q.AddAll(all...)
		synctest.Wait()
		if got.Load() != n {
			t.Errorf("after all Adds, %d getters have an item", got.Load())
		}
		want(t, q, "[] [] []")
	})
}

// Who has slept longest is served first, so nobody is woken for nothing: he would have to
// sleep anew, behind all others.
func TestQueue_Q8_InTurn(t *testing.T) {
	eachKind(t, func(t *testing.T, newQueue func(Options) workQueue[int]) {
		q := newQueue(Options{})
		const n = 9
		var mu sync.Mutex
		var served []int
		var giveUp [n]context.CancelFunc
		for i := range n {
			ctx, cancel := context.WithCancel(t.Context())
			giveUp[i] = cancel
			go func() {
				if item, err := q.GetContext(ctx); err == nil {
					mu.Lock()
					served = append(served, i)
					mu.Unlock()
					q.Done(item)
				}
			}()
			synctest.Wait()
		}
		wantServed := func(want ...int) {
			t.Helper()
			synctest.Wait()
			slices.Sort(served) // those of one step may overtake each other
			if !slices.Equal(served, want) {
				t.Errorf("getters %d were served, want %d", served, want)
			}
			served = nil
		}
		q.Add(1)
		wantServed(0)
		q.AddAll(1, 2)
		wantServed(1, 2)
		giveUp[3]()
		wantServed()
		q.Add(1)
		wantServed(4)
		giveUp[5]() // at the moment when it is its turn
		q.Add(1)
		wantServed(6)
		q.AddAll(1, 2)
		wantServed(7, 8)
		for _, cancel := range giveUp {
			cancel()
		}
	})
}

// What a getter slept on serves the next one, so it must be as new, also if a wake-up came
// for somebody who was giving up. Of a herd, not everything is kept.
func TestQueue_Q8_SpareSleepers(t *testing.T) {
	eachKind(t, func(t *testing.T, newQueue func(Options) workQueue[int]) {
		q := newQueue(Options{})
		c := coreOf(q)
		check := func() {
			t.Helper()
			synctest.Wait()
			if err := checkCore(c); err != nil {
				t.Fatal(err)
			}
		}
		for range 10 {
			ctx, cancel := context.WithCancel(t.Context())
			go q.GetContext(ctx)
			synctest.Wait()
			c.mu.Lock()
			cancel()
			c.add(c.need(hashOf(1), 1), 0, 0)
			c.mu.Unlock()
			check()
			take(t, q, 1)
			q.Done(1)
		}
		var items [2 * spareSleepers]int
		for i := range items {
			items[i] = i
			go q.Get()
		}
		synctest.Wait()
		q.AddAll(items[:]...)
		check()
		if c.getters.spares != spareSleepers {
			t.Errorf("%d spare sleepers, want %d", c.getters.spares, spareSleepers)
		}
	})
}

// Getters give up at drawn moments, many of them just when an item is added. At no moment
// is an item ready while a getter sleeps.
func TestQueue_Q8_NoLostWakeUp(t *testing.T) {
	eachKind(t, func(t *testing.T, newQueue func(Options) workQueue[int]) {
		for seed := range uint64(scaled(300)) {
			rnd := rand.New(rand.NewPCG(seed, 8))
			q := newQueue(Options{})
			var sleeping, delivered atomic.Int64
			getter := func(ctx context.Context) {
				sleeping.Add(1)
				go func() {
					item, err := q.GetContext(ctx)
					sleeping.Add(-1)
					if err == nil {
						delivered.Add(1)
						q.Done(item)
					}
				}()
			}
			const steps = 20
			var cancels []context.CancelFunc
			for range 4 * steps {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rnd.IntN(steps))*time.Millisecond)
				defer cancel()
				cancels = append(cancels, cancel)
				getter(ctx)
			}
			for range 3 { // these stay, so that there is always one left
				getter(t.Context())
			}
			for i := range steps {
				q.Add(i)
				switch rnd.IntN(4) {
				case 0:
					q.TryGet() // somebody who takes it from the woken, and keeps it
				case 1:
					for _, cancel := range cancels { // the woken among them, very likely before it runs
						cancel()
					}
				}
				synctest.Wait()
				if n := q.Len(); n > 0 && sleeping.Load() > 0 {
					t.Fatalf("seed %d, step %d: %d items are ready while %d getters sleep", seed, i, n, sleeping.Load())
				}
				time.Sleep(time.Millisecond)
			}
			q.ShutDown()
			synctest.Wait()
			if n := sleeping.Load(); n != 0 {
				t.Fatalf("seed %d: %d getters sleep after ShutDown", seed, n)
			}
			if s := q.Stats(); int(delivered.Load())+s.Ready+s.Processing != steps {
				t.Fatalf("seed %d: %d delivered of %d, %+v", seed, delivered.Load(), steps, s)
			}
		}
	})
}

// W27: a cancellation is not missed between the look at the context and the sleep, and
// either the item is returned or it is still ready.
func TestQueue_Q8_CancelRacesAdd(t *testing.T) {
	eachKind(t, func(t *testing.T, newQueue func(Options) workQueue[int]) {
		q := newQueue(Options{})
		for i := range scaled(5_000) {
			ctx, cancel := context.WithCancel(t.Context())
			var all sync.WaitGroup
			all.Go(func() {
				if item, err := q.GetContext(ctx); err == nil {
					q.Done(item)
				} else if !errors.Is(err, context.Canceled) {
					t.Errorf("GetContext: %v", err)
				}
			})
			if i%2 == 0 {
				all.Go(func() { q.Add(i) })
			}
			all.Go(cancel)
			all.Wait()
			q.Cancel(i)
		}
		want(t, q, "[] [] []")
		if s := q.Stats(); s.Adds != uint64((scaled(5_000)+1)/2) {
			t.Errorf("Stats = %+v", s)
		}
	})
}

// Producers, consumers of every sort, some of them cancelled now and then, and drainers at
// the end. W76: nothing is left over.
func TestQueue_Stress(t *testing.T) {
	const keys, producers = 16, 4
	eachKind(t, func(t *testing.T, newQueue func(Options) workQueue[int]) {
		q := newQueue(Options{TrackTime: true})
		var (
			hands        [keys]sync.Mutex
			latest, seen [keys]atomic.Int64
			runs         atomic.Int64
			adding       atomic.Bool
		)
		adding.Store(true)
		work := func(item int) {
			if !hands[item].TryLock() {
				t.Errorf("Q3: item %d is in two hands", item)
				return
			}
			version := latest[item].Load()
			runtime.Gosched() // hold it for a moment
			seen[item].Store(version)
			runs.Add(1)
			hands[item].Unlock()
		}
		cancelled := func() context.Context {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			if adding.Load() {
				go cancel()
			} else {
				time.AfterFunc(time.Second, cancel) // else the bubble's clock would stand still
			}
			return ctx
		}
		var workers, adders, looker sync.WaitGroup
		workers.Go(func() {
			for {
				item, shutdown := q.Get()
				if shutdown {
					return
				}
				work(item)
				q.Done(item)
			}
		})
		workers.Go(func() {
			for {
				item, err := q.GetContext(cancelled())
				if errors.Is(err, ErrShutDown) {
					return
				}
				if err == nil {
					work(item)
					q.Done(item)
				}
			}
		})
		workers.Go(func() {
			for item := range q.Consume(t.Context()) {
				work(item)
			}
		})
		workers.Go(func() {
			for !q.ShuttingDown() || q.Len() > 0 {
				for item := range q.Consume(cancelled()) {
					work(item)
					break
				}
			}
		})
		looker.Go(func() { // W70
			for adding.Load() {
				snap, stats := q.Snapshot(), q.Stats()
				if n := len(snap.Ready) + len(snap.Processing); n > keys {
					t.Errorf("%d items of %d: %+v", n, keys, snap)
				}
				if stats.Ready+stats.Processing > keys {
					t.Errorf("Stats = %+v", stats)
				}
				slices.Sort(snap.Ready) // ours to change
				runtime.Gosched()
			}
		})
		for p := range producers {
			adders.Go(func() {
				rnd := rand.New(rand.NewPCG(uint64(p), 3))
				for range scaled(10_000) {
					item := rnd.IntN(keys)
					latest[item].Add(1)
					switch how := rnd.IntN(8); {
					case how == 0:
						q.AddWithPriority(item, rnd.IntN(5)-2)
					case how == 1:
						q.AddAll(item, item)
					case how == 2:
						if d, ok := q.(delayedQueue[int]); ok {
							d.AddAfter(item, time.Nanosecond)
						} else {
							q.Add(item)
						}
					case how == 3:
						q.Add(item)
						q.Done(-1) // stray
						q.Cancel(-1)
					default:
						q.Add(item)
					}
				}
			})
		}
		adders.Wait()
		adding.Store(false)
		looker.Wait()
		time.Sleep(time.Second) // for the delays
		var drainers sync.WaitGroup
		for range 3 {
			drainers.Go(q.ShutDownWithDrain)
		}
		drainers.Wait()
		workers.Wait()
		for i := range keys {
			if seen[i].Load() != latest[i].Load() {
				t.Errorf("item %d was not processed after its last Add", i)
			}
		}
		want(t, q, "[] [] []")
		if s := q.Stats(); s.Adds != uint64(runs.Load()) || s.UnfinishedWork != 0 {
			t.Errorf("%d runs, Stats = %+v", runs.Load(), s)
		}
	})
}

// Drains begin while producers, workers and cancelled getters are at it.
func TestQueue_StressDrainMidway(t *testing.T) {
	eachKind(t, func(t *testing.T, newQueue func(Options) workQueue[int]) {
		for round := range scaled(300) {
			q := newQueue(Options{})
			var all sync.WaitGroup
			for p := range 2 {
				all.Go(func() {
					for i := 0; !q.ShuttingDown(); i++ {
						q.Add(i % 5)
						q.AddWithPriority(i%7, p)
						runtime.Gosched()
					}
				})
				all.Go(func() {
					for item := range q.Consume(t.Context()) {
						runtime.Gosched()
						if item == 3 {
							q.Add(item) // dirty
						}
					}
				})
				all.Go(func() {
					for range round % 20 {
						runtime.Gosched()
					}
					if err := q.Drain(t.Context()); err != nil {
						t.Errorf("Drain: %v", err)
					}
				})
			}
			all.Wait()
			want(t, q, "[] [] []")
		}
	})
}

// heapInUse returns the bytes of live objects.
func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestQueue_Q9_EntriesMove leaves a few of many items in each state, so that their entries
// move together, and looks whether each is still what it was.
func TestQueue_Q9_EntriesMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewDelayingQueue[int](Options{TrackTime: true})
		const n, every = 20_000, 500
		kind := func(i int) int { return i / every % 5 }
		for i := range n {
			time.Sleep(time.Microsecond) // each has its own age
			q.AddWithPriority(i, 9)
			q.TryGet()
			switch kind(i) {
			case 1, 2: // processing; and dirty
				if kind(i) == 2 {
					q.AddWithPriority(i, i)
				}
				continue
			case 3: // waiting
				q.AddAfterWithPriority(i, time.Duration(n-i)*time.Second, i)
			case 4: // ready
				q.Done(i)
				q.AddWithPriority(i, i%3)
				continue
			}
			q.Done(i)
		}
		time.Sleep(time.Millisecond)
		survives := func(i int) bool { return i%every == 7 && kind(i) != 0 }
		for i := range n {
			if !survives(i) {
				q.Cancel(i)
				if kind(i) == 1 || kind(i) == 2 {
					q.Done(i)
				}
			}
		}
		if err := checkCore(&q.core); err != nil {
			t.Fatal(err)
		}
		if int(q.entries.used) > slotsKeep {
			t.Errorf("%d items keep %d slots", q.entries.n, q.entries.used)
		}

		age := func(i int) time.Duration { return time.Duration(n-1-i)*time.Microsecond + time.Millisecond }
		var want Snapshot[int]
		for p := 2; p >= 0; p-- {
			for i := range n {
				if survives(i) && kind(i) == 4 && i%3 == p {
					want.Ready = append(want.Ready, i)
				}
			}
		}
		var dirtied, waiting []int
		for i := range n {
			switch {
			case !survives(i):
			case kind(i) == 2:
				dirtied = append(dirtied, i)
				fallthrough
			case kind(i) == 1:
				want.Processing = append(want.Processing, Processing[int]{i, age(i)})
			case kind(i) == 3:
				waiting = append(waiting, i)
				want.Waiting = append([]Waiting[int]{{i, time.Duration(n-i)*time.Second - age(i)}}, want.Waiting...)
			}
		}
		if diff := cmp.Diff(want, q.Snapshot()); diff != "" {
			t.Errorf("Snapshot (-want +got):\n%s", diff)
		}
		for _, p := range want.Processing {
			q.Done(p.Item)
		}
		time.Sleep(n * time.Second)
		synctest.Wait()
		byPriority := slices.Sorted(slices.Values(append(dirtied, waiting...)))
		for _, item := range slices.Backward(byPriority) {
			if got, priority, _ := q.GetWithPriority(); got != item || priority != item {
				t.Errorf("GetWithPriority = %d, %d, want %d", got, priority, item)
			}
		}
	})
}

func TestQueue_Q9_MemoryOfABurst(t *testing.T) {
	million, n := scaled(1_000_000), scaled(200_000)
	passAll := func(t *testing.T, q workQueue[int], n int) {
		for range n {
			item, ok := q.TryGet()
			if !ok {
				t.Fatal("nothing ready")
			}
			q.Done(item)
		}
	}
	const left = 3 // mostly empty will do
	for _, burst := range []struct {
		name string
		n    int
		pass func(*testing.T, workQueue[int], int)
	}{
		{"ready", million, func(t *testing.T, q workQueue[int], n int) {
			for i := range n {
				q.Add(i)
			}
			passAll(t, q, n)
		}},
		{"AddAll", n, func(t *testing.T, q workQueue[int], n int) {
			items := make([]int, n)
			for i := range items {
				items[i] = i
			}
			q.AddAll(items...)
			passAll(t, q, n)
		}},
		{"processing", n, func(t *testing.T, q workQueue[int], n int) {
			for i := range n {
				q.Add(i)
				q.TryGet()
			}
			for i := range n {
				q.Done(i)
			}
		}},
		{"cancelled", n, func(t *testing.T, q workQueue[int], n int) {
			for i := range n {
				q.Add(i)
			}
			for i := range n {
				q.Cancel(i)
			}
		}},
		{"priorities", n, func(t *testing.T, q workQueue[int], n int) {
			for i := range n {
				q.AddWithPriority(i, i-n/2)
			}
			passAll(t, q, n)
		}},
		{"raised", n, func(t *testing.T, q workQueue[int], n int) {
			for i := range n {
				q.AddWithPriority(0, i)
			}
			q.Cancel(0)
		}},
		{"waiting, due", million, func(t *testing.T, q workQueue[int], n int) {
			later(t, q, n)
			time.Sleep(2 * time.Hour)
			synctest.Wait()
			passAll(t, q, n)
		}},
		{"waiting, cancelled", n, func(t *testing.T, q workQueue[int], n int) {
			later(t, q, n)
			for i := range n {
				q.Cancel(i)
			}
		}},
		{"waiting, dropped", n, func(t *testing.T, q workQueue[int], n int) {
			later(t, q, n)
			q.ShutDown()
		}},
	} {
		t.Run(burst.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := NewDelayingQueue[int](Options{})
				for i := range left {
					q.Add(-1 - i)
					take(t, q, -1-i)
				}
				before := heapInUse()
				burst.pass(t, q, burst.n)
				if stays := heapInUse() - before; stays >= 1<<20 {
					t.Errorf("Q9: %d bytes stay after %d items", stays, burst.n)
				}
				if s := q.Stats(); s.Ready != 0 || s.Processing != left || s.Waiting != 0 {
					t.Errorf("Stats = %+v", s)
				}
				runtime.KeepAlive(q)
			})
		})
	}
}

// later makes n items wait for an hour and more.
func later(t *testing.T, q workQueue[int], n int) {
	t.Helper()
	d := q.(delayedQueue[int])
	for i := range n {
		d.AddAfter(i, time.Hour+time.Duration(i%1000)*time.Second)
	}
	if d.Waiting() != n {
		t.Fatalf("Waiting = %d, want %d", d.Waiting(), n)
	}
}

// object is a key that is told apart by its address.
type object struct {
	self *object
	_    [6]uint64
}

// newObjects returns n objects. A function of its own, so that no variable of the caller's
// keeps them alive.
func newObjects(n int) []*object {
	all := make([]*object, n)
	for i := range all {
		all[i] = new(object)
		all[i].self = all[i]
	}
	return all
}

// W86
func TestQueue_Q9_PoppedItemsAreFreed(t *testing.T) {
	for _, way := range []struct {
		name string
		pass func(q delayedQueue[*object], all []*object)
	}{
		{"Done", func(q delayedQueue[*object], all []*object) {
			q.AddAll(all...)
			for range all {
				item, _ := q.Get()
				q.Done(item)
			}
		}},
		{"Done, handed out together", func(q delayedQueue[*object], all []*object) {
			for i, item := range all {
				q.AddWithPriority(item, i%3)
				q.Get()
			}
			for _, item := range all {
				q.Add(item)
				q.Done(item)
			}
			for item := range q.Consume(context.Background()) {
				_ = item
				if q.Len() == 0 {
					break
				}
			}
		}},
		{"Cancel", func(q delayedQueue[*object], all []*object) {
			for i, item := range all {
				q.AddWithPriority(item, i%3)
				q.Cancel(item)
			}
			q.AddAll(all...)
			for _, item := range all {
				q.Cancel(item)
			}
		}},
		{"Cancel while waiting", func(q delayedQueue[*object], all []*object) {
			for _, item := range all {
				q.AddAfter(item, time.Hour)
			}
			for _, item := range all {
				q.Cancel(item)
			}
		}},
		{"due and Done", func(q delayedQueue[*object], all []*object) {
			for _, item := range all {
				q.AddAfter(item, time.Hour)
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			for range all {
				item, _ := q.Get()
				q.Done(item)
			}
		}},
		{"ShutDown", func(q delayedQueue[*object], all []*object) {
			for i, item := range all {
				q.AddAfter(item, time.Duration(i)*time.Hour+1)
			}
			q.ShutDown()
		}},
		{"ShutDown with backlog", func(q delayedQueue[*object], all []*object) {
			q.AddAll(all...)
			for _, item := range all {
				q.AddAfter(item, time.Hour)
			}
			q.ShutDown()
			for item := range q.Consume(context.Background()) {
				_ = item
			}
		}},
		{"stray", func(q delayedQueue[*object], all []*object) {
			for _, item := range all {
				q.Done(item)
				q.Cancel(item)
				q.Reschedule(item, time.Hour)
				q.Cancel(item)
			}
		}},
	} {
		t.Run(way.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := NewDelayingQueue[*object](Options{TrackTime: true})
				one := newObjects(1)[0] // in processing all the time
				q.Add(one)
				q.Get()
				freed := func() []weak.Pointer[object] {
					all := newObjects(50)
					way.pass(q, all)
					var refs []weak.Pointer[object]
					for _, o := range all {
						refs = append(refs, weak.Make(o))
					}
					return refs
				}()
				runtime.GC()
				runtime.GC()
				alive := 0
				for _, ref := range freed {
					if ref.Value() != nil {
						alive++
					}
				}
				if alive > 0 {
					t.Errorf("Q9: %d of %d popped items are kept alive", alive, len(freed))
				}
				want(t, q, fmt.Sprintf("[] [%p] []", one))
			})
		})
	}
}

// Priorities and ages take no memory in a queue that has none.
func TestQueue_Q9_ColumnsOnDemand(t *testing.T) {
	eachKind(t, func(t *testing.T, newQueue func(Options) workQueue[string]) {
		use := func(q workQueue[string]) *core[string, struct{}] {
			q.AddAll("a", "b", "c")
			q.Get()
			q.Add("a")
			q.Done("a")
			if q, ok := q.(delayedQueue[string]); ok {
				q.AddAfter("d", time.Second)
				q.AddAfter("d", time.Millisecond)
				time.Sleep(time.Minute)
				q.AddAfter("e", time.Second)
				q.Reschedule("b", time.Second)
			}
			q.Cancel("c")
			return coreOf(q)
		}
		if c := use(newQueue(Options{})); c.ranks != nil || c.since != nil {
			t.Errorf("ranks: %v, since: %v, want none", c.ranks, c.since)
		}
		if c := use(newQueue(Options{TrackTime: true})); c.ranks != nil || c.since == nil {
			t.Errorf("tracking time: ranks: %v, since: %v, want the latter", c.ranks, c.since)
		}
		q := newQueue(Options{})
		q.AddWithPriority("p", 1)
		if c := use(q); c.ranks == nil || c.since != nil {
			t.Errorf("with a priority: ranks: %v, since: %v, want the former", c.ranks, c.since)
		}
	})
}

// W34, W88: in the steady state nothing is allocated.
func TestQueue_Q9_SteadyStateAllocatesNothing(t *testing.T) {
	type steady struct {
		name string
		do   func(q delayedQueue[string], items []string, i int)
	}
	cycle := func(q delayedQueue[string]) {
		item, _ := q.Get()
		q.Done(item)
	}
	// Many priorities in the past must not make those of today dear.
	manyPriorities := func(q delayedQueue[string]) {
		for i := range 1000 {
			q.AddWithPriority(fmt.Sprint("many", i), 1000+i)
		}
		for q.Len() > 0 {
			cycle(q)
		}
	}
	for _, tt := range []steady{
		{"Add Get Done", func(q delayedQueue[string], items []string, i int) { q.Add(items[i]); cycle(q) }},
		{"Add GetContext Done", func(q delayedQueue[string], items []string, i int) {
			q.Add(items[i])
			item, _ := q.GetContext(context.Background())
			q.Done(item)
		}},
		{"Add while processing", func(q delayedQueue[string], items []string, i int) {
			q.Add(items[i])
			q.Get()
			q.Add(items[i])
			q.Done(items[i])
			cycle(q)
		}},
		{"duplicate Add", func(q delayedQueue[string], items []string, i int) {
			q.Add(items[i])
			q.Add(items[i])
			q.AddWithPriority(items[i], -1)
			cycle(q)
		}},
		{"stray Done, empty Cancel", func(q delayedQueue[string], items []string, i int) {
			q.Done(items[i])
			q.Cancel(items[i])
		}},
		{"Add Cancel", func(q delayedQueue[string], items []string, i int) { q.Add(items[i]); q.Cancel(items[i]) }},
		{"AddAll", func(q delayedQueue[string], items []string, i int) {
			q.AddAll(items...)
			for range items {
				cycle(q)
			}
		}},
		{"ten priorities", func(q delayedQueue[string], items []string, i int) {
			q.AddWithPriority(items[i], i%10-5)
			cycle(q)
		}},
		{"ten priorities at once", func(q delayedQueue[string], items []string, i int) {
			for i, item := range items[:10] {
				q.AddWithPriority(item, i-5)
			}
			for range 10 {
				cycle(q)
			}
		}},
		{"raise", func(q delayedQueue[string], items []string, i int) {
			for p := range 10 {
				q.AddWithPriority(items[i], p)
			}
			cycle(q)
		}},
		{"AddAfter Cancel", func(q delayedQueue[string], items []string, i int) {
			q.AddAfter(items[i], time.Hour)
			q.Cancel(items[i])
		}},
		{"AddAfter Add", func(q delayedQueue[string], items []string, i int) {
			q.AddAfter(items[i], time.Hour)
			q.Add(items[i])
			cycle(q)
		}},
		{"AddAfter again", func(q delayedQueue[string], items []string, i int) {
			q.AddAfter(items[0], time.Hour)
			q.AddAfter(items[0], time.Hour-time.Duration(i)) // sooner each time
			q.AddAfterWithPriority(items[0], time.Hour, i)
			q.AddAfter(items[i], time.Hour)
		}},
		{"AddAfter near beside far", func(q delayedQueue[string], items []string, i int) {
			q.AddAfter(items[0], time.Hour)
			q.AddAfter(items[1], time.Hour/2-time.Duration(i))
		}},
		{"Reschedule", func(q delayedQueue[string], items []string, i int) {
			q.Reschedule(items[i], time.Hour)
		}},
		{"Len Stats", func(q delayedQueue[string], items []string, i int) {
			q.Add(items[i])
			if q.Len() != 1 || q.Stats().Ready != 1 || q.Waiting() != 0 {
				panic("wrong count")
			}
			cycle(q)
		}},
	} {
		for _, with := range []struct {
			name   string
			opts   Options
			before func(delayedQueue[string])
		}{
			{"plain", Options{}, nil},
			{"metrics", Options{Metrics: Metrics{Waited: func(time.Duration) {}, Worked: func(time.Duration) {}}}, nil},
			{"after many priorities", Options{}, manyPriorities},
		} {
			t.Run(tt.name+"/"+with.name, func(t *testing.T) {
				items := make([]string, 20)
				for i := range items {
					items[i] = fmt.Sprint("item ", i)
				}
				q := NewDelayingQueue[string](with.opts)
				defer q.ShutDown() // stops its timer
				if with.before != nil {
					with.before(q)
				}
				i := 0
				step := func() {
					tt.do(q, items, i)
					i = (i + 1) % len(items)
				}
				for range 3 * len(items) {
					step()
				}
				if n := testing.AllocsPerRun(10*len(items), step); n != 0 {
					t.Errorf("Q9: %v allocations", n)
				}
			})
		}
	}
}

// What sleeps and wakes allocates nothing either, once the getters are there.
func TestQueue_Q9_SleepAllocatesNothing(t *testing.T) {
	q := NewQueue[int](Options{})
	done := make(chan bool)
	go func() {
		for range q.Consume(context.Background()) {
			done <- true
		}
		close(done)
	}()
	if n := testing.AllocsPerRun(200, func() { q.Add(1); <-done }); n != 0 {
		t.Errorf("Q9: %v allocations", n)
	}
	q.ShutDown()
	<-done
}

// W17, W83: no constructor and no option starts a goroutine.
func TestQueue_NoGoroutines(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 1000 {
		for _, k := range kinds[int]() {
			for _, opts := range []Options{
				{},
				{TrackTime: true, Metrics: Metrics{Waited: func(time.Duration) {}}},
			} {
				q := k.make(opts)
				q.Add(1)
				if q, ok := q.(delayedQueue[int]); ok {
					q.AddAfter(2, time.Hour)
				}
				q.Get()
			}
		}
	}
	if after := runtime.NumGoroutine(); after > before {
		t.Errorf("%d goroutines, %d before", after, before)
	}
}

// W09, W10
func TestQueue_Q10_BadItems(t *testing.T) {
	type withFloat struct {
		Name string
		F    float64
	}
	type withAny struct{ V any }
	nan := math.NaN()
	badItem(t, "NaN", 1.5, 2.5, nan)
	badItem(t, "NaN of 32 bits", 1.5, 2.5, float32(nan))
	badItem(t, "complex NaN", 1i, 2i, complex(0, nan))
	badItem(t, "NaN in a struct", withFloat{"a", 1}, withFloat{"a", 2}, withFloat{"a", nan})
	badItem(t, "NaN in an array", [2]float64{1}, [2]float64{2}, [2]float64{0, nan})
	badItem[any](t, "NaN in an interface", 1.5, "a", nan)
	badItem(t, "NaN in an interface in a struct", withAny{1}, withAny{"a"}, withAny{nan})
	badItem[any](t, "struct with NaN in an interface", 1, nil, withFloat{"a", nan})
	badItem[any](t, "slice", 1, "a", []int{1}) // W09
	badItem[any](t, "nil slice", 1, "a", []int(nil))
	badItem[any](t, "map", 1, "a", map[int]int{})
	badItem[any](t, "func", 1, "a", func() {})
	badItem[any](t, "slice in an array in an interface", 1, "a", [1][]int{})
	badItem(t, "map in a struct", withAny{1}, withAny{nil}, withAny{map[int]int{}})
	badItem(t, "slice in an array", [2]any{1}, [2]any{2}, [2]any{1, []int{}})
	badItem[fmt.Stringer](t, "slice with methods", time.Second, time.Minute, stringers{})
}

type stringers []int

func (stringers) String() string { return "stringers" }

// badItem passes bad to every method of every kind of queue that takes an item, in every
// state of the queue.
func badItem[T comparable](t *testing.T, name string, good, other, bad T) {
	// What each method does with bad must not depend on what is in the queue.
	states := []struct {
		name    string
		prepare func(workQueue[T])
	}{
		{"empty", func(workQueue[T]) {}},
		{"filled", func(q workQueue[T]) {
			q.Add(good)
			q.Get()
			q.Add(good)
			q.Add(other)
			if q, ok := q.(delayedQueue[T]); ok {
				q.AddAfter(other, time.Hour)
			}
		}},
		{"held", func(q workQueue[T]) {
			q.Add(good)
			q.Get()
		}},
		{"shut down", func(q workQueue[T]) {
			q.Add(good)
			q.ShutDown()
		}},
	}
	calls := map[string]func(workQueue[T]){
		"Add":             func(q workQueue[T]) { q.Add(bad) },
		"AddAll":          func(q workQueue[T]) { q.AddAll(bad) },
		"AddAll, first":   func(q workQueue[T]) { q.AddAll(bad, good, other) },
		"AddAll, last":    func(q workQueue[T]) { q.AddAll(good, other, bad) },
		"AddWithPriority": func(q workQueue[T]) { q.AddWithPriority(bad, 3) },
		"Done":            func(q workQueue[T]) { q.Done(bad) },
		"Cancel":          func(q workQueue[T]) { q.Cancel(bad) },
	}
	for _, delay := range []time.Duration{-1, 0, time.Second} {
		calls[fmt.Sprint("AddAfter ", delay)] = func(q workQueue[T]) { q.(delayedQueue[T]).AddAfter(bad, delay) }
		calls[fmt.Sprint("AddAfterWithPriority ", delay)] = func(q workQueue[T]) { q.(delayedQueue[T]).AddAfterWithPriority(bad, delay, 3) }
		calls[fmt.Sprint("Reschedule ", delay)] = func(q workQueue[T]) { q.(delayedQueue[T]).Reschedule(bad, delay) }
	}
	calls["AddRateLimited"] = func(q workQueue[T]) { q.(*RateLimitingQueue[T]).AddRateLimited(bad) }
	calls["AddRateLimitedWithPriority"] = func(q workQueue[T]) { q.(*RateLimitingQueue[T]).AddRateLimitedWithPriority(bad, 3) }
	calls["Forget"] = func(q workQueue[T]) { q.(*RateLimitingQueue[T]).Forget(bad) }
	calls["NumRequeues"] = func(q workQueue[T]) { q.(*RateLimitingQueue[T]).NumRequeues(bad) }

	t.Run(name, func(t *testing.T) {
		eachKind(t, func(t *testing.T, newQueue func(Options) workQueue[T]) {
			called := 0
			opts := Options{Metrics: Metrics{Worked: func(time.Duration) { called++ }}}
			for _, state := range states {
				for call, f := range calls {
					q := newQueue(opts)
					_, delayed := q.(delayedQueue[T])
					_, limited := q.(*RateLimitingQueue[T])
					if strings.Contains(call, " ") && !strings.HasPrefix(call, "AddAll") && !delayed ||
						strings.Contains(call, "RateLimited") && !limited ||
						(call == "Forget" || call == "NumRequeues") && !limited {
						continue
					}
					what := state.name + ", " + call
					state.prepare(q)
					stats, snap := q.Stats(), q.Snapshot()
					wantPanic(t, what, func() { f(q) })
					if mu := lockOf(q); !mu.TryLock() {
						t.Fatalf("%s: the lock is held after the panic", what)
					} else {
						mu.Unlock()
					}
					if after := q.Stats(); after != stats {
						t.Errorf("%s: Stats were %+v and are %+v", what, stats, after)
					}
					if after := q.Snapshot(); !reflect.DeepEqual(after, snap) {
						t.Errorf("%s: Snapshot was %+v and is %+v", what, snap, after)
					}
					if called != 0 {
						t.Fatalf("%s: metrics were called", what)
					}
					if state.name == "empty" { // it is still of use
						q.Add(good)
						take(t, q, good)
						q.Done(good)
						q.ShutDownWithDrain()
						called = 0
					}
				}
			}
		})
	})
}

// What is equal is one item, and what is not is two, as for a Go map.
func TestQueue_Q10_GoodItems(t *testing.T) {
	type pair struct{ A, B any }
	negativeZero := math.Copysign(0, -1)
	same := []struct{ a, b any }{
		{nil, nil},
		{0.0, negativeZero},
		{pair{1, 0.0}, pair{1, negativeZero}},
		{[2]any{nil, "x"}, [2]any{nil, string([]byte{'x'})}},
		{math.Inf(1), math.Inf(1)},
		{(*int)(nil), (*int)(nil)},
	}
	different := []struct{ a, b any }{
		{nil, 0},
		{1, int64(1)},
		{(*int)(nil), (*string)(nil)},
		{nil, (*int)(nil)},
		{pair{1, nil}, pair{nil, 1}},
		{"a", [1]string{"a"}},
	}
	eachQueue(t, func(t *testing.T, q workQueue[any]) {
		for _, p := range same {
			q.Add(p.a)
			q.Add(p.b)
			if n := q.Len(); n != 1 {
				t.Errorf("%#v and %#v are %d items", p.a, p.b, n)
			}
			q.Get()
			q.Done(p.b)
			if s := q.Stats(); s.Processing != 0 || s.StrayDones != 0 {
				t.Errorf("Done of %#v does not end %#v: %+v", p.b, p.a, s)
			}
		}
		for _, p := range different {
			q.AddAll(p.a, p.b)
			if n := q.Len(); n != 2 {
				t.Errorf("%#v and %#v are %d items", p.a, p.b, n)
			}
			take(t, q, p.a)
			take(t, q, p.b)
			q.Done(p.a)
			q.Done(p.b)
		}
		want(t, q, "[] [] []")
	})
	eachQueue(t, func(t *testing.T, q workQueue[struct{}]) { // there is but one
		q.AddAll(struct{}{}, struct{}{})
		want(t, q, "[{}] [] []")
		take(t, q, struct{}{})
		q.Done(struct{}{})
		want(t, q, "[] [] []")
	})
}

// What the first call finds out of a type spares most of the others the comparison, and all
// of them the reflection.
func TestFitness_Q10_Verdict(t *testing.T) {
	type word struct{ _, _ string }
	type number struct {
		_ string
		_ float64
	}
	verdictOnType(t, "a", allFit)
	verdictOnType(t, word{}, allFit)
	verdictOnType(t, [2]word{}, allFit)
	verdictOnType(t, &number{}, allFit)
	verdictOnType(t, 1.5, someFit)
	verdictOnType(t, number{}, someFit)
	verdictOnType(t, [2]number{}, someFit)
	verdictOnType[any](t, "a", someFit)
}

func verdictOnType[K comparable](t *testing.T, key K, want uint32) {
	t.Helper()
	var f fitness[K]
	if err := f.fault(key); err != nil || f.verdict.Load() != want {
		t.Errorf("the verdict on %T is %d, want %d; %v", key, f.verdict.Load(), want, err)
	}
	if n := testing.AllocsPerRun(100, func() { f.must(key) }); n != 0 {
		t.Errorf("a look at a %T allocates %v times", key, n)
	}
}

func TestQueue_NilContextPanics(t *testing.T) {
	eachQueue(t, func(t *testing.T, q workQueue[string]) {
		q.Add("a")
		var none context.Context
		wantPanic(t, "GetContext", func() { _, _ = q.GetContext(none) })
		wantPanic(t, "Consume", func() { q.Consume(none) })
		wantPanic(t, "Drain", func() { _ = q.Drain(none) })
		if q.ShuttingDown() {
			t.Error("Drain has shut the queue down before it panicked")
		}
		want(t, q, "[a] [] []")
		wantStats(t, q, Stats{Ready: 1, Adds: 1})
	})
}

// W49: a burst of Adds is there at once. That every other call is visible when it returns
// is what each use of want checks.
func TestQueue_Q11_AcceptedIsVisible(t *testing.T) {
	eachQueue(t, func(t *testing.T, q workQueue[int]) {
		for i := range 5000 {
			q.Add(i)
			if n := q.Len(); n != i+1 {
				t.Fatalf("after %d Adds Len = %d", i+1, n)
			}
		}
		if n := len(q.Snapshot().Ready); n != 5000 {
			t.Errorf("Snapshot has %d", n)
		}
		wantStats(t, q, Stats{Ready: 5000, Adds: 5000})
	})
}

// W32
func TestQueue_Q12_Cancel(t *testing.T) {
	eachQueue(t, func(t *testing.T, q workQueue[string]) {
		cancel := func(item string, want bool) {
			t.Helper()
			if got := q.Cancel(item); got != want {
				t.Errorf("Cancel(%q) = %v", item, got)
			}
		}
		cancel("a", false) // nothing there
		q.AddAll("a", "b", "c")
		cancel("x", false)
		cancel("b", true) // ready
		cancel("b", false)
		want(t, q, "[a c] [] []")
		take(t, q, "a")
		cancel("a", false) // processing
		want(t, q, "[c] [a] []")
		q.AddWithPriority("a", 5)
		cancel("a", true) // dirty
		cancel("a", false)
		want(t, q, "[c] [a] []")
		q.Done("a")
		want(t, q, "[c] [] []")

		// What has been taken back leaves no trace: neither place nor priority.
		q.AddWithPriority("b", 5)
		cancel("b", true)
		q.Add("b")
		want(t, q, "[c b] [] []")
		cancel("c", true)
		q.Add("c")
		want(t, q, "[b c] [] []")
		take(t, q, "b")
		q.AddWithPriority("b", 5)
		cancel("b", true)
		q.Add("b")
		q.Done("b")
		wantOrder(t, q, "c:0 b:0")
		wantStats(t, q, Stats{Adds: 9})

		q.Add("a")
		q.ShutDown()
		cancel("a", true) // after ShutDown too
		want(t, q, "[] [] []")
	})
}

// Cancel takes one of the middle of each priority.
func TestQueue_Q12_CancelAnywhere(t *testing.T) {
	eachKind(t, func(t *testing.T, newQueue func(Options) workQueue[int]) {
		for victim := range 9 {
			q := newQueue(Options{})
			for i := range 9 {
				q.AddWithPriority(i, i%3)
			}
			if !q.Cancel(victim) {
				t.Errorf("Cancel(%d) = false", victim)
			}
			left := slices.DeleteFunc([]int{2, 5, 8, 1, 4, 7, 0, 3, 6}, func(i int) bool { return i == victim })
			want(t, q, fmt.Sprint(left, []int{}, []int{}))
		}
	})
}

func TestQueue_Stats(t *testing.T) {
	eachQueue(t, func(t *testing.T, q workQueue[string]) {
		var w Stats
		for _, step := range []struct {
			name string
			do   func()
			then func()
		}{
			{"nothing", func() {}, func() {}},
			{"Add", func() { q.Add("a") }, func() { w.Ready++; w.Adds++ }},
			{"Add again", func() { q.Add("a") }, func() { w.Merged++ }},
			{"lower priority", func() { q.AddWithPriority("a", -1) }, func() { w.Merged++ }},
			{"higher priority", func() { q.AddWithPriority("a", 1) }, func() {}}, // changes something, but is no new run
			{"AddAll", func() { q.AddAll("b", "a", "b") }, func() { w.Ready++; w.Adds++; w.Merged += 2 }},
			{"AddAll of nothing", func() { q.AddAll() }, func() {}},
			{"Get", func() { take(t, q, "a") }, func() { w.Ready--; w.Processing++ }},
			{"Add while processing", func() { q.Add("a") }, func() { w.Adds++ }},
			{"Add while dirty", func() { q.Add("a") }, func() { w.Merged++ }},
			{"higher priority while dirty", func() { q.AddWithPriority("a", 2) }, func() {}},
			{"Done while dirty", func() { q.Done("a") }, func() { w.Ready++; w.Processing-- }},
			{"stray Done", func() { q.Done("a") }, func() { w.StrayDones++ }},
			{"Cancel", func() { q.Cancel("b") }, func() { w.Ready-- }},
			{"Cancel of nothing", func() { q.Cancel("b") }, func() {}},
			{"TryGet", func() { take(t, q, "a") }, func() { w.Ready--; w.Processing++ }},
			{"TryGet of nothing", func() { q.TryGet() }, func() {}},
			{"looking", func() { q.Snapshot(); q.Len(); q.Stats(); q.ShuttingDown() }, func() {}},
			{"ShutDown", func() { q.ShutDown() }, func() {}},
			{"Add after ShutDown", func() { q.Add("c"); q.Add("a"); q.AddAll("d") }, func() {}},
			{"Done", func() { q.Done("a") }, func() { w.Processing-- }}, // W84
			{"stray Done after ShutDown", func() { q.Done("a") }, func() { w.StrayDones++ }},
		} {
			step.do()
			step.then()
			if diff := cmp.Diff(w, q.Stats()); diff != "" {
				t.Errorf("after %s (-want +got):\n%s", step.name, diff)
			}
		}
	})
}

// A queue that does not track time knows no ages. (A bubble's clock is behind the process's epoch,
// so that it could not tell.)
func TestQueue_SnapshotWithoutAges(t *testing.T) {
	q := NewQueue[string](Options{})
	q.Add("a")
	q.Get()
	if got := q.Snapshot().Processing; !slices.Equal(got, []Processing[string]{{"a", 0}}) {
		t.Errorf("Processing = %v, want a for 0s", got)
	}
}

// What is handed out after the time was read has been in processing for nothing, not for less.
func TestQueue_AgeOfTheYoungest(t *testing.T) {
	q := NewQueue[string](Options{TrackTime: true})
	q.Add("a")
	q.Get()
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.entries.find(hashOf("a"), "a")
	if age := q.age(e, q.since.get(e.ref)-5); age != 0 {
		t.Errorf("age = %v, want 0s", age)
	}
}

// W70, W92
func TestQueue_Snapshot(t *testing.T) {
	eachKind(t, func(t *testing.T, newQueue func(Options) workQueue[string]) {
		q := newQueue(Options{TrackTime: true})
		if s := q.Snapshot(); len(s.Ready)+len(s.Processing)+len(s.Waiting) != 0 {
			t.Errorf("Snapshot of an empty queue = %+v", s)
		}
		q.AddAll("a", "b", "c")
		take(t, q, "a")
		time.Sleep(time.Second)
		take(t, q, "b")
		time.Sleep(time.Second)
		q.AddWithPriority("low", -1)
		q.AddWithPriority("high", 1)
		q.Add("a") // dirty: in processing only
		wantSnap := func(w Snapshot[string]) Snapshot[string] {
			t.Helper()
			s := q.Snapshot()
			if s.Waiting != nil && len(s.Waiting) == 0 {
				s.Waiting = nil
			}
			if diff := cmp.Diff(w, s); diff != "" {
				t.Errorf("Snapshot (-want +got):\n%s", diff)
			}
			return s
		}
		w := Snapshot[string]{
			Ready:      []string{"high", "c", "low"},
			Processing: []Processing[string]{{"a", 2 * time.Second}, {"b", time.Second}},
		}
		s := wantSnap(w)
		// It is detached, both ways.
		s.Ready[0], s.Processing[0].Item = "x", "x"
		s.Ready = append(s.Ready, "y")
		wantSnap(w)
		q.Done("a")
		take(t, q, "high")
		q.Cancel("low")
		if s.Ready[1] != "c" || s.Ready[2] != "low" || len(s.Processing) != 2 || s.Processing[1].Item != "b" {
			t.Errorf("a snapshot has changed: %+v", s)
		}
		wantSnap(Snapshot[string]{
			Ready:      []string{"c", "a"},
			Processing: []Processing[string]{{"b", time.Second}, {"high", 0}},
		})
		// What is handed out again is the youngest.
		q.Done("b")
		q.Add("b")
		take(t, q, "c")
		take(t, q, "a")
		take(t, q, "b")
		time.Sleep(time.Second)
		wantSnap(Snapshot[string]{
			Ready: []string{},
			Processing: []Processing[string]{
				{"high", time.Second}, {"c", time.Second}, {"a", time.Second}, {"b", time.Second},
			},
		})
	})
}

// W03, W84
func TestQueue_TrackTime(t *testing.T) {
	nothing := func(time.Duration) {}
	for _, tt := range []struct {
		name   string
		opts   Options
		tracks bool
	}{
		{"zero", Options{}, false},
		{"TrackTime", Options{TrackTime: true}, true},
		{"Waited", Options{Metrics: Metrics{Waited: nothing}}, true},
		{"Worked", Options{Metrics: Metrics{Worked: nothing}}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, newQueue func(Options) workQueue[string]) {
				q := newQueue(tt.opts)
				ages := func(longest, sum time.Duration, each ...time.Duration) {
					t.Helper()
					if !tt.tracks {
						longest, sum = 0, 0
						clear(each)
					}
					if s := q.Stats(); s.LongestProcessing != longest || s.UnfinishedWork != sum {
						t.Errorf("LongestProcessing = %v, UnfinishedWork = %v; want %v, %v", s.LongestProcessing, s.UnfinishedWork, longest, sum)
					}
					var got []time.Duration
					for _, p := range q.Snapshot().Processing {
						got = append(got, p.For)
					}
					if !slices.Equal(got, each) {
						t.Errorf("Snapshot tells ages %v, want %v", got, each)
					}
				}
				q.AddAll("a", "b")
				time.Sleep(time.Minute)
				ages(0, 0)
				take(t, q, "a")
				ages(0, 0, 0)
				time.Sleep(3 * time.Second)
				take(t, q, "b")
				time.Sleep(time.Second)
				q.Add("a") // does not make it younger
				ages(4*time.Second, 5*time.Second, 4*time.Second, time.Second)
				q.ShutDown()
				time.Sleep(time.Second)
				ages(5*time.Second, 7*time.Second, 5*time.Second, 2*time.Second)
				q.Done("a")
				ages(2*time.Second, 2*time.Second, 2*time.Second)
				take(t, q, "a")
				time.Sleep(time.Second)
				ages(3*time.Second, 4*time.Second, 3*time.Second, time.Second)
				q.Done("b")
				q.Done("a")
				time.Sleep(time.Second)
				ages(0, 0)
			})
		})
	}
}

func TestQueue_Metrics(t *testing.T) {
	eachKind(t, func(t *testing.T, newQueue func(Options) workQueue[string]) {
		var waited, worked []time.Duration
		q := newQueue(Options{Metrics: Metrics{
			Waited: func(d time.Duration) { waited = append(waited, d) },
			Worked: func(d time.Duration) { worked = append(worked, d) },
		}})
		calls := func(wantWaited, wantWorked []time.Duration) {
			t.Helper()
			if !slices.Equal(waited, wantWaited) || !slices.Equal(worked, wantWorked) {
				t.Errorf("Waited got %v, Worked got %v; want %v, %v", waited, worked, wantWaited, wantWorked)
			}
			waited, worked = nil, nil
		}
		type times = []time.Duration
		q.Add("a")
		time.Sleep(time.Second)
		q.Add("a") // has been ready all the time
		time.Sleep(time.Second)
		q.AddWithPriority("a", 3) // as before
		time.Sleep(time.Second)
		calls(nil, nil)
		take(t, q, "a")
		calls(times{3 * time.Second}, nil)
		time.Sleep(time.Minute)
		q.Add("a")
		q.Done("b") // stray
		time.Sleep(time.Minute)
		calls(nil, nil)
		q.Done("a")
		calls(nil, times{2 * time.Minute})
		time.Sleep(time.Second) // ready since Done
		take(t, q, "a")
		calls(times{time.Second}, nil)
		q.Done("a")
		calls(nil, times{0})

		q.Add("a")
		q.Cancel("a")
		q.TryGet()
		calls(nil, nil)

		// Each getter tells it.
		q.AddAll("a", "b", "c", "d", "e")
		time.Sleep(time.Second)
		take(t, q, "a")
		q.Get()
		q.GetWithPriority()
		_, _ = q.GetContext(t.Context())
		calls(times{time.Second, time.Second, time.Second, time.Second}, nil)
		for range q.Consume(t.Context()) {
			time.Sleep(time.Hour)
			break
		}
		calls(times{time.Second}, times{time.Hour})
		q.ShutDown()
		q.Done("a")
		calls(nil, times{time.Hour})

		// A getter that sleeps gets it at once.
		q = newQueue(Options{Metrics: Metrics{Waited: func(d time.Duration) { waited = append(waited, d) }}})
		got := background(func() { q.Get() })
		time.Sleep(time.Second)
		q.Add("a")
		if !got() {
			t.Fatal("Get still sleeps")
		}
		calls(times{0}, nil)
	})
}

// One of the two may be missing. W74, W82: each queue tells its own, with no name asked for.
func TestQueue_MetricsNilFields(t *testing.T) {
	eachKind(t, func(t *testing.T, newQueue func(Options) workQueue[string]) {
		var first, second int
		waited := newQueue(Options{Metrics: Metrics{Waited: func(time.Duration) { first++ }}})
		worked := newQueue(Options{Metrics: Metrics{Worked: func(time.Duration) { second++ }}})
		neither := newQueue(Options{TrackTime: true})
		for _, q := range []workQueue[string]{waited, worked, worked, neither} {
			q.Add("a")
			take(t, q, "a")
			q.Done("a")
		}
		if first != 1 || second != 2 {
			t.Errorf("Waited was called %d times, Worked %d times", first, second)
		}
	})
}

// The functions run with no lock held, and may call the queue.
func TestQueue_MetricsMayCallTheQueue(t *testing.T) {
	eachKind(t, func(t *testing.T, newQueue func(Options) workQueue[int]) {
		var q workQueue[int]
		calls, next := 0, 100
		hook := func(time.Duration) {
			if !lockOf(q).TryLock() {
				t.Error("the lock is held")
				return // what follows would hang
			}
			lockOf(q).Unlock()
			calls++
			q.Add(next)
			q.AddAll(next+1, next+2)
			q.Cancel(next)
			q.Len()
			q.Stats()
			q.Snapshot()
			q.Done(-1)
			next += 3
		}
		q = newQueue(Options{Metrics: Metrics{Waited: hook, Worked: hook}})
		q.AddAll(1, 2, 3, 4, 5)
		take(t, q, 1)
		q.Get()
		q.GetWithPriority()
		_, _ = q.GetContext(t.Context())
		for range q.Consume(t.Context()) {
			break
		}
		for i := range 4 {
			q.Done(1 + i)
		}
		if calls != 10 {
			t.Errorf("%d calls, want 10", calls)
		}
		if s := q.Stats(); s.Ready != 20 || s.Processing != 0 || s.StrayDones != 10 {
			t.Errorf("Stats = %+v", s)
		}
		// Also when they shut it down.
		down := func(time.Duration) { q.ShutDown() }
		q = newQueue(Options{Metrics: Metrics{Waited: down}})
		q.AddAll(1, 2)
		n := 0
		for range q.Consume(t.Context()) {
			n++
		}
		if n != 2 {
			t.Errorf("%d items, want 2", n)
		}
	})
}

// W05 and its relatives: however the body ends, its item is done.
func TestQueue_Consume_Done(t *testing.T) {
	boom := errors.New("boom")
	for _, tt := range []struct {
		name  string
		body  func(q workQueue[string])
		panic any
		on    bool // whether the loop goes on
	}{
		{"end of body", func(workQueue[string]) {}, nil, true},
		{"added meanwhile", func(q workQueue[string]) { q.Add("a"); q.Cancel("a") }, nil, true},
		{"panic", func(workQueue[string]) { panic(boom) }, boom, false},
		{"Goexit", func(workQueue[string]) { runtime.Goexit() }, nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachQueue(t, func(t *testing.T, q workQueue[string]) {
				q.AddAll("a", "b")
				q.ShutDown()
				var got []string
				var recovered any
				ended := make(chan bool)
				go func() {
					defer close(ended)
					defer func() { recovered = recover() }()
					for item := range q.Consume(t.Context()) {
						got = append(got, item)
						if item == "a" {
							want(t, q, "[b] [a] []")
						}
						tt.body(q)
					}
				}()
				<-ended
				if recovered != tt.panic {
					t.Errorf("recovered %v, want %v", recovered, tt.panic)
				}
				if tt.on {
					want(t, q, "[] [] []")
				} else {
					want(t, q, "[b] [] []") // the next worker's
				}
				if len(got) == 0 || got[0] != "a" || tt.on != (len(got) == 2) {
					t.Errorf("consumed %v", got)
				}
				wantStats(t, q, Stats{Ready: 2 - len(got), Adds: q.Stats().Adds})
			})
		})
	}
}

func TestQueue_Consume_Leaving(t *testing.T) {
	eachQueue(t, func(t *testing.T, q workQueue[string]) {
		q.AddAll("a", "b", "c", "d")
		items := q.Consume(t.Context()) // takes nothing by itself, and may be ranged over again
		want(t, q, "[a b c d] [] []")
		for range items {
			break
		}
		want(t, q, "[b c d] [] []")
	outer:
		for range 1 {
			for range items {
				continue outer
			}
		}
		want(t, q, "[c d] [] []")
		func() {
			for item := range items {
				if item == "c" {
					return
				}
			}
		}()
		want(t, q, "[d] [] []")
		next, stop := iter.Pull(items)
		if item, ok := next(); item != "d" || !ok {
			t.Errorf("next = %q, %v", item, ok)
		}
		want(t, q, "[] [d] []")
		stop()
		want(t, q, "[] [] []")
		wantStats(t, q, Stats{Adds: 4})
	})
}

func TestQueue_Consume_Context(t *testing.T) {
	eachQueue(t, func(t *testing.T, q workQueue[string]) {
		// Done in the body: this item is finished, the next stays.
		ctx, cancel := context.WithCancel(t.Context())
		q.AddAll("a", "b")
		n := 0
		for item := range q.Consume(ctx) {
			n++
			cancel()
			want(t, q, fmt.Sprintf("[b] [%s] []", item))
		}
		if n != 1 {
			t.Errorf("%d items, want 1", n)
		}
		want(t, q, "[b] [] []")
		q.Cancel("b")

		// Done while it sleeps.
		ctx, cancel = context.WithCancel(t.Context())
		ended := background(func() {
			for item := range q.Consume(ctx) {
				t.Errorf("consumed %q", item)
			}
		})
		if ended() {
			t.Fatal("the loop ended with nothing ready")
		}
		cancel()
		if !ended() {
			t.Fatal("the loop goes on after its context is done")
		}
		if q.ShuttingDown() {
			t.Error("a done context has shut the queue down")
		}

		// Shutdown while it sleeps, and in the body, with a backlog.
		var got []string
		ended = background(func() {
			for item := range q.Consume(t.Context()) {
				got = append(got, item)
				if item == "a" {
					q.AddAll("a", "b", "c") // also itself
					q.ShutDown()
				}
			}
		})
		q.Add("a")
		if !ended() {
			t.Fatal("the loop goes on after shutdown")
		}
		if !slices.Equal(got, []string{"a", "b", "c", "a"}) {
			t.Errorf("consumed %q", got)
		}
	})
}

// Every method may be called after ShutDown, also before first use.
func TestQueue_ZeroAndShutDown(t *testing.T) {
	calls := map[string]func(q workQueue[string]){
		"Add":             func(q workQueue[string]) { q.Add("a") },
		"AddAll":          func(q workQueue[string]) { q.AddAll("a", "b") },
		"AddAll, nothing": func(q workQueue[string]) { q.AddAll() },
		"AddWithPriority": func(q workQueue[string]) { q.AddWithPriority("a", 1) },
		"Get":             func(q workQueue[string]) { q.Get() },
		"GetWithPriority": func(q workQueue[string]) { q.GetWithPriority() },
		"GetContext":      func(q workQueue[string]) { _, _ = q.GetContext(context.Background()) },
		"TryGet":          func(q workQueue[string]) { q.TryGet() },
		"Consume":         func(q workQueue[string]) { q.Consume(context.Background())(func(string) bool { return true }) },
		"Cancel":          func(q workQueue[string]) { q.Cancel("a") },
		"Len":             func(q workQueue[string]) { q.Len() },
		"ShutDown":        workQueue[string].ShutDown,
		"Drain":           workQueue[string].ShutDownWithDrain,
		"ShuttingDown":    func(q workQueue[string]) { q.ShuttingDown() },
		"Stats":           func(q workQueue[string]) { q.Stats() },
		"Snapshot":        func(q workQueue[string]) { q.Snapshot() },
		"AddAfter": func(q workQueue[string]) {
			if q, ok := q.(delayedQueue[string]); ok {
				q.AddAfter("a", time.Second)
				q.AddAfterWithPriority("a", time.Second, 1)
				q.Waiting()
			}
		},
		"Reschedule": func(q workQueue[string]) {
			if q, ok := q.(delayedQueue[string]); ok {
				q.Reschedule("a", time.Second)
			}
		},
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			for _, k := range kinds[string]() {
				synctest.Test(t, func(t *testing.T) {
					q := k.zero()
					q.ShutDown()
					call(q) // must return
					time.Sleep(time.Hour)
					want(t, q, "[] [] []")
					wantStats(t, q, Stats{})

					if strings.HasPrefix(name, "Get") || name == "Consume" {
						return // would block
					}
					q = k.zero()
					call(q) // as the very first
					q.ShutDown()
				})
			}
		})
	}
}

// panickyContext is a context that panics once somebody would wait for it.
type panickyContext struct{ context.Context }

func (panickyContext) Done() <-chan struct{} { panic("context panics") }

// Channels of getters that slept are kept, but not many.
func TestQueue_Q9_FewSpareSleepers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue[int]
		for range spareSleepers + 2 {
			go q.Get()
		}
		synctest.Wait()
		q.ShutDown()
		synctest.Wait()
		q.mu.Lock()
		defer q.mu.Unlock()
		if err := checkCore(&q.core); err != nil || q.getters.spares != spareSleepers {
			t.Errorf("%d spare sleepers, want %d; %v", q.getters.spares, spareSleepers, err)
		}
	})
}

// moodyContext panics when it is asked for its error the second time: after the wait.
type moodyContext struct {
	context.Context
	asked *int
}

func (c moodyContext) Err() error {
	if *c.asked++; *c.asked > 1 {
		panic("context panics")
	}
	return nil
}

func TestQueue_Q8_PanickingContextSwallowsNoWakeUp(t *testing.T) {
	for name, ctx := range map[string]context.Context{
		"instead of waiting": panickyContext{context.Background()},
		"after a wake-up":    moodyContext{context.Background(), new(int)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var q Queue[string]
				panicked := background(func() {
					defer func() { _ = recover() }()
					_, _ = q.GetContext(ctx)
					t.Error("GetContext did not panic")
				})
				synctest.Wait()
				got := make(chan string, 1)
				go func() {
					item, _ := q.Get()
					got <- item
				}()
				synctest.Wait()
				q.Add("x") // who panics after his wake-up has slept longest
				if item := <-got; item != "x" || !panicked() {
					t.Errorf("Get = %q", item)
				}
			})
		})
	}
}
