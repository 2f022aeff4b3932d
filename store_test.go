package typedqueue

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"weak"

	"github.com/google/go-cmp/cmp"
)

// pod is an object for the tests of Store: labels are index values, and what makes the
// key function or the index function fail is in the object too.
type pod struct {
	Name    string
	Version int
	Labels  []string
	BadKey  bool
	BadTags bool
}

var (
	errPodKey  = errors.New("no name")
	errPodTags = errors.New("no labels")
)

func podKey(p *pod) (string, error) {
	if p.BadKey {
		return "", errPodKey
	}
	return p.Name, nil
}

func podLabels(p *pod) ([]string, error) {
	if p.BadTags {
		return []string{"half", "an", "answer"}, errPodTags
	}
	return p.Labels, nil
}

func newPod(name string, version int, labels ...string) *pod {
	return &pod{Name: name, Version: version, Labels: labels}
}

func newPodStore(t testing.TB, pods ...*pod) (*Store[string, *pod], *Index[string, string, *pod]) {
	t.Helper()
	s := NewStore(podKey)
	x, err := NewIndex(s, podLabels)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pods {
		if err := s.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	return s, x
}

// contentsOf tells everything that can be seen of a Store and one index, sorted.
func contentsOf(s *Store[string, *pod], x *Index[string, string, *pod]) map[string][]string {
	seen := map[string][]string{"keys": slices.Sorted(slices.Values(s.ListKeys()))}
	for key, p := range s.All() {
		seen["objects"] = append(seen["objects"], fmt.Sprintf("%s=%s%d", key, p.Name, p.Version))
	}
	slices.Sort(seen["objects"])
	for _, value := range x.Values() {
		for _, p := range x.Get(value) {
			seen["index "+value] = append(seen["index "+value], fmt.Sprintf("%s%d", p.Name, p.Version))
		}
		slices.Sort(seen["index "+value])
	}
	return seen
}

func wantContents(t *testing.T, s *Store[string, *pod], x *Index[string, string, *pod], want map[string][]string) {
	t.Helper()
	if diff := cmp.Diff(want, contentsOf(s, x)); diff != "" {
		t.Errorf("contents differ (-want +got):\n%s", diff)
	}
	if err := checkStore(s); err != nil {
		t.Error(err)
	}
}

func wantStorePanic(t *testing.T, call string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if text, ok := recover().(string); !ok || !strings.HasPrefix(text, "typedqueue: ") {
			t.Errorf("%s: panic value %q, want a string that starts with \"typedqueue: \"", call, text)
		}
	}()
	f()
}

func TestSet(t *testing.T) {
	var s set[int]
	if s.has(1) || len(s) != 0 {
		t.Error("the nil set holds something")
	}
	s = set[int]{}
	s.add(1)
	s.add(1)
	s.add(2)
	s.remove(2)
	s.remove(3)
	if !s.has(1) || s.has(2) || len(s) != 1 {
		t.Errorf("set = %v, want 1 alone", s)
	}
}

func TestNamespacedName(t *testing.T) {
	for _, test := range []struct {
		name NamespacedName
		text string
	}{
		{NamespacedName{"ns", "name"}, "ns/name"},
		{NamespacedName{"", "name"}, "name"},
		{NamespacedName{"ns", ""}, "ns/"},
		{NamespacedName{}, ""},
	} {
		if got := test.name.String(); got != test.text {
			t.Errorf("%#v.String() = %q, want %q", test.name, got, test.text)
		}
		if got, err := ParseNamespacedName(test.text); got != test.name || err != nil {
			t.Errorf("ParseNamespacedName(%q) = %#v, %v", test.text, got, err)
		}
	}
	for _, text := range []string{"a/b/c", "/name", "/", "a//b", "//", "a/b/"} {
		got, err := ParseNamespacedName(text)
		if err == nil || !strings.HasPrefix(err.Error(), "typedqueue: ") || got != (NamespacedName{}) {
			t.Errorf("ParseNamespacedName(%q) = %#v, %v, want an error", text, got, err)
		}
	}
}

type meta struct{ namespace, name string }

func (m *meta) GetNamespace() string { return m.namespace }
func (m *meta) GetName() string      { return m.name }

func TestMetaNamespaceKey(t *testing.T) {
	s := NewStore(MetaNamespaceKey[*meta])
	if err := s.Add(&meta{"ns", "name"}); err != nil {
		t.Fatal(err)
	}
	if _, ok := s.GetByKey(NamespacedName{"ns", "name"}); !ok {
		t.Error("the object is not stored under its namespace and name")
	}
	type object interface {
		GetNamespace() string
		GetName() string
	}
	var keyErr *KeyError[object]
	if err := NewStore(MetaNamespaceKey[object]).Add(nil); !errors.As(err, &keyErr) {
		t.Errorf("Add of a nil object: %v, want a *KeyError", err)
	}
}

// C78: the key can be what the user's world is keyed by, to the end.
func TestStore_KeyIsAStruct(t *testing.T) {
	type uid struct{ cluster, id string }
	type object struct {
		name string
		uid  uid
	}
	s := NewStore(func(o object) (uid, error) { return o.uid, nil })
	for _, id := range []string{"1", "2"} { // created again under its old name
		if err := s.Add(object{"name", uid{"east", id}}); err != nil {
			t.Fatal(err)
		}
	}
	if s.Len() != 2 {
		t.Errorf("Len = %d, want 2", s.Len())
	}
}

// C14: two stores whose keys are coarser and finer must not be mixed up; one key function
// decides, and what collides under it is one object.
func TestStore_KeyFunctionDecides(t *testing.T) {
	fine, coarse := NewStore(MetaNamespaceKey[*meta]), NewStore(func(m *meta) (string, error) { return m.name, nil })
	for _, namespace := range []string{"x", "y"} {
		m := &meta{namespace, "name"}
		if err := errors.Join(fine.Add(m), coarse.Add(m)); err != nil {
			t.Fatal(err)
		}
	}
	if fine.Len() != 2 || coarse.Len() != 1 {
		t.Errorf("Len = %d and %d, want 2 and 1", fine.Len(), coarse.Len())
	}
}

func TestStore_WritesAndReads(t *testing.T) {
	s, x := newPodStore(t, newPod("a", 1, "red"), newPod("b", 1, "red", "blue"), newPod("c", 1))
	if err := s.Update(newPod("a", 2, "blue")); err != nil {
		t.Fatal(err)
	}
	if err := s.Update(newPod("d", 1, "red")); err != nil { // Update of what is not there
		t.Fatal(err)
	}
	wantContents(t, s, x, map[string][]string{
		"keys":       {"a", "b", "c", "d"},
		"objects":    {"a=a2", "b=b1", "c=c1", "d=d1"},
		"index red":  {"b1", "d1"},
		"index blue": {"a2", "b1"},
	})
	if got, ok, err := s.Get(newPod("a", 7)); err != nil || !ok || got.Version != 2 {
		t.Errorf("Get = %v, %v, %v", got, ok, err)
	}
	if got, ok, err := s.Get(newPod("z", 7)); err != nil || ok || got != nil {
		t.Errorf("Get of an absent object = %v, %v, %v", got, ok, err)
	}
	if got, ok := s.GetByKey("z"); ok || got != nil {
		t.Errorf("GetByKey of an absent key = %v, %v", got, ok)
	}
	if got := slices.Sorted(slices.Values(x.Keys("red"))); !slices.Equal(got, []string{"b", "d"}) {
		t.Errorf("Keys = %v", got)
	}
	if got := x.Keys("green"); len(got) != 0 {
		t.Errorf("Keys of a value that nothing has = %v", got)
	}
	if len(s.List()) != 4 || s.Len() != 4 || s.Resync() != nil {
		t.Errorf("List %v, Len %d, Resync %v", s.List(), s.Len(), s.Resync())
	}

	if err := s.Delete(newPod("a", 9, "other")); err != nil { // another version will do
		t.Fatal(err)
	}
	if err := s.Delete(newPod("a", 9)); err != nil { // once more is harmless
		t.Fatal(err)
	}
	if !s.DeleteKey("b") || s.DeleteKey("b") {
		t.Error("DeleteKey does not report whether there was something")
	}
	wantContents(t, s, x, map[string][]string{
		"keys":      {"c", "d"},
		"objects":   {"c=c1", "d=d1"},
		"index red": {"d1"},
	})
}

// What FIFO consumers rely on: put and take tell what was there before.
func TestStore_PutAndTake(t *testing.T) {
	s, x := newPodStore(t)
	a1, a2 := newPod("a", 1, "red"), newPod("a", 2, "blue")
	if old, existed, err := s.put("a", a1); old != nil || existed || err != nil {
		t.Errorf("put of a new key = %v, %v, %v", old, existed, err)
	}
	if old, existed, err := s.put("a", a2); old != a1 || !existed || err != nil {
		t.Errorf("put = %v, %v, %v", old, existed, err)
	}
	if _, _, err := s.put("a", &pod{Name: "a", BadTags: true}); !errors.Is(err, errPodTags) {
		t.Errorf("put with a failing index function: %v", err)
	}
	wantContents(t, s, x, map[string][]string{"keys": {"a"}, "objects": {"a=a2"}, "index blue": {"a2"}})
	if old, existed := s.take("a"); old != a2 || !existed {
		t.Errorf("take = %v, %v", old, existed)
	}
	if old, existed := s.take("a"); old != nil || existed {
		t.Errorf("take of an absent key = %v, %v", old, existed)
	}
}

func TestStore_S1_ReplaceIsAllOrNothing(t *testing.T) {
	s, x := newPodStore(t, newPod("a", 1, "red"), newPod("b", 1, "blue"))
	before := contentsOf(s, x)
	for _, bad := range []*pod{{Name: "d", BadKey: true}, {Name: "d", BadTags: true}} {
		if err := s.Replace([]*pod{newPod("a", 2, "green"), newPod("c", 2), bad, newPod("e", 2)}); err == nil {
			t.Errorf("Replace with %+v in the middle succeeded", bad)
		}
		wantContents(t, s, x, before)
	}

	list := []*pod{newPod("a", 2, "green"), {Name: "c", BadTags: true}, newPod("c", 2, "green"), newPod("c", 3, "blue")}
	if err := s.Replace(list); err != nil { // the last one of c wins; the others are nobody's business
		t.Fatal(err)
	}
	clear(list)
	wantContents(t, s, x, map[string][]string{
		"keys":        {"a", "c"},
		"objects":     {"a=a2", "c=c3"},
		"index green": {"a2"},
		"index blue":  {"c3"},
	})
	if err := s.Replace(nil); err != nil {
		t.Fatal(err)
	}
	wantContents(t, s, x, map[string][]string{"keys": nil})
}

// C59, C60: the second of two indexes fails; neither moves, and nothing is stuck later.
func TestStore_S1_FailingIndexChangesNothing(t *testing.T) {
	s := NewStore(podKey)
	first, err := NewIndex(s, func(p *pod) ([]int, error) { return []int{p.Version}, nil })
	if err != nil {
		t.Fatal(err)
	}
	second, err := NewIndex(s, podLabels)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Add(newPod("a", 1, "red")); err != nil {
		t.Fatal(err)
	}
	before := contentsOf(s, second)
	err = s.Update(&pod{Name: "a", Version: 2, BadTags: true})
	if !errors.Is(err, errPodTags) || !strings.HasPrefix(err.Error(), "typedqueue: ") {
		t.Errorf("Update with a failing index function: %v", err)
	}
	wantContents(t, s, second, before)
	if got := first.Values(); !slices.Equal(got, []int{1}) {
		t.Errorf("the first index moved: %v", got)
	}
	if err := s.Delete(&pod{Name: "a", BadTags: true}); err != nil {
		t.Errorf("Delete asks index functions: %v", err)
	}
	if s.Len() != 0 || len(first.Values()) != 0 || len(second.Values()) != 0 {
		t.Errorf("after Delete: %d objects, index values %v and %v", s.Len(), first.Values(), second.Values())
	}
}

func TestStore_S1_PanicChangesNothing(t *testing.T) {
	s, x := newPodStore(t, newPod("a", 1, "red"))
	type quit struct{}
	boom, goexit := true, false
	y, err := NewIndex(s, func(p *pod) ([]string, error) {
		switch {
		case p.Version < 2:
		case boom:
			panic(quit{})
		case goexit:
			runtime.Goexit()
		}
		return p.Labels, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	before := contentsOf(s, x)
	calls := map[string]func() error{
		"Add":     func() error { return s.Add(newPod("b", 2, "blue")) },
		"Update":  func() error { return s.Update(newPod("a", 2, "blue")) },
		"Replace": func() error { return s.Replace([]*pod{newPod("a", 1, "green"), newPod("b", 2, "blue")}) },
	}
	for name, call := range calls {
		func() {
			defer func() {
				if r := recover(); r != (quit{}) {
					t.Errorf("%s: recovered %v, want the index function's own panic", name, r)
				}
			}()
			_ = call()
		}()
		wantContents(t, s, x, before)
		wantContents(t, s, y, before)
	}

	boom, goexit = false, true
	for _, call := range calls {
		var wg sync.WaitGroup
		wg.Go(func() { _ = call() })
		wg.Wait()
		wantContents(t, s, x, before)
	}

	goexit = false
	for name, call := range calls { // no lock was left held
		if err := call(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if diff := cmp.Diff(contentsOf(s, x), contentsOf(s, y)); diff != "" {
		t.Errorf("two indexes of the same values differ:\n%s", diff)
	}
}

// C50: a reader sees a Replace entirely or not at all, and the index with it.
func TestStore_S1_ReplaceIsOneStepForReaders(t *testing.T) {
	version := func(v int) (pods []*pod) {
		for i := range 10 + v%2 {
			pods = append(pods, newPod(fmt.Sprint(i), v, "all"))
		}
		return pods
	}
	s, x := newPodStore(t)
	if err := s.Replace(version(0)); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for v := range 500 {
			if err := s.Replace(version(v)); err != nil {
				t.Error(err)
			}
		}
	})
	for range 500 {
		for name, pods := range map[string][]*pod{"List": s.List(), "Index.Get": x.Get("all")} {
			v := pods[0].Version
			if len(pods) != 10+v%2 || slices.ContainsFunc(pods, func(p *pod) bool { return p.Version != v }) {
				t.Fatalf("%s shows half a Replace: %v", name, pods)
			}
		}
	}
	wg.Wait()
}

// C65, C67: an index may come at any time, to the same Store, and covers what is there.
func TestStore_S2_IndexAddedLater(t *testing.T) {
	s := NewStore(podKey)
	var wg sync.WaitGroup
	for w := range 2 {
		wg.Go(func() {
			for i := range 500 {
				if err := s.Add(newPod(fmt.Sprint(w, i), 1, "all")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	early, err := NewIndex(s, podLabels)
	if err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	late, err := NewIndex(s, podLabels) // C68: the same function again is just a second index
	if err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]*Index[string, string, *pod]{"early": early, "late": late} {
		if got := len(x.Get("all")); got != 1000 {
			t.Errorf("%s index: %d objects, want 1000", name, got)
		}
	}
	if err := checkStore(s); err != nil {
		t.Error(err)
	}
}

func TestStore_S2_FailedNewIndexAddsNothing(t *testing.T) {
	s, x := newPodStore(t)
	x.Close()
	if err := s.Add(&pod{Name: "a", BadTags: true}); err != nil {
		t.Fatal(err)
	}
	if y, err := NewIndex(s, podLabels); y != nil || !errors.Is(err, errPodTags) {
		t.Errorf("NewIndex = %v, %v, want the index function's error", y, err)
	}
	if err := s.Add(&pod{Name: "b", BadTags: true}); err != nil {
		t.Errorf("a failed index is still asked: %v", err)
	}
}

func TestStore_S2_ObjectsChangedInPlace(t *testing.T) {
	s, x := newPodStore(t, newPod("a", 1, "red"), newPod("b", 1, "blue"))
	a, _ := s.GetByKey("a")
	a.Labels[0] = "blue" // forbidden: neither the old nor the new value may get stuck
	a.Labels = append(a.Labels, "green")
	if got := x.Get("red"); len(got) != 1 || got[0] != a {
		t.Errorf("the index changed with an object in place: %v", got)
	}
	if err := s.Update(newPod("a", 2, "yellow")); err != nil {
		t.Fatal(err)
	}
	wantContents(t, s, x, map[string][]string{
		"keys":         {"a", "b"},
		"objects":      {"a=a2", "b=b1"},
		"index yellow": {"a2"},
		"index blue":   {"b1"},
	})
	a, _ = s.GetByKey("a")
	a.Labels[0], a.BadTags = "white", true
	s.DeleteKey("a")
	wantContents(t, s, x, map[string][]string{"keys": {"b"}, "objects": {"b=b1"}, "index blue": {"b1"}})
}

func TestStore_S2_IndexFunctionKeepsItsSlice(t *testing.T) {
	s := NewStore(podKey)
	shared := make([]string, 1) // the index function returns this one again and again
	x, err := NewIndex(s, func(p *pod) ([]string, error) {
		shared[0] = p.Labels[0]
		return shared, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Replace([]*pod{newPod("a", 1, "red"), newPod("b", 1, "blue")}); err != nil {
		t.Fatal(err)
	}
	if err := s.Add(newPod("c", 1, "green")); err != nil {
		t.Fatal(err)
	}
	shared[0] = "overwritten"
	wantContents(t, s, x, map[string][]string{
		"keys":        {"a", "b", "c"},
		"objects":     {"a=a1", "b=b1", "c=c1"},
		"index red":   {"a1"},
		"index blue":  {"b1"},
		"index green": {"c1"},
	})
}

func TestStore_S2_RepeatedAndMovedValues(t *testing.T) {
	many := make([]string, 100)
	for i := range many {
		many[i] = fmt.Sprint("value ", i%40)
	}
	s, x := newPodStore(t, newPod("b", 1, "red"))
	for version, labels := range [][]string{
		{"red", "red"}, {"red", "blue"}, {"blue", "red"}, {"blue", "red", "blue", "green"},
		{"green", "blue"}, many, {"red"}, many[20:60], nil,
	} {
		if err := s.Update(newPod("a", version, labels...)); err != nil {
			t.Fatal(err)
		}
		want := map[string][]string{"keys": {"a", "b"}, "objects": {fmt.Sprint("a=a", version), "b=b1"}, "index red": {"b1"}}
		for _, label := range slices.Compact(slices.Sorted(slices.Values(labels))) {
			want["index "+label] = slices.Insert(want["index "+label], 0, fmt.Sprint("a", version))
		}
		wantContents(t, s, x, want)
	}
}

// C56: index values that lost their last member are gone, and so is the memory.
func TestStore_S3_IndexValuesVanish(t *testing.T) {
	n := scaled(300_000)
	type small struct{ id int }
	s := NewStore(func(o small) (int, error) { return o.id, nil })
	buf := make([]int, 1)
	byID, err := NewIndex(s, func(o small) ([]int, error) { buf[0] = o.id; return buf, nil })
	if err != nil {
		t.Fatal(err)
	}
	bySpace, err := NewIndex(s, func(small) ([]int, error) { buf[0] = 1; return buf, nil })
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Add(small{n}); err != nil { // one that stays, so nothing is ever empty
		t.Fatal(err)
	}
	before := heapInUse()
	for i := range n {
		if err := s.Add(small{i}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		if !s.DeleteKey(i) {
			t.Fatalf("%d is gone", i)
		}
	}
	if got := byID.Values(); !slices.Equal(got, []int{n}) {
		t.Errorf("%d index values are left", len(got))
	}
	if got := bySpace.Get(1); len(got) != 1 {
		t.Errorf("%d members are left", len(got))
	}
	if grown := heapInUse() - before; grown > 1<<20 {
		t.Errorf("%d bytes are left of what is gone", grown)
	}
	if err := checkStore(s); err != nil {
		t.Error(err)
	}
}

func TestStore_DeletedObjectsAreCollected(t *testing.T) {
	s, x := newPodStore(t, newPod("stays", 1, "red", "blue", "green"))
	self := func(p *pod) ([]*pod, error) { return []*pod{p}, nil } // index values are let go too
	early, err := NewIndex(s, self)
	if err != nil {
		t.Fatal(err)
	}
	refs := map[string]weak.Pointer[pod]{}
	add := func(name string) {
		p := newPod(name, 1, "yellow", "red", "of "+name)
		refs[name] = weak.Make(p)
		if err := s.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	add("deleted")
	add("replaced")
	_ = s.Delete(newPod("deleted", 2))
	_ = s.Update(newPod("replaced", 2, "yellow"))
	add("last") // that the index functions are asked about
	late, err := NewIndex(s, self)
	if err != nil {
		t.Fatal(err)
	}
	s.DeleteKey("last")
	runtime.GC()
	for name, ref := range refs {
		if ref.Value() != nil {
			t.Errorf("%s is kept alive", name)
		}
	}
	for _, kept := range []any{s, x, early, late} {
		runtime.KeepAlive(kept)
	}
}

// Lists and maps shrink on the way down, and what is left stays right.
func TestStore_S3_ShrinksOnTheWay(t *testing.T) {
	const n = 2000
	s, x := newPodStore(t)
	for i := range n {
		if err := s.Add(newPod(fmt.Sprint(i), i, "all", fmt.Sprint("only ", i), fmt.Sprint("tenth ", i%10))); err != nil {
			t.Fatal(err)
		}
	}
	for left := n - 1; left >= 0; left-- {
		s.DeleteKey(fmt.Sprint(left * 7 % n)) // all of them, in another order
		if left%50 != 0 && left > 50 {
			continue
		}
		if err := checkStore(s); err != nil {
			t.Fatalf("%d left: %v", left, err)
		}
		if got := len(x.Get("all")); s.Len() != left || got != left {
			t.Fatalf("Len = %d, %d in the index, want %d", s.Len(), got, left)
		}
		for _, p := range s.List() {
			if got := x.Get("only " + p.Name); len(got) != 1 || got[0] != p {
				t.Fatalf("%d left: the index finds %v for %s", left, got, p.Name)
			}
		}
		if got := len(x.catalog.cards); got > int(s.entries.used)+1 {
			t.Errorf("%d left in %d slots, but there are %d cards", left, s.entries.used, got)
		}
	}
}

func TestStore_S4_ZeroValuesAreValues(t *testing.T) {
	s := NewStore(func(v int) (int, error) { return v, nil })
	x, err := NewIndex(s, func(v int) ([]int, error) { return []int{v}, nil })
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Add(0); err != nil {
		t.Fatal(err)
	}
	if v, ok, err := s.Get(0); v != 0 || !ok || err != nil {
		t.Errorf("Get(0) = %d, %v, %v", v, ok, err)
	}
	if v, ok := s.GetByKey(0); v != 0 || !ok {
		t.Errorf("GetByKey(0) = %d, %v", v, ok)
	}
	if got := x.Get(0); !slices.Equal(got, []int{0}) {
		t.Errorf("Index.Get(0) = %v", got)
	}
	if !s.DeleteKey(0) {
		t.Error("DeleteKey(0) found nothing")
	}

	pointers := NewStore(func(*int) (string, error) { return "", nil })
	if err := pointers.Add(nil); err != nil {
		t.Fatal(err)
	}
	if v, ok := pointers.GetByKey(""); v != nil || !ok || pointers.Len() != 1 {
		t.Errorf("GetByKey of a nil object = %v, %v", v, ok)
	}
}

// C74: nor does the result of an index have holes.
func TestStore_S5_SlicesAreTheCallers(t *testing.T) {
	s, x := newPodStore(t, newPod("a", 1, "red"), newPod("b", 1, "red"))
	before := contentsOf(s, x)
	clear(s.List())
	clear(s.ListKeys())
	clear(x.Get("red"))
	clear(x.Keys("red"))
	clear(x.Values())
	wantContents(t, s, x, before)

	list, red := s.List(), x.Get("red")
	s.DeleteKey("a")
	for _, p := range slices.Concat(list, red) {
		if p == nil {
			t.Error("a result changed with the Store")
		}
	}
}

func TestStore_S5_AllIsASnapshot(t *testing.T) {
	s, _ := newPodStore(t, newPod("a", 1), newPod("b", 1), newPod("c", 1))
	all := s.All()
	s.DeleteKey("c")
	seen := map[string]int{}
	for key, p := range all { // what counts is the beginning of the loop
		seen[key] = p.Version
		if err := s.Replace([]*pod{newPod("a", 2), newPod("b", 2), newPod("d", 2)}); err != nil { // no lock is held
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(map[string]int{"a": 1, "b": 1}, seen); diff != "" {
		t.Errorf("All (-want +got):\n%s", diff)
	}
	for range all {
		break
	}
	if got := maps.Collect(all); len(got) != 3 {
		t.Errorf("a second loop sees %v", got)
	}
}

func TestStore_S6_UnusableKeys(t *testing.T) {
	checkKeys := func(t *testing.T, bad any) {
		s := NewStore(func(o any) (any, error) { return o, nil })
		if err := s.Add("good"); err != nil {
			t.Fatal(err)
		}
		for name, call := range map[string]func() error{
			"Add":     func() error { return s.Add(bad) },
			"Update":  func() error { return s.Update(bad) },
			"Delete":  func() error { return s.Delete(bad) },
			"Replace": func() error { return s.Replace([]any{"other", bad}) },
			"Get":     func() error { _, _, err := s.Get(bad); return err },
		} {
			var keyErr *KeyError[any]
			if err := call(); !errors.As(err, &keyErr) || !strings.HasPrefix(err.Error(), "typedqueue: ") {
				t.Errorf("%s: %v, want a *KeyError", name, err)
			}
		}
		wantStorePanic(t, "GetByKey", func() { s.GetByKey(bad) })
		wantStorePanic(t, "DeleteKey", func() { s.DeleteKey(bad) })
		if got := s.List(); !slices.Equal(got, []any{"good"}) {
			t.Errorf("List = %v", got)
		}
		if err := checkStore(s); err != nil {
			t.Error(err)
		}
	}
	t.Run("NaN", func(t *testing.T) { checkKeys(t, math.NaN()) })
	t.Run("slice", func(t *testing.T) { checkKeys(t, []int{1}) })

	s := NewStore(podKey)
	bad := &pod{BadKey: true}
	var keyErr *KeyError[*pod]
	if err := s.Add(bad); !errors.Is(err, errPodKey) || !errors.As(err, &keyErr) || keyErr.Obj != bad {
		t.Errorf("Add with a failing key function: %v", err)
	}
}

func TestIndex_UnusableValues(t *testing.T) {
	for _, bad := range []any{math.NaN(), []int{1}, struct{ any }{func() {}}} {
		s := NewStore(func(o []any) (int, error) { return len(o), nil })
		x, err := NewIndex(s, func(o []any) ([]any, error) { return o, nil })
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Add([]any{"good"}); err != nil {
			t.Fatal(err)
		}
		if err := s.Add([]any{"other", bad}); err == nil || !strings.HasPrefix(err.Error(), "typedqueue: ") {
			t.Errorf("Add with index value %v: %v", bad, err)
		}
		if err := s.Replace([][]any{{"other", bad}}); err == nil {
			t.Errorf("Replace with index value %v succeeded", bad)
		}
		if got := x.Values(); s.Len() != 1 || !slices.Equal(got, []any{"good"}) {
			t.Errorf("after the errors: %d objects, index values %v", s.Len(), got)
		}
		wantStorePanic(t, "Get", func() { x.Get(bad) })
		wantStorePanic(t, "Keys", func() { x.Keys(bad) })
		x.Close()
		if err := s.Add([]any{"other", bad}); err != nil {
			t.Fatal(err)
		}
		if _, err := NewIndex(s, func(o []any) ([]any, error) { return o, nil }); err == nil {
			t.Errorf("NewIndex with index value %v succeeded", bad)
		}
	}
}

// The index function sees the Store as before the write, for every kind of write.
func TestIndex_FunctionReadsTheStore(t *testing.T) {
	s := NewStore(podKey)
	x, err := NewIndex(s, func(p *pod) ([]int, error) {
		_, existed, err := s.Get(p)
		if got, ok := s.GetByKey(p.Name); ok != existed || ok && got == p {
			t.Errorf("the index function sees its own write: %v", got)
		}
		return []int{s.Len() + len(s.List()) + len(s.ListKeys()) + len(maps.Collect(s.All()))}, err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]func() error{
		"Add":     func() error { return s.Add(newPod("a", 1)) },
		"Replace": func() error { return s.Replace([]*pod{newPod("a", 1)}) },
	} {
		s.DeleteKey("a")
		if err := call(); err != nil {
			t.Fatal(err)
		}
		if got := x.Values(); !slices.Equal(got, []int{0}) {
			t.Errorf("%s: index values %v, want 0: an empty Store", name, got)
		}
	}
}

func TestIndex_Close(t *testing.T) {
	s, x := newPodStore(t, newPod("a", 1, "red"))
	calls := 0
	y, err := NewIndex(s, func(p *pod) ([]string, error) { calls++; return p.Labels, nil })
	if err != nil {
		t.Fatal(err)
	}
	y.Close()
	y.Close()
	if err := s.Add(newPod("b", 1, "red")); err != nil {
		t.Fatal(err)
	}
	if calls != 1 {
		t.Errorf("the index function was called %d times, want 1", calls)
	}
	if len(y.Get("red"))+len(y.Keys("red"))+len(y.Values()) != 0 {
		t.Error("a closed index finds something")
	}
	wantContents(t, s, x, map[string][]string{
		"keys":      {"a", "b"},
		"objects":   {"a=a1", "b=b1"},
		"index red": {"a1", "b1"},
	})
}

func TestStore_Misuse(t *testing.T) {
	s := NewStore(podKey)
	var zero Store[string, *pod]
	for name, f := range map[string]func(){
		"NewStore(nil)":       func() { NewStore[string, *pod](nil) },
		"NewIndex(nil, f)":    func() { _, _ = NewIndex[string, string](nil, podLabels) },
		"NewIndex(zero, f)":   func() { _, _ = NewIndex(&zero, podLabels) },
		"NewIndex(s, nil)":    func() { _, _ = NewIndex[string](s, nil) },
		"zero Store: Add":     func() { _ = zero.Add(newPod("a", 1)) },
		"zero Store: Update":  func() { _ = zero.Update(newPod("a", 1)) },
		"zero Store: Delete":  func() { _ = zero.Delete(newPod("a", 1)) },
		"zero Store: Get":     func() { _, _, _ = zero.Get(newPod("a", 1)) },
		"zero Store: Replace": func() { _ = zero.Replace(nil) },
		"zero Store: put":     func() { _, _, _ = zero.put("a", newPod("a", 1)) },
	} {
		wantStorePanic(t, name, f)
	}
	if _, ok := zero.GetByKey("a"); ok || zero.DeleteKey("a") || zero.Len() != 0 || zero.Resync() != nil {
		t.Error("the zero Store holds something")
	}
	if len(zero.List())+len(zero.ListKeys())+len(maps.Collect(zero.All())) != 0 {
		t.Error("the zero Store lists something")
	}
}

// C66: an object that never left is never missing, however often it is written.
func TestIndex_NeverMissesAnObject(t *testing.T) {
	s, x := newPodStore(t, newPod("a", 1, "red"))
	var wg sync.WaitGroup
	wg.Go(func() {
		for v := range 5000 {
			labels := []string{"red", "blue"}
			if v%2 == 0 {
				labels = []string{"blue", "red"}
			}
			if err := s.Update(newPod("a", v, labels...)); err != nil {
				t.Error(err)
			}
		}
	})
	for range 5000 {
		if got := x.Get("red"); len(got) != 1 {
			t.Fatalf("the index shows %v", got)
		}
	}
	wg.Wait()
}

// C63: every pair of public methods at once, for the race detector. Writers change a few
// keys only, so they meet.
func TestStore_EveryPairOfMethods(t *testing.T) {
	s, x := newPodStore(t)
	label := func(i int) string { return fmt.Sprint(i % 3) }
	some := func(i int) *pod { return newPod(fmt.Sprint(i%4), i, label(i), label(i/2)) }
	calls := map[string]func(i int){
		"Store.Add":       func(i int) { _ = s.Add(some(i)) },
		"Store.Update":    func(i int) { _ = s.Update(some(i)) },
		"Store.Delete":    func(i int) { _ = s.Delete(some(i)) },
		"Store.DeleteKey": func(i int) { s.DeleteKey(fmt.Sprint(i % 4)) },
		"Store.Replace":   func(i int) { _ = s.Replace([]*pod{some(i), some(i + 1), some(i + 5)}) },
		"Store.Resync":    func(int) { _ = s.Resync() },
		"Store.Get":       func(i int) { _, _, _ = s.Get(some(i)) },
		"Store.GetByKey":  func(i int) { s.GetByKey(fmt.Sprint(i % 4)) },
		"Store.List":      func(int) { s.List() },
		"Store.ListKeys":  func(int) { s.ListKeys() },
		"Store.Len":       func(int) { s.Len() },
		"Store.All":       func(int) { _ = maps.Collect(s.All()) },
		"Index.Get":       func(i int) { x.Get(label(i)) },
		"Index.Keys":      func(i int) { x.Keys(label(i)) },
		"Index.Values":    func(int) { x.Values() },
		"Index.Close": func(int) { // and NewIndex
			y, err := NewIndex(s, podLabels)
			if err != nil {
				t.Error(err)
				return
			}
			var wg sync.WaitGroup
			wg.Go(y.Close)
			y.Get("0")
			y.Close()
			wg.Wait()
		},
	}
	for typ, methods := range map[string]reflect.Type{"Store": reflect.TypeFor[*Store[string, *pod]](), "Index": reflect.TypeFor[*Index[string, string, *pod]]()} {
		for i := range methods.NumMethod() {
			if name := typ + "." + methods.Method(i).Name; calls[name] == nil {
				t.Errorf("%s is not called", name)
			}
		}
	}
	for _, one := range calls {
		for _, other := range calls {
			var wg sync.WaitGroup
			for _, call := range []func(int){one, other} {
				wg.Go(func() {
					for i := range 10 {
						call(i)
					}
				})
			}
			wg.Wait()
		}
	}
	if err := checkStore(s); err != nil {
		t.Error(err)
	}
}

// C71: what a call allocates is its result, and a write that moves nothing allocates nothing.
func TestStore_Allocations(t *testing.T) {
	pods := make([]*pod, 100)
	for i := range pods {
		pods[i] = newPod(fmt.Sprint(i), 1, "all", fmt.Sprint(i%10))
	}
	s, x := newPodStore(t, pods...)
	if _, err := NewIndex(s, func(p *pod) ([]string, error) { return p.Labels[1:], nil }); err != nil {
		t.Fatal(err)
	}
	alone := newPod("alone", 1, "all", "value of its own")
	if err := s.Add(alone); err != nil {
		t.Fatal(err)
	}
	moved := newPod("0", 1, "1", "0")
	for name, test := range map[string]struct {
		want float64
		call func()
	}{
		"List":     {1, func() { s.List() }},
		"ListKeys": {1, func() { s.ListKeys() }},
		"All": {1, func() {
			for range s.All() {
				continue
			}
		}},
		"GetByKey":                               {0, func() { s.GetByKey("5") }},
		"Get":                                    {0, func() { _, _, _ = s.Get(pods[5]) }},
		"Index.Get":                              {1, func() { x.Get("all") }},
		"Keys":                                   {1, func() { x.Keys("all") }},
		"Values":                                 {1, func() { x.Values() }},
		"Update":                                 {0, func() { _ = s.Update(pods[5]); _ = s.Update(alone) }},
		"Update that moves between index values": {0, func() { _ = s.Update(moved); _ = s.Update(pods[0]) }},
	} {
		if got := testing.AllocsPerRun(100, test.call); got != test.want {
			t.Errorf("%s allocates %v times, want %v", name, got, test.want)
		}
	}
}

func benchmarkStore(b *testing.B, n int) (*Store[NamespacedName, *meta], *Index[string, NamespacedName, *meta], []*meta) {
	s := NewStore(MetaNamespaceKey[*meta])
	byNamespace, err := NewIndex(s, func(m *meta) ([]string, error) { return []string{m.namespace}, nil })
	if err != nil {
		b.Fatal(err)
	}
	if _, err := NewIndex(s, func(m *meta) ([]string, error) { return []string{m.name}, nil }); err != nil {
		b.Fatal(err)
	}
	objs := make([]*meta, n)
	for i := range objs {
		objs[i] = &meta{fmt.Sprint("namespace-", i%10), fmt.Sprint("name-", i)}
	}
	if err := s.Replace(objs); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	return s, byNamespace, objs
}

func BenchmarkStoreAdd(b *testing.B) {
	s, _, objs := benchmarkStore(b, 1000)
	i := 0
	for b.Loop() {
		if i %= len(objs); i == 0 {
			b.StopTimer()
			_ = s.Replace(nil)
			b.StartTimer()
		}
		_ = s.Add(objs[i])
		i++
	}
}

func BenchmarkStoreAddDelete(b *testing.B) {
	s, _, objs := benchmarkStore(b, 1000)
	for i := 0; b.Loop(); i++ {
		obj := objs[i%len(objs)]
		_ = s.Delete(obj)
		_ = s.Add(obj)
	}
}

func BenchmarkStoreUpdate(b *testing.B) {
	s, _, objs := benchmarkStore(b, 1000)
	for i := 0; b.Loop(); i++ {
		_ = s.Update(objs[i%len(objs)])
	}
}

func BenchmarkStoreGet(b *testing.B) {
	s, _, objs := benchmarkStore(b, 1000)
	for i := 0; b.Loop(); i++ {
		_, _, _ = s.Get(objs[i%len(objs)])
	}
}

func BenchmarkStoreList(b *testing.B) {
	s, _, _ := benchmarkStore(b, 1000)
	for b.Loop() {
		s.List()
	}
}

func BenchmarkStoreReplace(b *testing.B) {
	s, _, objs := benchmarkStore(b, 1000)
	for b.Loop() {
		_ = s.Replace(objs)
	}
}

func BenchmarkIndexGet(b *testing.B) {
	_, x, _ := benchmarkStore(b, 1000)
	for b.Loop() {
		x.Get("namespace-3")
	}
}

// Values of an Index, which may be pointers, are not held by it longer than by its Store.
func TestIndex_StagedValuesAreLetGo(t *testing.T) {
	s := NewStore(lineKey)
	if err := s.Replace([]string{"a1", "b1"}); err != nil {
		t.Fatal(err)
	}
	x, err := NewIndex(s, func(obj string) ([]string, error) {
		if obj == "z-failing" {
			return nil, errApplyIndex
		}
		return []string{"of " + obj, "too"}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	letGo := func(after string) {
		t.Helper()
		if held := strings.Join(x.staged[:cap(x.staged)], ""); held != "" || len(x.staged) > 0 {
			t.Errorf("%q is held after %s", held, after)
		}
	}
	letGo("NewIndex")
	if err := s.Add("c1"); err != nil {
		t.Error(err)
	}
	letGo("Add")
	if err := s.Replace([]string{"a2", "d1"}); err != nil {
		t.Error(err)
	}
	letGo("Replace")
	if err := s.Replace([]string{"a3", "z-failing"}); !errors.Is(err, errApplyIndex) {
		t.Errorf("Replace = %v, want %v", err, errApplyIndex)
	}
	letGo("a Replace that fails")
}

// A list of one key, over and over, and an object that once had very many index values, leave
// no memory behind.
func TestStore_RepetitionsLeaveNoMemory(t *testing.T) {
	const n = 200_000
	s := NewStore(func(values []int) (string, error) { return "a", nil })
	if _, err := NewIndex(s, func(values []int) ([]int, error) { return values, nil }); err != nil {
		t.Fatal(err)
	}
	before := heapInUse()
	if err := s.Replace(make([][]int, n)); err != nil {
		t.Fatal(err)
	}
	if err := s.Add(ints(n)); err != nil {
		t.Fatal(err)
	}
	if err := s.Add(ints(1)); err != nil {
		t.Fatal(err)
	}
	if grown := heapInUse() - before; grown > 1<<20 {
		t.Errorf("one object keeps %d KiB", grown>>10)
	}
	runtime.KeepAlive(s)
}
