package typedqueue

import "maps"

// set is a set of T: a Go map, so len, range and clear work on it. The nil set can be
// read. It has no lock, and does not shrink before it is dropped.
type set[T comparable] map[T]struct{}

func (s set[T]) add(v T)    { s[v] = struct{}{} }
func (s set[T]) remove(v T) { delete(s, v) }

func (s set[T]) has(v T) bool {
	_, ok := s[v]
	return ok
}

// keepCap is up to how many elements lists and maps keep room for, however empty they get.
const keepCap = 64

// trimmed returns m, or a smaller copy if m has become mostly empty since it had peak
// elements: a Go map never shrinks. The caller keeps *peak; amortised, this costs O(1) for
// each element deleted.
func trimmed[K comparable, T any](m map[K]T, peak *int) map[K]T {
	if *peak <= keepCap || len(m) >= *peak/4 {
		return m
	}
	*peak = len(m)
	small := make(map[K]T, len(m))
	maps.Copy(small, m)
	return small
}

// column holds a value for each entry of a table that needs one, apart from the entries,
// because few queues have such. Values of entries that do not need them are stale.
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
