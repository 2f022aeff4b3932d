package kube

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"

	"example.com/typedqueue"
)

// AsIndexer returns s as client-go's Indexer, and so as its Store, with an Index of s for
// each of indexers, which may be nil. It is what generated listers read:
//
//	x, err := kube.AsIndexer(store, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
//	pods := corelisters.NewPodLister(x)
//
// Key strings are those of MetaNamespaceKeyFunc, so the key function of s should be
// [typedqueue.MetaNamespaceKey]. A string that no key is written as is nobody's key: nothing
// is found by it. Get and Delete also take a cache.DeletedFinalStateUnknown or a
// cache.ExplicitKey, and go by that key; Delete returns an error if it is none. Any other
// object must be a V, or the call is an error and changes nothing, whatever else a Replace
// lists; but Index asks the index function about whatever it is given.
//
// Index functions follow the rules of [typedqueue.NewIndex]. Where one fails, client-go
// panics; here AsIndexer, AddIndexers or the write returns the error, and has changed
// nothing. Indexes stay with s for its life, so call AsIndexer once for a Store. An Index
// call whose object has several index values looks at one after the other, not at all of
// them in one moment; what it returns has no order, as ever. GetIndexers returns a copy.
//
// LastStoreSyncResourceVersion is what Replace, Bookmark, or the object of a write through
// this Indexer said last. Writes to s itself, so also those of [typedqueue.Apply], do not
// count. It means something only if all writes come in the source's order, as from a Reflector
// that fills the Indexer itself; a DeltaFIFO between them reorders keys. Such a Reflector
// tells bookmarks too, as this is a cache.ResourceVersionUpdater. It is no
// cache.ReflectorBookmarkStore, whose Bookmark is not that of a cache.Store, and no
// cache.TransactionStore, as a Store has no write of several objects but Replace. Resync does
// nothing.
//
// All methods may be called concurrently. Writes wait for other writes, reads for no
// caller's function. AsIndexer panics if s is nil or an index function is.
func AsIndexer[V any](s *typedqueue.Store[typedqueue.NamespacedName, V], indexers cache.Indexers) (cache.TypedIndexer[V], error) {
	if s == nil {
		panic("typedqueue: AsIndexer of nil")
	}
	x := &indexer[V]{store: s}
	x.indexes.Store(&map[string]namedIndex[V]{})
	if err := x.AddIndexers(indexers); err != nil {
		return nil, err
	}
	return x, nil
}

type indexer[V any] struct {
	store   *typedqueue.Store[typedqueue.NamespacedName, V]
	writers sync.Mutex // one write at a time, so that version follows the order of writes

	version atomic.Value                             // a string, or nothing yet; changed by the holder of writers
	indexes atomic.Pointer[map[string]namedIndex[V]] // by name; replaced, never changed, by the holder of writers
}

// namedIndex is an index that has a name.
type namedIndex[V any] struct {
	*typedqueue.Index[string, typedqueue.NamespacedName, V]
	f cache.IndexFunc // what Index asks, of objects that need not be a V
}

var (
	_ cache.TypedIndexer[int]      = (*indexer[int])(nil)
	_ cache.ResourceVersionUpdater = (*indexer[int])(nil)
)

func (x *indexer[V]) Add(obj any) error    { return x.write(obj, x.store.Add) }
func (x *indexer[V]) Update(obj any) error { return x.write(obj, x.store.Update) }
func (x *indexer[V]) Resync() error        { return nil }

func (x *indexer[V]) Delete(obj any) error {
	key, ok := bareKey(obj)
	if !ok {
		return x.write(obj, x.store.Delete)
	}
	return withKey(key, func(key typedqueue.NamespacedName) error {
		x.writers.Lock()
		defer x.writers.Unlock()
		x.store.DeleteKey(key)
		return nil
	})
}

// bareKey returns the key of an obj that is a key more than an object.
func bareKey(obj any) (key string, ok bool) {
	switch obj := obj.(type) {
	case cache.DeletedFinalStateUnknown:
		return obj.Key, true
	case cache.ExplicitKey:
		return string(obj), true
	}
	return "", false
}

// write calls f with obj, and notes its resource version.
func (x *indexer[V]) write(obj any, f func(V) error) error {
	x.writers.Lock()
	defer x.writers.Unlock()
	if err := withTyped(obj, f); err != nil {
		return err
	}
	if m, err := meta.Accessor(obj); err == nil {
		x.version.Store(m.GetResourceVersion())
	}
	return nil
}

func (x *indexer[V]) Replace(list []any, resourceVersion string) error {
	objs, err := allTyped[V](list)
	if err != nil {
		return err
	}
	x.writers.Lock()
	defer x.writers.Unlock()
	if err := x.store.Replace(objs); err != nil {
		return err
	}
	x.version.Store(resourceVersion)
	return nil
}

func (x *indexer[V]) Bookmark(resourceVersion string) {
	x.writers.Lock()
	defer x.writers.Unlock()
	x.version.Store(resourceVersion)
}

// UpdateResourceVersion is how a Reflector that fills the Indexer tells of bookmarks.
func (x *indexer[V]) UpdateResourceVersion(resourceVersion string) { x.Bookmark(resourceVersion) }

func (x *indexer[V]) LastStoreSyncResourceVersion() string {
	version, _ := x.version.Load().(string)
	return version
}

func (x *indexer[V]) Get(obj any) (item any, exists bool, err error) {
	if key, ok := bareKey(obj); ok {
		return x.GetByKey(key)
	}
	v, err := typed[V](obj)
	if err != nil {
		return nil, false, err
	}
	if v, exists, err = x.store.Get(v); !exists {
		return nil, false, err
	}
	return v, true, nil
}

func (x *indexer[V]) GetByKey(key string) (item any, exists bool, err error) {
	name, err := typedqueue.ParseNamespacedName(key)
	if err != nil {
		return nil, false, nil // as for any other key under which nothing is stored
	}
	v, exists := x.store.GetByKey(name)
	if !exists {
		return nil, false, nil
	}
	return v, true, nil
}

func (x *indexer[V]) List() []any        { return untyped(x.store.List()) }
func (x *indexer[V]) ListKeys() []string { return keyStrings(x.store.ListKeys()) }

func untyped[V any](objs []V) []any {
	list := make([]any, len(objs))
	for i, obj := range objs {
		list[i] = obj
	}
	return list
}

func keyStrings(keys []typedqueue.NamespacedName) []string {
	list := make([]string, len(keys))
	for i, key := range keys {
		list[i] = key.String()
	}
	return list
}

// AddIndexers adds all of newIndexers or, on an error or a panic, none.
func (x *indexer[V]) AddIndexers(newIndexers cache.Indexers) error {
	x.writers.Lock()
	defer x.writers.Unlock()
	all := maps.Clone(*x.indexes.Load())
	var fresh []namedIndex[V]
	defer func() {
		for _, index := range fresh {
			index.Close()
		}
	}()
	for name, f := range newIndexers {
		if _, taken := all[name]; taken {
			return fmt.Errorf("typedqueue: there is an index %q already", name)
		}
		index, err := newNamedIndex(x.store, name, f)
		if err != nil {
			return err
		}
		fresh = append(fresh, index)
		all[name] = index
	}
	x.indexes.Store(&all)
	fresh = nil // they stay
	return nil
}

func newNamedIndex[V any](s *typedqueue.Store[typedqueue.NamespacedName, V], name string, f cache.IndexFunc) (namedIndex[V], error) {
	if f == nil {
		panic(fmt.Sprintf("typedqueue: the function of index %q is nil", name))
	}
	index, err := typedqueue.NewIndex(s, func(obj V) ([]string, error) { return f(obj) })
	if err != nil {
		return namedIndex[V]{}, fmt.Errorf("index %q: %w", name, err)
	}
	return namedIndex[V]{index, f}, nil
}

func (x *indexer[V]) AddTypedIndexers(newIndexers cache.TypedIndexers[V]) error {
	indexers := make(cache.Indexers, len(newIndexers))
	for name, f := range newIndexers {
		indexers[name] = ofAny(f)
	}
	return x.AddIndexers(indexers)
}

// ofAny is cache.TypedIndexerFuncToIndexerFunc, with an error where that panics.
func ofAny[V any](f cache.TypedIndexFunc[V]) cache.IndexFunc {
	if f == nil {
		return nil
	}
	return func(obj any) ([]string, error) {
		v, err := typed[V](obj)
		if err != nil {
			return nil, err
		}
		return f(v)
	}
}

func (x *indexer[V]) GetIndexers() cache.Indexers {
	indexers := cache.Indexers{}
	for name, index := range *x.indexes.Load() {
		indexers[name] = index.f
	}
	return indexers
}

// index returns the index of that name.
func (x *indexer[V]) index(name string) (namedIndex[V], error) {
	index, ok := (*x.indexes.Load())[name]
	if !ok {
		return index, fmt.Errorf("typedqueue: there is no index %q", name)
	}
	return index, nil
}

func (x *indexer[V]) Index(indexName string, obj any) ([]any, error) {
	objs, err := x.similar(indexName, obj)
	if err != nil {
		return nil, err
	}
	return untyped(objs), nil
}

func (x *indexer[V]) TypedIndex(indexName string, obj V) ([]V, error) {
	return x.similar(indexName, obj)
}

// similar returns the objects that share an index value with obj.
func (x *indexer[V]) similar(indexName string, obj any) ([]V, error) {
	index, err := x.index(indexName)
	if err != nil {
		return nil, err
	}
	values, err := index.f(obj)
	if err != nil {
		return nil, fmt.Errorf("index %q: %w", indexName, err)
	}
	if len(values) == 1 { // nearly always
		return index.Get(values[0]), nil
	}
	return x.union(index, values), nil
}

// union returns the objects that have any of values, each once.
func (x *indexer[V]) union(index namedIndex[V], values []string) []V {
	objs := []V{}
	seen := make(map[typedqueue.NamespacedName]bool)
	for _, value := range values {
		for _, key := range index.Keys(value) {
			if seen[key] {
				continue
			}
			seen[key] = true
			if obj, ok := x.store.GetByKey(key); ok {
				objs = append(objs, obj)
			}
		}
	}
	return objs
}

func (x *indexer[V]) ByIndex(indexName, indexedValue string) ([]any, error) {
	objs, err := x.ByTypedIndex(indexName, indexedValue)
	if err != nil {
		return nil, err
	}
	return untyped(objs), nil
}

func (x *indexer[V]) ByTypedIndex(indexName, indexedValue string) ([]V, error) {
	index, err := x.index(indexName)
	if err != nil {
		return nil, err
	}
	return index.Get(indexedValue), nil
}

func (x *indexer[V]) IndexKeys(indexName, indexedValue string) ([]string, error) {
	index, err := x.index(indexName)
	if err != nil {
		return nil, err
	}
	keys := keyStrings(index.Keys(indexedValue))
	slices.Sort(keys) // as client-go does
	return keys, nil
}

func (x *indexer[V]) ListIndexFuncValues(indexName string) []string {
	index, err := x.index(indexName)
	if err != nil {
		return []string{}
	}
	return index.Values()
}
