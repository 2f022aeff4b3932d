package kube_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"example.com/typedqueue"
	"example.com/typedqueue/kube"
)

// makeConfigMap returns an object of key "namespace/name" or "name".
func makeConfigMap(key, version string) configMap {
	name, err := typedqueue.ParseNamespacedName(key)
	must(err)
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: name.Namespace, Name: name.Name, ResourceVersion: version,
	}}
}

// wantPanic checks that f panics in the words of typedqueue.
func wantPanic(t *testing.T, what string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if r := recover(); r == nil || !strings.HasPrefix(fmt.Sprint(r), "typedqueue: ") {
			t.Errorf("%s: panic %v", what, r)
		}
	}()
	f()
}

// wantTypeError checks that err names both types.
func wantTypeError(t *testing.T, what string, err error, got string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), got) || !strings.Contains(err.Error(), "*v1.ConfigMap") {
		t.Errorf("%s: error %v", what, err)
	}
}

// drain describes all that is pending, and takes it.
func drain(t *testing.T, q *configMapFIFO) (all []string) {
	t.Helper()
	for q.Len() > 0 {
		q.Pop(t.Context(), func(key configMapKey, deltas typedqueue.Deltas[configMap], _ bool) error {
			for _, d := range deltas {
				text := fmt.Sprintf("%v %v", d.Type, key)
				if d.FinalStateUnknown {
					text += " unknown"
				}
				if !d.ObjectMissing {
					text += " " + d.Object.ResourceVersion
				}
				all = append(all, text)
			}
			return nil
		})
	}
	return all
}

func wantStrings(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// TestReflectorStoreDeltas makes all calls of a DeltaFIFO, which tells them apart.
func TestReflectorStoreDeltas(t *testing.T) {
	store, fifo := newStoreAndFIFO()
	s := kube.AsReflectorStore(fifo)
	must(store.Add(makeConfigMap("ns/known", "1")))
	must(s.Resync())
	must(s.Add(makeConfigMap("ns/a", "2")))
	must(s.Update(makeConfigMap("ns/a", "3")))
	must(s.Delete(makeConfigMap("ns/a", "4")))
	must(s.Replace([]any{makeConfigMap("b", "5")}, "6"))
	wantStrings(t, "pending", drain(t, fifo),
		"Sync ns/known 1", "Deleted ns/known unknown 1",
		"Added ns/a 2", "Updated ns/a 3", "Deleted ns/a 4",
		"Replaced b 5")
}

func TestReflectorStoreOfAStore(t *testing.T) {
	store, _ := newStoreAndFIFO()
	s := kube.AsReflectorStore(store)
	must(s.Add(makeConfigMap("ns/a", "1")))
	must(s.Add(makeConfigMap("ns/b", "1")))
	must(s.Update(makeConfigMap("ns/a", "2")))
	must(s.Resync())
	if a, _ := store.GetByKey(configMapKey{Namespace: "ns", Name: "a"}); a.ResourceVersion != "2" {
		t.Errorf("a has version %v", a.ResourceVersion)
	}
	must(s.Delete(makeConfigMap("ns/a", "3")))
	if _, ok := store.GetByKey(configMapKey{Namespace: "ns", Name: "a"}); ok || store.Len() != 1 {
		t.Errorf("a is there: %v, of %d", ok, store.Len())
	}
	must(s.Replace([]any{makeConfigMap("c", "4")}, "5"))
	if _, ok := store.GetByKey(configMapKey{Name: "c"}); !ok || store.Len() != 1 {
		t.Errorf("c is there: %v, of %d", ok, store.Len())
	}
}

// TestReflectorStoreWrongType tries what is not a ConfigMap, and sees that nothing happens.
func TestReflectorStoreWrongType(t *testing.T) {
	_, fifo := newStoreAndFIFO()
	s := kube.AsReflectorStore(fifo)
	must(s.Add(makeConfigMap("a", "1")))
	for _, obj := range []any{nil, &corev1.Secret{}, corev1.ConfigMap{}, "a"} {
		typ := fmt.Sprintf("a %T,", obj)
		wantTypeError(t, "Add", s.Add(obj), typ)
		wantTypeError(t, "Update", s.Update(obj), typ)
		wantTypeError(t, "Delete", s.Delete(obj), typ)
		wantTypeError(t, "Replace", s.Replace([]any{makeConfigMap("b", "2"), obj}, "3"), typ)
	}
	tombstone := cache.DeletedFinalStateUnknown{Key: "a", Obj: makeConfigMap("a", "1")}
	wantTypeError(t, "Add", s.Add(tombstone), "DeletedFinalStateUnknown")
	wantTypeError(t, "Update", s.Update(tombstone), "DeletedFinalStateUnknown")
	wantTypeError(t, "Replace", s.Replace([]any{tombstone}, ""), "DeletedFinalStateUnknown")
	wantStrings(t, "pending", drain(t, fifo), "Added a 1")
}

func TestReflectorStoreErrors(t *testing.T) {
	bad := errors.New("no key")
	fifo := typedqueue.NewFIFO(func(configMap) (configMapKey, error) { return configMapKey{}, bad })
	s := kube.AsReflectorStore(fifo)
	for what, err := range map[string]error{
		"Add": s.Add(makeConfigMap("a", "1")), "Update": s.Update(makeConfigMap("a", "1")),
		"Delete": s.Delete(makeConfigMap("a", "1")), "Replace": s.Replace([]any{makeConfigMap("a", "1")}, "1"),
	} {
		if !errors.Is(err, bad) {
			t.Errorf("%s: error %v", what, err)
		}
	}
	fifo.Close()
	if err := s.Resync(); !errors.Is(err, typedqueue.ErrClosed) {
		t.Errorf("Resync: error %v", err)
	}
	if err := s.Delete(cache.DeletedFinalStateUnknown{Key: "a"}); !errors.Is(err, typedqueue.ErrClosed) {
		t.Errorf("Delete: error %v", err)
	}
	wantPanic(t, "nil", func() { kube.AsReflectorStore[configMap](nil) })
}

// TestReflectorStoreTombstones deletes by key whatever the tombstone has for an object.
func TestReflectorStoreTombstones(t *testing.T) {
	objects := map[string]any{
		"none": nil, "its": makeConfigMap("ns/a", "0"), "another": makeConfigMap("ns/b", "0"), "wrong": &corev1.Secret{},
	}
	for name, obj := range objects {
		t.Run(name, func(t *testing.T) {
			tombstone := cache.DeletedFinalStateUnknown{Key: "ns/a", Obj: obj}
			store, delta := newStoreAndFIFO()
			fifo := typedqueue.NewFIFO(typedqueue.MetaNamespaceKey[configMap])
			for _, s := range []cache.ReflectorStore{kube.AsReflectorStore(store), kube.AsReflectorStore(delta), kube.AsReflectorStore(fifo)} {
				must(s.Add(makeConfigMap("ns/a", "1")))
				must(s.Add(makeConfigMap("ns/b", "1")))
				must(s.Delete(tombstone))
				must(s.Delete(cache.DeletedFinalStateUnknown{Key: "nobody", Obj: obj}))
				if err := s.Delete(cache.DeletedFinalStateUnknown{Key: "a/b/c", Obj: obj}); err == nil {
					t.Error("a/b/c is a key")
				}
			}
			left := []configMapKey{{Namespace: "ns", Name: "b"}}
			if keys := store.ListKeys(); !reflect.DeepEqual(keys, left) {
				t.Errorf("Store has %v", keys)
			}
			if keys := fifo.ListKeys(); !reflect.DeepEqual(keys, left) {
				t.Errorf("FIFO has %v", keys)
			}
			wantStrings(t, "DeltaFIFO", drain(t, delta), "Added ns/a 1", "Deleted ns/a unknown 1", "Added ns/b 1")
		})
	}
}

// TestReflectorStoreOtherKeys has keys that client-go knows nothing of.
func TestReflectorStoreOtherKeys(t *testing.T) {
	store := typedqueue.NewStore(func(obj configMap) (string, error) { return obj.ResourceVersion, nil })
	s := kube.AsReflectorStore(store)
	must(s.Add(makeConfigMap("ns/a", "1")))
	wantTypeError(t, "Delete", s.Delete(cache.DeletedFinalStateUnknown{Key: "1"}), "a <nil>,")
	if store.Len() != 1 {
		t.Error("deleted by a key of client-go's")
	}
	must(s.Delete(cache.DeletedFinalStateUnknown{Key: "?", Obj: makeConfigMap("ns/a", "1")}))
	if store.Len() != 0 {
		t.Error("not deleted by its object")
	}
}

// TestOptionalInterfaces says which of the interfaces that client-go probes for are there. One
// that is there by accident would change what a Reflector or Controller does.
func TestOptionalInterfaces(t *testing.T) {
	store, fifo := newStoreAndFIFO()
	x, err := kube.AsIndexer(store, nil)
	must(err)
	for name, c := range map[string]struct {
		adapter any
		want    []string
	}{
		"reflector store": {adapter: kube.AsReflectorStore(fifo)},
		"queue":           {adapter: kube.AsQueue(fifo)},
		"indexer":         {adapter: x, want: []string{"ResourceVersionUpdater"}},
	} {
		var got []string
		probe := func(name string, ok bool) {
			if ok {
				got = append(got, name)
			}
		}
		_, ok := c.adapter.(cache.ResourceVersionUpdater)
		probe("ResourceVersionUpdater", ok)
		_, ok = c.adapter.(cache.ReflectorBookmarkStore)
		probe("ReflectorBookmarkStore", ok)
		_, ok = c.adapter.(cache.TransformingStore)
		probe("TransformingStore", ok)
		_, ok = c.adapter.(cache.QueueWithBatch)
		probe("QueueWithBatch", ok)
		_, ok = c.adapter.(cache.TransactionStore)
		probe("TransactionStore", ok)
		wantStrings(t, name, got, c.want...)
	}
}

// A Reflector lists and watches, a DeltaFIFO lines up what changes, and a Store is kept equal
// to the source, with a handler that is told.
func ExampleAsReflectorStore() {
	var listerWatcher cache.ListerWatcher = newSource(script{objects: 2})
	ctx, cancel := context.WithCancel(context.Background())

	key := typedqueue.MetaNamespaceKey[*corev1.ConfigMap]
	store := typedqueue.NewStore(key)
	fifo := typedqueue.NewDeltaFIFO(key, typedqueue.DeltaFIFOOptions[typedqueue.NamespacedName, *corev1.ConfigMap]{KnownObjects: store})
	r := cache.NewReflector(listerWatcher, &corev1.ConfigMap{}, kube.AsReflectorStore(fifo), 0)
	var reflector sync.WaitGroup
	reflector.Go(func() { r.RunWithContext(ctx) })

	handler := typedqueue.Handler[typedqueue.NamespacedName, *corev1.ConfigMap]{
		OnAdd: func(key typedqueue.NamespacedName, _ *corev1.ConfigMap, _ bool) { fmt.Println("added:", key) },
	}
	for !fifo.HasSynced() { // or, to go on for ever: for ctx.Err() == nil
		fifo.Pop(ctx, func(key typedqueue.NamespacedName, deltas typedqueue.Deltas[*corev1.ConfigMap], initial bool) error {
			return typedqueue.Apply(store, key, deltas, initial, handler)
		})
	}
	cancel()
	reflector.Wait()
	fmt.Println("stored:", store.Len())
	// Output:
	// added: ns0/object0
	// added: ns1/object1
	// stored: 2
}
