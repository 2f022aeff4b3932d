package typedqueue

import (
	"cmp"
	"slices"
)

// list is a line of entries of one table, linked through the entries themselves. An entry
// is in at most one list at a time. The zero list is empty and ready.
type list[K comparable, A any] struct {
	first, last ref // L1: following next from first passes n entries and ends at last; prev is its reverse
	n           int
}

func (l *list[K, A]) push(t *table[K, A], e slot[K, A]) {
	e.prev, e.next = l.last, 0
	if l.last == 0 {
		l.first = e.ref
	} else {
		t.at(l.last).next = e.ref
	}
	l.last = e.ref
	l.n++
}

// pop takes the first entry out, and returns it. There must be one.
func (l *list[K, A]) pop(t *table[K, A]) slot[K, A] {
	e := t.slot(l.first)
	l.n--
	l.first = e.next
	if l.first == 0 {
		l.last = 0
	} else {
		t.at(l.first).prev = 0
	}
	return e
}

func (l *list[K, A]) remove(t *table[K, A], e slot[K, A]) {
	l.link(t, e.prev, e.next, e.next, e.prev)
	l.n--
}

// renamed says that e, which is in the list, has another number than it had.
func (l *list[K, A]) renamed(t *table[K, A], e slot[K, A]) { l.link(t, e.prev, e.next, e.ref, e.ref) }

// link makes after follow prev, and before come before next; where there is no prev or
// next, that is the end of the list.
func (l *list[K, A]) link(t *table[K, A], prev, next, after, before ref) {
	if prev == 0 {
		l.first = after
	} else {
		t.at(prev).next = after
	}
	if next == 0 {
		l.last = before
	} else {
		t.at(next).prev = before
	}
}

// all calls yield for each entry, from the first, until it returns false, as it then does.
func (l *list[K, A]) all(t *table[K, A], yield func(slot[K, A]) bool) bool {
	for r := l.first; r != 0; r = t.at(r).next {
		if !yield(t.slot(r)) {
			return false
		}
	}
	return true
}

// order is the line in which entries wait to be handed out: higher priorities first,
// oldest first within one (Q1). Nearly always there is but one priority, 0, and so one
// list; the others have a list each and a heap that knows which of them is the highest.
// Each step is O(1), but for an entry that opens or closes a priority: O(log p) for p of them.
type order[K comparable, A any] struct {
	n          int
	plain      list[K, A]      // O1: the entries of priority 0
	levels     []level[K, A]   // O1: those of each other priority that has any; the rest are spare
	byPriority map[int]levelID // O2: where the level of each such priority is
	peak       int             // O2: not less than len(byPriority); see trimmed
	open       heap[levelID]   // O3: the same levels, the highest on top
	closed     []levelID       // O4: the spare levels, empty
}

// level is one priority's part of an order.
type level[K comparable, A any] struct {
	list[K, A]
	priority int
}

// levelID is the index of a level.
type levelID uint32

// of returns the list of a priority, which must have one.
func (o *order[K, A]) of(priority int) *list[K, A] {
	if priority == 0 {
		return &o.plain
	}
	return &o.levels[o.byPriority[priority]].list
}

// push puts e at the end of priority.
func (o *order[K, A]) push(t *table[K, A], e slot[K, A], priority int) {
	o.n++
	if priority == 0 {
		o.plain.push(t, e)
	} else {
		o.level(priority).push(t, e)
	}
}

// level returns the list of a priority other than 0, a new one if it has none.
func (o *order[K, A]) level(priority int) *list[K, A] {
	id, ok := o.byPriority[priority]
	if !ok {
		id = o.openLevel(priority)
	}
	return &o.levels[id].list
}

func (o *order[K, A]) openLevel(priority int) levelID {
	if len(o.closed) == 0 {
		o.closed = append(o.closed, levelID(len(o.levels)))
		o.levels = append(o.levels, level[K, A]{})
	}
	last := len(o.closed) - 1
	id := o.closed[last]
	o.closed = o.closed[:last]
	o.levels[id].priority = priority
	if o.byPriority == nil {
		o.byPriority = make(map[int]levelID)
	}
	o.byPriority[priority] = id
	o.peak = max(o.peak, len(o.byPriority))
	o.open.push(id, int64(^priority))
	return id
}

// pop takes the entry that is first in line out of it, and returns it. There must be one.
func (o *order[K, A]) pop(t *table[K, A]) slot[K, A] {
	if o.open.len() > 0 {
		if top := &o.levels[o.open.top().id]; top.priority > 0 || o.plain.n == 0 {
			e := t.slot(top.first)
			o.remove(t, e, top.priority)
			return e
		}
	}
	o.n--
	return o.plain.pop(t)
}

// remove takes e, which must be in the line of priority, out of it.
func (o *order[K, A]) remove(t *table[K, A], e slot[K, A], priority int) {
	o.n--
	l := o.of(priority)
	l.remove(t, e)
	if l.n == 0 && priority != 0 {
		o.closeLevel(priority)
	}
}

func (o *order[K, A]) closeLevel(priority int) {
	id := o.byPriority[priority]
	o.open.remove(id)
	o.closed = append(o.closed, id)
	delete(o.byPriority, priority)
	o.byPriority = trimmed(o.byPriority, &o.peak)
	if len(o.levels) > max(keepCap, 4*len(o.byPriority)) {
		o.compact()
	}
}

// compact gives back the memory of closed levels.
func (o *order[K, A]) compact() {
	var levels []level[K, A]
	var open heap[levelID]
	for priority, id := range o.byPriority {
		o.byPriority[priority] = levelID(len(levels))
		open.push(levelID(len(levels)), int64(^priority))
		levels = append(levels, o.levels[id])
	}
	o.levels, o.open, o.closed = levels, open, nil
}

// all calls yield for each entry, first in line first, until it returns false. The order
// must not change meanwhile. O(n), and O(p log p) for p priorities.
func (o *order[K, A]) all(t *table[K, A], yield func(slot[K, A]) bool) {
	lines := []level[K, A]{{list: o.plain}}
	for _, id := range o.byPriority {
		lines = append(lines, o.levels[id])
	}
	slices.SortFunc(lines, func(a, b level[K, A]) int { return cmp.Compare(b.priority, a.priority) })
	for _, l := range lines {
		if !l.list.all(t, yield) {
			return
		}
	}
}
