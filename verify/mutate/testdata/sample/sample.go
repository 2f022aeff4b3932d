// Package sample has something for each operator of the mutator, and for each end that a
// mutant can come to.
package sample

import "sync"

const limit = 3

type box[T comparable] struct {
	mu    sync.Mutex
	items []T
	n     int
	open  bool
}

func newBox[T comparable](n int) *box[T] { return &box[T]{n: n, open: true} }

func (b *box[T]) add(v T) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.open || len(b.items) >= b.n {
		return false
	}
	b.items = append(b.items, v)
	return true
}

func (b *box[T]) index(v T) int {
	for i, x := range b.items {
		if x == v {
			return i
		}
	}
	return -1
}

func (b *box[T]) swap(i, j int) {
	b.items[i], b.items[j] = b.items[j], b.items[i]
}

func sum(n int) (total int) {
	for i := 0; i < n; i++ {
		if i == limit {
			break
		}
		total += i
	}
	return min(total, 1<<1)
}

func each(yield func(int) bool) {
	_ = yield(1) && yield(2)
}

func last() (v int) {
	for x := range each {
		v = x
	}
	return v
}

func difference(a, b int) int { return a - b }

func swapped(a, b int) int { return difference(b, a) }

func sign(n int) string {
	switch {
	case n < 0:
		return "-"
	default:
		return "+"
	}
}

// kind returns what no mutant of the condition changes.
func kind(n int) string {
	if n == 0 {
		return "number"
	}
	return "number"
}

// countdown hangs if nothing counts.
func countdown(n int) int {
	for n > 0 {
		n--
	}
	return n
}

// relay deadlocks if nothing is sent.
func relay(v int) int {
	c := make(chan int, 1)
	c <- v
	return <-c
}

// hoard takes all the memory that there is if nothing counts.
func hoard(n int) (hoard [][]byte) {
	for n > 0 {
		hoard = append(hoard, make([]byte, 1<<26))
		n--
	}
	return hoard
}
