package kube

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"k8s.io/client-go/tools/cache"

	"example.com/typedqueue"
)

// AsQueue returns q as the Queue of a client-go Controller, whose Process is given
// cache.Deltas:
//
//	c := cache.New(&cache.Config{Queue: kube.AsQueue(fifo), ListerWatcher: lw, Process: process})
//
// Writes are those of [AsReflectorStore]. Types of change keep their names. A deletion of
// unknown final state is a cache.DeletedFinalStateUnknown, with the key as
// MetaNamespaceKeyFunc writes it, and with the object, or nil if none was ever seen.
//
// Pop calls process in its own goroutine, outside the lock of q, and several goroutines may
// Pop at once: no key is in two hands. If process returns an error made by
// [typedqueue.Requeue], or panics, the changes go back, in front of what came for their key
// meanwhile; any other error is just returned. A Controller drops all errors but
// cache.ErrFIFOClosed and pops again at once, so a process that asks for a requeue has to
// wait by itself, or else keeps a processor busy. A nil process panics.
//
// HasSynced, and the channel of HasSyncedChecker, tell whether the first list has been
// processed, not just popped. After Close, which a Controller calls when it is stopped, Pop
// hands out what is pending and then returns cache.ErrFIFOClosed; writes return
// [typedqueue.ErrClosed], where client-go accepts them. AsQueue panics if q is nil.
//
// This is no cache.QueueWithBatch, as it already hands out a key's changes together. There
// are no deltas of client-go's types ReplacedAll, SyncAll and Bookmark either: a list is
// one delta per key here.
func AsQueue[V any](q *typedqueue.DeltaFIFO[typedqueue.NamespacedName, V]) cache.Queue {
	if q == nil {
		panic("typedqueue: AsQueue of nil")
	}
	return queue[V]{AsReflectorStore(q), q}
}

type queue[V any] struct {
	cache.ReflectorStore
	fifo *typedqueue.DeltaFIFO[typedqueue.NamespacedName, V]
}

var (
	_ cache.Queue       = queue[int]{}
	_ cache.DoneChecker = queue[int]{}
)

func (q queue[V]) HasSynced() bool                     { return q.fifo.HasSynced() }
func (q queue[V]) HasSyncedChecker() cache.DoneChecker { return q }
func (q queue[V]) Done() <-chan struct{}               { return q.fifo.Synced() }
func (q queue[V]) Name() string                        { return fmt.Sprintf("DeltaFIFO %v", reflect.TypeFor[V]()) }
func (q queue[V]) Close()                              { q.fifo.Close() }

func (q queue[V]) Pop(process cache.PopProcessFunc) (any, error) {
	if process == nil {
		panic("typedqueue: nil process")
	}
	var popped cache.Deltas
	_, err := q.fifo.Pop(context.Background(), func(key typedqueue.NamespacedName, deltas typedqueue.Deltas[V], isInInitialList bool) error {
		popped = cacheDeltas(key, deltas)
		return process(popped, isInInitialList)
	})
	if popped == nil && errors.Is(err, typedqueue.ErrClosed) {
		return nil, cache.ErrFIFOClosed
	}
	return popped, err
}

// cacheDeltas returns a copy of deltas as client-go writes them.
func cacheDeltas[V any](key typedqueue.NamespacedName, deltas typedqueue.Deltas[V]) cache.Deltas {
	converted := make(cache.Deltas, len(deltas))
	for i, d := range deltas {
		var obj any
		if !d.ObjectMissing {
			obj = d.Object
		}
		if d.FinalStateUnknown {
			obj = cache.DeletedFinalStateUnknown{Key: key.String(), Obj: obj}
		}
		converted[i] = cache.Delta{Type: cache.DeltaType(d.Type), Object: obj}
	}
	return converted
}
