package kube_test

import (
	"math"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"
)

func whenUsing() []scenario {
	return []scenario{{
		does: "goroutines of a new queue, and of one that has items waiting",
		rule: "goroutines",
		want: "0, 0",
		why:  "Ours has one timer, and only while something waits.",
		do: func(r *trial) {
			before := goroutines()
			m := r.another("", r.limiter, nil)
			fresh := goroutines() - before
			m.queue.AddAfter("a", time.Hour)
			synctest.Wait()
			r.note("%d, %d", fresh, goroutines()-before)
		},
	}, {
		does: "a queue with an item waiting is dropped, without ShutDown",
		rule: "goroutines",
		want: "collected",
		why:  "Nobody could get what becomes due. Theirs are kept alive by their goroutines.",
		do: func(r *trial) {
			r.note("%s", fate(r.dropWaiting()))
		},
	}, {
		does: "three items have waited, run, and are gone",
		rule: "Q9",
		want: "collected",
		why:  "The slots that client-go's heap has popped still hold them.",
		do: func(r *trial) {
			r.note("%s", fate(r.runWaiting()...))
		},
	}, {
		does: "50,000 items have come and gone: memory that is left",
		rule: "Q9",
		want: "less than 100 KB",
		why:  "The memory of a burst is given back. Go's maps, and the slices of the others, stay as large as they ever were.",
		do: func(r *trial) {
			before := heapInUse()
			r.burst(50_000)
			r.note("%s", class(heapInUse()-before))
			runtime.KeepAlive(r.queue)
		},
	}, {
		does: "Add, Get, Done of one item, again and again: allocations",
		rule: "Q9",
		want: "none",
		why:  "Ours uses the entries of items that have gone. client-go's slice moves on in memory with each item.",
		do: func(r *trial) {
			var item any = "a"
			n := testing.AllocsPerRun(1000, func() {
				r.queue.Add(item)
				got, _ := r.queue.Get()
				r.queue.Done(got)
			})
			if n == 0 {
				r.note("none")
			} else {
				r.note("some")
			}
		},
	}}
}

// dropWaiting makes a queue in which an item waits, and forgets it.
//
//go:noinline
func (r *trial) dropWaiting() weak.Pointer[payload] {
	m := r.another("", new(countingLimiter), nil)
	item := new(payload)
	m.queue.AddAfter(item, time.Hour)
	synctest.Wait()
	return weak.Make(item)
}

// runWaiting has three items wait, become due, run, and go.
//
//go:noinline
func (r *trial) runWaiting() (gone []weak.Pointer[payload]) {
	for range 3 {
		item := new(payload)
		gone = append(gone, weak.Make(item))
		r.after(time.Second, item)
	}
	r.pass(time.Second)
	for range gone {
		item, _ := r.queue.Get()
		r.done(item)
	}
	return gone
}

// payload is large enough to have a place of its own in memory.
type payload [64]byte

func fate(items ...weak.Pointer[payload]) string {
	for range 3 {
		runtime.GC()
		synctest.Wait()
	}
	for _, item := range items {
		if item.Value() != nil {
			return "kept"
		}
	}
	return "collected"
}

// burst adds n items and then works on each.
//
//go:noinline
func (r *trial) burst(n int) {
	for i := range n {
		r.queue.Add(i)
	}
	for range n {
		item, _ := r.queue.Get()
		r.queue.Done(item)
	}
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC() // what has been swept
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func class(bytes int64) string {
	switch {
	case bytes < 100<<10:
		return "less than 100 KB"
	case bytes < 1<<20:
		return "less than 1 MiB"
	}
	return "more than 1 MiB"
}

func whenMisused() []scenario {
	return []scenario{{
		does: "Add NaN; Get, Done; ShutDownWithDrain",
		rule: "Q10",
		want: "panics: typedqueue: key NaN is not equal to itself; Len 0; the drain returned",
		why: "Nothing finds it again: client-go never gets it out of its sets. Ours panics in who passes it, before " +
			"anything has changed.",
		do: func(r *trial) {
			r.addBad(math.NaN())
			if r.queue.Len() > 0 {
				r.work(1)
			}
			r.note("the drain %s", begin(r.queue.ShutDownWithDrain).state())
		},
	}, {
		does:   "Add of a slice, as an any",
		rule:   "Q10",
		want:   "panics: typedqueue: key of type []int holds something that cannot be hashed; Len 0",
		why:    "controller-runtime takes it in, and dies of it in a goroutine of its own.",
		deadly: true,
		do:     func(r *trial) { r.addBad([]int{1}) },
	}, {
		does:   "AddAfter of a slice, as an any, 1 s",
		rule:   "Q10",
		want:   "panics: typedqueue: key of type []int holds something that cannot be hashed; Len 0",
		why:    "Theirs die of it in a goroutine of their own.",
		deadly: true,
		do: func(r *trial) {
			r.note("%s", attempt(func() { r.after(time.Second, []int{1}) }))
			r.note("Len %d", r.queue.Len())
		},
	}}
}

func (r *trial) addBad(item any) {
	if panics := attempt(func() { r.add(item) }); panics != "" {
		r.note("%s", panics)
	}
	r.note("Len %d", r.queue.Len())
}
