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
