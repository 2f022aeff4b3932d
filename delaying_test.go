package typedqueue

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/google/go-cmp/cmp"
)

// Whatever DESIGN says of DelayingQueue holds for RateLimitingQueue too, so each test here
// runs with both, and with their zero values, in a bubble of its own. There time is exact:
// after time.Sleep(d) and synctest.Wait, what was due until then has come due.

// eachDelayed runs f in a bubble with an empty queue of each kind that has delays.
func eachDelayed[T comparable](t *testing.T, f func(t *testing.T, q delayedQueue[T])) {
	t.Helper()
	for _, k := range kinds[T]() {
		if _, ok := k.zero().(delayedQueue[T]); !ok {
			continue
		}
		t.Run(k.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, k.make(Options{}).(delayedQueue[T])) })
		})
		t.Run("zero "+k.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, k.zero().(delayedQueue[T])) })
		})
	}
}

// pass lets d go by, and what comes due then come due.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

const ms = time.Millisecond

// wantDueIn fails the test unless q's next item comes due in exactly d, and is item.
func wantDueIn(t *testing.T, q delayedQueue[string], d time.Duration, item string) {
	t.Helper()
	n := q.Len()
	pass(d - 1)
	if q.Len() != n {
		t.Errorf("T4: an item came due too early: %v", q.Snapshot().Ready)
	}
	pass(1)
	if r := q.Snapshot().Ready; len(r) != n+1 || r[n] != item {
		t.Errorf("T4: after %v ready is %q, want %q at the end", d, r, item)
	}
}

// W41
func TestDelayingQueue_T1_NoDelayIsAdd(t *testing.T) {
	for _, delay := range []time.Duration{0, -1, -time.Hour, math.MinInt64} {
		t.Run(fmt.Sprint(int64(delay)), func(t *testing.T) {
			eachDelayed(t, func(t *testing.T, q delayedQueue[string]) {
				q.AddAfter("a", delay)
				q.AddAfterWithPriority("b", delay, 0)
				q.AddAfterWithPriority("c", delay, 2)
				q.AddAfter("a", delay)
				want(t, q, "[c a b] [] []")
				wantStats(t, q, Stats{Ready: 3, Adds: 3, Merged: 1})
				take(t, q, "c")
				q.AddAfter("c", delay)
				want(t, q, "[a b] [c] []")
				q.Done("c")
				pass(time.Hour)
				wantOrder(t, q, "c:2 a:0 b:0") // T7
				wantStats(t, q, Stats{Adds: 4, Merged: 1})
			})
		})
	}
}

func TestDelayingQueue_T1_WaitsForItsDelay(t *testing.T) {
	for _, delay := range []time.Duration{1, ms, time.Second, time.Hour, 1000 * time.Hour} {
		t.Run(delay.String(), func(t *testing.T) {
			eachDelayed(t, func(t *testing.T, q delayedQueue[string]) {
				q.AddAfter("a", delay)
				want(t, q, "[] [] [a]")
				wantDueIn(t, q, delay, "a")
				want(t, q, "[a] [] []")
				wantStats(t, q, Stats{Ready: 1, Adds: 1})
			})
		})
	}
}

// W31, W33: of several the earliest wins, once.
func TestDelayingQueue_T1_EarliestWins(t *testing.T) {
	for _, delays := range [][]time.Duration{
		{30 * ms, 300 * ms},
		{300 * ms, 30 * ms},
		{30 * ms, 30 * ms, 30 * ms, 30 * ms, 30 * ms},
		{200 * ms, 100 * ms, 300 * ms, 30 * ms, 40 * ms},
	} {
		t.Run(fmt.Sprint(delays), func(t *testing.T) {
			eachDelayed(t, func(t *testing.T, q delayedQueue[string]) {
				sooner := -1 // calls that changed nothing
				earliest := time.Duration(math.MaxInt64)
				for _, d := range delays {
					q.AddAfter("a", d)
					if d < earliest {
						earliest = d
					} else {
						sooner++
					}
				}
				want(t, q, "[] [] [a]")
				wantStats(t, q, Stats{Waiting: 1, Merged: uint64(sooner + 1)})
				wantDueIn(t, q, 30*ms, "a")
				wantOrder(t, q, "a:0")
				pass(time.Second)
				want(t, q, "[] [] []")
				wantStats(t, q, Stats{Adds: 1, Merged: uint64(sooner + 1)})
			})
		})
	}
}

// The wait goes on from where it began: a later call with what is left changes nothing.
func TestDelayingQueue_T1_EarliestIsByTimeNotDelay(t *testing.T) {
	eachDelayed(t, func(t *testing.T, q delayedQueue[string]) {
		q.AddAfter("a", 100*ms)
		pass(60 * ms)
		q.AddAfter("a", 50*ms) // a shorter delay, but a later time
		wantDueIn(t, q, 40*ms, "a")
		pass(time.Second)
		wantStats(t, q, Stats{Ready: 1, Adds: 1, Merged: 1})
	})
}

func TestDelayingQueue_T1_WaitsBesideReady(t *testing.T) {
	for _, tt := range []struct {
		name  string
		do    func(t *testing.T, q delayedQueue[string]) // a is ready, and due in 10 ms
		state string
		adds  uint64
	}{
		{"merges while ready", func(t *testing.T, q delayedQueue[string]) { pass(10 * ms) }, "[a b] [] []", 2},
		{"comes due while processing", func(t *testing.T, q delayedQueue[string]) {
			take(t, q, "a")
			want(t, q, "[b] [a] [a]")
			pass(10 * ms)
			want(t, q, "[b] [a] []")
			q.Done("a")
		}, "[b a] [] []", 3},
		{"merges while dirty", func(t *testing.T, q delayedQueue[string]) {
			take(t, q, "a")
			q.Add("x")
			q.Cancel("x")
			pass(9 * ms)
			q.AddAfter("a", 2*ms) // later than the first, which comes due before
			pass(ms)
			q.AddAfter("a", ms) // beside dirty
			want(t, q, "[b] [a] [a]")
			pass(ms)
			q.Done("a")
		}, "[b a] [] []", 4}, // x was one
		{"comes due after Done", func(t *testing.T, q delayedQueue[string]) {
			take(t, q, "a")
			q.Done("a")
			want(t, q, "[b] [] [a]")
			pass(10 * ms)
		}, "[b a] [] []", 3},
		{"comes due after Done, dirty before", func(t *testing.T, q delayedQueue[string]) {
			take(t, q, "a")
			q.Done("a")
			q.Add("b")
			pass(10 * ms)
			take(t, q, "b")
		}, "[a] [b] []", 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachDelayed(t, func(t *testing.T, q delayedQueue[string]) {
				q.AddAll("a", "b")
				q.AddAfter("a", 10*ms)
				want(t, q, "[a b] [] [a]")
				tt.do(t, q)
				want(t, q, tt.state)
				if s := q.Stats(); s.Adds != tt.adds {
					t.Errorf("Adds = %d, want %d", s.Adds, tt.adds)
				}
				pass(time.Hour)
				want(t, q, tt.state)
			})
		})
	}
}

// A wait that comes due while its item is ready is an Add with its priority.
func TestDelayingQueue_T1_MergesWithItsPriority(t *testing.T) {
	eachDelayed(t, func(t *testing.T, q delayedQueue[string]) {
		q.AddAll("a", "b")
		q.AddWithPriority("c", 5)
		q.AddAfterWithPriority("b", ms, 5)
		q.AddAfterWithPriority("a", ms, -5)
		want(t, q, "[c a b] [] [b a]")
		pass(ms)
		wantOrder(t, q, "c:5 b:5 a:0")
		wantStats(t, q, Stats{Adds: 3})
	})
}

// W41: never means never, and does not overflow; what is due is not kept from coming due.
func TestDelayingQueue_T1_HugeDelays(t *testing.T) {
	const century = 100 * 365 * 24 * time.Hour
	eachDelayed(t, func(t *testing.T, q delayedQueue[string]) {
		q.AddAfter("a", math.MaxInt64)
		q.AddAfter("b", math.MaxInt64-1)
		q.AddAfterWithPriority("c", math.MaxInt64, math.MaxInt)
		pass(time.Hour)
		q.AddAfter("a", math.MaxInt64) // no sooner
		q.Reschedule("d", math.MaxInt64)
		want(t, q, "[] [] [b a c d]")
		for _, w := range q.Snapshot().Waiting {
			if w.In < 2*century {
				t.Errorf("%s waits for %v", w.Item, w.In)
			}
		}
		q.AddAfter("e", century)
		wantDueIn(t, q, century, "e")
		pass(century / 2)
		want(t, q, "[e] [] [b a c d]")
		q.AddAfter("a", ms)
		wantDueIn(t, q, ms, "a")
	})
}

// The same outside a bubble, where the clock stands elsewhere.
func TestDelayingQueue_T1_HugeDelaysOnTheRealClock(t *testing.T) {
	q := NewDelayingQueue[string](Options{})
	defer q.ShutDown()
	q.AddAfter("a", math.MaxInt64)
	q.AddAfter("b", math.MaxInt64-1)
	q.AddAfter("c", math.MaxInt64)
	q.AddAfter("d", math.MaxInt64/2)
	q.Reschedule("e", math.MaxInt64)
	q.AddAfter("f", math.MinInt64)
	s := q.Snapshot()
	if !slices.Equal(s.Ready, []string{"f"}) || len(s.Waiting) != 5 || s.Waiting[0].Item != "d" {
		t.Errorf("Snapshot = %+v", s)
	}
	for _, w := range s.Waiting {
		if w.In < math.MaxInt64/2-time.Hour {
			t.Errorf("%s waits for %v", w.Item, w.In)
		}
	}
}

// W29
func TestDelayingQueue_T2_AddEndsTheWait(t *testing.T) {
	for _, add := range []struct {
		name string
		do   func(q delayedQueue[string])
	}{
		{"Add", func(q delayedQueue[string]) { q.Add("a") }},
		{"AddAll", func(q delayedQueue[string]) { q.AddAll("a") }},
		{"AddWithPriority", func(q delayedQueue[string]) { q.AddWithPriority("a", 0) }},
		{"AddAfter 0", func(q delayedQueue[string]) { q.AddAfter("a", 0) }},
		{"AddAfter -1", func(q delayedQueue[string]) { q.AddAfter("a", -1) }},
		{"AddAfter MinInt64", func(q delayedQueue[string]) { q.AddAfter("a", math.MinInt64) }},
		{"AddAfterWithPriority 0", func(q delayedQueue[string]) { q.AddAfterWithPriority("a", 0, 0) }},
		{"Reschedule 0", func(q delayedQueue[string]) { q.Reschedule("a", 0) }},
		{"Reschedule -1", func(q delayedQueue[string]) { q.Reschedule("a", -1) }},
	} {
		t.Run(add.name, func(t *testing.T) {
			eachDelayed(t, func(t *testing.T, q delayedQueue[string]) {
				// Waiting alone.
				q.AddAfter("a", 60*ms)
				add.do(q)
				want(t, q, "[a] [] []")
				wantStats(t, q, Stats{Ready: 1, Adds: 1})
				wantOrder(t, q, "a:0")
				pass(200 * ms)
				want(t, q, "[] [] []")

				// Waiting beside processing.
				q.Add("a")
				take(t, q, "a")
				q.AddAfter("a", 60*ms)
				want(t, q, "[] [a] [a]")
				add.do(q)
				want(t, q, "[] [a] []")
				pass(200 * ms)
				q.Done("a")
				wantOrder(t, q, "a:0")
				want(t, q, "[] [] []")

				// Waiting beside ready.
				q.Add("a")
				q.AddAfter("a", 60*ms)
				add.do(q)
				want(t, q, "[a] [] []")
				wantOrder(t, q, "a:0")
				pass(200 * ms)
				want(t, q, "[] [] []")
				if s := q.Stats(); s.Merged != 0 {
					t.Errorf("Merged = %d, though each call ended a wait", s.Merged)
				}
			})
		})
	}
}

func TestDelayingQueue_T2_DueWhileProcessing(t *testing.T) {
	eachDelayed(t, func(t *testing.T, q delayedQueue[string]) {
		q.AddAll("a", "b")
		take(t, q, "a")
		q.AddAfter("a", 10*ms)
		pass(10 * ms)
		want(t, q, "[b] [a] []")
		wantStats(t, q, Stats{Ready: 1, Processing: 1, Adds: 3})
		q.Done("a")
		want(t, q, "[b a] [] []")
	})
}

func TestDelayingQueue_T3_SameTimeFirstInFirstOut(t *testing.T) {
	const n = 100
	eachDelayed(t, func(t *testing.T, q delayedQueue[string]) {
		var items []string
		for i := range n { // all at the same time, from different moments
			item := fmt.Sprint(i)
			items = append(items, item)
			q.AddAfter(item, (n-time.Duration(i))*ms)
			pass(ms / 2)
			q.AddAfter(fmt.Sprint("before ", i), (n-time.Duration(i))*ms-ms)
			q.Cancel(fmt.Sprint("before ", i))
			if i == n-1 {
				break
			}
			pass(ms / 2)
		}
		want(t, q, fmt.Sprint([]string{}, []string{}, items))
		pass(ms / 2)
		want(t, q, fmt.Sprint(items, []string{}, []string{}))
	})
}

// Many items in a few due times, some of them moved: always by time, then by call.
func TestDelayingQueue_T3_DrawnTimes(t *testing.T) {
	type wait struct {
		item string
		at   time.Duration
	}
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 3))
			q := NewDelayingQueue[string](Options{})
			var model []wait // by call
			for range 100 {
				w := wait{fmt.Sprint(rnd.IntN(40)), time.Duration(1+rnd.IntN(5)) * ms}
				moves := func(o wait) bool { return o.item == w.item && w.at < o.at }
				switch known := slices.ContainsFunc(model, func(o wait) bool { return o.item == w.item }); {
				case rnd.IntN(4) == 0:
					q.Reschedule(w.item, w.at)
					model = slices.DeleteFunc(model, func(o wait) bool { return o.item == w.item })
					model = append(model, w)
				case !known, slices.ContainsFunc(model, moves):
					q.AddAfter(w.item, w.at)
					model = append(slices.DeleteFunc(model, moves), w)
				default:
					q.AddAfter(w.item, w.at)
				}
			}
			slices.SortStableFunc(model, func(a, b wait) int { return int(a.at - b.at) })
			items := []string{}
			for _, w := range model {
				items = append(items, w.item)
			}
			want(t, q, fmt.Sprint([]string{}, []string{}, items))
			if rnd.IntN(2) == 0 {
				for range 5 {
					pass(ms)
				}
			} else {
				pass(time.Second)
			}
			want(t, q, fmt.Sprint(items, []string{}, []string{}))
		})
	}
}

func TestDelayingQueue_T3_MovedIsInAnew(t *testing.T) {
	type q = delayedQueue[string]
	for _, tt := range []struct {
		name string
		do   func(q q) // a, then b wait for 10 ms, c for 20 ms
		want string
	}{
		{"nothing", func(q q) {}, "a:0 b:0 c:0"},
		{"sooner", func(q q) { q.AddAfter("c", 10*ms) }, "a:0 b:0 c:0"},
		{"sooner than both", func(q q) { q.AddAfter("c", 9*ms) }, "c:0 a:0 b:0"},
		{"same time again", func(q q) { q.AddAfter("a", 10*ms) }, "a:0 b:0 c:0"},
		{"later", func(q q) { q.AddAfter("a", 20*ms) }, "a:0 b:0 c:0"},
		{"rescheduled to the same time", func(q q) { q.Reschedule("a", 10*ms) }, "b:0 a:0 c:0"},
		{"rescheduled later", func(q q) { q.Reschedule("a", 20*ms) }, "b:0 c:0 a:0"},
		{"rescheduled sooner", func(q q) { q.Reschedule("c", 10*ms) }, "a:0 b:0 c:0"},
		{"cancelled and added", func(q q) { q.Cancel("a"); q.AddAfter("a", 10*ms) }, "b:0 a:0 c:0"},
		{"moved twice", func(q q) { q.AddAfter("a", 9*ms); q.AddAfter("b", 9*ms); q.AddAfter("c", 9*ms) }, "a:0 b:0 c:0"},
		{"moved in another order", func(q q) { q.AddAfter("c", 9*ms); q.AddAfter("b", 9*ms); q.AddAfter("a", 9*ms) }, "c:0 b:0 a:0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachDelayed(t, func(t *testing.T, q delayedQueue[string]) {
				q.AddAfter("a", 10*ms)
				q.AddAfter("b", 10*ms)
				q.AddAfter("c", 20*ms)
				tt.do(q)
				pass(20 * ms)
				wantOrder(t, q, tt.want)
			})
		})
	}
}

// A getter that sleeps gets what comes due at that very moment.
func TestDelayingQueue_T4_WakesAGetter(t *testing.T) {
	eachDelayed(t, func(t *testing.T, q delayedQueue[string]) {
		start := time.Now()
		q.AddAfter("b", 20*ms)
		q.AddAfter("a", 10*ms)
		for i, item := range []string{"a", "b"} {
			if got, _ := q.Get(); got != item {
				t.Errorf("Get = %q, want %q", got, item)
			}
			if took, want := time.Since(start), time.Duration(i+1)*10*ms; took != want {
				t.Errorf("%q came after %v, want %v", item, took, want)
			}
		}
	})
}

// W38
func TestDelayingQueue_T4_RearmsForTheEarliest(t *testing.T) {
	eachDelayed(t, func(t *testing.T, q delayedQueue[string]) {
		q.AddAfter("a", time.Hour)
		q.AddAfter("b", 10*ms)
		wantDueIn(t, q, 10*ms, "b")
		q.AddAfter("a", 1) // at once, nearly
		wantDueIn(t, q, 1, "a")
		want(t, q, "[b a] [] []")

		// The earliest goes away in every way; the next one is not forgotten.
		for i, leave := range []func(){
			func() { q.Cancel("x") },
			func() { q.Add("x"); q.Cancel("x") },
			func() { q.Reschedule("x", 3*time.Hour); q.Cancel("x") },
			func() { pass(10 * ms); q.Cancel("x") },
			func() { q.AddAfter("x", 5*ms); q.Cancel("x") },
			func() { q.Reschedule("x", 2*time.Hour) },
			func() { q.Cancel("x"); q.Cancel("y"); q.AddAfter("y", time.Hour) }, // nothing waits for a moment
		} {
			start := time.Now()
			q.AddAfter("y", time.Hour)
			q.AddAfter("x", 10*ms)
			q.AddAfter("z", 90*time.Minute)
			leave()
			wantDueIn(t, q, time.Hour-time.Since(start), "y")
			wantDueIn(t, q, 30*time.Minute, "z")
			q.Cancel("x")
			q.Cancel("y")
			q.Cancel("z")
			if s := q.Stats(); s.Ready != 2 || s.Waiting != 0 {
				t.Fatalf("case %d: %+v", i, s)
			}
		}
	})
}

// W42: however often, in whatever order, each is on time.
func TestDelayingQueue_T4_AlwaysOnTime(t *testing.T) {
	eachDelayed(t, func(t *testing.T, q delayedQueue[string]) {
		for i := range scaled(5_000) {
			q.AddAfter("a", time.Second)
			pass(2 * time.Second)
			if q.Len() != 1 {
				t.Fatalf("round %d: not delivered", i)
			}
			take(t, q, "a")
			q.Done("a")
		}
	})
	synctest.Test(t, func(t *testing.T) {
		const n = 500
		q := NewDelayingQueue[time.Duration](Options{})
		start := time.Now()
		for _, i := range rand.New(rand.NewPCG(4, 4)).Perm(n) {
			q.AddAfter(time.Duration(i+1)*ms, time.Duration(i+1)*ms)
		}
		for i := range n {
			item, _ := q.Get()
			if took := time.Since(start); took != item || item != time.Duration(i+1)*ms {
				t.Fatalf("%v came after %v", item, took)
			}
			q.Done(item)
		}
	})
}

// W34: nothing grows with the number of calls, and one timer is all there is.
func TestDelayingQueue_T4_OneTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewDelayingQueue[string](Options{})
		q.Add("x")
		q.Get()
		q.AddAfter("x", 0)
		if q.timer != nil {
			t.Error("a timer, though nothing has ever waited")
		}
		q.AddAfter("far", time.Hour)
		timer := q.timer
		for i := range 100_000 {
			q.AddAfter("near", time.Hour/2-time.Duration(i))
		}
		if q.Waiting() != 2 {
			t.Errorf("Waiting = %d, want 2", q.Waiting())
		}
		pass(2 * time.Hour)
		want(t, q, "[near far] [x] []")
		q.AddAfter("again", time.Hour)
		if q.timer != timer {
			t.Error("another timer")
		}
	})
}

// W23, W18: what waits is dropped and counted, and the timer stops.
func TestDelayingQueue_T5_ShutDownDropsWhatWaits(t *testing.T) {
	for _, end := range []struct {
		name string
		down func(q delayedQueue[string]) // must not block for long: nothing is ready, a is processing
	}{
		{"ShutDown", delayedQueue[string].ShutDown},
		{"ShutDownWithDrain", func(q delayedQueue[string]) {
			time.AfterFunc(ms, func() { q.Done("a") })
			q.ShutDownWithDrain()
			q.Add("a")
		}},
		{"Drain", func(q delayedQueue[string]) {
			ctx, cancel := context.WithTimeout(context.Background(), ms)
			defer cancel()
			if err := q.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) ||
				!strings.Contains(err.Error(), "0 items are ready and 1 processing") {
				panic(fmt.Sprint("Drain: ", err))
			}
		}},
	} {
		t.Run(end.name, func(t *testing.T) {
			eachDelayed(t, func(t *testing.T, q delayedQueue[string]) {
				q.Add("a")
				take(t, q, "a")
				q.AddAfter("a", 50*ms) // beside processing
				q.AddAfter("b", 50*ms)
				q.AddAfter("c", time.Hour)
				end.down(q)
				if s := q.Stats(); s.Dropped != 3 || s.Waiting != 0 || s.Ready != 0 {
					t.Errorf("Stats = %+v", s)
				}
				if timerOf(q).Stop() {
					t.Error("T5: the timer still runs")
				}
				pass(2 * time.Hour)
				q.Done("a")
				q.ShutDown() // counts nothing twice
				q.AddAfter("d", ms)
				q.Reschedule("d", ms)
				pass(time.Hour)
				want(t, q, "[] [] []")
				if s := q.Stats(); s.Dropped != 3 || s.Adds != 1 {
					t.Errorf("Stats = %+v", s)
				}
			})
		})
	}
}

func timerOf[T comparable](q delayedQueue[T]) *time.Timer {
	switch q := q.(type) {
	case *DelayingQueue[T]:
		return q.timer
	case *RateLimitingQueue[T]:
		return q.timer
	}
	panic("unknown kind of queue")
}

// The wait beside a ready or dirty item is dropped; the item is not.
func TestDelayingQueue_T5_ReadyAndDirtyStay(t *testing.T) {
	eachDelayed(t, func(t *testing.T, q delayedQueue[string]) {
		q.AddAll("dirty", "ready")
		take(t, q, "dirty")
		q.Add("dirty")
		q.AddAfter("dirty", ms)
		q.AddAfter("ready", ms)
		want(t, q, "[ready] [dirty] [dirty ready]")
		q.ShutDown()
		want(t, q, "[ready] [dirty] []")
		pass(time.Hour)
		q.Done("dirty")
		wantOrder(t, q, "ready:0 dirty:0")
		wantStats(t, q, Stats{Adds: 3, Dropped: 2})
	})
}

// A drain does not wait for what waits.
func TestDelayingQueue_T5_DrainDoesNotWaitForIt(t *testing.T) {
	eachDelayed(t, func(t *testing.T, q delayedQueue[string]) {
		q.AddAfter("a", time.Hour)
		start := time.Now()
		q.ShutDownWithDrain()
		if took := time.Since(start); took != 0 {
			t.Errorf("took %v", took)
		}
		wantStats(t, q, Stats{Dropped: 1})
		if _, shutdown := q.Get(); !shutdown {
			t.Error("Get does not report shutdown")
		}
	})
}

// W75: at no moment is an item in both, or in neither.
func TestDelayingQueue_T5_DueIsOneStep(t *testing.T) {
	const n = 50
	eachDelayed(t, func(t *testing.T, q delayedQueue[int]) {
		for i := range n {
			q.AddAfter(i, time.Duration(1+i/5)*ms)
		}
		if q.Len() != 0 || q.Waiting() != n {
			t.Errorf("Len = %d, Waiting = %d", q.Len(), q.Waiting())
		}
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for range n/5 + 1 {
					time.Sleep(ms) // wakes at the moment when five come due
					for range 20 {
						if s := q.Snapshot(); len(s.Ready)+len(s.Waiting) != n {
							t.Errorf("Snapshot: %d ready and %d waiting of %d", len(s.Ready), len(s.Waiting), n)
						}
						if s := q.Stats(); s.Ready+s.Waiting != n || s.Adds != uint64(s.Ready) {
							t.Errorf("Stats = %+v", s)
						}
					}
				}
			})
		}
		all.Wait()
		if q.Len() != n || q.Waiting() != 0 {
			t.Errorf("Len = %d, Waiting = %d", q.Len(), q.Waiting())
		}
	})
}

func TestDelayingQueue_T6_RescheduleInEveryState(t *testing.T) {
	type q = delayedQueue[string]
	processing := func(q q) { q.AddWithPriority("a", 7); q.TryGet() }
	for _, tt := range []struct {
		name    string
		prepare func(q q)
		held    bool   // a is processing
		order   string // of a in the end
	}{
		{"absent", func(q q) {}, false, "a:0"},
		{"ready", func(q q) { q.AddWithPriority("a", 5) }, false, "a:0"},
		{"waiting for less", func(q q) { q.AddAfterWithPriority("a", ms, 5) }, false, "a:0"},
		{"waiting for more", func(q q) { q.AddAfterWithPriority("a", time.Hour, 5) }, false, "a:0"},
		{"ready and waiting", func(q q) { q.Add("a"); q.AddAfter("a", ms) }, false, "a:0"},
		{"processing", processing, true, "a:7"},
		{"dirty", func(q q) { processing(q); q.AddWithPriority("a", 9) }, true, "a:7"},
		{"processing and waiting", func(q q) { processing(q); q.AddAfterWithPriority("a", ms, 9) }, true, "a:7"},
		{"dirty and waiting", func(q q) { processing(q); q.Add("a"); q.AddAfterWithPriority("a", ms, 9) }, true, "a:7"},
	} {
		for _, delay := range []time.Duration{-1, 0, 10 * ms} {
			for _, early := range []bool{false, true} { // Done before it is due
				if early && !tt.held {
					continue
				}
				t.Run(fmt.Sprint(tt.name, " ", delay, " ", early), func(t *testing.T) {
					eachDelayed(t, func(t *testing.T, q delayedQueue[string]) {
						tt.prepare(q)
						q.Reschedule("a", delay)
						held := "[]"
						if tt.held {
							held = "[a]"
						}
						switch {
						case delay > 0:
							want(t, q, fmt.Sprint("[] ", held, " [a]"))
						case tt.held:
							want(t, q, "[] [a] []")
						default:
							want(t, q, "[a] [] []")
						}
						if early {
							q.Done("a")
						}
						if delay > 0 {
							pass(delay - 1)
							if n := q.Len(); n != 0 {
								t.Errorf("ready too early")
							}
							pass(1)
						}
						if tt.held && !early {
							want(t, q, "[] [a] []")
							q.Done("a")
						}
						want(t, q, "[a] [] []")
						wantOrder(t, q, tt.order)
						pass(2 * time.Hour)
						want(t, q, "[] [] []") // once
					})
				})
			}
		}
	}
}

// Each call postpones, also while the item is processing.
func TestDelayingQueue_T6_Debounces(t *testing.T) {
	eachDelayed(t, func(t *testing.T, q delayedQueue[string]) {
		for range 10 {
			q.Reschedule("a", 100*ms)
			pass(99 * ms)
			want(t, q, "[] [] [a]")
		}
		pass(ms)
		want(t, q, "[a] [] []")
		for range 10 {
			q.Reschedule("a", 100*ms) // from ready
			pass(99 * ms)
			want(t, q, "[] [] [a]")
		}
		pass(ms)
		take(t, q, "a")
		for range 10 {
			q.Reschedule("a", 100*ms)
			pass(99 * ms)
			want(t, q, "[] [a] [a]")
		}
		pass(ms)
		want(t, q, "[] [a] []") // dirty
		q.Reschedule("a", 100*ms)
		q.Done("a")
		want(t, q, "[] [] [a]")
		wantDueIn(t, q, 100*ms, "a")
	})
}

// No observer ever finds the item in two places, or in none.
func TestDelayingQueue_T6_OneStep(t *testing.T) {
	eachDelayed(t, func(t *testing.T, q delayedQueue[string]) {
		q.Reschedule("a", time.Hour)
		var all sync.WaitGroup
		for i := range 2 {
			all.Go(func() {
				for j := range scaled(2000) {
					q.Reschedule("a", time.Duration((i+j)%2)*time.Hour)
				}
			})
			all.Go(func() {
				for range scaled(2000) {
					if s := q.Stats(); s.Ready+s.Waiting != 1 {
						t.Errorf("T6: Stats = %+v", s)
					}
				}
			})
		}
		all.Wait()
	})
}

func TestDelayingQueue_T7_Priority(t *testing.T) {
	type q = delayedQueue[string]
	get := func(priority int) func(q) { // a is processing, handed out with that
		return func(q q) { q.AddWithPriority("a", priority); q.TryGet() }
	}
	none := func(q) {}
	for _, tt := range []struct {
		name    string
		prepare func(q q)
		do      func(q q)
		want    string // the priority of a in the end
	}{
		{"new", none, func(q q) { q.AddAfter("a", ms) }, "a:0"},
		{"new, stated", none, func(q q) { q.AddAfterWithPriority("a", ms, 3) }, "a:3"},
		{"new, stated, at once", none, func(q q) { q.AddAfterWithPriority("a", 0, 3) }, "a:3"},

		// W65
		{"kept", get(-100), func(q q) { q.AddAfter("a", ms) }, "a:-100"},
		{"kept, high", get(100), func(q q) { q.AddAfter("a", ms) }, "a:100"},
		{"kept, at once", get(-100), func(q q) { q.AddAfter("a", 0) }, "a:-100"},
		{"kept, before now", get(-100), func(q q) { q.AddAfter("a", -1) }, "a:-100"},
		{"kept after Done", get(-100), func(q q) { q.AddAfter("a", ms); q.Done("a") }, "a:-100"},
		{"not kept by Add", get(-100), func(q q) { q.Add("a") }, "a:0"},
		{"forgotten with Done", get(100), func(q q) { q.Done("a"); q.AddAfter("a", ms) }, "a:0"},
		{"not of a past hold, waiting", get(100), func(q q) {
			q.AddAfterWithPriority("a", time.Hour, 0)
			q.Done("a")
			q.AddAfter("a", ms)
		}, "a:0"},
		{"not of a past hold, ready", get(100), func(q q) {
			q.Add("a")
			q.Done("a")
			q.AddAfter("a", ms)
		}, "a:0"},
		{"of this hold", get(100), func(q q) { q.Done("a"); q.Add("a"); q.TryGet(); q.AddAfter("a", ms) }, "a:0"},
		{"stated 0", get(-100), func(q q) { q.AddAfterWithPriority("a", ms, 0) }, "a:0"},
		{"stated 0 is lower", get(100), func(q q) { q.AddAfterWithPriority("a", ms, 0) }, "a:0"},
		{"stated, at once", get(100), func(q q) { q.AddAfterWithPriority("a", 0, -2) }, "a:-2"},
		{"Reschedule keeps", get(-100), func(q q) { q.Reschedule("a", ms) }, "a:-100"},
		{"Reschedule keeps, at once", get(-100), func(q q) { q.Reschedule("a", 0) }, "a:-100"},

		{"highest of several", none, func(q q) {
			q.AddAfterWithPriority("a", ms, 1)
			q.AddAfterWithPriority("a", time.Second, 5) // the time of the first, the priority of this
			q.AddAfterWithPriority("a", ms/2, 3)
		}, "a:5"},
		{"0 is higher than negative", none, func(q q) {
			q.AddAfterWithPriority("a", ms, -5)
			q.AddAfter("a", time.Second)
		}, "a:0"},
		{"negative is lower than 0", none, func(q q) {
			q.AddAfter("a", time.Second)
			q.AddAfterWithPriority("a", ms, -5)
		}, "a:0"},
		{"highest of kept and stated", get(-100), func(q q) {
			q.AddAfter("a", ms)
			q.AddAfterWithPriority("a", ms, -50)
			q.AddAfter("a", ms)
		}, "a:-50"},

		{"of a wait that Add ends", none, func(q q) { q.AddAfterWithPriority("a", time.Hour, 5); q.Add("a") }, "a:5"},
		{"of a wait that a higher Add ends", none, func(q q) {
			q.AddAfterWithPriority("a", time.Hour, 5)
			q.AddWithPriority("a", 6)
		}, "a:6"},
		{"of a low wait that Add ends", none, func(q q) { q.AddAfterWithPriority("a", time.Hour, -5); q.Add("a") }, "a:0"},
		{"of a wait that AddAfter ends", none, func(q q) { q.AddAfterWithPriority("a", time.Hour, 5); q.AddAfter("a", 0) }, "a:5"},
		{"of a wait beside processing that Add ends", get(100), func(q q) { q.AddAfter("a", time.Hour); q.Add("a") }, "a:100"},
		{"of a wait beside ready that Add ends", func(q q) { q.Add("a") }, func(q q) {
			q.AddAfterWithPriority("a", time.Hour, 5)
			q.Add("a")
		}, "a:5"},
		{"not of a wait that Cancel ends", none, func(q q) {
			q.AddAfterWithPriority("a", time.Hour, 5)
			q.Cancel("a")
			q.Add("a")
		}, "a:0"},
		{"not of a wait that Reschedule ends", none, func(q q) {
			q.AddAfterWithPriority("a", time.Hour, 5)
			q.Reschedule("a", ms)
		}, "a:0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachDelayed(t, func(t *testing.T, q delayedQueue[string]) {
				tt.prepare(q)
				tt.do(q)
				pass(ms)
				if q.Stats().Processing > 0 {
					q.Done("a")
				}
				wantOrder(t, q, tt.want)
				pass(2 * time.Hour)
				want(t, q, "[] [] []")
			})
		})
	}
}

// W62: a high one that comes due goes before low ones that have long been ready.
func TestDelayingQueue_T7_DueGoesByPriority(t *testing.T) {
	eachDelayed(t, func(t *testing.T, q delayedQueue[string]) {
		q.AddWithPriority("low", -1)
		q.Add("plain")
		q.AddAfterWithPriority("high", time.Second, 1)
		q.AddAfterWithPriority("lower", time.Second/2, -1)
		pass(time.Second)
		wantOrder(t, q, "high:1 plain:0 low:-1 lower:-1")
	})
}

// What comes due together is there together: a getter that slept gets the best of it.
func TestDelayingQueue_T4_DueTogether(t *testing.T) {
	eachDelayed(t, func(t *testing.T, q delayedQueue[string]) {
		q.AddAfter("plain", time.Second)
		q.AddAfterWithPriority("better", time.Second, 1)
		q.AddAfterWithPriority("best", time.Second, 2)
		if item, priority, _ := q.GetWithPriority(); item != "best" || priority != 2 {
			t.Errorf("GetWithPriority = %q, %d, want the best", item, priority)
		}
	})
	// It is so because no getter comes between two of them.
	q := NewDelayingQueue[int](Options{})
	for i := range 5 {
		q.AddAfter(i, time.Hour)
	}
	q.mu.Lock()
	q.dueBy(clock() + int64(time.Hour))
	ready, waiting := q.ready(), q.waits.len()
	q.mu.Unlock()
	if ready != 5 || waiting != 0 {
		t.Errorf("of 5 items that are due %d are ready, and %d wait", ready, waiting)
	}
	q.ShutDown()
}

// What is due, and the timer has not been seen to yet, is due now.
func TestDelayingQueue_SnapshotOfWhatIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewDelayingQueue[string](Options{})
		q.AddAfter("a", time.Second)
		q.mu.Lock()
		q.disarm()
		q.mu.Unlock()
		time.Sleep(time.Hour)
		if got := q.Snapshot().Waiting; !slices.Equal(got, []Waiting[string]{{"a", 0}}) {
			t.Errorf("Waiting = %v, want a in 0s", got)
		}
	})
}

// W32
func TestDelayingQueue_Q12_Cancel(t *testing.T) {
	eachDelayed(t, func(t *testing.T, q delayedQueue[string]) {
		cancel := func(want bool) {
			t.Helper()
			if got := q.Cancel("a"); got != want {
				t.Errorf("Cancel = %v, want %v", got, want)
			}
		}
		q.AddAfter("a", time.Second)
		cancel(true)
		cancel(false)
		want(t, q, "[] [] []")
		q.Add("a")
		q.AddAfter("a", time.Second)
		cancel(true) // both at once
		want(t, q, "[] [] []")
		q.Add("a")
		take(t, q, "a")
		q.AddAfter("a", time.Second)
		cancel(true)
		cancel(false)
		want(t, q, "[] [a] []")
		q.Add("a")
		q.AddAfter("a", time.Second)
		cancel(true)
		want(t, q, "[] [a] []")
		pass(2 * time.Second)
		q.Done("a")
		want(t, q, "[] [] []")
		wantStats(t, q, Stats{Adds: 3}) // Cancel is no drop
	})
}

// W37
func TestDelayingQueue_Q12_CancelAfterRacingAdds(t *testing.T) {
	eachDelayed(t, func(t *testing.T, q delayedQueue[string]) {
		for range scaled(200) {
			var all sync.WaitGroup
			for i := range 100 {
				all.Go(func() { q.AddAfter("a", time.Second+time.Duration(i%7)) })
			}
			all.Wait()
			want(t, q, "[] [] [a]")
			if !q.Cancel("a") {
				t.Error("Cancel = false")
			}
			if timerOf(q).Stop() {
				t.Error("the timer runs, though nothing waits")
			}
			pass(time.Minute)
			want(t, q, "[] [] []")
		}
		wantStats(t, q, Stats{Merged: q.Stats().Merged})
	})
}

// W01, W04: Done and Cancel of what only waits, and of strangers.
func TestDelayingQueue_Q5_StrayDone(t *testing.T) {
	eachDelayed(t, func(t *testing.T, q delayedQueue[string]) {
		q.AddAfter("a", time.Second)
		q.Done("a")
		q.Done("b")
		if q.Cancel("b") {
			t.Error("Cancel of a stranger = true")
		}
		want(t, q, "[] [] [a]")
		wantStats(t, q, Stats{Waiting: 1, StrayDones: 2})
		wantDueIn(t, q, time.Second, "a")
	})
}

// W75, W78: what waits counts when it comes due, and a delay is no retry.
func TestDelayingQueue_Stats(t *testing.T) {
	eachDelayed(t, func(t *testing.T, q delayedQueue[string]) {
		var w Stats
		for _, step := range []struct {
			name string
			do   func()
			then func()
		}{
			{"AddAfter", func() { q.AddAfter("a", time.Second) }, func() { w.Waiting++ }},
			{"AddAfter later", func() { q.AddAfter("a", time.Minute) }, func() { w.Merged++ }},
			{"AddAfter at the same time", func() { q.AddAfter("a", time.Second) }, func() { w.Merged++ }},
			{"AddAfter sooner", func() { q.AddAfter("a", time.Second/2) }, func() {}},
			{"higher priority", func() { q.AddAfterWithPriority("a", time.Minute, 1) }, func() {}},
			{"lower priority", func() { q.AddAfterWithPriority("a", time.Minute, -1) }, func() { w.Merged++ }},
			{"due", func() { pass(time.Second / 2) }, func() { w.Waiting--; w.Ready++; w.Adds++ }},
			{"AddAfter beside ready", func() { q.AddAfter("a", time.Second) }, func() { w.Waiting++ }},
			{"due while ready", func() { pass(time.Second) }, func() { w.Waiting-- }},
			{"AddAfter 0 of ready", func() { q.AddAfter("a", 0) }, func() { w.Merged++ }},
			{"AddAfter beside ready again", func() { q.AddAfter("a", time.Second) }, func() { w.Waiting++ }},
			{"Add of ready and waiting", func() { q.Add("a") }, func() { w.Waiting-- }},
			{"Get", func() { take(t, q, "a") }, func() { w.Ready--; w.Processing++ }},
			{"AddAfter beside processing", func() { q.AddAfter("a", time.Second) }, func() { w.Waiting++ }},
			{"due while processing", func() { pass(time.Second) }, func() { w.Waiting--; w.Adds++ }},
			{"AddAfter beside dirty", func() { q.AddAfter("a", time.Second) }, func() { w.Waiting++ }},
			{"due while dirty", func() { pass(time.Second) }, func() { w.Waiting-- }},
			{"Done", func() { q.Done("a") }, func() { w.Processing--; w.Ready++ }},
			{"Reschedule of ready", func() { q.Reschedule("a", time.Hour) }, func() { w.Ready--; w.Waiting++ }},
			{"Reschedule of waiting", func() { q.Reschedule("a", time.Hour) }, func() {}},
			{"Cancel", func() { q.Cancel("a") }, func() { w.Waiting-- }},
			{"two that wait", func() { q.AddAfter("a", time.Hour); q.AddAfter("b", time.Hour) }, func() { w.Waiting += 2 }},
			{"ShutDown", func() { q.ShutDown() }, func() { w.Waiting = 0; w.Dropped = 2 }},
			{"AddAfter after ShutDown", func() { q.AddAfter("a", time.Hour); q.AddAfter("c", 0); q.Reschedule("d", 1) }, func() {}},
		} {
			step.do()
			step.then()
			if diff := cmp.Diff(w, q.Stats()); diff != "" {
				t.Errorf("after %s (-want +got):\n%s", step.name, diff)
			}
			if q.Len() != w.Ready || q.Waiting() != w.Waiting {
				t.Errorf("after %s: Len = %d, Waiting = %d", step.name, q.Len(), q.Waiting())
			}
		}
	})
}

// W92
func TestDelayingQueue_Snapshot(t *testing.T) {
	eachDelayed(t, func(t *testing.T, q delayedQueue[string]) {
		q.AddAfter("far", math.MaxInt64/2)
		q.AddAfter("b", 2*time.Second)
		q.AddAfter("c", 3*time.Second)
		q.AddAfter("a", time.Second)
		q.AddAfterWithPriority("b2", 2*time.Second, 9) // by time, not by priority
		q.Add("a2")
		q.AddAfter("a2", time.Second)
		pass(time.Second / 4)
		wantWaits := []Waiting[string]{
			{"a", 3 * time.Second / 4},
			{"a2", 3 * time.Second / 4},
			{"b", 7 * time.Second / 4},
			{"b2", 7 * time.Second / 4},
			{"c", 11 * time.Second / 4},
			{"far", math.MaxInt64/2 - time.Second/4},
		}
		s := q.Snapshot()
		if diff := cmp.Diff(wantWaits, s.Waiting); diff != "" {
			t.Errorf("Waiting (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"a2"}, s.Ready); diff != "" {
			t.Errorf("Ready (-want +got):\n%s", diff)
		}
		// It is detached, both ways.
		for i := range s.Waiting {
			s.Waiting[i] = Waiting[string]{"x", 0}
		}
		if diff := cmp.Diff(wantWaits, q.Snapshot().Waiting); diff != "" {
			t.Errorf("after a change of the snapshot (-want +got):\n%s", diff)
		}
		pass(time.Second)
		want(t, q, "[a2 a] [] [b b2 c far]")
		if s.Waiting[0].Item != "x" || len(s.Ready) != 1 {
			t.Errorf("a snapshot has changed: %+v", s)
		}
	})
}

// What comes due has been ready since then, not since AddAfter.
func TestDelayingQueue_Metrics(t *testing.T) {
	eachKind(t, func(t *testing.T, newQueue func(Options) workQueue[string]) {
		var waited []time.Duration
		q, ok := newQueue(Options{Metrics: Metrics{
			Waited: func(d time.Duration) { waited = append(waited, d) },
		}}).(delayedQueue[string])
		if !ok {
			t.Skip("has no delays")
		}
		q.AddAfter("a", time.Hour)
		pass(time.Hour + time.Second)
		take(t, q, "a")
		q.AddAfter("a", time.Hour)
		pass(2 * time.Hour)
		q.Done("a") // dirty for an hour, ready since now
		pass(2 * time.Second)
		take(t, q, "a")
		q.Done("a")
		q.Add("a")
		q.AddAfter("a", time.Second)
		pass(3 * time.Second) // ready from the first on
		take(t, q, "a")
		q.Done("a")
		q.AddAfter("a", 0)
		pass(4 * time.Second)
		take(t, q, "a")
		if diff := cmp.Diff([]time.Duration{time.Second, 2 * time.Second, 3 * time.Second, 4 * time.Second}, waited); diff != "" {
			t.Errorf("Waited (-want +got):\n%s", diff)
		}
	})
}

// A queue that nobody can reach is collected, with items waiting and without ShutDown.
func TestDelayingQueue_DroppedIsCollected(t *testing.T) {
	drop := map[string]func() func() bool{
		"DelayingQueue": func() func() bool {
			q := NewDelayingQueue[*object](Options{TrackTime: true})
			fillAndUse(q)
			w := weak.Make(q)
			return func() bool { return w.Value() == nil }
		},
		"zero DelayingQueue in a struct": func() func() bool {
			s := new(struct {
				name string
				q    DelayingQueue[*object]
			})
			fillAndUse(&s.q)
			w := weak.Make(s)
			return func() bool { return w.Value() == nil }
		},
		"RateLimitingQueue": func() func() bool {
			q := NewRateLimitingQueue[*object](nil, Options{})
			fillAndUse(q)
			w := weak.Make(q)
			return func() bool { return w.Value() == nil }
		},
	}
	for name, f := range drop {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				collected := f()
				runtime.GC()
				runtime.GC()
				if !collected() {
					t.Error("the queue is kept alive")
				}
				pass(2 * time.Hour) // its timer fires, for nobody
			})
		})
	}
}

func fillAndUse(q delayedQueue[*object]) {
	all := newObjects(20)
	q.AddAll(all...)
	for range all {
		q.TryGet()
	}
	for i, item := range all {
		q.AddAfter(item, time.Hour-time.Duration(i))
		q.Done(item)
	}
}

// Kept alive by somebody who waits in Get, it goes on working.
func TestDelayingQueue_GetterKeepsItAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := func() func() bool {
			q := NewDelayingQueue[int](Options{})
			q.AddAfter(1, time.Hour)
			return background(func() { q.Get() })
		}()
		if got() {
			t.Fatal("Get returned too early")
		}
		runtime.GC()
		runtime.GC()
		pass(time.Hour)
		if !got() {
			t.Error("Get still sleeps")
		}
	})
}

// A package's variable does, too.
var packageQueue DelayingQueue[string]

func TestDelayingQueue_ZeroPackageVariable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		packageQueue = DelayingQueue[string]{}
		packageQueue.AddAfter("a", time.Hour)
		runtime.GC()
		wantDueIn(t, &packageQueue, time.Hour, "a")
		want(t, &packageQueue, "[a] [] []")
	})
}

// W17, W35: delays start no goroutine, and neither does what ends them.
func TestDelayingQueue_NoGoroutines(t *testing.T) {
	before := runtime.NumGoroutine()
	q := NewDelayingQueue[int](Options{})
	for i := range 10_000 {
		q.AddAfter(i, time.Hour)
		if i%2 == 0 {
			q.Cancel(i)
		}
	}
	if after := runtime.NumGoroutine(); after > before {
		t.Errorf("%d goroutines with items waiting, %d before", after, before)
	}
	q.ShutDownWithDrain()
	if after := runtime.NumGoroutine(); after > before {
		t.Errorf("%d goroutines after ShutDown, %d before", after, before)
	}
}

// W69: delays, cancellations and workers at once; each item is in one place, and in the end
// each has run after its last Add.
func TestDelayingQueue_Stress(t *testing.T) {
	const keys = 8
	eachDelayed(t, func(t *testing.T, q delayedQueue[int]) {
		var hands [keys]sync.Mutex
		var latest, seen [keys]int // guarded by versions
		var versions sync.Mutex
		var adders, workers sync.WaitGroup
		for range 3 {
			workers.Go(func() {
				for item := range q.Consume(t.Context()) {
					if !hands[item].TryLock() {
						t.Errorf("Q3: item %d is in two hands", item)
						continue
					}
					versions.Lock()
					seen[item] = latest[item]
					versions.Unlock()
					if item%2 == 0 {
						time.Sleep(50 * time.Microsecond)
					}
					hands[item].Unlock()
				}
			})
		}
		for i := range 4 {
			adders.Go(func() {
				rnd := rand.New(rand.NewPCG(uint64(i), 7))
				for range scaled(5_000) {
					item := rnd.IntN(keys)
					versions.Lock()
					latest[item]++
					versions.Unlock()
					delay := time.Duration(rnd.IntN(5)-1) * 100 * time.Microsecond
					switch rnd.IntN(6) {
					case 0:
						q.Add(item)
					case 1:
						q.AddAfterWithPriority(item, delay, rnd.IntN(3)-1)
					case 2:
						q.Reschedule(item, delay)
					case 3:
						q.Cancel(item)
						q.AddAfter(item, delay)
					case 4:
						q.AddAfter(item, delay)
						time.Sleep(time.Duration(rnd.IntN(100)) * time.Microsecond)
					default:
						q.AddAfter(item, delay)
					}
				}
			})
		}
		adders.Wait()
		pass(time.Second)
		want(t, q, "[] [] []")
		for i := range keys {
			if seen[i] != latest[i] {
				t.Errorf("item %d was not processed after its last Add", i)
			}
		}
		q.ShutDownWithDrain()
		workers.Wait()
		if s := q.Stats(); s.StrayDones != 0 || s.Dropped != 0 {
			t.Errorf("Stats = %+v", s)
		}
	})
}

// ShutDown while much comes due: each item is either ready or dropped.
func TestDelayingQueue_T5_ShutDownRacesTimer(t *testing.T) {
	eachDelayed(t, func(t *testing.T, q delayedQueue[int]) {
		const n = 100
		for i := range n {
			q.AddAfter(i, time.Duration(i%3)*ms+ms)
		}
		var all sync.WaitGroup
		all.Go(func() { time.Sleep(2 * ms); q.ShutDown() }) // just when a third comes due
		all.Go(func() { time.Sleep(2 * ms); q.AddAfter(n, ms) })
		all.Wait()
		pass(time.Second)
		if s := q.Stats(); s.Waiting != 0 || s.Ready+int(s.Dropped) != n && s.Ready+int(s.Dropped) != n+1 || s.Ready < n/3 {
			t.Errorf("Stats = %+v", s)
		}
	})
}
