package main

import (
	"cmp"
	"slices"
	"strings"
)

// This file tells who held how many keys when, for the picture. It decides nothing: the
// verdict is check's.

// Holdings are the course of a run as it is drawn.
type holdings struct {
	replicas []string          // in the order of their start
	held     map[string][]span // of each replica: one for each time that it held a key of the source
	source   []span            // one for each time that a key was in the source
	happened []happening       // oldest first
}

// A happening is what befell a replica.
type happening struct {
	at   int64 // on the clock that the processes share
	what string
}

// A term is the time for which a replica could hold keys: from when the parent saw it join until
// something was done to it, or until its lease was seen to have ended.
type term struct {
	span
	joined *turn
}

// A tenure is the time for which a replica held a key: from its first hand on it, as long as
// it was the replica's.
type tenure struct {
	span
	lease int64
	done  int64 // when the last hand ended
}

// holdings returns the course of a run that has been judged.
func (f *fleet) holdings(found *finding) *holdings {
	h := &holdings{held: map[string][]span{}, happened: f.happenings(found)}
	for _, p := range f.processes {
		h.replicas = append(h.replicas, p.name)
	}
	hands := map[string][]*hand{}
	for _, hd := range f.marks.hands {
		hands[hd.key] = append(hands[hd.key], hd)
	}
	terms := f.terms(found)
	for key, there := range f.presence(found.history) {
		h.source = append(h.source, there...)
		for _, t := range tenures(hands[key], terms) {
			name := terms[t.lease].joined.name
			for _, s := range there {
				if s := (span{max(s.from, t.from), min(s.to, t.to)}); s.from < s.to {
					h.held[name] = append(h.held[name], s)
				}
			}
		}
	}
	return h
}

// presence returns when each key was in the source, as the parent saw it.
func (f *fleet) presence(history []event) map[string][]span {
	there := map[string][]span{}
	for _, e := range history {
		key, ok := strings.CutPrefix(e.key, wantDir)
		if !ok {
			continue
		}
		spans := there[key]
		switch last := len(spans) - 1; {
		case e.deleted:
			spans[last].to = f.observer.at(e.revision)
		case last < 0 || spans[last].to != forever:
			there[key] = append(spans, span{f.observer.at(e.revision), forever})
		}
	}
	return there
}

// terms returns those of all replicas, by their leases.
func (f *fleet) terms(found *finding) map[int64]*term {
	terms := map[int64]*term{}
	for _, t := range found.turns {
		if t.joined {
			terms[t.lease] = &term{span{f.observer.at(t.revision), forever}, t}
		} else {
			terms[t.lease].to = f.observer.at(t.revision)
		}
	}
	for lease, s := range f.struck {
		if t := terms[lease]; t != nil {
			t.to = min(t.to, s.at)
		}
	}
	return terms
}

// tenures returns who held a key when, from the hands on it.
func tenures(hands []*hand, terms map[int64]*term) (held []*tenure) {
	slices.SortFunc(hands, func(a, b *hand) int { return cmp.Compare(a.from, b.from) })
	for _, h := range hands {
		t := terms[h.lease]
		if t == nil || h.from >= t.to {
			continue // it does not know yet that the key is not its own any more
		}
		if len(held) > 0 {
			last := held[len(held)-1]
			if last.lease == h.lease {
				last.done = h.to
				continue
			}
			last.to = min(last.to, h.from)
			if t.joined.moved[h.key] == h { // its coming took the key away, but for work that was in hand
				last.to = min(last.to, max(t.from, last.done))
			}
		}
		held = append(held, &tenure{span{h.from, t.to}, h.lease, h.to})
	}
	return held
}

// happenings returns what befell the replicas after the beginning.
func (f *fleet) happenings(found *finding) []happening {
	all := slices.Clone(f.resumed)
	for _, s := range f.struck {
		all = append(all, happening{s.at, s.name + " " + string(s.how)})
	}
	for i, t := range found.turns {
		switch at := f.observer.at(t.revision); {
		case t.joined && i >= f.replicas:
			all = append(all, happening{at, t.name + " joins"})
		case !t.joined && f.struck[t.lease].how != ended:
			all = append(all, happening{at, t.name + "'s lease ends"})
		}
	}
	slices.SortFunc(all, func(a, b happening) int { return cmp.Compare(a.at, b.at) })
	return all
}
