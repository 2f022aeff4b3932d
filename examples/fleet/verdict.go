package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"example.com/typedqueue/etcd"
)

// This file is the check. It knows nothing of queues and how replicas take turns: it takes
// what etcd says has happened, and which keys the replicas had in hand when, and finds what
// must not be.

// An event is one change in etcd's history.
type event struct {
	revision int64
	key      string // below the prefix of this run
	value    []byte
	lease    int64
	deleted  bool
}

// What lies below the prefix of a run.
const (
	wantDir   = "want/"    // the source: what the parent changes
	doneDir   = "done/"    // the effects: what the replicas write
	signDir   = "signed/"  // who has removed an effect, written in the same transaction
	memberDir = "members/" // who is there
	endKey    = "end"      // the last event of a run
)

// An effect is the value of a key in doneDir or signDir: what has been done, in which state
// of the source, and by whom.
type effect struct {
	Value    string `json:"value,omitempty"`    // of the source
	Revision int64  `json:"revision,omitempty"` // at which the source got it; 0: it has no such key
	Lease    int64  `json:"lease"`              // of the replica that wrote this
	Epoch    int64  `json:"epoch"`              // the members by which it held the key for its own
}

func (e effect) String() string {
	text, err := json.Marshal(e)
	if err != nil {
		panic(err) // it has nothing that could fail
	}
	return string(text)
}

// A hand is one time that a replica had a key to work on.
type hand struct {
	key      string
	lease    int64
	epoch    int64
	from, to int64 // on the clock that the processes share; to is forever if no end was heard of
	writing  bool
	outcome  outcome
}

const forever = 1<<63 - 1

// The rules, by which a fault is named.
type rule string

const (
	ruleLost    rule = "lost"    // every key ends with the effect of its last change
	ruleFenced  rule = "fenced"  // no effect is accepted from who has no lease, or of an old state
	ruleShared  rule = "shared"  // no key is in two hands at once
	ruleForeign rule = "foreign" // nobody works on a key that is another's
	ruleMoved   rule = "moved"   // no key moves without need
	ruleTested  rule = "tested"  // what the run is for has happened in it
)

// A fault is a rule that was broken.
type fault struct {
	rule rule
	text string
}

func (f fault) String() string { return string(f.rule) + ": " + f.text }

// A turn is one change of members, and what it moved.
type turn struct {
	revision int64
	name     string
	lease    int64
	joined   bool
	live     []string         // who is there from now on
	keys     map[string]bool  // all in the source at that moment
	moved    map[string]*hand // the keys, and the first hand that each had with its new owner
}

// A finding is what the check comes to.
type finding struct {
	history                []event // in which it was found
	keys, changes, effects int
	turns                  []*turn
	faults                 []fault
}

func (f *finding) fault(r rule, format string, args ...any) {
	f.faults = append(f.faults, fault{r, fmt.Sprintf(format, args...)})
}

// check replays the history, which begins before the first change, and then goes through the
// hands.
func check(history []event, hands []*hand) *finding {
	r := replay{
		finding: &finding{},
		want:    map[string]event{},
		done:    map[string]effect{},
		signed:  map[string]int64{},
		keys:    map[string]bool{},
		epochs:  map[string]int64{},
		lives:   map[int64]*life{},
		members: map[string]int64{},
	}
	for _, e := range history {
		r.apply(e)
	}
	r.checkEnd()
	byKey := map[string][]*hand{}
	for _, h := range hands {
		byKey[h.key] = append(byKey[h.key], h)
	}
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		r.checkShared(byKey[key])
		r.checkOwned(byKey[key])
		r.checkMoves(byKey[key])
	}
	return r.finding
}

// A replay is the state of the prefix at one moment of its history.
type replay struct {
	*finding
	want    map[string]event  // the source
	done    map[string]effect // the effects
	signed  map[string]int64  // at which revision the removal of an effect was signed last
	keys    map[string]bool   // all that ever were in the source
	epochs  map[string]int64  // of the last effect of each key
	members map[string]int64  // the leases of those who are there, by name
	lives   map[int64]*life   // of all who ever were, by lease
}

// A life is the time for which a replica had its lease. One that comes back lives again.
type life struct{ joined, ended *turn }

// endedBy reports whether the life was over at a revision.
func (l *life) endedBy(revision int64) bool {
	return l != nil && l.ended != nil && l.ended.revision <= revision
}

func (r *replay) apply(e event) {
	dir, name, _ := strings.Cut(e.key, "/")
	switch dir + "/" {
	case wantDir:
		r.applyChange(name, e)
	case doneDir:
		r.effects++
		if e.deleted {
			r.applyRemoval(name, e)
		} else {
			r.done[name] = r.applyEffect(name, e)
		}
	case signDir:
		r.signed[name] = e.revision
		r.applyEffect(name, e)
	case memberDir:
		r.applyMember(name, e)
	}
}

func (r *replay) applyChange(key string, e event) {
	r.changes++
	r.keys[key] = true
	if e.deleted {
		delete(r.want, key)
	} else {
		r.want[key] = e
	}
}

// applyRemoval checks that the removal of an effect is signed, and so has been checked as any
// other effect.
func (r *replay) applyRemoval(key string, e event) {
	if r.signed[key] != e.revision {
		r.fault(ruleFenced, "at revision %d the effect of %q was removed, and nobody signed", e.revision, key)
	}
	delete(r.done, key)
}

// applyEffect checks an effect against the moment at which etcd accepted it. An effect and a
// change are never of one revision, since nobody writes both.
func (r *replay) applyEffect(key string, e event) (did effect) {
	if err := json.Unmarshal(e.value, &did); err != nil {
		r.fault(ruleFenced, "at revision %d the effect of %q became %q, which no replica writes", e.revision, key, e.value)
		return did
	}
	if l := r.lives[did.Lease]; l == nil || l.endedBy(e.revision) {
		r.fault(ruleFenced, "at revision %d an effect of %q was accepted from lease %x, which was not alive", e.revision, key, did.Lease)
	}
	if now := r.want[key]; did.Revision != now.revision || did.Value != string(now.value) {
		r.fault(ruleFenced, "at revision %d an effect of %q was accepted for revision %d of its source, which was at %d",
			e.revision, key, did.Revision, now.revision)
	}
	if did.Epoch < r.epochs[key] {
		r.fault(ruleFenced, "at revision %d an effect of %q was accepted from epoch %d, after one from %d", e.revision, key, did.Epoch, r.epochs[key])
	}
	r.epochs[key] = did.Epoch
	return did
}

func (r *replay) applyMember(name string, e event) {
	lease, lived := r.members[name]
	if lived && !e.deleted && lease == e.lease {
		return // a replica says something
	}
	t := &turn{revision: e.revision, name: name, lease: lease, keys: map[string]bool{}, moved: map[string]*hand{}}
	if lived {
		r.lives[lease].ended = t
		delete(r.members, name)
	}
	if !e.deleted {
		t.joined, t.lease = true, e.lease
		r.lives[e.lease] = &life{joined: t}
		r.members[name] = e.lease
	}
	for key := range r.want {
		t.keys[key] = true
	}
	t.live = slices.Sorted(maps.Keys(r.members))
	r.turns = append(r.turns, t)
}

// checkEnd checks that every key has the effect of its last change.
func (r *replay) checkEnd() {
	r.finding.keys = len(r.keys)
	for _, key := range slices.Sorted(maps.Keys(r.keys)) {
		want := r.want[key]
		if did := r.done[key]; did.Revision != want.revision || did.Value != string(want.value) {
			r.fault(ruleLost, "%q ends with the effect of revision %d, and its source with revision %d", key, did.Revision, want.revision)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(r.done)) {
		if !r.keys[key] {
			r.fault(ruleLost, "%q has an effect and never was in the source", key)
		}
	}
}

// checkShared finds two hands on a key at once. The hand of a replica whose lease has ended
// is void: its effects are refused, which applyEffect checks. So two hands that overlap are
// none at once if the one replica knew, when it took the key, that the other's lease had
// ended; and it knew exactly if its epoch is that end, or later.
func (r *replay) checkShared(hands []*hand) {
	slices.SortFunc(hands, func(a, b *hand) int { return cmp.Compare(a.from, b.from) })
	for i, a := range hands {
		for _, b := range hands[i+1:] {
			if b.from >= a.to {
				break
			}
			if r.lives[a.lease].endedBy(b.epoch) || r.lives[b.lease].endedBy(a.epoch) {
				continue
			}
			r.fault(ruleShared, "%q was in the hands of leases %x and %x at once", a.key, a.lease, b.lease)
		}
	}
}

// checkOwned finds hands on keys that belonged to somebody else, by the members of the epoch.
func (r *replay) checkOwned(hands []*hand) {
	for _, h := range hands {
		i, ok := slices.BinarySearchFunc(r.turns, h.epoch, func(t *turn, epoch int64) int { return cmp.Compare(t.revision, epoch) })
		if !ok {
			r.fault(ruleForeign, "lease %x had %q in epoch %d, which is none", h.lease, h.key, h.epoch)
			continue
		}
		owner := etcd.OwnerOf(h.key, r.turns[i].live)
		if l := r.lives[h.lease]; l == nil || l.joined.name != owner {
			r.fault(ruleForeign, "lease %x had %q in epoch %d, where it belonged to %s", h.lease, h.key, h.epoch, owner)
		}
	}
}

// checkMoves finds keys that went from one replica to another without need. There is need if
// the one has ended or the other has come since the epoch of the former's last hand. It
// knows nothing of how owners are found.
func (r *replay) checkMoves(hands []*hand) {
	slices.SortStableFunc(hands, func(a, b *hand) int { return cmp.Compare(a.epoch, b.epoch) })
	for i := 1; i < len(hands); i++ {
		a, b := hands[i-1], hands[i]
		if a.lease == b.lease {
			continue
		}
		if t := r.cause(a, b); t != nil {
			t.moved[b.key] = b
		} else {
			r.fault(ruleMoved, "%q moved from lease %x to %x between epochs %d and %d, without need", a.key, a.lease, b.lease, a.epoch, b.epoch)
		}
	}
}

// cause returns the turn that moved a key from the one hand to the other, the later one if
// there are two, and nil if there is none.
func (r *replay) cause(a, b *hand) *turn {
	between := func(t *turn) bool { return t != nil && a.epoch < t.revision && t.revision <= b.epoch }
	var t *turn
	if l := r.lives[a.lease]; l != nil && between(l.ended) {
		t = l.ended
	}
	if l := r.lives[b.lease]; l != nil && between(l.joined) && (t == nil || t.revision < l.joined.revision) {
		t = l.joined
	}
	return t
}
