package linear

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"example.com/typedqueue"
)

// Keys is how many keys the model of FIFO and DeltaFIFO knows: 0 to Keys-1.
const Keys = 3

// Object is what these queues carry. N is its version, so that no two are the same; where a model
// checks what was seen, 1 to 255.
type Object struct{ Key, N int }

func keyOf(o Object) (int, error) { return o.Key, nil }

// Deltas are what a FIFO or DeltaFIFO hands out.
type Deltas = typedqueue.Deltas[Object]

// Line is what FIFO and DeltaFIFO have in common for calls. Those of a FIFO are one delta without
// a type.
type Line interface {
	typedqueue.ReflectorStore[Object]
	DeleteKey(key int) error
	AddIfNotPresent(Object) error
	Len() int
	HasSynced() bool
	Close()
	Pop(ctx context.Context, process func(key int, deltas Deltas, isInInitialList bool) error) error
}

// FIFO is a typedqueue.FIFO as a Line.
type FIFO struct {
	*typedqueue.FIFO[int, Object]
}

// NewFIFO returns an empty FIFO.
func NewFIFO() FIFO { return FIFO{typedqueue.NewFIFO(keyOf)} }

// Pop is FIFO.Pop.
func (q FIFO) Pop(ctx context.Context, process func(int, Deltas, bool) error) error {
	_, err := q.FIFO.Pop(ctx, func(key int, o Object, initial bool) error {
		return process(key, Deltas{{Object: o}}, initial)
	})
	return err
}

// DeltaFIFO is a typedqueue.DeltaFIFO as a Line. Its consumers bring its KnownObjects up to date.
type DeltaFIFO struct {
	*typedqueue.DeltaFIFO[int, Object]
	known *known
}

// NewDeltaFIFO returns an empty DeltaFIFO that knows no objects.
func NewDeltaFIFO() DeltaFIFO {
	k := new(known)
	return DeltaFIFO{typedqueue.NewDeltaFIFO(keyOf, typedqueue.DeltaFIFOOptions[int, Object]{KnownObjects: k}), k}
}

// AddIfNotPresent queues an Added unless something is pending.
func (q DeltaFIFO) AddIfNotPresent(o Object) error {
	return q.DeltaFIFO.AddIfNotPresent(o.Key, Deltas{{Type: typedqueue.Added, Object: o}})
}

// Pop is DeltaFIFO.Pop, and what process accepts is known then.
func (q DeltaFIFO) Pop(ctx context.Context, process func(int, Deltas, bool) error) error {
	_, err := q.DeltaFIFO.Pop(ctx, func(key int, deltas Deltas, initial bool) error {
		if err := process(key, deltas, initial); err != nil {
			return err
		}
		q.known.apply(key, deltas.Newest())
		return nil
	})
	return err
}

// known is a KnownObjects. Its keys are listed in order, so that a model can tell what comes of
// that.
type known struct {
	mu      sync.Mutex // guards objects
	objects [Keys]Object
}

func (k *known) apply(key int, d typedqueue.Delta[Object]) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.objects[key] = d.Object
	if d.Type == typedqueue.Deleted {
		k.objects[key] = Object{}
	}
}

// ListKeys returns the keys that have an object.
func (k *known) ListKeys() (keys []int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, o := range k.objects {
		if o.N != 0 {
			keys = append(keys, key)
		}
	}
	return keys
}

// GetByKey returns the object of a key.
func (k *known) GetByKey(key int) (Object, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.objects[key], k.objects[key].N != 0
}

// The methods that only FIFO and DeltaFIFO have.
const (
	Update          Op = "Update"
	Delete          Op = "Delete"
	DeleteKey       Op = "DeleteKey"
	AddIfNotPresent Op = "AddIfNotPresent"
	Replace         Op = "Replace"
	Resync          Op = "Resync"
	HasSynced       Op = "HasSynced"
	Pop             Op = "Pop"
	Close           Op = "Close"
)

// finish is the second step of a Pop.
const finish Op = "Pop's end"

// Outcome is what process does with what it was given.
type Outcome string

// What process may do.
const (
	Accept  Outcome = "accept"
	Requeue Outcome = "requeue"
	Panic   Outcome = "panic"
)

// LineCall is a call of a FIFO or DeltaFIFO.
type LineCall struct {
	Op      Op
	Objects []Object      // all that are listed, or the one that is written; its Key for DeleteKey
	Delay   time.Duration // how long Pop may wait
	Hold    int           // how long process works, in whatever Client.Hold makes of it
	Outcome Outcome       // of Pop
}

func (c LineCall) String() string {
	switch c.Op {
	case Pop:
		return fmt.Sprintf("%s(%v, hold %d, %s)", c.Op, c.Delay, c.Hold, c.Outcome)
	case finish:
		return fmt.Sprintf("%s(%d, %s)", c.Op, c.Objects[0].Key, c.Outcome)
	case Len, HasSynced, Close, Resync:
		return string(c.Op)
	}
	var objects []string
	for _, o := range c.Objects {
		objects = append(objects, fmt.Sprintf("%d.%d", o.Key, o.N))
	}
	return fmt.Sprintf("%s(%s)", c.Op, strings.Join(objects, ", "))
}

// LineResult is what such a call returned.
type LineResult struct {
	End     End    // of Pop, and of writes: Closed or ""
	Key     int    // what was handed out
	Deltas  string // and its changes
	Initial bool
	N       int  // of Len
	OK      bool // of HasSynced
}

// with describes a call and its result.
func (c LineCall) with(r LineResult) string {
	result := string(r.End)
	switch {
	case c.Op == Len:
		result = fmt.Sprint(r.N)
	case c.Op == HasSynced:
		result = fmt.Sprint(r.OK)
	case r.End == Took && r.Initial:
		result = fmt.Sprintf("%d: %s, initial", r.Key, text(r.Deltas))
	case r.End == Took:
		result = fmt.Sprintf("%d: %s", r.Key, text(r.Deltas))
	case r.End == "":
		result = "ok"
	}
	return fmt.Sprintf("%v -> %s", c, result)
}

// encode returns deltas as a string of two bytes each, so that states can be compared by ==: a
// letter for what it is, and the version of its object.
func encode(deltas Deltas) string {
	var b []byte
	for _, d := range deltas {
		letter := byte('o') // of a FIFO, without a type
		if d.Type != "" {
			letter = d.Type[0]
		}
		switch {
		case d.ObjectMissing:
			letter = missing
		case d.FinalStateUnknown:
			letter = inferred
		}
		b = append(b, letter, byte(d.Object.N))
	}
	return string(b)
}

const (
	deleted  = byte('D')
	inferred = byte('d') // a Deleted of unknown final state
	missing  = byte('m') // and without an object
)

func isDeleted(letter byte) bool { return letter == deleted || letter == inferred || letter == missing }

// text is encoded deltas for people.
func text(deltas string) (s string) {
	for i := 0; i < len(deltas); i += 2 {
		s += fmt.Sprintf("%c%d", deltas[i], deltas[i+1])
	}
	return s
}

// DoLine makes a call, and records it.
func (c *Client) DoLine(q Line, call LineCall) LineResult {
	if call.Op == Pop {
		return c.pop(q, call)
	}
	at := c.begin(call)
	r := call.on(q)
	if call.Op == Close {
		c.end(call, at, nil)
	} else {
		c.end(call, at, r)
	}
	return r
}

func (c LineCall) on(q Line) (r LineResult) {
	var err error
	switch c.Op {
	case Add:
		err = q.Add(c.Objects[0])
	case Update:
		err = q.Update(c.Objects[0])
	case Delete:
		err = q.Delete(c.Objects[0])
	case DeleteKey:
		err = q.DeleteKey(c.Objects[0].Key)
	case AddIfNotPresent:
		err = q.AddIfNotPresent(c.Objects[0])
	case Replace:
		err = q.Replace(c.Objects)
	case Resync:
		err = q.Resync()
	case Len:
		r.N = q.Len()
	case HasSynced:
		r.OK = q.HasSynced()
	case Close:
		q.Close()
	default:
		panic("no such call: " + string(c.Op))
	}
	if err != nil {
		r.End = endOfCall(context.Background(), err)
	}
	return r
}

// pop records a Pop as its two steps. Between them it is the consumer's.
func (c *Client) pop(q Line, call LineCall) (r LineResult) {
	ctx, cancel := within(call.Delay)
	defer cancel()
	at := c.begin(call)
	end := call
	end.Op = finish
	defer func() {
		if r.End == Took {
			if p := recover(); p != nil && p != call.Outcome {
				panic(p)
			}
			c.end(end, at, nil)
			return
		}
		c.end(call, at, r)
	}()
	err := q.Pop(ctx, func(key int, deltas Deltas, initial bool) error {
		r = LineResult{End: Took, Key: key, Deltas: encode(deltas), Initial: initial}
		c.end(call, at, r)
		end.Objects = []Object{{Key: key}}
		c.open = end
		if c.Hold != nil {
			c.Hold(call.Hold)
		}
		at = c.begin(end)
		return call.Outcome.result()
	})
	if r.End != Took {
		r.End = endOfCall(ctx, err)
	}
	return r
}

func (o Outcome) result() error {
	switch o {
	case Requeue:
		return typedqueue.Requeue(nil)
	case Panic:
		panic(o)
	}
	return nil
}
