package kube_test

import (
	"fmt"
	"slices"
	"testing/synctest"
	"time"
)

func whenHandingOut() []scenario {
	return []scenario{{
		does: "Add a, b, a",
		rule: "Q1, Q2",
		want: "Len 2; a b nothing",
		do: func(r *trial) {
			r.add("a", "b", "a")
			r.note("Len %d", r.queue.Len())
			r.note("%s", r.take(3))
		},
	}, {
		does: "Get a, Add a; only then Done",
		rule: "Q3, Q4",
		want: "before Done: nothing; after: a",
		do: func(r *trial) {
			r.add("a")
			r.take(1)
			r.add("a")
			r.note("before Done: %s", r.take(1))
			r.done("a")
			r.note("after: %s", r.take(1))
		},
	}, {
		does: "Get a, Add a, Add b, Done a",
		rule: "Q4, Q11",
		want: "Len before Done 1, after 2; b a",
		why: "An item that is added while a worker has it lines up at its Done, and Len counts " +
			"what a worker could get now. In controller-runtime it has its place at once, and Len counts it.",
		do: func(r *trial) {
			r.add("a")
			r.take(1)
			r.add("a", "b")
			before := r.queue.Len()
			r.done("a")
			r.note("Len before Done %d, after %d", before, r.queue.Len())
			r.note("%s", r.take(2))
		},
	}, {
		does: "Add a, then Done a, which nobody has got; two Gets",
		rule: "Q5, Q2, Q3",
		want: "Len 1; a nothing",
		why: "client-go queues a second copy, and two workers have one item at once. Ours counts " +
			"the call in Stats.StrayDones, and nothing else happens. A Done too many is a bug: look for that number.",
		do: func(r *trial) {
			r.add("a")
			r.done("a")
			r.note("Len %d", r.queue.Len())
			r.note("%s", r.take(2))
		},
	}, {
		does: "Get a, Done a, Add a; another worker gets it; a second Done of the first worker; Add a, Get",
		rule: "Q5",
		want: "a",
		do: func(r *trial) {
			r.add("a")
			r.work(1)
			r.add("a")
			r.newWorker().get()
			r.done("a")
			r.add("a")
			r.note("%s", r.take(1))
		},
	}, {
		does: "two workers wait; Add a, Add b",
		rule: "Q8",
		want: "a b",
		do: func(r *trial) {
			first, second := r.newWorker(), r.newWorker()
			first.get()
			second.get()
			r.add("a", "b")
			r.note("%s", inAnyOrder(first, second))
		},
	}}
}

// inAnyOrder returns what two workers get, as which of them gets what is not promised.
func inAnyOrder(first, second *worker) string {
	a, _ := first.get()
	b, _ := second.get()
	return fmt.Sprint(min(a, b), " ", max(a, b))
}

func whenShuttingDown() []scenario {
	return []scenario{{
		does: "ShuttingDown of a new queue; after ShutDown; of another, after ShutDownWithDrain",
		rule: "Q6, Q7",
		want: "false true true",
		do: func(r *trial) {
			before := r.queue.ShuttingDown()
			r.queue.ShutDown()
			drained := r.another("", r.limiter, nil).queue
			drained.ShutDownWithDrain()
			r.note("%v %v %v", before, r.queue.ShuttingDown(), drained.ShuttingDown())
		},
	}, {
		does: "Add a, b; ShutDown; three Gets",
		rule: "Q6",
		want: "a b shutdown",
		why: "What was accepted is handed out, as in client-go. controller-runtime's queue ends at " +
			"once, and so does our PriorityQueue, which NewQueue returns for it. To end at once with " +
			"the others, let the workers stop by a context: GetContext, Consume or Run.",
		do: func(r *trial) {
			r.add("a", "b")
			r.queue.ShutDown()
			r.note("%s", r.take(3))
		},
	}, {
		does: "Get a, Add a; ShutDown; Done a; two Gets",
		rule: "Q6",
		want: "a shutdown",
		why:  "The same with what a Done makes ready again.",
		do: func(r *trial) {
			r.add("a")
			r.take(1)
			r.add("a")
			r.queue.ShutDown()
			r.done("a")
			r.note("%s", r.take(2))
		},
	}, {
		does: "Get a, Add a; ShutDown; another worker's Get",
		rule: "Q6",
		want: "shutdown",
		do: func(r *trial) {
			r.add("a")
			r.take(1)
			r.add("a")
			r.queue.ShutDown()
			r.note("%s", r.take(1))
		},
	}, {
		does: "ShutDown; Add a, AddAfter b, AddAfter c with delay 0",
		rule: "Q6",
		want: "Len 0; a second later 0; shutdown",
		do: func(r *trial) {
			r.queue.ShutDown()
			r.add("a")
			r.after(time.Second, "b")
			r.after(0, "c")
			r.note("Len %d", r.queue.Len())
			r.pass(time.Second)
			r.note("a second later %d", r.queue.Len())
			r.note("%s", r.take(1))
		},
	}, {
		does: "two workers wait; ShutDown",
		rule: "Q6, Q8",
		want: "shutdown shutdown",
		do: func(r *trial) {
			first, second := r.newWorker(), r.newWorker()
			first.get()
			second.get()
			r.queue.ShutDown()
			r.note("%s", inAnyOrder(first, second))
		},
	}, {
		does: "ShutDown twice",
		rule: "Q6",
		want: "returned returned",
		why:  "controller-runtime closes a channel twice. With ours, shutting down in any order and number is harmless.",
		do: func(r *trial) {
			first := begin(r.queue.ShutDown).state()
			r.note("%s %s", first, begin(r.queue.ShutDown).state())
		},
	}, {
		does: "AddAfter a, 1 s; ShutDown; a second later",
		rule: "T5",
		want: "shutdown",
		do: func(r *trial) {
			r.after(time.Second, "a")
			r.queue.ShutDown()
			r.pass(time.Second)
			r.note("%s", r.take(1))
		},
	}}
}

func whenDraining() []scenario {
	return []scenario{{
		does: "Add a, b; ShutDownWithDrain; later Get and Done of both",
		rule: "Q7",
		want: "before: blocks; a b; after: returned",
		why: "A drain waits until nothing is ready and nothing is processing. client-go's returns " +
			"with items queued if no worker has one just then; controller-runtime's is its ShutDown. " +
			"For a drain that does not wait so long, Drain takes a context.",
		do: func(r *trial) {
			r.add("a", "b")
			drain := begin(r.queue.ShutDownWithDrain)
			r.note("before: %s", drain.state())
			r.note("%s", r.work(2))
			r.note("after: %s", drain.state())
		},
	}, {
		does: "Add a, b; Get a; ShutDownWithDrain; Done a",
		rule: "Q7",
		want: "before Done: blocks; after: blocks; Len 1",
		why:  "b is still to be done: as above.",
		do: func(r *trial) {
			r.add("a", "b")
			r.take(1)
			drain := begin(r.queue.ShutDownWithDrain)
			r.note("before Done: %s", drain.state())
			r.done("a")
			r.note("after: %s", drain.state())
			r.note("Len %d", r.queue.Len())
		},
	}, {
		does: "Get a, Add a; ShutDownWithDrain; Done a",
		rule: "Q7",
		want: "before Done: blocks; after: blocks; Len 1",
		why:  "a is to be done once more: as above.",
		do: func(r *trial) {
			r.add("a")
			r.take(1)
			r.add("a")
			drain := begin(r.queue.ShutDownWithDrain)
			r.note("before Done: %s", drain.state())
			r.done("a")
			r.note("after: %s", drain.state())
			r.note("Len %d", r.queue.Len())
		},
	}, {
		does: "Get a; two ShutDownWithDrain; Done a",
		rule: "Q7",
		want: "returned returned",
		why:  "client-go wakes one of them. A second shutdown of controller-runtime's queue panics.",
		do: func(r *trial) {
			r.add("a")
			r.take(1)
			first := begin(r.queue.ShutDownWithDrain)
			first.state()
			second := begin(r.queue.ShutDownWithDrain)
			second.state()
			r.done("a")
			states := []string{first.state(), second.state()} // which of them is woken is no matter
			slices.Sort(states)
			r.note("%s %s", states[0], states[1])
		},
	}, {
		does: "Get a; ShutDown, then ShutDownWithDrain; Done a",
		rule: "Q7",
		want: "before Done: blocks; after: returned",
		why:  "A second shutdown of controller-runtime's queue panics.",
		do: func(r *trial) {
			r.add("a")
			r.take(1)
			r.queue.ShutDown()
			drain := begin(r.queue.ShutDownWithDrain)
			r.note("before Done: %s", drain.state())
			r.done("a")
			r.note("after: %s", drain.state())
		},
	}, {
		does: "Get a; ShutDownWithDrain, then ShutDown",
		rule: "Q7",
		want: "blocks; then: returned",
		why:  "controller-runtime's drain does not wait, and its second shutdown panics.",
		do: func(r *trial) {
			r.add("a")
			r.take(1)
			drain := begin(r.queue.ShutDownWithDrain)
			r.note("%s", drain.state())
			r.queue.ShutDown()
			r.note("then: %s", drain.state())
		},
	}, {
		does: "Get a; ShutDown, ShutDownWithDrain, ShutDown",
		rule: "Q7",
		want: "blocks; then: returned",
		why:  "ShutDown releases who drains. In client-go only the first ShutDown of a queue with delays does anything.",
		do: func(r *trial) {
			r.add("a")
			r.take(1)
			r.queue.ShutDown()
			drain := begin(r.queue.ShutDownWithDrain)
			r.note("%s", drain.state())
			r.queue.ShutDown()
			r.note("then: %s", drain.state())
		},
	}, {
		does: "AddAfter a, 1 h; ShutDownWithDrain; goroutines left, at once and 10 s later",
		rule: "T5",
		want: "0, 0",
		why:  "client-go's drain does not reach the goroutine for delays, which sees it at its next heartbeat.",
		do: func(r *trial) {
			before := goroutines()
			m := r.another("", r.limiter, nil)
			m.queue.AddAfter("a", time.Hour)
			synctest.Wait()
			m.queue.ShutDownWithDrain()
			synctest.Wait()
			atOnce := goroutines() - before
			r.pass(10 * time.Second)
			r.note("%d, %d", atOnce, goroutines()-before)
		},
	}}
}
