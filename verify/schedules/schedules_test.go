package schedules

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	_ "example.com/typedqueue/verify/linear" // so go test knows that results depend on it, and on the package under test
	"example.com/typedqueue/verify/overlay"
)

// pausing makes the core's mutex one that pauses.
var pausing = []overlay.Edit{
	overlay.In("queue.go", "\tmu sync.Mutex ", "\tmu pausingMutex "),
	overlay.In("queue.go", "// ErrShutDown is returned", "var _ sync.Mutex // so the import is used\n\n// ErrShutDown is returned"),
}

// pause is added to the package under test.
const pause = `package typedqueue

import (
	"sync"
	"time"
)

// Pause, if not nil, is called before each lock and after each unlock.
var Pause func()

type pausingMutex struct{ sync.Mutex }

func (m *pausingMutex) Lock() {
	if Pause == nil {
		m.Mutex.Lock()
		return
	}
	for range 10 {
		Pause()
		if m.Mutex.TryLock() {
			return
		}
		time.Sleep(1)
	}
	panic("a lock is not given back: its holder sleeps, or has panicked")
}

func (m *pausingMutex) Unlock() {
	m.Mutex.Unlock()
	if Pause != nil {
		Pause()
	}
}
`

// faults are what must be found, and the kind of queue in whose schedules.
var faults = []struct {
	name, kind string
	edit       overlay.Edit
}{
	{"a getter that gives up keeps its wake-up", "Queue", overlay.In("queue.go", "if err != nil || panics {", "if (err != nil || panics) && fault != $ {")},
	{"a getter looks, and then goes to sleep", "Queue", gap("queue.go", "c", "if err := c.sleep(ctx); err != nil {")},
	{"a getter does not look again", "Queue", gap("queue.go", "q", "item, priority = q.handOut()")},
	{"a drain looks before it registers", "Queue", gap("queue.go", "q", "if q.drains == nil {")},
	{"AddAll adds one by one", "Queue", gap("queue.go", "q", "q.count(q.add(q.need(hashOf(item), item), 0, now))")},
	{"an Add does not look again whether it is closed", "Queue", gap("queue.go", "q", "q.count(q.add(q.need(hash, item), priority, now))")},
	{"Reschedule is two steps", "Queue", gap("delaying.go", "q", "q.addLater(q.need(hash, item), delay, priority{}, now)")},
	{"what is due waits no more and is not ready yet", "Queue", overlay.In("delaying.go", "q.dueBy(now)", dueInTwoSteps)},
	{"a timer is not set anew", "Queue", overlay.In("delaying.go", "q.alarm <= at {", "(q.alarm <= at || fault == $) {")},
	{"a write does not look again whether it is closed", "FIFO", gap("fifo.go", "l", "return nil\n}\n\n// written says")},
	{"a deletion while a key is in hand is forgotten", "FIFO", overlay.In("fifo.go", "e.acc.forgotten = true", "e.acc.forgotten = fault != $")},
	{"a Pop does not look again", "DeltaFIFO", gap("fifo.go", "l", "e := l.get()")},
	{"what is put back goes behind what came meanwhile", "DeltaFIFO", overlay.In("deltafifo.go", "later := q.pending(e)",
		"later := q.pending(e); if fault == $ { deltas, later = later, deltas }")},
	{"a deletion looks, and then deletes", "DeltaFIFO", overlay.In("deltafifo.go", "if d.label == nil {",
		"if fault == $ { q.mu.Unlock(); q.mu.Lock(); e = q.entries.find(hash, key) }; if d.label == nil {")},
}

// gap lets others act in front of a statement that needs the lock of q.
func gap(file, q, statement string) overlay.Edit {
	return overlay.In(file, statement, fmt.Sprintf("if fault == $ { %s.mu.Unlock(); %[1]s.mu.Lock() }; %s", q, statement))
}

const dueInTwoSteps = `
	for fault == $ && q.waits.len() > 0 && q.waits.top().at <= now {
		e := q.entries.slot(q.waits.top().id)
		item, priority := e.key, q.endWait(e)
		q.release(e)
		q.mu.Unlock()
		q.mu.Lock()
		if !q.closed {
			q.add(q.need(hashOf(item), item), priority, now)
		}
	}
	q.dueBy(now)`

// build builds the tests of this package, with a package under test whose mutex pauses.
func build(t *testing.T, faults ...overlay.Fault) (binary string) {
	t.Helper()
	if _, err := os.ReadFile("drawn_test.go"); err != nil { // so go test knows that results depend on it
		t.Fatal(err)
	}
	c := overlay.Changes{Edits: pausing, Faults: faults, Added: map[string]string{"pause.go": pause}}
	return overlay.Build(t, ".", c, "-tags", "schedules")
}

// run runs one test of a binary.
func run(binary, test string, env ...string) (out string, err error) {
	cmd := exec.Command(binary, "-test.v", "-test.timeout=5m", "-test.run=^"+test+"$")
	cmd.Env = append(os.Environ(), env...)
	b, err := cmd.CombinedOutput()
	return string(b), err
}

var seed = regexp.MustCompile(`-rapid\.seed=(\d+)`)

// TestSchedules draws schedules for each kind of queue, and some that it runs twice. RAPID_CHECKS
// says how many; what else rapid reads from the environment holds too.
func TestSchedules(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"RAPID_SEED", "RAPID_FAILFILE", "RAPID_SHRINKTIME"} {
		os.Getenv(name) // so go test knows that its result depends on them
	}
	var env []string
	if os.Getenv("RAPID_CHECKS") == "" {
		env = []string{"RAPID_CHECKS=20000"}
	}
	binary := build(t)
	for _, kind := range []string{"Queue", "FIFO", "DeltaFIFO", "Twice"} {
		t.Run(kind, func(t *testing.T) {
			out, err := run(binary, "TestDrawn"+kind, env...)
			if err == nil {
				t.Log(out)
				return
			}
			t.Errorf("%v\n%s", err, out)
			if s := seed.FindStringSubmatch(out); s != nil {
				t.Errorf("to replay it, in this folder: RAPID_SEED=%s go test -run '^TestSchedules$/^%s$' .", s[1], kind)
			}
		})
	}
}

// TestSeededFaults: each fault is found, and shrinks to a timetable that can be read.
func TestSeededFaults(t *testing.T) {
	t.Parallel()
	var all []overlay.Fault
	for _, f := range faults {
		all = append(all, overlay.Fault{Name: f.name, Edit: f.edit})
	}
	binary := build(t, all...)
	slots := make(chan struct{}, 2)
	var looking sync.WaitGroup
	for _, f := range faults {
		looking.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			mustFind(t, binary, f.name, f.kind)
		})
	}
	looking.Wait()
}

// mustFind runs one test with a fault switched on. Whatever the environment says, it looks long
// enough.
func mustFind(t *testing.T, binary, fault, kind string) {
	const longest = 12
	start := time.Now()
	out, err := run(binary, "TestDrawn"+kind, overlay.On(fault),
		"RAPID_CHECKS=200000", "RAPID_SHRINKTIME=30s", "RAPID_NOFAILFILE=true", "RAPID_FAILFILE=", "RAPID_SEED=0")
	switch lines := timetable(out); {
	case err == nil:
		t.Errorf("%s: not found", fault)
	case len(lines) == 0 || len(lines) > longest:
		t.Errorf("%s: a timetable of %d lines, %v\n%s", fault, len(lines), err, out)
	default:
		t.Logf("%s, found and shrunk in %v:\n%s", fault, time.Since(start).Round(time.Millisecond), strings.Join(lines, "\n"))
	}
}

// timetable returns the lines of the last timetable in a test's output.
func timetable(out string) (lines []string) {
	_, out, _ = strings.Cut(out[max(0, strings.LastIndex(out, "timetable:")):], "\n")
	for line := range strings.Lines(out) {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "round") {
			break
		}
		lines = append(lines, line)
	}
	return lines
}
