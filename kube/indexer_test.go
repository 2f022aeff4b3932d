package kube_test

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"pgregory.net/rapid"

	"example.com/typedqueue"
	"example.com/typedqueue/kube"
)

func newIndexer(t *testing.T, indexers cache.Indexers) (*configMapStore, cache.TypedIndexer[configMap]) {
	t.Helper()
	store, _ := newStoreAndFIFO()
	x, err := kube.AsIndexer(store, indexers)
	if err != nil {
		t.Fatal(err)
	}
	return store, x
}

// byOwners has none, one or more values.
func byOwners(obj any) (values []string, err error) {
	m, ok := obj.(metav1.Object)
	if !ok {
		return nil, fmt.Errorf("%T has no owners", obj)
	}
	for _, owner := range m.GetOwnerReferences() {
		values = append(values, owner.Name)
	}
	return values, nil
}

// TestIndexerIsClientGos calls our Indexer and client-go's in turn, and compares all that they
// answer, but for the order of lists.
func TestIndexerIsClientGos(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
		store, _ := newStoreAndFIFO()
		ours, err := kube.AsIndexer(store, indexers)
		must(err)
		theirs := cache.NewIndexer(cache.DeletionHandlingMetaNamespaceKeyFunc, maps.Clone(indexers))
		version := 0
		objects := rapid.Custom(func(t *rapid.T) configMap {
			version++
			obj := makeConfigMap(rapid.SampledFrom([]string{"x", "y", "n/x", "n/y", "m/x", ""}).Draw(t, "key"), strconv.Itoa(version))
			for _, name := range rapid.SliceOfN(rapid.StringOfN(rapid.RuneFrom([]rune("abc")), 1, 1, -1), 0, 3).Draw(t, "owners") {
				obj.OwnerReferences = append(obj.OwnerReferences, metav1.OwnerReference{Name: name})
			}
			return obj
		})
		both := func(f func(cache.Indexer) error) {
			if got, want := f(ours), f(theirs); (got == nil) != (want == nil) {
				t.Fatalf("error %v, client-go's %v", got, want)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				obj := objects.Draw(t, "obj")
				both(func(x cache.Indexer) error { return x.Add(obj) })
			},
			"update": func(t *rapid.T) {
				obj := objects.Draw(t, "obj")
				both(func(x cache.Indexer) error { return x.Update(obj) })
			},
			"delete": func(t *rapid.T) {
				obj := objects.Draw(t, "obj")
				both(func(x cache.Indexer) error { return x.Delete(obj) })
			},
			"delete tombstone": func(t *rapid.T) {
				obj := objects.Draw(t, "obj")
				key, _ := cache.MetaNamespaceKeyFunc(obj)
				both(func(x cache.Indexer) error { return x.Delete(cache.DeletedFinalStateUnknown{Key: key, Obj: obj}) })
			},
			"delete key": func(t *rapid.T) {
				key, _ := cache.MetaNamespaceKeyFunc(objects.Draw(t, "obj"))
				both(func(x cache.Indexer) error { return x.Delete(cache.ExplicitKey(key)) })
			},
			"replace": func(t *rapid.T) {
				list := rapid.SliceOfN(objects, 0, 5).Draw(t, "list")
				both(func(x cache.Indexer) error { return x.Replace(listed(list), strconv.Itoa(version)) })
			},
			"bookmark": func(t *rapid.T) {
				version++
				both(func(x cache.Indexer) error { x.Bookmark(strconv.Itoa(version)); return x.Resync() })
			},
			"index": func(t *rapid.T) {
				both(func(x cache.Indexer) error { return x.AddIndexers(cache.Indexers{"owners": byOwners}) })
			},
			"": func(t *rapid.T) {
				questions := append(rapid.SliceOfN(objects, 1, 3).Draw(t, "questions"), makeConfigMap("nobody/x", ""))
				if got, want := answers(ours, questions), answers(theirs, questions); !reflect.DeepEqual(got, want) {
					t.Fatalf("answers\n%v\nclient-go's\n%v", got, want)
				}
			},
		})
	})
}

// answers returns all that x can tell.
func answers(x cache.Indexer, questions []configMap) map[string]any {
	all := map[string]any{
		"list": sortedObjects(x.List()), "keys": slices.Sorted(slices.Values(x.ListKeys())),
		"version": x.LastStoreSyncResourceVersion(), "indexers": slices.Sorted(maps.Keys(x.GetIndexers())),
	}
	answer := func(question string, got any, more ...any) { all[question] = fmt.Sprint(append(more, got)...) }
	for _, name := range []string{cache.NamespaceIndex, "owners", "none"} {
		values := x.ListIndexFuncValues(name)
		slices.Sort(values)
		all["values of "+name] = values
		for _, value := range append(values, "nothing") {
			objs, err := x.ByIndex(name, value)
			answer("objects of "+name+value, sortedObjects(objs), err == nil)
			keys, err := x.IndexKeys(name, value)
			answer("keys of "+name+value, keys, err == nil)
		}
		for i, obj := range questions {
			objs, err := x.Index(name, obj)
			answer(fmt.Sprint("like ", i, " in ", name), sortedObjects(objs), err == nil)
			objs, err = x.Index(name, &obj.ObjectMeta)
			answer(fmt.Sprint("like meta ", i, " in ", name), sortedObjects(objs), err == nil)
		}
	}
	for i, obj := range questions {
		key, _ := cache.MetaNamespaceKeyFunc(obj)
		for kind, question := range map[string]any{
			"object": obj, "key": cache.ExplicitKey(key), "tombstone": cache.DeletedFinalStateUnknown{Key: key},
		} {
			item, exists, err := x.Get(question)
			answer(fmt.Sprint(kind, i), fmt.Sprintf("%p", item), exists, err)
		}
	}
	for _, key := range []string{"x", "n/x", "/x", "n/", "/", "n/x/y", ""} {
		item, exists, err := x.GetByKey(key)
		answer("key "+key, fmt.Sprintf("%p", item), exists, err)
	}
	return all
}

func sortedObjects(objs []any) []string {
	list := []string{}
	for _, obj := range objs {
		list = append(list, fmt.Sprintf("%p", obj))
	}
	slices.Sort(list)
	return list
}

// TestIndexerListers reads our Store through client-go's generated listers.
func TestIndexerListers(t *testing.T) {
	store, x := newIndexer(t, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	for _, key := range []string{"n/a", "n/b", "m/a"} {
		obj := makeConfigMap(key, "1")
		obj.Labels = map[string]string{"name": obj.Name}
		must(store.Add(obj))
	}
	names := func(objs []configMap, err error) []string {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
		list := []string{}
		for _, obj := range objs {
			list = append(list, obj.Namespace+"/"+obj.Name)
		}
		slices.Sort(list)
		return list
	}
	lister := corelisters.NewConfigMapLister(x)
	a := labels.SelectorFromSet(labels.Set{"name": "a"})
	wantStrings(t, "all", names(lister.List(labels.Everything())), "m/a", "n/a", "n/b")
	wantStrings(t, "a", names(lister.List(a)), "m/a", "n/a")
	wantStrings(t, "n", names(lister.ConfigMaps("n").List(labels.Everything())), "n/a", "n/b")
	wantStrings(t, "n, a", names(lister.ConfigMaps("n").List(a)), "n/a")
	wantStrings(t, "all namespaces", names(lister.ConfigMaps("").List(a)), "m/a", "n/a")
	if obj, err := lister.ConfigMaps("n").Get("b"); err != nil || obj.Name != "b" {
		t.Errorf("n/b is %v, error %v", obj, err)
	}
	for namespace, name := range map[string]string{"n": "c", "": "a", "m": "a/a"} {
		if obj, err := lister.ConfigMaps(namespace).Get(name); !apierrors.IsNotFound(err) {
			t.Errorf("%s in %s is %v, error %v", name, namespace, obj, err)
		}
	}
	generic := cache.NewGenericLister(x, schema.GroupResource{Resource: "configmaps"})
	if obj, err := generic.ByNamespace("n").Get("a"); err != nil || obj.(configMap).Namespace != "n" {
		t.Errorf("n/a is %v, error %v", obj, err)
	}
}

func TestIndexerWrongType(t *testing.T) {
	store, x := newIndexer(t, cache.Indexers{"owners": byOwners})
	must(x.Add(makeConfigMap("a", "1")))
	for _, obj := range []any{nil, &corev1.Secret{}, "a"} {
		typ := fmt.Sprintf("a %T,", obj)
		_, exists, err := x.Get(obj)
		wantTypeError(t, "Get", err, typ)
		if exists {
			t.Errorf("%v exists", obj)
		}
		wantTypeError(t, "Add", x.Add(obj), typ)
		wantTypeError(t, "Update", x.Update(obj), typ)
		wantTypeError(t, "Delete", x.Delete(obj), typ)
		wantTypeError(t, "Replace", x.Replace([]any{makeConfigMap("b", "2"), obj}, "3"), typ)
	}
	if err := x.Delete(cache.ExplicitKey("a/b/c")); err == nil {
		t.Error("a/b/c is a key")
	}
	if _, err := x.Index("owners", "a"); err == nil {
		t.Error("a string has owners")
	}
	if store.Len() != 1 || x.LastStoreSyncResourceVersion() != "1" {
		t.Errorf("%d objects, version %s", store.Len(), x.LastStoreSyncResourceVersion())
	}
}

// TestIndexerKeyErrors has objects without a key.
func TestIndexerKeyErrors(t *testing.T) {
	bad := errors.New("no key")
	x, err := kube.AsIndexer(typedqueue.NewStore(func(configMap) (configMapKey, error) { return configMapKey{}, bad }), nil)
	must(err)
	obj := makeConfigMap("a", "1")
	_, _, getErr := x.Get(obj)
	for what, err := range map[string]error{
		"Get": getErr, "Add": x.Add(obj), "Update": x.Update(obj), "Delete": x.Delete(obj), "Replace": x.Replace([]any{obj}, "2"),
	} {
		if !errors.Is(err, bad) {
			t.Errorf("%s: error %v", what, err)
		}
	}
	if v := x.LastStoreSyncResourceVersion(); v != "" {
		t.Errorf("version %q", v)
	}
}

// TestIndexerIndexErrors has index functions that fail, where client-go panics.
func TestIndexerIndexErrors(t *testing.T) {
	bad := errors.New("no owners")
	fails := func(obj any) ([]string, error) {
		if obj.(configMap).Name == "bad" {
			return nil, bad
		}
		return []string{"good"}, nil
	}
	good, wrong := makeConfigMap("good", "1"), makeConfigMap("bad", "2")

	_, x := newIndexer(t, cache.Indexers{"fails": fails})
	must(x.Add(good))
	for what, err := range map[string]error{"Add": x.Add(wrong), "Update": x.Update(wrong), "Replace": x.Replace([]any{wrong}, "3")} {
		if !errors.Is(err, bad) {
			t.Errorf("%s: error %v", what, err)
		}
	}
	wantStrings(t, "keys", x.ListKeys(), "good")
	wantStrings(t, "values", x.ListIndexFuncValues("fails"), "good")
	if v := x.LastStoreSyncResourceVersion(); v != "1" {
		t.Errorf("version %q", v)
	}

	store, x := newIndexer(t, nil)
	must(store.Add(wrong))
	if _, err := kube.AsIndexer(store, cache.Indexers{"fails": fails}); !errors.Is(err, bad) {
		t.Errorf("AsIndexer: error %v", err)
	}
	several := func(f cache.IndexFunc) cache.Indexers {
		return cache.Indexers{"1": byOwners, "2": byOwners, "fails": f, "3": byOwners, "4": byOwners}
	}
	for range 10 { // as the order is that of a map
		if err := x.AddIndexers(several(fails)); !errors.Is(err, bad) {
			t.Errorf("AddIndexers: error %v", err)
		}
		wantPanic(t, "AddIndexers", func() { x.AddIndexers(several(nil)) })
		wantPanic(t, "AddIndexers", func() { x.AddIndexers(several(func(any) ([]string, error) { panic("typedqueue: a test") })) })
		wantPanic(t, "AddTypedIndexers", func() { x.AddTypedIndexers(cache.TypedIndexers[configMap]{"nil": nil}) })
	}
	if n := len(x.GetIndexers()); n != 0 {
		t.Errorf("%d indexers", n)
	}
	must(x.AddIndexers(several(byOwners)))
}

// TestIndexerLeavesNoIndex counts who is asked once indexes could not be added.
func TestIndexerLeavesNoIndex(t *testing.T) {
	store, x := newIndexer(t, cache.Indexers{"taken": byOwners})
	calls := 0
	counts := func(any) ([]string, error) { calls++; return nil, nil }
	for range 10 {
		if err := x.AddIndexers(cache.Indexers{"1": counts, "taken": counts, "2": counts}); err == nil {
			t.Error("one name for two indexes")
		}
	}
	must(store.Add(makeConfigMap("a", "1")))
	if calls != 0 {
		t.Errorf("indexes that were not added are asked %d times", calls)
	}
}

func TestIndexerPanics(t *testing.T) {
	wantPanic(t, "nil store", func() { kube.AsIndexer[configMap](nil, nil) })
}

func TestIndexerTyped(t *testing.T) {
	store, x := newIndexer(t, nil)
	must(x.AddTypedIndexers(cache.TypedIndexers[configMap]{"owners": func(obj configMap) ([]string, error) { return byOwners(obj) }}))
	a := makeConfigMap("a", "1")
	a.OwnerReferences = []metav1.OwnerReference{{Name: "o"}, {Name: "p"}}
	must(store.Add(a))
	if objs, err := x.TypedIndex("owners", a); err != nil || !slices.Equal(objs, []configMap{a}) {
		t.Errorf("like a: %v, error %v", objs, err)
	}
	if objs, err := x.ByTypedIndex("owners", "p"); err != nil || !slices.Equal(objs, []configMap{a}) {
		t.Errorf("of p: %v, error %v", objs, err)
	}
	if _, err := x.TypedIndex("none", a); err == nil {
		t.Error("there is an index none")
	}
	if _, err := x.ByTypedIndex("none", "p"); err == nil {
		t.Error("there is an index none")
	}
	_, err := x.Index("owners", &a.ObjectMeta) // with which client-go panics
	wantTypeError(t, "Index", err, "a *v1.ObjectMeta,")
}

// TestIndexerCopies changes what it got.
func TestIndexerCopies(t *testing.T) {
	_, x := newIndexer(t, cache.Indexers{"owners": byOwners})
	clear(x.GetIndexers())
	if n := len(x.GetIndexers()); n != 1 {
		t.Errorf("%d indexers", n)
	}
}

// TestIndexerInItself has an index function that reads the Indexer, as those of a Store may.
func TestIndexerInItself(t *testing.T) {
	_, x := newIndexer(t, cache.Indexers{"owners": byOwners})
	must(x.AddIndexers(cache.Indexers{"others": func(any) ([]string, error) {
		x.LastStoreSyncResourceVersion()
		_, err := x.ByIndex("owners", "o")
		return x.ListKeys(), err
	}}))
	must(x.Add(makeConfigMap("a", "1")))
	must(x.Replace([]any{makeConfigMap("b", "2")}, "3"))
	wantStrings(t, "values", x.ListIndexFuncValues("others"), "a")
}

// TestIndexerConcurrently is for the race detector; and of the last version there must be its
// object.
func TestIndexerConcurrently(t *testing.T) {
	_, x := newIndexer(t, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 100 {
				version := fmt.Sprint(w, i)
				must(x.Add(makeConfigMap("n/"+version, version)))
				must(x.Delete(makeConfigMap("n/"+version, version)))
				must(x.Add(makeConfigMap("n/last", version)))
				answers(x, []configMap{makeConfigMap("n/last", "")})
			}
		})
	}
	for i := range 10 {
		must(x.AddIndexers(cache.Indexers{fmt.Sprint(i): byOwners}))
	}
	wg.Wait()
	obj, _, err := x.GetByKey("n/last")
	if got, want := obj.(configMap).ResourceVersion, x.LastStoreSyncResourceVersion(); got != want || err != nil {
		t.Errorf("the last object has version %s, the Indexer %s, error %v", got, want, err)
	}
}
