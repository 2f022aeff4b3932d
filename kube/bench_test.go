package kube_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	kwok "sigs.k8s.io/kwok/pkg/utils/queue"

	"example.com/typedqueue"
)

// A workload is a piece of work that contestants do side by side: ours first, then its
// rivals.
type workload struct {
	name        string
	size        int // how much work a round is, usually in items
	contestants []contestant
}

type contestant struct {
	name string

	// setup makes what lasts for all rounds, and says with tb.Cleanup how it ends.
	setup func(tb testing.TB, size int) round
}

// A round does the work once: it prepares, starts the watch, works, stops it, cleans up.
type round func(w *watch)

type watch struct {
	began time.Time
	took  time.Duration
	items int

	handed int // how many items came out, if that is not how many went in
}

// start starts the watch, after all garbage is gone: nobody pays for another's. A round
// may start and stop it several times.
func (w *watch) start() {
	runtime.GC()
	w.began = time.Now()
}

// stop stops the watch. items is what the work since start is counted as.
func (w *watch) stop(items int) {
	w.took += time.Since(w.began)
	w.items += items
}

func (w *watch) perItem() float64 { return float64(w.took.Nanoseconds()) / float64(w.items) }

// benchmark runs each workload as a benchmark of its own. An iteration is a round of all
// contestants, so that what disturbs the machine disturbs all alike, and what a rival
// takes is divided by what ours took in the same round.
func benchmark(b *testing.B, workloads []workload) {
	for _, wl := range workloads {
		b.Run(wl.name, wl.run)
	}
}

// turns tells how many rounds a benchmark has had in this process: whose turn it is to be
// first.
var turns = map[string]int{}

func (wl workload) run(b *testing.B) {
	n := len(wl.contestants)
	rounds := make([]round, n)
	for i, c := range wl.contestants {
		rounds[i] = c.setup(b, wl.size)
	}
	times := make([][]float64, n)
	handed := make([][]float64, n)
	once := func(keep bool) {
		for i := range rounds {
			i = (i + turns[b.Name()]) % n
			var w watch
			rounds[i](&w)
			if keep {
				times[i] = append(times[i], w.perItem())
				handed[i] = append(handed[i], float64(w.handed)/float64(w.items))
			}
		}
		turns[b.Name()]++
	}
	if turns[b.Name()] == 0 && wl.size < 1_000_000 {
		once(false) // code, pages and caches are warm from here on
	}
	for b.Loop() {
		once(true)
	}
	b.ReportMetric(0, "ns/op") // of all together: says nothing
	for i, c := range wl.contestants {
		b.ReportMetric(median(times[i]), c.name+"-ns/item")
		if out := median(handed[i]); out > 0 {
			b.ReportMetric(out, c.name+"-handed/item")
		}
		if i > 0 {
			b.ReportMetric(median(quotients(times[i], times[0])), c.name+"/ours")
		}
	}
}

func quotients(xs, ys []float64) []float64 {
	qs := make([]float64, len(xs))
	for i := range xs {
		qs[i] = xs[i] / ys[i]
	}
	return qs
}

func median[N cmp.Ordered](xs []N) N {
	return slices.Sorted(slices.Values(xs))[(len(xs)-1)/2]
}

// Keys come in one fixed shuffled order, so that nobody profits from sorted ones, and no
// two calls share a byte of memory, as keys out of two watch events do not.

const recurring = 1000 // keys, where keys recur

// shared makes what f makes once, for all who ask for the same number.
func shared[T any](f func(n int) T) func(n int) T {
	made := map[int]T{}
	return func(n int) T {
		if _, ok := made[n]; !ok {
			made[n] = f(n)
		}
		return made[n]
	}
}

func ints(n int) []int { return rand.New(rand.NewPCG(1, 2)).Perm(n) }

func texts(n int) []string {
	keys := make([]string, n)
	for i, id := range ints(n) {
		keys[i] = fmt.Sprintf("ns-%d/name-%d", id%100, id)
	}
	return keys
}

func names(n int) []typedqueue.NamespacedName {
	keys := make([]typedqueue.NamespacedName, n)
	for i, id := range ints(n) {
		keys[i] = typedqueue.NamespacedName{Namespace: "ns-" + strconv.Itoa(id%100), Name: "name-" + strconv.Itoa(id)}
	}
	return keys
}

// queue is what the work queues have in common. Where a round uses it, all contestants
// pay for the calls through an interface.
type queue[T any] interface {
	Add(item T)
	Get() (item T, shutdown bool)
	Done(item T)
	ShutDown()
}

func newOurs[T comparable]() *typedqueue.Queue[T] {
	return typedqueue.NewQueue[T](typedqueue.Options{})
}

// newControllerRuntime returns a queue of controller-runtime without metrics, since the
// others have none.
func newControllerRuntime[T comparable]() priorityqueue.PriorityQueue[T] {
	return priorityqueue.New[T]("")
}

// kwokQueue makes kwok's queue one of ours: it knows no Done, and merges nothing.
type kwokQueue[T any] struct {
	kwok.Queue[T]
	done chan struct{}
}

func newKwok[T any]() kwokQueue[T] { return kwokQueue[T]{kwok.NewQueue[T](), make(chan struct{})} }

func (q kwokQueue[T]) Get() (T, bool) {
	item, ok := q.GetOrWaitWithDone(q.done)
	return item, !ok
}
func (q kwokQueue[T]) Done(T)    {}
func (q kwokQueue[T]) ShutDown() { close(q.done) }

// BenchmarkCycle is Add, Get and Done of one of 1,000 recurring keys. The floor is what
// three calls cost that lock a mutex each and keep a map; a channel only sends and
// receives. Calls are direct, not through an interface.
func BenchmarkCycle(b *testing.B) { benchmark(b, cycles()) }

func cycles() []workload {
	return []workload{cycle("struct", names), cycle("string", texts), cycle("int", ints)}
}

func cycle[T comparable](key string, keys func(int) []T) workload {
	// laps makes a round of lap, which takes all keys through the cycle once.
	laps := func(size int, lap func(keys []T)) round {
		keys := keys(recurring)
		lap(keys)
		return func(w *watch) {
			w.start()
			for range size / recurring {
				lap(keys)
			}
			w.stop(size / recurring * recurring)
		}
	}
	return workload{"key=" + key, 100_000, []contestant{
		{"ours", func(tb testing.TB, size int) round {
			q := newOurs[T]()
			return laps(size, func(keys []T) {
				for _, key := range keys {
					q.Add(key)
					item, _ := q.Get()
					q.Done(item)
				}
			})
		}},
		{"client-go", func(tb testing.TB, size int) round {
			q := workqueue.NewTyped[T]()
			return laps(size, func(keys []T) {
				for _, key := range keys {
					q.Add(key)
					item, _ := q.Get()
					q.Done(item)
				}
			})
		}},
		{"controller-runtime", func(tb testing.TB, size int) round {
			q := newControllerRuntime[T]()
			tb.Cleanup(q.ShutDown)
			return laps(max(size/20, recurring), func(keys []T) {
				for _, key := range keys {
					q.Add(key)
					item, _ := q.Get()
					q.Done(item)
				}
			})
		}},
		{"kwok", func(tb testing.TB, size int) round {
			q := kwok.NewQueue[T]()
			return laps(size, func(keys []T) {
				for _, key := range keys {
					q.Add(key)
					_ = q.GetOrWait()
				}
			})
		}},
		{"channel", func(tb testing.TB, size int) round {
			ch := make(chan T, recurring)
			return laps(size, func(keys []T) {
				for _, key := range keys {
					ch <- key
					<-ch
				}
			})
		}},
		{"floor", func(tb testing.TB, size int) round {
			var mu sync.Mutex
			m := make(map[T]struct{})
			return laps(size, func(keys []T) {
				for _, key := range keys {
					mu.Lock()
					m[key] = struct{}{}
					mu.Unlock()
					mu.Lock()
					//lint:ignore SA2001 Get locks too
					mu.Unlock()
					mu.Lock()
					delete(m, key)
					mu.Unlock()
				}
			})
		}},
	}}
}

// burst is all keys in, then out.
func burst[T comparable](q queue[T], keys []T) {
	for _, key := range keys {
		q.Add(key)
	}
	for range keys {
		item, _ := q.Get()
		q.Done(item)
	}
}

// BenchmarkBurstAgain is three bursts of a queue that has had one of that size.
func BenchmarkBurstAgain(b *testing.B) { benchmark(b, burstsAgain()) }

func burstsAgain() []workload {
	return []workload{burstAgain("struct", names), burstAgain("string", texts), burstAgain("int", ints)}
}

func burstAgain[T comparable](key string, keys func(int) []T) workload {
	keys = shared(keys)
	again := func(size, times int, q queue[T]) round {
		keys := keys(size)
		burst(q, keys)
		return func(w *watch) {
			w.start()
			for range times {
				burst(q, keys)
			}
			w.stop(times * len(keys))
		}
	}
	return workload{"key=" + key, 100_000, []contestant{
		{"ours", func(tb testing.TB, size int) round { return again(size, 3, newOurs[T]()) }},
		{"client-go", func(tb testing.TB, size int) round { return again(size, 3, workqueue.NewTyped[T]()) }},
		{"controller-runtime", func(tb testing.TB, size int) round {
			q := newControllerRuntime[T]()
			tb.Cleanup(q.ShutDown)
			return again(size, 1, q)
		}},
		{"kwok", func(tb testing.TB, size int) round { return again(size, 3, newKwok[T]()) }},
		{"channel", func(tb testing.TB, size int) round { return again(size, 3, make(channel[T], size)) }},
		{"floor", func(tb testing.TB, size int) round { return again(size, 3, &floor[T]{m: make(map[T]struct{})}) }},
	}}
}

// BenchmarkBurstFresh is a burst of a new queue.
func BenchmarkBurstFresh(b *testing.B) { benchmark(b, burstsFresh()) }

func burstsFresh() []workload {
	return []workload{burstFresh("struct", names), burstFresh("string", texts), burstFresh("int", ints)}
}

func burstFresh[T comparable](key string, keys func(int) []T) workload {
	keys = shared(keys)
	fresh := func(size int, make func() queue[T]) round {
		keys := keys(size)
		return func(w *watch) {
			w.start()
			q := make()
			burst(q, keys)
			w.stop(len(keys))
			q.ShutDown()
		}
	}
	return workload{"key=" + key, 100_000, []contestant{
		{"ours", func(tb testing.TB, size int) round {
			return fresh(size, func() queue[T] { return newOurs[T]() })
		}},
		{"client-go", func(tb testing.TB, size int) round {
			return fresh(size, func() queue[T] { return workqueue.NewTyped[T]() })
		}},
		{"controller-runtime", func(tb testing.TB, size int) round {
			return fresh(size, func() queue[T] { return newControllerRuntime[T]() })
		}},
		{"kwok", func(tb testing.TB, size int) round {
			return fresh(size, func() queue[T] { return newKwok[T]() })
		}},
		{"channel", func(tb testing.TB, size int) round {
			return fresh(size, func() queue[T] { return make(channel[T], size) })
		}},
		{"floor", func(tb testing.TB, size int) round {
			return fresh(size, func() queue[T] { return &floor[T]{m: make(map[T]struct{})} })
		}},
	}}
}

// channel is a buffered channel as a queue.
type channel[T any] chan T

func (c channel[T]) Add(item T) { c <- item }
func (c channel[T]) Get() (T, bool) {
	item, ok := <-c
	return item, !ok
}
func (c channel[T]) Done(T)    {}
func (c channel[T]) ShutDown() { close(c) }

// floor is the least that a burst costs with a mutex, a map and a slice.
type floor[T comparable] struct {
	mu   sync.Mutex
	m    map[T]struct{}
	line []T
	next int
}

func (f *floor[T]) Add(item T) {
	f.mu.Lock()
	f.m[item] = struct{}{}
	f.line = append(f.line, item)
	f.mu.Unlock()
}

func (f *floor[T]) Get() (T, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	item := f.line[f.next]
	if f.next++; f.next == len(f.line) {
		f.line, f.next = f.line[:0], 0
	}
	return item, false
}

func (f *floor[T]) Done(item T) {
	f.mu.Lock()
	delete(f.m, item)
	f.mu.Unlock()
}

func (f *floor[T]) ShutDown() {}

// BenchmarkDuplicateAdd is Add of a key that is ready, as are 999 others. The key that is
// added is equal to the one in the queue, but elsewhere in memory.
func BenchmarkDuplicateAdd(b *testing.B) { benchmark(b, duplicates()) }

func duplicates() []workload {
	return []workload{duplicate("struct", names), duplicate("string", texts), duplicate("int", ints)}
}

func duplicate[T comparable](key string, keys func(int) []T) workload {
	laps := func(size int, q queue[T], lap func(keys []T)) round {
		for _, key := range keys(recurring) {
			q.Add(key)
		}
		keys := keys(recurring)
		lap(keys)
		return func(w *watch) {
			w.start()
			for range size / recurring {
				lap(keys)
			}
			w.stop(size / recurring * recurring)
		}
	}
	return workload{"key=" + key, 400_000, []contestant{
		{"ours", func(tb testing.TB, size int) round {
			q := newOurs[T]()
			return laps(size, q, func(keys []T) {
				for _, key := range keys {
					q.Add(key)
				}
			})
		}},
		{"client-go", func(tb testing.TB, size int) round {
			q := workqueue.NewTyped[T]()
			return laps(size, q, func(keys []T) {
				for _, key := range keys {
					q.Add(key)
				}
			})
		}},
		{"controller-runtime", func(tb testing.TB, size int) round {
			q := newControllerRuntime[T]()
			tb.Cleanup(q.ShutDown)
			return laps(size, q, func(keys []T) {
				for _, key := range keys {
					q.Add(key)
				}
				q.Len() // it buffers what is added; now it has merged it
			})
		}},
	}}
}

// BenchmarkContended is producers, who add one of 1,000 keys after the other, and
// consumers: from the start of the first until all have ended. Keys that come while they
// are ready merge, so a queue whose consumers are slow has less to do; how many items
// were handed out for each Add is a metric of its own. Kwok's queue and the channel merge
// nothing.
func BenchmarkContended(b *testing.B) { benchmark(b, contentions(recurring)) }

// BenchmarkContendedDistinct is the same, but no two keys are equal: everybody hands out
// what was added, all of it.
func BenchmarkContendedDistinct(b *testing.B) { benchmark(b, contentions(0)) }

func contentions(distinct int) []workload {
	var all []workload
	for _, shape := range [][2]int{{2, 2}, {1, 8}, {8, 1}} {
		p, c := shape[0], shape[1]
		all = append(all, contended("struct", p, c, distinct, names), contended("string", p, c, distinct, texts),
			contended("int", p, c, distinct, ints))
	}
	return all
}

// contended has as many keys as distinct says, or one for each Add.
func contended[T comparable](key string, producers, consumers, distinct int, keys func(int) []T) workload {
	keys = shared(keys)
	contend := func(size int, make func() queue[T], drained func(queue[T])) round {
		keys := keys(cmp.Or(distinct, size))
		return func(w *watch) {
			q := make()
			var adding, working sync.WaitGroup
			var handed atomic.Int64
			w.start()
			for range consumers {
				working.Go(func() {
					n := int64(0)
					defer func() { handed.Add(n) }()
					for {
						item, shutdown := q.Get()
						if shutdown {
							return
						}
						q.Done(item)
						n++
					}
				})
			}
			for p := range producers {
				adding.Go(func() {
					k := p * len(keys) / producers
					for range size / producers {
						q.Add(keys[k])
						if k++; k == len(keys) {
							k = 0
						}
					}
				})
			}
			adding.Wait()
			drained(q)
			q.ShutDown()
			working.Wait()
			w.stop(size)
			w.handed = int(handed.Load())
		}
	}
	drains := func(queue[T]) {} // ShutDown leaves the backlog to the consumers
	name := fmt.Sprintf("producers=%d/consumers=%d/key=%s", producers, consumers, key)
	return workload{name, 80_000, []contestant{
		{"ours", func(tb testing.TB, size int) round {
			return contend(size, func() queue[T] { return newOurs[T]() }, drains)
		}},
		{"client-go", func(tb testing.TB, size int) round {
			return contend(size, func() queue[T] { return workqueue.NewTyped[T]() }, drains)
		}},
		{"controller-runtime", func(tb testing.TB, size int) round {
			// Its ShutDown drops the backlog, so that must be gone before.
			return contend(size/4, func() queue[T] { return newControllerRuntime[T]() }, func(q queue[T]) {
				for q.(priorityqueue.PriorityQueue[T]).Len() > 0 {
					time.Sleep(50 * time.Microsecond)
				}
			})
		}},
		{"kwok", func(tb testing.TB, size int) round {
			return contend(size, func() queue[T] { return newKwok[T]() }, drains)
		}},
		{"channel", func(tb testing.TB, size int) round {
			return contend(size, func() queue[T] { return make(channel[T], recurring) }, drains)
		}},
	}}
}

// BenchmarkPark is 200,000 keys that are added to a new queue for later, with differing
// delays of more than an hour, until it has them all in the order in which they are due.
func BenchmarkPark(b *testing.B) { benchmark(b, parks()) }

func parks() []workload {
	return []workload{park("struct", names), park("string", texts), park("int", ints)}
}

// delaying is a queue that can add later.
type delaying[T any] interface {
	queue[T]
	AddAfter(item T, d time.Duration)
}

func newOursDelaying[T comparable]() *typedqueue.DelayingQueue[T] {
	return typedqueue.NewDelayingQueue[T](typedqueue.Options{})
}

// kwokDelaying is kwok's delaying queue. It cannot be shut down: its goroutine ends when
// it next asks the clock for a timer, if it has been stopped.
type kwokDelaying[T comparable] struct {
	kwok.DelayingQueue[T]
	clock *kwokClock
}

func newKwokDelaying[T comparable]() kwokDelaying[T] {
	clock := &kwokClock{stopped: make(chan struct{})}
	return kwokDelaying[T]{kwok.NewDelayingQueue[T](clock), clock}
}

func (q kwokDelaying[T]) Get() (T, bool) {
	item, ok := q.GetOrWaitWithDone(q.clock.stopped)
	return item, !ok
}
func (q kwokDelaying[T]) Done(T) {}
func (q kwokDelaying[T]) ShutDown() {
	close(q.clock.stopped)
	var zero T
	q.AddAfter(zero, time.Hour) // wakes the goroutine
}

type kwokClock struct{ stopped chan struct{} }

func (c *kwokClock) Now() time.Time        { return time.Now() }
func (c *kwokClock) Sleep(d time.Duration) { time.Sleep(d) }
func (c *kwokClock) After(d time.Duration) <-chan time.Time {
	select {
	case <-c.stopped:
		runtime.Goexit()
	default:
	}
	return time.After(d)
}

// waiter is a delaying queue under test.
type waiter[T comparable] struct {
	name string
	make func() delaying[T]

	// accepted returns when all that was added waits in the order in which it is due. It
	// may add and get last.
	accepted func(q delaying[T], last T)
}

func waiters[T comparable]() []waiter[T] {
	atOnce := func(delaying[T], T) {} // AddAfter does not return before
	return []waiter[T]{
		{"ours", func() delaying[T] { return newOursDelaying[T]() }, atOnce},
		{"client-go", func() delaying[T] { return workqueue.NewTypedDelayingQueue[T]() },
			// It passes items through a channel. The last one is due as soon as it comes out
			// there, behind all others.
			func(q delaying[T], last T) {
				q.AddAfter(last, 1)
				q.Get()
				q.Done(last)
			}},
		{"controller-runtime", func() delaying[T] { return newControllerRuntime[T]() },
			// It buffers items. To tell its length it takes them in.
			func(q delaying[T], _ T) { q.(priorityqueue.PriorityQueue[T]).Len() }},
		{"kwok", func() delaying[T] { return newKwokDelaying[T]() }, atOnce},
	}
}

func park[T comparable](key string, keys func(int) []T) workload {
	keys = shared(keys)
	wl := workload{name: "key=" + key, size: 200_000}
	for _, q := range waiters[T]() {
		wl.contestants = append(wl.contestants, contestant{q.name, func(tb testing.TB, size int) round {
			keys := keys(size + 1)
			delays := rand.New(rand.NewPCG(3, 4)).Perm(size)
			return func(w *watch) {
				w.start()
				q, accepted := q.make(), q.accepted
				for i, d := range delays {
					q.AddAfter(keys[i], time.Hour+time.Duration(d)*time.Millisecond)
				}
				accepted(q, keys[size])
				w.stop(size)
				q.ShutDown()
			}
		}})
	}
	return wl
}

// BenchmarkFire is 200,000 keys that wait, and come due within one millisecond, with one
// consumer: from that moment until the last is Done. All wait before it comes; how long
// that took does not count.
func BenchmarkFire(b *testing.B) { benchmark(b, fires()) }

func fires() []workload {
	return []workload{fire("struct", names), fire("string", texts), fire("int", ints)}
}

func fire[T comparable](key string, keys func(int) []T) workload {
	keys = shared(keys)
	wl := workload{name: "key=" + key, size: 200_000}
	for _, q := range waiters[T]() {
		wl.contestants = append(wl.contestants, contestant{q.name, func(tb testing.TB, size int) round {
			keys := keys(size + 1)
			spread := rand.New(rand.NewPCG(3, 4)).Perm(size)
			lead := 20*time.Millisecond + time.Duration(size)*time.Microsecond
			return func(w *watch) {
				for {
					q, accepted := q.make(), q.accepted
					due := time.Now().Add(lead)
					for i, d := range spread {
						at := due.Add(time.Duration(d) * time.Millisecond / time.Duration(size))
						q.AddAfter(keys[i], time.Until(at))
					}
					accepted(q, keys[size])
					runtime.GC()
					if time.Now().Before(due) {
						w.began = due
						for range size {
							item, _ := q.Get()
							q.Done(item)
						}
						w.stop(size)
						q.ShutDown()
						return
					}
					q.ShutDown() // some came due before all waited
					lead *= 2
				}
			}
		}})
	}
	return wl
}

// BenchmarkRetry is a failure: AddRateLimited, Get, Forget, Done of one of 1,000 recurring
// keys. With delay=0 the limiter says not to wait, and the key is ready at once; with
// delay=1ns it takes the way through the delays, and Get sleeps.
func BenchmarkRetry(b *testing.B) { benchmark(b, retries()) }

func retries() []workload {
	return []workload{
		retry("struct", 0, names), retry("string", 0, texts), retry("int", 0, ints),
		retry("struct", 1, names), retry("string", 1, texts), retry("int", 1, ints),
	}
}

type retrying[T any] interface {
	queue[T]
	AddRateLimited(item T)
	Forget(item T)
}

func retry[T comparable](key string, delay time.Duration, keys func(int) []T) workload {
	laps := func(tb testing.TB, size int, q retrying[T]) round {
		tb.Cleanup(q.ShutDown)
		keys := keys(recurring)
		lap := func() {
			for _, key := range keys {
				q.AddRateLimited(key)
				item, _ := q.Get()
				q.Forget(item)
				q.Done(item)
			}
		}
		lap()
		return func(w *watch) {
			w.start()
			for range size / recurring {
				lap()
			}
			w.stop(size / recurring * recurring)
		}
	}
	size := 50_000
	if delay > 0 {
		size = 5_000
	}
	return workload{fmt.Sprintf("delay=%v/key=%s", delay, key), size, []contestant{
		{"ours", func(tb testing.TB, size int) round {
			limiter := typedqueue.NewItemExponentialFailureRateLimiter[T](delay, delay)
			return laps(tb, size, typedqueue.NewRateLimitingQueue(limiter, typedqueue.Options{}))
		}},
		{"client-go", func(tb testing.TB, size int) round {
			limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[T](delay, delay)
			return laps(tb, size, workqueue.NewTypedRateLimitingQueue(limiter))
		}},
		{"controller-runtime", func(tb testing.TB, size int) round {
			limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[T](delay, delay)
			return laps(tb, max(size/10, recurring), priorityqueue.New("", func(o *priorityqueue.Opts[T]) {
				o.RateLimiter = limiter
			}))
		}},
	}}
}

// BenchmarkPriorities is Get, Add with another of ten priorities, and Done, with 1,000 keys
// in the queue. In kwok's weighted queue a weight is a share, not a rank.
func BenchmarkPriorities(b *testing.B) { benchmark(b, priorities()) }

func priorities() []workload {
	return []workload{prioritized("struct", names), prioritized("string", texts), prioritized("int", ints)}
}

func prioritized[T comparable](key string, keys func(int) []T) workload {
	const levels = 10
	laps := func(size int, add func(key T, priority int), get func() T, done func(T)) round {
		for i, key := range keys(recurring) {
			add(key, i%levels)
		}
		again := func(n int) {
			for i := range n {
				item := get()
				add(item, i%levels)
				done(item)
			}
		}
		again(recurring)
		return func(w *watch) {
			w.start()
			again(size)
			w.stop(size)
		}
	}
	return workload{"key=" + key, 50_000, []contestant{
		{"ours", func(tb testing.TB, size int) round {
			q := newOurs[T]()
			return laps(size, q.AddWithPriority, func() T { item, _ := q.Get(); return item }, q.Done)
		}},
		{"controller-runtime", func(tb testing.TB, size int) round {
			q := newControllerRuntime[T]()
			tb.Cleanup(q.ShutDown)
			return laps(size/5, func(key T, priority int) {
				q.AddWithOpts(priorityqueue.AddOpts{Priority: &priority}, key)
			}, func() T { item, _ := q.Get(); return item }, q.Done)
		}},
		{"kwok", func(tb testing.TB, size int) round {
			q := kwok.NewWeightQueue[T]()
			return laps(size, func(key T, priority int) { q.AddWeight(key, priority+1) }, q.GetOrWait, func(T) {})
		}},
	}}
}
