package typedqueue

import (
	"math"
	"time"
	"weak"
)

// DelayingQueue is a Queue whose items can also be added later: an item waits until it is
// due and then becomes ready, in one step. It is client-go's
// workqueue.TypedDelayingInterface, without its goroutine, channel and heartbeat: one
// timer runs, and only while something waits. So a queue that is dropped is collected, even
// with items waiting, and in a testing/synctest bubble it follows the bubble's clock. What
// Queue promises holds here too, but to end a wait, as Add and Cancel do, takes O(log n) for n
// items that wait.
//
// The zero DelayingQueue is ready to use; it must not be copied after first use.
type DelayingQueue[T comparable] struct{ delayingQueue[T] }

// NewDelayingQueue returns an empty DelayingQueue.
func NewDelayingQueue[T comparable](opts Options) *DelayingQueue[T] {
	q := new(DelayingQueue[T])
	q.configure(opts)
	return q
}

// delayingQueue holds the methods that queues with delays have.
type delayingQueue[T comparable] struct{ queue[T] }

// AddAfter makes item wait for delay and then adds it; if delay is 0 or less that is now.
// Of several calls the earliest due time wins, and the highest priority. An item that is
// ready, or processing, waits beside that: it merges with the ready one if that has not
// been handed out when it comes due, and otherwise runs again. Add of an item ends its
// wait. An item that is processing keeps the priority that it was handed out with; any
// other has priority 0. Delays too long for the clock, 290 years or so, never end.
//
// It never blocks. After ShutDown it does nothing. O(log n) for n items that wait.
func (q *delayingQueue[T]) AddAfter(item T, delay time.Duration) {
	q.addAfter(item, delay, priority{})
}

// AddAfterWithPriority is AddAfter with a priority of the caller's.
func (q *delayingQueue[T]) AddAfterWithPriority(item T, delay time.Duration, p int) {
	q.addAfter(item, delay, priority{p, true})
}

// priority is what a caller says of it, if anything.
type priority struct {
	value  int
	stated bool
}

// addAfter is AddAfter, and reports whether the queue was open.
func (q *delayingQueue[T]) addAfter(item T, delay time.Duration, p priority) (accepted bool) {
	hash, now := q.keys.hash(item), q.nowFor(delay)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.count(q.addLater(q.need(hash, item), delay, p, now))
	return true
}

// nowFor returns the time if it is needed, for an age or a delay.
func (q *delayingQueue[T]) nowFor(delay time.Duration) int64 {
	if delay <= 0 {
		return q.now()
	}
	return clock()
}

// addLater is addAfter with mu held and the queue open. It reports whether anything
// changed.
func (q *delayingQueue[T]) addLater(e slot[T, struct{}], delay time.Duration, p priority, now int64) (changed bool) {
	if !p.stated && e.is(processing) {
		p.value = q.handed(e) // T7
	}
	if delay <= 0 {
		return q.add(e, p.value, now)
	}
	at := now + int64(delay)
	if at < now { // overflow
		at = math.MaxInt64
	}
	changed = q.wait(e, at, p.value)
	q.arm(now)
	return changed
}

// Reschedule moves item to one point in time, whatever its state: in one step it takes
// back what Cancel would, and then does what AddAfter does. So each call postpones what the
// last one asked for, also while item is processing: a debouncer. After ShutDown it does
// nothing. O(log n) for n items that wait.
func (q *delayingQueue[T]) Reschedule(item T, delay time.Duration) {
	hash, now := q.keys.hash(item), q.nowFor(delay)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	if e := q.entries.find(hash, item); e.found() {
		q.cancel(e)
	}
	q.addLater(q.need(hash, item), delay, priority{}, now)
}

// Waiting returns how many items wait. Len does not count them.
func (q *delayingQueue[T]) Waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waits.len()
}

// arm makes the timer run for the earliest due time. One that fires before that stays as
// it is: looking once too often is cheaper than moving the timer at each Add (E6). Needs mu.
func (q *delayingQueue[T]) arm(now int64) {
	if q.waits.len() == 0 {
		return
	}
	at := q.waits.top().at
	if q.alarm != stopped && q.alarm <= at {
		return
	}
	q.alarm = at
	in := time.Duration(at - now)
	if q.timer != nil {
		q.timer.Reset(in)
		return
	}
	// The timer must not keep the queue alive: nobody could get what is due.
	w := weak.Make(q)
	q.timer = time.AfterFunc(in, func() {
		if q := w.Value(); q != nil {
			q.fire()
		}
	})
}

// fire is called by the timer, once per alarm. It does no harm at any other time.
func (q *delayingQueue[T]) fire() {
	now := clock()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.alarm = stopped
	q.dueBy(now)
	q.arm(now)
}
