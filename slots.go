package typedqueue

import (
	"math"
	"weak"
)

// slots holds elements that their owner links by number instead of by pointer: a link takes
// half the room, and the collector follows none of them. Slot 0 is never used, so that 0 can
// say "none". Which of the others are free is the owner's to know. It has no lock. The zero
// slots are empty and ready.
type slots[I ~uint32, E any] struct {
	// C1: slot i stands in chunks[i/chunkLen], the first of which grows, up to chunkLen, and all
	// others have that; used is the last one, and there are no chunks but for that many. end
	// is the last one in the last chunk.
	chunks [][]E
	used   I
	end    I

	// spare are chunks for the next burst, held weakly: they cost no memory that anybody else
	// wants (Q9). C2: they, slot 0 and the slots beyond used are zero.
	spare weak.Pointer[[][]E]
}

// ref is the number of an entry's slot in its table. 0 is none.
type ref uint32

const (
	chunkLen  = 1 << 10
	slotsKeep = chunkLen // so many slots are kept however few are needed
	sparsity  = 8        // more than so many for each that is needed are too many
)

// at returns the element in slot i. It stays there until the next extend or shrink.
func (s *slots[I, E]) at(i I) *E { return &s.chunks[i/chunkLen][i%chunkLen] }

// from returns the elements from slot i to the end of its chunk.
func (s *slots[I, E]) from(i I) []E { return s.chunks[i/chunkLen][i%chunkLen:] }

// extend returns the number of one more slot, which is zero.
func (s *slots[I, E]) extend() I {
	if s.used >= s.end {
		s.grow()
	}
	s.used++
	return s.used
}

// grow makes room for one more slot.
func (s *slots[I, E]) grow() {
	switch n := len(s.chunks); {
	case uint32(s.used) == math.MaxUint32:
		panic("typedqueue: more than 32 bits can count")
	case n == 0:
		s.chunks = append(s.chunks, make([]E, 8))
	case len(s.chunks[n-1]) < chunkLen: // the first one
		grown := make([]E, 2*len(s.chunks[0]))
		copy(grown, s.chunks[0])
		s.chunks[0] = grown
	default:
		s.chunks = append(s.chunks, s.newChunk())
	}
	s.end = s.lastIn()
}

// lastIn returns the last slot of the chunks that there are.
func (s *slots[I, E]) lastIn() I {
	last := len(s.chunks) - 1
	return I(last*chunkLen + len(s.chunks[last]) - 1)
}

func (s *slots[I, E]) newChunk() []E {
	if spare := s.spare.Value(); spare != nil && len(*spare) > 0 {
		last := len(*spare) - 1
		c := (*spare)[last]
		*spare = (*spare)[:last]
		return c
	}
	return make([]E, chunkLen)
}

// sparse reports whether n slots are so few of those used that their owner ought to move
// them to the front, and call shrink.
func (s *slots[I, E]) sparse(n int) bool { return s.used > slotsKeep && n < int(s.used)/sparsity }

// shrink gives up the slots beyond last, which hold nothing that is needed. It clears them (C2).
func (s *slots[I, E]) shrink(last I) {
	s.used = last
	keep := int(last/chunkLen) + 1
	if keep > len(s.chunks) { // there are none
		return
	}
	clear(s.chunks[keep-1][last%chunkLen+1:])
	for _, c := range s.chunks[keep:] {
		clear(c)
	}
	if keep == len(s.chunks) {
		return
	}
	spare := s.spare.Value()
	if spare == nil {
		spare = new([][]E)
		s.spare = weak.Make(spare)
	}
	*spare = append(*spare, s.chunks[keep:]...)
	clear(s.chunks[keep:])
	if s.chunks = s.chunks[:keep]; cap(s.chunks) > keepCap {
		s.chunks = append(make([][]E, 0, 2*keep), s.chunks...)
	}
	s.end = s.lastIn()
}

// column holds a value for each slot that needs one, apart from what is in the slot, because
// few owners have such. What it holds for others is stale.
type column[T any] []T

// get returns the value of r, or the zero value if it has never had one.
func (c column[T]) get(r ref) (v T) {
	if int(r) < len(c) {
		v = c[r]
	}
	return v
}

// at returns where the value of r is.
func (c *column[T]) at(r ref) *T {
	if missing := int(r) + 1 - len(*c); missing > 0 {
		*c = append(*c, make([]T, missing)...)
	}
	return &(*c)[r]
}

// move gives to the value of from.
func (c *column[T]) move(from, to ref) {
	if *c != nil {
		*c.at(to) = c.get(from)
	}
}

// trim forgets what belongs to numbers greater than last, and its memory.
func (c *column[T]) trim(last ref) {
	if n := int(last) + 1; n < len(*c) {
		*c = append(make([]T, 0, n), (*c)[:n]...)
	}
}
