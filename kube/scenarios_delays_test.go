package kube_test

import (
	"math"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

func whenDelaying() []scenario {
	return []scenario{{
		does: "AddAfter a, 1 s",
		rule: "T4",
		want: "Len a nanosecond before that 0, then 1",
		do: func(r *trial) {
			r.after(time.Second, "a")
			r.pass(time.Second - 1)
			before := r.queue.Len()
			r.pass(1)
			r.note("Len a nanosecond before that %d, then %d", before, r.queue.Len())
		},
	}, {
		does: "AddAfter a: 2 s, 1 s, 3 s, 1 s",
		rule: "T1",
		want: "after 1 s: a; after 3 s: nothing",
		do: func(r *trial) {
			for _, s := range []int{2, 1, 3, 1} {
				r.after(time.Duration(s)*time.Second, "a")
			}
			r.pass(time.Second)
			r.note("after 1 s: %s", r.work(1))
			r.pass(2 * time.Second)
			r.note("after 3 s: %s", r.take(1))
		},
	}, {
		does: "AddAfter a, 10 s; AddAfter b, 1 s",
		rule: "T4",
		want: "after 1 s: b; after 10 s: a",
		do: func(r *trial) {
			r.after(10*time.Second, "a")
			r.after(time.Second, "b")
			r.pass(time.Second)
			r.note("after 1 s: %s", r.work(1))
			r.pass(9 * time.Second)
			r.note("after 10 s: %s", r.take(1))
		},
	}, {
		does: "AddAfter with a delay of -1, 0, and 292 years",
		rule: "T1",
		want: "a b nothing",
		do: func(r *trial) {
			r.after(-1, "a")
			r.after(0, "b")
			r.after(math.MaxInt64, "c")
			r.pass(time.Hour)
			r.note("%s", r.take(3))
		},
	}, {
		does: "AddAfter a, 1 s; Add a, Get, Done",
		rule: "T2",
		want: "a; a second later: nothing",
		why: "An Add ends the wait, so that an item does not run twice for one reason. To have it run " +
			"both times, ask again from the worker: AddAfter of an item in processing waits beside it.",
		do: func(r *trial) {
			r.after(time.Second, "a")
			r.add("a")
			r.note("%s", r.work(1))
			r.pass(time.Second)
			r.note("a second later: %s", r.take(1))
		},
	}, {
		does: "AddAfter a, 1 s; AddAfter a with delay 0, Get, Done",
		rule: "T1, T2",
		want: "a; a second later: nothing",
		why:  "A delay of 0 or less is an Add.",
		do: func(r *trial) {
			r.after(time.Second, "a")
			r.after(0, "a")
			r.note("%s", r.work(1))
			r.pass(time.Second)
			r.note("a second later: %s", r.take(1))
		},
	}, {
		does: "Add a; AddAfter a, 1 s; Get, Done",
		rule: "T1",
		want: "a; a second later: a",
		why: "An AddAfter of an item that is ready waits beside it: somebody wants it looked at then. " +
			"controller-runtime drops it, or not, depending on how quick the workers are.",
		do: func(r *trial) {
			r.add("a")
			r.after(time.Second, "a")
			r.note("%s", r.work(1))
			r.pass(time.Second)
			r.note("a second later: %s", r.take(1))
		},
	}, {
		does: "Add a; AddAfter a, 1 s; Get after that",
		rule: "T1",
		want: "a nothing",
		do: func(r *trial) {
			r.add("a")
			r.after(time.Second, "a")
			r.pass(time.Second)
			r.note("%s", r.work(2))
		},
	}, {
		does: "Get a; AddAfter a, 1 s; Done after that",
		rule: "T1, Q3",
		want: "before Done: nothing; after: a",
		do: func(r *trial) {
			r.add("a")
			r.take(1)
			r.after(time.Second, "a")
			r.pass(time.Second)
			r.note("before Done: %s", r.take(1))
			r.done("a")
			r.note("after: %s", r.take(1))
		},
	}, {
		does: "AddAfter a, b, c, d, e, all 1 s at one time",
		rule: "T3",
		want: "a b c d e",
		why:  "Equal times come first in, first out. In client-go they come as its heap has them.",
		do: func(r *trial) {
			r.after(time.Second, "a", "b", "c", "d", "e")
			r.pass(time.Second)
			r.note("%s", r.take(5))
		},
	}, {
		does: "AddAfter a, 2 s; b, 1 s; a, 1 s",
		rule: "T3",
		want: "b a",
		why:  "An item whose time moves waits anew. In controller-runtime it keeps the place of its first AddAfter.",
		do: func(r *trial) {
			r.after(2*time.Second, "a")
			r.after(time.Second, "b")
			r.after(time.Second, "a")
			r.pass(time.Second)
			r.note("%s", r.take(2))
		},
	}}
}

func whenRetrying() []scenario {
	return []scenario{{
		does: "AddRateLimited a while nobody has it, three times",
		rule: "R4",
		want: "limiter asked 1; a second later: a nothing",
		why: "A call that merges is no failure, so it is not charged, and the back-off does not grow. " +
			"To charge each call, ask the limiter yourself, and call AddAfter.",
		do: func(r *trial) {
			r.retry("a", "a", "a")
			r.note("limiter asked %d", r.queue.NumRequeues("a"))
			r.pass(time.Second)
			r.note("a second later: %s", r.work(2))
		},
	}, {
		does: "Add a, AddRateLimited a; Get, Done",
		rule: "R4",
		want: "limiter asked 0; a; a second later: nothing",
		why:  "What is ready runs anyhow. client-go runs it twice, and charges for it; controller-runtime only charges.",
		do: func(r *trial) {
			r.add("a")
			r.retry("a")
			r.note("limiter asked %d", r.queue.NumRequeues("a"))
			r.note("%s", r.work(1))
			r.pass(time.Second)
			r.note("a second later: %s", r.take(1))
		},
	}, {
		does: "Get a, AddRateLimited a, Done",
		rule: "R4",
		want: "limiter asked 1; nothing; a second later: a",
		do: func(r *trial) {
			r.add("a")
			r.take(1)
			r.retry("a")
			r.done("a")
			r.note("limiter asked %d", r.queue.NumRequeues("a"))
			r.note("%s", r.take(1))
			r.pass(time.Second)
			r.note("a second later: %s", r.take(1))
		},
	}, {
		does: "Get a, AddRateLimited a twice, Done",
		rule: "R4",
		want: "limiter asked 2; a second later: a nothing",
		do: func(r *trial) {
			r.add("a")
			r.take(1)
			r.retry("a", "a")
			r.done("a")
			r.note("limiter asked %d", r.queue.NumRequeues("a"))
			r.pass(time.Second)
			r.note("a second later: %s", r.work(2))
		},
	}, {
		does: "AddAfter a, 10 s; AddRateLimited a",
		rule: "R4, T1",
		want: "limiter asked 1; after 1 s: a; after 10 s: nothing",
		do: func(r *trial) {
			r.after(10*time.Second, "a")
			r.retry("a")
			r.note("limiter asked %d", r.queue.NumRequeues("a"))
			r.pass(time.Second)
			r.note("after 1 s: %s", r.work(1))
			r.pass(9 * time.Second)
			r.note("after 10 s: %s", r.take(1))
		},
	}, {
		does: "ShutDown, AddRateLimited a",
		rule: "R4",
		want: "limiter asked 0",
		why:  "client-go asks it before it looks, so a token of a shared bucket, and a failure, are spent for nothing.",
		do: func(r *trial) {
			r.queue.ShutDown()
			r.retry("a")
			r.note("limiter asked %d", r.queue.NumRequeues("a"))
		},
	}, {
		does: "AddRateLimited a, Forget a",
		rule: "R5",
		want: "NumRequeues 0; a second later: a",
		do: func(r *trial) {
			r.retry("a")
			r.queue.Forget("a")
			r.note("NumRequeues %d", r.queue.NumRequeues("a"))
			r.pass(time.Second)
			r.note("a second later: %s", r.take(1))
		},
	}, {
		does: "AddRateLimited with a limiter that calls Len",
		rule: "locks",
		want: "Len answers",
		why:  "controller-runtime asks the limiter with its lock held. No function of a caller's runs under a lock of ours.",
		do: func(r *trial) {
			r.limiter.when = func() { r.note("Len %s", reach(func() { r.queue.Len() })) }
			r.retry("a")
		},
	}, {
		does:   "AddRateLimited with a limiter that panics; then Len",
		rule:   "locks",
		want:   "panics: no; Len 0",
		why:    "controller-runtime asks the limiter in a goroutine of its own, where nobody can recover.",
		deadly: true,
		do: func(r *trial) {
			r.limiter.when = func() { panic("no") }
			r.note("%s", attempt(func() { r.retry("a") }))
			r.note("Len %d", r.queue.Len())
		},
	}}
}

func whenPrioritizing() []scenario {
	at := func(p int) priorityqueue.AddOpts { return priorityqueue.AddOpts{Priority: new(p)} }
	all := []scenario{{
		does: "Add a; b with 1, c with 1, d with -1",
		rule: "Q1",
		want: "b(1) c(1) a(0) d(-1)",
		do: func(r *trial) {
			r.add("a")
			r.with(at(1), "b", "c")
			r.with(at(-1), "d")
			r.note("%s", r.take(4))
		},
	}, {
		does: "Add a; b with 5; a with 5, b with 1",
		rule: "Q1",
		want: "b(5) a(5)",
		do: func(r *trial) {
			r.add("a")
			r.with(at(5), "b")
			r.with(at(5), "a")
			r.with(at(1), "b")
			r.note("%s", r.take(2))
		},
	}, {
		does: "Add a, b; AddAfter c with 1, 1 s; a second later",
		rule: "Q1",
		want: "c(1) a(0) b(0)",
		do: func(r *trial) {
			r.add("a", "b")
			r.with(priorityqueue.AddOpts{After: time.Second, Priority: new(1)}, "c")
			r.pass(time.Second)
			r.note("%s", r.take(3))
		},
	}, {
		does: "Get a(5), Add a, Done",
		rule: "Q4",
		want: "a(0)",
		do: func(r *trial) {
			r.with(at(5), "a")
			r.take(1)
			r.add("a")
			r.done("a")
			r.note("%s", r.take(1))
		},
	}, {
		does: "Get a; Add a with 1, with 5, with 3; Done",
		rule: "Q4",
		want: "a(5)",
		do: func(r *trial) {
			r.add("a")
			r.take(1)
			for _, p := range []int{1, 5, 3} {
				r.with(at(p), "a")
			}
			r.done("a")
			r.note("%s", r.take(1))
		},
	}, {
		does: "AddAfter a with 1, 1 s; a with 5, 2 s; a second later",
		rule: "T1, T7",
		want: "a(5)",
		do: func(r *trial) {
			r.with(priorityqueue.AddOpts{After: time.Second, Priority: new(1)}, "a")
			r.with(priorityqueue.AddOpts{After: 2 * time.Second, Priority: new(5)}, "a")
			r.pass(time.Second)
			r.note("%s", r.take(1))
		},
	}, {
		does: "Get a(5), AddAfter a with delay 0, Done",
		rule: "T7",
		want: "a(5)",
		why:  "It is a retry, as below. For priority 0, Add.",
		do: func(r *trial) {
			r.with(at(5), "a")
			r.take(1)
			r.after(0, "a")
			r.done("a")
			r.note("%s", r.take(1))
		},
	}, {
		does: "Get a(5), AddRateLimited a, Done; a second later",
		rule: "T7",
		want: "a(5)",
		why: "A retry keeps the priority that the item was handed out with. controller-runtime's queue forgets it, " +
			"and its controller passes it again. To retry with another, use AddRateLimitedWithPriority.",
		do: func(r *trial) {
			r.with(at(5), "a")
			r.take(1)
			r.retry("a")
			r.done("a")
			r.pass(time.Second)
			r.note("%s", r.take(1))
		},
	}, {
		does: "Get a(5), AddAfter a, 1 s, with 0, Done; a second later",
		rule: "T7",
		want: "a(0)",
		do: func(r *trial) {
			r.with(at(5), "a")
			r.take(1)
			r.with(priorityqueue.AddOpts{After: time.Second, Priority: new(0)}, "a")
			r.done("a")
			r.pass(time.Second)
			r.note("%s", r.take(1))
		},
	}, {
		does: "AddAfter a with 5, 1 s; Add a",
		rule: "T7",
		want: "a(5); a second later: nothing",
		do: func(r *trial) {
			r.with(priorityqueue.AddOpts{After: time.Second, Priority: new(5)}, "a")
			r.add("a")
			r.note("%s", r.work(1))
			r.pass(time.Second)
			r.note("a second later: %s", r.take(1))
		},
	}, {
		does: "AddWithOpts a, after 10 s and rate limited",
		rule: "T1",
		want: "after 1 s: a(0); after 10 s: nothing",
		do: func(r *trial) {
			r.with(priorityqueue.AddOpts{After: 10 * time.Second, RateLimited: true}, "a")
			r.pass(time.Second)
			r.note("after 1 s: %s", r.work(1))
			r.pass(9 * time.Second)
			r.note("after 10 s: %s", r.take(1))
		},
	}}
	for i := range all {
		all[i].priorities = true
	}
	return without([]side{clientGo}, all) // which has none
}
