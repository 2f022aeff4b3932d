package typedqueue

// stacks holds a stack of values for each of many owners, in slots that all of them share:
// a push allocates nothing once there is room, and an owner keeps but the number of its
// topmost slot, 0 being none. It has no lock. The zero stacks are empty and ready.
type stacks[T any] struct {
	// G1: each slot is in one stack, once, or free; n are not free. The free ones are zero but
	// for below, which links them.
	slots[ref, plate[T]]
	free ref
	n    int
}

// plate is one value of a stack.
type plate[T any] struct {
	value T
	below ref // the next in the stack, pushed before this one; 0 under the lowest
}

// push puts v on the stack whose top is given, and returns the new top.
func (s *stacks[T]) push(top ref, v T) ref {
	r := s.free
	if r == 0 {
		r = s.extend()
	}
	p := s.at(r)
	s.free = p.below // none, if the slot is new (C2)
	p.value, p.below = v, top
	s.n++
	return r
}

// pop takes the top off its stack, and returns the new top.
func (s *stacks[T]) pop(top ref) (below ref) {
	p := s.at(top)
	below = p.below
	*p = plate[T]{below: s.free} // Q9: let the value be collected
	s.free = top
	s.n--
	return below
}

// drop empties a stack.
func (s *stacks[T]) drop(top ref) {
	for top != 0 {
		top = s.pop(top)
	}
}

// sparse reports whether most of the memory is of no use, so that the owners ought to move.
func (s *stacks[T]) sparse() bool { return s.slots.sparse(s.n) }

// inherit makes the memory of old, which must be empty, spare in s.
func (s *stacks[T]) inherit(old *stacks[T]) {
	old.shrink(0)
	s.spare = old.spare
}

// move moves a stack of another's into s, and returns its new top.
func (s *stacks[T]) move(from *stacks[T], top ref) ref {
	var moved, above ref
	for top != 0 {
		r := s.push(0, from.at(top).value)
		if above == 0 {
			moved = r
		} else {
			s.at(above).below = r
		}
		above, top = r, from.pop(top)
	}
	return moved
}
