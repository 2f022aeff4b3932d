package wakeups

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"example.com/typedqueue/verify/overlay"
)

// faults are what the tests here must see, and for each a test that must see it.
var faults = []struct {
	name string
	edit overlay.Edit
	test string
}{
	{"herd", overlay.In("queue.go",
		`c.getters.woken < c.ready() {`,
		`(c.getters.woken < c.ready() || fault == $ && c.ready() > 0) {`),
		"TestWakeUps/one_by_one/Queue"},
	{"only the first of many wakes", overlay.In("queue.go",
		`if c.getters.first != nil {
		c.wake()`,
		`if c.getters.first != nil && !(fault == $ && c.ready() > 1) {
		c.wake()`),
		"TestWakeUps/many_at_once/Queue"},
	{"who gives up keeps a wake-up", overlay.In("queue.go",
		`if err != nil || panics {`,
		`if fault != $ && (err != nil || panics) {`),
		"TestWakeUps/gives_up/FIFO"},
	{"who gives up wakes the next in any case", overlay.In("queue.go",
		`			c.wake()
		}
		if panics {`,
		`			c.wake()
			if fault == $ && c.getters.first != nil {
				c.getters.wakeOne()
			}
		}
		if panics {`),
		"TestWakeUps/gives_up_when_woken/DeltaFIFO"},
	{"merged Add wakes", overlay.In("queue.go",
		`	case e.is(dirty):
		if priority`,
		`	case e.is(dirty):
		if fault == $ && c.getters.first != nil {
			c.getters.wakeOne()
		}
		if priority`),
		"TestWakeUps/on_its_way/FIFO"},
	{"Add of what is in hand wakes", overlay.In("queue.go",
		`	default:
		e.marks |= dirty
`,
		`	default:
		e.marks |= dirty
		if fault == $ && c.getters.first != nil {
			c.getters.wakeOne()
		}
`),
		"TestWakeUps/in_hand/DeltaFIFO"},
	{"Cancel wakes", overlay.In("queue.go",
		`	e.marks &^= dirty
	c.release(e)`,
		`	if fault == $ && c.getters.first != nil {
		c.getters.wakeOne()
	}
	e.marks &^= dirty
	c.release(e)`),
		"TestWakeUps/wait_ends_early/DelayingQueue"},
	{"a second drain ends the first", overlay.In("queue.go",
		`	c.closed = true
`,
		`	if fault == $ && c.closed {
		c.releaseDrains()
	}
	if fault == "the end wakes one" && c.closed {
		c.getters.wakeAll() // so that no bubble hangs
	}
	c.closed = true
`),
		"TestWakeUps/drain/Queue"},
	{"the end wakes one", overlay.In("queue.go",
		`	c.getters.wakeAll()
}`,
		`	if fault == $ && c.getters.first != nil {
		c.getters.wakeOne()
		return
	}
	c.getters.wakeAll()
}`),
		"TestWakeUps/end/FIFO"},
	{"every Done wakes drains", overlay.In("queue.go",
		`if c.idle() {`,
		`if c.idle() || fault == $ {`),
		"TestWakeUps/drain/Queue"},
	{"ShutDown leaves drains asleep", overlay.In("queue.go",
		`	q.shutDown()
	q.releaseDrains()`,
		`	q.shutDown()
	if fault != $ {
		q.releaseDrains()
	}`),
		"TestWakeUps/drain_is_released/Queue"},
	{"newest sleeper first", overlay.In("queue.go",
		`s := l.first
	l.unlink`,
		`s := l.first
	if fault == $ {
		s = l.last
	}
	l.unlink`),
		"TestTurns/Queue"},
	{"the timer wakes", overlay.In("delaying.go",
		`	q.dueBy(now)
`,
		`	q.dueBy(now)
	if fault == $ && q.getters.first != nil {
		q.getters.wakeOne()
	}
`),
		"TestWakeUps/wait_ends_early/DelayingQueue"},
}

// TestSelf builds the tests with the faults in the package. Every fault must be seen by the
// test that it names, and every test must see some fault; without one, all must pass.
func TestSelf(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the tests anew")
	}
	binary := buildWithFaults(t)
	all := results(t, binary, "none")
	for name, passed := range all {
		if !passed {
			t.Errorf("%s fails without a fault", name)
		}
	}
	unseen := maps.Clone(all)
	for _, f := range faults {
		got := results(t, binary, f.name)
		if passed, ran := got[f.test]; passed || !ran {
			t.Errorf("fault %q: %s ran: %t, and passed: %t", f.name, f.test, ran, passed)
		}
		maps.DeleteFunc(unseen, func(name string, _ bool) bool {
			passed, ran := got[name]
			return ran && !passed
		})
	}
	for name := range unseen {
		if !strings.HasPrefix(name, "TestWakeUps_Load/") { // there it is chance
			t.Errorf("%s sees no fault", name)
		}
	}
}

// buildWithFaults returns the path of a test binary of this folder.
func buildWithFaults(t *testing.T) string {
	var c overlay.Changes
	for _, f := range faults {
		c.Faults = append(c.Faults, overlay.Fault{Name: f.name, Edit: f.edit})
	}
	return overlay.Build(t, ".", c)
}

var result = regexp.MustCompile(`--- (PASS|FAIL): (\S+)`)

// results runs the tests that count with a fault, and tells which of them passed, those alone
// that have no subtests.
func results(t *testing.T, binary, fault string) map[string]bool {
	cmd := exec.Command(binary, "-test.v", "-test.run", "^(TestWakeUps|TestTurns)", "-test.timeout", "1m")
	cmd.Env = append(os.Environ(), overlay.On(fault))
	out, err := cmd.CombinedOutput()
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
		t.Fatal(err)
	}
	passed, parents := map[string]bool{}, map[string]bool{}
	for _, m := range result.FindAllStringSubmatch(string(out), -1) {
		passed[m[2]] = m[1] == "PASS"
		for at, c := range m[2] {
			if c == '/' {
				parents[m[2][:at]] = true
			}
		}
	}
	maps.DeleteFunc(passed, func(name string, _ bool) bool { return parents[name] })
	if len(passed) == 0 || strings.Contains(string(out), "panic:") {
		t.Errorf("fault %q: the tests did not run to the end:\n%s", fault, out)
	}
	return passed
}
