package typedqueue

import (
	"cmp"
	"slices"
)

// list is a line of entries, linked through the entries themselves. An entry is in at
// most one list at a time. The zero list is empty and ready.
type list[K comparable, A any] struct {
	first, last *entry[K, A] // L1: following next from first passes n entries and ends at last; prev is its reverse
	n           int
}

func (l *list[K, A]) push(e *entry[K, A]) {
	e.prev, e.next = l.last, nil
	if l.last == nil {
		l.first = e
	} else {
		l.last.next = e
	}
	l.last = e
	l.n++
}

func (l *list[K, A]) remove(e *entry[K, A]) {
	if e.prev == nil {
		l.first = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next == nil {
		l.last = e.prev
	} else {
		e.next.prev = e.prev
	}
	e.prev, e.next = nil, nil
	l.n--
}

// order is the line in which entries wait to be handed out: higher priorities first,
// oldest first within one (Q1). Nearly always there is but one priority, 0, and so one
// list; the others have a list each and a heap that knows which of them is the highest.
// Each step is O(1), but for an entry that opens or closes a priority: O(log p) for p of them.
type order[K comparable, A any] struct {
	n      int
	plain  list[K, A]           // O1: the entries of priority 0
	levels map[int]*level[K, A] // O1: those of each other priority that has any
	peak   int                  // O1: not less than len(levels); see trimmed
	open   heap[*level[K, A]]   // O2: the same levels, the highest on top
	spare  []*level[K, A]       // O3: empty levels for the next priorities; at most keepCap
}

// level is one priority's part of an order.
type level[K comparable, A any] struct {
	list[K, A]
	priority int
	place    int // in the heap
}

func (l *level[K, A]) before(other *level[K, A]) bool { return l.priority > other.priority }
func (l *level[K, A]) moved(to int)                   { l.place = to }

// front returns the entry that is first in line, or nil.
func (o *order[K, A]) front() *entry[K, A] {
	if o.open.len() > 0 {
		if top := o.open.top(); top.priority > 0 || o.plain.n == 0 {
			return top.first
		}
	}
	return o.plain.first
}

// push puts e at the end of its priority.
func (o *order[K, A]) push(e *entry[K, A]) {
	o.n++
	if e.priority == 0 {
		o.plain.push(e)
		return
	}
	l := o.levels[e.priority]
	if l == nil {
		l = o.openLevel(e.priority)
	}
	l.push(e)
}

// openLevel returns a new level.
func (o *order[K, A]) openLevel(priority int) *level[K, A] {
	var l *level[K, A]
	if last := len(o.spare) - 1; last >= 0 {
		l, o.spare = o.spare[last], o.spare[:last]
	} else {
		l = new(level[K, A])
	}
	l.priority = priority
	if o.levels == nil {
		o.levels = make(map[int]*level[K, A])
	}
	o.levels[priority] = l
	o.peak = max(o.peak, len(o.levels))
	o.open.push(l)
	return l
}

// remove takes e, which must be in the line, out of it.
func (o *order[K, A]) remove(e *entry[K, A]) {
	o.n--
	if e.priority == 0 {
		o.plain.remove(e)
		return
	}
	l := o.levels[e.priority]
	l.remove(e)
	if l.n == 0 {
		o.open.remove(l.place)
		delete(o.levels, l.priority)
		o.levels = trimmed(o.levels, &o.peak)
		if len(o.spare) < keepCap {
			o.spare = append(o.spare, l)
		}
	}
}

// all calls yield for each entry, first in line first, until it returns false. The order
// must not change meanwhile. O(n), and O(p log p) for p priorities.
func (o *order[K, A]) all(yield func(*entry[K, A]) bool) {
	levels := slices.Clone(o.open.items)
	if o.plain.n > 0 {
		levels = append(levels, &level[K, A]{list: o.plain})
	}
	slices.SortFunc(levels, func(a, b *level[K, A]) int { return cmp.Compare(b.priority, a.priority) })
	for _, l := range levels {
		for e := l.first; e != nil; e = e.next {
			if !yield(e) {
				return
			}
		}
	}
}
