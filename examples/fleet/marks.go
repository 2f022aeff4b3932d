package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"sync"
)

// A mark is what a replica tells its parent, at the moment when it happens: before it goes
// on, so that a replica that is killed has told all that it did.
type mark struct {
	At   int64    `json:"at"` // on the clock that the processes share
	What markKind `json:"what"`

	Key     string  `json:"key"`
	Lease   int64   `json:"lease,omitempty"`   // of marksBegin
	Epoch   int64   `json:"epoch,omitempty"`   // of marksBegin
	Outcome outcome `json:"outcome,omitempty"` // of marksEnd
}

type markKind string

const (
	marksBegin markKind = "begin" // it has a key in hand
	marksWrite markKind = "write" // it is about to write the effect
	marksEnd   markKind = "end"   // it gives the key out of its hands
)

// An outcome is what a hand came to.
type outcome string

const (
	accepted  outcome = "accepted"  // etcd took the effect
	fenced    outcome = "fenced"    // it refused it, since the lease has ended
	stale     outcome = "stale"     // it refused it, since the source has changed
	unchanged outcome = "unchanged" // the effect was there already
	failed    outcome = "failed"    // another error; tried again
)

// A marker writes marks, each in one piece.
type marker struct {
	mu  sync.Mutex // guards out
	out *json.Encoder
}

func newMarker(out io.Writer) *marker { return &marker{out: json.NewEncoder(out)} }

func (m *marker) mark(k mark) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k.At = now()
	_ = m.out.Encode(k) // the parent has gone, and so will this
}

// A ledger is what the marks of all replicas come to.
type ledger struct {
	mu      sync.Mutex // guards everything below
	hands   []*hand
	open    map[place]*hand
	holder  map[string]string // who had a key in hand last
	leases  map[string]int64  // the newest that each replica was heard of with
	tallies map[string]tally
	marks   map[string]int // how many each replica has sent
}

// A place is one replica's dealings with one key.
type place struct{ name, key string }

// A tally is how often the hands of a replica have come to what. Those that it still has, or
// had when it was killed, are under "".
type tally map[outcome]int

func newLedger() *ledger {
	return &ledger{open: map[place]*hand{}, holder: map[string]string{}, leases: map[string]int64{}, tallies: map[string]tally{}, marks: map[string]int{}}
}

// read takes the marks of one replica until there are no more.
func (l *ledger) read(name string, marks io.Reader) error {
	lines := bufio.NewScanner(marks)
	for lines.Scan() {
		var m mark
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			return fmt.Errorf("%s says %q: %w", name, lines.Text(), err)
		}
		if err := l.add(name, m); err != nil {
			return err
		}
	}
	return lines.Err()
}

func (l *ledger) add(name string, m mark) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.marks[name]++
	at := place{name, m.Key}
	h := l.open[at]
	if (h == nil) != (m.What == marksBegin) {
		return fmt.Errorf("%s says %q of %q, out of turn", name, m.What, m.Key)
	}
	switch m.What {
	case marksBegin:
		h = &hand{key: m.Key, lease: m.Lease, epoch: m.Epoch, from: m.At, to: forever}
		l.hands = append(l.hands, h)
		l.open[at] = h
		l.holder[m.Key], l.leases[name] = name, m.Lease
		l.count(name, "", 1)
	case marksWrite:
		h.writing = true
	case marksEnd:
		h.to, h.outcome = m.At, m.Outcome
		delete(l.open, at)
		l.count(name, "", -1)
		l.count(name, m.Outcome, 1)
	}
	return nil
}

func (l *ledger) count(name string, o outcome, n int) {
	if l.tallies[name] == nil {
		l.tallies[name] = tally{}
	}
	l.tallies[name][o] += n
}

// working returns how many keys a replica has in hand whose effects it has not begun to write.
func (l *ledger) working(name string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for at, h := range l.open {
		if at.name == name && !h.writing {
			n++
		}
	}
	return n
}

// told returns how many marks a replica has sent.
func (l *ledger) told(name string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.marks[name]
}

// heldBy reports whether each key was last in the hands of its owner.
func (l *ledger) heldBy(owner map[string]string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, name := range owner {
		if l.holder[key] != name {
			return false
		}
	}
	return true
}

// lease returns the newest lease that a replica was heard of with.
func (l *ledger) lease(name string) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leases[name]
}

// tally returns what a replica has done so far.
func (l *ledger) tally(name string) tally {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.tallies[name])
}
