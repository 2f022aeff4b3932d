package typedqueue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"pgregory.net/rapid"
)

// This file proves the structures by their invariants. For each there is
//
//   - a check, which names the invariant that it finds broken,
//   - a test that breaks every invariant on purpose and sees it reported,
//   - a state machine that compares it, step by step, with the textbook version of it:
//     obviously right, never fast.
//
// RAPID_CHECKS=10000 go test -run Property makes the machines run longer.

// broken returns an error that begins with the invariant's name.
func broken(invariant, format string, args ...any) error {
	return fmt.Errorf("%s: %s", invariant, fmt.Sprintf(format, args...))
}

// wantBroken fails the test unless err reports invariant.
func wantBroken(t *testing.T, invariant string, err error) {
	t.Helper()
	if err == nil || !strings.HasPrefix(err.Error(), invariant+":") {
		t.Errorf("check after breaking %s = %v", invariant, err)
	}
}

// mustCheck fails the test if err reports a broken invariant.
func mustCheck(t *rapid.T, err error) {
	if err != nil {
		t.Fatal(err)
	}
}

// heap

func checkHeap[I ~uint32](h *heap[I]) error {
	seqs := map[uint32]bool{}
	i := root - 1
	for n := range h.all {
		i++
		switch {
		case i > root && n.before(*h.nodes.at(parent(i))):
			return broken("H1", "the node at %d is before its parent", i)
		case int(n.id) >= len(h.places) || h.places[n.id] != uint32(i):
			return broken("H2", "the place of %d is not %d", n.id, i)
		case n.seq > h.seq || seqs[n.seq]:
			return broken("H3", "%d has the number %d, which is there twice or greater than %d", n.id, n.seq, h.seq)
		}
		seqs[n.seq] = true
	}
	switch {
	case h.n > 0 && h.last() > int(h.nodes.used):
		return broken("H1", "%d nodes, the last slot is %d", h.n, h.nodes.used)
	case h.nodes.sparse(h.n):
		return broken("Q9", "%d nodes in %d slots", h.n, h.nodes.used)
	}
	return checkSlots(&h.nodes)
}

func TestHeapCheck(t *testing.T) {
	for _, b := range []struct {
		invariant string
		corrupt   func(*heap[ref])
	}{
		{"H1", func(h *heap[ref]) { h.nodes.at(root + 5).at = -1 }},
		{"H2", func(h *heap[ref]) { h.places[5] = 4 }},
		{"H2", func(h *heap[ref]) { h.places = h.places[:5] }},
		{"H3", func(h *heap[ref]) { h.seq-- }},
		{"H3", func(h *heap[ref]) { h.nodes.at(root + 5).seq = h.nodes.at(root + 4).seq }},
	} {
		var h heap[ref]
		for i := range ref(6) {
			h.push(i, int64(i))
		}
		if err := checkHeap(&h); err != nil {
			t.Fatal(err)
		}
		b.corrupt(&h)
		wantBroken(t, b.invariant, checkHeap(&h))
	}
}

// TestHeapProperty compares a heap with a list in order of arrival, in which the first of
// the least is looked for.
func TestHeapProperty(t *testing.T) { rapid.Check(t, heapProperty()) }

func heapProperty() func(*rapid.T) {
	return func(t *rapid.T) {
		type standing struct {
			id ref
			at int64
		}
		var model []standing // in order of arrival
		h := heap[ref]{seq: rapid.SampledFrom([]uint32{0, math.MaxUint32 - 3}).Draw(t, "seq")}
		ats := rapid.Int64Range(0, 9)
		next, most := ref(0), ref(0)
		push := func(at int64) {
			next++
			most = max(most, next)
			h.push(next, at)
			model = append(model, standing{next, at})
		}
		pick := func(t *rapid.T) int {
			if len(model) == 0 {
				t.Skip("empty")
			}
			return rapid.IntRange(0, len(model)-1).Draw(t, "which")
		}
		first := func() int {
			least := 0
			for i, s := range model {
				if s.at < model[least].at {
					least = i
				}
			}
			return least
		}
		remove := func(i int) {
			h.remove(model[i].id)
			model = slices.Delete(model, i, i+1)
		}
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) { push(ats.Draw(t, "at")) },
			"pushMany": func(t *rapid.T) {
				for range 3 * keepCap {
					push(ats.Draw(t, "at"))
				}
			},
			"popMany": func(t *rapid.T) {
				for h.len() > 3 {
					if got, want := h.top().id, model[first()].id; got != want {
						t.Fatalf("top = %d, want %d", got, want)
					}
					remove(first())
				}
			},
			"remove": func(t *rapid.T) { remove(pick(t)) },
			"move": func(t *rapid.T) {
				i := pick(t)
				s := standing{model[i].id, ats.Draw(t, "at")}
				h.move(s.id, s.at)
				model = append(slices.Delete(model, i, i+1), s)
			},
			"rename": func(t *rapid.T) {
				i := pick(t)
				next++
				most = max(most, next)
				h.places.at(next)
				h.rename(model[i].id, next)
				model[i].id = next
			},
			"trim": func(t *rapid.T) {
				last := ref(0)
				for _, s := range model {
					last = max(last, s.id)
				}
				h.trim(last)
				if len(h.places) > int(last)+1 || cap(h.places) > int(last)+1 && int(last) < int(most) {
					t.Fatalf("Q9: room for %d places, the last id is %d", cap(h.places), last)
				}
				most = last
			},
			"": func(t *rapid.T) {
				mustCheck(t, checkHeap(&h))
				if h.len() != len(model) {
					t.Fatalf("len = %d, want %d", h.len(), len(model))
				}
				for _, s := range model {
					if h.at(s.id) != s.at {
						t.Fatalf("%d stands at %d, want %d", s.id, h.at(s.id), s.at)
					}
				}
				if len(model) > 0 && (node[ref]{h.top().at, 0, h.top().id}) != (node[ref]{model[first()].at, 0, model[first()].id}) {
					t.Fatalf("top = %+v, want %+v", h.top(), model[first()])
				}
			},
		})
	}
}

// TestHeap_Q9_Shrinks empties a heap of many chunks, from the top and from everywhere. To
// give memory back has to be worth it each time, so it happens rarely.
func TestHeap_Q9_Shrinks(t *testing.T) {
	const n = 5*chunkLen + 1
	rnd := rand.New(rand.NewPCG(1, 2))
	var h heap[ref]
	for range 2 {
		shrunk := 0
		in := make([]bool, n)
		for id := range in {
			h.push(ref(id), rnd.Int64N(n))
			in[id] = true
		}
		for i, id := range rnd.Perm(n) {
			if i%64 == 0 {
				if err := checkHeap(&h); err != nil {
					t.Fatal(err)
				}
			}
			used := h.nodes.used
			if in[id] {
				h.remove(ref(id))
				in[id] = false
			}
			if i%2 == 0 && h.len() > 0 {
				top := h.top().id
				h.remove(top)
				in[top] = false
			}
			if h.nodes.used < used {
				shrunk++
			}
		}
		if shrunk > 2 {
			t.Errorf("gave memory back %d times", shrunk)
		}
		if h.len() != 0 || h.nodes.used > slotsKeep {
			t.Errorf("%d nodes in %d slots, want none in few", h.len(), h.nodes.used)
		}
	}
}

// table

func checkTable[K comparable, A any](t *table[K, A], hash func(K) uint32) error {
	seen := map[ref]bool{}
	keys := map[K]bool{}
	for i, r := range t.heads {
		for ; r != 0 && len(seen) <= t.n; r = t.at(r).chain {
			e := t.at(r)
			switch {
			case !e.is(inTable):
				return broken("B1", "slot %d is in a chain and not in the table", r)
			case e.hash() != hash(e.key) || t.head(e.hash()) != &t.heads[i]:
				return broken("B1", "%v is in chain %d, and says that its hash is %x", e.key, i, e.hash())
			case seen[r] || keys[e.key]:
				return broken("B1", "%v is there twice", e.key)
			}
			seen[r], keys[e.key] = true, true
		}
	}
	if n := len(t.heads); len(seen) != t.n || n&(n-1) != 0 || t.room != roomIn(n) || t.n > t.room {
		return broken("B2", "%d entries, n = %d, %d heads", len(seen), t.n, n)
	}
	if n := len(t.heads); n > 0 && uint32(math.MaxUint32)>>t.shift != uint32(n-1) {
		return broken("B2", "a hash shifted by %d says which of %d heads", t.shift, n)
	}
	free := 0
	for r := t.free; r != 0 && free <= int(t.used); r = t.at(r).chain {
		if seen[r] {
			return broken("B3", "slot %d is free, and in a chain", r)
		}
		free++
	}
	for r := ref(1); r <= t.used; r++ {
		if seen[r] {
			continue
		}
		if !isZeroBut(*t.at(r), "chain") {
			return broken("B3", "the free slot %d is not zero", r)
		}
	}
	if t.n+free != int(t.used) {
		return broken("B3", "%d slots used, %d entries and %d free", t.used, t.n, free)
	}
	for b, h := range spareOf(t.spareHeads) {
		if h != nil && len(h) != 1<<b || slices.ContainsFunc(h, func(r ref) bool { return r != 0 }) {
			return broken("B4", "%d spare heads stand at %d, or are not zero", len(h), b)
		}
	}
	return checkSlots(&t.slots)
}

// spareOf returns what is held by w, or the zero value.
func spareOf[T any](w weak.Pointer[T]) (v T) {
	if p := w.Value(); p != nil {
		v = *p
	}
	return v
}

// isZeroBut reports whether all fields of the struct v but link are zero.
func isZeroBut(v any, link string) bool {
	fields := reflect.ValueOf(v)
	for i := range fields.NumField() {
		if fields.Type().Field(i).Name != link && !fields.Field(i).IsZero() {
			return false
		}
	}
	return true
}

func checkSlots[I ~uint32, E any](s *slots[I, E]) error {
	if want := int(s.used/chunkLen) + 1; len(s.chunks) != want && (len(s.chunks) > 0 || s.used > 0) {
		return broken("C1", "%d chunks, the last slot is %d", len(s.chunks), s.used)
	}
	if cap(s.chunks) > max(2*keepCap, 4*len(s.chunks)) {
		return broken("Q9", "%d chunks keep room for %d", len(s.chunks), cap(s.chunks))
	}
	if len(s.chunks) > 0 && s.end != s.lastIn() {
		return broken("C1", "end = %d, the last slot of the chunks is %d", s.end, s.lastIn())
	}
	for i, c := range s.chunks {
		if len(c) > chunkLen || i > 0 && len(c) != chunkLen {
			return broken("C1", "chunk %d has %d slots", i, len(c))
		}
		for j := range c {
			if n := I(i*chunkLen + j); (n == 0 || n > s.used) && !reflect.ValueOf(c[j]).IsZero() {
				return broken("C2", "slot %d is not zero, the last one is %d", n, s.used)
			}
		}
	}
	for _, c := range spareOf(s.spare) {
		if len(c) != chunkLen || slices.ContainsFunc(c, func(e E) bool { return !reflect.ValueOf(e).IsZero() }) {
			return broken("C2", "a spare chunk of %d is not zero", len(c))
		}
	}
	return nil
}

func TestTableCheck(t *testing.T) {
	for _, b := range []struct {
		invariant string
		corrupt   func(*table[string, int])
	}{
		{"B1", func(t *table[string, int]) { t.find(hashOf("a"), "a").key = "b" }},
		{"B1", func(t *table[string, int]) { t.find(hashOf("a"), "a").marks = 0 }},
		{"B2", func(t *table[string, int]) { t.n++ }},
		{"B2", func(t *table[string, int]) { // half of the heads would do
			clear(t.heads)
			t.shift++
			for e := range t.all {
				h := t.head(e.hash())
				e.chain, *h = *h, e.ref
			}
		}},
		{"B3", func(t *table[string, int]) { t.at(t.free).acc = 1 }},
		{"B3", func(t *table[string, int]) { t.free = 0 }},
		{"B4", func(t *table[string, int]) { keepSpare(&t.spareHeads)[3] = make([]ref, 9) }},
		{"B4", func(t *table[string, int]) { keepSpare(&t.spareHeads)[3] = []ref{0, 0, 0, 0, 1, 0, 0, 0} }},
		{"C1", func(t *table[string, int]) { t.chunks = append(t.chunks, make([]entry[string, int], chunkLen)) }},
		{"C1", func(t *table[string, int]) {
			t.chunks[0] = append(t.chunks[0], make([]entry[string, int], chunkLen)...)
		}},
		{"C1", func(t *table[string, int]) { t.slots.end-- }},
		{"C2", func(t *table[string, int]) { t.at(0).acc = 1 }},
		{"C2", func(t *table[string, int]) { t.at(t.used + 1).marks = inTable }},
		{"C2", func(t *table[string, int]) {
			c := make([]entry[string, int], chunkLen)
			c[9].acc = 1
			*keepSpare(&t.slots.spare) = [][]entry[string, int]{c}
		}},
	} {
		var tab table[string, int]
		for _, key := range []string{"a", "b", "c"} {
			tab.insert(hashOf(key), key)
		}
		tab.remove(tab.find(hashOf("c"), "c"))
		if err := checkTable(&tab, hashOf); err != nil {
			t.Fatal(err)
		}
		b.corrupt(&tab)
		wantBroken(t, b.invariant, checkTable(&tab, hashOf))
	}
}

// kept are spares that must not be collected before they are checked.
var kept []any

// keepSpare returns a new T that w holds, and that is not collected.
func keepSpare[T any](w *weak.Pointer[T]) *T {
	v := new(T)
	kept = append(kept, v)
	*w = weak.Make(v)
	return v
}

// TestSlots_Full is a case that cannot be had otherwise: more than 32 bits can count.
func TestSlots_Full(t *testing.T) {
	var s slots[ref, plate[int]]
	s.extend()
	s.used = math.MaxUint32
	defer func() {
		if msg, ok := recover().(string); !ok || !strings.HasPrefix(msg, "typedqueue: ") || s.used != math.MaxUint32 || len(s.chunks) != 1 {
			t.Errorf("extend of full slots: %v; used = %d, %d chunks", msg, s.used, len(s.chunks))
		}
	}()
	s.extend()
}

// find returns the entry of key, if there is one.
func (l *line[K, P, C]) find(key K) slot[K, content[P]] {
	return l.entries.find(hashOf(key), key)
}

// checkStacks checks s, whose stacks have tops, and as many values as these say.
func checkStacks[T any](s *stacks[T], tops map[ref]int) error {
	seen := map[ref]bool{}
	n := 0
	for top, size := range tops {
		for r := top; r != 0; r = s.at(r).below {
			if seen[r] {
				return broken("G1", "slot %d is in two stacks, or twice in one", r)
			}
			seen[r] = true
			size--
			n++
		}
		if size != 0 {
			return broken("G1", "the stack of slot %d has %d values less than it should", top, size)
		}
	}
	if n != s.n {
		return broken("G1", "%d values, n = %d", n, s.n)
	}
	free := 0
	for r := s.free; r != 0 && free <= int(s.used); r = s.at(r).below {
		if seen[r] || !reflect.ValueOf(s.at(r).value).IsZero() {
			return broken("G1", "slot %d is free, and in a stack, or not zero", r)
		}
		free++
	}
	if n+free != int(s.used) {
		return broken("G1", "%d slots used, %d values and %d free", s.used, n, free)
	}
	return checkSlots(&s.slots)
}

// TestStacks_Q9_InheritedChunksServeAgain moves house without a stack to move.
func TestStacks_Q9_InheritedChunksServeAgain(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // spare chunks are held weakly
	var old, s stacks[int]
	fill := func(s *stacks[int]) (top ref) {
		for range 3 * chunkLen {
			top = s.push(top, 1)
		}
		return top
	}
	old.drop(fill(&old))
	s.inherit(&old)
	spare := s.spare.Value()
	if spare == nil || len(*spare) != 3 {
		t.Fatalf("spare chunks = %v, want 3", spare)
	}
	fill(&s)
	if len(*spare) != 0 {
		t.Errorf("%d spare chunks are left, want none", len(*spare))
	}
}

// TestStacksProperty compares stacks with slices.
func TestStacksProperty(t *testing.T) { rapid.Check(t, stacksProperty()) }

func stacksProperty() func(*rapid.T) {
	return func(t *rapid.T) {
		var s stacks[int]
		var model [3][]int
		var tops [3]ref
		owner := rapid.IntRange(0, 2)
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				o := owner.Draw(t, "owner")
				for range rapid.SampledFrom([]int{1, 5, 700}).Draw(t, "n") {
					tops[o] = s.push(tops[o], len(model[o])+1)
					model[o] = append(model[o], len(model[o])+1)
				}
			},
			"pop": func(t *rapid.T) {
				if o := owner.Draw(t, "owner"); tops[o] != 0 {
					tops[o] = s.pop(tops[o])
					model[o] = model[o][:len(model[o])-1]
				}
			},
			"drop": func(t *rapid.T) {
				o := owner.Draw(t, "owner")
				s.drop(tops[o])
				tops[o], model[o] = 0, nil
			},
			"move": func(*rapid.T) {
				old := s
				s = stacks[int]{}
				for o := range tops {
					tops[o] = s.move(&old, tops[o])
				}
				s.inherit(&old)
				if s.sparse() {
					t.Fatalf("%d values in %d slots", s.n, s.used)
				}
			},
			"": func(t *rapid.T) {
				sizes := map[ref]int{}
				for o, top := range tops {
					if top != 0 {
						sizes[top] = len(model[o])
					}
					for r, want := range slices.Backward(model[o]) {
						if got := s.at(top).value; got != want {
							t.Fatalf("value %d of %d is %d, want %d", r, o, got, want)
						}
						top = s.at(top).below
					}
				}
				if err := checkStacks(&s, sizes); err != nil {
					t.Fatal(err)
				}
			},
		})
	}
}

// TestTableProperty compares a table with a map, under a hash that collides a lot.
func TestTableProperty(t *testing.T) { rapid.Check(t, tableProperty()) }

func tableProperty() func(*rapid.T) {
	return func(t *rapid.T) {
		var tab table[int, int]
		model := map[int]ref{}
		hash := func(key int) uint32 { return uint32(key/3*0x1001) << 5 }
		insert := func(key int) {
			if model[key] == 0 {
				e := tab.insert(hash(key), key)
				e.acc = key
				model[key] = e.ref
			}
		}
		remove := func(key int) {
			if r := model[key]; r != 0 {
				tab.remove(tab.slot(r))
				delete(model, key)
			}
		}
		compact := func() {
			tab.compact(func(from, to ref) {
				key := tab.at(to).key
				if model[key] != from {
					t.Fatalf("%d has moved from %d, was in %d", key, from, model[key])
				}
				model[key] = to
			})
		}
		keys := rapid.IntRange(0, 20)
		t.Repeat(map[string]func(*rapid.T){
			"insert": func(t *rapid.T) { insert(keys.Draw(t, "key")) },
			"remove": func(t *rapid.T) { remove(keys.Draw(t, "key")) },
			"reserve": func(t *rapid.T) {
				tab.reserve(rapid.IntRange(0, 3*slotsKeep).Draw(t, "more"))
			},
			"compact": func(t *rapid.T) { compact() },
			"collect": func(t *rapid.T) {
				if tab.slots.spare.Value() != nil && rapid.IntRange(0, 9).Draw(t, "unless 0") == 0 {
					runtime.GC()
				}
			},
			"burst": func(t *rapid.T) {
				last := rapid.IntRange(1, 4*chunkLen).Draw(t, "last")
				step := rapid.SampledFrom([]int{1, -1}).Draw(t, "step")
				for key := range last {
					insert(key)
				}
				for i := range last {
					key := i
					if step < 0 {
						key = last - 1 - i
					}
					if key%999 != 5 {
						remove(key)
					}
					if tab.sparse() {
						compact()
					}
				}
			},
			"": func(t *rapid.T) {
				mustCheck(t, checkTable(&tab, hash))
				if tab.n != len(model) {
					t.Fatalf("n = %d, want %d", tab.n, len(model))
				}
				for key := range 21 {
					switch got := tab.find(hash(key), key); {
					case got.ref != model[key]:
						t.Fatalf("find(%d) = %v, want %v", key, got.ref, model[key])
					case got.ref != 0 && (got.entry != tab.at(got.ref) || got.key != key || got.acc != key):
						t.Fatalf("find(%d) = %+v", key, got)
					}
				}
				n := 0
				for e := range tab.all {
					n++
					if model[e.key] != e.ref {
						t.Fatalf("all yields %v, which is not there", e.key)
					}
				}
				if n != len(model) {
					t.Fatalf("all yields %d entries of %d", n, len(model))
				}
				if !tab.sparse() {
					return
				}
				compact()
				if int(tab.used) != tab.n || len(tab.heads) > max(slotsKeep, 1<<headsFor(2*tab.n)) || tab.sparse() {
					t.Fatalf("Q9: after compact, %d entries keep %d slots and %d heads", tab.n, tab.used, len(tab.heads))
				}
				mustCheck(t, checkTable(&tab, hash))
			},
		})
	}
}

// TestTable_HeadsFor looks at how many heads a table has, from small to large.
func TestTable_HeadsFor(t *testing.T) {
	for n, want := range map[int]int{
		0: 3, 1: 3, 2: 3, 3: 4, 4: 4, 5: 5, 16_383: 16, 16_384: 16, 16_385: 16, // four for each
		65_535: 16, 65_536: 16, 65_537: 17, 131_072: 17, 131_073: 18, // one for each
	} {
		if got := headsFor(n); got != want {
			t.Errorf("headsFor(%d) = %d, want %d", n, got, want)
		}
	}
	for heads, want := range map[int]int{8: 2, 32_768: 8_192, 65_536: 65_536, 131_072: 131_072} {
		if got := roomIn(heads); got != want {
			t.Errorf("roomIn(%d) = %d, want %d", heads, got, want)
		}
	}
	for n := range 300_000 {
		heads := 1 << headsFor(n)
		if roomIn(heads) < n || heads > fastHeads && roomIn(heads/2) >= n {
			t.Fatalf("%d heads for %d entries, with room for %d", heads, n, roomIn(heads))
		}
	}
}

// TestTable_Q9_SpareHeads grows tables for n entries that have spare heads, as many as the
// powers of two say.
func TestTable_Q9_SpareHeads(t *testing.T) {
	for _, test := range []struct {
		n      int
		spares []int
		want   int
		spare  bool
	}{
		{1024, nil, 12, false},
		{1024, []int{11}, 12, false},
		{1024, []int{12}, 12, true},
		{1024, []int{12, 13}, 13, true},
		{1024, []int{11, 14, 15}, 14, true},
		{1024, []int{15}, 12, false}, // more than that are rarely worth it
		{8191, []int{17}, 15, false}, // they would be too many
		{8192, []int{17}, 17, true},
	} {
		var tab table[int, struct{}]
		spare := new([33][]ref)
		for _, b := range test.spares {
			spare[b] = make([]ref, 1<<b)
		}
		tab.spareHeads = weak.Make(spare)
		before := *spare
		heads := tab.newHeads(test.n)
		switch {
		case len(heads) != 1<<test.want:
			t.Errorf("for %d entries, of spare %v: %d heads, want 1<<%d", test.n, test.spares, len(heads), test.want)
		case test.spare != (before[test.want] != nil && &heads[0] == &before[test.want][0]):
			t.Errorf("for %d entries, of spare %v: from the spare ones: %t", test.n, test.spares, !test.spare)
		case spare[test.want] != nil:
			t.Errorf("for %d entries, of spare %v: still spare after use", test.n, test.spares)
		}
		runtime.KeepAlive(spare)
	}
}

// TestTable_Q9_OldHeadsAreSpare lets a table grow, and wants all that it had but the little
// ones to be spare.
func TestTable_Q9_OldHeadsAreSpare(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // they are held weakly
	var tab table[int, struct{}]
	for b := 8; b <= 13; b++ {
		tab.relink(make([]ref, 1<<b))
	}
	for b, h := range spareOf(tab.spareHeads) {
		if (h != nil) != (b >= 10 && b <= 12) {
			t.Errorf("%d spare heads at %d", len(h), b)
		}
	}
}

// TestTable_CompactsRarely counts how often a table is sparse while it empties: compact has
// to be worth it each time.
func TestTable_CompactsRarely(t *testing.T) {
	for _, n := range []int{100, 3_000, 5_000, 10_000, 20_000, 70_000, 150_000} {
		var tab table[int, struct{}]
		for key := range n {
			tab.insert(hashOf(key), key)
		}
		compacted, room := 0, roomIn(len(tab.heads))
		for key := range n {
			tab.remove(tab.find(hashOf(key), key))
			if tab.slots.sparse(tab.n) && !tab.sparse() {
				t.Fatalf("not sparse, with %d entries in %d slots", tab.n, tab.used)
			}
			if tab.sparse() {
				tab.compact(func(_, _ ref) {})
				compacted++
				if tab.sparse() {
					t.Fatalf("still sparse after compact: %d entries, %d slots, %d heads", tab.n, tab.used, len(tab.heads))
				}
				if tab.room < 2*tab.n {
					t.Fatalf("after compact there is room for %d entries, and there are %d: it grows at once", tab.room, tab.n)
				}
				if err := checkTable(&tab, hashOf); err != nil {
					t.Fatal(err)
				}
			}
		}
		if compacted > 8 || len(tab.heads) > 8*slotsKeep {
			t.Errorf("%d entries, room for %d: compacted %d times, %d heads left", n, room, compacted, len(tab.heads))
		}
	}
}

// TestTable_SpareIsNotTooMuch lets tables of many sizes grow anew with what a burst left.
func TestTable_SpareIsNotTooMuch(t *testing.T) {
	for _, burst := range []int{5_000, 20_000, 131_073, 262_145} {
		var tab table[int, struct{}]
		fill := func(n int) {
			for key := range n {
				tab.insert(hashOf(key), key)
				if tab.sparse() {
					t.Fatalf("after %d, sparse while it grows: %d entries, %d heads", burst, tab.n, len(tab.heads))
				}
			}
		}
		fill(burst)
		for key := range burst {
			tab.remove(tab.find(hashOf(key), key))
		}
		tab.compact(func(_, _ ref) {})
		spare := tab.spareHeads.Value()
		fill(burst / 2)
		runtime.KeepAlive(spare)
	}
}

// TestQueue_Q9_AddAllOfFew adds few items very often.
func TestQueue_Q9_AddAllOfFew(t *testing.T) {
	q := NewQueue[int](Options{})
	q.AddAll(make([]int, 100_000)...)
	if err := checkCore(&q.core); err != nil || q.Len() != 1 {
		t.Errorf("Len() = %d, %v", q.Len(), err)
	}
}

// column

func TestColumn(t *testing.T) {
	var c column[string]
	c.move(3, 2)
	if c != nil || c.get(7) != "" {
		t.Errorf("an empty column = %q after move, get = %q", c, c.get(7))
	}
	*c.at(2) = "two"
	*c.at(5) = "five"
	c.move(5, 1)
	c.move(9, 0)
	if got := []string{c.get(0), c.get(1), c.get(2), c.get(5), c.get(6)}; !slices.Equal(got, []string{"", "five", "two", "five", ""}) {
		t.Errorf("column = %q", got)
	}
	c.trim(7)
	c.trim(2)
	if cap(c) != 3 || c.get(1) != "five" || c.get(5) != "" {
		t.Errorf("after trim(2): %q with room for %d", c, cap(c))
	}
}

// order

func checkList[K comparable, A any](l *list[K, A], t *table[K, A]) error {
	n, last := 0, ref(0)
	for r := l.first; r != 0 && n <= l.n; r = t.at(r).next {
		if t.at(r).prev != last {
			return broken("L1", "prev of %v is not what came before it", t.at(r).key)
		}
		last = r
		n++
	}
	if n != l.n || last != l.last {
		return broken("L1", "%d entries, n = %d, last is right: %t", n, l.n, last == l.last)
	}
	return nil
}

func checkOrder[K comparable, A any](o *order[K, A], t *table[K, A], priority func(slot[K, A]) int) error {
	lists := map[int]*list[K, A]{0: &o.plain}
	for p, id := range o.byPriority {
		switch l := &o.levels[id]; {
		case p == 0 || l.priority != p:
			return broken("O2", "level %d of priority %d is found at %d", id, l.priority, p)
		case l.n == 0:
			return broken("O1", "the level of priority %d is empty", p)
		case int(id) >= len(o.open.places) || int(o.open.places[id]) > o.open.last() || o.open.nodes.at(o.open.places[id]).id != id:
			return broken("O3", "the heap does not know of priority %d", p)
		case o.open.at(id) != int64(^p):
			return broken("O3", "priority %d stands at %d", p, o.open.at(id))
		}
		lists[p] = &o.levels[id].list
	}
	n := 0
	for p, l := range lists {
		if err := checkList(l, t); err != nil {
			return err
		}
		for r := l.first; r != 0; r = t.at(r).next {
			if got := priority(t.slot(r)); got != p {
				return broken("O1", "%v has priority %d and stands at %d", t.at(r).key, got, p)
			}
		}
		n += l.n
	}
	if n != o.n {
		return broken("O1", "%d entries, n = %d", n, o.n)
	}
	if o.peak < len(o.byPriority) {
		return broken("O2", "%d levels, peak = %d", len(o.byPriority), o.peak)
	}
	if len(o.byPriority) != o.open.len() {
		return broken("O3", "%d levels, the heap holds %d", len(o.byPriority), o.open.len())
	}
	closed := map[levelID]bool{}
	for _, id := range o.closed {
		if l := &o.levels[id]; closed[id] || l.n != 0 || l.first != 0 {
			return broken("O4", "level %d is spare twice, or not empty", id)
		}
		closed[id] = true
	}
	if len(o.closed)+len(o.byPriority) != len(o.levels) {
		return broken("O4", "%d levels, %d of them open and %d spare", len(o.levels), len(o.byPriority), len(o.closed))
	}
	return checkHeap(&o.open)
}

// lineOfInts is an order, the table of its entries, and their priorities.
type lineOfInts struct {
	order[int, struct{}]
	entries    table[int, struct{}]
	priorities map[int]int
}

func (l *lineOfInts) push(key, priority int) {
	if l.priorities == nil {
		l.priorities = map[int]int{}
	}
	l.priorities[key] = priority
	l.order.push(&l.entries, l.entries.insert(hashOf(key), key), priority)
}

func (l *lineOfInts) remove(key int) {
	e := l.entries.find(hashOf(key), key)
	l.order.remove(&l.entries, e, l.priorities[key])
	l.entries.remove(e)
}

func (l *lineOfInts) check() error {
	return checkOrder(&l.order, &l.entries, func(e slot[int, struct{}]) int { return l.priorities[e.key] })
}

func TestOrderCheck(t *testing.T) {
	level := func(l *lineOfInts, p int) *level[int, struct{}] { return &l.levels[l.byPriority[p]] }
	for _, c := range []struct {
		invariant string
		corrupt   func(*lineOfInts)
	}{
		{"L1", func(o *lineOfInts) { o.plain.n++ }},
		{"L1", func(o *lineOfInts) { o.entries.at(level(o, 2).first).prev = o.plain.first }},
		{"O1", func(o *lineOfInts) { o.priorities[0] = 7 }},
		{"O1", func(o *lineOfInts) { o.n-- }},
		{"O1", func(o *lineOfInts) { // an empty level in the heap
			for l := level(o, 1); l.n > 0; o.n-- {
				l.list.remove(&o.entries, o.entries.slot(l.first))
			}
		}},
		{"O2", func(o *lineOfInts) { level(o, 1).priority = 3 }},
		{"O2", func(o *lineOfInts) { o.peak = 1 }},
		{"O3", func(o *lineOfInts) { o.open.remove(o.byPriority[1]) }},
		{"O3", func(o *lineOfInts) { o.open.move(o.byPriority[1], 5) }},
		{"O3", func(o *lineOfInts) { o.open.push(9, 9) }},
		{"O4", func(o *lineOfInts) { o.closed = append(o.closed, o.byPriority[1]) }},
		{"O4", func(o *lineOfInts) { o.closed = nil }},
	} {
		var o lineOfInts
		for i := range 6 {
			o.push(i, i%3)
		}
		o.push(9, 9)
		o.remove(9)
		if err := o.check(); err != nil {
			t.Fatal(err)
		}
		c.corrupt(&o)
		wantBroken(t, c.invariant, o.check())
	}
}

// TestOrderProperty compares an order with a slice in which the first of the highest
// priority is looked for.
func TestOrderProperty(t *testing.T) { rapid.Check(t, orderProperty()) }

func orderProperty() func(*rapid.T) {
	return func(t *rapid.T) {
		var o lineOfInts
		var model []int // keys in order of arrival
		key := 0
		push := func(priority int) {
			key++
			o.push(key, priority)
			model = append(model, key)
		}
		remove := func(key int) {
			o.remove(key)
			model = slices.DeleteFunc(model, func(x int) bool { return x == key })
		}
		sorted := func() []int {
			keys := slices.Clone(model)
			slices.SortStableFunc(keys, func(a, b int) int { return cmp.Compare(o.priorities[b], o.priorities[a]) })
			return keys
		}
		pop := func(t *rapid.T) {
			want := sorted()[0]
			e := o.pop(&o.entries)
			if e.key != want {
				t.Fatalf("pop = %d, want %d", e.key, want)
			}
			model = slices.DeleteFunc(model, func(x int) bool { return x == want })
			o.entries.remove(e)
		}
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				push(rapid.SampledFrom([]int{-1, 0, 1, 2, math.MinInt, math.MaxInt}).Draw(t, "priority"))
			},
			"remove": func(t *rapid.T) {
				if len(model) == 0 {
					t.Skip("empty")
				}
				remove(rapid.SampledFrom(model).Draw(t, "key"))
			},
			"pop": func(t *rapid.T) {
				if len(model) > 0 {
					pop(t)
				}
			},
			"manyPriorities": func(t *rapid.T) { // more than it keeps, so that it forgets
				for p := range 9 * keepCap {
					push(p)
				}
				keep := rapid.IntRange(0, 2*keepCap).Draw(t, "keep")
				order := sorted() // once: the model would be slow at popping one by one
				gone := set[int]{}
				for _, want := range order[:len(order)-keep] {
					e := o.pop(&o.entries)
					if e.key != want {
						t.Fatalf("pop = %d, want %d", e.key, want)
					}
					o.entries.remove(e)
					gone.add(want)
				}
				model = slices.DeleteFunc(model, gone.has)
			},
			"": func(t *rapid.T) {
				mustCheck(t, o.check())
				want := sorted()
				var got []int
				o.all(&o.entries, func(e slot[int, struct{}]) bool {
					got = append(got, e.key)
					return true
				})
				if !slices.Equal(got, want) {
					t.Fatalf("order = %v, want %v", got, want)
				}
				few := len(want) / 2
				o.all(&o.entries, func(e slot[int, struct{}]) bool {
					few--
					return few > 0
				})
				if few > 0 || len(want) > 1 && few < 0 {
					t.Fatalf("all yields %d more than it was asked for", -few)
				}
				if len(o.levels) > max(keepCap, 4*len(o.byPriority)) {
					t.Fatalf("Q9: %d levels for %d priorities", len(o.levels), len(o.byPriority))
				}
			},
		})
	}
}

// TestOrder_Q9_GivesLevelsBack: closed levels stay as long as a quarter of all are open, or all
// are few; no longer, since they are memory, and no shorter, since giving back takes time.
func TestOrder_Q9_GivesLevelsBack(t *testing.T) {
	var o lineOfInts
	const n = 5 * keepCap
	for i := range n {
		o.push(i, i+1)
	}
	want := n
	for i := range n {
		o.remove(i)
		open := n - 1 - i
		if want > keepCap && want > 4*open {
			want = open
		}
		if len(o.levels) != want {
			t.Fatalf("Q9: %d levels, %d of them open, want %d", len(o.levels), open, want)
		}
		if err := o.check(); err != nil {
			t.Fatal(err)
		}
	}
}

// core

func checkCore[K comparable, A any](c *core[K, A]) error {
	if err := checkTable(&c.entries, hashOf); err != nil {
		return err
	}
	if err := checkOrder(&c.order, &c.entries, c.priority); err != nil {
		return err
	}
	if err := checkList(&c.held, &c.entries); err != nil {
		return err
	}
	if err := checkHeap(&c.waits); err != nil {
		return err
	}
	if c.entries.sparse() {
		return broken("Q9", "%d entries in %d slots", c.entries.n, c.entries.used)
	}
	inOrder, held, waits := map[ref]bool{}, map[ref]bool{}, map[ref]bool{}
	for e := range c.eachInOrder {
		inOrder[e.ref] = true
	}
	for e := range c.eachHeld {
		held[e.ref] = true
	}
	for n := range c.waits.all {
		waits[n.id] = true
	}
	n, passed := 0, 0
	for e := range c.entries.all {
		n++
		wantOrder := e.is(dirty) && (c.keepsPlace || !e.is(processing))
		switch {
		case !e.is(dirty | processing | waiting):
			return broken("E1", "%v has no mark", e.key)
		case inOrder[e.ref] != wantOrder:
			return broken("E2", "%v with marks %b is in order: %t", e.key, e.marks&allMarks, inOrder[e.ref])
		case held[e.ref] != (e.is(processing) && !wantOrder):
			return broken("E3", "%v with marks %b is held: %t", e.key, e.marks&allMarks, held[e.ref])
		case waits[e.ref] != e.is(waiting) || e.is(limited) && !e.is(waiting):
			return broken("E4", "%v with marks %b waits: %t", e.key, e.marks&allMarks, waits[e.ref])
		}
		if inOrder[e.ref] && e.is(processing) {
			passed++
		}
		delete(inOrder, e.ref)
		delete(held, e.ref)
		delete(waits, e.ref)
	}
	if len(inOrder)+len(held)+len(waits) > 0 {
		return broken("E1", "an entry is in a line and not in the table")
	}
	if c.passed != passed {
		return broken("E5", "%d entries in order are processing, passed = %d", passed, c.passed)
	}
	if most := max(len(c.ranks), len(c.since), len(c.waits.places)); most > int(c.entries.used)+1 {
		return broken("E7", "a column has %d values, for %d slots", most, c.entries.used)
	}
	if c.since != nil && !c.tracks {
		return broken("E7", "%d times, though the queue tracks none", len(c.since))
	}
	if empty := c.waits.len() == 0; empty != (c.alarm == stopped) || !empty && c.alarm > c.waits.top().at {
		return broken("E6", "%d wait, the alarm is set for %d", c.waits.len(), c.alarm)
	}
	return checkBlocked(c)
}

// checkBlocked checks what concerns those who block in a queue.
func checkBlocked[K comparable, A any](c *core[K, A]) error {
	asleep := 0
	for s := c.getters.first; s != nil; s = s.next {
		if !s.asleep || len(s.wake) > 0 || s.next == nil && c.getters.last != s {
			return broken("Q8", "a sleeper in the list is awake, or the list is broken")
		}
		asleep++
	}
	spares := 0
	for s := c.getters.spare; s != nil && spares <= c.getters.spares; s = s.next {
		if s.asleep || s.prev != nil || len(s.wake) > 0 {
			return broken("Q8", "a spare sleeper is not as new")
		}
		spares++
	}
	switch {
	case spares != c.getters.spares || spares > spareSleepers:
		return broken("Q8", "%d spare sleepers, or more, and %d counted", spares, c.getters.spares)
	case asleep > 0 && c.getters.woken < c.ready():
		return broken("Q8", "%d entries are ready, %d getters asleep and %d woken", c.ready(), asleep, c.getters.woken)
	case c.closed && asleep > 0:
		return broken("Q6", "%d getters sleep after shutdown", asleep)
	case c.closed && c.waits.len() > 0:
		return broken("T5", "%d items wait after shutdown", c.waits.len())
	case c.drains != nil && (!c.closed || c.idle()):
		return broken("Q7", "somebody drains; closed: %t, idle: %t", c.closed, c.idle())
	}
	return nil
}

// compaction is an action that moves entries as if much had left.
func compaction[K comparable, A any](c *core[K, A]) func(*rapid.T) {
	return func(*rapid.T) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.compact()
	}
}

func TestCoreCheck(t *testing.T) {
	type coreOfStrings = core[string, struct{}]
	get := func(c *coreOfStrings, key string) slot[string, struct{}] { return c.entries.find(hashOf(key), key) }
	for _, b := range []struct {
		invariant string
		corrupt   func(*coreOfStrings)
	}{
		{"E1", func(c *coreOfStrings) { c.entries.insert(hashOf("x"), "x") }},
		{"E1", func(c *coreOfStrings) { c.waits.push(7, math.MaxInt64) }},
		{"E2", func(c *coreOfStrings) { get(c, "waiting").marks |= dirty }},
		{"E2", func(c *coreOfStrings) { get(c, "ready").marks |= processing }}, // ready, yet handed out
		{"E2", func(c *coreOfStrings) { e := get(c, "ready"); e.marks ^= dirty | waiting }},
		{"E3", func(c *coreOfStrings) { e := get(c, "held"); c.held.remove(&c.entries, e) }},
		{"E3", func(c *coreOfStrings) { e := get(c, "waiting"); c.held.push(&c.entries, e) }},
		{"E4", func(c *coreOfStrings) { get(c, "ready").marks |= waiting }},
		{"E4", func(c *coreOfStrings) { get(c, "ready").marks |= limited }},
		{"E4", func(c *coreOfStrings) { get(c, "held").marks |= limited }},
		{"E5", func(c *coreOfStrings) { c.passed++ }},
		{"E6", func(c *coreOfStrings) { c.alarm = stopped }},
		{"E6", func(c *coreOfStrings) { c.alarm = math.MaxInt64 }},
		{"E7", func(c *coreOfStrings) { *c.since.at(1) = 1 }},
		{"Q6", func(c *coreOfStrings) { c.shutDown(); c.getters.enter(); c.getters.woken = 9 }},
		{"Q7", func(c *coreOfStrings) { c.drains = make(chan struct{}) }},
		{"Q8", func(c *coreOfStrings) { c.getters.enter() }},
		{"Q8", func(c *coreOfStrings) { c.getters.enter().asleep = false }},
		{"Q8", func(c *coreOfStrings) { c.getters.spare = &sleeper{} }},
		{"Q8", func(c *coreOfStrings) { c.getters.spare, c.getters.spares = &sleeper{asleep: true}, 1 }},
		{"Q8", func(c *coreOfStrings) {
			for range spareSleepers + 1 {
				c.getters.spare = &sleeper{next: c.getters.spare}
				c.getters.spares++
			}
		}},
		{"T5", func(c *coreOfStrings) { c.closed = true }},
		{"B3", func(c *coreOfStrings) { c.entries.used-- }},
		{"E7", func(c *coreOfStrings) { c.ranks.at(c.entries.used + 1) }},
		{"E7", func(c *coreOfStrings) { c.since.at(c.entries.used + 1) }},
		{"E7", func(c *coreOfStrings) { c.waits.places.at(c.entries.used + 1) }},
		{"H2", func(c *coreOfStrings) { c.waits.places[get(c, "waiting").ref]++ }},
		{"L1", func(c *coreOfStrings) { c.held.n++ }},
		{"O1", func(c *coreOfStrings) { c.ranks.at(get(c, "ready").ref).dirty = 1 }},
	} {
		q := NewDelayingQueue[string](Options{})
		q.Add("held")
		q.Get()
		q.AddAll("ready", "ready too")
		q.AddAfter("waiting", time.Hour)
		q.Add("gone")
		q.Cancel("gone")
		if err := checkCore(&q.core); err != nil {
			t.Fatal(err)
		}
		b.corrupt(&q.core)
		wantBroken(t, b.invariant, checkCore(&q.core))
	}
}

// textbook is the work queue as one would explain it: a slice and two sets, and next to
// them a list of what waits. It knows nothing of blocking, and is told the time.
type textbook[T comparable] struct {
	now func() time.Time // for ages

	queue      []T       // ready, oldest first
	dirty      set[T]    // needs to be processed
	processing set[T]    // is being processed
	priority   map[T]int // of what is dirty
	handed     map[T]int // the priority of what is processing
	waits      []textbookWait[T]
	seq        int
	shutDown   bool
	stats      Stats
	failures   map[T]int // what the limiter has counted

	ready          map[T]time.Time // since when what is in queue is there
	holds          []hold[T]       // what is processing, longest held first
	waited, worked time.Duration   // what Metrics have been told, in all
}

// hold is an item in a worker's hands.
type hold[T comparable] struct {
	item  T
	since time.Time
}

type textbookWait[T comparable] struct {
	item     T
	at       time.Time
	seq      int
	priority int
	limited  bool
}

func newTextbook[T comparable]() *textbook[T] {
	return &textbook[T]{
		now:   time.Now,
		dirty: set[T]{}, processing: set[T]{},
		priority: map[T]int{}, handed: map[T]int{}, failures: map[T]int{},
		ready: map[T]time.Time{},
	}
}

func (m *textbook[T]) lineUp(item T) {
	m.queue = append(m.queue, item)
	m.ready[item] = m.now()
}

func (m *textbook[T]) wait(item T) *textbookWait[T] {
	for i := range m.waits {
		if m.waits[i].item == item {
			return &m.waits[i]
		}
	}
	return nil
}

func (m *textbook[T]) endWait(item T) {
	m.waits = slices.DeleteFunc(m.waits, func(w textbookWait[T]) bool { return w.item == item })
}

// add adds item, and reports whether that changed anything.
func (m *textbook[T]) add(item T, priority int) (changed bool) {
	if w := m.wait(item); w != nil { // T2
		priority = max(priority, w.priority)
		m.endWait(item)
		changed = true
	}
	if m.dirty.has(item) {
		if priority <= m.priority[item] {
			return changed
		}
		m.priority[item] = priority
		if i := slices.Index(m.queue, item); i >= 0 {
			m.queue = append(slices.Delete(m.queue, i, i+1), item) // Q1
		}
		return true
	}
	m.dirty.add(item)
	m.priority[item] = priority
	m.stats.Adds++
	if !m.processing.has(item) {
		m.lineUp(item)
	}
	return true
}

// Add is Add by a caller.
func (m *textbook[T]) Add(item T, priority int) {
	if !m.shutDown && !m.add(item, priority) {
		m.stats.Merged++
	}
}

// addAfter is AddAfter; stated says whether priority was given.
func (m *textbook[T]) addAfter(item T, now time.Time, delay time.Duration, priority int, stated bool) (changed bool) {
	if !stated && m.processing.has(item) { // T7
		priority = m.handed[item]
	}
	if delay <= 0 {
		return m.add(item, priority)
	}
	m.seq++
	next := textbookWait[T]{item: item, at: now.Add(delay), seq: m.seq, priority: priority}
	w := m.wait(item)
	if w == nil {
		m.waits = append(m.waits, next)
		return true
	}
	if next.at.Before(w.at) { // T1, T3
		w.at, w.seq = next.at, next.seq
		changed = true
	}
	if priority > w.priority {
		w.priority = priority
		changed = true
	}
	return changed
}

func (m *textbook[T]) AddAfter(item T, now time.Time, delay time.Duration, priority int, stated bool) {
	if !m.shutDown && !m.addAfter(item, now, delay, priority, stated) {
		m.stats.Merged++
	}
}

func (m *textbook[T]) Reschedule(item T, now time.Time, delay time.Duration) {
	if !m.shutDown {
		m.Cancel(item)
		m.addAfter(item, now, delay, 0, false)
	}
}

// AddRateLimited is AddRateLimited with a limiter that answers a millisecond per failure.
func (m *textbook[T]) AddRateLimited(item T, now time.Time) {
	if m.shutDown {
		return
	}
	w := m.wait(item)
	if !m.processing.has(item) && (m.dirty.has(item) || w != nil && w.limited) { // R4
		m.stats.Merged++
		return
	}
	m.failures[item]++
	m.stats.Retries++
	m.addAfter(item, now, time.Duration(m.failures[item])*time.Millisecond, 0, false)
	if w := m.wait(item); w != nil {
		w.limited = true
	}
}

func (m *textbook[T]) Cancel(item T) bool {
	waited := m.wait(item) != nil
	m.endWait(item)
	wasDirty := m.dirty.has(item)
	m.dirty.remove(item)
	m.queue = slices.DeleteFunc(m.queue, func(x T) bool { return x == item })
	return waited || wasDirty
}

// get hands out the first of the highest priority.
func (m *textbook[T]) get() handed[T] {
	best := 0
	for i, item := range m.queue {
		if m.priority[item] > m.priority[m.queue[best]] {
			best = i
		}
	}
	item := m.queue[best]
	m.queue = slices.Delete(m.queue, best, best+1)
	m.dirty.remove(item)
	m.processing.add(item)
	m.handed[item] = m.priority[item]
	m.waited += m.now().Sub(m.ready[item])
	m.holds = append(m.holds, hold[T]{item, m.now()})
	return handed[T]{item, m.priority[item]}
}

func (m *textbook[T]) Done(item T) {
	if !m.processing.has(item) {
		m.stats.StrayDones++ // Q5
		return
	}
	m.processing.remove(item)
	i := slices.IndexFunc(m.holds, func(h hold[T]) bool { return h.item == item })
	m.worked += m.now().Sub(m.holds[i].since)
	m.holds = slices.Delete(m.holds, i, i+1)
	if m.dirty.has(item) {
		m.lineUp(item) // Q4
	}
}

func (m *textbook[T]) ShutDown() {
	if !m.shutDown {
		m.shutDown = true
		m.stats.Dropped += uint64(len(m.waits)) // T5
		m.waits = nil
	}
}

func (m *textbook[T]) idle() bool { return len(m.queue) == 0 && len(m.processing) == 0 }

// nextDue returns what is due next, and whether that is not after now.
func (m *textbook[T]) nextDue(now time.Time) (textbookWait[T], bool) {
	if len(m.waits) == 0 {
		return textbookWait[T]{}, false
	}
	first := slices.MinFunc(m.waits, func(a, b textbookWait[T]) int {
		if c := a.at.Compare(b.at); c != 0 {
			return c
		}
		return a.seq - b.seq
	})
	return first, !first.at.After(now)
}

func (m *textbook[T]) Snapshot(now time.Time) (s Snapshot[T]) {
	rest := *m
	rest.queue = slices.Clone(m.queue)
	rest.dirty, rest.processing, rest.handed, rest.holds = set[T]{}, set[T]{}, map[T]int{}, nil
	for len(rest.queue) > 0 {
		s.Ready = append(s.Ready, rest.get().item)
	}
	slices.SortFunc(m.waits, func(a, b textbookWait[T]) int { return a.seq - b.seq })
	slices.SortStableFunc(m.waits, func(a, b textbookWait[T]) int { return a.at.Compare(b.at) })
	for _, w := range m.waits {
		s.Waiting = append(s.Waiting, Waiting[T]{w.item, w.at.Sub(now)})
	}
	for _, h := range m.holds {
		s.Processing = append(s.Processing, Processing[T]{h.item, now.Sub(h.since)})
	}
	return s
}

// handed is what a getter got.
type handed[T comparable] struct {
	item     T
	priority int
}

// perFailure is a limiter that answers a millisecond per failure.
type perFailure[T comparable] struct{ failures[T] }

func (l *perFailure[T]) When(item T) time.Duration {
	return time.Duration(l.next(item)+1) * time.Millisecond
}

// queueMachine drives a RateLimitingQueue, which is all work queues in one, and its
// textbook. Getters and drainers block in goroutines of the bubble. After each step all
// goroutines have come to rest, so that what they got can be compared.
type queueMachine[T comparable] struct {
	q     *RateLimitingQueue[T]
	m     *textbook[T]
	items *rapid.Generator[T]

	getters  []*blockedCall[handed[T]]
	drainers []*blockedCall[struct{}]
	want     []handed[T] // what getters should have got since the last look

	waited, worked atomic.Int64 // what Metrics have been told, in all
}

// options draws what the queue should tell of times.
func (s *queueMachine[T]) options(t *rapid.T) Options {
	return rapid.SampledFrom([]Options{
		{},
		{TrackTime: true},
		{Metrics: Metrics{
			Waited: func(d time.Duration) { s.waited.Add(int64(d)) },
			Worked: func(d time.Duration) { s.worked.Add(int64(d)) },
		}},
	}).Draw(t, "options")
}

// blockedCall is a call in a goroutine of its own, which gives up when cancel is called.
type blockedCall[R any] struct {
	cancel context.CancelFunc
	end    chan struct{} // closed in the end
	result R             // in the end
	err    error         // in the end
}

func callBlocked[R any](f func(context.Context) (R, error)) *blockedCall[R] {
	ctx, cancel := context.WithCancel(context.Background())
	c := &blockedCall[R]{cancel: cancel, end: make(chan struct{})}
	go func() {
		defer close(c.end)
		defer cancel()
		defer func() { _ = recover() }() // it may be asked to panic
		c.result, c.err = f(ctx)
	}()
	return c
}

// returned reports whether the call is over.
func (c *blockedCall[R]) returned() bool {
	select {
	case <-c.end:
		return true
	default:
		return false
	}
}

// returned removes the calls that are over from calls, and returns them.
func returned[R any](calls *[]*blockedCall[R]) (back []*blockedCall[R]) {
	*calls = slices.DeleteFunc(*calls, func(c *blockedCall[R]) bool {
		if c.returned() {
			back = append(back, c)
			return true
		}
		return false
	})
	return back
}

// serve lets the blocked getters of the model take what is ready.
func (s *queueMachine[T]) serve() {
	for len(s.m.queue) > 0 && len(s.want) < len(s.getters) {
		s.want = append(s.want, s.m.get())
	}
}

// settle waits until all goroutines rest, and compares what returned.
func (s *queueMachine[T]) settle(t *rapid.T) {
	s.serve()
	synctest.Wait()
	var got []handed[T]
	ended := 0
	for _, c := range returned(&s.getters) {
		switch {
		case c.err == nil:
			got = append(got, c.result)
		case errors.Is(c.err, ErrShutDown):
			ended++
		default:
			t.Fatalf("Get = %v", c.err)
		}
	}
	byItem := func(a, b handed[T]) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) }
	slices.SortFunc(got, byItem) // which getter gets which is not promised
	slices.SortFunc(s.want, byItem)
	if !slices.Equal(got, s.want) {
		t.Fatalf("getters got %v, want %v", got, s.want)
	}
	s.want = nil
	if ended > 0 && !s.m.shutDown || s.m.shutDown && len(s.getters) > 0 {
		t.Fatalf("Q6: shut down: %t; %d getters were told so, %d still block", s.m.shutDown, ended, len(s.getters))
	}
	if s.m.idle() {
		s.endDrains(t, nil)
	}
}

// endDrains expects that all drainers have returned err.
func (s *queueMachine[T]) endDrains(t *rapid.T, err error) {
	for _, c := range returned(&s.drainers) {
		if !errors.Is(c.err, err) {
			t.Fatalf("Q7: Drain = %v, want %v", c.err, err)
		}
	}
	if len(s.drainers) > 0 {
		t.Fatalf("Q7: %d drainers still block", len(s.drainers))
	}
}

// compare compares the queue with the model.
func (s *queueMachine[T]) compare(t *rapid.T) {
	s.q.mu.Lock()
	err := checkCore(&s.q.core)
	s.q.mu.Unlock()
	mustCheck(t, err)
	if len(returned(&s.drainers)) > 0 {
		t.Fatal("Q7: a drainer returned too early")
	}
	want := s.m.stats
	want.Ready, want.Processing, want.Waiting = len(s.m.queue), len(s.m.processing), len(s.m.waits)
	wantSnapshot := s.m.Snapshot(time.Now())
	for i := range wantSnapshot.Processing {
		p := &wantSnapshot.Processing[i]
		if !s.q.tracks {
			p.For = 0
		}
		want.LongestProcessing = max(want.LongestProcessing, p.For)
		want.UnfinishedWork += p.For
	}
	if got := s.q.Stats(); got != want {
		t.Fatalf("Stats = %+v, want %+v", got, want)
	}
	if s.q.Len() != want.Ready || s.q.Waiting() != want.Waiting || s.q.ShuttingDown() != s.m.shutDown {
		t.Fatalf("Q11: Len, Waiting or ShuttingDown disagree with Stats %+v", want)
	}
	got := s.q.Snapshot()
	if !slices.Equal(got.Ready, wantSnapshot.Ready) || !slices.Equal(got.Waiting, wantSnapshot.Waiting) ||
		!slices.Equal(got.Processing, wantSnapshot.Processing) {
		t.Fatalf("Snapshot = %+v, want %+v", got, wantSnapshot)
	}
	waited, worked := time.Duration(s.waited.Load()), time.Duration(s.worked.Load())
	if s.q.metrics.Waited != nil && (waited != s.m.waited || worked != s.m.worked) {
		t.Fatalf("Metrics: %v waited and %v worked in all, want %v and %v", waited, worked, s.m.waited, s.m.worked)
	}
}

func (s *queueMachine[T]) actions() map[string]func(*rapid.T) {
	item := func(t *rapid.T) T { return s.items.Draw(t, "item") }
	delays := rapid.IntRange(-1, 6)
	delay := func(t *rapid.T) time.Duration { return time.Duration(delays.Draw(t, "ms")) * time.Millisecond }
	priorities := rapid.IntRange(-1, 2)
	return map[string]func(*rapid.T){
		"Add": func(t *rapid.T) {
			x := item(t)
			s.q.Add(x)
			s.m.Add(x, 0)
			s.settle(t)
		},
		"AddWithPriority": func(t *rapid.T) {
			x, p := item(t), priorities.Draw(t, "priority")
			s.q.AddWithPriority(x, p)
			s.m.Add(x, p)
			s.settle(t)
		},
		"AddAll": func(t *rapid.T) {
			all := rapid.SliceOfN(s.items, 0, 4).Draw(t, "items")
			s.q.AddAll(all...)
			for _, x := range all {
				s.m.Add(x, 0)
			}
			s.settle(t)
		},
		"AddAfter": func(t *rapid.T) {
			x, d := item(t), delay(t)
			s.q.AddAfter(x, d)
			s.m.AddAfter(x, time.Now(), d, 0, false)
			s.settle(t)
		},
		"AddAfterWithPriority": func(t *rapid.T) {
			x, d, p := item(t), delay(t), priorities.Draw(t, "priority")
			s.q.AddAfterWithPriority(x, d, p)
			s.m.AddAfter(x, time.Now(), d, p, true)
			s.settle(t)
		},
		"AddRateLimited": func(t *rapid.T) {
			x := item(t)
			s.q.AddRateLimited(x)
			s.m.AddRateLimited(x, time.Now())
			s.settle(t)
		},
		"Forget": func(t *rapid.T) {
			x := item(t)
			if got, want := s.q.NumRequeues(x), s.m.failures[x]; got != want {
				t.Fatalf("R3: NumRequeues(%v) = %d, want %d", x, got, want)
			}
			s.q.Forget(x)
			delete(s.m.failures, x)
		},
		"Reschedule": func(t *rapid.T) {
			x, d := item(t), delay(t)
			s.q.Reschedule(x, d)
			s.m.Reschedule(x, time.Now(), d)
			s.settle(t)
		},
		"compact": compaction(&s.q.core),
		"Cancel": func(t *rapid.T) {
			x := item(t)
			if got, want := s.q.Cancel(x), s.m.Cancel(x); got != want {
				t.Fatalf("Q12: Cancel(%v) = %t, want %t", x, got, want)
			}
			s.settle(t)
		},
		"Done": func(t *rapid.T) { // of whatever, held or not
			x := item(t)
			s.q.Done(x)
			s.m.Done(x)
			s.settle(t)
		},
		"Get": func(t *rapid.T) {
			s.getters = append(s.getters, callBlocked(func(context.Context) (h handed[T], err error) {
				item, priority, shutdown := s.q.GetWithPriority()
				if shutdown {
					return h, ErrShutDown
				}
				return handed[T]{item, priority}, nil
			}))
			s.settle(t)
		},
		"GetContext": func(t *rapid.T) {
			s.getters = append(s.getters, callBlocked(func(ctx context.Context) (h handed[T], err error) {
				if h.item, err = s.q.GetContext(ctx); err != nil {
					return h, err
				}
				s.q.mu.Lock()
				defer s.q.mu.Unlock()
				h.priority = s.q.handed(s.q.entries.find(hashOf(h.item), h.item))
				return h, nil
			}))
			s.settle(t)
		},
		"TryGet": func(t *rapid.T) {
			ready := len(s.m.queue) > 0
			x, ok := s.q.TryGet()
			if ok != ready || ok && x != s.m.get().item {
				t.Fatalf("TryGet = %v, %t, want %t", x, ok, ready)
			}
		},
		"giveUp": func(t *rapid.T) { // a getter's context, while something is added
			if len(s.getters) == 0 {
				t.Skip("nobody blocks")
			}
			x, c := item(t), rapid.SampledFrom(s.getters).Draw(t, "getter")
			c.cancel()
			s.q.Add(x)
			synctest.Wait()
			s.m.Add(x, 0)
			if c.returned() && c.err != nil && !errors.Is(c.err, ErrShutDown) {
				s.getters = slices.DeleteFunc(s.getters, func(o *blockedCall[handed[T]]) bool { return o == c })
			}
			s.settle(t)
		},
		"advance": func(t *rapid.T) {
			until := time.Now().Add(time.Duration(rapid.IntRange(1, 5).Draw(t, "ms")) * time.Millisecond)
			for w, ok := s.m.nextDue(until); ok; w, ok = s.m.nextDue(until) {
				at := w.at
				s.m.now = func() time.Time { return at }
				for ; ok && w.at.Equal(at); w, ok = s.m.nextDue(until) {
					s.m.endWait(w.item)
					s.m.add(w.item, w.priority)
				}
				s.serve()
			}
			s.m.now = time.Now
			time.Sleep(time.Until(until))
			s.settle(t)
		},
		"": s.compare,
	}
}

// after are the actions once the queue has been shut down, or while somebody drains it.
func (s *queueMachine[T]) after() map[string]func(*rapid.T) {
	actions := s.actions()
	actions["ShutDown"] = func(t *rapid.T) {
		s.q.ShutDown()
		s.m.ShutDown()
		synctest.Wait()
		s.endDrains(t, ErrShutDown)
		s.settle(t)
	}
	actions["Drain"] = func(t *rapid.T) {
		s.drainers = append(s.drainers, callBlocked(func(ctx context.Context) (struct{}, error) {
			return struct{}{}, s.q.Drain(ctx)
		}))
		s.m.ShutDown()
		s.settle(t)
	}
	actions["giveUpDraining"] = func(t *rapid.T) {
		if len(s.drainers) == 0 {
			t.Skip("nobody drains")
		}
		c := rapid.SampledFrom(s.drainers).Draw(t, "drainer")
		c.cancel()
		synctest.Wait()
		if !c.returned() || !errors.Is(c.err, context.Canceled) {
			t.Fatalf("Q7: Drain = %v after its context was cancelled", c.err)
		}
		s.drainers = slices.DeleteFunc(s.drainers, func(o *blockedCall[struct{}]) bool { return o == c })
	}
	return actions
}

// stop lets nothing stay blocked, so that the bubble can end, whatever is broken.
func (s *queueMachine[T]) stop() {
	s.q.ShutDown()
	for _, c := range s.getters {
		c.cancel()
	}
}

func queueProperty[T comparable](items *rapid.Generator[T]) func(*rapid.T) {
	return func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			s := &queueMachine[T]{m: newTextbook[T](), items: items}
			s.q = NewRateLimitingQueue[T](&perFailure[T]{}, s.options(t))
			t.Cleanup(s.stop)
			t.Repeat(s.actions())
			if rapid.Bool().Draw(t, "end") {
				t.Repeat(s.after())
			}
		})
	}
}

// TestQueueProperty compares the work queues with the textbook.
func TestQueueProperty(t *testing.T) {
	t.Run("int", rapid.MakeCheck(queueProperty(rapid.IntRange(0, 3))))
	t.Run("struct", rapid.MakeCheck(queueProperty(rapid.Map(rapid.IntRange(0, 2), func(i int) NamespacedName {
		return NamespacedName{"default", strings.Repeat("x", i)}
	}))))
}

// line

func checkLine[K comparable, P, C any](l *line[K, P, C], empty func(P) bool) error {
	if err := checkCore(&l.core); err != nil {
		return err
	}
	initial := 0
	for e := range l.entries.all {
		if e.acc.initial {
			initial++
		}
		switch {
		case e.acc.forgotten && !e.is(processing):
			return broken("F4", "%v is forgotten, and not in processing", e.key)
		case empty(e.acc.pending) == e.is(dirty):
			return broken("F1", "%v is pending: %t, but its contents say otherwise", e.key, e.is(dirty))
		case e.is(waiting):
			return broken("F1", "%v waits", e.key)
		case e.acc.listed:
			return broken("G3", "%v is listed, and no Replace is at work", e.key)
		}
	}
	if initial != l.initial || !l.begun && initial > 0 {
		return broken("F5", "%d keys are initial, %d counted", initial, l.initial)
	}
	if synced := l.HasSynced(); synced != (l.begun && initial == 0) {
		return broken("F5", "synced: %t; begun: %t, %d keys are initial", synced, l.begun, initial)
	}
	return nil
}

func checkFIFO(q *FIFO[string, *version]) error {
	return checkLine(&q.line, func(obj *version) bool { return obj == nil })
}

func checkDeltaFIFO(q *DeltaFIFO[string, *version]) error {
	if err := checkLine(&q.line, func(c changes) bool { return c.n == 0 }); err != nil {
		return err
	}
	tops := map[ref]int{}
	for e := range q.entries.all {
		c := e.acc.pending
		if (c.hand != 0) != e.is(processing) {
			return broken("G2", "%v is processing: %t, but its contents say otherwise", e.key, e.is(processing))
		}
		if c.n > 0 {
			tops[c.newest] += int(c.n)
		}
		if c.hand != 0 {
			tops[c.hand]++
		}
	}
	if err := checkStacks(&q.deltas, tops); err != nil {
		return err
	}
	for e := range q.entries.all {
		pending := q.pending(e)
		for i, d := range pending {
			if i > 0 && q.opts.Merge == nil && d.Type == Deleted && pending[i-1].Type == Deleted {
				return broken("D2", "%v has two deletions in a row", e.key)
			}
			if d.ObjectMissing && (d.Object != nil || !d.FinalStateUnknown) {
				return broken("D5", "%v has an object that is missing", e.key)
			}
		}
	}
	return nil
}

// version is an object of the models: a version of a key.
type version struct {
	key string
	n   int
}

func (v *version) String() string { return fmt.Sprintf("%s%d", v.key, v.n) }

var errBadKey = errors.New("no key")

// versionKey fails for the key BAD.
func versionKey(v *version) (string, error) {
	if v.key == "BAD" {
		return "", errBadKey
	}
	return v.key, nil
}

func TestLineCheck(t *testing.T) {
	type fifo = FIFO[string, *version]
	for _, b := range []struct {
		invariant string
		corrupt   func(*fifo)
	}{
		{"F1", func(q *fifo) { q.find("pending").acc.pending = nil }},
		{"F1", func(q *fifo) { q.wait(q.find("pending"), 1, 0); q.alarm = 1 }},
		{"F4", func(q *fifo) { q.find("pending").acc.forgotten = true }},
		{"F5", func(q *fifo) { q.find("pending").acc.initial = false }},
		{"F5", func(q *fifo) { q.begun = false }},
		{"F5", func(q *fifo) { close(q.synced) }},
		{"E5", func(q *fifo) { q.passed = 0 }},
	} {
		q := NewFIFO(versionKey)
		_ = q.Replace([]*version{{"held", 1}, {"pending", 1}})
		_, _ = q.Pop(t.Context(), func(string, *version, bool) error {
			_ = q.Add(&version{"held", 2})
			if err := checkFIFO(q); err != nil {
				t.Error(err)
			}
			b.corrupt(q)
			wantBroken(t, b.invariant, checkFIFO(q))
			return nil
		})
	}
}

func TestDeltaFIFOCheck(t *testing.T) {
	type deltaFIFO = DeltaFIFO[string, *version]
	for _, b := range []struct {
		invariant string
		corrupt   func(*deltaFIFO, *changes)
	}{
		{"D2", func(q *deltaFIFO, c *changes) {
			c.newest = q.deltas.push(c.newest, q.deltas.at(c.newest).value)
			c.n++
		}},
		{"D5", func(q *deltaFIFO, c *changes) { q.deltas.at(c.newest).value.label = unseen }},
		{"F1", func(_ *deltaFIFO, c *changes) { *c = changes{} }},
		{"F5", func(q *deltaFIFO, _ *changes) { q.initial++ }},
		{"G3", func(q *deltaFIFO, _ *changes) { q.find("a").acc.listed = true }},
		{"G2", func(_ *deltaFIFO, c *changes) { c.hand = c.newest }},
		{"G1", func(q *deltaFIFO, c *changes) { q.deltas.at(c.newest).below = c.newest }},
		{"G1", func(q *deltaFIFO, _ *changes) { q.deltas.push(0, packed[*version]{}) }},
	} {
		q := NewDeltaFIFO(versionKey, DeltaFIFOOptions[string, *version]{})
		_ = q.Add(&version{"a", 1})
		_ = q.Delete(&version{"a", 1})
		if err := checkDeltaFIFO(q); err != nil {
			t.Error(err)
		}
		b.corrupt(q, &q.find("a").acc.pending)
		wantBroken(t, b.invariant, checkDeltaFIFO(q))
	}
}

// textLine is a FIFO or DeltaFIFO as one would explain it.
type textLine[C any] struct {
	order     []string // the keys with something pending, in line
	pending   map[string]C
	hands     []string // the keys in processing, longest first
	hand      map[string]C
	forgotten set[string] // in processing, and deleted meanwhile
	initial   set[string] // not settled yet
	begun     bool
	closed    bool

	// requeue puts c back, which was handed out for key.
	requeue func(key string, c C)
}

func newTextLine[C any]() *textLine[C] {
	return &textLine[C]{pending: map[string]C{}, hand: map[string]C{}, forgotten: set[string]{}, initial: set[string]{}}
}

func (m *textLine[C]) put(key string, c C) {
	if _, ok := m.pending[key]; !ok {
		m.order = append(m.order, key)
	}
	m.pending[key] = c
}

// next returns the first key in line that is in nobody's hands.
func (m *textLine[C]) next() (key string, ok bool) {
	i := slices.IndexFunc(m.order, func(key string) bool { return !slices.Contains(m.hands, key) })
	if i < 0 {
		return "", false
	}
	return m.order[i], true
}

func (m *textLine[C]) pop() handing[C] {
	key, _ := m.next()
	p := handing[C]{key, m.pending[key], m.initial.has(key)}
	m.forget(key)
	m.hands = append(m.hands, key)
	m.hand[key] = p.Content
	return p
}

// forget drops what is pending for key.
func (m *textLine[C]) forget(key string) {
	delete(m.pending, key)
	m.order = slices.DeleteFunc(m.order, func(k string) bool { return k == key })
}

// finish ends the processing of what p was handed out.
func (m *textLine[C]) finish(p *handing[C], requeue bool) {
	key := p.Key
	if requeue {
		m.requeue(key, p.Content)
	}
	if _, pending := m.pending[key]; p.Initial && (!requeue || !pending || m.forgotten.has(key)) {
		m.initial.remove(key)
	}
	delete(m.hand, key)
	m.forgotten.remove(key)
	m.hands = slices.DeleteFunc(m.hands, func(k string) bool { return k == key })
}

func (m *textLine[C]) synced() bool { return m.begun && len(m.initial) == 0 }

// handing is what a process function is given.
type handing[C any] struct {
	Key     string // exported so that fmt prints what is within
	Content C
	Initial bool
}

// anyLine is what FIFO and DeltaFIFO have in common, with C in the place of their content.
type anyLine[C any] interface {
	Pop(context.Context, func(key string, c C, isInInitialList bool) error) (C, error)
	GetByKey(key string) (C, bool)
	ListKeys() []string
	Len() int
	HasSynced() bool
	Synced() <-chan struct{}
	Close()
	IsClosed() bool
	Stats() Stats
}

// consumer is a call of Pop, which stays in process until it is told what to do.
type consumer[C any] struct {
	*blockedCall[C]
	given   chan handing[C]   // what process was given, once it runs
	verdict chan func() error // what process does next
	working *handing[C]       // what came from given
}

// lineMachine drives a FIFO or DeltaFIFO and its textbook, with consumers that block.
type lineMachine[C any] struct {
	q         anyLine[C]
	m         *textLine[C]
	check     func() error
	consumers []*consumer[C]
	want      []handing[C] // what consumers should have been given since the last look
	versions  int
	keys      *rapid.Generator[string]
}

func (s *lineMachine[C]) version(t *rapid.T) *version {
	s.versions++
	return &version{s.keys.Draw(t, "key"), s.versions}
}

func (s *lineMachine[C]) versionsOf(t *rapid.T) (list []*version) {
	for range rapid.IntRange(0, 4).Draw(t, "objects") {
		list = append(list, s.version(t))
	}
	return list
}

// settle waits until all goroutines rest, and compares what consumers were given.
func (s *lineMachine[C]) settle(t *rapid.T) {
	blocked := 0
	for _, c := range s.consumers {
		if c.working == nil {
			blocked++
		}
	}
	for _, ok := s.m.next(); ok && blocked > len(s.want); _, ok = s.m.next() {
		s.want = append(s.want, s.m.pop())
	}
	synctest.Wait()
	var got []handing[C]
	for _, c := range s.consumers {
		select {
		case p := <-c.given:
			c.working = &p
			got = append(got, p)
		default:
		}
	}
	byKey := func(a, b handing[C]) int { return strings.Compare(a.Key, b.Key) }
	slices.SortFunc(got, byKey) // which consumer is given which is not promised
	slices.SortFunc(s.want, byKey)
	if fmt.Sprint(got) != fmt.Sprint(s.want) {
		t.Fatalf("consumers were given %v, want %v", got, s.want)
	}
	s.want = nil
	s.consumers = slices.DeleteFunc(s.consumers, func(c *consumer[C]) bool {
		if !c.returned() {
			return false
		}
		if c.working == nil && (!s.m.closed || !errors.Is(c.err, ErrClosed)) {
			t.Fatalf("F6: Pop = %v; closed: %t", c.err, s.m.closed)
		}
		return true
	})
	if s.m.closed && len(s.consumers) > len(s.m.hands) {
		t.Fatal("F6: Pop blocks after Close")
	}
}

func (s *lineMachine[C]) compare(t *rapid.T) {
	mustCheck(t, s.check())
	if got := s.q.ListKeys(); !slices.Equal(got, s.m.order) || s.q.Len() != len(got) {
		t.Fatalf("F1: keys = %v, want %v", got, s.m.order)
	}
	for _, key := range []string{"a", "b", "c", "BAD"} {
		got, ok := s.q.GetByKey(key)
		want, wantOK := s.m.pending[key]
		if ok != wantOK || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("GetByKey(%s) = %v, %t, want %v", key, got, ok, want)
		}
	}
	synced := false
	select {
	case <-s.q.Synced():
		synced = true
	default:
	}
	if synced != s.m.synced() || s.q.HasSynced() != synced {
		t.Fatalf("F5: Synced = %t, HasSynced = %t, want %t; initial: %v", synced, s.q.HasSynced(), s.m.synced(), s.m.initial)
	}
	if st := s.q.Stats(); st.Processing != len(s.m.hands) || s.q.IsClosed() != s.m.closed {
		t.Fatalf("Stats = %+v, %v are processing, closed: %t", st, s.m.hands, s.m.closed)
	}
}

// wrote compares the error of a write, and lets the model begin.
func (s *lineMachine[C]) wrote(t *rapid.T, err, want error) (accepted bool) {
	if s.m.closed {
		want = ErrClosed
	}
	if !errors.Is(err, want) {
		t.Fatalf("error = %v, want %v", err, want)
	}
	return want == nil
}

func (s *lineMachine[C]) actions() map[string]func(*rapid.T) {
	working := func(t *rapid.T) *consumer[C] {
		at := slices.DeleteFunc(slices.Clone(s.consumers), func(c *consumer[C]) bool { return c.working == nil })
		if len(at) == 0 {
			t.Skip("nobody works")
		}
		return rapid.SampledFrom(at).Draw(t, "consumer")
	}
	finish := func(requeue bool, do func() error) func(*rapid.T) {
		return func(t *rapid.T) {
			c := working(t)
			c.verdict <- do
			s.m.finish(c.working, requeue)
			s.settle(t)
			if !c.returned() {
				t.Fatal("Pop has not returned")
			}
		}
	}
	return map[string]func(*rapid.T){
		"Pop": func(t *rapid.T) {
			c := &consumer[C]{given: make(chan handing[C], 1), verdict: make(chan func() error)}
			c.blockedCall = callBlocked(func(ctx context.Context) (C, error) {
				return s.q.Pop(ctx, func(key string, content C, initial bool) error {
					c.given <- handing[C]{key, content, initial}
					return (<-c.verdict)()
				})
			})
			s.consumers = append(s.consumers, c)
			s.settle(t)
		},
		"succeed": finish(false, func() error { return nil }),
		"fail":    finish(false, func() error { return errors.New("failed") }),
		"requeue": finish(true, func() error { return fmt.Errorf("wrapped: %w", Requeue(errBadKey)) }),
		"panic":   finish(true, func() error { panic("process panics") }),
		"exit":    finish(true, func() error { runtime.Goexit(); return nil }),
		"giveUp": func(t *rapid.T) {
			i := slices.IndexFunc(s.consumers, func(c *consumer[C]) bool { return c.working == nil })
			if i < 0 {
				t.Skip("nobody blocks")
			}
			c := s.consumers[i]
			c.cancel()
			synctest.Wait()
			if !c.returned() || !errors.Is(c.err, context.Canceled) {
				t.Fatalf("F6: Pop = %v after its context was cancelled", c.err)
			}
			s.consumers = slices.Delete(s.consumers, i, i+1)
			s.settle(t)
		},
		"": s.compare,
	}
}

// close is what happens in the end, now and then.
func (s *lineMachine[C]) close(t *rapid.T) {
	s.q.Close()
	s.m.closed = true
	s.settle(t)
}

// stop lets nothing stay blocked, so that the bubble can end, whatever is broken.
func (s *lineMachine[C]) stop() {
	s.q.Close()
	for _, c := range s.consumers {
		c.cancel()
		close(c.verdict)
	}
}

// TestFIFOProperty compares a FIFO with the textbook: a line of keys, and a map of the last
// word on each.
func TestFIFOProperty(t *testing.T) { rapid.Check(t, fifoProperty()) }

func fifoProperty() func(*rapid.T) {
	return func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			q, m := NewFIFO(versionKey), newTextLine[*version]()
			m.requeue = func(key string, obj *version) { // F4
				if _, newer := m.pending[key]; !newer && !m.forgotten.has(key) {
					m.put(key, obj)
				}
			}
			s := &lineMachine[*version]{
				q: q, m: m,
				check: func() error { return checkFIFO(q) },
				keys:  rapid.SampledFrom([]string{"a", "b", "c", "BAD"}),
			}
			t.Cleanup(s.stop)
			actions := s.actions()
			fifoActions(s, q, actions)
			t.Repeat(actions)
			if rapid.Bool().Draw(t, "close") {
				s.close(t)
				t.Repeat(actions)
			}
		})
	}
}

func fifoActions(s *lineMachine[*version], q *FIFO[string, *version], actions map[string]func(*rapid.T)) {
	actions["compact"] = compaction(&q.core)
	m := s.m
	keyErr := func(v *version) error {
		_, err := versionKey(v)
		return err
	}
	forget := func(key string) (existed bool) {
		_, pending := m.pending[key]
		held := slices.Contains(m.hands, key)
		m.forget(key)
		if held {
			m.forgotten.add(key)
		} else {
			m.initial.remove(key)
		}
		return pending || held
	}
	actions["Add"] = func(t *rapid.T) {
		v := s.version(t)
		if s.wrote(t, q.Add(v), keyErr(v)) {
			m.put(v.key, v)
			m.begun = true
		}
		s.settle(t)
	}
	actions["AddIfNotPresent"] = func(t *rapid.T) {
		v := s.version(t)
		_, pending := m.pending[v.key]
		if s.wrote(t, q.AddIfNotPresent(v), keyErr(v)) && !pending {
			m.put(v.key, v)
			m.begun = true
		}
		s.settle(t)
	}
	actions["Delete"] = func(t *rapid.T) {
		v := s.version(t)
		if s.wrote(t, q.Delete(v), keyErr(v)) && forget(v.key) {
			m.begun = true
		}
		s.settle(t)
	}
	actions["Replace"] = func(t *rapid.T) {
		list, first := s.versionsOf(t), !m.begun
		var want error
		last := map[string]*version{}
		for _, v := range list {
			want = errors.Join(want, keyErr(v))
			last[v.key] = v
		}
		if want != nil {
			want = errBadKey
		}
		if s.wrote(t, q.Replace(list), want) {
			for _, key := range []string{"a", "b", "c"} {
				if last[key] == nil {
					forget(key)
				} else {
					m.forget(key) // and not what it has of the initial list
				}
			}
			for _, v := range list {
				m.put(v.key, last[v.key])
				if first {
					m.initial.add(v.key)
				}
			}
			m.begun = true
		}
		s.settle(t)
	}
	actions["Resync"] = func(t *rapid.T) { s.wrote(t, q.Resync(), nil) }
}

// known is a KnownObjects that changes under a DeltaFIFO's feet.
type known struct {
	mu   sync.Mutex
	objs map[string]*version
}

func (k *known) ListKeys() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Sorted(maps.Keys(k.objs))
}

func (k *known) GetByKey(key string) (*version, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	v, ok := k.objs[key]
	return v, ok
}

func (k *known) set(v *version, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.objs, v.key)
	if ok {
		k.objs[v.key] = v
	}
}

// textDeltas is a DeltaFIFO as one would explain it.
type textDeltas struct {
	*textLine[Deltas[*version]]
	known *known // nil: there are none
	lossy bool   // Merge keeps the last two
	sync  bool   // EmitSyncOnReplace
}

// mergeLastTwo keeps the last two changes, and works in place.
func mergeLastTwo(pending Deltas[*version], next Delta[*version]) Deltas[*version] {
	if len(pending) < 2 {
		return append(pending, next)
	}
	n := copy(pending, pending[len(pending)-1:])
	pending[n] = next
	return pending[:n+1]
}

func (m *textDeltas) merge(pending Deltas[*version], next Delta[*version]) Deltas[*version] {
	pending = slices.Clone(pending)
	if m.lossy {
		return mergeLastTwo(pending, next)
	}
	if len(pending) > 0 && next.Type == Deleted && pending.Newest().Type == Deleted { // D2
		if pending.Newest().FinalStateUnknown {
			pending[len(pending)-1] = next
		}
		return pending
	}
	return append(pending, next)
}

func (m *textDeltas) change(key string, d Delta[*version]) {
	m.put(key, m.merge(m.pending[key], d))
}

func (m *textDeltas) exists(key string) bool { // D3
	_, pending := m.pending[key]
	if pending {
		return true
	}
	if held, ok := m.hand[key]; ok {
		return held.Newest().Type != Deleted
	}
	if m.known == nil {
		return false
	}
	_, ok := m.known.GetByKey(key)
	return ok
}

func (m *textDeltas) tombstone(key string) Delta[*version] { // D4
	seen := slices.Concat(m.hand[key], m.pending[key])
	for _, d := range slices.Backward(seen) {
		if !d.ObjectMissing {
			return Delta[*version]{Type: Deleted, Object: d.Object, FinalStateUnknown: true}
		}
	}
	if m.known != nil {
		if v, ok := m.known.GetByKey(key); ok {
			return Delta[*version]{Type: Deleted, Object: v, FinalStateUnknown: true}
		}
	}
	return Delta[*version]{Type: Deleted, FinalStateUnknown: true, ObjectMissing: true}
}

// unlisted returns the keys that exist, are not listed, and are not deleted already.
func (m *textDeltas) unlisted(list []*version) (keys []string) {
	all := slices.Concat(m.order, m.hands)
	if m.known != nil {
		all = append(all, m.known.ListKeys()...)
	}
	for _, key := range all {
		newest := slices.Concat(m.hand[key], m.pending[key])
		if slices.ContainsFunc(list, func(v *version) bool { return v.key == key }) ||
			slices.Contains(keys, key) || !m.exists(key) ||
			len(newest) > 0 && newest.Newest().Type == Deleted {
			continue
		}
		keys = append(keys, key)
	}
	return keys
}

func (m *textDeltas) replace(list []*version) {
	t := Replaced
	if m.sync {
		t = Sync
	}
	deletions := map[string]Delta[*version]{}
	keys := m.unlisted(list)
	for _, key := range keys {
		deletions[key] = m.tombstone(key)
	}
	first := !m.begun
	for _, v := range list {
		m.change(v.key, Delta[*version]{Type: t, Object: v})
		if first {
			m.initial.add(v.key)
		}
	}
	for _, key := range keys {
		m.change(key, deletions[key])
		if first {
			m.initial.add(key)
		}
	}
	m.begun = true
}

// TestDeltaFIFOProperty compares a DeltaFIFO with the textbook.
func TestDeltaFIFOProperty(t *testing.T) { rapid.Check(t, deltaFIFOProperty()) }

func deltaFIFOProperty() func(*rapid.T) {
	return func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			var opts DeltaFIFOOptions[string, *version]
			m := &textDeltas{textLine: newTextLine[Deltas[*version]]()}
			if rapid.Bool().Draw(t, "KnownObjects") {
				m.known = &known{objs: map[string]*version{}}
				opts.KnownObjects = m.known
			}
			if m.lossy = rapid.Bool().Draw(t, "Merge"); m.lossy {
				opts.Merge = mergeLastTwo
			}
			m.sync = rapid.Bool().Draw(t, "EmitSyncOnReplace")
			opts.EmitSyncOnReplace = m.sync
			m.requeue = func(key string, deltas Deltas[*version]) { // D8
				for _, d := range m.pending[key] {
					deltas = m.merge(deltas, d)
				}
				m.put(key, deltas)
			}
			q := NewDeltaFIFO(versionKey, opts)
			s := &lineMachine[Deltas[*version]]{
				q: q, m: m.textLine,
				check: func() error { return checkDeltaFIFO(q) },
				keys:  rapid.SampledFrom([]string{"a", "b", "c", "BAD"}),
			}
			t.Cleanup(s.stop)
			actions := s.actions()
			deltaActions(s, m, q, actions)
			t.Repeat(actions)
			if rapid.Bool().Draw(t, "close") {
				s.close(t)
				t.Repeat(actions)
			}
		})
	}
}

func deltaActions(s *lineMachine[Deltas[*version]], m *textDeltas, q *DeltaFIFO[string, *version], actions map[string]func(*rapid.T)) {
	actions["compact"] = compaction(&q.core)
	actions["compactDeltas"] = func(*rapid.T) {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.compactDeltas()
	}
	keyErr := func(v *version) error {
		_, err := versionKey(v)
		return err
	}
	write := func(do func(*version) error, change func(*version)) func(*rapid.T) {
		return func(t *rapid.T) {
			v := s.version(t)
			if s.wrote(t, do(v), keyErr(v)) {
				change(v)
			}
			s.settle(t)
		}
	}
	add := func(t DeltaType) func(*version) {
		return func(v *version) {
			m.change(v.key, Delta[*version]{Type: t, Object: v})
			m.begun = true
		}
	}
	actions["Add"] = write(q.Add, add(Added))
	actions["Update"] = write(q.Update, add(Updated))
	actions["Delete"] = write(q.Delete, func(v *version) {
		if m.exists(v.key) {
			add(Deleted)(v)
		}
	})
	actions["DeleteKey"] = func(t *rapid.T) {
		v := s.version(t)
		if s.wrote(t, q.DeleteKey(v.key), nil) && m.exists(v.key) {
			m.change(v.key, m.tombstone(v.key))
			m.begun = true
		}
		s.settle(t)
	}
	actions["AddIfNotPresent"] = func(t *rapid.T) {
		v := s.version(t)
		var deltas Deltas[*version]
		for i := range rapid.IntRange(0, 2).Draw(t, "deltas") {
			deltas = append(deltas, Delta[*version]{Type: []DeltaType{Added, Deleted}[i], Object: v})
		}
		_, pending := m.pending[v.key]
		if s.wrote(t, q.AddIfNotPresent(v.key, deltas), nil) && !pending && len(deltas) > 0 {
			m.put(v.key, deltas)
			m.begun = true
		}
		s.settle(t)
	}
	actions["Replace"] = func(t *rapid.T) {
		list := s.versionsOf(t)
		var want error
		if slices.ContainsFunc(list, func(v *version) bool { return keyErr(v) != nil }) {
			want = errBadKey
		}
		if s.wrote(t, q.Replace(list), want) {
			m.replace(list)
		}
		s.settle(t)
	}
	actions["Resync"] = func(t *rapid.T) {
		if s.wrote(t, q.Resync(), nil) && m.known != nil {
			for _, key := range m.known.ListKeys() {
				_, pending := m.pending[key]
				_, held := m.hand[key]
				if !pending && !held { // D6
					v, _ := m.known.GetByKey(key)
					m.change(key, Delta[*version]{Type: Sync, Object: v})
				}
			}
		}
		s.settle(t)
	}
	actions["know"] = func(t *rapid.T) {
		if m.known != nil {
			m.known.set(s.version(t), rapid.Bool().Draw(t, "known"))
		}
	}
}
