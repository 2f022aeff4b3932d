package main

import (
	"fmt"
	"strings"
)

// mutant is one small fault in the product.
type mutant struct {
	id    int    // what switches it on; counts from 1 over all files
	file  string // base name
	fn    string // the function it is in, as "Type.method" or "function"
	line  int
	from  string // the code around it, on one line
	to    string // the same in the mutant
	nth   int    // counts those before it that read the same
	edits []edit
	solo  bool // it needs a build of its own: what changes must be a constant
}

// edit is one place in which a mutant differs.
type edit struct {
	start, end int // offsets of the code that is replaced
	kind       kind
	typ        string // of a value
	text       string // what stands there instead
}

type kind int

const (
	statement kind = iota // one or several statements, or none: then text is inserted
	condition             // an expression of type bool
	value                 // any other expression
)

// key identifies m across changes elsewhere: the list of survivors names it so.
func (m *mutant) key() string {
	s := fmt.Sprintf("%s %s: `%s` -> `%s`", m.file, m.fn, m.from, m.to)
	if m.nth > 0 {
		s += fmt.Sprintf(" #%d", m.nth+1)
	}
	return s
}

const leftOut = "(left out)"

// oneLine returns code with each run of white space as one space, cut if it is long.
func oneLine(code string) string {
	s := strings.Join(strings.Fields(code), " ")
	if r := []rune(s); len(r) > widest {
		s = string(r[:widest-1]) + "…"
	}
	return s
}

const widest = 110

// apply returns src with the edits of m made.
func (m *mutant) apply(src string) string {
	return splice(src, 0, len(src), m.edits)
}

// splice returns src[lo:hi] with those edits made that lie in it. Edits are in order.
func splice(src string, lo, hi int, edits []edit) string {
	var b strings.Builder
	for _, e := range edits {
		if e.start < lo || e.end > hi {
			continue
		}
		b.WriteString(src[lo:e.start])
		b.WriteString(e.text)
		lo = e.end
	}
	b.WriteString(src[lo:hi])
	return b.String()
}

// diff returns the lines of src that m changes, before and after.
func (m *mutant) diff(src string) string {
	lo := strings.LastIndexByte(src[:m.edits[0].start], '\n') + 1
	hi := m.edits[len(m.edits)-1].end
	if i := strings.IndexByte(src[hi:], '\n'); i >= 0 {
		hi += i
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d  %s\n%s:%d\n", m.id, m.key(), m.file, m.line)
	for l := range strings.SplitSeq(src[lo:hi], "\n") {
		fmt.Fprintf(&b, "-%s\n", l)
	}
	for l := range strings.SplitSeq(splice(src, lo, hi, m.edits), "\n") {
		fmt.Fprintf(&b, "+%s\n", l)
	}
	return b.String()
}
