package linear

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/anishathalye/porcupine"
)

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

// QueueModel returns the model of Queue and DelayingQueue.
func QueueModel() porcupine.Model { return modelOf((*textbook).step) }

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
