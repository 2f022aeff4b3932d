package kube

import (
	"fmt"
	"reflect"

	"k8s.io/client-go/tools/cache"

	"example.com/typedqueue"
)

// AsReflectorStore returns s, a Store, FIFO or DeltaFIFO, as what client-go's Reflector
// fills:
//
//	r := cache.NewReflector(listerWatcher, &corev1.Pod{}, kube.AsReflectorStore(fifo), 0)
//	go r.RunWithContext(ctx)
//
// Objects come as any. One that is not a V, as nil is not, is an error, and then nothing has changed,
// whatever else a Replace lists. All other errors are those of s. Its methods block, and may
// be called concurrently, as those of s. AsReflectorStore panics if s is nil.
//
// A cache.DeletedFinalStateUnknown is deleted by its Key, if s has a DeleteKey for a
// NamespacedName: so it needs no object, and in a DeltaFIFO it stays a deletion of unknown
// final state, with the newest object seen. A Key that is not one is an error. Any other s
// is given the object, and it is an error if that is not a V.
//
// Resource versions are not kept: the Reflector has a LastSyncResourceVersion of its own. So
// this is no cache.ReflectorBookmarkStore. Nor is it a cache.TransformingStore, with which
// streamed lists would pass a DeltaFIFO's Transform twice.
func AsReflectorStore[V any](s typedqueue.ReflectorStore[V]) cache.ReflectorStore {
	if s == nil {
		panic("typedqueue: AsReflectorStore of nil")
	}
	return reflectorStore[V]{s}
}

type reflectorStore[V any] struct{ to typedqueue.ReflectorStore[V] }

var _ cache.ReflectorStore = reflectorStore[int]{}

func (s reflectorStore[V]) Add(obj any) error    { return withTyped(obj, s.to.Add) }
func (s reflectorStore[V]) Update(obj any) error { return withTyped(obj, s.to.Update) }
func (s reflectorStore[V]) Resync() error        { return s.to.Resync() }

func (s reflectorStore[V]) Delete(obj any) error {
	if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		return s.deleteUnknown(d)
	}
	return withTyped(obj, s.to.Delete)
}

func (s reflectorStore[V]) deleteUnknown(d cache.DeletedFinalStateUnknown) error {
	switch to := s.to.(type) {
	case interface {
		DeleteKey(typedqueue.NamespacedName) error // FIFO, DeltaFIFO
	}:
		return withKey(d.Key, to.DeleteKey)
	case interface {
		DeleteKey(typedqueue.NamespacedName) bool // Store
	}:
		return withKey(d.Key, func(key typedqueue.NamespacedName) error {
			to.DeleteKey(key)
			return nil
		})
	}
	return withTyped(d.Obj, s.to.Delete)
}

func (s reflectorStore[V]) Replace(list []any, _ string) error {
	objs, err := allTyped[V](list)
	if err != nil {
		return err
	}
	return s.to.Replace(objs)
}

// typed returns obj as a V.
func typed[V any](obj any) (V, error) {
	v, ok := obj.(V)
	if !ok {
		return v, fmt.Errorf("typedqueue: object is a %T, not a %v", obj, reflect.TypeFor[V]())
	}
	return v, nil
}

func allTyped[V any](list []any) ([]V, error) {
	objs := make([]V, len(list))
	for i, obj := range list {
		var err error
		if objs[i], err = typed[V](obj); err != nil {
			return nil, err
		}
	}
	return objs, nil
}

// withTyped calls f with obj, if that is a V.
func withTyped[V any](obj any, f func(V) error) error {
	v, err := typed[V](obj)
	if err != nil {
		return err
	}
	return f(v)
}

// withKey calls f with the key that client-go writes as key.
func withKey(key string, f func(typedqueue.NamespacedName) error) error {
	k, err := typedqueue.ParseNamespacedName(key)
	if err != nil {
		return err
	}
	return f(k)
}
