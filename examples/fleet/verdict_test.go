package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"example.com/typedqueue/etcd"
)

// A story is a history and hands, told step by step.
type story struct {
	history []event
	hands   []*hand
	now     map[string]event // the source
}

func (s *story) add(e event) int64 {
	e.revision = int64(len(s.history) + 1)
	s.history = append(s.history, e)
	return e.revision
}

func (s *story) joins(name string, lease int64) int64 {
	return s.add(event{key: memberDir + name, lease: lease})
}

func (s *story) ends(name string) int64 { return s.add(event{key: memberDir + name, deleted: true}) }

func (s *story) wants(key, value string) {
	s.add(event{key: wantDir + key, value: []byte(value)})
	s.now[key] = s.history[len(s.history)-1]
}

func (s *story) unwants(key string) {
	s.add(event{key: wantDir + key, deleted: true})
	delete(s.now, key)
}

// does adds the effect that belongs to the source as it is.
func (s *story) does(key string, lease, epoch int64) {
	did := effect{Value: string(s.now[key].value), Revision: s.now[key].revision, Lease: lease, Epoch: epoch}
	s.writes(key, did)
}

func (s *story) writes(key string, did effect) {
	s.add(event{key: doneDir + key, value: []byte(did.String())})
}

// removes adds the signed removal of an effect, which is one transaction.
func (s *story) removes(key string, lease, epoch int64) {
	at := s.add(event{key: signDir + key, value: []byte(effect{Lease: lease, Epoch: epoch}.String())})
	s.history = append(s.history, event{revision: at, key: doneDir + key, deleted: true})
	// The next revision is one more than it should be, which nobody minds.
}

func (s *story) has(key string, lease, epoch, from, to int64) {
	s.hands = append(s.hands, &hand{key: key, lease: lease, epoch: epoch, from: from, to: to})
}

// keys finds keys by their owner, while r1 and r2 are there, and with r3 too. None is given twice.
func keys() func(owner, withR3 string) string {
	n := 0
	return func(owner, withR3 string) string {
		for ; ; n++ {
			key := fmt.Sprintf("k%d", n)
			if etcd.OwnerOf(key, []string{"r1", "r2"}) == owner && etcd.OwnerOf(key, []string{"r1", "r2", "r3"}) == withR3 {
				n++
				return key
			}
		}
	}
}

// tell tells a story in which all is well, but for what spoil does at a place of it.
func tell(place string, spoil func(s *story, p people)) *finding {
	s := &story{now: map[string]event{}}
	find := keys()
	var p people
	p.k1, p.k2, p.gone, p.k13, p.spare = find("r1", "r1"), find("r2", "r2"), find("r1", "r1"), find("r1", "r3"), find("r1", "r1")
	p.idle = find("r2", "r2")
	at := func(here string) {
		if here == place {
			spoil(s, p)
		}
	}
	s.joins("r1", 1)
	p.both = s.joins("r2", 2)
	for _, key := range []string{p.k1, p.k2, p.gone, p.k13} {
		s.wants(key, "old "+key)
	}
	s.add(event{key: memberDir + "r2", lease: 2, value: []byte("a word")})
	for _, key := range []string{p.k1, p.gone, p.k13} {
		s.has(key, 1, p.both, 10, 20)
		s.does(key, 1, p.both)
	}
	s.has(p.k2, 2, p.both, 10, 20)
	s.does(p.k2, 2, p.both)
	s.unwants(p.gone)
	s.has(p.gone, 1, p.both, 20, 25)
	s.removes(p.gone, 1, p.both)
	at("both")

	s.wants(p.k2, "new")
	s.has(p.k2, 2, p.both, 30, 44) // r2 is paused at 35
	p.alone = s.ends("r2")
	at("alone")
	s.has(p.k2, 1, p.alone, 40, 50)
	s.does(p.k2, 1, p.alone)
	s.has(p.k2, 2, p.both, 45, 47) // r2 goes on, and does not know yet
	p.again = s.joins("r2", 3)
	s.has(p.k2, 3, p.again, 60, 70)
	s.has(p.idle, 2, p.both, 10, 20)
	s.has(p.idle, 3, p.again, 60, 70) // moved by the second of two turns
	s.has(p.k13, 1, p.again, 60, 70)
	p.three = s.joins("r3", 4)
	at("three")
	s.has(p.k13, 4, p.three, 80, 85)
	at("end")
	return check(s.history, s.hands)
}

// People are the keys and epochs of a story.
type people struct {
	k1, k2, gone, k13, spare  string // of r1, r2, r1, of r1 and then r3, and of r1 without being told of
	idle                      string // of r2, and not in the source
	both, alone, again, three int64
}

func TestCheckGood(t *testing.T) {
	var p people
	found := tell("end", func(_ *story, is people) { p = is })
	if len(found.faults) > 0 {
		t.Fatalf("faults in a story without any: %v", found.faults)
	}
	if found.keys != 4 || found.changes != 6 || found.effects != 6 {
		t.Errorf("keys, changes, effects: %d, %d, %d", found.keys, found.changes, found.effects)
	}
	var turns []string
	for _, turn := range found.turns {
		moved := slices.Sorted(maps.Keys(turn.moved))
		turns = append(turns, fmt.Sprintf("%s %d %v %v %d %v", turn.name, turn.lease, turn.joined, turn.live, len(turn.keys), moved))
	}
	want := []string{
		"r1 1 true [r1] 0 []",
		"r2 2 true [r1 r2] 0 []",
		fmt.Sprintf("r2 2 false [r1] 3 [%s]", p.k2),
		fmt.Sprintf("r2 3 true [r1 r2] 3 %v", slices.Sorted(slices.Values([]string{p.k2, p.idle}))),
		fmt.Sprintf("r3 4 true [r1 r2 r3] 3 [%s]", p.k13),
	}
	if !slices.Equal(turns, want) {
		t.Errorf("turns:\n%s\nwant\n%s", strings.Join(turns, "\n"), strings.Join(want, "\n"))
	}
}

func TestCheckFinds(t *testing.T) {
	for name, c := range map[string]struct {
		place string
		spoil func(s *story, p people)
		want  []rule
	}{
		"a change without an effect": {"end", func(s *story, p people) { s.wants(p.k1, "newest") }, []rule{ruleLost}},
		"a change to what it was":    {"end", func(s *story, p people) { s.wants(p.k1, string(s.now[p.k1].value)) }, []rule{ruleLost}},
		"another value at the end": {"end", func(s *story, p people) {
			s.writes(p.k1, effect{Value: "other", Revision: s.now[p.k1].revision, Lease: 1, Epoch: p.three})
		}, []rule{ruleFenced, ruleLost}},
		"a deletion without one":   {"end", func(s *story, p people) { s.unwants(p.k1) }, []rule{ruleLost}},
		"a key that never had one": {"end", func(s *story, p people) { s.wants(p.spare, "new") }, []rule{ruleLost}},
		"the effect of nothing": {"end", func(s *story, p people) {
			s.writes(p.spare, effect{Lease: 1, Epoch: p.three})
		}, []rule{ruleLost}},

		"an effect after the lease": {"alone", func(s *story, p people) { s.does(p.k2, 2, p.both) }, []rule{ruleFenced}},
		"an effect without a lease": {"both", func(s *story, p people) { s.does(p.k1, 99, p.both) }, []rule{ruleFenced}},
		"a removal after the lease": {"alone", func(s *story, p people) { s.removes(p.gone, 2, p.both) }, []rule{ruleFenced}},
		"a removal without a name":  {"both", func(s *story, p people) { s.add(event{key: doneDir + p.spare, deleted: true}) }, []rule{ruleFenced}},
		"an effect that is not one": {"both", func(s *story, p people) { s.add(event{key: doneDir + p.k2, value: []byte("{")}) }, []rule{ruleFenced}},
		"an effect of an old epoch": {"end", func(s *story, p people) { s.does(p.k2, 3, p.both) }, []rule{ruleFenced}},
		"an effect of another value": {"both", func(s *story, p people) {
			s.writes(p.k2, effect{Value: "other", Revision: s.now[p.k2].revision, Lease: 2, Epoch: p.both})
		}, []rule{ruleFenced}},
		"an effect of an old revision": {"end", func(s *story, p people) {
			old := effect{Value: string(s.now[p.k1].value), Revision: s.now[p.k1].revision, Lease: 1, Epoch: p.three}
			s.wants(p.k1, old.Value)
			s.writes(p.k1, old)
			s.does(p.k1, 1, p.three)
		}, []rule{ruleFenced}},
		"a removal of what is wanted": {"end", func(s *story, p people) {
			s.removes(p.k1, 1, p.three)
			s.does(p.k1, 1, p.three)
		}, []rule{ruleFenced}},

		"two hands at once":      {"end", func(s *story, p people) { s.has(p.k13, 1, p.again, 82, 88) }, []rule{ruleShared}},
		"a hand that has no end": {"three", func(s *story, p people) { s.has(p.k13, 1, p.again, 75, forever) }, []rule{ruleShared}},
		"a hand before the lease ends": {"both", func(s *story, p people) {
			s.has(p.spare, 2, p.both, 30, 90)
			s.has(p.spare, 1, p.both, 40, 50)
		}, []rule{ruleForeign, ruleMoved, ruleShared}},

		"a hand on another's key": {"both", func(s *story, p people) { s.has(p.spare, 2, p.both, 21, 22) }, []rule{ruleForeign}},
		"a hand without a lease":  {"both", func(s *story, p people) { s.has(p.spare, 99, p.both, 21, 22) }, []rule{ruleForeign}},
		"a hand in no epoch":      {"both", func(s *story, p people) { s.has(p.spare, 1, p.both+1, 21, 22) }, []rule{ruleForeign}},
		"a move, and nobody came": {"both", func(s *story, p people) { s.has(p.k1, 2, p.both, 21, 22) }, []rule{ruleForeign, ruleMoved}},
		"a move between the others": {"end", func(s *story, p people) {
			s.has(p.spare, 1, p.three, 86, 87)
			s.has(p.spare, 3, p.three, 88, 89)
		}, []rule{ruleForeign, ruleMoved}},
		"a move long after one came": {"end", func(s *story, p people) { s.has(p.k13, 1, p.three, 91, 92) }, []rule{ruleForeign, ruleMoved}},
	} {
		t.Run(name, func(t *testing.T) {
			found := tell(c.place, c.spoil)
			if got := rulesOf(found.faults); !slices.Equal(got, c.want) {
				t.Errorf("found %v, want %v:\n%v", got, c.want, found.faults)
			}
		})
	}
}

func rulesOf(faults []fault) (rules []rule) {
	for _, f := range faults {
		if !slices.Contains(rules, f.rule) {
			rules = append(rules, f.rule)
		}
	}
	slices.Sort(rules)
	return rules
}
