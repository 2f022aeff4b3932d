package wakeups

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/exp/stats"

	"example.com/typedqueue"
)

// The benchmarks here compare a Queue with what one would write without it: a buffered channel,
// and a slice under a sync.Cond. What they tell depends on the machine, so the figures that
// count are those side by side, taken in turns in one process; nothing fails because of any.
//
//	go test -run '^$' -bench . -benchtime 20000x ./wakeups

// handover is a way to hand items to getters.
type handover struct {
	send func(item int)
	get  func(work func(item int)) (ok bool) // blocks for one; not ok after end
	end  func()
}

var handovers = []struct {
	name string
	make func() handover
}{
	{"queue", throughQueue}, {"chan", throughChannel}, {"cond", throughCond},
}

func throughQueue() handover {
	q := typedqueue.NewQueue[int](typedqueue.Options{})
	return handover{
		send: q.Add,
		get: func(work func(int)) bool {
			item, shutdown := q.Get()
			if !shutdown {
				work(item)
				q.Done(item)
			}
			return !shutdown
		},
		end: q.ShutDown,
	}
}

func throughChannel() handover {
	c := make(chan int, heavy)
	return handover{
		send: func(item int) { c <- item },
		get: func(work func(int)) bool {
			item, ok := <-c
			if ok {
				work(item)
			}
			return ok
		},
		end: func() { close(c) },
	}
}

func throughCond() handover {
	var (
		mu    sync.Mutex
		items []int
		ended bool
	)
	change := sync.NewCond(&mu)
	return handover{
		send: func(item int) {
			mu.Lock()
			items = append(items, item)
			mu.Unlock()
			change.Signal()
		},
		get: func(work func(int)) bool {
			mu.Lock()
			for len(items) == 0 && !ended {
				change.Wait()
			}
			if len(items) == 0 {
				mu.Unlock()
				return false
			}
			item := items[0]
			items = items[1:]
			mu.Unlock()
			work(item)
			return true
		},
		end: func() {
			mu.Lock()
			ended = true
			mu.Unlock()
			change.Broadcast()
		},
	}
}

// A load is how many items are on their way at most. With one, the others than its getter
// sleep; with many, few do.
const (
	light = 1
	heavy = 64
)

var loads = []struct {
	name string
	load int
}{{"light", light}, {"heavy", heavy}}

// deliver sends items 0 to n-1 to as many getters as there are workers. Each of these calls
// took when it has got one.
func deliver(h handover, n, load int, sends func(item int), took func(getter, item int)) {
	var begun, getters, senders sync.WaitGroup
	underWay := make(chan bool, load)
	begun.Add(workers)
	for g := range workers {
		getters.Go(func() {
			begun.Done()
			for h.get(func(item int) { took(g, item); <-underWay }) {
			}
		})
	}
	begun.Wait()
	var next atomic.Int64
	for range min(load, 4) {
		senders.Go(func() {
			for item := next.Add(1) - 1; item < int64(n); item = next.Add(1) - 1 {
				underWay <- true
				sends(int(item))
				h.send(int(item))
			}
		})
	}
	senders.Wait()
	h.end()
	getters.Wait()
}

// BenchmarkLatency tells how long an item takes from Add to Get: quantiles for a Queue, and
// how many times those of the others that is.
func BenchmarkLatency(b *testing.B) {
	const round = 2000 // items through one, then as many through the next
	for _, l := range loads {
		b.Run(l.name, func(b *testing.B) {
			took := map[string][]float64{}
			for left := b.N; left > 0; left -= round {
				for _, h := range handovers {
					took[h.name] = append(took[h.name], latencies(h.make(), min(left, round), l.load)...)
				}
			}
			of := func(name string) []float64 {
				slices.Sort(took[name])
				return stats.Quantiles(took[name], 0.5, 0.9, 0.99, 1)
			}
			queue, channel, cond := of("queue"), of("chan"), of("cond")
			b.ReportMetric(0, "ns/op")
			for i, q := range []string{"p50", "p90", "p99", "max"} {
				b.ReportMetric(queue[i], q+"-ns")
				b.ReportMetric(queue[i]/channel[i], q+"/chan")
				b.ReportMetric(queue[i]/cond[i], q+"/cond")
			}
		})
	}
}

// latencies returns how long each of n items took, in nanoseconds.
func latencies(h handover, n, load int) []float64 {
	start := time.Now()
	sent, took := make([]time.Duration, n), make([]float64, n)
	deliver(h, n, load,
		func(item int) { sent[item] = time.Since(start) },
		func(_, item int) { took[item] = float64(time.Since(start) - sent[item]) })
	return took
}

// BenchmarkFairness tells how even the shares of the getters are, the least, the median and the
// greatest, where 1 is an equal share; and the most items in a row of which one got none.
func BenchmarkFairness(b *testing.B) {
	for _, l := range loads {
		for _, h := range handovers {
			b.Run(l.name+"/"+h.name, func(b *testing.B) {
				var (
					mu            sync.Mutex
					turn, satOut  int
					last          [workers]int
					shares, equal = make([]float64, workers), float64(b.N) / workers
				)
				deliver(h.make(), b.N, l.load, func(int) {}, func(getter, _ int) {
					mu.Lock()
					defer mu.Unlock()
					turn++
					satOut = max(satOut, turn-last[getter]-1)
					last[getter] = turn
					shares[getter] += 1 / equal
				})
				for _, t := range last {
					satOut = max(satOut, turn-t)
				}
				q := stats.Quantiles(shares, 0, 0.5, 1)
				b.ReportMetric(q[0], "share-min")
				b.ReportMetric(q[1], "share-p50")
				b.ReportMetric(q[2], "share-max")
				b.ReportMetric(float64(satOut), "sat-out")
			})
		}
	}
}
