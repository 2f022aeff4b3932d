package wakeups

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
)

// ring is a queue with workers in a bubble, each of which keeps what it has got until the end
// of the turn.
type ring struct {
	subject
	took    chan int // who
	release chan struct{}
	stop    []context.CancelFunc // for each worker
}

// newRing starts workers 0, 1, 2 and so on, which fall asleep in this order.
func newRing(t *testing.T, s subject) *ring {
	r := &ring{subject: s, took: make(chan int, workers), release: make(chan struct{})}
	t.Cleanup(func() { close(r.release) }) // the bubble must end, whatever is broken
	for id := range workers {
		ctx, stop := context.WithCancel(t.Context())
		r.stop = append(r.stop, stop)
		go func() {
			for s.take(ctx, func() { r.took <- id; <-r.release }) == nil {
			}
		}()
		synctest.Wait()
	}
	return r
}

// turn adds n items and returns who took them.
func (r *ring) turn(n int) (ids []int) {
	r.addAll([]int{1, 2, 3, 4, 5, 6, 7, 8}[:n]...)
	synctest.Wait()
	for range len(r.took) {
		ids = append(ids, <-r.took)
		r.release <- struct{}{}
	}
	synctest.Wait()
	slices.Sort(ids)
	return ids
}

// TestTurns: who sleeps longest is the next to get something. So workers take turns in a ring,
// one item at a time or several, and one that gives up holds nobody up.
func TestTurns(t *testing.T) {
	for _, sub := range subjects {
		t.Run(sub.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRing(t, sub.make())
				defer r.end()
				expect := func(want ...int) {
					t.Helper()
					if got := r.turn(len(want)); !slices.Equal(got, want) {
						t.Errorf("the turn is of %d, want %d", got, want)
					}
				}
				for range 3 {
					for id := range workers {
						expect(id)
					}
				}
				for range 2 {
					expect(0, 1, 2)
					expect(3)
					expect(4, 5, 6, 7)
				}
				r.stop[6]()
				synctest.Wait()
				expect(0, 1, 2)
				expect(3)
				expect(4, 5, 7)
				expect(0, 1, 2)
			})
		})
	}
}
