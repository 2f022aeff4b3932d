package linear

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"example.com/typedqueue"
)

// Keys is how many keys the model of FIFO and DeltaFIFO knows: 0 to Keys-1.
const Keys = 3

// Object is what these queues carry. N is its version, 1 to 255, so that no two are the same.
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

// DeltaFIFO is a typedqueue.DeltaFIFO as a Line. Its consumers bring Known up to date.
type DeltaFIFO struct {
	*typedqueue.DeltaFIFO[int, Object]
	Known *Known
}

// NewDeltaFIFO returns an empty DeltaFIFO whose KnownObjects is an empty Known.
func NewDeltaFIFO() DeltaFIFO {
	known := new(Known)
	return DeltaFIFO{typedqueue.NewDeltaFIFO(keyOf, typedqueue.DeltaFIFOOptions[int, Object]{KnownObjects: known}), known}
}

// AddIfNotPresent queues an Added unless something is pending.
func (q DeltaFIFO) AddIfNotPresent(o Object) error {
	return q.DeltaFIFO.AddIfNotPresent(o.Key, Deltas{{Type: typedqueue.Added, Object: o}})
}

// Pop is DeltaFIFO.Pop, and what process accepts goes to Known.
func (q DeltaFIFO) Pop(ctx context.Context, process func(int, Deltas, bool) error) error {
	_, err := q.DeltaFIFO.Pop(ctx, func(key int, deltas Deltas, initial bool) error {
		if err := process(key, deltas, initial); err != nil {
			return err
		}
		q.Known.apply(key, deltas.Newest())
		return nil
	})
	return err
}

// Known is a KnownObjects. Its keys are listed in order, so that a model can tell what comes of
// that.
type Known struct {
	mu      sync.Mutex // guards objects
	objects [Keys]Object
}

func (k *Known) apply(key int, d typedqueue.Delta[Object]) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.objects[key] = d.Object
	if d.Type == typedqueue.Deleted {
		k.objects[key] = Object{}
	}
}

// ListKeys returns the keys that have an object.
func (k *Known) ListKeys() (keys []int) {
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
func (k *Known) GetByKey(key int) (Object, bool) {
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

// keys is a set or a line of keys, a byte each.
type keys string

func (s keys) has(key int) bool     { return strings.IndexByte(string(s), byte(key)) >= 0 }
func (s keys) with(key int) keys    { return s + keys([]byte{byte(key)}) }
func (s keys) without(key int) keys { return s.minus(keys([]byte{byte(key)})) }

func (s keys) minus(o keys) (rest keys) {
	for _, key := range s.all() {
		if !o.has(key) {
			rest = rest.with(key)
		}
	}
	return rest
}

func (s keys) all() (list []int) {
	for _, b := range []byte(s) {
		list = append(list, int(b))
	}
	return list
}

// textLine is the state of the model: a line of keys, those in hand, and their changes.
type textLine struct {
	line, hand keys         // in line, those in hand included that are pending again; in hand, longest first
	pending    [Keys]string // encoded
	handed     [Keys]string
	known      [Keys]byte // the versions in KnownObjects

	begun          bool
	initial        [Keys]bool // not settled
	takenAsInitial [Keys]bool
	forgotten      [Keys]bool // while in hand
	closed         bool
}

// FIFOModel returns the model of FIFO.
func FIFOModel() porcupine.Model { return lineModel((*textLine).fifoWrite, (*textLine).fifoFinish) }

// DeltaFIFOModel returns the model of a DeltaFIFO of this package.
func DeltaFIFOModel() porcupine.Model {
	return lineModel((*textLine).deltaWrite, (*textLine).deltaFinish)
}

// lineModel returns a model, given how its kind writes, and puts back what was not wanted.
func lineModel(write func(*textLine, LineCall), putBack func(s *textLine, key int, requeue bool)) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return textLine{} },
		Step: func(state, input, output any) (bool, any) {
			s, r := state.(textLine), LineResult{}
			if output != nil {
				r = output.(LineResult)
			}
			possible := s.step(input.(LineCall), r, write, putBack)
			return possible, s
		},
		Hash: func(state any) uint64 { return maphash.Comparable(seed, state.(textLine)) },
		DescribeOperation: func(input, output any) string {
			if output == nil {
				return input.(LineCall).String()
			}
			return input.(LineCall).with(output.(LineResult))
		},
		DescribeState: func(state any) string { return state.(textLine).String() },
	}
}

func (s textLine) String() string {
	line, hand := "", ""
	for _, key := range s.line.all() {
		line += fmt.Sprintf(" %d: %s", key, text(s.pending[key]))
	}
	for _, key := range s.hand.all() {
		hand += fmt.Sprintf(" %d: %s", key, text(s.handed[key]))
	}
	return fmt.Sprintf("line%s, in hand%s, known %v, synced %t, closed %t", line, hand, s.known, s.synced(), s.closed)
}

// step makes a call, and reports whether it could have had that result.
func (s *textLine) step(c LineCall, r LineResult, write func(*textLine, LineCall), putBack func(*textLine, int, bool)) (possible bool) {
	switch c.Op {
	case Len:
		return len(s.line) == r.N
	case HasSynced:
		return s.synced() == r.OK
	case Close:
		s.closed = true
		return true
	case Pop:
		return s.pop(c, r)
	case finish:
		return s.finish(c.Objects[0].Key, c.Outcome != Accept, putBack)
	}
	if s.closed {
		return r.End == Closed
	}
	write(s, c)
	return r.End == ""
}

func (s *textLine) synced() bool { return s.begun && s.initial == [Keys]bool{} }

func (s *textLine) pop(c LineCall, r LineResult) (possible bool) {
	ready := s.line.minus(s.hand)
	switch r.End {
	case GaveUp:
		return true
	case Closed:
		return s.closed && ready == ""
	case Took:
	default:
		return false
	}
	if c.Delay == 0 || ready == "" || int(ready[0]) != r.Key || s.pending[r.Key] != r.Deltas || s.initial[r.Key] != r.Initial {
		return false
	}
	s.line, s.hand = s.line.without(r.Key), s.hand.with(r.Key)
	s.handed[r.Key], s.pending[r.Key] = s.pending[r.Key], ""
	s.takenAsInitial[r.Key] = r.Initial
	return true
}

// finish says what became of a key in hand.
func (s *textLine) finish(key int, requeue bool, putBack func(*textLine, int, bool)) (possible bool) {
	if !s.hand.has(key) {
		return false
	}
	s.hand = s.hand.without(key)
	putBack(s, key, requeue)
	if s.takenAsInitial[key] && (!requeue || s.forgotten[key]) {
		s.initial[key] = false
	}
	s.handed[key], s.takenAsInitial[key], s.forgotten[key] = "", false, false
	return true
}

// put makes deltas what is pending for key, which takes its place in line.
func (s *textLine) put(key int, deltas string) {
	s.pending[key] = deltas
	if !s.line.has(key) {
		s.line = s.line.with(key)
	}
}

// FIFO

func (s *textLine) fifoWrite(c LineCall) {
	switch c.Op {
	case Add, Update:
		s.fifoAdd(c.Objects[0])
	case AddIfNotPresent:
		if s.line.has(c.Objects[0].Key) {
			return
		}
		s.fifoAdd(c.Objects[0])
	case Delete, DeleteKey:
		key := c.Objects[0].Key
		if !s.line.has(key) && !s.hand.has(key) {
			return
		}
		s.forget(key)
	case Replace:
		s.fifoReplace(c.Objects)
	case Resync:
		return
	default:
		panic("no such call: " + string(c.Op))
	}
	s.begun = true
}

func (s *textLine) fifoAdd(o Object) { s.put(o.Key, encode(Deltas{{Object: o}})) }

func (s *textLine) forget(key int) {
	s.pending[key], s.line = "", s.line.without(key)
	if s.hand.has(key) {
		s.forgotten[key] = true
	} else {
		s.initial[key] = false
	}
}

func (s *textLine) fifoReplace(objects []Object) {
	listed := [Keys]bool{}
	s.line = ""
	for _, o := range objects {
		listed[o.Key] = true
		s.fifoAdd(o)
		if !s.begun {
			s.initial[o.Key] = true
		}
	}
	for key := range Keys {
		if !listed[key] {
			s.forget(key)
		}
	}
}

func (s *textLine) fifoFinish(key int, requeue bool) {
	if requeue && !s.line.has(key) && !s.forgotten[key] {
		s.put(key, s.handed[key])
	}
}

// DeltaFIFO

func (s *textLine) deltaWrite(c LineCall) {
	switch c.Op {
	case Add, Update:
		s.push(c.Objects[0].Key, c.Op[0], byte(c.Objects[0].N))
	case AddIfNotPresent:
		if s.line.has(c.Objects[0].Key) {
			return
		}
		s.push(c.Objects[0].Key, 'A', byte(c.Objects[0].N))
	case Delete, DeleteKey:
		if !s.exists(c.Objects[0].Key) {
			return
		}
		if c.Op == Delete {
			s.push(c.Objects[0].Key, deleted, byte(c.Objects[0].N))
		} else {
			s.bury(c.Objects[0].Key)
		}
	case Replace:
		s.deltaReplace(c.Objects)
	case Resync:
		s.resync()
		return
	default:
		panic("no such call: " + string(c.Op))
	}
	s.begun = true
}

// push adds a change (D2).
func (s *textLine) push(key int, letter, n byte) {
	p := s.pending[key]
	if last := len(p) - 2; last >= 0 && isDeleted(letter) && isDeleted(p[last]) {
		if p[last] == deleted {
			return
		}
		p = p[:last]
	}
	s.put(key, p+string([]byte{letter, n}))
}

// exists is D3.
func (s *textLine) exists(key int) bool {
	switch {
	case s.line.has(key):
		return true
	case s.hand.has(key):
		return !isDeleted(newest(s.handed[key]))
	}
	return s.known[key] != 0
}

// newest is the letter of the last change.
func newest(deltas string) byte { return deltas[len(deltas)-2] }

// bury adds an inferred deletion, with the newest object seen (D4).
func (s *textLine) bury(key int) {
	seen := s.handed[key] + s.pending[key]
	for i := len(seen) - 2; i >= 0; i -= 2 {
		if seen[i] != missing {
			s.push(key, inferred, seen[i+1])
			return
		}
	}
	if s.known[key] == 0 {
		s.push(key, missing, 0)
	} else {
		s.push(key, inferred, s.known[key])
	}
}

func (s *textLine) deltaReplace(objects []Object) {
	first := !s.begun
	var gone []int
	for _, key := range s.line.all() {
		if !isDeleted(newest(s.pending[key])) {
			gone = append(gone, key)
		}
	}
	for _, key := range s.hand.minus(s.line).all() {
		if !isDeleted(newest(s.handed[key])) {
			gone = append(gone, key)
		}
	}
	for key, n := range s.known {
		if n != 0 && !s.line.has(key) && !s.hand.has(key) {
			gone = append(gone, key)
		}
	}
	for _, o := range objects {
		gone = slices.DeleteFunc(gone, func(key int) bool { return key == o.Key })
		s.push(o.Key, 'R', byte(o.N))
		s.initial[o.Key] = s.initial[o.Key] || first
	}
	for _, key := range gone {
		s.bury(key)
		s.initial[key] = s.initial[key] || first
	}
}

func (s *textLine) resync() {
	for key, n := range s.known {
		if n != 0 && !s.line.has(key) && !s.hand.has(key) {
			s.push(key, 'S', n)
		}
	}
}

// deltaFinish puts back what process did not want in front of what has come meanwhile (D8), or
// notes what it has made of it.
func (s *textLine) deltaFinish(key int, requeue bool) {
	if !requeue {
		h := s.handed[key]
		s.known[key] = h[len(h)-1]
		if isDeleted(newest(h)) {
			s.known[key] = 0
		}
		return
	}
	later := s.pending[key]
	s.put(key, s.handed[key])
	for i := 0; i < len(later); i += 2 {
		s.push(key, later[i], later[i+1])
	}
}
