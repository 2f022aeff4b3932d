package typedqueue

import (
	"cmp"
	"slices"
)

// heap is a min-heap of ids, each with the time or rank at which it stands; equal ones come
// out first in, first out. It knows the place of each id, so that moving and removing cost
// O(log n) without a search. The ids are small numbers that their owner deals out. It has no
// lock. The zero heap is empty and ready.
type heap[I ~uint32] struct {
	items  []node[I]      // H1: no node is before its parent
	places column[uint32] // H2: places[id] is the index of id in items; of other ids it says nothing
	seq    uint32         // H3: no node has a greater one, and no two the same
}

// node is an id in a heap. It is small, so that four children share a cache line.
type node[I ~uint32] struct {
	at  int64
	seq uint32
	id  I
}

func (n node[I]) before(o node[I]) bool { return n.at < o.at || n.at == o.at && n.seq < o.seq }

// compare is before, for sorting.
func (n node[I]) compare(o node[I]) int {
	return cmp.Or(cmp.Compare(n.at, o.at), cmp.Compare(n.seq, o.seq))
}

// fanout is the number of children that a node has: four make the heap half as deep as two.
const fanout = 4

func (h *heap[I]) len() int { return len(h.items) }

// top returns the least node. It panics if h is empty: callers look at len under the lock
// they already hold.
func (h *heap[I]) top() node[I] { return h.items[0] }

// at returns where id, which must be in h, stands.
func (h *heap[I]) at(id I) int64 { return h.items[h.places[id]].at }

// push adds id, which must not be in h. O(log n), amortised.
func (h *heap[I]) push(id I, at int64) {
	h.places.at(ref(id))
	n := node[I]{at, h.next(), id}
	h.items = append(h.items, n)
	h.up(len(h.items)-1, n)
}

// move makes id, which must be in h, stand at another time, as if it were in anew. O(log n).
func (h *heap[I]) move(id I, at int64) {
	seq := h.next()
	h.fix(int(h.places[id]), node[I]{at, seq, id})
}

// remove takes out id, which must be in h. O(log n), and now and then O(n) to give memory back.
func (h *heap[I]) remove(id I) {
	i, last := int(h.places[id]), len(h.items)-1
	tail := h.items[last]
	h.items = h.items[:last]
	if i != last {
		h.fix(i, tail)
	}
	if c := cap(h.items); c > keepCap && last < c/4 {
		h.items = append(make([]node[I], 0, c/2), h.items...)
	}
}

// rename gives id, which must be in h, another number.
func (h *heap[I]) rename(id, to I) {
	i := h.places[id]
	h.items[i].id = to
	h.places[to] = i
}

// trim says that all ids are at most last, so that memory can be given back.
func (h *heap[I]) trim(last I) { h.places.trim(ref(last)) }

// next returns a sequence number for a node that comes in. Once in four billion calls that
// takes O(n log n), to number all of them anew.
func (h *heap[I]) next() uint32 {
	h.seq++
	if h.seq == 0 {
		slices.SortFunc(h.items, node[I].compare) // sorted, they are a heap as well
		for i, n := range h.items {
			h.seq++
			n.seq = h.seq
			h.put(i, n)
		}
		h.seq++
	}
	return h.seq
}

// fix puts n at index i, or where it belongs from there.
func (h *heap[I]) fix(i int, n node[I]) {
	if i > 0 && n.before(h.items[(i-1)/fanout]) {
		h.up(i, n)
	} else {
		h.down(i, n)
	}
}

// up puts n at index i, or nearer to the top, so that its parent is not after it.
func (h *heap[I]) up(i int, n node[I]) {
	for i > 0 {
		parent := (i - 1) / fanout
		if !n.before(h.items[parent]) {
			break
		}
		h.put(i, h.items[parent])
		i = parent
	}
	h.put(i, n)
}

// down puts n at index i, or farther from the top, so that no child is before it.
func (h *heap[I]) down(i int, n node[I]) {
	for {
		least := fanout*i + 1
		if least >= len(h.items) {
			break
		}
		for child := least + 1; child < min(fanout*(i+1)+1, len(h.items)); child++ {
			if h.items[child].before(h.items[least]) {
				least = child
			}
		}
		if !h.items[least].before(n) {
			break
		}
		h.put(i, h.items[least])
		i = least
	}
	h.put(i, n)
}

func (h *heap[I]) put(i int, n node[I]) {
	h.items[i] = n
	h.places[n.id] = uint32(i)
}
