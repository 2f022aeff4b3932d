package typedqueue

import "weak"

// stacks holds a stack of values for each of many owners, in slots that all of them share:
// a push allocates nothing once there is room, and an owner keeps but the number of its
// topmost slot, 0 being none. It has no lock. The zero stacks are empty and ready.
type stacks[T any] struct {
	// G1: each slot from 1 to used is in one stack, once, or free; n are not free. The free ones
	// are zero but for below, which links them. Slot r stands in chunks[r/chunkLen]; the first
	// chunk grows, all others have chunkLen slots.
	chunks     [][]plate[T]
	used, free ref
	n          int

	// spare are chunks for the next burst, all zero but for below, held weakly as table.spare
	// is (Q9).
	spare weak.Pointer[[][]plate[T]]
}

// plate is one value of a stack.
type plate[T any] struct {
	value T
	below ref // the next in the stack, pushed before this one; 0 under the lowest
}

func (s *stacks[T]) at(r ref) *plate[T] { return &s.chunks[r/chunkLen][r%chunkLen] }

// push puts v on the stack whose top is given, and returns the new top.
func (s *stacks[T]) push(top ref, v T) ref {
	r := s.free
	if r != 0 {
		s.free = s.at(r).below
	} else {
		r = s.extend()
	}
	*s.at(r) = plate[T]{v, top}
	s.n++
	return r
}

// extend returns a slot that has not been used.
func (s *stacks[T]) extend() ref {
	s.used++
	switch chunk, i := int(s.used/chunkLen), int(s.used%chunkLen); {
	case s.used == 0:
		panic("typedqueue: more changes than 32 bits can count")
	case chunk == len(s.chunks):
		s.chunks = append(s.chunks, s.newChunk())
	case i == len(s.chunks[chunk]): // the first one
		s.chunks[0] = append(make([]plate[T], 0, 2*i), s.chunks[0]...)[:2*i]
	}
	return s.used
}

func (s *stacks[T]) newChunk() []plate[T] {
	if len(s.chunks) == 0 {
		return make([]plate[T], 8)
	}
	if spare := s.spare.Value(); spare != nil && len(*spare) > 0 {
		last := len(*spare) - 1
		c := (*spare)[last]
		*spare = (*spare)[:last]
		return c
	}
	return make([]plate[T], chunkLen)
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
func (s *stacks[T]) sparse() bool {
	return s.used > tableKeep && s.n < int(s.used)/sparsity
}

// inherit makes the memory of old, which must be empty, spare in s.
func (s *stacks[T]) inherit(old *stacks[T]) {
	spare := old.spare.Value()
	if spare == nil {
		spare = new([][]plate[T])
	}
	if len(old.chunks) > 0 {
		*spare = append(*spare, old.chunks[1:]...) // the first may be short
	}
	s.spare = weak.Make(spare)
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
