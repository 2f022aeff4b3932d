package wakeups

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/typedqueue"
)

// workers is how many there are in most scripts.
const workers = 8

// script is a sequence of steps in a bubble, each with the number of sleepers that it must
// wake, none of them twice.
type script struct {
	*testing.T
	subject
	want []expected

	keep    bool          // workers keep what they have got until letGo
	release chan struct{} // lets a worker go on
}

type expected struct {
	step  string
	wakes int
}

// step does what name says, and waits until all goroutines rest.
func (s *script) step(name string, wakes int, do func()) {
	s.want = append(s.want, expected{name, wakes})
	beginStep(name)
	do()
	synctest.Wait()
}

// add is a step.
func (s *script) add(name string, key, wakes int) {
	s.step(name, wakes, func() { s.subject.add(key) })
}

// start starts n workers, which fall asleep one after the other.
func (s *script) start(n int) {
	for range n {
		go func() {
			for s.take(s.Context(), s.work) == nil {
			}
		}()
		synctest.Wait()
	}
}

func (s *script) work() {
	if s.keep {
		<-s.release
	}
}

// letGo makes n workers return what they keep.
func (s *script) letGo(n int) {
	for range n {
		send(s.T, s.release, struct{}{})
	}
}

// send sends v to somebody in the bubble, or fails if nobody waits for it.
func send[V any](t *testing.T, to chan<- V, v V) {
	t.Helper()
	select {
	case to <- v:
	case <-time.After(time.Minute):
		t.Fatal("nobody is there")
	}
}

// play runs a script in a bubble, and compares the counts.
func play(t *testing.T, sub subject, write func(*script)) {
	s := &script{subject: sub}
	steps := traced(t, func() {
		synctest.Test(t, func(t *testing.T) {
			s.T, s.release = t, make(chan struct{})
			t.Cleanup(func() { close(s.release) }) // the bubble must end, whatever is broken
			defer s.end()
			write(s)
			beginStep("the rest")
		})
	})
	if len(steps) != len(s.want)+2 || steps[0].total() != 0 {
		t.Fatalf("%d steps in the trace, want %d; %d wake-ups before the first", len(steps), len(s.want)+2, steps[0].total())
	}
	for i, want := range s.want {
		got := steps[i+1]
		if got.total() != want.wakes {
			t.Errorf("step %d, %s: %d wake-ups, want %d", i, want.step, got.total(), want.wakes)
		}
		if len(got) != got.total() {
			t.Errorf("step %d, %s: woke somebody twice: %v", i, want.step, got)
		}
	}
}

// TestWakeUps plays every script with every queue that has what it needs.
func TestWakeUps(t *testing.T) {
	for _, sc := range []struct {
		name  string
		needs func(subject) bool
		write func(*script)
	}{
		{"one by one", anySubject, oneByOne},
		{"many at once", anySubject, manyAtOnce},
		{"in hand", anySubject, inHand},
		{"nobody asleep", anySubject, nobodyAsleep},
		{"on its way", anySubject, onItsWay},
		{"gives up", anySubject, givesUp},
		{"gives up when woken", anySubject, givesUpWhenWoken},
		{"context panics", anySubject, contextPanics},
		{"end", anySubject, ends},
		{"drain", drains, drainEnds},
		{"drain is released", drains, drainIsReleased},
		{"due together", delay, dueTogether},
		{"due in hand", delay, dueInHand},
		{"wait ends early", delay, waitEndsEarly},
		{"end with waits", delay, endsWithWaits},
	} {
		for _, sub := range subjects {
			s := sub.make()
			if !sc.needs(s) {
				continue
			}
			t.Run(sc.name+"/"+sub.name, func(t *testing.T) { play(t, s, sc.write) })
		}
	}
}

func anySubject(subject) bool { return true }
func drains(s subject) bool   { return s.drain != nil }
func delay(s subject) bool    { return s.delays != nil }

func oneByOne(s *script) {
	s.start(workers)
	for key := range 2 * workers {
		s.add("Add", key, 1)
	}
}

func manyAtOnce(s *script) {
	s.start(workers)
	for _, n := range []int{0, 1, 3, workers, 30} {
		keys := make([]int, n)
		for i := range keys {
			keys[i] = i
		}
		s.step(fmt.Sprintf("AddAll of %d", n), min(n, workers), func() { s.addAll(keys...) })
	}
	s.step("AddAll of one, three times", 1, func() { s.addAll(5, 5, 5) })
}

func inHand(s *script) {
	s.keep = true
	s.start(workers)
	s.add("Add", 1, 1)
	s.add("Add of what is in hand", 1, 0)
	s.add("the same again", 1, 0)
	s.step("Cancel", 0, func() { s.forget(1) })
	s.add("Add once more", 1, 0)
	s.step("Done that makes it ready", 1, func() { s.letGo(1) })
	s.step("Done", 0, func() { s.letGo(1) })
}

func nobodyAsleep(s *script) {
	s.keep = true
	s.start(workers)
	s.step("AddAll of work for all", workers, func() { s.addAll(1, 2, 3, 4, 5, 6, 7, 8) })
	s.add("Add", 9, 0)
	s.add("a merged Add", 9, 0)
	s.step("another takes it", 0, func() {
		s.keep = false
		if err := s.take(s.Context(), func() {}); err != nil {
			s.Errorf("take = %v", err)
		}
	})
	s.step("the workers fall asleep", 0, func() { s.letGo(workers) })
	s.add("Add", 10, 1)
}

// slow is a context of a getter that, when it wakes, thinks until it is told what its context
// says.
type slow struct {
	context.Context
	done chan struct{}
	says chan func() error
}

func (c slow) Done() <-chan struct{} { return c.done }

func (c slow) Err() error {
	if f, ok := <-c.says; ok {
		return f()
	}
	return context.Canceled
}

func fine() error      { return nil }
func cancelled() error { return context.Canceled }

// startSlow starts a worker with a slow context, which falls asleep. It is for one item.
func (s *script) startSlow() slow {
	c := slow{s.Context(), make(chan struct{}), make(chan func() error)}
	s.Cleanup(func() {
		close(c.says)
		defer func() { _ = recover() }() // it has been closed
		close(c.done)
	})
	go func() {
		defer func() { _ = recover() }() // it may be told to panic
		_ = s.take(c, func() {})
	}()
	send(s.T, c.says, fine) // before it sleeps it looks as well
	synctest.Wait()
	return c
}

// says is a step: the context of the worker that woke says f.
func (s *script) says(c slow, name string, wakes int, f func() error) {
	s.step(name, wakes, func() { send(s.T, c.says, f) })
}

func onItsWay(s *script) {
	c := s.startSlow()
	s.start(workers)
	s.add("Add", 1, 1)
	s.add("a merged Add", 1, 0)
	s.add("Add of another", 2, 1) // who takes both
	s.add("Add while one is on its way", 3, 0)
	s.says(c, "it arrives", 0, fine)
	s.add("Add", 4, 1)
}

func givesUp(s *script) {
	ctx, cancel := context.WithCancel(s.Context())
	go func() {
		if err := s.take(ctx, func() {}); !errors.Is(err, context.Canceled) {
			s.Errorf("take = %v", err)
		}
	}()
	synctest.Wait()
	c := s.startSlow()
	s.start(workers)
	s.step("it gives up", 1, cancel) // nobody else
	s.add("Add", 1, 1)
	s.says(c, "it arrives", 0, fine)

	c = s.startSlow()
	s.step("AddAll for all before it", workers, func() { s.addAll(1, 2, 3, 4, 5, 6, 7, 8) })
	s.step("it is about to give up", 1, func() { close(c.done) })
	s.add("Add, its turn", 9, 0)
	s.says(c, "it passes its wake-up on", 1, cancelled)
	s.add("Add", 10, 1)
}

func givesUpWhenWoken(s *script) {
	c := s.startSlow()
	s.start(workers)
	s.add("Add", 1, 1)
	s.says(c, "it passes its wake-up on", 1, cancelled)

	c = s.startSlow()
	s.step("AddAll for all, and it", workers+1, func() { s.addAll(1, 2, 3, 4, 5, 6, 7, 8, 9) })
	s.says(c, "all has been taken", 0, cancelled)
	s.add("Add", 10, 1)
}

func contextPanics(s *script) {
	c := s.startSlow()
	s.start(workers)
	s.add("Add", 1, 1)
	s.says(c, "it passes its wake-up on", 1, func() error { panic("context") })
	s.add("Add", 2, 1)
}

func ends(s *script) {
	s.keep = true
	s.start(workers)
	s.step("AddAll", 3, func() { s.addAll(1, 2, 3) })
	s.step("the end", workers-3, s.end)
	s.step("the end again", 0, s.end)
	s.add("Add after the end", 4, 0)
	s.step("Done", 0, func() { s.letGo(3) })
}

// startDrain starts a drain that ends with an error like want.
func (s *script) startDrain(ctx context.Context, want error) {
	go func() {
		if err := s.drain(ctx); !errors.Is(err, want) {
			s.Errorf("Drain = %v, want %v", err, want)
		}
	}()
}

func drainEnds(s *script) {
	s.keep = true
	s.start(workers)
	s.step("AddAll", 3, func() { s.addAll(1, 2, 3) })
	s.step("Drain", workers-3, func() { s.startDrain(s.Context(), nil) })
	s.step("a second Drain", 0, func() { s.startDrain(s.Context(), nil) })
	ctx, cancel := context.WithCancel(s.Context())
	s.step("a third Drain", 0, func() { s.startDrain(ctx, context.Canceled) })
	s.step("it gives up", 1, cancel)
	s.step("Done, not the last", 0, func() { s.letGo(2) })
	s.step("the last Done", 2, func() { s.letGo(1) })
}

func drainIsReleased(s *script) {
	s.keep = true
	s.start(workers)
	s.step("AddAll", 3, func() { s.addAll(1, 2, 3) })
	s.step("Drain", workers-3, func() {
		for range 3 {
			s.startDrain(s.Context(), typedqueue.ErrShutDown)
		}
	})
	s.step("ShutDown", 3, s.end)
	s.step("Done", 0, func() { s.letGo(3) })
}

// after is a step: time passes.
func (s *script) after(seconds, wakes int) {
	s.step(fmt.Sprintf("%d s later", seconds), wakes, func() { time.Sleep(time.Duration(seconds) * time.Second) })
}

// addAfter is a step.
func (s *script) addAfter(seconds int, keys ...int) {
	s.step(fmt.Sprintf("AddAfter %d s", seconds), 0, func() {
		for _, key := range keys {
			s.delays.AddAfter(key, time.Duration(seconds)*time.Second)
		}
	})
}

func dueTogether(s *script) {
	s.start(workers)
	for _, n := range []int{1, 3, workers, 30} {
		for key := range n {
			s.addAfter(n+1, key) // all in no time
		}
		s.after(n, 0)
		s.after(1, min(n, workers))
	}
	s.addAfter(1, 1)
	s.addAfter(2, 2)
	s.after(1, 1)
	s.after(1, 1)
}

func dueInHand(s *script) {
	s.keep = true
	s.start(workers)
	s.add("Add", 1, 1)
	s.addAfter(1, 1)
	s.after(1, 0)
	s.step("Done that makes it ready", 1, func() { s.letGo(1) })
	s.step("Done", 0, func() { s.letGo(1) })
}

func waitEndsEarly(s *script) {
	s.start(workers)
	s.addAfter(1, 1)
	s.addAfter(3, 2)
	s.addAfter(9, 1) // later than before: merged
	s.step("Cancel", 0, func() { s.forget(1) })
	s.after(1, 0) // the timer fires for nothing
	s.step("Reschedule", 0, func() { s.delays.Reschedule(2, 4*time.Second) })
	s.after(2, 0)
	s.after(2, 1)

	s.addAfter(1, 3)
	s.add("Add", 3, 1)
	s.after(1, 0)
}

func endsWithWaits(s *script) {
	s.start(workers)
	s.addAfter(1, 1, 2, 3)
	s.step("the end", workers, s.end)
	s.after(1, 0)
}

// TestWakeUps_RateLimited: a failure wakes nobody until it is due.
func TestWakeUps_RateLimited(t *testing.T) {
	q := newRateLimiting()
	play(t, delaying(q), func(s *script) {
		s.start(workers)
		s.step("AddRateLimited", 0, func() { q.AddRateLimited(1) })
		s.step("a merged one", 0, func() { q.AddRateLimited(1) })
		s.after(1, 1)
		s.after(1, 0)
	})
}

// TestWakeUps_EveryGetter: they sleep alike, however they are called.
func TestWakeUps_EveryGetter(t *testing.T) {
	q := newRateLimiting()
	play(t, delaying(q), func(s *script) {
		getters := []func(){
			func() {
				for item, shutdown := q.Get(); !shutdown; item, shutdown = q.Get() {
					q.Done(item)
				}
			},
			func() {
				for item, _, shutdown := q.GetWithPriority(); !shutdown; item, _, shutdown = q.GetWithPriority() {
					q.Done(item)
				}
			},
			func() {
				for range q.Consume(s.Context()) {
				}
			},
			func() {
				opts := typedqueue.RunOptions[int]{Workers: 3}
				_ = q.Run(s.Context(), opts, func(context.Context, int) error { return nil })
			},
		}
		for _, get := range getters {
			go get()
		}
		synctest.Wait()
		for key := range 10 {
			s.add("Add", key, 1)
		}
		s.step("AddAll", 6, func() { q.AddAll(1, 2, 3, 4, 5, 6, 7, 8) })
		s.add("Add", 9, 1)
		s.step("ShutDownWithDrain", 6, q.ShutDownWithDrain)
	})
}

// TestWakeUps_Load: on real threads, whoever runs when, no more wake-ups come than items, and one
// when each worker gives up. There are more workers than items at any time, so that some sleep.
func TestWakeUps_Load(t *testing.T) {
	const producers, items = 4, 250
	for _, sub := range subjects {
		t.Run(sub.name, func(t *testing.T) {
			s := sub.make()
			steps := traced(t, func() {
				ctx, giveUp := context.WithCancel(t.Context())
				took := make(chan bool)
				var consuming, producing sync.WaitGroup
				for range workers {
					consuming.Go(func() {
						for s.take(ctx, func() { took <- true }) == nil {
						}
					})
				}
				for p := range producers {
					producing.Go(func() {
						for i := range items {
							s.add(p*items + i)
							<-took
						}
					})
				}
				producing.Wait()
				giveUp()
				consuming.Wait()
			})
			if n := steps[0].total(); n > producers*items+workers {
				t.Errorf("%d wake-ups for %d items and %d workers", n, producers*items, workers)
			}
		})
	}
}
