package linear

import (
	"fmt"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

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
	return modelOf(func(s *textLine, c LineCall, r LineResult) bool { return s.step(c, r, write, putBack) })
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
