package kube_test

import (
	"math"
	"time"

	"golang.org/x/time/rate"
)

// ask returns the last of n answers about one item.
func ask(l anyLimiter, n int) (last time.Duration) {
	for range n {
		last = l.When("a")
	}
	return last
}

func whenLimiting() []scenario {
	return without([]side{controllerRuntime}, []scenario{{ // which takes client-go's
		does: "exponential, 5 ms to 1000 s: failures 1, 2, 18, 19, 100",
		rule: "R1",
		want: "5ms 10ms 10m55.36s 16m40s 16m40s",
		do: func(r *trial) {
			l := r.exponential(5*time.Millisecond, 1000*time.Second)
			r.note("%v %v %v %v %v", ask(l, 1), ask(l, 1), ask(l, 16), ask(l, 1), ask(l, 81))
		},
	}, {
		does: "exponential, 1 ns to 292 years: failures 63, 64, 65",
		rule: "R1",
		want: "1281023h53m38.427387904s 2562047h47m16.854775807s 2562047h47m16.854775807s",
		why: "client-go calculates in floating point, and 2^63 passes its check: on amd64 the delay is " +
			"negative, which means at once. Ours doubles integers.",
		do: func(r *trial) {
			l := r.exponential(1, math.MaxInt64)
			r.note("%v %v %v", ask(l, 63), ask(l, 1), ask(l, 1))
		},
	}, {
		does: "exponential, 0 to 1 s: failures 1 and 1100",
		rule: "R1",
		want: "0s 0s",
		why:  "In client-go 0 times infinity is not a number, and what that is as a delay depends on the processor.",
		do: func(r *trial) {
			l := r.exponential(0, time.Second)
			r.note("%v %v", ask(l, 1), ask(l, 1099))
		},
	}, {
		does: "fast and slow, 1 ms, 1 s, 2: failures 1 to 3, and after Forget",
		rule: "R3, R5",
		want: "1ms 1ms 1s; NumRequeues 3; 1ms",
		do: func(r *trial) {
			l := r.fastSlow(time.Millisecond, time.Second, 2)
			r.note("%v %v %v", ask(l, 1), ask(l, 1), ask(l, 1))
			r.note("NumRequeues %d", l.NumRequeues("a"))
			l.Forget("a")
			r.note("%v", ask(l, 1))
		},
	}, {
		does: "bucket, 10 a second, burst 2: calls 1 to 4",
		rule: "R3",
		want: "0s 0s 100ms 200ms; NumRequeues 0",
		do: func(r *trial) {
			l := r.bucket(rate.NewLimiter(10, 2))
			r.note("%v %v %v %v", ask(l, 1), ask(l, 1), ask(l, 1), ask(l, 1))
			r.note("NumRequeues %d", l.NumRequeues("a"))
		},
	}, {
		does: "longest of exponential 1 s and bucket of 1 a minute, burst 1, at most 30 s: failures 1, 2, 3",
		rule: "R3",
		want: "1s 30s 30s; NumRequeues 3, after Forget 0",
		do: func(r *trial) {
			l := r.maxWait(r.maxOf(
				r.exponential(time.Second, time.Hour), r.bucket(rate.NewLimiter(1./60, 1)),
			), 30*time.Second)
			r.note("%v %v %v", ask(l, 1), ask(l, 1), ask(l, 1))
			n := l.NumRequeues("a")
			l.Forget("a")
			r.note("NumRequeues %d, after Forget %d", n, l.NumRequeues("a"))
		},
	}, {
		does: "the default limiter: first failures of 100,000 items, the last of them",
		rule: "R2",
		want: "16m40s",
		why: "The bucket, 10 a second over all items, has no limit in client-go's. Ours never answers with more than " +
			"1000 s. For the old one, give the queue client-go's limiter, or make it of NewMaxOfRateLimiter.",
		do: func(r *trial) {
			l := r.defaults()
			var last time.Duration
			for i := range 100_000 {
				last = l.When(i)
			}
			r.note("%v", last)
		},
	}, {
		does: "a bucket with a burst of 0",
		rule: "bad input",
		want: "panics: typedqueue: a limiter with rate 10 and burst 0 never lets anything pass",
		why:  "In client-go the item is as good as lost: it waits for 292 years.",
		do: func(r *trial) {
			r.note("%v", ask(r.bucket(rate.NewLimiter(10, 0)), 1))
		},
	}, {
		does: "exponential with a base of -1 s",
		rule: "bad input",
		want: "panics: typedqueue: base is negative: -1s",
		why:  "A negative delay is none, so in client-go each failure is tried again at once.",
		do: func(r *trial) {
			r.note("%v", ask(r.exponential(-time.Second, time.Second), 1))
		},
	}, {
		does: "longest of no limiters",
		rule: "bad input",
		want: "panics: typedqueue: no limiters",
		why:  "In client-go it never delays.",
		do: func(r *trial) {
			r.note("%v", ask(r.maxOf(), 1))
		},
	}})
}
