package typedqueue

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"sync"
	"time"
)

// entry is all that a queue knows about one key, but for what few queues need (see core).
// There is at most one per key, and everything hangs on it: a key is hashed once per call,
// and no two places can disagree. (A Store's objects, and the values of an Index, are entries
// too, without marks.)
type entry[K comparable, A any] struct {
	key        K
	acc        A     // what has accumulated for the key; nothing in a Queue
	chain      ref   // the next in its chain of the table
	next, prev ref   // its neighbours in core.order or core.held
	marks      marks // and, above them, the hash of key
}

// marks are the sets that an entry belongs to.
type marks uint32

const (
	dirty      marks = 1 << iota // must be processed: now, or after Done if processing too
	processing                   // handed out, not yet Done
	waiting                      // due later
	limited                      // waiting, an AddRateLimited among the reasons (R4)
	inTable                      // found by its key (B1)
)

const allMarks = dirty | processing | waiting | limited | inTable

// is reports whether e has any of m.
func (e *entry[K, A]) is(m marks) bool { return e.marks&m != 0 }

func (e *entry[K, A]) hash() uint32 { return uint32(e.marks &^ allMarks) }

// rank holds the priorities of an entry.
type rank struct {
	dirty   int // while dirty: what it has, or will have, in the order
	handed  int // while processing: what it had when it was handed out
	waiting int // while waiting: what it will have at least
}

// core is the machine inside every queue here: the dirty, processing and waiting sets
// over one table of entries, and the order in which they are handed out. Entries stand in
// the slots of the table, and are linked by the numbers of these (see slots.go). Its methods
// need mu held, unless they say otherwise. It knows no clock: the time comes in as an
// argument, and is used only to tell ages.
type core[K comparable, A any] struct {
	mu sync.Mutex // guards everything below

	entries table[K, A] // E1: an entry is in the table exactly while it is dirty, processing or waiting
	order   order[K, A] // E2: the dirty that are not processing; if keepsPlace, all the dirty
	held    list[K, A]  // E3: the processing that are not in order; in a work queue longest held first
	waits   heap[ref]   // E4: the waiting, soonest first; equal times first in, first out (T3)
	passed  int         // E5: how many entries in order are processing, so not ready

	ranks column[rank]  // E7: nil until a priority other than 0 is given
	since column[int64] // E7: when the entry became ready, or was handed out; nil if the queue tracks no time

	tracks bool // since is kept; constant after construction

	// keepsPlace is how a FIFO's line differs from a work queue's: a key that is added
	// while in processing takes its place in order at once and get passes over it (F1,
	// D1), where a work queue puts it at the tail at its Done (Q4).
	keepsPlace bool

	closed  bool          // Q6: once true, always true; then nothing is waiting (T5)
	getters sleepers      // Q8: the getters that found nothing ready
	drains  chan struct{} // Q7: closed when idle, or to release the drainers; nil if none waits

	timer *time.Timer // E6: while something waits it runs for its due time or earlier, or is just firing
	alarm int64       // E6: what the timer was set for last; stopped exactly while nothing waits

	adds, merged, retries, dropped, strays uint64
}

// need returns the entry of key, a new one if there is none.
func (c *core[K, A]) need(hash uint32, key K) slot[K, A] {
	if e := c.entries.find(hash, key); e.found() {
		return e
	}
	return c.entries.insert(hash, key)
}

// add makes e dirty: ready, or to become ready at its Done (Q4). It ends a wait of e, so
// that e is not processed twice for one reason (T2), and reports whether anything
// changed.
func (c *core[K, A]) add(e slot[K, A], priority int, now int64) (changed bool) {
	if e.is(waiting) {
		priority = max(priority, c.endWait(e)) // T7
		changed = true
	}
	switch {
	case e.is(dirty):
		if priority > c.priority(e) {
			c.raise(e, priority)
			changed = true
		}
		return changed
	case !e.is(processing):
		e.marks |= dirty
		c.lineUp(e, priority, now)
	default:
		e.marks |= dirty
		c.setPriority(e, priority)
		if c.keepsPlace {
			c.held.remove(&c.entries, e)
			c.order.push(&c.entries, e, priority)
			c.passed++
		}
	}
	c.adds++
	return true
}

// lineUp makes e, which is dirty and not processing, ready.
func (c *core[K, A]) lineUp(e slot[K, A], priority int, now int64) {
	c.setPriority(e, priority)
	if c.tracks {
		*c.since.at(e.ref) = now
	}
	c.order.push(&c.entries, e, priority)
	if c.getters.first != nil {
		c.wake()
	}
}

// ready returns how many entries can be handed out.
func (c *core[K, A]) ready() int { return c.order.n - c.passed }

// get hands out the first ready entry; there must be one. It hashes no key.
func (c *core[K, A]) get() slot[K, A] {
	var e slot[K, A]
	if c.passed == 0 {
		e = c.order.pop(&c.entries)
	} else {
		e = c.passOver()
	}
	c.held.push(&c.entries, e)
	e.marks ^= dirty | processing // from the one to the other
	if c.ranks != nil {
		r := c.ranks.at(e.ref)
		r.handed = r.dirty
	}
	return e
}

// done ends the processing of e. If e is dirty, it is ready from now on. It ends in settle,
// so slots are good no more.
func (c *core[K, A]) done(e slot[K, A], now int64) {
	e.marks &^= processing
	if e.is(dirty) && c.keepsPlace { // it stands in order already
		c.passed--
		c.wake()
		return
	}
	c.held.remove(&c.entries, e)
	switch {
	case e.is(dirty):
		c.lineUp(e, c.priority(e), now)
	case !e.is(waiting):
		c.entries.remove(e)
	}
	c.settle()
}

// cancel takes e out of dirty and waiting. It reports whether e was in either. The caller
// calls settle when he has no slots in hand any more.
func (c *core[K, A]) cancel(e slot[K, A]) bool {
	if !e.is(dirty | waiting) {
		return false
	}
	if e.is(waiting) {
		c.endWait(e)
	}
	if c.inOrder(e) {
		c.order.remove(&c.entries, e, c.priority(e))
		if e.is(processing) {
			c.passed--
			c.held.push(&c.entries, e)
		}
	}
	e.marks &^= dirty
	c.release(e)
	return true
}

// release drops e from the table if nothing is the matter with it any more (E1).
func (c *core[K, A]) release(e slot[K, A]) {
	if !e.is(dirty | processing | waiting) {
		c.entries.remove(e)
	}
}

// inOrder reports whether e is in order (E2).
func (c *core[K, A]) inOrder(e slot[K, A]) bool {
	return e.is(dirty) && (c.keepsPlace || !e.is(processing))
}

// passOver takes out of the order the first entry that is not processing.
func (c *core[K, A]) passOver() slot[K, A] {
	e := c.entries.slot(c.order.plain.first) // keepsPlace knows one priority, so the line is one list
	for e.is(processing) {
		e = c.entries.slot(e.next)
	}
	c.order.remove(&c.entries, e, 0)
	return e
}

// priority returns the priority of e, which is dirty.
func (c *core[K, A]) priority(e slot[K, A]) int { return c.ranks.get(e.ref).dirty }

func (c *core[K, A]) setPriority(e slot[K, A], priority int) {
	if priority != 0 || c.ranks != nil {
		c.ranks.at(e.ref).dirty = priority
	}
}

// handed returns the priority that e, which is processing, was handed out with.
func (c *core[K, A]) handed(e slot[K, A]) int { return c.ranks.get(e.ref).handed }

// raise lifts the dirty e to a higher priority, at whose end it lines up anew (Q1).
func (c *core[K, A]) raise(e slot[K, A], priority int) {
	lined := c.inOrder(e)
	if lined {
		c.order.remove(&c.entries, e, c.priority(e))
	}
	c.setPriority(e, priority)
	if lined {
		c.order.push(&c.entries, e, priority)
	}
}

// settle does what is due after entries have left: it tells the drainers if the queue is
// idle, and gives memory back if there is much of it. Slots are good no more after it.
func (c *core[K, A]) settle() {
	if c.idle() {
		c.releaseDrains()
	}
	if c.entries.sparse() {
		c.compact()
	}
}

func (c *core[K, A]) compact() {
	c.entries.compact(c.renamed)
	c.ranks.trim(c.entries.used)
	c.since.trim(c.entries.used)
	c.waits.trim(c.entries.used)
}

// renamed brings all that refers to an entry up to date, whose number has changed.
func (c *core[K, A]) renamed(from, to ref) {
	e := c.entries.slot(to)
	c.ranks.move(from, to)
	c.since.move(from, to)
	if e.is(waiting) {
		c.waits.rename(from, to)
	}
	switch {
	case c.inOrder(e):
		c.order.of(c.priority(e)).renamed(&c.entries, e)
	case e.is(processing):
		c.held.renamed(&c.entries, e)
	}
}

// wait marks e waiting until at. Of several calls the earliest time wins (T1), and the
// highest priority (T7). It reports whether anything changed; the caller sets the alarm.
func (c *core[K, A]) wait(e slot[K, A], at int64, priority int) (changed bool) {
	if !e.is(waiting) {
		e.marks |= waiting
		c.waits.push(e.ref, at)
		if priority != 0 || c.ranks != nil {
			c.ranks.at(e.ref).waiting = priority
		}
		return true
	}
	if at < c.waits.at(e.ref) {
		c.waits.move(e.ref, at)
		changed = true
	}
	if priority > c.ranks.get(e.ref).waiting {
		c.ranks.at(e.ref).waiting = priority
		changed = true
	}
	return changed
}

// endWait takes e out of waiting and returns the priority that it waited with. The
// caller gives e another mark, or releases it.
func (c *core[K, A]) endWait(e slot[K, A]) (priority int) {
	c.waits.remove(e.ref)
	e.marks &^= waiting | limited
	if c.waits.len() == 0 {
		c.disarm()
	}
	return c.ranks.get(e.ref).waiting
}

// dueBy makes ready, or dirty, what waits until now or earlier.
func (c *core[K, A]) dueBy(now int64) {
	for c.waits.len() > 0 && c.waits.top().at <= now {
		c.add(c.entries.slot(c.waits.top().id), math.MinInt, now)
	}
}

// disarm stops the timer, because nothing waits.
func (c *core[K, A]) disarm() {
	if c.alarm != stopped {
		c.timer.Stop()
		c.alarm = stopped
	}
}

// stopped is the alarm of a timer that does not run.
const stopped int64 = 0

// shutDown closes the queue: nothing is accepted any more, what waits is dropped (T5),
// and every getter wakes.
func (c *core[K, A]) shutDown() {
	c.closed = true
	c.dropped += uint64(c.waits.len())
	for n := range c.waits.all {
		e := c.entries.slot(n.id)
		e.marks &^= waiting | limited
		c.release(e)
	}
	c.waits = heap[ref]{}
	c.disarm()
	c.settle()
	c.getters.wakeAll()
}

// eachInOrder calls yield for each entry in order, first in line first, until it returns false.
func (c *core[K, A]) eachInOrder(yield func(slot[K, A]) bool) { c.order.all(&c.entries, yield) }

// eachHeld calls yield for each held entry, in a work queue longest held first, until it
// returns false.
func (c *core[K, A]) eachHeld(yield func(slot[K, A]) bool) { c.held.all(&c.entries, yield) }

// idle reports whether nothing is ready and nothing is processing.
func (c *core[K, A]) idle() bool { return c.order.n == 0 && c.held.n == 0 }

func (c *core[K, A]) releaseDrains() {
	if c.drains != nil {
		close(c.drains)
		c.drains = nil
	}
}

// await returns nil once an entry is ready; before that it fails with ctx's error once ctx
// is done, and with atEnd once the queue is closed. mu is given up while it sleeps, and held
// again when it returns.
func (c *core[K, A]) await(ctx context.Context, atEnd error) error {
	for c.ready() == 0 {
		if c.closed {
			return atEnd
		}
		if err := c.sleep(ctx); err != nil {
			return err
		}
	}
	return nil
}

// sleep gives mu up until somebody wakes the caller or ctx is done; then it returns
// ctx's error, having passed on a wake-up that came all the same (Q8).
func (c *core[K, A]) sleep(ctx context.Context) (err error) {
	s := c.getters.enter()
	c.mu.Unlock()
	panics := true // ctx is the caller's
	defer func() {
		c.mu.Lock()
		c.getters.leave(s)
		if err != nil || panics {
			c.wake()
		}
		if panics {
			c.mu.Unlock()
		}
	}()
	select {
	case <-s.wake:
	case <-ctx.Done():
	}
	err = ctx.Err()
	panics = false
	return err
}

// wake wakes sleeping getters until there is one on its way for each ready entry (Q8).
func (c *core[K, A]) wake() {
	for c.getters.first != nil && c.getters.woken < c.ready() {
		c.getters.wakeOne()
	}
}

// sleepers are getters that wait for a wake-up, longest asleep first. Each has a channel
// of its own, so that one can give up without waking the rest.
type sleepers struct {
	// Q8: if a getter sleeps (is in this list), then woken >= core.ready. A woken getter
	// counts until it holds core.mu again, and then takes an entry, sleeps anew, or, if
	// its context is done, calls wake for another.
	first, last *sleeper
	woken       int

	spare  *sleeper // used before, linked by next; at most spareSleepers
	spares int
}

type sleeper struct {
	wake       chan struct{} // holds the one wake-up that a sleeper gets
	asleep     bool          // it is in the list
	next, prev *sleeper
}

const spareSleepers = 64

func (l *sleepers) enter() *sleeper {
	s := l.spare
	if s == nil {
		s = &sleeper{wake: make(chan struct{}, 1)}
	} else {
		l.spare, s.next = s.next, nil
		l.spares--
	}
	s.asleep = true
	s.prev = l.last
	if l.last == nil {
		l.first = s
	} else {
		l.last.next = s
	}
	l.last = s
	return s
}

func (l *sleepers) unlink(s *sleeper) {
	if s.prev == nil {
		l.first = s.next
	} else {
		s.prev.next = s.next
	}
	if s.next == nil {
		l.last = s.prev
	} else {
		s.next.prev = s.prev
	}
	s.next, s.prev, s.asleep = nil, nil, false
}

func (l *sleepers) wakeOne() {
	s := l.first
	l.unlink(s)
	l.woken++
	s.wake <- struct{}{}
}

func (l *sleepers) wakeAll() {
	for l.first != nil {
		l.wakeOne()
	}
}

// leave is called by s itself, woken or having given up.
func (l *sleepers) leave(s *sleeper) {
	if s.asleep {
		l.unlink(s)
	} else {
		l.woken--
		select {
		case <-s.wake: // it gave up just before the wake-up came
		default:
		}
	}
	if l.spares < spareSleepers {
		l.spare, s.next = s, l.spare
		l.spares++
	}
}

// ErrShutDown is returned where there is nothing to hand out any more, because the queue
// has been shut down.
var ErrShutDown = errors.New("typedqueue: queue is shut down")

// Options are the optional parts of a work queue. The zero value is the default.
type Options struct {
	// Metrics are called as items pass. Gauges and counters are not among them: they are
	// pulled with Stats when somebody looks.
	Metrics Metrics

	// TrackTime makes Stats and Snapshot tell ages, at the cost of reading the clock when
	// an item becomes ready, is handed out and is done. Metrics imply it. Without it no
	// clock is read for that, and ages are 0.
	TrackTime bool
}

// Queue is a work queue of keys: it hands each item to one worker at a time, once for
// all the times that it was added meanwhile. An item is dirty from Add until it is
// handed out, and processing from then until Done; added while processing, it is handed
// out once more after Done. It is client-go's workqueue.TypedInterface, and more.
//
// All methods may be called from any goroutine, at any time, also after ShutDown. The
// zero Queue is ready to use; a Queue must not be copied after first use. An item that
// is not equal to itself (NaN), or whose dynamic type cannot be hashed, panics in the
// caller that passes it, to whatever method, before anything changed; client-go keeps
// the former for ever and dies of the latter. Methods take O(1) time, amortised, unless
// they say otherwise; with p priorities other than 0 in use at once, O(log p).
type Queue[T comparable] struct{ queue[T] }

// NewQueue returns an empty Queue.
func NewQueue[T comparable](opts Options) *Queue[T] {
	q := new(Queue[T])
	q.configure(opts)
	return q
}

// queue holds the methods that all work queues have.
type queue[T comparable] struct {
	core[T, struct{}]
	keys    fitness[T]
	metrics Metrics // set before first use, then constant
}

func (q *queue[T]) configure(opts Options) {
	q.metrics = opts.Metrics
	q.tracks = opts.TrackTime || opts.Metrics.Waited != nil || opts.Metrics.Worked != nil
}

// now returns the time if anybody wants to know ages.
func (q *queue[T]) now() int64 {
	if !q.tracks {
		return 0
	}
	return clock()
}

// Add makes item ready to be handed out, after all others of priority 0. If it is ready
// already it keeps its place; if it is processing it becomes ready at its Done; if it
// waits, the wait is over. It never blocks. After ShutDown it does nothing.
func (q *queue[T]) Add(item T) { q.AddWithPriority(item, 0) }

// AddWithPriority is Add with a priority: ready items come out highest priority first,
// oldest first within one. A ready item that is added with a higher priority moves to the
// end of that priority; with a lower one nothing changes. An item that is processing
// becomes ready with the highest priority asked for meanwhile.
func (q *queue[T]) AddWithPriority(item T, priority int) {
	hash, now := q.keys.hash(item), q.now()
	q.mu.Lock()
	if !q.closed {
		q.count(q.add(q.need(hash, item), priority, now))
	}
	q.mu.Unlock()
}

// AddAll is Add for each of items, in order, in one step: no getter sees a part of them.
// The slice is not kept. If any item panics, none has been added.
func (q *queue[T]) AddAll(items ...T) {
	for _, item := range items {
		q.keys.must(item)
	}
	now := q.now()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	q.entries.reserve(len(items))
	for _, item := range items {
		q.count(q.add(q.need(hashOf(item), item), 0, now))
	}
	q.settle() // most may have been there already
}

// count counts a call that changed nothing. Needs mu.
func (q *queue[T]) count(changed bool) {
	if !changed {
		q.merged++
	}
}

// Get blocks until an item is ready, and hands it out: nobody else gets it until the
// caller has called Done with it. It reports shutdown, with the zero item, once the queue
// has been shut down and nothing is ready. What another worker's Done makes ready after
// that is for that worker to get. The result is client-go's, on purpose; in new code
// Consume, Run or GetContext read better.
func (q *queue[T]) Get() (item T, shutdown bool) {
	item, _, err := q.take(context.Background())
	return item, err != nil
}

// GetWithPriority is Get and tells the priority that the item had.
func (q *queue[T]) GetWithPriority() (item T, priority int, shutdown bool) {
	item, priority, err := q.take(context.Background())
	return item, priority, err != nil
}

// GetContext is Get with a way out: it returns ctx's error once ctx is done, having taken
// nothing, and ErrShutDown where Get reports shutdown. A nil ctx panics.
func (q *queue[T]) GetContext(ctx context.Context) (T, error) {
	mustContext(ctx)
	if err := ctx.Err(); err != nil {
		return *new(T), err
	}
	item, _, err := q.take(ctx)
	return item, err
}

// TryGet is Get that does not block: ok is false if nothing is ready.
func (q *queue[T]) TryGet() (item T, ok bool) {
	q.mu.Lock()
	if q.ready() == 0 {
		q.mu.Unlock()
		return item, false
	}
	item, _ = q.handOut()
	return item, true
}

// take is GetContext with a priority. It looks at ctx only if nothing is ready.
func (q *queue[T]) take(ctx context.Context) (item T, priority int, err error) {
	q.mu.Lock()
	if q.ready() == 0 { // as await would see itself, but nearly always there is no need to call it
		if err := q.await(ctx, ErrShutDown); err != nil {
			q.mu.Unlock()
			return item, 0, err
		}
	}
	item, priority = q.handOut()
	return item, priority, nil
}

// handOut hands out the first ready item. It unlocks mu.
func (q *queue[T]) handOut() (item T, priority int) {
	e := q.get()
	item, priority = e.key, q.handed(e)
	if !q.tracks {
		q.mu.Unlock()
		return item, priority
	}
	now, since := clock(), q.since.at(e.ref)
	waited := now - *since
	*since = now
	q.mu.Unlock()
	if q.metrics.Waited != nil {
		q.metrics.Waited(time.Duration(waited))
	}
	return item, priority
}

// Done says that the caller has processed item, which a getter handed out. If item was
// added meanwhile it is ready now. Done of an item that is not processing changes nothing
// and is counted in Stats.StrayDones, where client-go queues the item a second time. Done
// goes by value: a second Done of an item that another worker has got meanwhile ends that
// worker's hold. It never blocks.
func (q *queue[T]) Done(item T) {
	q.keys.must(item)
	now := q.now()
	q.mu.Lock()
	e := q.findHeld(item)
	if !e.found() {
		q.strays++
		q.mu.Unlock()
		return
	}
	worked := q.age(e, now)
	q.done(e, now)
	q.mu.Unlock()
	if q.metrics.Worked != nil {
		q.metrics.Worked(worked)
	}
}

// findHeld returns the entry of an item that is processing, if it is. Needs mu.
func (q *queue[T]) findHeld(item T) slot[T, struct{}] {
	few := 8 // so many comparisons are cheaper than a hash and a look-up
	for r := q.held.first; r != 0 && few > 0; few-- {
		e := q.entries.at(r)
		if e.key == item {
			return slot[T, struct{}]{e, r}
		}
		r = e.next
	}
	e := q.entries.find(hashOf(item), item)
	if e.found() && !e.is(processing) {
		e.entry = nil
	}
	return e
}

// Consume returns an iterator for a worker's loop: it gets one item after another until
// ctx is done, or the queue is shut down and has nothing ready. Done is called for each
// item after the loop body, also if the body breaks, panics or calls runtime.Goexit. Any
// number of goroutines may consume at once. A nil ctx panics.
//
//	for key := range q.Consume(ctx) {
//		process(key)
//	}
func (q *queue[T]) Consume(ctx context.Context) iter.Seq[T] {
	mustContext(ctx)
	return func(yield func(T) bool) {
		for {
			item, err := q.GetContext(ctx)
			if err != nil || !q.yieldOne(item, yield) {
				return
			}
		}
	}
}

func (q *queue[T]) yieldOne(item T, yield func(T) bool) bool {
	defer q.Done(item)
	return yield(item)
}

// Cancel takes item back, in one step, from being ready, from being due to run again after
// Done, and from waiting. It reports whether there was anything to take back. An item that
// is processing stays so. It works after ShutDown too.
func (q *queue[T]) Cancel(item T) bool {
	hash := q.keys.hash(item)
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.entries.find(hash, item)
	cancelled := e.found() && q.cancel(e)
	q.settle()
	return cancelled
}

// Len returns how many items are ready. Those that wait, or are processing, do not count.
func (q *queue[T]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.ready()
}

// ShutDown makes the queue accept nothing more, and drops what waits. What is ready, and
// what Done makes ready again, is still handed out; then every getter, and every later
// one, is told of the shutdown. ShutDown releases those who wait in ShutDownWithDrain and
// Drain. It does not block, and may be called again at any time. O(n) for n items that wait
// and getters that sleep.
func (q *queue[T]) ShutDown() {
	q.mu.Lock()
	q.shutDown()
	q.releaseDrains()
	q.mu.Unlock()
}

// ShutDownWithDrain is ShutDown that blocks until nothing is ready and nothing is
// processing, or until somebody calls ShutDown. Workers must go on getting items, and
// call Done for each. It may be called several times, at once and after ShutDown, and
// every call returns; in client-go one of two may hang, and it does not wait for what is
// ready.
func (q *queue[T]) ShutDownWithDrain() {
	_ = q.Drain(context.Background()) // released by ShutDown or not: there is nothing to add
}

// Drain is ShutDownWithDrain with a way out. It returns nil once nothing is ready and
// nothing is processing. Otherwise it returns ctx's error once ctx is done, or ErrShutDown
// if ShutDown released it, wrapped with how many items are left. The queue is shut down in
// any case. A nil ctx panics.
func (q *queue[T]) Drain(ctx context.Context) error {
	mustContext(ctx)
	q.mu.Lock()
	q.shutDown()
	if q.idle() {
		q.mu.Unlock()
		return nil
	}
	if q.drains == nil {
		q.drains = make(chan struct{})
	}
	drains := q.drains
	q.mu.Unlock()

	err := ErrShutDown
	select {
	case <-drains:
	case <-ctx.Done():
		err = ctx.Err()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.idle() {
		return nil
	}
	return fmt.Errorf("%w: %d items are ready and %d processing", err, q.ready(), q.processing())
}

// ShuttingDown reports whether ShutDown, ShutDownWithDrain or Drain has been called.
func (q *queue[T]) ShuttingDown() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed
}

// mustContext panics if ctx is nil.
func mustContext(ctx context.Context) {
	if ctx == nil {
		panic("typedqueue: nil context")
	}
}
