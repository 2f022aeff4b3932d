package typedqueue

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
)

// KeyFunc returns the key of an object: equal keys are versions of one object. It runs
// under no lock of this package, in the goroutine that made the call and perhaps in
// several at once. Its error, and a key that is not equal to itself or cannot be hashed,
// reach the caller as a *KeyError (S6).
type KeyFunc[K comparable, V any] func(obj V) (K, error)

// keyed is a key function, and what is known of its keys. f is nil in a zero Store, FIFO or
// DeltaFIFO.
type keyed[K comparable, V any] struct {
	f   KeyFunc[K, V]
	fit fitness[K]
}

// of returns the key of obj, which is fit, or a *KeyError[V] (S6).
func (k *keyed[K, V]) of(obj V) (K, error) {
	if k.f == nil {
		panic("typedqueue: no key function: use the constructor")
	}
	key, err := k.f(obj)
	if err == nil {
		err = k.fit.fault(key)
	}
	if err != nil {
		return *new(K), &KeyError[V]{Obj: obj, Err: err}
	}
	return key, nil
}

// KeyError says that an object has no usable key. It is returned as *KeyError[V], by
// everything with a key function.
type KeyError[V any] struct {
	Obj V     // the object, as it was passed
	Err error // from the key function, or what is wrong with the key it returned
}

// Error names the type of the object only: its contents may be large, or secret.
func (e *KeyError[V]) Error() string {
	return fmt.Sprintf("typedqueue: no key for an object of type %T: %v", e.Obj, e.Err)
}

// Unwrap returns Err.
func (e *KeyError[V]) Unwrap() error { return e.Err }

// NamespacedName is the key of a Kubernetes object, in two parts that nobody has to join
// and to split. The Namespace of a cluster-scoped object is empty.
type NamespacedName struct{ Namespace, Name string }

// String returns "namespace/name", or "name" if the namespace is empty, as client-go
// writes its keys. (The type of this name in k8s.io/apimachinery would write "/name".)
func (n NamespacedName) String() string {
	if n.Namespace == "" {
		return n.Name
	}
	return n.Namespace + "/" + n.Name
}

// ParseNamespacedName is the inverse of String. It takes exactly what String returns for
// parts without a slash, an empty name ("ns/") and the empty string included, and gives
// back these parts. All else is an error: more than one slash ("a/b/c"), and an empty
// namespace that is written out ("/name"), which client-go's SplitMetaNamespaceKey would
// take although no key function writes it. A part with a slash in it does not survive the
// way through a string; no name or namespace of Kubernetes has one.
func ParseNamespacedName(s string) (NamespacedName, error) {
	namespace, name, found := strings.Cut(s, "/")
	switch {
	case !found:
		return NamespacedName{Name: s}, nil
	case namespace == "" || strings.Contains(name, "/"):
		return NamespacedName{}, fmt.Errorf("typedqueue: %q is neither \"name\" nor \"namespace/name\"", s)
	}
	return NamespacedName{Namespace: namespace, Name: name}, nil
}

// MetaNamespaceKey is the KeyFunc of Kubernetes objects. Like client-go's, it takes empty
// names. A nil interface has no key; of a nil pointer, its methods are asked.
func MetaNamespaceKey[V interface {
	GetNamespace() string
	GetName() string
}](obj V) (NamespacedName, error) {
	if any(obj) == nil {
		return NamespacedName{}, errors.New("the object is nil")
	}
	return NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}, nil
}

// ReflectorStore is what a producer fills, such as a reflector that lists and watches:
// Store, FIFO and DeltaFIFO all are one. It is client-go's interface of that name with
// types, and without the resource version, which none of them reads.
type ReflectorStore[V any] interface {
	Add(obj V) error
	Update(obj V) error
	Delete(obj V) error
	Replace(objs []V) error
	Resync() error
}

var _ ReflectorStore[struct{}] = (*Store[string, struct{}])(nil)

// Store is a thread-safe map from key to object that knows how to get the key from an
// object. With one Index or more it is what client-go calls an Indexer. Its promises:
//
//   - S1 Every write is all or nothing. An error, or a panic, of a key or index function
//     leaves the objects and every index as they were (client-go panics on the error of
//     an index function). Readers see a write, Replace included, entirely or not at all.
//   - S2 An Index may come at any time and covers what is stored. A change is worked out
//     from the index values remembered since the object came in, so an object that was
//     changed in place, which is forbidden as ever, cannot leave stale ones behind.
//   - S3 An index value disappears with its last member.
//   - S4 Zero values of V are values like any other.
//   - S5 Returned slices are the caller's. The objects in them are shared, not copied:
//     where V holds pointers, treat what they point to as read-only.
//   - S6 A key that is not equal to itself, or cannot be hashed, is a *KeyError if it
//     comes from the key function, and a panic if it is passed directly.
//
// All methods may be called concurrently. Key functions run under no lock. Index functions
// run under the lock that writers queue for, and under no other: they may read the Store,
// and see it as before the write, but they must not write to it, nor add or close an
// Index, as that would wait for itself. Readers never wait for a caller's function.
//
// Nothing is in order, neither lists nor what iterates. Reading or writing one object takes
// O(1), plus O(1) for each of its index values in a write; that is amortised, as now and then a
// write takes O(n) to make room or to give it back. A deleted object is not kept alive, and
// the memory of a burst is given back as its objects are deleted. Room is kept for a thousand
// objects, each as large as a V, so V had better be a pointer if what it points to is large.
//
// A Store comes from NewStore. The zero Store is empty: reading by key finds nothing, and
// whatever would need the key function panics. A Store must not be copied.
type Store[K comparable, V any] struct {
	key keyed[K, V]

	writers sync.Mutex         // one writer at a time; taken before mu, never after it
	indexes []storeIndex[K, V] // guarded by writers

	// mu guards entries, and the catalog of every index. It is locked by holders of writers
	// only, so these may read without it. No caller's function runs under it.
	mu sync.RWMutex

	// M1: each entry holds what is stored under its key; of its marks and links only those of
	// the table are in use. M2: the table is not sparse.
	entries table[K, V]
}

// storeIndex is an Index[I, K, V] of any I, as its Store sees it.
type storeIndex[K comparable, V any] interface {
	// stage asks the index function about obj and keeps the answer for fileLocked.
	// Needs writers.
	stage(obj V) error
	// fileLocked puts entry r, new or not, at the staged values. Needs writers and mu.
	fileLocked(r ref)
	// removeLocked forgets entry r. Needs writers and mu.
	removeLocked(r ref)
	// renamedLocked says that an entry has another number than it had. Needs writers and mu.
	renamedLocked(from, to ref)
	// trimLocked says that all entries have numbers up to last. Needs writers and mu.
	trimLocked(last ref)
	// rebuild asks the index function about all entries, and returns the function that makes
	// the answer the contents of the index. Needs writers, and mu for that function.
	rebuild(entries *table[K, V]) (publishLocked func(), err error)
}

// NewStore returns an empty Store. It panics if key is nil.
func NewStore[K comparable, V any](key KeyFunc[K, V]) *Store[K, V] {
	if key == nil {
		panic("typedqueue: NewStore with a nil key function")
	}
	return &Store[K, V]{key: keyed[K, V]{f: key}}
}

// Add stores obj, in the place of an earlier object of its key. It waits for other writers
// and their index functions. It returns a *KeyError, or what an index function says, and
// then has changed nothing.
func (s *Store[K, V]) Add(obj V) error {
	key, err := s.key.of(obj)
	if err != nil {
		return err
	}
	_, _, err = s.put(key, obj)
	return err
}

// Update is Add: as in client-go, neither asks whether the object was there before.
func (s *Store[K, V]) Update(obj V) error { return s.Add(obj) }

// put stores obj under key, which must be fit, and returns what was stored before.
func (s *Store[K, V]) put(key K, obj V) (old V, existed bool, err error) {
	hash := hashOf(key)
	s.lockWriters()
	defer s.writers.Unlock()
	for _, x := range s.indexes {
		if err := x.stage(obj); err != nil {
			return old, false, err
		}
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries.find(hash, key)
	if existed = e.found(); existed {
		old = e.acc
	} else {
		e = s.entries.insert(hash, key)
	}
	e.acc = obj
	for _, x := range s.indexes {
		x.fileLocked(e.ref)
	}
	return old, existed, nil
}

func (s *Store[K, V]) lockWriters() {
	if s.key.f == nil {
		panic("typedqueue: write to a zero Store: use NewStore")
	}
	s.writers.Lock()
}

// Delete removes the object that has the key of obj, which may be another version of it,
// and does nothing if there is none. It asks no index function, so its only error is a
// *KeyError.
func (s *Store[K, V]) Delete(obj V) error {
	key, err := s.key.of(obj)
	if err != nil {
		return err
	}
	s.take(key)
	return nil
}

// DeleteKey removes the object stored under key and reports whether there was one. It
// panics if key is not equal to itself or cannot be hashed.
func (s *Store[K, V]) DeleteKey(key K) bool {
	s.key.fit.must(key)
	_, existed := s.take(key)
	return existed
}

// take removes and returns what is stored under key, which must be fit.
func (s *Store[K, V]) take(key K) (old V, existed bool) {
	hash := hashOf(key)
	s.writers.Lock()
	defer s.writers.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries.find(hash, key)
	if !e.found() {
		return old, false
	}
	for _, x := range s.indexes {
		x.removeLocked(e.ref)
	}
	old = e.acc
	s.entries.remove(e)
	if s.entries.sparse() {
		s.compactLocked()
	}
	return old, true
}

// compactLocked gives back the memory of deleted objects. Needs writers and mu.
func (s *Store[K, V]) compactLocked() {
	s.entries.compact(func(from, to ref) {
		for _, x := range s.indexes {
			x.renamedLocked(from, to)
		}
	})
	for _, x := range s.indexes {
		x.trimLocked(s.entries.used)
	}
}

// Replace makes objs the contents of the Store, in one step. Of several objects with one
// key the last wins, and index functions are not asked about the others. All keys and index
// values are worked out first; on an error, as for Add, nothing has changed. The slice is
// not kept. It takes O(n) for n objects, and readers wait for O(1) of it.
func (s *Store[K, V]) Replace(objs []V) error {
	var fresh table[K, V]
	fresh.reserve(len(objs))
	for _, obj := range objs {
		key, err := s.key.of(obj)
		if err != nil {
			return err
		}
		hash := hashOf(key)
		e := fresh.find(hash, key)
		if !e.found() {
			e = fresh.insert(hash, key)
		}
		e.acc = obj
	}
	if fresh.sparse() { // most were repetitions
		fresh.compact(func(_, _ ref) {})
	}

	s.lockWriters()
	defer s.writers.Unlock()
	publish := make([]func(), len(s.indexes))
	for i, x := range s.indexes {
		var err error
		if publish[i], err = x.rebuild(&fresh); err != nil {
			return err
		}
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries = fresh
	for _, f := range publish {
		f()
	}
	return nil
}

// Resync does nothing and returns nil: a Store has nobody to tell again. It makes the
// Store a ReflectorStore.
func (s *Store[K, V]) Resync() error { return nil }

// Get returns the object that has the key of obj, and whether there is one. Its only error
// is a *KeyError.
func (s *Store[K, V]) Get(obj V) (V, bool, error) {
	key, err := s.key.of(obj)
	if err != nil {
		return *new(V), false, err
	}
	stored, ok := s.get(hashOf(key), key)
	return stored, ok, nil
}

// GetByKey returns the object stored under key, and whether there is one. It panics if key
// is not equal to itself or cannot be hashed.
func (s *Store[K, V]) GetByKey(key K) (V, bool) {
	return s.get(s.key.fit.hash(key), key)
}

func (s *Store[K, V]) get(hash uint32, key K) (obj V, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if e := s.entries.find(hash, key); e.found() {
		return e.acc, true
	}
	return obj, false
}

// List returns the objects, in a slice that is the caller's and is all that it allocates.
func (s *Store[K, V]) List() []V {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return collect(&s.entries, func(e *entry[K, V]) V { return e.acc })
}

// ListKeys returns the keys, in a slice that is the caller's.
func (s *Store[K, V]) ListKeys() []K {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return collect(&s.entries, func(e *entry[K, V]) K { return e.key })
}

// Len returns the number of objects.
func (s *Store[K, V]) Len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.entries.n
}

// All iterates over keys and objects as they are when the loop begins. The loop body runs
// under no lock, so it may change the Store; it will not see that. The copy costs one
// allocation and O(n), also for a loop that ends early.
func (s *Store[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for _, r := range s.snapshot() {
			if !yield(r.key, r.obj) {
				return
			}
		}
	}
}

// record is a copy of what is stored.
type record[K comparable, V any] struct {
	key K
	obj V
}

func (s *Store[K, V]) snapshot() []record[K, V] {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return collect(&s.entries, func(e *entry[K, V]) record[K, V] { return record[K, V]{e.key, e.acc} })
}

// collect returns f of each entry of t.
func collect[K comparable, V, R any](t *table[K, V], f func(*entry[K, V]) R) []R {
	to := make([]R, 0, t.n)
	for _, chunk := range t.chunks {
		for i := range chunk {
			if e := &chunk[i]; e.marks != 0 {
				to = append(to, f(e))
			}
		}
	}
	return to
}

// Index finds the objects of a Store by values that a function computes from them. All its
// methods may be called concurrently, and but for Close they wait for no caller's function.
// The objects and all indexes change in one step, so a reader by index never misses an
// object that has not left. An Index comes from NewIndex; the methods of the zero Index
// panic. Unlike an index of client-go it has no name: to share it, share the pointer.
type Index[I comparable, K comparable, V any] struct {
	store  *Store[K, V]
	f      func(obj V) ([]I, error)
	fit    fitness[I]
	staged []I // guarded by store.writers: the values for fileLocked, each once; after a failed write, until the next

	catalog catalog[I] // guarded by store.mu, as the objects are
}

// NewIndex adds an index to s. It covers what is stored and everything that comes, until
// Close, in the eyes of readers at once and without a gap. f returns the index values of an
// object, in any order; a repeated one counts once, and none at all is fine. Its slice is
// copied. The Store asks f once for each write, and calls it as told there: f may read the
// Store, and nothing more.
//
// If f fails for an object that is stored, or returns a value that is not equal to itself or
// cannot be hashed, that is the error, and nothing was added; later, it is the error of
// the write. Errors wrap what f returned. NewIndex panics if s is nil or a zero Store, or f is
// nil. It takes O(n) for n objects, during which writers wait, but readers do not.
func NewIndex[I comparable, K comparable, V any](s *Store[K, V], f func(obj V) ([]I, error)) (*Index[I, K, V], error) {
	if s == nil || s.key.f == nil {
		panic("typedqueue: NewIndex without a Store from NewStore")
	}
	if f == nil {
		panic("typedqueue: NewIndex with a nil index function")
	}
	x := &Index[I, K, V]{store: s, f: f}
	s.writers.Lock()
	defer s.writers.Unlock()
	publish, err := x.rebuild(&s.entries)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	publish()
	s.indexes = append(s.indexes, x)
	return x, nil
}

// Get returns the objects with that index value, in a slice that is the caller's and is all
// that it allocates. It is one step: no object is missing or has gone meanwhile. It panics
// if value is not equal to itself or cannot be hashed.
func (x *Index[I, K, V]) Get(value I) []V {
	hash := x.fit.hash(value)
	x.store.mu.RLock()
	defer x.store.mu.RUnlock()
	c, entries := &x.catalog, &x.store.entries
	members := c.members(hash, value)
	objs := make([]V, len(members))
	for i, id := range members {
		objs[i] = entries.at(c.at(id).entry).acc
	}
	return objs
}

// Keys returns the keys of the objects that Get would return.
func (x *Index[I, K, V]) Keys(value I) []K {
	hash := x.fit.hash(value)
	x.store.mu.RLock()
	defer x.store.mu.RUnlock()
	c, entries := &x.catalog, &x.store.entries
	members := c.members(hash, value)
	keys := make([]K, len(members))
	for i, id := range members {
		keys[i] = entries.at(c.at(id).entry).key
	}
	return keys
}

// Values returns the index values that have at least one object, in a slice that is the
// caller's.
func (x *Index[I, K, V]) Values() []I {
	x.store.mu.RLock()
	defer x.store.mu.RUnlock()
	return collect(&x.catalog.postings, func(e *entry[I, []placeID]) I { return e.key })
}

// Close takes the index from its Store, which until then keeps it up to date, and alive. It
// waits for other writers. A closed Index finds nothing. Closing it again is harmless.
func (x *Index[I, K, V]) Close() {
	s := x.store
	s.writers.Lock()
	defer s.writers.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.indexes = slices.DeleteFunc(s.indexes, func(other storeIndex[K, V]) bool { return other == x })
	x.catalog, x.staged = catalog[I]{}, nil
}

func (x *Index[I, K, V]) stage(obj V) error {
	values, err := x.f(obj)
	if err != nil {
		return fmt.Errorf("typedqueue: index function: %w", err)
	}
	x.staged, err = distinct(x.staged[:0], values, &x.fit)
	return err
}

// distinct appends values to buf, which is empty, each once.
func distinct[I comparable](buf, values []I, fit *fitness[I]) ([]I, error) {
	var seen set[I]
	if len(values) > 16 { // a short list is searched faster than hashed
		seen = make(set[I], len(values))
	}
	for _, v := range values {
		if err := fit.fault(v); err != nil {
			return nil, fmt.Errorf("typedqueue: index function: unusable value: %w", err)
		}
		if seen.has(v) || seen == nil && slices.Contains(buf, v) {
			continue
		}
		if seen != nil {
			seen.add(v)
		}
		buf = append(buf, v)
	}
	return buf, nil
}

func (x *Index[I, K, V]) fileLocked(r ref) {
	x.catalog.file(r, x.staged)
	x.dropStaged()
}

// dropStaged lets the staged values be collected. A list of usual size is kept as a buffer.
func (x *Index[I, K, V]) dropStaged() {
	clear(x.staged)
	if x.staged = x.staged[:0]; cap(x.staged) > keepCap {
		x.staged = nil
	}
}

func (x *Index[I, K, V]) removeLocked(r ref)         { x.catalog.file(r, nil) }
func (x *Index[I, K, V]) renamedLocked(from, to ref) { x.catalog.renamed(from, to) }
func (x *Index[I, K, V]) trimLocked(last ref)        { x.catalog.cards.trim(last) }

func (x *Index[I, K, V]) rebuild(entries *table[K, V]) (publishLocked func(), err error) {
	defer x.dropStaged()
	fresh := catalog[I]{cards: make(column[placeID], entries.used+1)}
	for e := range entries.all {
		if err := x.stage(e.acc); err != nil {
			return nil, err
		}
		fresh.file(e.ref, x.staged)
	}
	return func() { x.catalog = fresh }, nil
}
