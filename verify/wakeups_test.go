package verify

import (
	"bytes"
	"context"
	"io"
	rt "runtime/trace"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/exp/trace"

	"example.com/typedqueue"
)

// wakeUps runs f, in a bubble, and returns how often a goroutine that slept in a getter was
// woken meanwhile. No model can see a herd that wakes for one item; the runtime's own trace
// can.
func wakeUps(t *testing.T, f func(t *testing.T)) int {
	var buf bytes.Buffer
	if err := rt.Start(&buf); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, f)
	rt.Stop()

	r, err := trace.NewReader(&buf)
	if err != nil {
		t.Fatal(err)
	}
	asleep, woken := map[trace.GoID]bool{}, 0
	for {
		ev, err := r.ReadEvent()
		if err == io.EOF {
			return woken
		}
		if err != nil {
			t.Fatal(err)
		}
		if ev.Kind() != trace.EventStateTransition || ev.StateTransition().Resource.Kind != trace.ResourceGoroutine {
			continue
		}
		st := ev.StateTransition()
		id := st.Resource.Goroutine()
		switch from, to := st.Goroutine(); {
		case to == trace.GoWaiting:
			asleep[id] = st.Reason != "sync" && sleepsInGetter(ev.Stack())
		case from == trace.GoWaiting:
			if asleep[id] {
				woken++
			}
			delete(asleep, id)
		}
	}
}

// sleepsInGetter reports whether a goroutine is in the function that lets getters sleep. There
// it may also wait for the queue's mutex, which is another thing, with the reason "sync".
func sleepsInGetter(stack trace.Stack) bool {
	for frame := range stack.Frames() {
		if strings.Contains(frame.Func, "typedqueue.") && strings.HasSuffix(frame.Func, ".sleep") {
			return true
		}
	}
	return false
}

const getters = 8

// startGetters starts getters that take items until the queue is shut down or ctx is done.
func startGetters(ctx context.Context, q *typedqueue.DelayingQueue[int]) {
	for range getters {
		go func() {
			for item := range q.Consume(ctx) {
				_ = item
			}
		}()
	}
	synctest.Wait()
}

// TestOneWakeUpPerItem: each Add wakes one getter, and ShutDown each of them once.
func TestOneWakeUpPerItem(t *testing.T) {
	const items = 10
	got := wakeUps(t, func(t *testing.T) {
		q := typedqueue.NewDelayingQueue[int](typedqueue.Options{})
		startGetters(t.Context(), q)
		for i := range items {
			q.Add(i)
			synctest.Wait()
		}
		q.ShutDown()
	})
	if want := items + getters; got != want {
		t.Errorf("%d wake-ups for %d items and a shutdown of %d getters, want %d", got, items, getters, want)
	}
}

// TestDueItemsWakeAsManyGetters: n items that come due at once wake n getters, or all.
func TestDueItemsWakeAsManyGetters(t *testing.T) {
	for _, items := range []int{3, 30} {
		got := wakeUps(t, func(t *testing.T) {
			q := typedqueue.NewDelayingQueue[int](typedqueue.Options{})
			startGetters(t.Context(), q)
			for i := range items {
				q.AddAfter(i, time.Second)
			}
			time.Sleep(2 * time.Second)
			synctest.Wait()
			q.ShutDown()
		})
		if want := min(items, getters) + getters; got != want {
			t.Errorf("%d wake-ups for %d items due at once, want %d", got, items, want)
		}
	}
}

// TestCancelledGetterPassesItsWakeUpOn: of two getters one gives up just as an item comes. It
// wakes by itself, and the item wakes one other.
func TestCancelledGetterPassesItsWakeUpOn(t *testing.T) {
	got := wakeUps(t, func(t *testing.T) {
		q := typedqueue.NewDelayingQueue[int](typedqueue.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		errs := make(chan error, 1)
		go func() {
			_, err := q.GetContext(ctx)
			errs <- err
		}()
		synctest.Wait() // the first in line
		startGetters(t.Context(), q)
		cancel()
		q.Add(1)
		if err := <-errs; err != context.Canceled {
			t.Errorf("GetContext = %v", err)
		}
		synctest.Wait()
		if n := q.Len(); n != 0 {
			t.Errorf("Q8: %d items are ready, and %d getters asleep", n, getters)
		}
		q.ShutDown()
	})
	if want := 1 + 1 + getters; got != want {
		t.Errorf("%d wake-ups, want %d", got, want)
	}
}
