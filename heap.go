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
	// H1: the nodes stand in slots from root on, n of them, and none is before its parent.
	// Beyond them are some that have left.
	nodes  slots[uint32, node[I]]
	n      int
	places column[uint32] // H2: places[id] is the slot of id's node; of other ids it says nothing
	seq    uint32         // H3: no node has a greater one, and no two the same
}

// node is an id in a heap. It is small: the children of a node share a cache line.
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

const (
	fanout = 4 // the number of children that a node has: the heap is half as deep as with two
	root   = 3 // so the children of slot i are from fanout*(i-root+1) on, in one cache line
)

func (h *heap[I]) len() int { return h.n }

// last is the last slot that has a node.
func (h *heap[I]) last() int { return root + h.n - 1 }

// top returns the least node. h must not be empty: callers look at len under the lock they
// already hold.
func (h *heap[I]) top() node[I] { return *h.nodes.at(root) }

// at returns where id, which must be in h, stands.
func (h *heap[I]) at(id I) int64 { return h.nodes.at(h.places[id]).at }

// all calls yield for each node, in no order, until it returns false.
func (h *heap[I]) all(yield func(node[I]) bool) {
	for i := root; i <= h.last(); i++ {
		if !yield(*h.nodes.at(uint32(i))) {
			return
		}
	}
}

// push adds id, which must not be in h. O(log n), amortised.
func (h *heap[I]) push(id I, at int64) {
	h.places.at(ref(id))
	n := node[I]{at, h.next(), id}
	h.n++
	for int(h.nodes.used) < h.last() {
		h.nodes.extend()
	}
	h.up(h.last(), n)
}

// move makes id, which must be in h, stand at another time, as if it were in anew. O(log n).
func (h *heap[I]) move(id I, at int64) {
	seq := h.next()
	h.fix(int(h.places[id]), node[I]{at, seq, id})
}

// remove takes out id, which must be in h. O(log n), and now and then O(n) to give memory back.
func (h *heap[I]) remove(id I) {
	i, last := int(h.places[id]), h.last()
	h.n--
	if i != last {
		h.fix(i, *h.nodes.at(uint32(last)))
	}
	if h.nodes.sparse(h.n) {
		h.nodes.shrink(uint32(h.last()))
	}
}

// rename gives id, which must be in h, another number.
func (h *heap[I]) rename(id, to I) {
	i := h.places[id]
	h.nodes.at(i).id = to
	h.places[to] = i
}

// trim says that all ids are at most last, so that memory can be given back.
func (h *heap[I]) trim(last I) { h.places.trim(ref(last)) }

// next returns a sequence number for a node that comes in. Once in four billion calls that
// takes O(n log n), to number all of them anew.
func (h *heap[I]) next() uint32 {
	h.seq++
	if h.seq == 0 {
		// Sorted, they are a heap as well.
		for i, n := range slices.SortedFunc(h.all, node[I].compare) {
			h.seq++
			n.seq = h.seq
			h.put(root+i, n)
		}
		h.seq++
	}
	return h.seq
}

// fix puts n in slot i, or where it belongs from there.
func (h *heap[I]) fix(i int, n node[I]) {
	if i > root && n.before(*h.nodes.at(parent(i))) {
		h.up(i, n)
	} else {
		h.down(i, n)
	}
}

func parent(i int) uint32 { return uint32(i/fanout + root - 1) }

// up puts n in slot i, or nearer to the top, so that its parent is not after it.
func (h *heap[I]) up(i int, n node[I]) {
	for i > root {
		above := parent(i)
		p := *h.nodes.at(above)
		if !n.before(p) {
			break
		}
		h.put(i, p)
		i = int(above)
	}
	h.put(i, n)
}

// down puts n in slot i, or farther from the top, so that no child is before it.
func (h *heap[I]) down(i int, n node[I]) {
	for last := h.last(); ; {
		first := fanout * (i - root + 1)
		if first > last {
			break
		}
		children := (*[fanout]node[I])(h.nodes.from(uint32(first)))
		least, at := children[0], first
		for c := 1; c < fanout && first+c <= last; c++ {
			if children[c].before(least) {
				least, at = children[c], first+c
			}
		}
		if !least.before(n) {
			break
		}
		h.put(i, least)
		i = at
	}
	h.put(i, n)
}

func (h *heap[I]) put(i int, n node[I]) {
	*h.nodes.at(uint32(i)) = n
	h.places[n.id] = uint32(i)
}
