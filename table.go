package typedqueue

import (
	"hash/maphash"
	"math"
	"math/bits"
	"weak"
)

// table finds entries by key. It is a hash table whose chains run through the entries
// themselves, with the hash kept in the entry, so that neither growing nor removing
// hashes a key. Entries stand in slots and are linked by number, not by pointer: a link
// takes half the room, and the collector follows none of them. The table has no lock. The
// zero table is empty and ready.
type table[K comparable, A any] struct {
	// B1: an entry that is inTable is in the chain of the head that its hash names, once, and
	// no two have equal keys. B2: len(heads) is 0 or a power of two; n is at most room, which
	// is roomIn(heads).
	heads []ref
	shift uint8 // B2: what is left of a hash, shifted by it, is the index of a head
	n     int
	room  int

	// B3: the slots from 1 to used are entries, n of them, or free; the free ones are zero but
	// for the chain that links them. Slot r stands in chunks[r/chunkLen]; the first chunk grows,
	// all others have chunkLen slots.
	chunks     [][]entry[K, A]
	used, free ref

	spare weak.Pointer[spare[K, A]]
}

// ref is the number of an entry's slot. 0 is none.
type ref uint32

// slot is an entry, and where it stands. It is good until the next insert or compact, and
// may then be found anew.
type slot[K comparable, A any] struct {
	*entry[K, A] // nil: there is none
	ref          ref
}

const (
	chunkLen  = 1 << 10
	tableKeep = chunkLen // slots and heads that a table keeps however empty it gets
	sparsity  = 8        // more than so many slots for each entry are too many

	// Up to fastHeads of them there are four heads for each entry, since short chains are
	// found faster, and cheap; then they grow no more until there is one.
	fastHeads = 1 << 16
)

// spare is what a table has grown out of. It is held weakly: it serves the next burst, if
// that comes before the collector does, and costs no memory that anybody else wants (Q9).
type spare[K comparable, A any] struct {
	chunks [][]entry[K, A] // B4: zero, but for chains
	heads  [33][]ref       // B4: heads[b] is nil or has 1<<b heads, all 0
}

// seed is one for all tables: a stranger must not be able to choose keys that collide.
var seed = maphash.MakeSeed()

// hashOf returns the hash of key, which must be fit, with the place of the marks left free.
func hashOf[K comparable](key K) uint32 {
	return uint32(maphash.Comparable(seed, key)) &^ uint32(allMarks)
}

// head returns where the chain of hash begins.
func (t *table[K, A]) head(hash uint32) *ref { return &t.heads[hash>>(t.shift&31)] }

// at returns the entry in slot r.
func (t *table[K, A]) at(r ref) *entry[K, A] { return &t.chunks[r/chunkLen][r%chunkLen] }

func (t *table[K, A]) slot(r ref) slot[K, A] { return slot[K, A]{t.at(r), r} }

// find returns the entry of key, whose hash is given, if there is one.
func (t *table[K, A]) find(hash uint32, key K) slot[K, A] {
	if t.n == 0 {
		return slot[K, A]{}
	}
	for r := *t.head(hash); r != 0; {
		e := t.at(r)
		if e.hash() == hash && e.key == key {
			return slot[K, A]{e, r}
		}
		r = e.chain
	}
	return slot[K, A]{}
}

// insert adds and returns an entry for key, which the table must not hold.
func (t *table[K, A]) insert(hash uint32, key K) slot[K, A] {
	if t.n == t.room {
		t.relink(t.newHeads(t.n + 1))
	}
	r := t.free
	if r == 0 {
		r = t.extend()
	}
	e := t.at(r)
	t.free = e.chain
	e.key, e.marks = key, marks(hash)|inTable
	h := t.head(hash)
	e.chain, *h = *h, r
	t.n++
	return slot[K, A]{e, r}
}

// reserve makes room for more keys, so that inserting them grows the heads once at most.
func (t *table[K, A]) reserve(more int) {
	if need := t.n + more; need > t.room {
		t.relink(t.newHeads(need))
	}
}

// extend returns a slot that has never been used, or not since compact.
func (t *table[K, A]) extend() ref {
	if t.used == math.MaxUint32 {
		panic("typedqueue: more keys than 32 bits can count")
	}
	t.used++
	switch chunk, i := t.used/chunkLen, t.used%chunkLen; {
	case int(chunk) == len(t.chunks):
		t.chunks = append(t.chunks, t.newChunk())
	case int(i) == len(t.chunks[chunk]): // the first one
		t.chunks[0] = append(make([]entry[K, A], 0, 2*i), t.chunks[0]...)[:2*i]
	}
	t.at(t.used).chain = 0 // compact leaves old ones
	return t.used
}

func (t *table[K, A]) newChunk() []entry[K, A] {
	if len(t.chunks) == 0 {
		return make([]entry[K, A], 8)
	}
	if s := t.spare.Value(); s != nil && len(s.chunks) > 0 {
		last := len(s.chunks) - 1
		c := s.chunks[last]
		s.chunks = s.chunks[:last]
		return c
	}
	return make([]entry[K, A], chunkLen)
}

// headsFor returns how many heads, as a power of two, n entries have.
func headsFor(n int) (log int) {
	fast := bits.Len(uint(max(4*n, 8) - 1))
	return min(fast, max(bits.Len(fastHeads-1), bits.Len(uint(max(n, 1)-1))))
}

// roomIn returns how many entries so many heads are for.
func roomIn(heads int) int {
	if heads < fastHeads {
		return heads / 4
	}
	return heads
}

// newHeads returns heads for n entries, or more if there are spare ones.
func (t *table[K, A]) newHeads(n int) []ref {
	size := headsFor(n)
	if s := t.spare.Value(); s != nil {
		for b := min(size+2, len(s.heads)-1); b >= size; b-- {
			h := s.heads[b]
			if h != nil && (len(h) <= tableKeep || n >= roomIn(len(h)/2)/sparsity) { // or they are too many
				s.heads[b] = nil
				return h
			}
		}
	}
	return make([]ref, 1<<size)
}

// remove takes out e, which the table must hold. Its slot may be used again at the next
// insert, so nobody may touch it any more.
func (t *table[K, A]) remove(e slot[K, A]) {
	link := t.head(e.hash())
	for *link != e.ref {
		link = &t.at(*link).chain
	}
	*link = e.chain
	*e.entry = entry[K, A]{chain: t.free} // Q9: let the key and what it accumulated be collected
	t.free = e.ref
	t.n--
}

// sparse reports whether most of the table's memory is of no use, so that its owner ought to
// call compact.
func (t *table[K, A]) sparse() bool {
	slots, heads := int(t.used), len(t.heads)
	return slots > tableKeep && t.n < slots/sparsity ||
		heads > tableKeep && t.n < roomIn(heads/2)/sparsity // even half of them would be
}

// compact moves the entries to the first slots, and gives back the memory that is left over.
// It calls moved for each that has another number now. O(slots), so O(1) for each entry that
// has been removed.
func (t *table[K, A]) compact(moved func(from, to ref)) {
	to := ref(1)
	for from := t.used; t.n > 0 && from > ref(t.n); from-- {
		old := t.at(from)
		if old.marks == 0 {
			continue
		}
		for t.at(to).marks != 0 {
			to++
		}
		*t.at(to) = *old
		*old = entry[K, A]{}
		moved(from, to)
	}
	t.used, t.free = ref(t.n), 0
	if keep := t.n/chunkLen + 1; keep < len(t.chunks) {
		s := t.spares()
		s.chunks = append(s.chunks, t.chunks[keep:]...)
		clear(t.chunks[keep:])
		if t.chunks = t.chunks[:keep]; cap(t.chunks) > keepCap {
			t.chunks = append(make([][]entry[K, A], 0, 2*keep), t.chunks...)
		}
	}
	t.relink(make([]ref, min(len(t.heads), max(tableKeep, 1<<headsFor(2*t.n)))))
}

// relink deals the entries out to heads, which must be 0. The old ones become spare.
func (t *table[K, A]) relink(heads []ref) {
	old := t.heads
	t.heads, t.room, t.shift = heads, roomIn(len(heads)), uint8(32-bits.Len(uint(len(heads)-1)))
	for r := ref(1); r <= t.used; r++ {
		if e := t.at(r); e.marks != 0 {
			h := t.head(e.hash())
			e.chain, *h = *h, r
		}
	}
	if len(old) >= tableKeep {
		clear(old)
		t.spares().heads[bits.Len(uint(len(old)))-1] = old
	}
}

func (t *table[K, A]) spares() *spare[K, A] {
	s := t.spare.Value()
	if s == nil {
		s = new(spare[K, A])
		t.spare = weak.Make(s)
	}
	return s
}

// all calls yield for each entry, in no order, until it returns false. The table must
// not change meanwhile.
func (t *table[K, A]) all(yield func(slot[K, A]) bool) {
	for r := ref(1); r <= t.used; r++ {
		if e := t.slot(r); e.marks != 0 && !yield(e) {
			return
		}
	}
}
