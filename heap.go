package typedqueue

// heap is a min-heap whose elements know their place in it, so that fix and remove
// cost O(log n) without a look-up. It has no lock. The zero heap is empty and ready.
type heap[E element[E]] struct {
	items []E // H1: no element is before its parent. H2: each knows its index. H3: free slots are zero (Q9).
}

// element is what a heap holds. Elements that are equal in order come out in any order,
// so an owner who wants them first in, first out puts a sequence number into before.
type element[E any] interface {
	before(other E) bool
	moved(to int) // the element's index in the heap from now on; -1 when it has left
}

func (h *heap[E]) len() int { return len(h.items) }

// top returns the least element. It panics if h is empty: callers look at len under the
// lock they already hold.
func (h *heap[E]) top() E { return h.items[0] }

// push adds x. O(log n).
func (h *heap[E]) push(x E) {
	h.items = append(h.items, x)
	h.up(len(h.items) - 1)
}

// set puts x in the place of the element at index i, which is not told. O(log n).
func (h *heap[E]) set(i int, x E) {
	h.items[i] = x
	h.fix(i)
}

// fix restores the order after the element at index i has changed. O(log n).
func (h *heap[E]) fix(i int) {
	if h.up(i) == i {
		h.down(i)
	}
}

// remove takes out and returns the element at index i. O(log n), and now and then O(n)
// to give memory back.
func (h *heap[E]) remove(i int) E {
	x := h.items[i]
	last := len(h.items) - 1
	tail := h.items[last]
	h.items[last] = *new(E) // let what it points to be collected
	h.items = h.items[:last]
	if i != last {
		h.items[i] = tail
		h.fix(i)
	}
	x.moved(-1)
	if c := cap(h.items); c > keepCap && last < c/4 {
		h.items = append(make([]E, 0, c/2), h.items...)
	}
	return x
}

// up moves the element at index i towards the top until its parent is not after it, and
// returns where it came to rest.
func (h *heap[E]) up(i int) int {
	x := h.items[i]
	for i > 0 {
		parent := (i - 1) / 2
		if !x.before(h.items[parent]) {
			break
		}
		h.put(i, h.items[parent])
		i = parent
	}
	h.put(i, x)
	return i
}

// down moves the element at index i away from the top until no child is before it.
func (h *heap[E]) down(i int) {
	x := h.items[i]
	for {
		child := 2*i + 1
		if child >= len(h.items) {
			break
		}
		if r := child + 1; r < len(h.items) && h.items[r].before(h.items[child]) {
			child = r
		}
		if !h.items[child].before(x) {
			break
		}
		h.put(i, h.items[child])
		i = child
	}
	h.put(i, x)
}

func (h *heap[E]) put(i int, x E) {
	h.items[i] = x
	x.moved(i)
}
