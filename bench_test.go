package typedqueue

import (
	"context"
	"strconv"
	"testing"
	"time"
)

// One benchmark per hot path. Absolute times say little on a shared machine; allocations
// do, and so do ratios of benchmarks in one run.
//
//	go test -run '^$' -bench . -count 10 > new.txt && benchstat new.txt

const recurring = 1000 // keys

func names() []NamespacedName {
	keys := make([]NamespacedName, recurring)
	for i := range keys {
		keys[i] = NamespacedName{"default", "object-" + strconv.Itoa(i)}
	}
	return keys
}

func ints(n int) []int {
	keys := make([]int, n)
	for i := range keys {
		keys[i] = i
	}
	return keys
}

func benchmarkCycle[T comparable](b *testing.B, keys []T) {
	q := NewQueue[T](Options{})
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		q.Add(keys[i])
		item, _ := q.Get()
		q.Done(item)
		i = (i + 1) % len(keys)
	}
}

// BenchmarkCycle is Add, Get and Done of one of 1,000 recurring keys.
func BenchmarkCycle(b *testing.B) {
	b.Run("int", func(b *testing.B) { benchmarkCycle(b, ints(recurring)) })
	b.Run("struct", func(b *testing.B) { benchmarkCycle(b, names()) })
	b.Run("string", func(b *testing.B) {
		keys := make([]string, recurring)
		for i, n := range names() {
			keys[i] = n.String()
		}
		benchmarkCycle(b, keys)
	})
}

// BenchmarkBurst is 100,000 keys in, then out: with Add for each, and with AddAll.
func BenchmarkBurst(b *testing.B) {
	keys := ints(100_000)
	burst := func(add func(q *Queue[int])) func(*testing.B) {
		return func(b *testing.B) {
			q := NewQueue[int](Options{})
			b.ReportAllocs()
			for b.Loop() {
				add(q)
				for range keys {
					item, _ := q.Get()
					q.Done(item)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(keys)), "ns/item")
		}
	}
	b.Run("Add", burst(func(q *Queue[int]) {
		for _, key := range keys {
			q.Add(key)
		}
	}))
	b.Run("AddAll", burst(func(q *Queue[int]) { q.AddAll(keys...) }))
}

// BenchmarkDuplicateAdd is Add of a ready item.
func BenchmarkDuplicateAdd(b *testing.B) {
	q, keys := NewQueue[NamespacedName](Options{}), names()
	q.AddAll(keys...)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		q.Add(keys[i])
		i = (i + 1) % len(keys)
	}
}

// BenchmarkPriorities is the cycle with 10 priorities, and a backlog in each.
func BenchmarkPriorities(b *testing.B) {
	q := NewQueue[int](Options{})
	for _, key := range ints(recurring) {
		q.AddWithPriority(key, key%10)
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		item, _ := q.Get()
		q.AddWithPriority(item, i%10)
		q.Done(item)
		i++
	}
}

// BenchmarkContended is the cycle with 2 producers and as many consumers as procs.
func BenchmarkContended(b *testing.B) {
	q, keys := NewQueue[NamespacedName](Options{}), names()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			q.Add(keys[i%len(keys)])
			if item, ok := q.TryGet(); ok {
				q.Done(item)
			}
		}
	})
}

// BenchmarkAddAfter is AddAfter for an item that is not there, and taking it back, with
// 1,000 others waiting.
func BenchmarkAddAfter(b *testing.B) {
	q := NewDelayingQueue[int](Options{})
	for _, key := range ints(recurring) {
		q.AddAfter(-key-1, time.Hour)
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		q.AddAfter(i, time.Hour)
		q.Cancel(i)
		i = (i + 1) % recurring
	}
}

// BenchmarkRetry is a failure: AddRateLimited, which waits for no time, Get, Forget, Done.
func BenchmarkRetry(b *testing.B) {
	q := NewRateLimitingQueue(NewItemExponentialFailureRateLimiter[int](0, 0), Options{})
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		q.AddRateLimited(i)
		item, _ := q.Get()
		q.Forget(item)
		q.Done(item)
		i = (i + 1) % recurring
	}
}

type benchObject struct {
	name NamespacedName
	node string
}

func benchObjects() []*benchObject {
	objs := make([]*benchObject, recurring)
	for i, n := range names() {
		objs[i] = &benchObject{n, "node-" + strconv.Itoa(i%10)}
	}
	return objs
}

func benchKey(o *benchObject) (NamespacedName, error) { return o.name, nil }

// BenchmarkFIFO is Add and Pop.
func BenchmarkFIFO(b *testing.B) {
	q, objs := NewFIFO(benchKey), benchObjects()
	process := func(NamespacedName, *benchObject, bool) error { return nil }
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		_ = q.Add(objs[i])
		_, _ = q.Pop(context.Background(), process)
		i = (i + 1) % len(objs)
	}
}

// BenchmarkDeltaFIFO is Add and Pop, and a Replace of 1,000 objects, each of them popped.
func BenchmarkDeltaFIFO(b *testing.B) {
	process := func(NamespacedName, Deltas[*benchObject], bool) error { return nil }
	b.Run("Add", func(b *testing.B) {
		q, objs := NewDeltaFIFO(benchKey, DeltaFIFOOptions[NamespacedName, *benchObject]{}), benchObjects()
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			_ = q.Add(objs[i])
			_, _ = q.Pop(context.Background(), process)
			i = (i + 1) % len(objs)
		}
	})
	b.Run("Replace", func(b *testing.B) {
		q, objs := NewDeltaFIFO(benchKey, DeltaFIFOOptions[NamespacedName, *benchObject]{}), benchObjects()
		b.ReportAllocs()
		for b.Loop() {
			_ = q.Replace(objs)
			for range objs {
				_, _ = q.Pop(context.Background(), process)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(objs)), "ns/object")
	})
}
