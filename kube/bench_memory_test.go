package kube_test

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"testing"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// A tank is something that is filled with items, whose memory is measured. Items have
// been made before: neither they nor the bytes of their strings count.
type tank struct {
	name string

	// make returns what adds the i-th item, what returns when all of them are where they
	// stay, and what ends it.
	make func() (add func(i int), settle, stop func())
}

// live returns how many bytes are alive.
func live() uint64 {
	runtime.GC()
	runtime.GC() // what the first found to have a cleanup
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// steps are the sizes at which a tank is measured: n, and then up to twice that, since
// tables and slices grow by leaps.
func steps(n int) []int {
	sizes := make([]int, 9)
	for i := range sizes {
		sizes[i] = n + n*i/8
	}
	return sizes
}

// weigh returns the bytes alive per item with n items, and the most of several sizes from
// n to 2n.
func (t tank) weigh(n int) (at, worst float64) {
	before := live()
	add, settle, stop := t.make()
	defer stop()
	i := 0
	for _, size := range steps(n) {
		for ; i < size; i++ {
			add(i)
		}
		settle()
		perItem := (float64(live()) - float64(before)) / float64(size)
		if size == n {
			at = perItem
		}
		worst = max(worst, perItem)
	}
	return at, worst
}

// weighPeak is weigh for the most that was alive at any time until then, such as an old
// and a new table. The collector runs as soon as the heap has grown by a hundredth, and
// says after each run how much it found alive; that is looked at after every few items,
// and by the clock, for an Add may take longer than a run. What is allocated during a run
// counts as alive, so the tank is filled slowly enough to let that be little.
func (t tank) weighPeak(n int) (at, worst float64) {
	before := live()
	began := time.Now()
	runtime.GC()
	pause := min(time.Since(began)/5, 3*time.Millisecond) // after every 512 items
	defer debug.SetGCPercent(debug.SetGCPercent(1))

	sample := func() float64 {
		found := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(found)
		return float64(found[0].Value.Uint64()) - float64(before)
	}
	end, clocked := make(chan struct{}), make(chan float64)
	go func() {
		most := 0.0
		tick := time.NewTicker(200 * time.Microsecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				most = max(most, sample())
			case clocked <- most:
			case <-end:
				return
			}
		}
	}()
	defer close(end)

	add, settle, stop := t.make()
	defer stop()
	peak, sizes := 0.0, steps(n)
	for i := range 2 * n {
		add(i)
		size := i + 1
		if step := slices.Contains(sizes, size); step {
			settle()
			runtime.GC()
		} else if size%128 != 0 {
			continue
		}
		peak = max(peak, sample(), <-clocked)
		if size%512 == 0 {
			time.Sleep(pause)
		}
		if size == n {
			at = peak / float64(size)
		}
		if size >= n {
			worst = max(worst, peak/float64(size))
		}
	}
	return at, worst
}

// weights is what BenchmarkMemory measures.
func weights(b *testing.B, n int, tanks []tank) {
	values := make([][4][]float64, len(tanks))
	for b.Loop() {
		for i, t := range tanks {
			at, worst := t.weigh(n)
			peak, worstPeak := t.weighPeak(n)
			for j, v := range [4]float64{at, worst, peak, worstPeak} {
				values[i][j] = append(values[i][j], v)
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	for j, what := range [4]string{"", "worst-", "peak-", "worst-peak-"} {
		ours := median(values[0][j])
		for i, t := range tanks {
			bytes := median(values[i][j])
			b.ReportMetric(bytes, t.name+"-"+what+"B/item")
			if i > 0 {
				b.ReportMetric(bytes/ours, t.name+"/ours-"+what+"B")
			}
		}
	}
}

const weighed = 100_000 // items

// BenchmarkMemory is the bytes that an item takes, alone at a size and at the worst of
// several, and at the peak until then:
//
//   - ready: added to a work queue
//   - waiting: added for later
//   - pending: a pod added to a DeltaFIFO
//   - stored: a pod added to a store
func BenchmarkMemory(b *testing.B) {
	b.Run("ready/key=struct", func(b *testing.B) { weights(b, weighed, readyTanks(names(2*weighed))) })
	b.Run("ready/key=string", func(b *testing.B) { weights(b, weighed, readyTanks(texts(2*weighed))) })
	b.Run("ready/key=int", func(b *testing.B) { weights(b, weighed, readyTanks(ints(2*weighed))) })
	b.Run("waiting/key=struct", func(b *testing.B) { weights(b, weighed, waitingTanks(names(2*weighed+1))) })
	b.Run("waiting/key=string", func(b *testing.B) { weights(b, weighed, waitingTanks(texts(2*weighed+1))) })
	b.Run("waiting/key=int", func(b *testing.B) { weights(b, weighed, waitingTanks(ints(2*weighed+1))) })
	b.Run("pending", func(b *testing.B) { weights(b, weighed, pendingTanks(pods(2*weighed))) })
	b.Run("stored/indexes=0", func(b *testing.B) { weights(b, weighed, storeTanks(pods(2*weighed), false)) })
	b.Run("stored/indexes=2", func(b *testing.B) { weights(b, weighed, storeTanks(pods(2*weighed), true)) })
}

func readyTanks[T comparable](keys []T) (tanks []tank) {
	for _, m := range queues[T]() {
		tanks = append(tanks, tank{m.name, func() (func(int), func(), func()) {
			q := m.make()
			return func(i int) { q.Add(keys[i]) }, func() { settle(q) }, q.ShutDown
		}})
	}
	return tanks
}

// settle returns when q has taken in all that was added.
func settle[T any](q queue[T]) {
	if q, ok := q.(interface{ Len() int }); ok {
		q.Len() // takes in what controller-runtime has buffered
	}
}

func waitingTanks[T comparable](keys []T) (tanks []tank) {
	last := len(keys) - 1
	for _, m := range waiters[T]() {
		tanks = append(tanks, tank{m.name, func() (func(int), func(), func()) {
			q := m.make()
			// Not all the same, and not in order.
			add := func(i int) { q.AddAfter(keys[i], time.Hour+time.Duration(i*7919%len(keys))*time.Millisecond) }
			return add, func() { m.accepted(q, keys[last]) }, q.ShutDown
		}})
	}
	return tanks
}

func pendingTanks(pods []*pod) (tanks []tank) {
	for _, m := range deltaFIFOs() {
		tanks = append(tanks, tank{m.name, func() (func(int), func(), func()) {
			q := m.make(nil)
			return func(i int) { q.add(pods[i]) }, func() {}, func() { runtime.KeepAlive(q) }
		}})
	}
	return tanks
}

func storeTanks(pods []*pod, indexed bool) (tanks []tank) {
	for _, m := range storeMakers() {
		tanks = append(tanks, tank{m.name, func() (func(int), func(), func()) {
			s := m.make(nil, indexed)
			return func(i int) { s.add(pods[i]) }, func() {}, func() { runtime.KeepAlive(s) }
		}})
	}
	return tanks
}

// BenchmarkKept is what is still alive after a burst of 1,000,000 keys that have been
// added, handed out and done, in KiB.
func BenchmarkKept(b *testing.B) {
	b.Run("key=struct", func(b *testing.B) { keptOf(b, names(1_000_000)) })
	b.Run("key=string", func(b *testing.B) { keptOf(b, texts(1_000_000)) })
	b.Run("key=int", func(b *testing.B) { keptOf(b, ints(1_000_000)) })
}

func keptOf[T comparable](b *testing.B, keys []T) {
	makers := queues[T]()
	values := make([][]float64, len(makers))
	for b.Loop() {
		for i, m := range makers {
			values[i] = append(values[i], leftBehind(m.make(), keys))
		}
	}
	b.ReportMetric(0, "ns/op")
	for i, m := range makers {
		b.ReportMetric(median(values[i]), m.name+"-kept-KiB")
	}
}

// leftBehind returns how many KiB stay alive after a burst of q.
func leftBehind[T comparable](q queue[T], keys []T) float64 {
	before := live()
	burst(q, keys)
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	q.ShutDown()
	return max(0, float64(m.HeapAlloc)-float64(before)) / 1024
}

// queueMaker makes a work queue under test.
type queueMaker[T comparable] struct {
	name string
	make func() queue[T]
}

func queues[T comparable]() []queueMaker[T] {
	return []queueMaker[T]{
		{"ours", func() queue[T] { return newOurs[T]() }},
		{"client-go", func() queue[T] { return workqueue.NewTyped[T]() }},
		{"controller-runtime", func() queue[T] { return newControllerRuntime[T]() }},
		{"kwok", func() queue[T] { return newKwok[T]() }},
	}
}
