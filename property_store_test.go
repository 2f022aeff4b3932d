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

	for i, r := range s.records {
		if r == nil || r.at != i {
			return fmt.Errorf("M1: record %d is %+v", i, r)
		}
	}
	if len(s.byKey) != len(s.records) {
		return fmt.Errorf("M2: %d keys for %d records", len(s.byKey), len(s.records))
	}
	for _, r := range s.records {
		if s.byKey[r.key] != r {
			return fmt.Errorf("M2: record %d is not under its key %v", r.at, r.key)
		}
	}
	if s.peak < len(s.byKey) {
		return fmt.Errorf("M3: peak %d, but %d keys", s.peak, len(s.byKey))
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
	c := &x.catalog
	if len(c.cards) != len(s.records) {
		return fmt.Errorf("I1: %d cards for %d records", len(c.cards), len(s.records))
	}
	places, members := 0, 0
	for at := range c.cards {
		for nth, pl := range c.cards[at] {
			places++
			if pl.posting == nil || pl.i < 0 || pl.i >= len(pl.posting.members) || pl.posting.members[pl.i] != (member[K, V]{s.records[at], nth}) {
				return fmt.Errorf("I2: place %d of record %d names no member that names it: %+v", nth, at, pl)
			}
		}
	}
	for value, p := range c.postings {
		members += len(p.members)
		if p.value != value || len(p.members) == 0 {
			return fmt.Errorf("I3: under %v is a posting of %v with %d members", value, p.value, len(p.members))
		}
	}
	if members != places {
		return fmt.Errorf("I4: %d members for %d places", members, places)
	}
	if c.peak < len(c.postings) {
		return fmt.Errorf("I5: peak %d, but %d postings", c.peak, len(c.postings))
	}
	return nil
}

// Each invariant is broken on purpose, and must be reported by name.
func TestCheckStore(t *testing.T) {
	type store = Store[string, *pod]
	type index = Index[string, string, *pod]
	for name, corrupt := range map[string]func(*store, *index){
		"lock: writers": func(s *store, _ *index) { s.writers.Lock() },
		"lock: mu":      func(s *store, _ *index) { s.mu.RLock() },
		"M1: place":     func(s *store, _ *index) { s.records[0].at = 1 },
		"M1: nil":       func(s *store, _ *index) { s.records[0] = nil },
		"M2: missing":   func(s *store, _ *index) { delete(s.byKey, "a") },
		"M2: key":       func(s *store, _ *index) { s.records[0].key = "b" },
		"M2: record":    func(s *store, _ *index) { s.byKey["a"] = &record[string, *pod]{key: "a"} },
		"M3":            func(s *store, _ *index) { s.peak = 1 },
		"I1":            func(_ *store, x *index) { x.catalog.cards = x.catalog.cards[:1] },
		"I2: range":     func(_ *store, x *index) { x.catalog.cards[0][0].i = 5 },
		"I2: nth":       func(_ *store, x *index) { x.catalog.postings["red"].members[0].nth = 1 },
		"I2: record":    func(s *store, x *index) { x.catalog.postings["red"].members[0].record = s.records[1] },
		"I3: empty":     func(_ *store, x *index) { x.catalog.postings["green"] = &posting[string, string, *pod]{value: "green"} },
		"I3: value":     func(_ *store, x *index) { x.catalog.postings["red"].value = "green" },
		"I4: stale": func(s *store, x *index) {
			p := x.catalog.postings["red"]
			p.members = append(p.members, member[string, *pod]{s.records[1], 0})
		},
		"I4: lost": func(_ *store, x *index) { x.catalog.cards[0] = nil },
		"I5":       func(_ *store, x *index) { x.catalog.peak = 0 },
	} {
		s, x := newPodStore(t, newPod("a", 1, "red", "blue"), newPod("b", 1, "yellow"))
		if err := checkStore(s); err != nil {
			t.Fatal(err)
		}
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

func TestStoreAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
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
	})
}
