package kube_test

import (
	"testing/synctest"
	"time"

	"k8s.io/client-go/util/workqueue"
)

func whenMetering() []scenario {
	all := []scenario{{
		does: "Get a; Add a; the depth, and Len",
		rule: "Q11",
		want: "depth 0, Len 0",
		why: "Depth is what Len says, and Len is what a worker could get now. client-go's depth counts " +
			"an item that is dirty while it is processing, its Len does not; controller-runtime counts it in both. " +
			"An alert on depth sees a little less.",
		do: func(r *trial) {
			r.add("a")
			r.take(1)
			r.add("a")
			r.publish()
			r.note("depth %v, Len %d", r.meter.depth.get(), r.queue.Len())
		},
	}, {
		does: "Add a, Done a, which nobody has got; Get twice",
		rule: "Q5, Q11",
		want: "depth 0, Len 0",
		why:  "In client-go the second copy was never counted, and a dashboard shows less than nothing.",
		do: func(r *trial) {
			r.add("a")
			r.done("a")
			r.take(1)
			if r.queue.Len() > 0 {
				r.take(1)
			}
			r.publish()
			r.note("depth %v, Len %d", r.meter.depth.get(), r.queue.Len())
		},
	}, {
		does: "Add a, Get after 2 s, Done after 3 s; latency and work, in s; adds",
		rule: "metrics",
		want: "2, 3; 1",
		do: func(r *trial) {
			r.add("a")
			r.pass(2 * time.Second)
			r.take(1)
			r.pass(3 * time.Second)
			r.done("a")
			r.publish()
			r.note("%v, %v; %v", r.meter.latency.get(), r.meter.work.get(), r.meter.adds.get())
		},
	}, {
		does: "AddAfter a, 1 s; depth and adds; the same a second later",
		rule: "Q11, T5",
		want: "depth 0, adds 0; depth 1, adds 1",
		do: func(r *trial) {
			r.after(time.Second, "a")
			for i := range 2 {
				r.pass(time.Duration(i) * time.Second)
				r.queue.Len() // when controller-runtime counts
				r.publish()
				r.note("depth %v, adds %v", r.meter.depth.get(), r.meter.adds.get())
			}
		},
	}, {
		does: "Get a; Get b a second later; longest running processor and unfinished work after another, in s",
		rule: "metrics",
		want: "2, 3",
		do: func(r *trial) {
			for _, item := range []string{"a", "b"} {
				r.add(item)
				r.take(1)
				r.pass(time.Second)
			}
			r.publish()
			r.note("%v, %v", r.meter.longest.get(), r.meter.unfinished.get())
		},
	}, {
		does: "Get a; unfinished work 0.7 s later, in s",
		rule: "metrics",
		want: "0.7",
		why:  "Ours are what is so when somebody looks. Theirs are set every half second, by a goroutine for each queue.",
		do: func(r *trial) {
			r.add("a")
			r.take(1)
			r.pass(700 * time.Millisecond)
			r.publish()
			r.note("%v", r.meter.unfinished.get())
		},
	}, {
		does: "Get a; 1 s; ShutDown; Done a; unfinished work a minute later, in s",
		rule: "metrics",
		want: "0",
		why:  "Theirs freeze at shutdown: an alert for workers that hang goes on.",
		do: func(r *trial) {
			r.add("a")
			r.take(1)
			r.pass(time.Second)
			r.queue.ShutDown()
			r.done("a")
			r.pass(time.Minute)
			r.publish()
			r.note("%v", r.meter.unfinished.get())
		},
	}, {
		does: "AddAfter a, 1 s; AddRateLimited b; AddAfter c, 0 s; retries",
		rule: "metrics",
		want: "1",
		why: "Ours counts AddRateLimited, when it asks the limiter; client-go every call of AddAfter as well; " +
			"controller-runtime what is delayed. An alert on retries sees fewer.",
		do: func(r *trial) {
			r.after(time.Second, "a")
			r.retry("b")
			r.after(0, "c")
			r.publish()
			r.note("%v", r.meter.retries.get())
		},
	}, {
		does: "Get, while the metric for the latency calls Len",
		rule: "locks",
		want: "Len answers",
		why:  "Theirs report with the lock held: such a call would never return.",
		do: func(r *trial) {
			r.meter.latency.then = func() { r.note("Len %s", reach(func() { r.queue.Len() })) }
			r.add("a")
			r.take(1)
		},
	}, {
		does: "goroutines of a new queue with metrics",
		rule: "goroutines",
		want: "0",
		why:  "Nothing ticks. A Publisher's Run is a goroutine if you make it one.",
		do: func(r *trial) {
			before := goroutines()
			r.another("pods", r.limiter, r.meter)
			r.note("%d", goroutines()-before)
		},
	}}
	for i := range all {
		all[i].metered = true
	}
	return append(all, scenario{
		does: "workqueue.SetProvider, twice; a queue with a name after each, and an Add; adds that each provider saw",
		rule: "metrics",
		want: "1, 1",
		why: "client-go's provider is the process's, and the first wins: here controller-runtime's, which is set " +
			"where that package is imported. Ours is given to a queue, as is the MetricsProvider of a configuration.",
		do: func(r *trial) {
			var meters [2]meter
			for i := range meters {
				workqueue.SetProvider(&meters[i])
				var own workqueue.MetricsProvider
				if r.side.name == ours.name {
					own = &meters[i]
				}
				m := r.another("pods", r.limiter, own)
				m.queue.Add("a")
				synctest.Wait()
				m.publish()
			}
			r.note("%v, %v", meters[0].adds.get(), meters[1].adds.get())
		},
	})
}
