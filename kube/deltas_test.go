package kube_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"example.com/typedqueue"
	"example.com/typedqueue/kube"
)

// popped is what a process function was called with.
type popped struct {
	deltas  cache.Deltas
	initial bool
}

// popOne lets one call of Pop return err, and returns what that was given and has returned.
func popOne(t *testing.T, q cache.Queue, err error) popped {
	t.Helper()
	var p popped
	got, gotErr := q.Pop(func(obj any, initial bool) error {
		p = popped{obj.(cache.Deltas), initial}
		return err
	})
	if !reflect.DeepEqual(got, p.deltas) || gotErr != err {
		t.Errorf("Pop returned %v and error %v, of %v and %v", got, gotErr, p.deltas, err)
	}
	return p
}

func wantPopped(t *testing.T, what string, got popped, initial bool, want ...cache.Delta) {
	t.Helper()
	if !reflect.DeepEqual(got, popped{want, initial}) {
		t.Errorf("%s: %v, want %v, initial %v", what, got, want, initial)
	}
}

func TestQueuePopsDeltas(t *testing.T) {
	store, fifo := newStoreAndFIFO()
	q := kube.AsQueue(fifo)
	old, a1, a2, a3, b := makeConfigMap("old", "1"), makeConfigMap("ns/a", "2"), makeConfigMap("ns/a", "3"), makeConfigMap("ns/a", "4"), makeConfigMap("b", "5")
	must(store.Add(old))
	must(q.Replace([]any{b}, "6"))
	must(q.Add(a1))
	must(q.Update(a2))
	must(q.Delete(a3))
	wantPopped(t, "list", popOne(t, q, nil), true, cache.Delta{Type: cache.Replaced, Object: b})
	wantPopped(t, "not listed", popOne(t, q, nil), true,
		cache.Delta{Type: cache.Deleted, Object: cache.DeletedFinalStateUnknown{Key: "old", Obj: old}})
	wantPopped(t, "changes", popOne(t, q, nil), false,
		cache.Delta{Type: cache.Added, Object: a1}, cache.Delta{Type: cache.Updated, Object: a2}, cache.Delta{Type: cache.Deleted, Object: a3})
	must(q.Resync())
	wantPopped(t, "resync", popOne(t, q, nil), false, cache.Delta{Type: cache.Sync, Object: old})

	must(fifo.AddIfNotPresent(configMapKey{Namespace: "ns", Name: "c"}, typedqueue.Deltas[configMap]{
		{Type: typedqueue.Deleted, FinalStateUnknown: true, ObjectMissing: true},
		{Type: "Moved", Object: a1},
	}))
	got := popOne(t, q, nil)
	wantPopped(t, "without an object", got, false,
		cache.Delta{Type: cache.Deleted, Object: cache.DeletedFinalStateUnknown{Key: "ns/c"}}, cache.Delta{Type: "Moved", Object: a1})
	if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(got.deltas[0].Object); key != "ns/c" || err != nil {
		t.Errorf("client-go finds the key %q, error %v", key, err)
	}
}

func TestQueueRequeues(t *testing.T) {
	_, fifo := newStoreAndFIFO()
	q := kube.AsQueue(fifo)
	a, b := makeConfigMap("a", "1"), makeConfigMap("b", "1")
	must(q.Add(a))
	must(q.Add(b))
	failed := errors.New("no")
	added := func(obj configMap) cache.Delta { return cache.Delta{Type: cache.Added, Object: obj} }
	wantPopped(t, "requeued", popOne(t, q, typedqueue.Requeue(failed)), false, added(a))
	must(q.Delete(a))
	wantPopped(t, "lost", popOne(t, q, failed), false, added(b))
	func() {
		defer func() { recover() }()
		q.Pop(func(any, bool) error { panic("at the disco") })
	}()
	wantPopped(t, "again", popOne(t, q, nil), false, added(a), cache.Delta{Type: cache.Deleted, Object: a})
	if n := fifo.Len(); n != 0 {
		t.Errorf("%d keys pending", n)
	}
}

// TestQueueRequeuedOwnsNothing changes what it was given, and asks for it again.
func TestQueueRequeuedOwnsNothing(t *testing.T) {
	_, fifo := newStoreAndFIFO()
	q := kube.AsQueue(fifo)
	a := makeConfigMap("a", "1")
	must(q.Add(a))
	q.Pop(func(obj any, _ bool) error {
		clear(obj.(cache.Deltas))
		return typedqueue.Requeue(nil)
	})
	wantPopped(t, "again", popOne(t, q, nil), false, cache.Delta{Type: cache.Added, Object: a})
}

func TestQueueClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, fifo := newStoreAndFIFO()
		q := kube.AsQueue(fifo)
		a := makeConfigMap("a", "1")
		must(q.Add(a))
		q.Close()
		if err := q.Add(a); !errors.Is(err, typedqueue.ErrClosed) {
			t.Errorf("Add: error %v", err)
		}
		// This error is the process's own, as the next Pop shows.
		wantPopped(t, "pending", popOne(t, q, typedqueue.ErrClosed), false, cache.Delta{Type: cache.Added, Object: a})
		if obj, err := q.Pop(func(any, bool) error { panic("called") }); obj != nil || err != cache.ErrFIFOClosed {
			t.Errorf("Pop returned %v, error %v", obj, err)
		}
	})
}

func TestQueueCloseWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, fifo := newStoreAndFIFO()
		q := kube.AsQueue(fifo)
		done := make(chan error)
		go func() {
			_, err := q.Pop(func(any, bool) error { return nil })
			done <- err
		}()
		synctest.Wait()
		q.Close()
		if err := <-done; err != cache.ErrFIFOClosed {
			t.Errorf("Pop: error %v", err)
		}
	})
}

func TestQueueSyncs(t *testing.T) {
	_, fifo := newStoreAndFIFO()
	q := kube.AsQueue(fifo)
	checker := q.HasSyncedChecker()
	if got := checker.Name(); got != "DeltaFIFO *v1.ConfigMap" {
		t.Errorf("name %q", got)
	}
	wantSynced := func(want bool) {
		t.Helper()
		done := cache.IsDone(checker)
		if got := q.HasSynced(); got != want || done != want {
			t.Errorf("HasSynced is %v, Done is %v, want %v", got, done, want)
		}
	}
	wantSynced(false)
	must(q.Replace([]any{makeConfigMap("a", "1")}, "1"))
	wantSynced(false)
	q.Pop(func(any, bool) error {
		wantSynced(false) // popped is not processed
		return nil
	})
	wantSynced(true)
}

func TestQueuePanics(t *testing.T) {
	wantPanic(t, "nil queue", func() { kube.AsQueue[configMap](nil) })
	_, fifo := newStoreAndFIFO()
	q := kube.AsQueue(fifo)
	must(q.Add(makeConfigMap("a", "1")))
	wantPanic(t, "nil process", func() { q.Pop(nil) })
	if n := fifo.Len(); n != 1 {
		t.Errorf("%d keys pending", n)
	}
}

// A consumer of cache.Deltas stays as it is.
func ExampleAsQueue() {
	var listerWatcher cache.ListerWatcher = newSource(script{objects: 2})
	ctx, cancel := context.WithCancel(context.Background())

	key := typedqueue.MetaNamespaceKey[*corev1.ConfigMap]
	typed := typedqueue.NewStore(key)
	fifo := typedqueue.NewDeltaFIFO(key, typedqueue.DeltaFIFOOptions[typedqueue.NamespacedName, *corev1.ConfigMap]{KnownObjects: typed})
	store, err := kube.AsIndexer(typed, nil)
	if err != nil {
		panic(err) // of an index function
	}
	cache.New(&cache.Config{
		Queue:         kube.AsQueue(fifo),
		ListerWatcher: listerWatcher,
		ObjectType:    &corev1.ConfigMap{},
		Process: func(obj any, _ bool) error {
			for _, d := range obj.(cache.Deltas) {
				if d.Type == cache.Deleted {
					store.Delete(d.Object)
				} else {
					store.Update(d.Object)
				}
			}
			fmt.Println("stored:", store.ListKeys())
			cancel()
			return nil
		},
	}).RunWithContext(ctx)
	// Output: stored: [ns0/object0]
}
