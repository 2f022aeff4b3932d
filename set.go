package typedqueue

// set is a set of T: a Go map, so len, range and clear work on it. The nil set can be
// read. It has no lock, and does not shrink before it is dropped.
type set[T comparable] map[T]struct{}

func (s set[T]) add(v T)    { s[v] = struct{}{} }
func (s set[T]) remove(v T) { delete(s, v) }

func (s set[T]) has(v T) bool {
	_, ok := s[v]
	return ok
}
