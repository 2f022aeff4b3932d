//go:build schedules

package schedules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/petermattis/goid"
	"pgregory.net/rapid"

	"example.com/typedqueue"
	"example.com/typedqueue/verify/linear"
)

// step is what a client does at one time.
type step[C any] struct {
	after int // how many rounds it waits before
	pause int // how many rounds it spends in each window of the call
	call  C
}

// maxSteps is how many steps a client makes at most.
const maxSteps = 5

// script is what all do.
type script[C any] struct {
	clients [][]step[C]
	timer   int // how many rounds the timer spends in each window
}

// rounds is the clock that keeps apart when each may act.
type rounds struct {
	start time.Time
	n     int // how many moments a round has

	mu     sync.Mutex // guards pauses
	pauses map[int64]moment
	others moment // of goroutines that are no client's: the timer's
}

// moment is when in a round a goroutine acts, and how many rounds it spends in each window.
type moment struct{ at, pause int }

// set says when the calling goroutine acts.
func (r *rounds) set(m moment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pauses[goid.Get()] = m
}

// pause sleeps until the calling goroutine may act, in as many rounds as it spends in a window.
func (r *rounds) pause() {
	r.mu.Lock()
	m, ok := r.pauses[goid.Get()]
	r.mu.Unlock()
	if !ok {
		m = r.others
	}
	r.sleep(m.at, m.pause)
}

// sleep sleeps until a moment of the round in so many rounds.
func (r *rounds) sleep(at, rounds int) {
	now := int(time.Since(r.start)) % r.n
	if d := (at-now+r.n)%r.n + rounds*r.n; d > 0 {
		time.Sleep(time.Duration(d))
	}
}

// never is a delay that is longer than any run.
const never = time.Hour

// trial is one run of a script.
type trial[C any] struct {
	script[C]
	rounds  *rounds
	history *linear.History
	clients []*linear.Client
	main    *linear.Client
	faults  []any // what each client panicked with
	left    int   // of the clients, guarded by rounds.mu
	do      func(c *linear.Client, call C)
	stop    C // the call that wakes all who sleep
	model   porcupine.Model
	problem string // what went wrong, apart from what the model says
}

func newTrial[C any](s script[C]) *trial[C] {
	r := &rounds{start: time.Now(), n: momentsOf(len(s.clients)), pauses: map[int64]moment{}}
	r.others = moment{timerOf(len(s.clients)), s.timer}
	typedqueue.Pause = r.pause
	x := &trial[C]{script: s, rounds: r, history: linear.NewHistory(), faults: make([]any, len(s.clients)), left: len(s.clients)}
	for range s.clients {
		c := x.history.Client()
		c.Hold = func(rounds int) { time.Sleep(time.Duration(rounds * r.n)) }
		x.clients = append(x.clients, c)
	}
	x.main = x.history.Client()
	r.set(moment{deadlineOf(len(s.clients)), 0})
	return x
}

// The moments of a round: one for each client, one for the timer, one for deadlines and, later,
// the test itself.
func momentsOf(clients int) int  { return clients + 2 }
func timerOf(clients int) int    { return clients }
func deadlineOf(clients int) int { return clients + 1 }

// run runs the script until nothing moves any more, looks at q with some last calls, and stops it.
func (x *trial[C]) run(q queue, closed func() bool, stop C, last ...C) {
	x.stop = stop
	for i := range x.clients {
		go x.act(i)
	}
	x.settle()
	if x.problem = x.panicked(); x.problem != "" {
		return // perhaps with the lock held
	}
	for _, call := range last {
		x.do(x.main, call)
	}
	x.problem = cmp.Or(x.sleepers(q, closed()), x.end(), x.panicked())
}

func (x *trial[C]) settle() {
	x.rounds.sleep(deadlineOf(len(x.clients)), 1000)
	synctest.Wait()
}

func (x *trial[C]) act(i int) {
	defer func() {
		x.faults[i] = recover()
		x.rounds.mu.Lock()
		x.left--
		x.rounds.mu.Unlock()
	}()
	for _, s := range x.script.clients[i] {
		x.rounds.set(moment{i, s.pause})
		x.rounds.sleep(i, 1+s.after)
		x.do(x.clients[i], s.call)
	}
}

// asleep returns how many clients have not returned.
func (x *trial[C]) asleep() int {
	x.rounds.mu.Lock()
	defer x.rounds.mu.Unlock()
	return x.left
}

// panicked says which client has panicked, if any.
func (x *trial[C]) panicked() string {
	for i, p := range x.faults {
		if p != nil {
			return fmt.Sprintf("client %d panicked: %v", i, p)
		}
	}
	return ""
}

// queue is what can be asked of any queue.
type queue interface{ Stats() typedqueue.Stats }

// sleepers says which client sleeps that ought not to, if any, now that nothing moves.
func (x *trial[C]) sleepers(q queue, closed bool) string {
	s := q.Stats()
	for i, c := range x.clients {
		switch op := opOf(c.Open()); op {
		case linear.Get, linear.GetWithPriority, linear.GetContext, linear.Pop:
			if s.Ready > 0 {
				return fmt.Sprintf("Q8: something is ready, and client %d asleep in %s", i, op)
			}
			if closed {
				return fmt.Sprintf("Q6: the queue is shut down, and client %d asleep in %s", i, op)
			}
		case linear.Drain:
			if s.Ready+s.Processing == 0 {
				return fmt.Sprintf("Q7: the queue is idle, and client %d asleep in %s", i, op)
			}
		}
	}
	return ""
}

func opOf(call any) linear.Op {
	switch call := call.(type) {
	case linear.Call:
		return call.Op
	case linear.LineCall:
		return call.Op
	}
	return ""
}

// end stops the queue, again and again until all clients are through, for what a client does after
// it woke may let it sleep anew. It says which client never returns, if any.
func (x *trial[C]) end() string {
	for range maxSteps + 1 {
		x.do(x.main, x.stop)
		x.settle()
		if x.asleep() == 0 {
			return ""
		}
	}
	return "a call never returns"
}

// operations returns the history. The timer may be late by a window before its lock, and by one
// more for each time that it was set by a clock that was read before a window.
func (x *trial[C]) operations() []porcupine.Operation {
	return x.history.Operations(time.Duration(4 * (x.timer + 2) * x.rounds.n))
}

// check fails the test, with a timetable, if anything went wrong.
func (x *trial[C]) check(t *rapid.T) {
	if x.problem == "" && linear.Check(x.model, x.operations()) != porcupine.Ok {
		x.problem = "no order explains what was seen"
	}
	if x.problem != "" {
		t.Logf("timetable:\n%s", x.timetable())
		t.Fatal(x.problem)
	}
}

// timetable lists the calls by when they began. What comes due is listed as the timer's.
func (x *trial[C]) timetable() string {
	ops := x.operations()
	slices.SortStableFunc(ops, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	var b strings.Builder
	n := int64(x.rounds.n)
	for _, op := range ops {
		if op.ClientId == len(x.clients) && opOf(op.Input) == opOf(x.stop) {
			continue // nothing has come of that
		}
		who := fmt.Sprintf("client %d", op.ClientId)
		switch {
		case op.ClientId == len(x.clients):
			who = "at the end"
		case op.ClientId > len(x.clients):
			who = "timer"
		}
		fmt.Fprintf(&b, "round %d to %d, %s: %s\n", op.Call/n, op.Return/n, who, x.model.DescribeOperation(op.Input, op.Output))
	}
	for i, c := range x.clients {
		if c.Open() != nil {
			fmt.Fprintf(&b, "round ?, client %d: %v never returns\n", i, c.Open())
		}
	}
	return b.String()
}

// drawScript draws what all do.
func drawScript[C any](t *rapid.T, roles [][]linear.Op, call func(t *rapid.T, op linear.Op, client, clients int) C) (s script[C]) {
	n := rapid.IntRange(2, 3).Draw(t, "clients")
	for i := range n {
		ops := rapid.SampledFrom(roles[rapid.IntRange(0, len(roles)-1).Draw(t, "role")])
		steps := rapid.Custom(func(t *rapid.T) step[C] {
			return step[C]{
				after: rapid.IntRange(0, 5).Draw(t, "after"),
				pause: rapid.IntRange(0, 2).Draw(t, "pause"),
				call:  call(t, ops.Draw(t, "op"), i, n),
			}
		})
		s.clients = append(s.clients, rapid.SliceOfN(steps, 0, maxSteps).Draw(t, fmt.Sprintf("client %d", i)))
	}
	s.timer = rapid.IntRange(0, 2).Draw(t, "timer's pause")
	return s
}

// drawDelay draws a delay that ends at a moment of its own, if it begins at a client's.
func drawDelay(t *rapid.T, client, clients, at int) time.Duration {
	switch rounds := rapid.SampledFrom([]int{forever, forever, forever, 0, 1, 2, 3, 4, 5, 6, past}).Draw(t, "rounds"); rounds {
	case forever:
		return never
	case past:
		return 0
	default:
		return time.Duration(rounds*momentsOf(clients) + at - client)
	}
}

// Delays that are no number of rounds.
const (
	forever = -1
	past    = -2
)

// queueRoles are what a client may do: anything, or what one kind of client does. An operation is
// drawn as often as it is listed.
var queueRoles = [][]linear.Op{
	{
		linear.Add, linear.Add, linear.Add, linear.Get, linear.Get, linear.GetContext, linear.GetContext, linear.Done, linear.Done,
		linear.Drain, linear.Drain, linear.AddAfter, linear.AddAfter, linear.Cancel, linear.Reschedule, linear.ShutDown,
		linear.AddAll, linear.TryGet, linear.Len, linear.Waiting, linear.AddWithPriority, linear.GetWithPriority,
	},
	{linear.Get, linear.GetContext, linear.GetContext, linear.Done, linear.Done, linear.Drain},
	{linear.Add, linear.AddAll, linear.AddAfter},
}

func drawCall(t *rapid.T, op linear.Op, client, clients int) linear.Call {
	c := linear.Call{Op: op}
	switch c.Op {
	case linear.Get, linear.GetWithPriority, linear.TryGet, linear.Len, linear.Waiting, linear.ShutDown:
		return c
	case linear.GetContext, linear.Drain:
		c.Delay = drawDelay(t, client, clients, deadlineOf(clients))
		return c
	}
	c.Item = rapid.IntRange(0, 1).Draw(t, "item")
	switch c.Op {
	case linear.AddAll:
		c.Also = rapid.IntRange(0, 1).Draw(t, "also")
	case linear.AddWithPriority:
		c.Priority = rapid.IntRange(-1, 1).Draw(t, "priority")
	case linear.AddAfter, linear.Reschedule:
		c.Delay = drawDelay(t, client, clients, timerOf(clients))
	}
	return c
}

// tryQueue runs a script with a DelayingQueue, in the bubble of the caller.
func tryQueue(s script[linear.Call]) *trial[linear.Call] {
	q := typedqueue.NewDelayingQueue[int](typedqueue.Options{})
	x := newTrial(s)
	x.model = linear.QueueModel()
	x.do = func(c *linear.Client, call linear.Call) { c.Do(q, call) }
	x.run(q, q.ShuttingDown, linear.Call{Op: linear.ShutDown}, linear.Call{Op: linear.Len}, linear.Call{Op: linear.Waiting})
	return x
}

func TestDrawnQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawScript(t, queueRoles, drawCall)
		rapid.SyncTest(t, func(t *rapid.T) { tryQueue(s).check(t) })
	})
}

// TestDrawnTwice: what happens is a function of what was drawn. But a Drain that is released while
// its time runs out, in a window, finds both in its select, and says either.
func TestDrawnTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawScript(t, queueRoles, drawCall)
		var runs [2]string
		for i := range runs {
			rapid.SyncTest(t, func(t *rapid.T) {
				runs[i] = strings.ReplaceAll(tryQueue(s).timetable(), string(linear.Closed), string(linear.GaveUp))
			})
		}
		if runs[0] != runs[1] {
			t.Fatalf("two runs of one script:\n%s\nand\n%s", runs[0], runs[1])
		}
	})
}

// lineRoles are queueRoles of FIFO and DeltaFIFO.
var lineRoles = [][]linear.Op{
	{
		linear.Add, linear.Add, linear.Pop, linear.Pop, linear.Pop, linear.Pop, linear.Update, linear.Delete, linear.DeleteKey,
		linear.Replace, linear.Close, linear.AddIfNotPresent, linear.Len, linear.HasSynced, linear.Resync,
	},
	{linear.Pop},
	{linear.Add, linear.Update, linear.Delete, linear.DeleteKey, linear.Replace},
}

// drawLineCall draws objects without versions, which come later.
func drawLineCall(t *rapid.T, op linear.Op, client, clients int) linear.LineCall {
	c := linear.LineCall{Op: op}
	object := rapid.Custom(func(t *rapid.T) linear.Object {
		return linear.Object{Key: rapid.IntRange(0, 1).Draw(t, "key")}
	})
	switch c.Op {
	case linear.Pop:
		c.Delay = drawDelay(t, client, clients, deadlineOf(clients))
		c.Hold = rapid.IntRange(0, 4).Draw(t, "hold")
		c.Outcome = rapid.SampledFrom([]linear.Outcome{linear.Accept, linear.Requeue, linear.Panic}).Draw(t, "outcome")
	case linear.Replace:
		c.Objects = rapid.SliceOfN(object, 0, 2).Draw(t, "objects")
	case linear.Len, linear.HasSynced, linear.Resync, linear.Close:
	default:
		c.Objects = []linear.Object{object.Draw(t, "object")}
	}
	return c
}

// line is a Line that can be asked.
type line interface {
	linear.Line
	queue
	IsClosed() bool
}

// tryLine runs a script with a FIFO or DeltaFIFO, in the bubble of the caller.
func tryLine(s script[linear.LineCall], q line, model porcupine.Model) *trial[linear.LineCall] {
	x := newTrial(s)
	x.model = model
	x.do = func(c *linear.Client, call linear.LineCall) { c.DoLine(q, call) }
	x.run(q, q.IsClosed, linear.LineCall{Op: linear.Close}, linear.LineCall{Op: linear.Len}, linear.LineCall{Op: linear.HasSynced})
	return x
}

func TestDrawnFIFO(t *testing.T) {
	model := linear.FIFOModel()
	rapid.Check(t, func(t *rapid.T) {
		s := drawLineScript(t)
		rapid.SyncTest(t, func(t *rapid.T) { tryLine(s, linear.NewFIFO(), model).check(t) })
	})
}

func TestDrawnDeltaFIFO(t *testing.T) {
	model := linear.DeltaFIFOModel()
	rapid.Check(t, func(t *rapid.T) {
		s := drawLineScript(t)
		rapid.SyncTest(t, func(t *rapid.T) { tryLine(s, linear.NewDeltaFIFO(), model).check(t) })
	})
}

func drawLineScript(t *rapid.T) script[linear.LineCall] {
	s := drawScript(t, lineRoles, drawLineCall)
	number(s)
	return s
}

// number gives each object another version.
func number(s script[linear.LineCall]) {
	n := 0
	for _, steps := range s.clients {
		for _, step := range steps {
			for i := range step.call.Objects {
				n++
				step.call.Objects[i].N = n
			}
		}
	}
}
