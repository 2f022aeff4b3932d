package linear

import (
	"context"
	"errors"
	"fmt"
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

// wait is an AddAfter or Reschedule that makes its item wait, and when that comes due.
type wait struct {
	Call
	earliest, latest int64
}

// waits returns the waits of all calls, which it numbers.
func waits(calls []porcupine.Operation) (all []wait) {
	var n [Items]int
	for i, op := range calls {
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
		all = append(all, wait{c, op.Call + int64(c.Delay), op.Return + int64(c.Delay)})
	}
	return all
}

// dues returns what happened by itself after the calls: what each wait makes due. It numbers the
// waits.
func dues(calls []porcupine.Operation, lag time.Duration) (ops []porcupine.Operation) {
	all, end, clients := waits(calls), endOf(calls), 0
	for _, op := range calls {
		clients = max(clients, op.ClientId+1)
	}
	for _, w := range all {
		if w.earliest > end {
			continue
		}
		w.Op = due
		for _, other := range all {
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
