package typedqueue

import (
	"hash/maphash"
	"math/bits"
	"weak"
)

// table finds entries by key. It is a hash table whose chains run through the entries
// themselves, with the hash kept in the entry, so that neither growing nor removing
// hashes a key. It has no lock. The zero table is empty and ready.
type table[K comparable, A any] struct {
	// B1: an entry that is inTable is in the chain of the head that its hash names, once, and
	// no two have equal keys. B2: len(heads) is 0 or a power of two; n is at most room, which
	// is roomIn(len(heads)).
	heads []ref
	shift uint8 // B2: what is left of a hash, shifted by it, is the index of a head
	n     int
	room  int

	// B3: each slot is an entry, n of them, or free; the free ones are zero but for the chain
	// that links them.
	slots[ref, entry[K, A]]
	free ref

	// spareHeads serve the next burst, held weakly as slots.spare is. B4: those at b are nil or
	// 1<<b, all 0.
	spareHeads weak.Pointer[[33][]ref]
}

// slot is an entry, and where it stands. It is good until the next insert or compact, and
// may then be found anew.
type slot[K comparable, A any] struct {
	*entry[K, A] // nil: there is none
	ref          ref
}

func (e slot[K, A]) found() bool { return e.entry != nil }

// Up to fastHeads of them there are four heads for each entry, since short chains are found
// faster, and cheap: 16,384 entries have as many as that, and so have all up to 65,536. From
// there on there is at least one for each.
const fastHeads = 1 << 16

// seed is one for all tables: a stranger must not be able to choose keys that collide.
var seed = maphash.MakeSeed()

// hashOf returns the hash of key, which must be fit, with the place of the marks left free.
func hashOf[K comparable](key K) uint32 {
	return uint32(maphash.Comparable(seed, key)) &^ uint32(allMarks)
}

// head returns where the chain of hash begins.
func (t *table[K, A]) head(hash uint32) *ref { return &t.heads[hash>>(t.shift&31)] }

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

// newHeads returns heads for n entries, or more if there are spare ones and those are not
// too many.
func (t *table[K, A]) newHeads(n int) []ref {
	size := headsFor(n)
	if spare := t.spareHeads.Value(); spare != nil {
		for b := min(size+2, len(spare)-1); b >= size; b-- {
			if h := spare[b]; h != nil && !tooMany(len(h), n) {
				spare[b] = nil
				return h
			}
		}
	}
	return make([]ref, 1<<size)
}

// tooMany reports whether n entries are few even for half so many heads.
func tooMany(heads, n int) bool { return heads > slotsKeep && n < roomIn(heads/2)/sparsity }

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
	return t.slots.sparse(t.n) || tooMany(len(t.heads), t.n)
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
	t.free = 0
	t.shrink(ref(t.n))
	t.relink(make([]ref, min(len(t.heads), max(slotsKeep, 1<<headsFor(2*t.n)))))
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
	if len(old) < slotsKeep {
		return
	}
	spare := t.spareHeads.Value()
	if spare == nil {
		spare = new([33][]ref)
		t.spareHeads = weak.Make(spare)
	}
	clear(old)
	spare[bits.Len(uint(len(old)))-1] = old
}

// all calls yield for each entry, in no order, until it returns false. The table must
// not change meanwhile, but for yield removing what it was called for.
func (t *table[K, A]) all(yield func(slot[K, A]) bool) {
	for r := ref(1); r <= t.used; r++ {
		if e := t.slot(r); e.marks != 0 && !yield(e) {
			return
		}
	}
}
