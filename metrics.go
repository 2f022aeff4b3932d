package typedqueue

import (
	"slices"
	"time"
)

// Metrics are functions that a work queue calls as items pass. A nil field is skipped.
// They are called in the goroutine of the getter or of Done, outside the lock, so they
// may call the queue, and must be safe for concurrent use. They must not panic: the item
// has changed hands already. There is no global provider: each queue has its own.
type Metrics struct {
	Waited func(time.Duration) // an item was handed out, so long after it became ready
	Worked func(time.Duration) // an item was done, so long after it was handed out
}

// Stats are a queue's gauges and counters at one moment. They are kept up by the calls
// themselves, so in a work queue Ready is what Len returns, always, and nothing freezes at
// shutdown.
type Stats struct {
	Ready      int // items that a getter would get
	Processing int // items handed out and not yet done
	Waiting    int // items due later

	Adds       uint64 // how often an item became ready, or dirty while processing; once per run
	Merged     uint64 // calls that changed nothing at all, because of an earlier one
	Retries    uint64 // calls of AddRateLimited that asked the limiter
	Dropped    uint64 // items that waited at shutdown, and later requests of Run to wait
	StrayDones uint64 // calls of Done for an item that was not processing

	// LongestProcessing is the age of the item that is processing for the longest time,
	// UnfinishedWork the sum of the ages of all that are. Both are 0 unless the queue
	// tracks time; see Options.
	LongestProcessing, UnfinishedWork time.Duration
}

// Snapshot is what is in a work queue at one moment, detached from it.
type Snapshot[T comparable] struct {
	Ready      []T             // in the order in which they will be handed out
	Processing []Processing[T] // longest first; some of them may be dirty again
	Waiting    []Waiting[T]    // soonest first; one may be ready or processing as well
}

// Processing is an item that has been handed out and is not done.
type Processing[T comparable] struct {
	Item T
	For  time.Duration // since it was handed out; 0 unless the queue tracks time
}

// Waiting is an item that is due later.
type Waiting[T comparable] struct {
	Item T
	In   time.Duration // until it is due, 0 if that is now
}

// processing returns how many entries have been handed out.
func (c *core[K, A]) processing() int { return c.held.n + c.passed }

// stats is Stats, but for the ages.
func (c *core[K, A]) stats() Stats {
	return Stats{
		Ready:      c.ready(),
		Processing: c.processing(),
		Waiting:    c.waits.len(),
		Adds:       c.adds,
		Merged:     c.merged,
		Retries:    c.retries,
		Dropped:    c.dropped,
		StrayDones: c.strays,
	}
}

// Stats returns the queue's gauges and counters. O(1), and O(n) with n items in processing
// if the queue tracks time.
func (q *queue[T]) Stats() Stats {
	now := q.now()
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.stats()
	if q.tracks {
		for e := range q.eachHeld {
			age := q.age(e, now)
			s.LongestProcessing = max(s.LongestProcessing, age)
			s.UnfinishedWork += age
		}
	}
	return s
}

// Snapshot returns what is in the queue, copied in one step: O(n) while the queue is
// blocked, with O(p log p) for p priorities, and O(n log n) after that to sort what waits.
func (q *queue[T]) Snapshot() Snapshot[T] {
	now := clock()
	q.mu.Lock()
	s := Snapshot[T]{
		Ready:      make([]T, 0, q.ready()),
		Processing: make([]Processing[T], 0, q.processing()),
	}
	for e := range q.eachInOrder {
		s.Ready = append(s.Ready, e.key)
	}
	for e := range q.eachHeld {
		s.Processing = append(s.Processing, Processing[T]{e.key, q.age(e, now)})
	}
	waits := make([]moment[T], 0, q.waits.len())
	for n := range q.waits.all {
		waits = append(waits, moment[T]{n, q.entries.at(n.id).key})
	}
	q.mu.Unlock()

	slices.SortFunc(waits, func(a, b moment[T]) int { return a.compare(b.node) })
	s.Waiting = make([]Waiting[T], len(waits))
	for i, m := range waits {
		s.Waiting[i] = Waiting[T]{m.item, time.Duration(max(0, m.at-now))}
	}
	return s
}

// moment is when an item is due, in place of its number, which says nothing without the lock.
type moment[T comparable] struct {
	node[ref]
	item T
}

// age returns how long e, which is processing, has been so at now. Needs mu.
func (q *queue[T]) age(e slot[T, struct{}], now int64) time.Duration {
	if !q.tracks {
		return 0
	}
	return time.Duration(max(0, now-q.since.get(e.ref))) // it may have been handed out after now was read
}

// epoch is when clock began. Far enough back that no reading is 0.
var epoch = time.Now().Add(-time.Hour)

// clock returns the time on a monotonic clock, in nanoseconds, as one word.
func clock() int64 { return int64(time.Since(epoch)) }
