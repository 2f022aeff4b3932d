package wakeups

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// faults are what the tests here must see. Each is an edit of a file of the package, that has
// an effect only while the environment names the fault: so one build serves all of them.
var faults = []struct {
	name     string
	file     string
	old, new string
	test     string // one that must see it
}{
	{"herd", "queue.go",
		`c.getters.woken < c.ready() {`,
		`(c.getters.woken < c.ready() || fault == "herd" && c.ready() > 0) {`,
		"TestWakeUps/one_by_one/Queue"},
	{"only the first of many wakes", "queue.go",
		`if c.getters.first != nil {
		c.wake()`,
		`if c.getters.first != nil && !(fault == "only the first of many wakes" && c.ready() > 1) {
		c.wake()`,
		"TestWakeUps/many_at_once/Queue"},
	{"who gives up keeps a wake-up", "queue.go",
		`if err != nil || panics {`,
		`if fault != "who gives up keeps a wake-up" && (err != nil || panics) {`,
		"TestWakeUps/gives_up/FIFO"},
	{"who gives up wakes the next in any case", "queue.go",
		`			c.wake()
		}
		if panics {`,
		`			c.wake()
			if fault == "who gives up wakes the next in any case" && c.getters.first != nil {
				c.getters.wakeOne()
			}
		}
		if panics {`,
		"TestWakeUps/gives_up_when_woken/DeltaFIFO"},
	{"merged Add wakes", "queue.go",
		`	case e.is(dirty):
		if priority`,
		`	case e.is(dirty):
		if fault == "merged Add wakes" && c.getters.first != nil {
			c.getters.wakeOne()
		}
		if priority`,
		"TestWakeUps/on_its_way/FIFO"},
	{"Add of what is in hand wakes", "queue.go",
		`	default:
		e.marks |= dirty
`,
		`	default:
		e.marks |= dirty
		if fault == "Add of what is in hand wakes" && c.getters.first != nil {
			c.getters.wakeOne()
		}
`,
		"TestWakeUps/in_hand/DeltaFIFO"},
	{"Cancel wakes", "queue.go",
		`	e.marks &^= dirty
	c.release(e)`,
		`	if fault == "Cancel wakes" && c.getters.first != nil {
		c.getters.wakeOne()
	}
	e.marks &^= dirty
	c.release(e)`,
		"TestWakeUps/wait_ends_early/DelayingQueue"},
	{"a second drain ends the first", "queue.go",
		`	if c.closed {
		return
	}
	c.closed = true`,
		`	if c.closed {
		if fault == "a second drain ends the first" {
			c.releaseDrains()
		}
		if fault == "the end wakes one" {
			c.getters.wakeAll() // so that no bubble hangs
		}
		return
	}
	c.closed = true`,
		"TestWakeUps/drain/Queue"},
	{"the end wakes one", "queue.go",
		`	c.getters.wakeAll()
}`,
		`	if fault == "the end wakes one" && c.getters.first != nil {
		c.getters.wakeOne()
		return
	}
	c.getters.wakeAll()
}`,
		"TestWakeUps/end/FIFO"},
	{"every Done wakes drains", "queue.go",
		`if c.drains != nil && c.idle() {`,
		`if c.drains != nil && (c.idle() || fault == "every Done wakes drains") {`,
		"TestWakeUps/drain/Queue"},
	{"ShutDown leaves drains asleep", "queue.go",
		`	q.shutDown()
	q.releaseDrains()`,
		`	q.shutDown()
	if fault != "ShutDown leaves drains asleep" {
		q.releaseDrains()
	}`,
		"TestWakeUps/drain_is_released/Queue"},
	{"newest sleeper first", "queue.go",
		`s := l.first
	l.unlink`,
		`s := l.first
	if fault == "newest sleeper first" {
		s = l.last
	}
	l.unlink`,
		"TestTurns/Queue"},
	{"the timer wakes", "delaying.go",
		`	q.dueBy(now)
`,
		`	q.dueBy(now)
	if fault == "the timer wakes" && q.getters.first != nil {
		q.getters.wakeOne()
	}
`,
		"TestWakeUps/wait_ends_early/DelayingQueue"},
}

const faultVariable = "TYPEDQUEUE_FAULT"

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
	dir := t.TempDir()
	replace := map[string]string{}
	for file, text := range faultyFiles(t) {
		path, err := filepath.Abs(filepath.Join("../..", file))
		if err != nil {
			t.Fatal(err)
		}
		replace[path] = filepath.Join(dir, file)
		if err := os.WriteFile(replace[path], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	overlayFile, binary := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "wakeups.test")
	if err := os.WriteFile(overlayFile, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "test", "-c", "-overlay", overlayFile, "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("go test -c: %v\n%s", err, out)
	}
	return binary
}

// faultyFiles returns the files that have faults, with all of them.
func faultyFiles(t *testing.T) map[string]string {
	texts := map[string]string{}
	for _, f := range faults {
		if texts[f.file] == "" {
			text, err := os.ReadFile(filepath.Join("../..", f.file))
			if err != nil {
				t.Fatal(err)
			}
			texts[f.file] = string(text)
		}
		if n := strings.Count(texts[f.file], f.old); n != 1 {
			t.Fatalf("fault %q: what it changes is %d times in %s", f.name, n, f.file)
		}
		texts[f.file] = strings.Replace(texts[f.file], f.old, f.new, 1)
	}
	texts["queue.go"] = strings.Replace(texts["queue.go"], "import (", `import (
	"os"`, 1) + "\nvar fault = os.Getenv(\"" + faultVariable + "\")\n"
	return texts
}

var result = regexp.MustCompile(`--- (PASS|FAIL): (\S+)`)

// results runs the tests that count with a fault, and tells which of them passed, those alone
// that have no subtests.
func results(t *testing.T, binary, fault string) map[string]bool {
	cmd := exec.Command(binary, "-test.v", "-test.run", "^(TestWakeUps|TestTurns)", "-test.timeout", "1m")
	cmd.Env = append(os.Environ(), faultVariable+"="+fault)
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
