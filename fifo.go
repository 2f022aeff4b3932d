package typedqueue

import (
	"context"
	"errors"
	"fmt"
)

// ErrClosed is returned by a FIFO or DeltaFIFO that has been closed: by every write, and by
// Pop once nothing is ready.
var ErrClosed = errors.New("typedqueue: queue is closed")

// Requeue returns an error with which a process function asks Pop to put back what it was
// given. It is never nil, also if err is.
func Requeue(err error) error { return &RequeueError{err} }

// RequeueError is what Requeue returns. It may be wrapped.
type RequeueError struct{ Err error }

func (e *RequeueError) Error() string {
	if e.Err == nil {
		return "typedqueue: requeue"
	}
	return fmt.Sprintf("typedqueue: requeue: %v", e.Err)
}

// Unwrap returns the error that Requeue was called with.
func (e *RequeueError) Unwrap() error { return e.Err }

// line is what FIFO and DeltaFIFO share: keys in line, for each of which something
// accumulates, kept as a P, until Pop hands it out as a C; and the count of the initial list
// (F5). As in core, the unexported methods need mu held; lock, refuse, mustBeMade and pop do
// not.
type line[K comparable, P, C any] struct {
	core[K, content[P]]

	begun   bool          // F5: a write has been accepted
	initial int           // F5: how many entries are initial
	synced  chan struct{} // closed once begun and none is initial, never before
}

// content is what hangs on the entry of one key.
type content[P any] struct {
	pending   P    // F1: what Pop will hand out, while dirty
	initial   bool // of the first write, a Replace, and not settled yet (F5)
	forgotten bool // while processing: deleted, or not listed by a Replace, meanwhile (F4)
	listed    bool // G3: has a part in the Replace or Resync at work; perhaps nothing else keeps the entry
}

func (l *line[K, P, C]) configure() {
	l.keepsPlace = true
	l.synced = make(chan struct{})
}

// markInitial counts e among the initial list.
func (l *line[K, P, C]) markInitial(e slot[K, content[P]]) {
	if !e.acc.initial {
		e.acc.initial = true
		l.initial++
	}
}

// settleInitial says that nothing of the initial list is left to do for e.
func (l *line[K, P, C]) settleInitial(e slot[K, content[P]]) {
	if e.acc.initial {
		e.acc.initial = false
		l.initial--
		l.checkSynced()
	}
}

// checkSynced is called by the first write, and whenever initial has become less: after a first
// write it never becomes more, so it is 0 here once.
func (l *line[K, P, C]) checkSynced() {
	if l.initial == 0 {
		close(l.synced)
	}
}

// lock locks mu for a write, or returns ErrClosed, not having locked it.
func (l *line[K, P, C]) lock() error {
	l.mustBeMade()
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return ErrClosed
	}
	return nil
}

// written says that a write has been accepted.
func (l *line[K, P, C]) written() {
	if !l.begun {
		l.begun = true
		l.checkSynced()
	}
}

// refuse returns what a write returns whose object is no good.
func (l *line[K, P, C]) refuse(err error) error {
	if l.IsClosed() {
		return ErrClosed
	}
	return err
}

// mustBeMade panics if l belongs to a zero FIFO or DeltaFIFO.
func (l *line[K, P, C]) mustBeMade() {
	if l.synced == nil {
		panic("typedqueue: zero FIFO or DeltaFIFO: it has no key function")
	}
}

// pop is Pop. Under the lock, take takes out of an entry what is handed out, and finish is
// told whether to put that back.
func (l *line[K, P, C]) pop(
	ctx context.Context,
	take func(slot[K, content[P]]) C,
	finish func(e slot[K, content[P]], c C, requeue bool),
	process func(key K, c C, isInInitialList bool) error,
) (C, error) {
	var none C
	l.mustBeMade()
	mustContext(ctx)
	if process == nil {
		panic("typedqueue: nil process")
	}
	if err := ctx.Err(); err != nil {
		return none, err
	}
	l.mu.Lock()
	if err := l.await(ctx, ErrClosed); err != nil {
		l.mu.Unlock()
		return none, err
	}
	e := l.get()
	r, hash, key, initial := e.ref, e.hash(), e.key, e.acc.initial
	c := take(e)
	l.mu.Unlock()

	requeue := true // also if process panics or calls runtime.Goexit
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.processed(l.inHand(r, hash, key), c, initial, requeue, finish)
	}()
	err := process(key, c, initial)
	requeue = err != nil && asksRequeue(err)
	return c, err
}

func asksRequeue(err error) bool {
	var asked *RequeueError
	return errors.As(err, &asked)
}

// inHand returns the entry of key, which is in processing, and was in slot r when it was
// handed out.
func (l *line[K, P, C]) inHand(r ref, hash uint32, key K) slot[K, content[P]] {
	if r <= l.entries.used {
		if e := l.entries.slot(r); e.is(processing) && e.key == key {
			return e
		}
	}
	return l.entries.find(hash, key) // it has moved
}

// processed ends the processing of e, for which process was given c and initial.
func (l *line[K, P, C]) processed(e slot[K, content[P]], c C, initial, requeue bool, finish func(slot[K, content[P]], C, bool)) {
	defer func() { // also if finish panics
		if initial && (!requeue || e.acc.forgotten) {
			l.settleInitial(e)
		}
		e.acc.forgotten = false
		l.done(e, 0)
	}()
	finish(e, c, requeue)
}

// HasSynced reports whether the initial list has been processed: false until the first
// write that is accepted; from then on true, unless that was a Replace, when it becomes true
// as soon as process has returned for each of its keys and did not requeue it. A key that a
// FIFO has forgotten, by Delete or a later Replace, is not waited for. Once true, it stays
// true. Resync, and writes that change nothing, do not count as writes.
func (l *line[K, P, C]) HasSynced() bool {
	select {
	case <-l.Synced():
		return true
	default:
		return false
	}
}

// Synced returns a channel that is closed at the moment HasSynced becomes true.
func (l *line[K, P, C]) Synced() <-chan struct{} {
	l.mustBeMade()
	return l.synced
}

// Len returns how many keys are pending, those included that come after their processing.
func (l *line[K, P, C]) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.order.n
}

// ListKeys returns the pending keys, in line. O(n).
func (l *line[K, P, C]) ListKeys() []K {
	l.mu.Lock()
	defer l.mu.Unlock()
	keys := make([]K, 0, l.order.n)
	for e := range l.eachInOrder {
		keys = append(keys, e.key)
	}
	return keys
}

// Close makes every write return ErrClosed and change nothing from now on. What is pending,
// and what is put back, is still handed out; with nothing ready Pop returns ErrClosed, and
// every Pop that waits wakes to see. It does not block, and may be called again.
func (l *line[K, P, C]) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shutDown()
}

// IsClosed reports whether Close has been called.
func (l *line[K, P, C]) IsClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

// Stats returns the queue's gauges and counters. Ready leaves out what is pending behind its
// own processing, which Len counts. Merged counts writes that changed nothing, such as a
// Delete of what is not there. All that concerns time, waiting and retries is 0.
func (l *line[K, P, C]) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stats()
}

// FIFO is a line of keys, each with its newest object, which is handed out once. It is
// client-go's cache.FIFO with the consumer outside the lock: producers never wait for one,
// several may Pop at once, and no key is in two hands.
//
// All methods may be called from any goroutine. A FIFO is made by NewFIFO; the zero FIFO is
// empty, and writes, Pop, HasSynced and Synced panic, since it has no key function. A key from
// the key function that is not equal to itself, or cannot be hashed, is a KeyError; one that is
// passed directly panics. Methods take O(1) time, amortised, unless they say otherwise. Room is
// kept for a thousand keys with their objects, so V had better be a pointer if objects are large.
type FIFO[K comparable, V any] struct {
	line[K, V, V]
	key keyed[K, V]
}

var _ ReflectorStore[int] = (*FIFO[int, int])(nil)

// NewFIFO returns an empty FIFO whose objects have the keys that key returns. It panics if
// key is nil.
func NewFIFO[K comparable, V any](key KeyFunc[K, V]) *FIFO[K, V] {
	if key == nil {
		panic("typedqueue: nil key function")
	}
	q := &FIFO[K, V]{key: keyed[K, V]{f: key}}
	q.configure()
	return q
}

// enqueue makes obj what is pending for e.
func (q *FIFO[K, V]) enqueue(e slot[K, content[V]], obj V) {
	e.acc.pending = obj
	q.add(e, 0, 0)
}

// Add makes obj what is pending for its key. A pending key keeps its place in line; any
// other goes to the tail. It returns a KeyError if obj has no key, and ErrClosed after
// Close; then nothing has changed. It never blocks.
func (q *FIFO[K, V]) Add(obj V) error {
	key, err := q.key.of(obj)
	if err != nil {
		return q.refuse(err)
	}
	hash := hashOf(key)
	if err := q.lock(); err != nil {
		return err
	}
	q.enqueue(q.need(hash, key), obj)
	q.written()
	q.mu.Unlock()
	return nil
}

// Update is Add.
func (q *FIFO[K, V]) Update(obj V) error { return q.Add(obj) }

// AddIfNotPresent is Add, unless something is pending for the key: then it changes nothing.
func (q *FIFO[K, V]) AddIfNotPresent(obj V) error {
	key, err := q.key.of(obj)
	if err != nil {
		return q.refuse(err)
	}
	hash := hashOf(key)
	if err := q.lock(); err != nil {
		return err
	}
	defer q.mu.Unlock()
	e := q.need(hash, key)
	if e.is(dirty) {
		q.merged++
		return nil
	}
	q.enqueue(e, obj)
	q.written()
	return nil
}

// Delete forgets what is pending for the key of obj, which need not be the pending object.
// If the key is being processed, a requeue will not put it back. Errors are those of Add.
func (q *FIFO[K, V]) Delete(obj V) error {
	key, err := q.key.of(obj)
	if err != nil {
		return q.refuse(err)
	}
	return q.DeleteKey(key)
}

// DeleteKey is Delete by key. A key that cannot be one panics.
func (q *FIFO[K, V]) DeleteKey(key K) error {
	hash := q.key.fit.hash(key)
	if err := q.lock(); err != nil {
		return err
	}
	defer q.mu.Unlock()
	e := q.entries.find(hash, key)
	if !e.found() {
		q.merged++
		return nil
	}
	q.forget(e)
	q.settle()
	return nil
}

// forget drops what is pending for e.
func (q *FIFO[K, V]) forget(e slot[K, content[V]]) {
	e.acc.pending = *new(V)
	if e.is(processing) {
		e.acc.forgotten = true
	} else {
		q.settleInitial(e)
	}
	q.cancel(e)
}

// Replace forgets all that is pending, and makes the objects of list pending in its order;
// of several with one key the last counts, at the place of the first. It is all or nothing:
// if an object has no key it returns a KeyError and changes nothing. After Close it returns
// ErrClosed. O(n) for n keys pending or listed. The list is not kept.
func (q *FIFO[K, V]) Replace(list []V) error {
	keys := make([]hashed[K], 0, len(list))
	for _, obj := range list {
		key, err := q.key.of(obj)
		if err != nil {
			return q.refuse(err)
		}
		keys = append(keys, hashed[K]{key, hashOf(key)})
	}
	if err := q.lock(); err != nil {
		return err
	}
	defer q.mu.Unlock()
	q.entries.reserve(len(keys) - q.entries.n)
	for i, k := range keys {
		e := q.need(k.hash, k.key)
		if e.is(dirty) && !e.acc.listed {
			q.order.remove(&q.entries, e, 0)
			q.order.push(&q.entries, e, 0)
		}
		e.acc.listed = true
		q.enqueue(e, list[i])
		if !q.begun {
			q.markInitial(e)
		}
	}
	for e := range q.entries.all {
		if e.acc.listed {
			e.acc.listed = false
		} else {
			q.forget(e)
		}
	}
	q.settle()
	q.written()
	return nil
}

// hashed is a key and its hash.
type hashed[K comparable] struct {
	key  K
	hash uint32
}

// Resync does nothing, but for ErrClosed after Close: what is in a FIFO is pending already.
func (q *FIFO[K, V]) Resync() error {
	if err := q.lock(); err != nil {
		return err
	}
	q.mu.Unlock()
	return nil
}

// Get returns what is pending for the key of obj. It returns a KeyError if obj has none.
func (q *FIFO[K, V]) Get(obj V) (pending V, ok bool, err error) {
	key, err := q.key.of(obj)
	if err != nil {
		return pending, false, err
	}
	pending, ok = q.GetByKey(key)
	return pending, ok, nil
}

// GetByKey returns what is pending for key. A key that cannot be one panics.
func (q *FIFO[K, V]) GetByKey(key K) (pending V, ok bool) {
	hash := q.key.fit.hash(key)
	q.mu.Lock()
	defer q.mu.Unlock()
	if e := q.entries.find(hash, key); e.found() && e.is(dirty) {
		return e.acc.pending, true
	}
	return pending, false
}

// List returns the pending objects, in line. O(n).
func (q *FIFO[K, V]) List() []V {
	q.mu.Lock()
	defer q.mu.Unlock()
	objs := make([]V, 0, q.order.n)
	for e := range q.eachInOrder {
		objs = append(objs, e.acc.pending)
	}
	return objs
}

// Pop blocks until a key is ready, calls process with it and its object, and returns that
// object with process's error. It returns ctx's error once ctx is done, and ErrClosed once
// the queue is closed and nothing is ready, without having taken anything.
//
// process runs in the caller's goroutine with no lock held: it may call the queue. While it
// runs the key is not handed out again; an object that comes for it waits. If process
// returns an error made by Requeue, panics, or calls runtime.Goexit, the object goes back
// to the tail of the line, unless a newer one is pending, or the key has been deleted or
// left out by a Replace meanwhile. Any other error is just returned. isInInitialList tells
// whether HasSynced waits for this key. A nil ctx or process panics. O(c) for c keys that are
// pending behind their own processing.
func (q *FIFO[K, V]) Pop(ctx context.Context, process func(key K, obj V, isInInitialList bool) error) (V, error) {
	return q.pop(ctx, q.take, q.finish, process)
}

// take takes out what is pending for e.
func (q *FIFO[K, V]) take(e slot[K, content[V]]) (obj V) {
	obj, e.acc.pending = e.acc.pending, obj
	return obj
}

// finish queues obj again, if process did not want it (F4).
func (q *FIFO[K, V]) finish(e slot[K, content[V]], obj V, requeue bool) {
	if requeue && !e.is(dirty) && !e.acc.forgotten {
		q.enqueue(e, obj)
	}
}
