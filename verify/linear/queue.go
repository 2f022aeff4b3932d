package linear

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"math/bits"
	"time"

	"github.com/anishathalye/porcupine"

	"example.com/typedqueue"
)

// Items is how many items the model of work queues knows: 0 to Items-1.
const Items = 4

// Queue is what calls without delays are made on.
type Queue interface {
	Add(item int)
	AddAll(items ...int)
	AddWithPriority(item, priority int)
	Get() (item int, shutdown bool)
	GetWithPriority() (item, priority int, shutdown bool)
	GetContext(ctx context.Context) (int, error)
	TryGet() (item int, ok bool)
	Done(item int)
	Cancel(item int) bool
	Len() int
	ShutDown()
	Drain(ctx context.Context) error
}

// DelayingQueue is what all calls are made on.
type DelayingQueue interface {
	Queue
	AddAfter(item int, delay time.Duration)
	Reschedule(item int, delay time.Duration)
	Waiting() int
}

// Op names a method.
type Op string

// The methods of work queues.
const (
	Add             Op = "Add"
	AddAll          Op = "AddAll"
	AddWithPriority Op = "AddWithPriority"
	AddAfter        Op = "AddAfter"
	Reschedule      Op = "Reschedule"
	Get             Op = "Get"
	GetWithPriority Op = "GetWithPriority"
	GetContext      Op = "GetContext"
	TryGet          Op = "TryGet"
	Done            Op = "Done"
	Cancel          Op = "Cancel"
	Len             Op = "Len"
	Waiting         Op = "Waiting"
	ShutDown        Op = "ShutDown"
	Drain           Op = "Drain"
)

// What is recorded though nobody calls it.
const (
	drained Op = "Drain's end"
	due     Op = "Due"
)

// Call is a call of a work queue.
type Call struct {
	Op       Op
	Item     int
	Also     int           // the second item of AddAll
	Priority int           // of AddWithPriority
	Delay    time.Duration // of AddAfter and Reschedule; how long GetContext and Drain may take

	wait  int           // of AddAfter, Reschedule and due: the number of the wait, of those of Item
	after [Items]uint64 // of due: the waits that are over before
}

func (c Call) String() string {
	switch c.Op {
	case AddAll:
		return fmt.Sprintf("%s(%d, %d)", c.Op, c.Item, c.Also)
	case AddWithPriority:
		return fmt.Sprintf("%s(%d, %d)", c.Op, c.Item, c.Priority)
	case AddAfter, Reschedule:
		return fmt.Sprintf("%s(%d, %v)", c.Op, c.Item, c.Delay)
	case GetContext, Drain:
		return fmt.Sprintf("%s(%v)", c.Op, c.Delay)
	case Add, Done, Cancel, due:
		return fmt.Sprintf("%s(%d)", c.Op, c.Item)
	default:
		return string(c.Op)
	}
}

// Result is what a call returned.
type Result struct {
	End            End
	Item, Priority int  // what was handed out
	N              int  // of Len and Waiting; how many ready items Drain left
	Held           int  // how many items in processing Drain left
	OK             bool // of Cancel
}

// End says how a call ended that may end in several ways.
type End string

// The ways in which calls end.
const (
	Took    End = "took"
	Nothing End = "nothing"   // ready, or left
	GaveUp  End = "gave up"   // as its context was done
	Closed  End = "shut down" // or closed
)

// with describes a call and its result.
func (c Call) with(r Result) string {
	result := string(r.End)
	switch {
	case c.Op == Len, c.Op == Waiting:
		result = fmt.Sprint(r.N)
	case c.Op == Cancel:
		result = fmt.Sprint(r.OK)
	case r.End == Took && c.Op == GetWithPriority:
		result = fmt.Sprintf("%d, priority %d", r.Item, r.Priority)
	case r.End == Took:
		result = fmt.Sprint(r.Item)
	case c.Op == drained && r.End != Nothing:
		result = fmt.Sprintf("%s, %d ready, %d processing", r.End, r.N, r.Held)
	}
	return fmt.Sprintf("%v -> %s", c, result)
}

// Do makes a call, and records it. Calls with delays need a DelayingQueue.
func (c *Client) Do(q Queue, call Call) Result {
	if call.Op == Drain {
		return c.drain(q, call)
	}
	ctx, cancel := within(call.Delay)
	defer cancel()
	at := c.begin(call)
	r, something := call.on(ctx, q)
	if something {
		c.end(call, at, r)
	} else {
		c.end(call, at, nil)
	}
	return r
}

// drain records a Drain as its two steps, each of which happens somewhere in the call.
func (c *Client) drain(q Queue, call Call) Result {
	ctx, cancel := within(call.Delay)
	defer cancel()
	call.wait = c.id // of a client there is one at a time
	at := c.begin(call)
	r := drainResult(ctx, q.Drain(ctx))
	c.end(call, at, nil)
	call.Op = drained
	c.end(call, at, r)
	return r
}

func drainResult(ctx context.Context, err error) (r Result) {
	if err == nil {
		return Result{End: Nothing}
	}
	r.End = endOfCall(ctx, err)
	text := err.Error()[len(errors.Unwrap(err).Error()):]
	if _, err := fmt.Sscanf(text, ": %d items are ready and %d processing", &r.N, &r.Held); err != nil {
		panic(fmt.Sprintf("a Drain's error: %q: %v", text, err))
	}
	return r
}

// within returns a context that ends after d, or right now if d is 0.
func within(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d)
}

// endOfCall tells what an error means.
func endOfCall(ctx context.Context, err error) End {
	switch {
	case err == nil:
		return Took
	case errors.Is(err, typedqueue.ErrShutDown), errors.Is(err, typedqueue.ErrClosed):
		return Closed
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return GaveUp
	}
	return End(fmt.Sprintf("impossible: %v", err))
}

// on makes the call. It reports whether that returned something.
func (c Call) on(ctx context.Context, q Queue) (r Result, something bool) {
	switch c.Op {
	case Add:
		q.Add(c.Item)
	case AddAll:
		q.AddAll(c.Item, c.Also)
	case AddWithPriority:
		q.AddWithPriority(c.Item, c.Priority)
	case AddAfter:
		q.(DelayingQueue).AddAfter(c.Item, c.Delay)
	case Reschedule:
		q.(DelayingQueue).Reschedule(c.Item, c.Delay)
	case Done:
		q.Done(c.Item)
	case ShutDown:
		q.ShutDown()
	case Cancel:
		return Result{OK: q.Cancel(c.Item)}, true
	case Len:
		return Result{N: q.Len()}, true
	case Waiting:
		return Result{N: q.(DelayingQueue).Waiting()}, true
	default:
		return c.get(ctx, q), true
	}
	return r, false
}

// get makes a call that hands out.
func (c Call) get(ctx context.Context, q Queue) (r Result) {
	r.End = Took
	switch c.Op {
	case Get, GetWithPriority:
		var shutdown bool
		if c.Op == Get {
			r.Item, shutdown = q.Get()
		} else {
			r.Item, r.Priority, shutdown = q.GetWithPriority()
		}
		if shutdown {
			r.End = Closed
		}
	case GetContext:
		var err error
		r.Item, err = q.GetContext(ctx)
		r.End = endOfCall(ctx, err)
	case TryGet:
		var ok bool
		if r.Item, ok = q.TryGet(); !ok {
			r.End = Nothing
		}
	default:
		panic("no such call: " + string(c.Op))
	}
	return r
}

// dues returns what happened by itself after the calls: what each wait makes due. It numbers the
// waits.
func dues(calls []porcupine.Operation, lag time.Duration) (ops []porcupine.Operation) {
	type wait struct {
		Call
		earliest, latest int64
	}
	var waits []wait
	var n [Items]int
	end, clients := endOf(calls), 0
	for i, op := range calls {
		clients = max(clients, op.ClientId+1)
		c, ok := op.Input.(Call)
		if !ok || c.Op != AddAfter && c.Op != Reschedule || c.Delay <= 0 {
			continue
		}
		if n[c.Item] == 64 {
			panic("a history has room for 64 waits of one item")
		}
		c.wait = n[c.Item]
		n[c.Item]++
		calls[i].Input = c
		c.Op = due
		waits = append(waits, wait{c, op.Call + int64(c.Delay), op.Return + int64(c.Delay)})
	}
	for _, w := range waits {
		if w.earliest > end {
			continue
		}
		for _, other := range waits {
			if other.latest < w.earliest {
				w.after[other.Item] |= 1 << other.wait
			}
		}
		at := end + 1
		if lag >= 0 {
			at = w.latest + int64(lag)
		}
		ops = append(ops, porcupine.Operation{ClientId: clients + len(ops), Input: w.Call, Call: w.earliest, Return: at})
	}
	return ops
}

// textbook is the state of the model: a line and sets, as one would explain a work queue. What
// does not apply is zero, so that equal states are ==.
type textbook struct {
	line             [Items]int8 // the ready, and n of them
	n                int8
	dirty, held      [Items]bool
	priority, handed [Items]int8   // of the dirty, of the held
	waits            [Items]uint64 // the numbers of the waits that may end next
	waitPriority     [Items]int8
	closed           bool
	drains, released uint32 // by client: is in Drain; a ShutDown has come since
}

var seed = maphash.MakeSeed()

// QueueModel returns the model of Queue and DelayingQueue.
func QueueModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return textbook{} },
		Step: func(state, input, output any) (bool, any) {
			s, r := state.(textbook), Result{}
			if output != nil {
				r = output.(Result)
			}
			possible := s.step(input.(Call), r)
			return possible, s
		},
		Hash: func(state any) uint64 { return maphash.Comparable(seed, state.(textbook)) },
		DescribeOperation: func(input, output any) string {
			if output == nil {
				return input.(Call).String()
			}
			return input.(Call).with(output.(Result))
		},
		DescribeState: func(state any) string { return state.(textbook).String() },
	}
}

func (s textbook) String() string {
	held, waiting := "", ""
	for v := range Items {
		if s.held[v] {
			held += fmt.Sprintf(" %d", v)
			if s.dirty[v] {
				held += "(dirty)"
			}
		}
		if s.waits[v] != 0 {
			waiting += fmt.Sprintf(" %d", v)
		}
	}
	return fmt.Sprintf("ready %v, held%s, waiting%s, closed %t", s.line[:s.n], held, waiting, s.closed)
}

// step makes a call, and reports whether it could have had that result.
func (s *textbook) step(c Call, r Result) (possible bool) {
	switch c.Op {
	case Get, GetWithPriority, GetContext, TryGet:
		return s.get(c, r)
	case Cancel:
		return s.cancel(c.Item) == r.OK
	case Len:
		return int(s.n) == r.N
	case Waiting:
		return s.waiting() == r.N
	case due:
		return s.due(c)
	case drained:
		return s.drained(c, r)
	case Done:
		s.done(c.Item)
	case ShutDown:
		s.shutDown()
		s.released |= s.drains
	case Drain:
		s.shutDown()
		s.drains |= 1 << c.wait
	default:
		s.write(c)
	}
	return true
}

// write makes a call that adds.
func (s *textbook) write(c Call) {
	if s.closed {
		return
	}
	switch c.Op {
	case Add:
		s.add(c.Item, 0)
	case AddAll:
		s.add(c.Item, 0)
		s.add(c.Also, 0)
	case AddWithPriority:
		s.add(c.Item, int8(c.Priority))
	case AddAfter:
		s.addAfter(c)
	case Reschedule:
		s.cancel(c.Item)
		s.addAfter(c)
	default:
		panic("no such call: " + string(c.Op))
	}
}

func (s *textbook) get(c Call, r Result) (possible bool) {
	switch r.End {
	case GaveUp:
		return true
	case Nothing:
		return s.n == 0
	case Closed:
		return s.n == 0 && s.closed
	case Took:
	default:
		return false
	}
	if s.n == 0 || int(s.line[0]) != r.Item || c.Op == GetContext && c.Delay == 0 {
		return false
	}
	s.unline(0)
	s.dirty[r.Item], s.held[r.Item] = false, true
	s.handed[r.Item], s.priority[r.Item] = s.priority[r.Item], 0
	return c.Op != GetWithPriority || int(s.handed[r.Item]) == r.Priority
}

// add makes v dirty, and ready unless it is held.
func (s *textbook) add(v int, priority int8) {
	if s.waits[v] != 0 {
		priority = max(priority, s.waitPriority[v])
		s.waits[v], s.waitPriority[v] = 0, 0
	}
	if s.dirty[v] {
		if priority <= s.priority[v] {
			return
		}
		if !s.held[v] {
			s.unline(s.place(v))
		}
	}
	s.dirty[v], s.priority[v] = true, priority
	if !s.held[v] {
		s.lineUp(v)
	}
}

// lineUp puts v behind all that have its priority or a higher one.
func (s *textbook) lineUp(v int) {
	i := s.n
	for ; i > 0 && s.priority[s.line[i-1]] < s.priority[v]; i-- {
		s.line[i] = s.line[i-1]
	}
	s.line[i] = int8(v)
	s.n++
}

func (s *textbook) place(v int) int8 {
	for i := range s.n {
		if s.line[i] == int8(v) {
			return i
		}
	}
	panic("not in line")
}

func (s *textbook) unline(i int8) {
	s.n--
	copy(s.line[i:s.n], s.line[i+1:])
	s.line[s.n] = 0
}

func (s *textbook) done(v int) {
	if !s.held[v] {
		return
	}
	s.held[v], s.handed[v] = false, 0
	if s.dirty[v] {
		s.lineUp(v)
	}
}

func (s *textbook) cancel(v int) (something bool) {
	something = s.dirty[v] || s.waits[v] != 0
	if s.dirty[v] && !s.held[v] {
		s.unline(s.place(v))
	}
	s.dirty[v], s.priority[v] = false, 0
	s.waits[v], s.waitPriority[v] = 0, 0
	return something
}

func (s *textbook) addAfter(c Call) {
	priority := s.handed[c.Item] // 0 if it is not held
	if c.Delay <= 0 {
		s.add(c.Item, priority)
		return
	}
	if s.waits[c.Item] != 0 {
		priority = max(priority, s.waitPriority[c.Item])
	}
	s.waits[c.Item] |= 1 << c.wait
	s.waitPriority[c.Item] = priority
}

func (s *textbook) due(c Call) (possible bool) {
	if s.waits[c.Item]&(1<<c.wait) == 0 {
		return true
	}
	for v, over := range c.after {
		if s.waits[v]&over != 0 {
			return false
		}
	}
	s.add(c.Item, math.MinInt8)
	return true
}

func (s *textbook) waiting() (n int) {
	for _, waits := range s.waits {
		n += min(1, bits.OnesCount64(waits))
	}
	return n
}

func (s *textbook) shutDown() {
	s.closed = true
	s.waits, s.waitPriority = [Items]uint64{}, [Items]int8{}
}

// drained is how the Drain of a client ends.
func (s *textbook) drained(c Call, r Result) (possible bool) {
	mine := uint32(1) << c.wait
	processing := 0
	for _, held := range s.held {
		if held {
			processing++
		}
	}
	idle, released := s.n == 0 && processing == 0, s.released&mine != 0
	possible = s.drains&mine != 0
	s.drains, s.released = s.drains&^mine, s.released&^mine
	switch r.End {
	case Nothing:
		return possible && idle
	case GaveUp, Closed:
		return possible && !idle && (r.End == GaveUp || released) && r.N == int(s.n) && r.Held == processing
	default:
		return false
	}
}
