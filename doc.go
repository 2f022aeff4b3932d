// Package typedqueue provides the queues that a controller runs on, generic and without
// Kubernetes: a work queue that hands each key to one worker at a time ([Queue]), with
// delays ([DelayingQueue]) and back-off ([RateLimitingQueue]), and the object queues that
// carry changes from a source to an indexed cache ([FIFO], [DeltaFIFO], [Store], [Index]).
//
// It is a re-think of the queues inside client-go (util/workqueue, and fifo.go,
// delta_fifo.go and store.go of tools/cache), and keeps their names where the meaning is
// the same.
//
// # What it is for
//
// A controller brings one thing after another to the state that it should have. What
// comes in are keys, not events: however often a key is added before a worker gets to it,
// the worker looks at it once, as it is then. That needs a queue which merges what it
// already holds, never gives one key to two workers, and forgets no key that is added while
// it is being worked on.
//
// Take something else if every message counts (a channel), if the work must survive the
// process (a message broker), or if it is shared by several processes.
//
// # The life of an item
//
// There is one entry per key. Its marks are the textbook's sets: dirty (must be
// processed), processing (handed out, not yet Done) and waiting (due later).
//
//	             Add                      Get                  Done
//	(absent) ──────────▶ ready ──────────────▶ processing ──────────▶ (absent)
//	    │                  ▲                     │    ▲ Add: dirty too
//	    │ AddAfter         │ due, or Add         │    └────────┐ then Done: ready
//	    └─────▶ waiting ───┘                     └─ AddAfter ──┘ waits beside it
//
// Ready is dirty and not processing. Added while ready, an item keeps its place; added
// while processing, it is dirty, and becomes ready at its Done.
//
// # The worker loop
//
// Most programs need no more of a queue than Add where something has changed, and Run:
//
//	q := typedqueue.NewRateLimitingQueue[string](nil, typedqueue.Options{})
//	go watch(func(key string) { q.Add(key) })
//	err := q.Run(ctx, typedqueue.RunOptions[string]{Workers: 4}, reconcile)
//
// Run calls reconcile(ctx, key) for each key, tries again with back-off what fails, waits as
// long as a [RequeueAfter] says, and gives up what is [Terminal] or has failed too often.
// Without retries, a range loop does:
//
//	for key := range q.Consume(ctx) {
//		process(key) // Done follows, also if this panics
//	}
//
// By hand it is client-go's loop: Get, work, Forget or AddRateLimited, Done.
//
// # Which queue to take
//
//   - [Queue] for keys whose work does not fail, or fails for good.
//   - [DelayingQueue] for keys that must also be looked at later; with Reschedule, to wait
//     until a key has been quiet for a while.
//   - [RateLimitingQueue] for keys whose work can fail: a controller's.
//   - [FIFO] for objects of which only the newest of each key matters.
//   - [DeltaFIFO] for objects of which every change matters, deletions above all: between
//     whatever lists and watches a source, and a Store. [Apply] is its consumer.
//   - [Store] for what the consumer has seen, found by key, or through an [Index].
//
// # Promises
//
// The numbers are those which the tests, and the comments beside the fields, use.
//
//   - Order: oldest first within a priority, higher priority first (Q1).
//   - An item is ready at most once (Q2), and with one worker at a time (Q3). Added while it
//     is processed, it is processed again (Q4).
//   - Done of what is not processing changes nothing, and is counted (Q5).
//   - After shutdown nothing is accepted, and the backlog is still handed out (Q6). Drains
//     wait for all of it, and all of them return (Q7).
//   - No wake-up is lost, whoever gives up waiting (Q8).
//   - Nothing that has been popped is kept alive, and the memory of a burst is given back
//     (Q9). In steady state Add, Get and Done allocate nothing.
//   - When a call returns, Len, Stats and Snapshot show what it did (Q11).
//   - Of several delays the earliest due time wins, nothing fires early, and an item that
//     waits runs once for one reason, also if it is added meanwhile (T1 to T4).
//   - Back-off never falls, never overflows, and never exceeds its maximum (R1, R2).
//   - A write to a Store, and to its indexes, is all or nothing (S1).
//   - A key's deltas come together, in order, to one consumer (D1, F3); a consumer that
//     updates its Store while it processes, and requeues what fails, loses no deletion (D9).
//
// Nothing here starts a goroutine but Run, which waits for its own. So a queue that is
// dropped is collected, even with items waiting. No function of a caller's runs while a
// lock is held; the two exceptions, in [DeltaFIFOOptions] and [Index], say so. A panic in
// such a function leaves no lock held, and nothing half done; only the functions of
// [Metrics] must not panic.
//
// # Bad input
//
// A condition of the world is an error, which [errors.Is] and [errors.As] can match. A broken
// promise of the caller's is a panic whose text begins with "typedqueue: ", in the goroutine
// of the call and before anything has changed: nil functions and contexts, limits that make
// no sense, and keys that could never be found again, because they are not equal to
// themselves (NaN) or hold something that cannot be hashed. Where such a key comes from a
// key function, it is a [KeyError].
//
// # Tests
//
// Everything here follows the clock of a [testing/synctest] bubble, so a controller built
// on it can be tested in no time at all, back-off included. Like a channel, a work
// queue belongs to the bubble in which it first blocked or waited, a FIFO or DeltaFIFO to the
// one in which it was made: make a new one for each.
//
// # Differences from client-go
//
// Each of these is a fault that somebody has met. Done of a stranger does not queue a second
// copy. ShutDownWithDrain waits for what is ready as well, reaches what waits, and returns
// to every caller; Drain does so with a deadline. An Add while an item waits ends the wait
// instead of running it twice. Equal delays keep their order. Merged calls of AddRateLimited
// are not charged. The default limiter never answers with more than 1000 s. Metrics belong
// to a queue, not to the process; gauges are read when asked for, and do not freeze. FIFO and
// DeltaFIFO call their consumer outside the lock, so producers never wait for one, and put
// back what it was given if it panics; they refuse writes after Close. A DeltaFIFO
// reports to have synced when the last item has been processed, not popped; its Replace is all
// or nothing; a deletion of unknown final state is two fields of a [Delta], not another
// type. A Store returns the error of an index function instead of panicking, and has then
// changed nothing.
package typedqueue
