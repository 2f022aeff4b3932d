package typedqueue

import (
	"context"
	"fmt"
	"slices"
)

// DeltaType says what kind of change a Delta is.
type DeltaType string

// The types of change. A DeltaFIFO makes no others.
const (
	Added    DeltaType = "Added"    // by Add
	Updated  DeltaType = "Updated"  // by Update
	Deleted  DeltaType = "Deleted"  // by Delete or DeleteKey, or inferred by Replace
	Replaced DeltaType = "Replaced" // by Replace
	Sync     DeltaType = "Sync"     // by Resync; by Replace too with EmitSyncOnReplace
)

// Delta is one change of one key. There is no wrapper type for deletions, as client-go's
// DeletedFinalStateUnknown is one: two fields say how much Object is worth.
type Delta[V any] struct {
	Type   DeltaType
	Object V

	// FinalStateUnknown says that a deletion was not seen but inferred, so that Object is
	// the newest that was seen, and may be stale.
	FinalStateUnknown bool

	// ObjectMissing says that Object is the zero value because no object was ever seen.
	ObjectMissing bool
}

// Deltas are the changes of one key, oldest first. There is always at least one.
type Deltas[V any] []Delta[V]

// Oldest returns the first change. It panics if there is none.
func (d Deltas[V]) Oldest() Delta[V] { return d[0] }

// Newest returns the last change. It panics if there is none.
func (d Deltas[V]) Newest() Delta[V] { return d[len(d)-1] }

// newestObject returns the object of the last change that has one.
func (d Deltas[V]) newestObject() (obj V, ok bool) {
	for _, delta := range slices.Backward(d) {
		if !delta.ObjectMissing {
			return delta.Object, true
		}
	}
	return obj, false
}

// packed is a Delta as a DeltaFIFO keeps it, in half the room: a few labels serve all of them.
type packed[V any] struct {
	object V
	*label
}

// label is a Delta but for its object. It is never changed.
type label struct {
	Type                             DeltaType
	FinalStateUnknown, ObjectMissing bool
}

// The labels of all the changes that a DeltaFIFO makes.
var (
	added    = &label{Type: Added}
	updated  = &label{Type: Updated}
	deleted  = &label{Type: Deleted}
	replaced = &label{Type: Replaced}
	resynced = &label{Type: Sync}
	inferred = &label{Type: Deleted, FinalStateUnknown: true}
	unseen   = &label{Type: Deleted, FinalStateUnknown: true, ObjectMissing: true}
)

// pack is the inverse of delta. The label is like, if that fits.
func pack[V any](d Delta[V], like *label) packed[V] {
	l := label{d.Type, d.FinalStateUnknown, d.ObjectMissing}
	if like != nil && *like == l {
		return packed[V]{d.Object, like}
	}
	for _, own := range []*label{added, updated, deleted, replaced, resynced, inferred, unseen} {
		if *own == l {
			return packed[V]{d.Object, own}
		}
	}
	other := l // only here on the heap: by Merge, or passed to AddIfNotPresent
	return packed[V]{d.Object, &other}
}

func (p packed[V]) delta() Delta[V] {
	return Delta[V]{p.Type, p.object, p.FinalStateUnknown, p.ObjectMissing}
}

// KnownObjects is what a DeltaFIFO's consumer has made of what it popped; usually a Store. A
// key that ListKeys lists twice counts once.
type KnownObjects[K comparable, V any] interface {
	ListKeys() []K
	GetByKey(key K) (V, bool)
}

var _ KnownObjects[int, string] = (*Store[int, string])(nil)

// DeltaFIFOOptions are the optional parts of a DeltaFIFO. The zero value is the default.
type DeltaFIFOOptions[K comparable, V any] struct {
	// KnownObjects tells which objects exist that are neither pending nor processing, so
	// that Replace and Delete know what a deletion means, and Resync what there is. If it is
	// nil nothing else exists, and deletions of other keys are dropped. The queue calls it
	// with its lock held: it must not call the queue.
	KnownObjects KnownObjects[K, V]

	// EmitSyncOnReplace makes Replace queue Sync where it would queue Replaced, as client-go
	// once did.
	EmitSyncOnReplace bool

	// Transform, if not nil, is applied to each object that comes in, once, before it is
	// queued; never to what Resync or an inferred deletion takes from KnownObjects. Where
	// it fails, so does the write; but a Delete becomes a DeleteKey. It must not change the
	// key: that is a failure too. It is called with no lock held, and may run in several
	// goroutines at once.
	Transform func(V) (V, error)

	// Merge, if not nil, decides what is pending for a key once next has come; pending is
	// empty if nothing was. It is given a copy, O(n) for n changes pending, and may change
	// and return that. To return nothing panics. By default next is appended, but of two
	// Deleted in a row one stays: the older, unless its final state is unknown. The queue
	// calls it with its lock held: it must not call the queue.
	Merge func(pending Deltas[V], next Delta[V]) Deltas[V]
}

// DeltaFIFO is a line of keys, each with all its changes since it was last popped. It is
// client-go's cache.DeltaFIFO with the consumer outside the lock: producers never wait for
// one, several may Pop at once, and no key is in two hands. A key in processing counts as
// existing, so a consumer that updates KnownObjects in process, and requeues what fails,
// loses no deletion whatever producers do meanwhile.
//
// All methods may be called from any goroutine, but not from KnownObjects and Merge. A
// DeltaFIFO is made by NewDeltaFIFO; the zero DeltaFIFO is empty, and writes, Pop, HasSynced
// and Synced panic, since it has no key function. A key from the key function that is not
// equal to itself, or cannot be hashed, is a KeyError; one that is passed directly panics.
// Methods take O(1) time, amortised, unless they say otherwise. Room is kept for a thousand
// changes with their objects, so V had better be a pointer if objects are large.
type DeltaFIFO[K comparable, V any] struct {
	line[K, changes, Deltas[V]]

	// D2: by default no two Deleted in a row are pending. D5: what is missing its object is of
	// unknown final state, and has the zero value. G2: each stack belongs to one entry.
	deltas stacks[packed[V]]

	key  keyed[K, V]
	opts DeltaFIFOOptions[K, V]
}

// changes are what a DeltaFIFO knows of one key: stacks in DeltaFIFO.deltas.
type changes struct {
	newest ref    // of those pending
	n      uint32 // how many are pending

	// hand is what must be known of the deltas that a consumer holds, for they are the
	// consumer's: one delta, of the type of the newest of them, with the newest object of
	// them. 0 if not processing.
	hand ref
}

var _ ReflectorStore[int] = (*DeltaFIFO[int, int])(nil)

// NewDeltaFIFO returns an empty DeltaFIFO whose objects have the keys that key returns. It
// panics if key is nil.
func NewDeltaFIFO[K comparable, V any](key KeyFunc[K, V], opts DeltaFIFOOptions[K, V]) *DeltaFIFO[K, V] {
	if key == nil {
		panic("typedqueue: nil key function")
	}
	q := &DeltaFIFO[K, V]{key: keyed[K, V]{f: key}, opts: opts}
	q.configure()
	return q
}

// deltaSlot is an entry of a DeltaFIFO.
type deltaSlot[K comparable] = slot[K, content[changes]]

// Add queues Added for the key of obj. A pending key keeps its place in line; any other goes
// to the tail. It returns a KeyError if obj has no key, an error if the transform fails or
// changes the key, and ErrClosed after Close; then nothing has changed. It never blocks.
func (q *DeltaFIFO[K, V]) Add(obj V) error { return q.write(added, obj) }

// Update queues Updated. Otherwise it is Add.
func (q *DeltaFIFO[K, V]) Update(obj V) error { return q.write(updated, obj) }

func (q *DeltaFIFO[K, V]) write(l *label, obj V) error {
	key, obj, err := q.incoming(obj)
	if err != nil {
		return q.refuse(err)
	}
	hash := hashOf(key)
	if err := q.lock(); err != nil {
		return err
	}
	defer q.mu.Unlock()
	q.change(q.entries.find(hash, key), hash, key, packed[V]{obj, l})
	return nil
}

// incoming returns obj transformed, and its key.
func (q *DeltaFIFO[K, V]) incoming(obj V) (K, V, error) {
	key, err := q.key.of(obj)
	if err != nil || q.opts.Transform == nil {
		return key, obj, err
	}
	transformed, err := q.opts.Transform(obj)
	if err != nil {
		return key, obj, fmt.Errorf("typedqueue: transform: %w", err)
	}
	after, err := q.key.of(transformed)
	if err != nil {
		return key, obj, err
	}
	if after != key {
		return key, obj, fmt.Errorf("typedqueue: transform has changed key %v to %v", key, after)
	}
	return key, transformed, nil
}

// change queues d for key, whose entry, if there is one, is e.
func (q *DeltaFIFO[K, V]) change(e deltaSlot[K], hash uint32, key K, d packed[V]) {
	var merged Deltas[V]
	if q.opts.Merge != nil {
		merged = q.merge(q.pending(e), d.delta()) // may panic, so before anything changes
	}
	if !e.found() {
		e = q.entries.insert(hash, key)
	}
	if merged != nil {
		q.enqueue(e, merged)
	} else {
		q.push(e, d)
	}
	q.written()
}

// merge returns what the user's Merge makes of pending, which it may change, and next.
func (q *DeltaFIFO[K, V]) merge(pending Deltas[V], next Delta[V]) Deltas[V] {
	merged := q.opts.Merge(pending, next)
	if len(merged) == 0 {
		panic("typedqueue: Merge returned nothing")
	}
	return merged
}

// push queues d for e, after what is pending, where no Merge says otherwise (D2).
func (q *DeltaFIFO[K, V]) push(e deltaSlot[K], d packed[V]) {
	c := &e.acc.pending
	if d.Type == Deleted && c.n > 0 {
		if newest := &q.deltas.at(c.newest).value; newest.Type == Deleted {
			if newest.FinalStateUnknown {
				*newest = d
			}
			return
		}
	}
	c.newest = q.deltas.push(c.newest, d)
	c.n++
	if c.n == 1 { // otherwise it is dirty already (F1)
		q.add(e, 0, 0)
	}
}

// enqueue makes a copy of deltas what is pending for e.
func (q *DeltaFIFO[K, V]) enqueue(e deltaSlot[K], deltas Deltas[V]) {
	c := &e.acc.pending
	q.deltas.drop(c.newest)
	c.newest, c.n = 0, uint32(len(deltas))
	var last packed[V]
	for _, d := range deltas {
		last = pack(d, last.label)
		c.newest = q.deltas.push(c.newest, last)
	}
	q.add(e, 0, 0)
	if q.deltas.sparse() {
		q.compactDeltas()
	}
}

// pending returns a copy of what is pending for e, if e is an entry.
func (q *DeltaFIFO[K, V]) pending(e deltaSlot[K]) Deltas[V] {
	if !e.found() || e.acc.pending.n == 0 {
		return nil
	}
	deltas := make(Deltas[V], e.acc.pending.n)
	r := e.acc.pending.newest
	for i := len(deltas) - 1; i >= 0; i-- {
		d := q.deltas.at(r)
		deltas[i], r = d.value.delta(), d.below
	}
	return deltas
}

// newestPending returns the newest object that is pending for e.
func (q *DeltaFIFO[K, V]) newestPending(e deltaSlot[K]) (obj V, ok bool) {
	for r := e.acc.pending.newest; r != 0; {
		d := q.deltas.at(r)
		if !d.value.ObjectMissing {
			return d.value.object, true
		}
		r = d.below
	}
	return obj, false
}

// Delete queues Deleted with obj, if its key exists: if it is pending; or in processing, its
// newest change there not being Deleted; or neither, and among KnownObjects. Otherwise
// nothing changes. Errors are those of Add, but if the transform fails, or changes the key,
// Delete does what DeleteKey does.
func (q *DeltaFIFO[K, V]) Delete(obj V) error {
	key, err := q.key.of(obj)
	if err != nil {
		return q.refuse(err)
	}
	if q.opts.Transform != nil {
		if _, obj, err = q.incoming(obj); err != nil {
			return q.DeleteKey(key)
		}
	}
	return q.deletion(hashOf(key), key, packed[V]{obj, deleted})
}

// DeleteKey queues Deleted of unknown final state, with the newest object seen, if key exists
// in the sense of Delete. After Close it returns ErrClosed. A key that cannot be one panics.
func (q *DeltaFIFO[K, V]) DeleteKey(key K) error {
	return q.deletion(q.key.fit.hash(key), key, packed[V]{})
}

// deletion queues d, or, if it is zero, an inferred deletion, if key exists.
func (q *DeltaFIFO[K, V]) deletion(hash uint32, key K, d packed[V]) error {
	if err := q.lock(); err != nil {
		return err
	}
	defer q.mu.Unlock()
	e := q.entries.find(hash, key)
	if !q.exists(e, key) {
		q.merged++
		return nil
	}
	if d.label == nil {
		d = q.tombstone(e, key)
	}
	q.change(e, hash, key, d)
	return nil
}

// exists reports whether there is anything that a deletion of key would delete (D3). Its
// entry, if there is one, is e.
func (q *DeltaFIFO[K, V]) exists(e deltaSlot[K], key K) bool {
	switch {
	case !e.found():
	case e.is(dirty):
		return true
	default:
		return !q.deletedInHand(e)
	}
	if q.opts.KnownObjects == nil {
		return false
	}
	_, ok := q.opts.KnownObjects.GetByKey(key)
	return ok
}

// deletedInHand reports whether the newest change of e, which is processing, is Deleted.
func (q *DeltaFIFO[K, V]) deletedInHand(e deltaSlot[K]) bool {
	return q.deltas.at(e.acc.pending.hand).value.Type == Deleted
}

// tombstone returns an inferred deletion of key, whose entry, if there is one, is e. It has
// the newest object seen (D4).
func (q *DeltaFIFO[K, V]) tombstone(e deltaSlot[K], key K) packed[V] {
	var obj V
	var ok bool
	if e.found() {
		obj, ok = q.newestPending(e)
		if hand := e.acc.pending.hand; !ok && hand != 0 {
			d := &q.deltas.at(hand).value
			obj, ok = d.object, !d.ObjectMissing
		}
	}
	if !ok && q.opts.KnownObjects != nil {
		obj, ok = q.opts.KnownObjects.GetByKey(key)
	}
	if !ok {
		return packed[V]{label: unseen}
	}
	return packed[V]{obj, inferred}
}

// AddIfNotPresent queues deltas as they are, unless anything is pending for key, or deltas
// is empty: then it changes nothing. They are copied, O(n) for n of them, and not transformed.
// After Close it returns ErrClosed. A key that cannot be one panics.
func (q *DeltaFIFO[K, V]) AddIfNotPresent(key K, deltas Deltas[V]) error {
	hash := q.key.fit.hash(key)
	if err := q.lock(); err != nil {
		return err
	}
	defer q.mu.Unlock()
	if e := q.entries.find(hash, key); len(deltas) == 0 || e.found() && e.is(dirty) {
		q.merged++
		return nil
	}
	e := q.need(hash, key)
	q.enqueue(e, deltas)
	q.written()
	return nil
}

// planned is a change that has not been made yet, of an entry that may have been made for it.
type planned[V any] struct {
	delta packed[V]
	entry ref
}

// Replace says that the objects of list, and no others, exist. It queues Replaced for each, in
// order, and then, for each other key that exists, a Deleted of unknown final state that
// carries the newest object seen: the pending ones in line, then those in processing, then
// those among KnownObjects. It is all or nothing: if an object has no key, or the transform
// fails, it returns that error and changes nothing. After Close it returns ErrClosed. O(n)
// for n keys listed, pending, in processing and known. The list is not kept.
func (q *DeltaFIFO[K, V]) Replace(list []V) error {
	l := replaced
	if q.opts.EmitSyncOnReplace {
		l = resynced
	}
	keys := make([]hashed[K], 0, len(list))
	plan := make([]planned[V], 0, len(list))
	for _, obj := range list {
		key, obj, err := q.incoming(obj)
		if err != nil {
			return q.refuse(err)
		}
		keys = append(keys, hashed[K]{key, hashOf(key)})
		plan = append(plan, planned[V]{delta: packed[V]{obj, l}})
	}
	if err := q.lock(); err != nil {
		return err
	}
	defer q.mu.Unlock()
	defer q.unlist(&plan)
	q.entries.reserve(len(keys) - q.entries.n)
	for i, k := range keys {
		e := q.need(k.hash, k.key)
		e.acc.listed = true
		plan[i].entry = e.ref
	}
	q.planDeletions(&plan)
	q.carryOut(plan, !q.begun)
	q.written()
	return nil
}

// planDeletions plans tombstones for the keys that exist and are not listed (D4).
func (q *DeltaFIFO[K, V]) planDeletions(plan *[]planned[V]) {
	bury := func(e deltaSlot[K]) {
		if !e.acc.listed {
			*plan = append(*plan, planned[V]{q.tombstone(e, e.key), e.ref})
		}
	}
	for e := range q.eachInOrder {
		if q.deltas.at(e.acc.pending.newest).value.Type != Deleted {
			bury(e)
		}
	}
	for e := range q.eachHeld {
		if !q.deletedInHand(e) {
			bury(e)
		}
	}
	if q.opts.KnownObjects == nil {
		return
	}
	for _, key := range q.opts.KnownObjects.ListKeys() {
		hash := q.key.fit.hash(key)
		if e := q.entries.find(hash, key); !e.found() {
			q.planNew(plan, hash, key, q.tombstone(e, key))
		}
	}
}

// planNew plans d for a key that has no entry.
func (q *DeltaFIFO[K, V]) planNew(plan *[]planned[V], hash uint32, key K, d packed[V]) {
	e := q.entries.insert(hash, key)
	e.acc.listed = true
	*plan = append(*plan, planned[V]{d, e.ref})
}

// carryOut makes the changes of plan, all or, if Merge panics, none.
func (q *DeltaFIFO[K, V]) carryOut(plan []planned[V], initial bool) {
	var merged map[ref]Deltas[V]
	if q.opts.Merge != nil {
		merged = q.mergeAll(plan)
	}
	for _, p := range plan {
		e := q.entries.slot(p.entry)
		if merged != nil {
			q.enqueue(e, merged[p.entry])
		} else {
			q.push(e, p.delta)
		}
		if initial {
			q.markInitial(e)
		}
	}
}

// mergeAll returns what the user's Merge makes of plan, by entry.
func (q *DeltaFIFO[K, V]) mergeAll(plan []planned[V]) map[ref]Deltas[V] {
	merged := make(map[ref]Deltas[V], len(plan))
	for _, p := range plan {
		pending, again := merged[p.entry]
		if !again {
			pending = q.pending(q.entries.slot(p.entry))
		}
		merged[p.entry] = slices.Clone(q.merge(pending, p.delta.delta())) // Merge may use its memory again
	}
	return merged
}

// unlist ends a Replace or Resync. If a caller's function has panicked, so that it was not
// carried out, this drops the entries that were made for it.
func (q *DeltaFIFO[K, V]) unlist(plan *[]planned[V]) {
	for _, p := range *plan {
		if e := q.entries.slot(p.entry); e.acc.listed {
			e.acc.listed = false
			q.release(e)
		}
	}
	q.settle()
}

// Resync queues Sync for each known object whose key is neither pending nor processing.
// Without KnownObjects it does nothing. It does not count for HasSynced. After Close it returns
// ErrClosed. O(n) for n keys known.
func (q *DeltaFIFO[K, V]) Resync() error {
	if err := q.lock(); err != nil {
		return err
	}
	defer q.mu.Unlock()
	if q.opts.KnownObjects == nil {
		return nil
	}
	var plan []planned[V]
	defer q.unlist(&plan)
	for _, key := range q.opts.KnownObjects.ListKeys() {
		hash := q.key.fit.hash(key)
		if q.entries.find(hash, key).found() {
			continue
		}
		if obj, ok := q.opts.KnownObjects.GetByKey(key); ok {
			q.planNew(&plan, hash, key, packed[V]{obj, resynced})
		}
	}
	q.carryOut(plan, false)
	return nil
}

// KeyOf returns the key of obj, or a KeyError.
func (q *DeltaFIFO[K, V]) KeyOf(obj V) (K, error) {
	return q.key.of(obj)
}

// Get returns a copy of what is pending for the key of obj. It returns a KeyError if obj has
// none. O(n) for n changes.
func (q *DeltaFIFO[K, V]) Get(obj V) (Deltas[V], bool, error) {
	key, err := q.KeyOf(obj)
	if err != nil {
		return nil, false, err
	}
	deltas, ok := q.GetByKey(key)
	return deltas, ok, nil
}

// GetByKey returns a copy of what is pending for key. A key that cannot be one panics. O(n)
// for n changes.
func (q *DeltaFIFO[K, V]) GetByKey(key K) (Deltas[V], bool) {
	hash := q.key.fit.hash(key)
	q.mu.Lock()
	defer q.mu.Unlock()
	pending := q.pending(q.entries.find(hash, key))
	return pending, len(pending) > 0
}

// List returns the newest pending object of each key, in line. A key whose pending changes
// have no object is passed over. O(n).
func (q *DeltaFIFO[K, V]) List() []V {
	q.mu.Lock()
	defer q.mu.Unlock()
	objs := make([]V, 0, q.order.n)
	for e := range q.eachInOrder {
		if obj, ok := q.newestPending(e); ok {
			objs = append(objs, obj)
		}
	}
	return objs
}

// Pop blocks until a key is ready, calls process with it and its changes, oldest first, and
// returns those with process's error. It returns ctx's error once ctx is done, and ErrClosed
// once the queue is closed and nothing is ready, without having taken anything.
//
// process runs in the caller's goroutine with no lock held: it may call the queue. While it
// runs the key is not handed out again; changes that come for it wait. If process returns an
// error made by Requeue, panics, or calls runtime.Goexit, the changes are put back in front of
// those that came meanwhile, which keep their place in line; if none came they go to the tail.
// Any other error is just returned. isInInitialList tells whether HasSynced waits for this
// key. The changes are the caller's, but must be left as they are if they are put back. A nil
// ctx or process panics. O(c) for c keys that are pending behind their own processing.
func (q *DeltaFIFO[K, V]) Pop(ctx context.Context, process func(key K, deltas Deltas[V], isInInitialList bool) error) (Deltas[V], error) {
	return q.pop(ctx, q.take, q.finish, process)
}

// take takes out what is pending for e, and notes what must be known of it meanwhile.
func (q *DeltaFIFO[K, V]) take(e deltaSlot[K]) Deltas[V] {
	deltas := make(Deltas[V], e.acc.pending.n)
	r := e.acc.pending.newest
	known := q.deltas.at(r).value
	for i := len(deltas) - 1; i >= 0; i-- {
		deltas[i] = q.deltas.at(r).value.delta()
		r = q.deltas.pop(r)
	}
	if known.ObjectMissing {
		if obj, ok := deltas.newestObject(); ok {
			known = pack(Delta[V]{Type: known.Type, Object: obj}, nil) // nobody asks for the rest
		}
	}
	e.acc.pending = changes{hand: q.deltas.push(0, known)}
	return deltas
}

// finish forgets what consumers hold of e, and queues it again, if process did not want it,
// in front of what came meanwhile (D8). If Merge panics it is queued unmerged.
func (q *DeltaFIFO[K, V]) finish(e deltaSlot[K], deltas Deltas[V], requeue bool) {
	q.deltas.pop(e.acc.pending.hand)
	e.acc.pending.hand = 0
	if requeue {
		q.putBack(e, deltas)
	}
	if q.deltas.sparse() {
		q.compactDeltas()
	}
}

func (q *DeltaFIFO[K, V]) putBack(e deltaSlot[K], deltas Deltas[V]) {
	later := q.pending(e)
	if q.opts.Merge == nil {
		q.enqueue(e, deltas)
		for _, d := range later {
			q.push(e, pack(d, nil))
		}
		return
	}
	q.enqueue(e, slices.Concat(deltas, later))
	if len(later) == 0 {
		return
	}
	merged := deltas
	for _, d := range later {
		merged = q.merge(slices.Clone(merged), d) // what was popped is still the caller's
	}
	q.enqueue(e, merged)
}

// compactDeltas gives back the memory of deltas that have left.
func (q *DeltaFIFO[K, V]) compactDeltas() {
	old := q.deltas
	q.deltas = stacks[packed[V]]{}
	for e := range q.entries.all {
		c := &e.acc.pending
		c.newest, c.hand = q.deltas.move(&old, c.newest), q.deltas.move(&old, c.hand)
	}
	q.deltas.inherit(&old)
}

// Handler is told by Apply what becomes of a Store. A nil field is skipped.
type Handler[K comparable, V any] struct {
	OnAdd    func(key K, obj V, isInInitialList bool)
	OnUpdate func(key K, old, new V)
	OnDelete func(key K, obj V, finalStateUnknown bool)
}

// Apply is the process function that nearly everybody writes: it brings s up to date with
// deltas, change by change, and tells h what became of each. Added, Updated, Replaced and Sync
// store the object; OnUpdate follows if key was stored before, and OnAdd if not. Deleted
// removes it, and OnDelete follows with the change's object, or with the stored one if it has
// none; if key was not stored, nothing happens. h runs with no lock held.
//
// If s refuses an object, if the key function of s says that it has another key, or if a
// change has an unknown type, Apply returns an error; the changes before that one stay
// applied, and a retry begins with the first again. A nil s panics.
//
//	_, err := fifo.Pop(ctx, func(key string, deltas Deltas[*Pod], isInInitialList bool) error {
//		if err := Apply(store, key, deltas, isInInitialList, handler); err != nil {
//			return Requeue(err)
//		}
//		return nil
//	})
func Apply[K comparable, V any](s *Store[K, V], key K, deltas Deltas[V], isInInitialList bool, h Handler[K, V]) error {
	if s == nil {
		panic("typedqueue: nil Store")
	}
	s.key.fit.must(key)
	for _, d := range deltas {
		switch d.Type {
		case Added, Updated, Replaced, Sync:
			if err := applyObject(s, key, d.Object, isInInitialList, h); err != nil {
				return err
			}
		case Deleted:
			applyDeletion(s, key, d, h)
		default:
			return fmt.Errorf("typedqueue: key %v has a change of unknown type %q", key, d.Type)
		}
	}
	return nil
}

func applyObject[K comparable, V any](s *Store[K, V], key K, obj V, isInInitialList bool, h Handler[K, V]) error {
	own, err := s.key.of(obj)
	if err != nil {
		return err
	}
	if own != key {
		return fmt.Errorf("typedqueue: the object of key %v has key %v in the Store", key, own)
	}
	old, existed, err := s.put(key, obj)
	switch {
	case err != nil:
		return err
	case existed && h.OnUpdate != nil:
		h.OnUpdate(key, old, obj)
	case !existed && h.OnAdd != nil:
		h.OnAdd(key, obj, isInInitialList)
	}
	return nil
}

func applyDeletion[K comparable, V any](s *Store[K, V], key K, d Delta[V], h Handler[K, V]) {
	stored, existed := s.take(key)
	if !existed || h.OnDelete == nil {
		return
	}
	if d.ObjectMissing {
		d.Object = stored
	}
	h.OnDelete(key, d.Object, d.FinalStateUnknown)
}
