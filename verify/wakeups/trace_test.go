package wakeups

import (
	"bytes"
	"context"
	"io"
	rt "runtime/trace"
	"strings"
	"testing"

	"golang.org/x/exp/trace"
)

// woken tells how often each goroutine was woken that slept in the package: in a getter, or in
// a drain.
type woken map[trace.GoID]int

func (w woken) total() (n int) {
	for _, times := range w {
		n += times
	}
	return n
}

// traced runs f and returns who was woken in each step that f began meanwhile. The first is
// the time before any step.
func traced(t *testing.T, f func()) []woken {
	var buf bytes.Buffer
	if err := rt.Start(&buf); err != nil {
		t.Fatal(err)
	}
	func() {
		defer rt.Stop()
		f()
	}()
	r, err := trace.NewReader(&buf)
	if err != nil {
		t.Fatal(err)
	}
	asleep, steps := map[trace.GoID]bool{}, []woken{{}}
	for {
		ev, err := r.ReadEvent()
		switch {
		case err == io.EOF:
			return steps
		case err != nil:
			t.Fatal(err)
		case ev.Kind() == trace.EventLog && ev.Log().Category == beginning:
			steps = append(steps, woken{})
		case ev.Kind() == trace.EventStateTransition && ev.StateTransition().Resource.Kind == trace.ResourceGoroutine:
			if id, ok := wakes(asleep, ev); ok {
				steps[len(steps)-1][id]++
			}
		}
	}
}

// beginning is the category of the log entries by which the trace is told that a step begins.
const beginning = "step"

func beginStep(name string) { rt.Log(context.Background(), beginning, name) }

// wakes keeps asleep up to date, and reports whether a goroutine that is in it wakes.
func wakes(asleep map[trace.GoID]bool, ev trace.Event) (id trace.GoID, ok bool) {
	st := ev.StateTransition()
	id = st.Resource.Goroutine()
	switch from, to := st.Goroutine(); {
	case to == trace.GoWaiting:
		asleep[id] = sleepsInPackage(ev.Stack())
	case from == trace.GoWaiting:
		ok = asleep[id]
		delete(asleep, id)
	}
	return id, ok
}

// sleepsInPackage reports whether it is the package's own code that waits: not for a mutex,
// nor inside a function of somebody else's that it calls.
func sleepsInPackage(stack trace.Stack) bool {
	for frame := range stack.Frames() {
		if !strings.HasPrefix(frame.Func, "runtime.") {
			return strings.HasPrefix(frame.Func, "example.com/typedqueue.")
		}
	}
	return false
}
