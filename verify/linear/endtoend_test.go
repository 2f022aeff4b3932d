package linear

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"

	"example.com/typedqueue"
)

// This file looks at long histories, which no search could order: their producers write one after
// another, so that what must come out is known, while consumers do as they please.

// source is what producers have written. As consumers keep KnownObjects up to date, what comes
// of a write does not hang on how far they are (D9).
type source struct {
	mu      sync.Mutex // one write at a time
	version int
	exists  map[int]Object
	history map[int]Deltas
}

func newSource() *source { return &source{exists: map[int]Object{}, history: map[int]Deltas{}} }

func (s *source) next(key int) Object {
	s.version++
	return Object{key, s.version}
}

func (s *source) note(key int, t typedqueue.DeltaType, o Object, inferred bool) {
	s.history[key] = append(s.history[key], typedqueue.Delta[Object]{Type: t, Object: o, FinalStateUnknown: inferred})
	s.exists[key] = o
	if t == typedqueue.Deleted {
		delete(s.exists, key)
	}
}

// write makes one write, and notes what must come of it.
func (s *source) write(rng *rand.Rand, q Line) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := rng.IntN(Keys)
	switch rng.IntN(7) {
	case 0, 1, 2:
		o := s.next(key)
		s.note(key, typedqueue.Added, o, false)
		return q.Add(o)
	case 3, 4:
		o := s.next(key)
		s.note(key, typedqueue.Updated, o, false)
		return q.Update(o)
	case 5:
		return s.delete(q, key, rng.IntN(2) == 0)
	default:
		return s.replace(q, rng.Perm(Keys)[:rng.IntN(Keys+1)])
	}
}

// delete deletes a key that exists. Whether a second deletion merges with the first hangs on the
// consumers.
func (s *source) delete(q Line, key int, seen bool) error {
	o, ok := s.exists[key]
	switch {
	case !ok:
		return nil
	case seen:
		s.note(key, typedqueue.Deleted, o, false)
		return q.Delete(o)
	default:
		s.note(key, typedqueue.Deleted, o, true)
		return q.DeleteKey(key)
	}
}

func (s *source) replace(q Line, listed []int) error {
	var list []Object
	for _, key := range listed {
		o := s.next(key)
		list = append(list, o)
		s.note(key, typedqueue.Replaced, o, false)
	}
	for key := range Keys {
		if o, ok := s.exists[key]; ok && !slices.Contains(listed, key) {
			s.note(key, typedqueue.Deleted, o, true)
		}
	}
	return q.Replace(list)
}

// sink is what consumers have accepted.
type sink struct {
	hands    [Keys]sync.Mutex // held by who has the key in hand
	accepted [Keys]Deltas
}

// consume pops until the queue is closed and empty. Now and then it does not want what it gets.
func (s *sink) consume(rng *rand.Rand, q Line) error {
	for {
		err := q.Pop(context.Background(), func(key int, d Deltas, _ bool) error {
			if !s.hands[key].TryLock() {
				return fmt.Errorf("key %d is in two hands", key)
			}
			defer s.hands[key].Unlock()
			runtime.Gosched()
			if rng.IntN(4) == 0 {
				return typedqueue.Requeue(nil)
			}
			s.accepted[key] = append(s.accepted[key], d...)
			return nil
		})
		switch asked := new(typedqueue.RequeueError); {
		case errors.Is(err, typedqueue.ErrClosed):
			return nil
		case err != nil && !errors.As(err, &asked):
			return err
		}
	}
}

// flow runs three producers and three consumers, until what has been written has been consumed.
func flow(q Line, writes int) (*source, *sink, error) {
	from, to := newSource(), new(sink)
	errs := make(chan error, 6)
	var producers, consumers sync.WaitGroup
	for range 3 {
		producers.Go(func() {
			rng := rand.New(rand.NewPCG(rand.Uint64(), 0))
			for range writes / 3 {
				if err := from.write(rng, q); err != nil {
					errs <- err
					return
				}
				yield(rng, 1)
			}
		})
		consumers.Go(func() {
			if err := to.consume(rand.New(rand.NewPCG(rand.Uint64(), 0)), q); err != nil {
				errs <- err
			}
		})
	}
	producers.Wait()
	q.Close()
	consumers.Wait()
	close(errs)
	return from, to, <-errs
}

// checkDeltas: put end to end, the deltas that were accepted are those that were written.
func checkDeltas(from *source, to *sink) error {
	for key := range Keys {
		if got, want := to.accepted[key], from.history[key]; !slices.Equal(got, want) {
			return fmt.Errorf("key %d: of %d changes %d have been accepted, or not in order", key, len(want), len(got))
		}
	}
	return nil
}

// checkNewest: what was accepted of a key was written, in that order, and ends with the last word.
func checkNewest(from *source, to *sink) error {
	for key := range Keys {
		last := 0
		for _, d := range to.accepted[key] {
			if d.Object.N <= last {
				return fmt.Errorf("key %d: version %d after %d", key, d.Object.N, last)
			}
			last = d.Object.N
		}
		if o, ok := from.exists[key]; ok && o.N != last {
			return fmt.Errorf("key %d: the last word was version %d, but %d came last", key, o.N, last)
		}
	}
	return nil
}

const writes = 3000

func TestDeltaFIFO_EndToEnd(t *testing.T) {
	for range 5 {
		q := NewDeltaFIFO()
		from, to, err := flow(q, writes)
		if err == nil {
			err = checkDeltas(from, to)
		}
		if err != nil {
			t.Fatal(err)
		}
		for key := range Keys { // D9
			if got, _ := q.known.GetByKey(key); got != from.exists[key] {
				t.Errorf("key %d: KnownObjects has %v, the last word was %v", key, got, from.exists[key])
			}
		}
	}
}

func TestFIFO_EndToEnd(t *testing.T) {
	for range 5 {
		from, to, err := flow(NewFIFO(), writes)
		if err == nil {
			err = checkNewest(from, to)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestBrokenFlow: broken queues are found here too.
func TestBrokenFlow(t *testing.T) {
	type options = typedqueue.DeltaFIFOOptions[int, Object]
	for name, f := range map[string]struct {
		q     func() Line
		check func(*source, *sink) error
	}{
		"FIFO: a key is in two hands":        {func() Line { return handsOff{NewFIFO()} }, checkNewest},
		"FIFO: nothing is put back":          {func() Line { return drops{NewFIFO()} }, checkNewest},
		"DeltaFIFO: a key is in two hands":   {func() Line { return handsOff{NewDeltaFIFO()} }, checkDeltas},
		"DeltaFIFO: nothing is put back":     {func() Line { return drops{NewDeltaFIFO()} }, checkDeltas},
		"DeltaFIFO: a deletion is lost":      {func() Line { return deafDelete{NewDeltaFIFO()} }, checkDeltas},
		"DeltaFIFO: only the newest is kept": {func() Line { return brokenDeltas(options{Merge: newestOnly}) }, checkDeltas},
	} {
		t.Run(name, func(t *testing.T) {
			for range 200 {
				from, to, err := flow(f.q(), writes)
				if err == nil {
					err = f.check(from, to)
				}
				if err != nil {
					t.Log(err)
					return
				}
			}
			t.Error("not found")
		})
	}
}
