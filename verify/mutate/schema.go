package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// A schema is the text of a file with all its mutants in it, each behind a question to a
// variable: so one build serves for all of them.
//
//	if mutant == 7 { } else { f(x) }                           // a statement
//	if (mutant == 8 && (a <= b) || mutant != 8 && (a < b)) {   // a condition
//	n = func() int { if mutant == 9 { return a - b }; return a + b }()

// switchFile is added to the package.
const switchFile = `package %s

import (
	"os"
	"strconv"
)

var %s = func() int {
	id, _ := strconv.Atoi(os.Getenv(%q))
	return id
}()

func %s[S ~[]E, E any](s S) S { return s[min(1, len(s)):] }

func %s[S ~[]E, E any](s S) S { return s[:max(1, len(s))-1] }

func %s[T any](seq func(func(T) bool)) func(func(T) bool) {
	return func(yield func(T) bool) {
		first := true
		seq(func(v T) bool {
			if first {
				first = false
				return true
			}
			return yield(v)
		})
	}
}
`

const (
	variable    = "mutantInHand"
	environment = "MUTANT"
	skipFirst   = "mutantSkipFirst"
	skipLast    = "mutantSkipLast"
	skipFirstOf = "mutantSkipFirstOf"
)

func switchSource(pkg string) string {
	return fmt.Sprintf(switchFile, pkg, variable, environment, skipFirst, skipLast, skipFirstOf)
}

// place is where one or several mutants differ from the product.
type place struct {
	start, end int
	kind       kind
	typ        string
	ids        []int
	texts      []string
}

// span is a part of a schema that is there for these mutants.
type span struct {
	start, end int
	ids        []int
}

type schema struct {
	src    string
	places []place // still to come, outer ones first
	copied int     // how much of src has been written
	out    strings.Builder
	spans  []span
}

// write returns src with the mutants in it, and what of it is due to which.
func write(src string, mutants []*mutant) (string, []span) {
	s := &schema{src: src, places: places(mutants)}
	s.copyTo(len(src))
	return s.out.String(), s.spans
}

func places(mutants []*mutant) []place {
	type where struct {
		start, end int
		stmt       bool
	}
	at := map[where]*place{}
	for _, m := range mutants {
		for _, e := range m.edits {
			w := where{e.start, e.end, e.kind == statement}
			if at[w] == nil {
				at[w] = &place{start: e.start, end: e.end, kind: e.kind, typ: e.typ}
			}
			at[w].ids = append(at[w].ids, m.id)
			at[w].texts = append(at[w].texts, e.text)
		}
	}
	var list []place
	for _, p := range at {
		list = append(list, *p)
	}
	slices.SortFunc(list, func(a, b place) int {
		return cmp.Or(a.start-b.start, b.end-a.end, int(a.kind-b.kind))
	})
	return list
}

// copyTo writes src up to end, with the places that begin before it.
func (s *schema) copyTo(end int) {
	for len(s.places) > 0 && s.places[0].start < end {
		p := s.places[0]
		s.places = s.places[1:]
		s.out.WriteString(s.src[s.copied:p.start])
		s.copied = p.start
		s.place(p)
	}
	s.out.WriteString(s.src[s.copied:end])
	s.copied = end
}

// place writes what stands at p in the mutants, and what stands there otherwise.
func (s *schema) place(p place) {
	begin := s.out.Len()
	for i, id := range p.ids {
		format := map[kind]string{
			statement: "if %s == %d { %s } else ",
			condition: "%s == %d && (%s) || ",
			value:     "if %s == %d { return %s }; ",
		}[p.kind]
		switch {
		case i == 0 && p.start == p.end:
			s.out.WriteString("; ")
		case i == 0 && p.kind == condition:
			s.out.WriteString("(")
		case i == 0 && p.kind == value:
			s.out.WriteString("func() " + p.typ + " { ")
		}
		start := s.out.Len()
		fmt.Fprintf(&s.out, format, variable, id, p.texts[i])
		s.spans = append(s.spans, span{start, s.out.Len(), []int{id}})
	}
	s.original(p)
	s.spans = append(s.spans, span{begin, s.out.Len(), p.ids})
}

func (s *schema) original(p place) {
	switch p.kind {
	case statement:
		s.out.WriteString("{ ")
		s.copyTo(p.end)
		s.out.WriteString(" }")
	case condition:
		for _, id := range p.ids {
			fmt.Fprintf(&s.out, "%s != %d && ", variable, id)
		}
		s.out.WriteString("(")
		s.copyTo(p.end)
		s.out.WriteString("))")
	case value:
		s.out.WriteString("return ")
		s.copyTo(p.end)
		s.out.WriteString(" }()")
	}
}
