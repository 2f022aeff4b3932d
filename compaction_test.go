package typedqueue

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// The tests here move entries to other slots, as happens once most of a burst has left, while
// something else still goes by where they were. Each says in which state an entry is moved; the
// property tests come by these states now and then, but not in each run.

// burst is so many keys that their leaving moves the entry that came after them.
const burst = 2 * sparsity * slotsKeep

// fillers are burst keys other than 0.
func fillers() []int {
	keys := make([]int, burst)
	for i := range keys {
		keys[i] = i + 1
	}
	return keys
}

// moveZero adds a burst, then calls bring, which makes 0 known, and takes the burst back. That gives
// 0 another slot. It needs a bubble.
func moveZero(t *testing.T, q *DelayingQueue[int], bring func()) {
	t.Helper()
	q.AddAll(fillers()...)
	time.Sleep(time.Minute) // so that 0 has times of its own
	bring()
	before := slotOfZero(q)
	for _, key := range fillers() {
		q.Cancel(key)
	}
	if after := slotOfZero(q); after == before {
		t.Fatalf("0 is in slot %d as before", after)
	}
}

func slotOfZero(q *DelayingQueue[int]) ref { return q.entries.find(hashOf(0), 0).ref }

// getZero gets 0, which must be there with a priority.
func getZero(t *testing.T, q *DelayingQueue[int], want int) {
	t.Helper()
	if q.Len() == 0 {
		t.Fatal("nothing is ready")
	}
	if key, priority, _ := q.GetWithPriority(); key != 0 || priority != want {
		t.Errorf("GetWithPriority = %d, priority %d; want 0, priority %d", key, priority, want)
	}
}

func TestMoved_ReadyAndWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewDelayingQueue[int](Options{})
		moveZero(t, q, func() { q.AddWithPriority(0, 3); q.AddAfter(0, time.Hour) })
		getZero(t, q, 3)
		q.Done(0)
		time.Sleep(time.Hour)
		synctest.Wait()
		getZero(t, q, 0)
		if n := q.Waiting(); n != 0 {
			t.Errorf("%d wait", n)
		}
	})
}

// A retry has the priority that the item was handed out with (T7), and its age, too.
func TestMoved_Processing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewDelayingQueue[int](Options{TrackTime: true})
		moveZero(t, q, func() {
			q.AddWithPriority(0, 3)
			getZero(t, q, 3)
			time.Sleep(time.Hour)
		})
		if s := q.Stats(); s.LongestProcessing != time.Hour {
			t.Errorf("in processing for %v, want 1h", s.LongestProcessing)
		}
		q.AddAfter(0, 0)
		q.Done(0)
		getZero(t, q, 3)
	})
}

func TestMoved_ReadyKeepsItsAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var waited time.Duration
		q := NewDelayingQueue[int](Options{Metrics: Metrics{Waited: func(d time.Duration) { waited = d }}})
		moveZero(t, q, func() { q.Add(0); time.Sleep(time.Hour) })
		getZero(t, q, 0)
		if waited != time.Hour {
			t.Errorf("ready for %v, want 1h", waited)
		}
	})
}

// A key that is in hand moves, and another one that is in hand gets its slot: each ends its own.
func TestMoved_InHandAndItsSlotTakenAgain(t *testing.T) {
	q := NewFIFO(func(key int) (int, error) { return key, nil })
	slotOf := func(key int) ref { return q.entries.find(hashOf(key), key).ref }
	pop := func(want int, process func()) {
		t.Helper()
		_, err := q.Pop(t.Context(), func(key, _ int, _ bool) error {
			if key != want {
				t.Fatalf("popped %d, want %d", key, want)
			}
			process()
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	replace := func(keys ...int) {
		if err := q.Replace(keys); err != nil {
			t.Fatal(err)
		}
	}
	replace(fillers()...)
	replace(append([]int{0}, fillers()...)...) // 0 is first in line and last in the table
	was := slotOf(0)
	end, ended := make(chan bool), make(chan bool)
	popped := make(chan bool)
	go func() {
		defer close(ended)
		pop(0, func() { close(popped); <-end })
	}()
	<-popped
	replace() // all others leave
	replace(fillers()...)
	other := q.entries.at(was).key
	if other == 0 || slotOf(other) != was {
		t.Fatalf("slot %d, where 0 was, is not taken again", was)
	}
	replace(append([]int{other}, fillers()...)...)
	pop(other, func() {
		close(end)
		<-ended
		if s := q.Stats(); s.Processing != 1 || !q.entries.slot(was).is(processing) {
			t.Errorf("%d in processing, %d among them: %t", s.Processing, other, q.entries.slot(was).is(processing))
		}
	})
	if s := q.Stats(); s.Processing != 0 {
		t.Errorf("%d in processing at the end", s.Processing)
	}
}

// While a key is in hand, all others leave, and with them the slot that it had; or others come then,
// and its slot is there again, and free.
func TestMoved_InHandAndItsSlotFree(t *testing.T) {
	for _, again := range []bool{false, true} {
		q := NewFIFO(func(key int) (int, error) { return key, nil })
		slotOf := func(key int) ref { return q.entries.find(hashOf(key), key).ref }
		replace := func(keys []int) {
			if err := q.Replace(keys); err != nil {
				t.Fatal(err)
			}
		}
		replace(fillers())
		replace(append([]int{0}, fillers()...)) // 0 is first in line and last in the table
		_, err := q.Pop(t.Context(), func(key, _ int, _ bool) error {
			was := slotOf(0)
			replace(nil)
			if used := q.entries.used; key != 0 || used >= was {
				t.Fatalf("%d is in hand, and %d slots are used; want 0, and fewer than %d", key, used, was)
			}
			if !again {
				return nil
			}
			replace(fillers())
			if err := q.DeleteKey(q.entries.at(was).key); err != nil {
				return err
			}
			if e := q.entries.at(was); e.key != 0 || slotOf(0) == was {
				t.Fatalf("slot %d has key %d", was, e.key)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if s := q.Stats(); s.Processing != 0 || q.entries.find(hashOf(0), 0).found() {
			t.Errorf("%d in processing at the end", s.Processing)
		}
	}
}

// A burst that is deleted key by key gives its slots back as one that is popped does.
func TestFIFO_Q9_DeletedBurst(t *testing.T) {
	q := NewFIFO(func(key int) (int, error) { return key, nil })
	if err := q.Replace(fillers()); err != nil {
		t.Fatal(err)
	}
	for _, key := range fillers() {
		if err := q.DeleteKey(key); err != nil {
			t.Fatal(err)
		}
	}
	if used := q.entries.used; used > slotsKeep {
		t.Errorf("%d slots are used, and none is needed", used)
	}
}

// What has been given back is not held by the list of what is there, either.
func TestQueue_Q9_ChunksAreLetGo(t *testing.T) {
	q := NewQueue[int](Options{})
	q.AddAll(fillers()...)
	all := len(q.entries.chunks)
	for _, key := range fillers() {
		q.Cancel(key)
	}
	chunks := q.entries.chunks
	if len(chunks) >= all {
		t.Fatalf("%d chunks are there, after %d", len(chunks), all)
	}
	for i, c := range chunks[len(chunks):cap(chunks)] {
		if c != nil {
			t.Errorf("chunk %d is held", len(chunks)+i)
		}
	}
}

// A Replace that fails when it has made room for its keys gives that back.
func TestDeltaFIFO_Q9_FailedReplace(t *testing.T) {
	q := NewDeltaFIFO(func(key int) (int, error) { return key, nil }, DeltaFIFOOptions[int, int]{
		Merge: func(Deltas[int], Delta[int]) Deltas[int] { panic("typedqueue: (not really)") },
	})
	wantLinePanic(t, "Replace", func() { _ = q.Replace(fillers()) })
	if used := q.entries.used; used > slotsKeep {
		t.Errorf("%d slots are used, and none is needed", used)
	}
}

// What a DeltaFIFO notes of a key in hand is moved as what is pending is.
func TestMoved_DeltaInHand(t *testing.T) {
	q := NewDeltaFIFO(func(o Delta[int]) (int, error) { return o.Object, nil }, DeltaFIFOOptions[int, Delta[int]]{})
	zero := Delta[int]{Type: "seen"}
	if err := q.Add(zero); err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	_, err := q.Pop(ctx, func(int, Deltas[Delta[int]], bool) error {
		for range burst {
			_ = q.Update(Delta[int]{Object: 1})
		}
		_, err := q.Pop(ctx, func(int, Deltas[Delta[int]], bool) error { return nil })
		if err != nil {
			return err
		}
		return q.DeleteKey(0)
	})
	if err != nil {
		t.Fatal(err)
	}
	if deltas, _ := q.GetByKey(0); len(deltas) != 1 || deltas[0].Object != zero {
		t.Errorf("pending is %v, want the deletion of %v", deltas, zero)
	}
}

// lateContext is a context that is done, and whose Err says so only once it is told to.
type lateContext struct {
	context.Context
	done, ask chan struct{}
}

func (c lateContext) Done() <-chan struct{} { return c.done }

func (c lateContext) Err() error {
	select {
	case <-c.done:
		<-c.ask
		return context.Canceled
	default:
		return nil
	}
}

// A getter that gives up just before it is woken leaves no wake-up behind for whoever sleeps next
// in its place: that one would find its channel full, and whoever wakes it would hang.
func TestQueue_Q8_NoWakeUpIsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue[int](Options{})
		ctx := lateContext{t.Context(), make(chan struct{}), make(chan struct{})}
		ended := make(chan error)
		go func() {
			_, err := q.GetContext(ctx)
			ended <- err
		}()
		synctest.Wait()
		close(ctx.done) // it gives up
		synctest.Wait()
		q.Add(1) // and is woken
		close(ctx.ask)
		if err := <-ended; err != context.Canceled {
			t.Errorf("GetContext = %v, want %v", err, context.Canceled)
		}
		q.mu.Lock()
		defer q.mu.Unlock()
		for s := q.getters.spare; s != nil; s = s.next {
			if len(s.wake) > 0 {
				t.Error("a spare sleeper has a wake-up")
			}
		}
	})
}

// The chain of an entry begins beyond the places that are left, and goes on at the last of them,
// which stays where it is.
func TestCatalog_CompactLeavesTheLastPlace(t *testing.T) {
	var c catalog[int]
	c.file(2, []int{10})
	c.file(3, []int{11})
	c.file(4, []int{12})
	c.file(1, []int{20}) // place 4
	c.file(3, nil)
	c.file(1, []int{20, 21}) // and place 2
	c.file(2, nil)
	c.file(4, nil)
	c.compact()
	for _, v := range []int{20, 21} {
		if m := c.members(hashOf(v), v); len(m) != 1 || m[0] > 2 || c.at(m[0]).entry != 1 {
			t.Errorf("places of %d: %v", v, m)
		}
	}
	if c.used != 2 || c.n != 2 {
		t.Errorf("%d places, %d slots are used; want 2", c.n, c.used)
	}
}
