package typedqueue

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// checkStore returns an error that begins with the name of the broken invariant, or nil.
// It knows the types of index values that the tests use.
func checkStore[K comparable, V any](s *Store[K, V]) error {
	if !s.writers.TryLock() {
		return errors.New("lock: a writer has left it held")
	}
	defer s.writers.Unlock()
	if !s.mu.TryLock() {
		return errors.New("lock: somebody has left it held")
	}
	defer s.mu.Unlock()

	if err := checkTable(&s.entries, hashOf); err != nil {
		return fmt.Errorf("M1: %w", err)
	}
	for e := range s.entries.all {
		if e.marks&allMarks != inTable || e.next != 0 || e.prev != 0 {
			return broken("M1", "%v has marks %b and neighbours %d and %d", e.key, e.marks&allMarks, e.prev, e.next)
		}
		if key, err := s.key.f(e.acc); err != nil || key != e.key {
			return broken("M1", "under %v is an object of key %v, %v", e.key, key, err)
		}
	}
	if s.entries.sparse() {
		return broken("M2", "%d entries in %d slots, with %d heads", s.entries.n, s.entries.used, len(s.entries.heads))
	}
	for n, x := range s.indexes {
		var err error
		switch x := x.(type) {
		case *Index[string, K, V]:
			err = storeCheckIndex(s, x)
		case *Index[int, K, V]:
			err = storeCheckIndex(s, x)
		case *Index[float64, K, V]:
			err = storeCheckIndex(s, x)
		case *Index[any, K, V]:
			err = storeCheckIndex(s, x)
		default:
			err = fmt.Errorf("checkStore does not know %T", x)
		}
		if err != nil {
			return fmt.Errorf("%w (index %d)", err, n)
		}
	}
	return nil
}

func storeCheckIndex[I, K comparable, V any](s *Store[K, V], x *Index[I, K, V]) error {
	return checkCatalog(&x.catalog, &s.entries)
}

// checkCatalog checks a catalog of what is in entries.
func checkCatalog[I, K comparable, V any](c *catalog[I], entries *table[K, V]) error {
	seen := map[placeID]bool{}
	for r, first := range c.cards {
		if first != 0 && (ref(r) > entries.used || !entries.at(ref(r)).is(inTable)) {
			return broken("I1", "slot %d has places, and is no entry", r)
		}
		values := map[ref]bool{}
		for id := first; id != 0; id = c.at(id).more {
			pl := *c.at(id)
			if pl.entry != ref(r) || seen[id] || values[pl.posting] {
				return broken("I1", "place %d is in the chain of %d, which had it or its value before: %+v", id, r, pl)
			}
			seen[id], values[pl.posting] = true, true
		}
	}
	if err := checkTable(&c.postings, hashOf); err != nil {
		return fmt.Errorf("I2: %w", err)
	}
	listed := 0
	for e := range c.postings.all {
		if len(e.acc) == 0 {
			return broken("I3", "nothing is at %v", e.key)
		}
		for i, id := range e.acc {
			if pl := c.at(id); !seen[id] || pl.posting != e.ref || pl.i != uint32(i) {
				return broken("I2", "place %d of %v is %d: %+v", i, e.key, id, pl)
			}
		}
		listed += len(e.acc)
	}
	if listed != len(seen) || listed != c.n {
		return broken("I4", "%d places in lists, %d in chains, n = %d", listed, len(seen), c.n)
	}
	free := 0
	for id := c.free; id != 0 && free <= int(c.used); id = c.at(id).more {
		if pl := *c.at(id); pl != (place{more: pl.more}) {
			return broken("I4", "place %d is free, and is %+v", id, pl)
		}
		free++
	}
	if c.n+free != int(c.used) {
		return broken("I4", "%d slots used, %d places and %d free", c.used, c.n, free)
	}
	if c.sparse() || c.postings.sparse() {
		return broken("I5", "%d places in %d slots; %d values in %d slots", c.n, c.used, c.postings.n, c.postings.used)
	}
	return checkSlots(&c.slots)
}

// Each invariant is broken on purpose, and must be reported by name.
func TestCheckStore(t *testing.T) {
	type store = Store[string, *pod]
	type index = Index[string, string, *pod]
	for name, corrupt := range map[string]func(*store, *index){
		"lock: writers": func(s *store, _ *index) { s.writers.Lock() },
		"lock: mu":      func(s *store, _ *index) { s.mu.RLock() },
		"M1: table":     func(s *store, _ *index) { s.entries.n++ },
		"M1: key":       func(s *store, _ *index) { s.entries.at(1).acc = newPod("b", 1) },
		"M1: marks":     func(s *store, _ *index) { s.entries.at(1).marks |= dirty },
		"M1: link":      func(s *store, _ *index) { s.entries.at(1).prev = 2 },
		"M2":            func(s *store, _ *index) { s.entries.reserve(2 * slotsKeep) },
		"I1: no entry":  func(_ *store, x *index) { *x.catalog.cards.at(3) = 1 },
		"I1: entry":     func(_ *store, x *index) { x.catalog.at(1).entry = 2 },
		"I1: twice":     func(_ *store, x *index) { x.catalog.at(3).more = 3 },
		"I1: value":     func(_ *store, x *index) { x.catalog.at(2).posting = x.catalog.at(1).posting },
		"I2: table":     func(_ *store, x *index) { x.catalog.postings.n++ },
		"I2: value":     func(_ *store, x *index) { x.catalog.at(3).posting = 1 },
		"I2: index":     func(_ *store, x *index) { x.catalog.at(1).i = 1 },
		"I2: stale":     func(_ *store, x *index) { x.catalog.cards[1] = 0 },
		"I2: repeated":  func(_ *store, x *index) { p := x.catalog.postings.at(1); p.acc = append(p.acc, p.acc[0]) },
		"I3":            func(_ *store, x *index) { x.catalog.postings.insert(hashOf("green"), "green") },
		"I4: unlisted": func(_ *store, x *index) {
			x.catalog.postings.remove(x.catalog.postings.slot(x.catalog.at(3).posting))
		},
		"I4: n":      func(_ *store, x *index) { x.catalog.n-- },
		"I4: free":   func(_ *store, x *index) { x.catalog.at(x.catalog.free).i = 1 },
		"I4: lost":   func(_ *store, x *index) { x.catalog.free = 0 },
		"I5: values": func(_ *store, x *index) { x.catalog.postings.reserve(2 * slotsKeep) },
		"C1: chunks": func(_ *store, x *index) { x.catalog.chunks = append(x.catalog.chunks, make([]place, chunkLen)) },
		"I5: places": func(_ *store, x *index) {
			for x.catalog.used <= slotsKeep {
				x.catalog.take()
			}
			for id := placeID(4); id <= x.catalog.used; id++ {
				x.catalog.release(id)
			}
		},
	} {
		s, x := newPodStore(t, newPod("a", 1, "red", "blue"), newPod("b", 1, "yellow"), newPod("c", 1, "red"))
		if err := checkStore(s); err != nil {
			t.Fatal(err)
		}
		s.DeleteKey("c") // so that there is a free place
		corrupt(s, x)
		want, _, _ := strings.Cut(name, ":")
		if err := checkStore(s); err == nil || !strings.HasPrefix(err.Error(), want+":") {
			t.Errorf("checkStore after breaking %s = %v", name, err)
		}
	}
}

// storeObj is an object of the model test. Key storeBadKey has no key, and the second index
// fails for tag storeBadTag.
type storeObj struct {
	Key  int
	Tags [3]int // the first two are the values of the first index, all of the second
	Rev  int    // makes each one distinct
}

const (
	storeKeys   = 4 // storeBadKey among them
	storeBadKey = 3
	storeTags   = 5 // storeBadTag and storeNaNTag among them
	storeNaNTag = 3
	storeBadTag = 4
)

var (
	errStoreKey = errors.New("bad key")
	errStoreTag = errors.New("bad tag")
)

func storeKeyOf(o storeObj) (int, error) {
	if o.Key == storeBadKey {
		return 0, errStoreKey
	}
	return o.Key, nil
}

func storeFirst(o storeObj) ([]int, error) { return o.Tags[:2], nil }

func storeSecond(o storeObj) (values []float64, err error) {
	for _, tag := range o.Tags {
		switch tag {
		case storeBadTag:
			return values, errStoreTag
		case storeNaNTag:
			values = append(values, math.NaN())
		default:
			values = append(values, float64(tag))
		}
	}
	return values, nil
}

// storeModel is the Store as one would explain it: a map, and indexes found by looking.
type storeModel struct {
	objs          map[int]storeObj
	first, second bool // the indexes that exist
}

// refuses tells whether a write of o must fail.
func (m *storeModel) refuses(o storeObj) bool {
	return o.Key == storeBadKey || m.second && o.badTag()
}

func (o storeObj) badTag() bool { return slices.Max(o.Tags[:]) >= storeNaNTag }

func (m *storeModel) replace(objs []storeObj) bool {
	next := map[int]storeObj{}
	for _, o := range objs {
		if o.Key == storeBadKey {
			return false
		}
		next[o.Key] = o
	}
	for _, o := range next {
		if m.refuses(o) {
			return false
		}
	}
	m.objs = next
	return true
}

// storeScan returns the objects by index value.
func storeScan[I comparable](m *storeModel, f func(storeObj) ([]I, error)) map[I]set[storeObj] {
	found := map[I]set[storeObj]{}
	for _, o := range m.objs {
		values, err := f(o)
		if err != nil {
			panic(err)
		}
		for _, v := range values {
			if found[v] == nil {
				found[v] = set[storeObj]{}
			}
			found[v].add(o)
		}
	}
	return found
}

// storeSetOf fails if a list holds something twice.
func storeSetOf[T comparable](t *rapid.T, list []T) set[T] {
	s := set[T]{}
	for _, v := range list {
		if s.has(v) {
			t.Fatalf("%v is twice in %v", v, list)
		}
		s.add(v)
	}
	return s
}

func storeCompareIndex[I cmp.Ordered](t *rapid.T, x *Index[I, int, storeObj], want map[I]set[storeObj]) {
	got := map[I]set[storeObj]{}
	for v := range storeSetOf(t, x.Values()) {
		got[v] = storeSetOf(t, x.Get(v))
		keys := set[int]{}
		for o := range got[v] {
			keys.add(o.Key)
		}
		if diff := gocmp.Diff(keys, storeSetOf(t, x.Keys(v))); diff != "" {
			t.Fatalf("Keys(%v) and Get(%v) differ: %s", v, v, diff)
		}
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Fatalf("the index differs from a scan (-want +got):\n%s", diff)
	}
}

func TestStoreProperty(t *testing.T) { rapid.Check(t, storeProperty()) }

func storeProperty() func(*rapid.T) {
	return func(t *rapid.T) {
		s, m := NewStore(storeKeyOf), &storeModel{objs: map[int]storeObj{}}
		var (
			first  *Index[int, int, storeObj]
			second *Index[float64, int, storeObj]
			rev    int
		)
		objs := rapid.Custom(func(t *rapid.T) storeObj {
			tag := rapid.IntRange(0, storeTags-1)
			return storeObj{
				Key:  rapid.IntRange(0, storeKeys-1).Draw(t, "key"),
				Tags: [3]int{tag.Draw(t, "tag"), tag.Draw(t, "tag"), tag.Draw(t, "tag")},
			}
		})
		draw := func(t *rapid.T) storeObj {
			o := objs.Draw(t, "object")
			rev++
			o.Rev = rev
			return o
		}
		wantErr := func(t *rapid.T, call string, err error, want bool) {
			if (err != nil) != want {
				t.Fatalf("%s: error %v, want one: %v", call, err, want)
			}
		}
		write := func(call string, f func(storeObj) error) func(*rapid.T) {
			return func(t *rapid.T) {
				o := draw(t)
				wantErr(t, call, f(o), m.refuses(o))
				if !m.refuses(o) {
					m.objs[o.Key] = o
				}
			}
		}
		actions := map[string]func(*rapid.T){
			"Add":    write("Add", s.Add),
			"Update": write("Update", s.Update),
			"put": func(t *rapid.T) {
				o := draw(t)
				if o.Key == storeBadKey {
					t.Skip()
				}
				old, existed, err := s.put(o.Key, o)
				wantErr(t, "put", err, m.refuses(o))
				if err != nil {
					return
				}
				if want, ok := m.objs[o.Key]; old != want || existed != ok {
					t.Fatalf("put = %v, %v, want %v, %v", old, existed, want, ok)
				}
				m.objs[o.Key] = o
			},
			"Delete": func(t *rapid.T) {
				o := draw(t)
				wantErr(t, "Delete", s.Delete(o), o.Key == storeBadKey)
				delete(m.objs, o.Key)
			},
			"DeleteKey": func(t *rapid.T) {
				key := rapid.IntRange(0, storeKeys-1).Draw(t, "key")
				_, want := m.objs[key]
				if got := s.DeleteKey(key); got != want {
					t.Fatalf("DeleteKey(%d) = %v", key, got)
				}
				delete(m.objs, key)
			},
			"Replace": func(t *rapid.T) {
				list := make([]storeObj, rapid.IntRange(0, storeKeys).Draw(t, "n"))
				for i := range list {
					list[i] = draw(t)
				}
				wantErr(t, "Replace", s.Replace(list), !m.replace(list))
			},
			"": func(t *rapid.T) {
				if err := checkStore(s); err != nil {
					t.Fatal(err)
				}
				if diff := gocmp.Diff(m.objs, maps.Collect(s.All())); diff != "" {
					t.Fatalf("All (-want +got):\n%s", diff)
				}
				listed := storeSetOf(t, slices.Collect(maps.Values(m.objs)))
				if diff := gocmp.Diff(listed, storeSetOf(t, s.List())); diff != "" {
					t.Fatalf("List (-want +got):\n%s", diff)
				}
				keys := storeSetOf(t, slices.Collect(maps.Keys(m.objs)))
				if diff := gocmp.Diff(keys, storeSetOf(t, s.ListKeys())); diff != "" || s.Len() != len(keys) {
					t.Fatalf("Len %d, ListKeys (-want +got):\n%s", s.Len(), diff)
				}
				for key := range storeKeys {
					want, exists := m.objs[key]
					if got, ok := s.GetByKey(key); got != want || ok != exists {
						t.Fatalf("GetByKey(%d) = %v, %v", key, got, ok)
					}
					got, ok, err := s.Get(storeObj{Key: key})
					if got != want || ok != exists || (err != nil) != (key == storeBadKey) {
						t.Fatalf("Get(%d) = %v, %v, %v", key, got, ok, err)
					}
				}
				var wantFirst map[int]set[storeObj]
				if wantFirst = map[int]set[storeObj]{}; m.first {
					wantFirst = storeScan(m, storeFirst)
				}
				storeCompareIndex(t, first, wantFirst)
				if m.second {
					storeCompareIndex(t, second, storeScan(m, storeSecond))
				}
			},
		}

		var err error
		if first, err = NewIndex(s, storeFirst); err != nil {
			t.Fatal(err)
		}
		m.first = true
		t.Repeat(actions)

		bad := false // stored objects that the second index refuses: it must not come to be
		for _, o := range m.objs {
			bad = bad || o.badTag()
		}
		second, err = NewIndex(s, storeSecond)
		wantErr(t, "NewIndex", err, bad)
		if bad {
			t.Repeat(actions)
			wantErr(t, "Replace", s.Replace(nil), !m.replace(nil))
			if second, err = NewIndex(s, storeSecond); err != nil {
				t.Fatal(err)
			}
		}
		m.second = true
		t.Repeat(actions)

		first.Close()
		m.first = false
		t.Repeat(actions)
	}
}

// TestStoreBurstsProperty has so many objects come and go that tables and catalogs grow and
// are compacted, with objects in them that have many index values, and some that have none.
func TestStoreBurstsProperty(t *testing.T) { rapid.Check(t, storeBurstsProperty()) }

func storeBurstsProperty() func(*rapid.T) {
	type object struct {
		key  int
		tags []int
	}
	return func(t *rapid.T) {
		s := NewStore(func(o object) (int, error) { return o.key, nil })
		x, err := NewIndex(s, func(o object) ([]int, error) { return o.tags, nil })
		if err != nil {
			t.Fatal(err)
		}
		model := map[int][]int{}
		var keys []int // as they came; a key may be there twice
		put := func(key int, tags ...int) {
			if err := s.Add(object{key, tags}); err != nil {
				t.Fatal(err)
			}
			model[key] = tags
			keys = append(keys, key)
		}
		putSome := func(t *rapid.T) {
			for key := range rapid.IntRange(0, 3).Draw(t, "objects") {
				n := rapid.SampledFrom([]int{0, 1, 2, 2 * slotsKeep}).Draw(t, "values")
				put(key, ints(n)...)
			}
		}
		putMany := func(t *rapid.T) {
			own := rapid.IntRange(0, 2).Draw(t, "values of its own")
			for i := range rapid.IntRange(1, 2*slotsKeep).Draw(t, "many") {
				tags := ints(i % 3)
				for j := range own {
					tags = append(tags, 10_000+2*i+j)
				}
				put(100+i, tags...)
			}
		}
		fall := func(t *rapid.T) {
			slices.Reverse(keys[:rapid.IntRange(0, len(keys)).Draw(t, "newest first")])
			keep := rapid.IntRange(0, min(9, len(keys))).Draw(t, "keep")
			for _, key := range keys[keep:] {
				_, want := model[key]
				if got := s.DeleteKey(key); got != want {
					t.Fatalf("DeleteKey(%d) = %t", key, got)
				}
				delete(model, key)
			}
			keys = keys[:keep]
		}
		replace := func(t *rapid.T) {
			if !rapid.Bool().Draw(t, "replace") {
				return
			}
			objs := make([]object, 0, len(model))
			for _, key := range slices.Sorted(maps.Keys(model)) {
				objs = append(objs, object{key, model[key]})
			}
			if err := s.Replace(objs); err != nil {
				t.Fatal(err)
			}
		}
		for range rapid.IntRange(1, 3).Draw(t, "bursts") {
			for _, step := range []func(*rapid.T){putSome, putMany, replace, putSome, fall} {
				step(t)
				if err := checkStore(s); err != nil {
					t.Fatal(err)
				}
			}
			want := map[int]set[int]{} // keys by value
			for key, tags := range model {
				if o, ok := s.GetByKey(key); !ok || !slices.Equal(o.tags, tags) {
					t.Fatalf("GetByKey(%d) = %v, %t, want %v", key, o, ok, tags)
				}
				for _, tag := range tags {
					if want[tag] == nil {
						want[tag] = set[int]{}
					}
					want[tag].add(key)
				}
			}
			if s.Len() != len(model) || len(s.List()) != len(model) || len(x.Values()) != len(want) {
				t.Fatalf("%d objects, %d listed, of %d values; want %d, of %d",
					s.Len(), len(s.List()), len(x.Values()), len(model), len(want))
			}
			for value, keys := range want {
				if got := storeSetOf(t, x.Keys(value)); !maps.Equal(got, keys) {
					t.Fatalf("Keys(%d) = %v, want %v", value, got, keys)
				}
			}
		}
	}
}
