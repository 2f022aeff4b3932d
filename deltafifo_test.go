package typedqueue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// deltaLine is a DeltaFIFO as a testLine. Its contents read "a: Added a1, Deleted? a1", where
// the question mark stands for an unknown final state, and - for a missing object.
type deltaLine struct {
	*DeltaFIFO[string, string]
}

func newDeltaLine(opts DeltaFIFOOptions[string, string]) deltaLine {
	return deltaLine{NewDeltaFIFO(lineKey, opts)}
}

func story(key string, deltas Deltas[string]) string {
	parts := make([]string, len(deltas))
	for i, d := range deltas {
		parts[i] = deltaText(d)
	}
	return key + ": " + strings.Join(parts, ", ")
}

func deltaText(d Delta[string]) string {
	text := string(d.Type)
	if d.FinalStateUnknown {
		text += "?"
	}
	if d.ObjectMissing {
		if d.Object != "" {
			return text + " - with an object"
		}
		return text + " -"
	}
	return text + " " + d.Object
}

func (l deltaLine) addIfAbsent(obj string) error {
	key, err := l.KeyOf(obj)
	if err != nil {
		return cmp.Or(l.AddIfNotPresent("n", nil), err)
	}
	return l.AddIfNotPresent(key, Deltas[string]{{Type: Added, Object: obj}})
}

func (l deltaLine) contents() (stories []string) {
	for _, key := range l.ListKeys() {
		deltas, _ := l.GetByKey(key)
		stories = append(stories, story(key, deltas))
	}
	return stories
}

func (l deltaLine) entryCount() int { return l.entries.n }

func (l deltaLine) next(ctx context.Context, process func(key, content string, initial bool) error) (string, error) {
	if process == nil {
		_, err := l.Pop(ctx, nil)
		return "", err
	}
	var popped string
	deltas, err := l.Pop(ctx, func(key string, deltas Deltas[string], initial bool) error {
		popped = key
		return process(key, story(key, deltas), initial)
	})
	if deltas == nil {
		return "", err
	}
	return story(popped, deltas), err
}

// doDeltas calls AddIfNotPresent.
func doDeltas(key string, deltas ...Delta[string]) move {
	return func(r *lineRun) {
		if err := r.q.(deltaLine).AddIfNotPresent(key, deltas); err != nil {
			r.t.Errorf("AddIfNotPresent(%s, %v) = %v", key, deltas, err)
		}
	}
}

func explicit(t DeltaType, obj string) Delta[string] { return Delta[string]{Type: t, Object: obj} }

var noObject = Delta[string]{Type: Deleted, FinalStateUnknown: true, ObjectMissing: true}

// knownMap is a KnownObjects that never changes by itself.
type knownMap map[string]string

func (k knownMap) ListKeys() []string { return slices.Sorted(maps.Keys(k)) }
func (k knownMap) GetByKey(key string) (string, bool) {
	obj, ok := k[key]
	return obj, ok
}

// knownOf returns a KnownObjects that holds objs.
func knownOf(objs ...string) knownMap {
	k := knownMap{}
	for _, obj := range objs {
		k[obj[:1]] = obj
	}
	return k
}

// knownFuncs is a KnownObjects made of functions.
type knownFuncs struct {
	keys func() []string
	get  func(key string) (string, bool)
}

func (k knownFuncs) ListKeys() []string                 { return k.keys() }
func (k knownFuncs) GetByKey(key string) (string, bool) { return k.get(key) }

// deltaCase is a scenario with a DeltaFIFO, and everything that is popped in it and after it.
type deltaCase struct {
	name  string
	known knownMap // nil: none
	moves []move
	want  []string
}

func runDeltaCases(t *testing.T, opts DeltaFIFOOptions[string, string], cases []deltaCase) {
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			opts := opts
			if tt.known != nil {
				opts.KnownObjects = tt.known
			}
			got := playLine(t, newDeltaLine(opts), tt.moves...)
			if diff := gocmp.Diff(tt.want, got); diff != "" {
				t.Errorf("popped (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDeltaFIFO_D1_AllChangesTogetherInOrder(t *testing.T) {
	runDeltaCases(t, DeltaFIFOOptions[string, string]{}, []deltaCase{
		{"oldest first", nil, []move{doAdd("a1"), doUpdate("a2", "a3"), doDelete("a4")}, []string{
			"a: Added a1, Updated a2, Updated a3, Deleted a4",
		}},
		{"keys by their first pending delta", nil, []move{doAdd("b1", "a1"), doUpdate("b2"), doAdd("c1"), doUpdate("a2")}, []string{
			"b: Added b1, Updated b2", "a: Added a1, Updated a2", "c: Added c1",
		}},
		{"since the last Pop only, at the tail", nil, []move{doAdd("a1", "b1"), doPop("a", endNil), doAdd("a2")}, []string{
			"a: Added a1", "b: Added b1", "a: Added a2",
		}},
		{"nothing is forgotten, so a deleted key keeps its place", nil, []move{doAdd("a1", "b1"), doDelete("a1"), doAdd("a2")}, []string{
			"a: Added a1, Deleted a1, Added a2", "b: Added b1",
		}},
		{"in processing it takes its place at once", nil, []move{doAdd("a1"), doPop("a", endNil, doAdd("a2", "b1"), doUpdate("a3"), wantKeys("a", "b"))}, []string{
			"a: Added a1", "a: Added a2, Updated a3", "b: Added b1",
		}},
		{"and is passed over", nil, []move{doAdd("a1"), doPop("a", endNil, doAdd("a2", "b1"), doPop("b", endNil), wantKeys("a"), doAdd("c1"))}, []string{
			"a: Added a1", "b: Added b1", "a: Added a2", "c: Added c1",
		}},
	})
}

func TestDeltaFIFO_D2_OnlyDeletionsMerge(t *testing.T) {
	runDeltaCases(t, DeltaFIFOOptions[string, string]{}, []deltaCase{
		{"the older Deleted stays", nil, []move{doAdd("a1"), doDelete("a2", "a3", "a4")}, []string{"a: Added a1, Deleted a2"}},
		{"also if the newer is of unknown final state", knownOf("a0"), []move{doDelete("a1"), doDeleteKey("a")}, []string{"a: Deleted a1"}},
		{"the newer stays if the older is of unknown final state", knownOf("a0"), []move{doDeleteKey("a"), doDelete("a1", "a2")}, []string{"a: Deleted a1"}},
		{"also if both are", knownOf("a0"), []move{doDeltas("a", noObject), doDeleteKey("a")}, []string{"a: Deleted? a0"}},
		{"in a row only", nil, []move{doAdd("a1"), doDelete("a2"), doAdd("a3"), doDelete("a4", "a5")}, []string{"a: Added a1, Deleted a2, Added a3, Deleted a4"}},
		{"not with one that has been popped", knownOf("a0"), []move{doDelete("a1"), doPop("a", endNil), doDelete("a2")}, []string{"a: Deleted a1", "a: Deleted a2"}},
		{"with one that is put back", nil, []move{
			doAdd("a1"), doDelete("a2"), doPop("a", endRequeue, doDeltas("a", explicit(Deleted, "a3"), explicit(Added, "a4"))),
		}, []string{"a: Added a1, Deleted a2", "a: Added a1, Deleted a2, Added a4"}},
		{"with one of unknown final state that is put back", nil, []move{
			doDeltas("a", noObject), doPop("a", endPanic, doDeltas("a", explicit(Deleted, "a3"))),
		}, []string{"a: Deleted? -", "a: Deleted a3"}},
		{"nothing else", nil, []move{doAdd("a1", "a1"), doUpdate("a1", "a1"), doReplace("a1"), doReplace("a1", "a1")}, []string{
			"a: Added a1, Added a1, Updated a1, Updated a1, Replaced a1, Replaced a1, Replaced a1",
		}},
	})
	runDeltaCases(t, DeltaFIFOOptions[string, string]{EmitSyncOnReplace: true}, []deltaCase{
		{"nor Sync", nil, []move{doReplace("a1"), doReplace("a1")}, []string{"a: Sync a1, Sync a1"}},
	})
}

// Without Merge every re-list adds a change; with one it is what Merge says (C54).
func TestDeltaFIFO_D2_RelistsOfASlowConsumer(t *testing.T) {
	const relists = 1000
	newest := func(_ Deltas[string], next Delta[string]) Deltas[string] { return Deltas[string]{next} }
	for _, tt := range []struct {
		name string
		opts DeltaFIFOOptions[string, string]
		want int
	}{
		{"default", DeltaFIFOOptions[string, string]{}, relists},
		{"Merge", DeltaFIFOOptions[string, string]{Merge: newest}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			q := newDeltaLine(tt.opts)
			for range relists {
				if err := q.Replace([]string{"a1"}); err != nil {
					t.Fatal(err)
				}
			}
			if deltas, ok := q.GetByKey("a"); len(deltas) != tt.want || !ok {
				t.Errorf("%d deltas after %d lists, want %d", len(deltas), relists, tt.want)
			}
		})
	}
}

// mergeLog is a Merge that keeps pending and next, and notes what it was asked.
type mergeLog struct{ calls []string }

func (m *mergeLog) merge(pending Deltas[string], next Delta[string]) Deltas[string] {
	m.calls = append(m.calls, story("", pending)+" + "+deltaText(next))
	return append(pending, next)
}

func TestDeltaFIFO_D2_MergeIsAskedEachTime(t *testing.T) {
	for _, tt := range []struct {
		name  string
		moves []move
		want  []string
	}{
		{"with nothing pending too", []move{doAdd("a1"), doUpdate("a2"), doDelete("a3", "a4")}, []string{
			": + Added a1", ": Added a1 + Updated a2", ": Added a1, Updated a2 + Deleted a3",
			": Added a1, Updated a2, Deleted a3 + Deleted a4", // D2's own merging is off
		}},
		{"by Replace", []move{doAdd("a1"), doReplace("b1", "b2")}, []string{
			": + Added a1", ": + Replaced b1", ": Replaced b1 + Replaced b2", ": Added a1 + Deleted? a1", ": + Deleted? k0",
		}},
		{"by Resync and DeleteKey", []move{doResync, doDeleteKey("k")}, []string{": + Sync k0", ": Sync k0 + Deleted? k0"}},
		{"not with what is in processing", []move{doAdd("a1"), doPop("a", endNil, doUpdate("a2"))}, []string{": + Added a1", ": + Updated a2"}},
		{"one by one when put back", []move{doAdd("a1"), doUpdate("a2"), doPop("a", endRequeue, doUpdate("a3", "a4"))}, []string{
			": + Added a1", ": Added a1 + Updated a2",
			": + Updated a3", ": Updated a3 + Updated a4",
			": Added a1, Updated a2 + Updated a3", ": Added a1, Updated a2, Updated a3 + Updated a4",
		}},
		{"not for a deletion that is pending already", []move{doDelete("k1"), doReplace()}, []string{": + Deleted k1"}}, // D4
		{"not when nothing came meanwhile", []move{doAdd("a1"), doPop("a", endRequeue)}, []string{": + Added a1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var m mergeLog
			playLine(t, newDeltaLine(DeltaFIFOOptions[string, string]{KnownObjects: knownOf("k0"), Merge: m.merge}), tt.moves...)
			want := make([]string, len(tt.want))
			for i, call := range tt.want {
				want[i] = strings.Replace(call, ": + ", ":  + ", 1) // nothing pending
			}
			if diff := gocmp.Diff(want, m.calls); diff != "" {
				t.Errorf("Merge was asked (-want +got):\n%s", diff)
			}
		})
	}
}

// What Merge returns is what will be popped, also if it changed pending in place.
func TestDeltaFIFO_D2_MergeDecides(t *testing.T) {
	upper := func(pending Deltas[string], next Delta[string]) Deltas[string] {
		for i := range pending {
			pending[i].Object = strings.ToUpper(pending[i].Object)
		}
		if n := len(pending); n > 0 && pending[n-1].Type == next.Type {
			pending[n-1] = next
			return pending
		}
		return append(pending, next)
	}
	runDeltaCases(t, DeltaFIFOOptions[string, string]{Merge: upper}, []deltaCase{
		{"in place", nil, []move{doAdd("a1", "b1"), doUpdate("a2", "a3"), doAdd("a4")}, []string{"a: Added A1, Updated A3, Added a4", "b: Added b1"}},
		{"by Replace", nil, []move{doAdd("a1"), doReplace("a2", "a3")}, []string{"a: Added A1, Replaced a3"}},
		{"the place is kept", nil, []move{doAdd("a1", "b1", "a2")}, []string{"a: Added a2", "b: Added b1"}},
		{"when put back", nil, []move{doAdd("a1"), doPop("a", endRequeue, doAdd("a2"), doUpdate("a3"))}, []string{"a: Added a1", "a: Added A2, Updated a3"}},
	})
}

// A Merge that returns nothing, or panics itself, is a panic before anything changed, in the
// middle of a list too, and whatever it has done to pending before.
func TestDeltaFIFO_D2_MergePanics(t *testing.T) {
	var armed bool
	const trigger = "z9" // what Merge panics at, or any tombstone
	hit := func(next Delta[string]) bool { return armed && (next.Object == trigger || next.FinalStateUnknown) }
	spoil := func(pending Deltas[string]) {
		for i := range pending {
			pending[i] = Delta[string]{Type: "spoilt"}
		}
	}
	merges := map[string]func(pending Deltas[string], next Delta[string]) Deltas[string]{
		"nil": func(pending Deltas[string], next Delta[string]) Deltas[string] {
			if hit(next) {
				return nil
			}
			return append(pending, next)
		},
		"empty": func(pending Deltas[string], next Delta[string]) Deltas[string] {
			if hit(next) {
				return pending[:0]
			}
			return append(pending, next)
		},
		"panic": func(pending Deltas[string], next Delta[string]) Deltas[string] {
			if hit(next) {
				panic("typedqueue: (not really)")
			}
			return append(pending, next)
		},
		"changed and nil": func(pending Deltas[string], next Delta[string]) Deltas[string] {
			if hit(next) {
				spoil(pending)
				return nil
			}
			return append(pending, next)
		},
		"changed and panic": func(pending Deltas[string], next Delta[string]) Deltas[string] {
			if hit(next) {
				spoil(pending)
				panic("typedqueue: (not really)")
			}
			return append(pending, next)
		},
	}
	writes := map[string]func(q deltaLine) error{
		"Add":                        func(q deltaLine) error { return q.Add(trigger) },
		"Update":                     func(q deltaLine) error { return q.Update(trigger) },
		"Delete":                     func(q deltaLine) error { return q.Delete(trigger) },
		"DeleteKey":                  func(q deltaLine) error { return q.DeleteKey("z") },
		"Replace, listed":            func(q deltaLine) error { return q.Replace([]string{"a2", "b1", "a3", trigger, "k1"}) },
		"Replace, inferred deletion": func(q deltaLine) error { return q.Replace([]string{"a2", "b1", "a3"}) },
	}
	for mergeName, merge := range merges {
		for _, pending := range []bool{true, false} {
			for writeName, write := range writes {
				t.Run(fmt.Sprintf("%s/pending %v/%s", mergeName, pending, writeName), func(t *testing.T) {
					armed = false
					q := newDeltaLine(DeltaFIFOOptions[string, string]{Merge: merge, KnownObjects: knownOf("k0", "z0")})
					r := &lineRun{t: t, q: q}
					r.play(doAdd("a1"))
					if pending {
						r.play(doAdd("z1"), doUpdate("z2"))
					}
					before, stats, entries := q.contents(), q.Stats(), q.entryCount()
					armed = true
					wantLinePanic(t, writeName, func() { _ = write(q) })
					armed = false
					if diff := gocmp.Diff(before, q.contents()); diff != "" {
						t.Errorf("changed (-before +after):\n%s", diff)
					}
					if after := q.Stats(); after.Adds != stats.Adds || after.Ready != stats.Ready || q.entryCount() != entries {
						t.Errorf("changed: %+v, %d entries; before %+v, %d", after, q.entryCount(), stats, entries)
					}
					playLine(t, q, doAdd("z5")) // no lock is held
				})
			}
		}
	}
	t.Run("Resync", func(t *testing.T) {
		armed = false
		q := newDeltaLine(DeltaFIFOOptions[string, string]{Merge: merges["nil"], KnownObjects: knownOf("a0", "k0", trigger)})
		armed = true
		wantLinePanic(t, "Resync", func() { _ = q.Resync() })
		armed = false
		if got := q.contents(); got != nil || q.entryCount() != 0 {
			t.Errorf("a Resync that panicked has queued %v, %d entries", got, q.entryCount())
		}
	})
	t.Run("first Replace", func(t *testing.T) {
		armed = true
		q := newDeltaLine(DeltaFIFOOptions[string, string]{Merge: merges["panic"]})
		wantLinePanic(t, "Replace", func() { _ = q.Replace([]string{"a1", trigger}) })
		armed = false
		playLine(t, q, unsynced, doReplace("b1"), unsynced, doPop("b*", endNil), synced)
	})
}

func TestDeltaFIFO_D3_WhatExists(t *testing.T) {
	runDeltaCases(t, DeltaFIFOOptions[string, string]{}, []deltaCase{
		{"pending", nil, []move{doAdd("a1"), doDelete("a2")}, []string{"a: Added a1, Deleted a2"}},
		{"pending, not known", knownOf(), []move{doReplace("a1"), doDelete("a1")}, []string{"a: Replaced a1, Deleted a1"}}, // C05
		{"in processing", knownOf(), []move{doAdd("a1"), doPop("a", endNil, doDelete("a2"))}, []string{"a: Added a1", "a: Deleted a2"}},
		{"in processing, by key", nil, []move{doAdd("a1"), doPop("a", endNil, doDeleteKey("a"))}, []string{"a: Added a1", "a: Deleted? a1"}},
		{"in processing, deleted and added", nil, []move{doAdd("a1"), doDelete("a1"), doAdd("a2"), doPop("a", endNil, doDelete("a3"))}, []string{
			"a: Added a1, Deleted a1, Added a2", "a: Deleted a3",
		}},
		{"not in processing as deleted, though known", knownOf("a0"), []move{doDelete("a1"), doPop("a", endNil, doDelete("a2"), doDeleteKey("a"), wantKeys())}, []string{"a: Deleted a1"}},
		{"nor as deleted without its object", knownOf("a0"), []move{doDeltas("a", explicit(Added, "a1"), noObject), doPop("a", endNil, doDelete("a2"), doDeleteKey("a"), wantKeys())}, []string{
			"a: Added a1, Deleted? -",
		}},
		{"in processing as deleted, and pending", knownOf("a0"), []move{doDelete("a1"), doPop("a", endNil, doAdd("a2"), doDelete("a3"))}, []string{
			"a: Deleted a1", "a: Added a2, Deleted a3",
		}},
		{"known", knownOf("a0"), []move{doDelete("a1")}, []string{"a: Deleted a1"}},
		{"known, by key", knownOf("a0"), []move{doDeleteKey("a")}, []string{"a: Deleted? a0"}},
		{"unknown", knownOf("b0"), []move{doDelete("a1"), doDeleteKey("a"), wantKeys()}, nil},
		{"nothing is known", knownOf(), []move{doDelete("a1"), doDeleteKey("a"), wantKeys()}, nil},
		{"without KnownObjects", nil, []move{doDelete("a1"), doDeleteKey("a"), wantKeys()}, nil},
		{"without KnownObjects, popped", nil, []move{doAdd("a1"), doPop("a", endNil), doDelete("a1"), doDeleteKey("a"), wantKeys()}, []string{"a: Added a1"}}, // C07
		{"without KnownObjects, put back", nil, []move{doAdd("a1"), doPop("a", endRequeue), doDelete("a1")}, []string{"a: Added a1", "a: Added a1, Deleted a1"}},
	})
}

func TestDeltaFIFO_D4_Replace(t *testing.T) {
	runDeltaCases(t, DeltaFIFOOptions[string, string]{}, []deltaCase{
		{"in list order, duplicates too", nil, []move{doReplace("b1", "a1", "b2")}, []string{"b: Replaced b1, Replaced b2", "a: Replaced a1"}},
		{"behind what is pending", nil, []move{doAdd("a1"), doReplace("b1", "a2")}, []string{"a: Added a1, Replaced a2", "b: Replaced b1"}},
		{"behind a pending Deleted too", knownOf("a1"), []move{doDelete("a1"), doReplace("a2")}, []string{"a: Deleted a1, Replaced a2"}},       // C01
		{"a pending key that is not listed", knownOf(), []move{doAdd("a1"), doReplace(), wantKeys("a")}, []string{"a: Added a1, Deleted? a1"}}, // C02
		{"the same without KnownObjects", nil, []move{doAdd("a1"), doReplace("b1")}, []string{"a: Added a1, Deleted? a1", "b: Replaced b1"}},   // C02
		{"a known key that is not listed", knownOf("a1"), []move{doReplace()}, []string{"a: Deleted? a1"}},                                     // C16
		{"listed ones first", knownOf("a0"), []move{doReplace("c1", "b1")}, []string{"c: Replaced c1", "b: Replaced b1", "a: Deleted? a0"}},    // C26
		{"known and listed", knownOf("a0"), []move{doReplace("a1")}, []string{"a: Replaced a1"}},                                               // C09
		{"no second Deleted", knownOf("a0"), []move{doDelete("a1"), doReplace(), doReplace()}, []string{"a: Deleted a1"}},
		{"no second inferred one", knownOf("a0"), []move{doReplace(), doReplace()}, []string{"a: Deleted? a0"}},
		{"none behind a Deleted in processing", knownOf("a0"), []move{doDelete("a1"), doPop("a", endNil, doReplace())}, []string{"a: Deleted a1"}},
		{"in processing", knownOf(), []move{doAdd("a1"), doPop("a", endNil, doReplace())}, []string{"a: Added a1", "a: Deleted? a1"}},
		{"in processing and listed", knownOf("a0"), []move{doAdd("a1"), doPop("a", endNil, doReplace("a2"))}, []string{"a: Added a1", "a: Replaced a2"}},
		{"in processing, deletion pending", nil, []move{doAdd("a1"), doPop("a", endNil, doDelete("a2"), doReplace())}, []string{"a: Added a1", "a: Deleted a2"}},
		{"in processing as deleted, pending again", knownOf("a0"), []move{doDelete("a1"), doPop("a", endNil, doAdd("a2"), doReplace())}, []string{
			"a: Deleted a1", "a: Added a2, Deleted? a2",
		}},
		{"in processing as deleted, listed", knownOf("a0"), []move{doDelete("a1"), doPop("a", endNil, doReplace("a2"))}, []string{"a: Deleted a1", "a: Replaced a2"}},
		{"object: pending first", knownOf("a0"), []move{doUpdate("a1"), doPop("a", endNil, doUpdate("a2", "a3"), doReplace())}, []string{
			"a: Updated a1", "a: Updated a2, Updated a3, Deleted? a3",
		}},
		{"object: then processing", knownOf("a0"), []move{doUpdate("a1", "a2"), doPop("a", endNil, doReplace())}, []string{"a: Updated a1, Updated a2", "a: Deleted? a2"}},
		{"pending, in processing, known", knownOf("k0"), []move{doAdd("x1", "p1"), doPop("x", endNil, doReplace())}, []string{
			"x: Added x1", "p: Added p1, Deleted? p1", "x: Deleted? x1", "k: Deleted? k0",
		}},
	})
	runDeltaCases(t, DeltaFIFOOptions[string, string]{EmitSyncOnReplace: true}, []deltaCase{
		{"EmitSyncOnReplace", knownOf("b0"), []move{doReplace("a1")}, []string{"a: Sync a1", "b: Deleted? b0"}},
	})
}

// An inferred deletion looks for the newest object past changes that have none.
func TestDeltaFIFO_D4_NewestObjectSeen(t *testing.T) {
	added := explicit(Added, "a1")
	runDeltaCases(t, DeltaFIFOOptions[string, string]{}, []deltaCase{
		{"pending", knownOf("a0"), []move{doDeltas("a", added, noObject), doDeleteKey("a")}, []string{"a: Added a1, Deleted? a1"}},
		{"in processing", knownOf("a0"), []move{doDeltas("a", added, noObject), doPop("a", endNil, doDeltas("a", noObject), doDeleteKey("a"))}, []string{
			"a: Added a1, Deleted? -", "a: Deleted? a1",
		}},
		{"known", knownOf("a0"), []move{doDeltas("a", noObject), doPop("a", endNil, doDeltas("a", noObject), doDeleteKey("a"))}, []string{
			"a: Deleted? -", "a: Deleted? a0",
		}},
		{"nowhere", knownOf(), []move{doDeltas("a", noObject), doDeleteKey("a")}, []string{"a: Deleted? -"}},
		{"nowhere, without KnownObjects", nil, []move{doDeltas("a", noObject), doDeleteKey("a")}, []string{"a: Deleted? -"}},
		{"no longer, once processed", knownOf("a0"), []move{doAdd("a1"), doPop("a", endNil), doDeleteKey("a")}, []string{"a: Added a1", "a: Deleted? a0"}},
	})
}

// KnownObjects may change without the queue; a deletion without an object is the worst of it
// (C08).
func TestDeltaFIFO_D5_Deletions(t *testing.T) {
	listed := knownFuncs{func() []string { return []string{"a", "b"} }, func(key string) (string, bool) {
		return "b0", key == "b" // a has gone since
	}}
	q := newDeltaLine(DeltaFIFOOptions[string, string]{KnownObjects: listed})
	if err := q.Replace(nil); err != nil {
		t.Fatal(err)
	}
	if err := q.Delete("b1"); err != nil {
		t.Fatal(err)
	}
	if err := q.AddIfNotPresent("c", Deltas[string]{explicit(Added, "c1")}); err != nil {
		t.Fatal(err)
	}
	if err := q.Delete("c2"); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]Deltas[string]{
		"a": {{Type: Deleted, FinalStateUnknown: true, ObjectMissing: true}},
		"b": {{Type: Deleted, Object: "b1"}},
		"c": {{Type: Added, Object: "c1"}, {Type: Deleted, Object: "c2"}},
	} {
		got, ok := q.GetByKey(key)
		if diff := gocmp.Diff(want, got); diff != "" || !ok {
			t.Errorf("deltas of %s, %v (-want +got):\n%s", key, ok, diff)
		}
		if got.Oldest() != want[0] || got.Newest() != want[len(want)-1] {
			t.Errorf("Oldest() = %v, Newest() = %v of %v", got.Oldest(), got.Newest(), want)
		}
	}
	got := playLine(t, newDeltaLine(DeltaFIFOOptions[string, string]{KnownObjects: listed}), doResync) // D6: a has no object to tell again
	if want := []string{"b: Sync b0"}; !slices.Equal(got, want) {
		t.Errorf("Resync has queued %v, want %v", got, want)
	}
}

func TestDeltaFIFO_D6_Resync(t *testing.T) {
	runDeltaCases(t, DeltaFIFOOptions[string, string]{}, []deltaCase{
		{"known keys", knownOf("a1", "b1"), []move{doResync}, []string{"a: Sync a1", "b: Sync b1"}},
		{"not while pending", knownOf("a5"), []move{doUpdate("a6"), doResync}, []string{"a: Updated a6"}},             // C18
		{"not while deletion is pending", knownOf("a1"), []move{doDelete("a1"), doResync}, []string{"a: Deleted a1"}}, // C19
		{"not twice", knownOf("a1"), []move{doResync, doResync}, []string{"a: Sync a1"}},
		{"not while in processing", knownOf("a1", "b1"), []move{doUpdate("a2"), doPop("a", endNil, doResync)}, []string{"a: Updated a2", "b: Sync b1"}},
		{"not while deleted in processing", knownOf("a1"), []move{doDelete("a1"), doPop("a", endNil, doResync)}, []string{"a: Deleted a1"}},
		{"behind others", knownOf("a1"), []move{doAdd("b1"), doResync}, []string{"b: Added b1", "a: Sync a1"}},
		{"is not Replaced", knownOf("a1"), []move{doReplace("a2"), doPop("a*", endNil), doResync}, []string{"a: Replaced a2", "a: Sync a1"}}, // C09
		{"without KnownObjects", nil, []move{doResync, wantKeys(), doAdd("a1"), doResync}, []string{"a: Added a1"}},                          // C23
		{"asks no key function", knownMap{"a": "!"}, []move{doResync}, []string{"a: Sync !"}},                                                // C84
	})
}

// A key that KnownObjects list twice counts once, in Resync and in Replace.
func TestDeltaFIFO_KnownTwice(t *testing.T) {
	for name, write := range map[string]func(*DeltaFIFO[string, string]) error{
		"Resync":  func(q *DeltaFIFO[string, string]) error { return q.Resync() },
		"Replace": func(q *DeltaFIFO[string, string]) error { return q.Replace(nil) },
	} {
		q := NewDeltaFIFO(lineKey, DeltaFIFOOptions[string, string]{KnownObjects: knownFuncs{
			keys: func() []string { return []string{"a", "a"} },
			get:  func(key string) (string, bool) { return key + "1", true },
		}})
		if err := write(q); err != nil {
			t.Fatal(err)
		}
		if got, _ := q.GetByKey("a"); len(got) != 1 || q.Len() != 1 {
			t.Errorf("%s queues %v", name, got)
		}
	}
}

// A Resync while somebody deletes brings nothing back (C20).
func TestDeltaFIFO_D6_ResyncIsOneStep(t *testing.T) {
	const keys = 1000
	store := NewStore(func(obj int) (int, error) { return obj, nil })
	for obj := range keys {
		if err := store.Add(obj); err != nil {
			t.Fatal(err)
		}
	}
	q := NewDeltaFIFO(func(obj int) (int, error) { return obj, nil }, DeltaFIFOOptions[int, int]{KnownObjects: store})
	var wg sync.WaitGroup
	for half := range 2 {
		wg.Go(func() {
			for obj := half; obj < keys; obj += 2 {
				if err := q.Delete(obj); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Go(func() {
		for range 3 {
			runtime.Gosched()
			if err := q.Resync(); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Wait()
	for obj := range keys {
		deltas, _ := q.GetByKey(obj)
		var types []DeltaType
		for _, d := range deltas {
			types = append(types, d.Type)
		}
		if !slices.Equal(types, []DeltaType{Deleted}) && !slices.Equal(types, []DeltaType{Sync, Deleted}) {
			t.Errorf("key %d has %v", obj, types)
		}
	}
}

var errTransform = errors.New("transform failed")

// transformLog is a Transform that adds a prime, and notes what it was asked. Objects can tell
// it to go wrong.
type transformLog struct{ calls []string }

func (l *transformLog) transform(obj string) (string, error) {
	l.calls = append(l.calls, obj)
	switch obj[1:] {
	case "fail":
		return "a-failed", errTransform
	case "rekey":
		return "z1", nil // C76
	case "nokey":
		return "!", nil
	case "panic":
		panic(errTransform)
	}
	return obj + "'", nil
}

func TestDeltaFIFO_D7_Transform(t *testing.T) {
	for _, tt := range []struct {
		name  string
		moves []move
		want  []string
		calls []string
	}{
		{"each object that comes in, once", []move{doAdd("a1"), doUpdate("a2"), doDelete("a3"), doReplace("b1", "b2", "k1")}, // C82
			[]string{"a: Added a1', Updated a2', Deleted a3'", "b: Replaced b1', Replaced b2'", "k: Replaced k1'"}, []string{"a1", "a2", "a3", "b1", "b2", "k1"}},
		{"also if the deletion is dropped", []move{doDelete("a1")}, nil, []string{"a1"}},
		{"no inferred deletion", []move{doAdd("a1"), doReplace()}, []string{"a: Added a1', Deleted? a1'", "k: Deleted? k0"}, []string{"a1"}}, // C80, C81
		{"no deletion by key", []move{doDeleteKey("k"), doAdd("a1"), doDeleteKey("a")}, []string{"k: Deleted? k0", "a: Added a1', Deleted? a1'"}, []string{"a1"}},
		{"no Resync", []move{doResync}, []string{"k: Sync k0"}, nil}, // C79
		{"no AddIfNotPresent", []move{doDeltas("a", explicit(Added, "a1"))}, []string{"a: Added a1"}, nil},
		{"nothing that is put back", []move{doAdd("a1"), doPop("a", endRequeue, doAdd("a2"))}, []string{"a: Added a1'", "a: Added a1', Added a2'"}, []string{"a1", "a2"}},
		{"a failing deletion is one by key", []move{doDelete("kfail")}, []string{"k: Deleted? k0"}, []string{"kfail"}},
		{"so is one that changes the key", []move{doDelete("krekey")}, []string{"k: Deleted? k0"}, []string{"krekey"}},
		{"or loses it", []move{doDelete("knokey")}, []string{"k: Deleted? k0"}, []string{"knokey"}},
		{"with the newest object seen", []move{doAdd("a1"), doDelete("afail")}, []string{"a: Added a1', Deleted? a1'"}, []string{"a1", "afail"}},
		{"of what does not exist", []move{doDelete("afail", "arekey"), unsynced}, nil, []string{"afail", "arekey"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var l transformLog
			got := playLine(t, newDeltaLine(DeltaFIFOOptions[string, string]{KnownObjects: knownOf("k0"), Transform: l.transform}), tt.moves...)
			if diff := gocmp.Diff(tt.want, got); diff != "" {
				t.Errorf("popped (-want +got):\n%s", diff)
			}
			if diff := gocmp.Diff(tt.calls, l.calls); diff != "" {
				t.Errorf("transformed (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDeltaFIFO_D7_TransformFails(t *testing.T) {
	var l transformLog
	q := newDeltaLine(DeltaFIFOOptions[string, string]{KnownObjects: knownOf("k0"), Transform: l.transform})
	unchanged := func(name string, before []string) {
		t.Helper()
		if diff := gocmp.Diff(before, q.contents()); diff != "" {
			t.Errorf("%s has changed something (-before +after):\n%s", name, diff)
		}
		if q.HasSynced() != (before != nil) {
			t.Errorf("HasSynced() = %v after %s, which failed", q.HasSynced(), name)
		}
	}
	for _, writes := range []int{0, 1} {
		before := q.contents()
		for name, write := range map[string]func(obj string) error{
			"Add": q.Add, "Update": q.Update,
			"Replace":           func(obj string) error { return q.Replace([]string{"a1", obj, "b1"}) },
			"Replace, at last":  func(obj string) error { return q.Replace([]string{"a1", "b1", obj}) },
			"Replace, at first": func(obj string) error { return q.Replace([]string{obj, "a1", "b1"}) },
		} {
			if err := write("afail"); !errors.Is(err, errTransform) {
				t.Errorf("%s = %v, want %v", name, err, errTransform)
			}
			unchanged(name, before)
			if err := write("arekey"); err == nil || err.Error() != "typedqueue: transform has changed key a to z" {
				t.Errorf("%s of an object whose key is changed = %v", name, err)
			}
			unchanged(name, before)
			var keyErr *KeyError[string]
			if err := write("!"); !errors.As(err, &keyErr) || keyErr.Obj != "!" || slices.Contains(l.calls, "!") {
				t.Errorf("%s of an object without a key = %v, want a *KeyError; it was transformed: %t", name, err, slices.Contains(l.calls, "!"))
			}
			unchanged(name, before)
			if err := write("anokey"); !errors.As(err, &keyErr) || !errors.Is(err, errNoLineKey) {
				t.Errorf("%s of an object that loses its key = %v, want a *KeyError", name, err)
			}
			unchanged(name, before)
			func() {
				defer func() {
					if r := recover(); r != errTransform {
						t.Errorf("%s panicked with %v, want %v", name, r, errTransform)
					}
				}()
				_ = write("apanic")
			}()
			unchanged(name, before) // and no lock is held
		}
		func() {
			defer func() {
				if r := recover(); r != errTransform {
					t.Errorf("Delete panicked with %v, want %v", r, errTransform)
				}
			}()
			_ = q.Delete("kpanic")
		}()
		unchanged("Delete", before)
		if writes == 0 {
			(&lineRun{t: t, q: q}).play(doAdd("a1", "c1"))
		}
	}
	q.Close()
	for _, obj := range []string{"a1", "afail", "arekey", "anokey", "!"} {
		for name, write := range map[string]func(string) error{
			"Add": q.Add, "Update": q.Update, "Delete": q.Delete,
			"Replace": func(obj string) error { return q.Replace([]string{obj}) },
		} {
			if err := write(obj); err != ErrClosed {
				t.Errorf("%s(%s) after Close = %v, want ErrClosed", name, obj, err)
			}
		}
	}
}

// Key functions and Transform run with no lock held.
func TestDeltaFIFO_D7_TransformMayCallTheQueue(t *testing.T) {
	var q deltaLine
	q = newDeltaLine(DeltaFIFOOptions[string, string]{Transform: func(obj string) (string, error) {
		if obj[0] == 'a' {
			if err := q.Add("b" + obj[1:]); err != nil {
				return "", err
			}
		}
		return obj, nil
	}})
	got := playLine(t, q, doAdd("a1"), doReplace("a2"))
	if want := []string{"b: Added b1, Added b2, Deleted? b2", "a: Added a1, Replaced a2"}; !slices.Equal(got, want) {
		t.Errorf("popped %v, want %v", got, want)
	}
}

func TestDeltaFIFO_D7_AddIfNotPresent(t *testing.T) {
	one := explicit(Updated, "a8")
	runDeltaCases(t, DeltaFIFOOptions[string, string]{}, []deltaCase{
		{"as they are", knownOf("a0"), []move{doAdd("b1"), doDeltas("a", one, one, noObject, explicit(Deleted, "a9"))}, []string{
			"b: Added b1", "a: Updated a8, Updated a8, Deleted? -, Deleted a9",
		}},
		{"not while pending", nil, []move{doAdd("a1", "b1"), doDeltas("a", one)}, []string{"a: Added a1", "b: Added b1"}},
		{"not while deletion is pending", knownOf("a0"), []move{doDelete("a1"), doDeltas("a", one)}, []string{"a: Deleted a1"}},
		{"but while in processing", nil, []move{doAdd("a1"), doPop("a", endNil, doDeltas("a", one), doDeltas("a", noObject))}, []string{"a: Added a1", "a: Updated a8"}},
		{"nothing", nil, []move{doDeltas("a"), wantKeys(), unsynced, doAdd("a1"), doPop("a", endNil, doDeltas("a"), wantKeys())}, []string{"a: Added a1"}}, // C49
	})
	deltas := Deltas[string]{one, one}
	q := newDeltaLine(DeltaFIFOOptions[string, string]{})
	(&lineRun{t: t, q: q}).play(doDeltas("a", deltas...), doDeltas("b"))
	deltas[0] = noObject // the slice is copied
	if err := q.AddIfNotPresent("c", deltas); err != nil {
		t.Error(err)
	}
	deltas[1] = noObject
	if diff := gocmp.Diff([]string{"a: Updated a8, Updated a8", "c: Deleted? -, Updated a8"}, q.contents()); diff != "" {
		t.Errorf("contents (-want +got):\n%s", diff)
	}
}

func TestDeltaFIFO_D8_PutBackInFront(t *testing.T) {
	const hand = "a: Added a1, Updated a2"
	for _, tt := range []struct {
		name          string
		during        []move
		kept, putBack []string // what is popped afterwards
	}{
		{"alone", nil, nil, []string{hand}},
		{"at the tail", []move{doAdd("b1")}, []string{"b: Added b1"}, []string{"b: Added b1", hand}},
		{"at the place of what arrived", []move{doUpdate("a3"), doAdd("b1"), doUpdate("a4")},
			[]string{"a: Updated a3, Updated a4", "b: Added b1"}, []string{hand + ", Updated a3, Updated a4", "b: Added b1"}},
		{"also if that is behind others", []move{doAdd("b1"), doUpdate("a3"), doAdd("c1")},
			[]string{"b: Added b1", "a: Updated a3", "c: Added c1"}, []string{"b: Added b1", hand + ", Updated a3", "c: Added c1"}},
		{"deleted", []move{doDelete("a3", "a4")}, []string{"a: Deleted a3"}, []string{hand + ", Deleted a3"}},
		{"deleted by key", []move{doDeleteKey("a")}, []string{"a: Deleted? a2"}, []string{hand + ", Deleted? a2"}},
		{"deleted, added again", []move{doDelete("a3"), doAdd("a4")}, []string{"a: Deleted a3, Added a4"}, []string{hand + ", Deleted a3, Added a4"}},
		{"not listed", []move{doReplace("b1")}, []string{"b: Replaced b1", "a: Deleted? a2"}, []string{"b: Replaced b1", hand + ", Deleted? a2"}},
		{"listed", []move{doReplace("b1", "a3")}, []string{"b: Replaced b1", "a: Replaced a3"}, []string{"b: Replaced b1", hand + ", Replaced a3"}},
		{"added if not present", []move{doAddAbsent("a3", "a4")}, []string{"a: Added a3"}, []string{hand + ", Added a3"}},
		{"resynced", []move{doResync}, nil, []string{hand}},
		{"closed", []move{doUpdate("a3"), doClose}, []string{"a: Updated a3"}, []string{hand + ", Updated a3"}},
	} {
		for _, end := range lineEnds {
			t.Run(tt.name+"/"+end.name, func(t *testing.T) {
				want := append([]string{hand}, tt.kept...)
				if end.putsBack {
					want = append([]string{hand}, tt.putBack...)
				}
				q := newDeltaLine(DeltaFIFOOptions[string, string]{KnownObjects: knownOf("a0")})
				got := playLine(t, q, doAdd("a1"), doUpdate("a2"), doPop("a", end, tt.during...))
				if diff := gocmp.Diff(want, got); diff != "" {
					t.Errorf("popped (-want +got):\n%s", diff)
				}
			})
		}
	}
	runDeltaCases(t, DeltaFIFOOptions[string, string]{}, []deltaCase{
		{"again and again", nil, []move{
			doAdd("a1"), doPop("a", endRequeue, doUpdate("a2")), doPop("a", endPanic, doUpdate("a3")), doPop("a", endGoexit, doDelete("a4")),
		}, []string{
			"a: Added a1", "a: Added a1, Updated a2", "a: Added a1, Updated a2, Updated a3", "a: Added a1, Updated a2, Updated a3, Deleted a4",
		}},
	})
}

// A Merge that panics while deltas are put back: they go back unmerged, and the lock is free.
func TestDeltaFIFO_D8_MergePanicsInPutBack(t *testing.T) {
	for _, end := range []lineEnd{endRequeue, endPanic, endGoexit} {
		for _, returnsNothing := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/returns nothing %v", end.name, returnsNothing), func(t *testing.T) {
				var armed bool
				q := newDeltaLine(DeltaFIFOOptions[string, string]{Merge: func(pending Deltas[string], next Delta[string]) Deltas[string] {
					if armed && next.Object == "a4" {
						for i := range pending {
							pending[i].Object = "spoilt"
						}
						if returnsNothing {
							return nil
						}
						panic(errProcess)
					}
					return append(slices.Clone(pending), next)
				}})
				r := &lineRun{t: t, q: q}
				r.play(doReplace("a1", "b1"), doUpdate("a2"))
				p := popOnce(q, end, func(string, string, bool) {
					r.play(doUpdate("a3", "a4"))
					armed = true
				})
				armed = false
				if end.name == endRequeue.name && p.panicked == nil {
					t.Errorf("Pop = %v, want a panic", p.err)
				}
				want := []string{"b: Replaced b1", "a: Replaced a1, Updated a2, Updated a3, Updated a4"}
				if diff := gocmp.Diff(want, q.contents()); diff != "" {
					t.Errorf("pending (-want +got):\n%s", diff)
				}
				got := playLine(t, q, unsynced, doPop("b*", endNil), unsynced, doPop("a*", endNil), synced)
				if diff := gocmp.Diff(want, got); diff != "" {
					t.Errorf("popped (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// The rules of F5 in which a DeltaFIFO differs from a FIFO.
func TestDeltaFIFO_D8_Synced(t *testing.T) {
	for _, tt := range []struct {
		name  string
		known knownMap
		moves []move
	}{
		{"inferred deletions count", knownOf("a0", "b0", "c0"), []move{ // C26
			doReplace("a1"), unsynced, doPop("a*", endNil), unsynced, doPop("b*", endNil), unsynced, doPop("c*", endNil), synced,
		}},
		{"also if the list is empty", knownOf("a0"), []move{doReplace(), unsynced, doPop("a*", endNil), synced}},
		{"nothing known, nothing listed", knownOf(), []move{doReplace(), synced}},
		{"a deleted key is settled when its deletion is processed", nil, []move{doReplace("a1"), doDelete("a1"), unsynced, doPop("a*", endNil, unsynced), synced}},
		{"by key too", nil, []move{doReplace("a1", "b1"), doDeleteKey("a"), doPop("a*", endNil), unsynced, doPop("b*", endNil), synced}},
		{"so is one that is no longer listed", nil, []move{doReplace("a1"), doReplace("b1"), unsynced, doPop("a*", endNil), synced, doPop("b", endNil)}},
		{"deleted in processing, processed", nil, []move{doReplace("a1"), doPop("a*", endNil, doDelete("a1"), unsynced), synced, doPop("a", endNil)}},
		{"deleted in processing, requeued", nil, []move{doReplace("a1"), doPop("a*", endRequeue, doDelete("a1"), unsynced), unsynced, doPop("a*", endNil), synced}},
		{"forgotten in processing, panic", nil, []move{doReplace("a1"), doPop("a*", endPanic, doReplace(), unsynced), unsynced, doPop("a*", endNil), synced}},
		{"first Delete of a known key", knownOf("a0"), []move{doDelete("a1"), synced, doReplace("a2"), synced, doPop("a", endNil)}},
		{"first DeleteKey of a known key", knownOf("a0"), []move{doDeleteKey("a"), synced, doPop("a", endNil)}},
		{"first Delete of another key", knownOf("a0"), []move{doDelete("b1"), doDeleteKey("c"), unsynced, doReplace("a1"), doPop("a*", endNil), synced}},
		{"AddIfNotPresent of nothing", nil, []move{doDeltas("a"), unsynced, doReplace("a1"), doPop("a*", endNil), synced}},
		{"first AddIfNotPresent", nil, []move{doDeltas("a", explicit(Added, "a1")), synced, doPop("a", endNil)}},
		{"Resync is no write", knownOf("a0"), []move{doResync, unsynced, doPop("a", endNil), unsynced, doReplace("a1"), unsynced, doPop("a*", endNil), synced}},
		{"what Resync queued, listed", knownOf("a0", "b0"), []move{doResync, doReplace("a1", "b1"), doPop("a*", endNil), unsynced, doPop("b*", endNil), synced}},
		{"what Resync queued, not listed", knownOf("a0"), []move{doResync, doReplace("b1"), doPop("a*", endNil), unsynced, doPop("b*", endNil), synced}},
		// The process that returns here was given nothing of the list.
		{"in processing by Resync, listed", knownOf("a0"), []move{doResync, doPop("a", endNil, doReplace("a1"), unsynced), unsynced, doPop("a*", endNil), synced}},
		{"in processing by Resync, not listed", knownOf("a0"), []move{doResync, doPop("a", endNil, doReplace(), unsynced), unsynced, doPop("a*", endNil), synced}},
		{"in processing by Resync, listed, requeued", knownOf("a0"), []move{doResync, doPop("a", endRequeue, doReplace("a1"), unsynced), unsynced, doPop("a*", endNil), synced}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, merge := range []func(Deltas[string], Delta[string]) Deltas[string]{nil, new(mergeLog).merge} {
				opts := DeltaFIFOOptions[string, string]{Merge: merge}
				if tt.known != nil {
					opts.KnownObjects = tt.known
				}
				playLine(t, newDeltaLine(opts), tt.moves...)
			}
		})
	}
}

// A popped slice is its owner's: whatever the queue does later, it stays as it is, up to its
// capacity.
func TestDeltaFIFO_D8_PoppedSliceIsNotChanged(t *testing.T) {
	inPlace := func(pending Deltas[string], next Delta[string]) Deltas[string] {
		for i := range pending {
			pending[i].Object += "+"
		}
		return append(pending, next)
	}
	for name, merge := range map[string]func(Deltas[string], Delta[string]) Deltas[string]{"default": nil, "Merge": inPlace} {
		for _, end := range lineEnds {
			t.Run(name+"/"+end.name, func(t *testing.T) {
				q := newDeltaLine(DeltaFIFOOptions[string, string]{Merge: merge, KnownObjects: knownOf("a0")})
				r := &lineRun{t: t, q: q}
				var owned, copies []Deltas[string]
				pop := func(during ...move) {
					var wg sync.WaitGroup
					wg.Go(func() { // for Goexit
						defer func() { _ = recover() }()
						_, _ = q.Pop(context.Background(), func(_ string, deltas Deltas[string], _ bool) error {
							owned = append(owned, deltas[:cap(deltas)])
							copies = append(copies, slices.Clone(deltas[:cap(deltas)]))
							r.play(during...)
							return end.end()
						})
					})
					wg.Wait()
				}
				writes := []move{doUpdate("a4"), doDeleteKey("a"), doDelete("a5", "a6"), doAdd("a7"), doReplace("a8"), doReplace(), doDelete("a9")}
				r.play(doAdd("a1"), doUpdate("a2", "a3")) // three of a capacity of four
				for range 3 {
					pop(writes...)
					r.play(writes...)
					pop()
					r.play(writes...)
				}
				if diff := gocmp.Diff(copies, owned); diff != "" {
					t.Errorf("popped slices have changed (-then +now):\n%s", diff)
				}
			})
		}
	}
}

func TestDeltaFIFO_D8_ReadingIsDetached(t *testing.T) {
	q := newDeltaLine(DeltaFIFOOptions[string, string]{KnownObjects: knownOf("a0")})
	r := &lineRun{t: t, q: q}
	r.play(doUpdate("a1"), doDeleteKey("a"))
	byKey, ok := q.GetByKey("a")
	byObj, ok2, err := q.Get("a-any")
	if !ok || !ok2 || err != nil || story("a", byKey) != "a: Updated a1, Deleted? a1" || story("a", byObj) != story("a", byKey) {
		t.Errorf("GetByKey = %v, %v; Get = %v, %v, %v", byKey, ok, byObj, ok2, err)
	}
	r.play(doDelete("a2")) // replaces the inferred deletion in place
	if got := story("a", byKey); got != "a: Updated a1, Deleted? a1" {
		t.Errorf("a slice from GetByKey has become %s", got)
	}
	for _, deltas := range []Deltas[string]{byKey, byObj} {
		for i := range deltas {
			deltas[i] = noObject
		}
		_ = append(deltas[:0:cap(deltas)], noObject, noObject, noObject)
	}
	if got := q.contents(); !slices.Equal(got, []string{"a: Updated a1, Deleted a2"}) {
		t.Errorf("contents = %v after changes of slices from GetByKey and Get", got)
	}

	r.play(doAdd("b1", "b2"), doDeltas("n", noObject))
	if got := q.List(); !slices.Equal(got, []string{"a2", "b2"}) {
		t.Errorf("List() = %v, want the newest object of each key that has one", got)
	}
	if got, ok := q.GetByKey("c"); got != nil || ok {
		t.Errorf("GetByKey of an absent key = %v, %v", got, ok)
	}
	r.play(doPop("a", endNil, func(r *lineRun) {
		if got, ok := q.GetByKey("a"); got != nil || ok {
			r.t.Errorf("GetByKey = %v, %v of a key that is in processing, not pending", got, ok)
		}
	}))
	if got, ok, err := q.Get("!"); got != nil || ok || !errors.Is(err, errNoLineKey) {
		t.Errorf("Get of an object without a key = %v, %v, %v", got, ok, err)
	}
	if key, err := q.KeyOf("b7"); key != "b" || err != nil {
		t.Errorf("KeyOf = %q, %v", key, err)
	}
	if _, err := q.KeyOf("!"); !errors.Is(err, errNoLineKey) {
		t.Errorf("KeyOf of an object without a key = %v", err)
	}
}

// A KnownObjects that panics leaves no lock held and nothing half-done.
func TestDeltaFIFO_KnownObjectsPanics(t *testing.T) {
	const message = "typedqueue: (not really)"
	var armed string
	objs := knownOf("a0", "b0", "c0")
	q := newDeltaLine(DeltaFIFOOptions[string, string]{KnownObjects: knownFuncs{
		func() []string {
			if armed == "ListKeys" {
				panic(message)
			}
			return objs.ListKeys()
		},
		func(key string) (string, bool) {
			if armed == "GetByKey" && key == "b" {
				panic(message)
			}
			return objs.GetByKey(key)
		},
	}})
	for _, tt := range []struct {
		armed, name string
		write       func() error
	}{
		{"ListKeys", "Replace", func() error { return q.Replace([]string{"x1"}) }},
		{"GetByKey", "Replace", func() error { return q.Replace([]string{"x1"}) }},
		{"ListKeys", "Resync", q.Resync},
		{"GetByKey", "Resync", q.Resync},
		{"GetByKey", "Delete", func() error { return q.Delete("b1") }},
		{"GetByKey", "DeleteKey", func() error { return q.DeleteKey("b") }},
	} {
		armed = tt.armed
		wantLinePanic(t, tt.name+" with a failing "+tt.armed, func() { _ = tt.write() })
		armed = ""
		if got := q.contents(); got != nil || q.HasSynced() || q.entryCount() != 0 {
			t.Errorf("%s with a failing %s has queued %v", tt.name, tt.armed, got)
		}
	}
	playLine(t, q, doReplace("a1"), doPop("a*", endNil), doPop("b*", endNil), doPop("c*", endNil), synced)
}

// A key may be any comparable type, the same one all the way: an object that comes back under
// its old name with another identity is another object (C78).
func TestDeltaFIFO_StructKeys(t *testing.T) {
	type id struct{ name, uid string }
	type object struct {
		id
		version int
	}
	key := func(o object) (id, error) { return o.id, nil }
	store := NewStore(key)
	q := NewDeltaFIFO(key, DeltaFIFOOptions[id, object]{KnownObjects: store})
	old, reborn := object{id{"web", "u1"}, 7}, object{id{"web", "u2"}, 1}
	var events []string
	h := Handler[id, object]{
		OnAdd:    func(k id, _ object, _ bool) { events = append(events, "add "+k.uid) },
		OnUpdate: func(k id, _, _ object) { events = append(events, "update "+k.uid) },
		OnDelete: func(k id, o object, unknown bool) {
			events = append(events, fmt.Sprintf("delete %s %d %v", k.uid, o.version, unknown))
		},
	}
	for _, list := range [][]object{{old}, {reborn}} {
		if err := q.Replace(list); err != nil {
			t.Fatal(err)
		}
		for q.Len() > 0 {
			if _, err := q.Pop(t.Context(), func(k id, deltas Deltas[object], initial bool) error {
				return Apply(store, k, deltas, initial, h)
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if want := []string{"add u1", "add u2", "delete u1 7 true"}; !slices.Equal(events, want) {
		t.Errorf("events %v, want %v", events, want)
	}
	if got := store.List(); !slices.Equal(got, []object{reborn}) {
		t.Errorf("stored %v, want %v", got, reborn)
	}
}

// applyRun is a Store with an index, a Handler that notes events and checks that Store and
// index already agree with them (C15), and an index function that fails on demand.
type applyRun struct {
	store   *Store[string, string]
	events  []string
	failing string // the object for which the index function fails
}

var errApplyIndex = errors.New("index function failed")

func newApplyRun(t *testing.T, objs ...string) (*applyRun, Handler[string, string]) {
	t.Helper()
	r := &applyRun{store: NewStore(lineKey)}
	if err := r.store.Replace(objs); err != nil {
		t.Fatal(err)
	}
	index, err := NewIndex(r.store, func(obj string) ([]string, error) {
		if obj == r.failing {
			return nil, errApplyIndex
		}
		return []string{obj}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	stored := func(key, obj string) {
		if got, ok := r.store.GetByKey(key); got != obj || !ok {
			t.Errorf("stored %q, %v when the handler runs, want %q", got, ok, obj)
		}
		if got := index.Get(obj); !slices.Equal(got, []string{obj}) {
			t.Errorf("indexed %q when the handler runs, want %q", got, obj)
		}
	}
	return r, Handler[string, string]{
		OnAdd: func(key, obj string, initial bool) {
			stored(key, obj)
			r.events = append(r.events, fmt.Sprintf("add %s %s %v", key, obj, initial))
		},
		OnUpdate: func(key, before, after string) {
			stored(key, after)
			if before != after && len(index.Get(before)) > 0 {
				t.Errorf("%q is still indexed", before)
			}
			r.events = append(r.events, fmt.Sprintf("update %s %s %s", key, before, after))
		},
		OnDelete: func(key, obj string, unknown bool) {
			if got, ok := r.store.GetByKey(key); ok {
				t.Errorf("%q is still stored when the handler runs", got)
			}
			if r.store.Len() == 0 && len(index.Values()) > 0 {
				t.Errorf("%v are still indexed", index.Values())
			}
			r.events = append(r.events, fmt.Sprintf("delete %s %s %v", key, obj, unknown))
		},
	}
}

func TestApply_D10_EachDelta(t *testing.T) {
	unknown := Delta[string]{Type: Deleted, Object: "a5", FinalStateUnknown: true}
	type row struct {
		name   string
		stored []string
		deltas Deltas[string]
		want   []string // "%v" stands for isInInitialList
		left   []string
	}
	rows := []row{
		{"Deleted, stored", []string{"a0", "b0"}, Deltas[string]{explicit(Deleted, "a5")}, []string{"delete a a5 false"}, []string{"b0"}},
		{"Deleted, unknown final state", []string{"a0"}, Deltas[string]{unknown}, []string{"delete a a5 true"}, nil},
		{"Deleted, no object", []string{"a0"}, Deltas[string]{noObject}, []string{"delete a a0 true"}, nil}, // C13, C17
		{"Deleted, no object, final state known", []string{"a0"}, Deltas[string]{{Type: Deleted, ObjectMissing: true}}, []string{"delete a a0 false"}, nil},
		{"Deleted, object of the zero value", []string{"a0"}, Deltas[string]{{Type: Deleted}}, []string{"delete a  false"}, nil},
		{"Deleted, not stored", []string{"b0"}, Deltas[string]{explicit(Deleted, "a5"), unknown, noObject}, nil, []string{"b0"}},
		{"one after the other", nil, Deltas[string]{explicit(Added, "a1"), explicit(Updated, "a2"), explicit(Deleted, "a3"), unknown, explicit(Replaced, "a4"), explicit(Sync, "a4")},
			[]string{"add a a1 %v", "update a a1 a2", "delete a a3 false", "add a a4 %v", "update a a4 a4"}, []string{"a4"}},
		{"none", []string{"a0"}, nil, nil, []string{"a0"}},
	}
	for _, typ := range []DeltaType{Added, Updated, Replaced, Sync} {
		rows = append(rows,
			row{string(typ) + ", not stored", nil, Deltas[string]{explicit(typ, "a1")}, []string{"add a a1 %v"}, []string{"a1"}},
			row{string(typ) + ", stored", []string{"a0"}, Deltas[string]{explicit(typ, "a1")}, []string{"update a a0 a1"}, []string{"a1"}})
	}
	for _, tt := range rows {
		for _, initial := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/%v", tt.name, initial), func(t *testing.T) {
				r, h := newApplyRun(t, tt.stored...)
				if err := Apply(r.store, "a", tt.deltas, initial, h); err != nil {
					t.Fatal(err)
				}
				var want []string
				for _, event := range tt.want {
					want = append(want, strings.ReplaceAll(event, "%v", fmt.Sprint(initial)))
				}
				if diff := gocmp.Diff(want, r.events); diff != "" {
					t.Errorf("events (-want +got):\n%s", diff)
				}
				if got := slices.Sorted(slices.Values(r.store.List())); !slices.Equal(got, tt.left) {
					t.Errorf("stored %v, want %v", got, tt.left)
				}

				for event, only := range map[string]func(h Handler[string, string]) Handler[string, string]{
					"add": func(h Handler[string, string]) Handler[string, string] {
						return Handler[string, string]{OnAdd: h.OnAdd}
					},
					"update": func(h Handler[string, string]) Handler[string, string] {
						return Handler[string, string]{OnUpdate: h.OnUpdate}
					},
					"delete": func(h Handler[string, string]) Handler[string, string] {
						return Handler[string, string]{OnDelete: h.OnDelete}
					},
				} {
					r, h := newApplyRun(t, tt.stored...)
					if err := Apply(r.store, "a", tt.deltas, initial, only(h)); err != nil {
						t.Errorf("told of %s alone: %v", event, err)
					}
					others := func(e string) bool { return !strings.HasPrefix(e, event) }
					if want := slices.DeleteFunc(slices.Clone(want), others); !slices.Equal(want, r.events) {
						t.Errorf("told of %s alone: %v, want %v", event, r.events, want)
					}
				}

				silent, _ := newApplyRun(t, tt.stored...)
				if err := Apply(silent.store, "a", tt.deltas, initial, Handler[string, string]{}); err != nil {
					t.Errorf("without handlers: %v", err)
				}
				if got := slices.Sorted(slices.Values(silent.store.List())); !slices.Equal(got, tt.left) {
					t.Errorf("without handlers: stored %v, want %v", got, tt.left)
				}
			})
		}
	}
}

// On an error what came before stays applied, what comes after is not, and the next try
// begins with the first again.
func TestApply_D10_Errors(t *testing.T) {
	first, last := explicit(Added, "a1"), explicit(Updated, "a9")
	for _, tt := range []struct {
		name  string
		bad   Delta[string]
		check func(error) bool
	}{
		{"index function", explicit(Updated, "a-failing"), func(err error) bool { return errors.Is(err, errApplyIndex) }},
		{"unknown type", explicit("Moved", "a2"), func(err error) bool { return err != nil }},
		{"no type", explicit("", "a2"), func(err error) bool { return err != nil }},
		{"another key in the Store", explicit(Updated, "b2"), func(err error) bool {
			return err != nil && err.Error() == "typedqueue: the object of key a has key b in the Store"
		}}, // C14
		{"no key", explicit(Updated, "!"), func(err error) bool {
			var keyErr *KeyError[string]
			return errors.As(err, &keyErr) && keyErr.Obj == "!" && errors.Is(err, errNoLineKey)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, h := newApplyRun(t)
			r.failing = "a-failing"
			deltas := Deltas[string]{first, tt.bad, last}
			for _, events := range [][]string{{"add a a1 false"}, {"update a a1 a1"}} {
				r.events = nil
				if err := Apply(r.store, "a", deltas, false, h); !tt.check(err) {
					t.Errorf("Apply = %v", err)
				}
				if diff := gocmp.Diff(events, r.events); diff != "" {
					t.Errorf("events (-want +got):\n%s", diff)
				}
				if got := r.store.List(); !slices.Equal(got, []string{"a1"}) {
					t.Errorf("stored %v, want a1", got)
				}
			}
			if err := Apply(r.store, "a", deltas[1:2], false, Handler[string, string]{}); !tt.check(err) {
				t.Errorf("Apply without handlers = %v", err)
			}
		})
	}
	t.Run("retry", func(t *testing.T) {
		r, h := newApplyRun(t)
		r.failing = "a2"
		q := newDeltaLine(DeltaFIFOOptions[string, string]{KnownObjects: r.store})
		process := func(key string, deltas Deltas[string], initial bool) error {
			if err := Apply(r.store, key, deltas, initial, h); err != nil {
				return Requeue(err)
			}
			return nil
		}
		(&lineRun{t: t, q: q}).play(doReplace("a1"), doUpdate("a2", "a3"))
		if _, err := q.Pop(t.Context(), process); !errors.Is(err, errApplyIndex) {
			t.Errorf("Pop = %v, want %v", err, errApplyIndex)
		}
		r.failing = ""
		if _, err := q.Pop(t.Context(), process); err != nil {
			t.Errorf("Pop = %v", err)
		}
		want := []string{"add a a1 true", "update a a1 a1", "update a a1 a2", "update a a2 a3"}
		if diff := gocmp.Diff(want, r.events); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}

func TestApply_D10_Misuse(t *testing.T) {
	deltas := Deltas[string]{explicit(Added, "a1"), explicit(Updated, "a2")}
	wantLinePanic(t, "Apply to a nil Store", func() { _ = Apply(nil, "a", deltas, false, Handler[string, string]{}) })
	wantLinePanic(t, "Apply to a zero Store", func() { _ = Apply(new(Store[string, string]), "a", deltas, false, Handler[string, string]{}) })

	// A handler that panics leaves its own change applied, and no lock held; and it may call.
	r, h := newApplyRun(t)
	h.OnUpdate = func(string, string, string) { panic("typedqueue: (not really)") }
	wantLinePanic(t, "Apply with a failing handler", func() { _ = Apply(r.store, "a", deltas, false, h) })
	if got := r.store.List(); !slices.Equal(got, []string{"a2"}) {
		t.Errorf("stored %v, want a2", got)
	}
	h.OnUpdate = func(_, before, _ string) {
		if err := r.store.Add("b" + before[1:]); err != nil {
			t.Error(err)
		}
	}
	if err := Apply(r.store, "a", deltas, false, h); err != nil {
		t.Error(err)
	}
	if got := slices.Sorted(slices.Values(r.store.List())); !slices.Equal(got, []string{"a2", "b1"}) {
		t.Errorf("stored %v", got)
	}
}

// churnObj is an object of the churn tests. Each has a version of its own.
type churnObj struct{ key, version int }

func churnKey(o churnObj) (int, error) { return o.key, nil }

// churnLog is the producers' side of one key: which changes a consumer must see, in order, and
// so what the last word is. It holds without Merge.
type churnLog struct{ changes []churnChange }

// churnChange is a write, or a run of deletions, of which one arrives.
type churnChange struct {
	typ     DeltaType
	obj     churnObj   // written; or the one that an inferred deletion carries
	deleted []churnObj // what explicit deletions carried
}

func (l *churnLog) last() churnChange {
	if len(l.changes) == 0 {
		return churnChange{typ: Deleted}
	}
	return l.changes[len(l.changes)-1]
}

func (l *churnLog) exists() bool { return l.last().typ != Deleted }

func (l *churnLog) write(t DeltaType, obj churnObj) {
	l.changes = append(l.changes, churnChange{typ: t, obj: obj})
}

// delete notes a deletion that carries objs, or none.
func (l *churnLog) delete(objs ...churnObj) {
	if l.exists() {
		l.changes = append(l.changes, churnChange{typ: Deleted, obj: l.last().obj})
	}
	if n := len(l.changes); n > 0 {
		l.changes[n-1].deleted = append(l.changes[n-1].deleted, objs...)
	}
}

// check compares what a consumer was given, end to end, with what the producers did.
func (l *churnLog) check(got []Delta[churnObj]) error {
	next := 0
	for i, d := range got {
		if d.Type == Sync { // says again what was said last
			if next == 0 || l.changes[next-1].typ == Deleted || d.Object != l.changes[next-1].obj {
				return fmt.Errorf("delta %d is %+v, after %d changes", i, d, next)
			}
			continue
		}
		if next == len(l.changes) {
			return fmt.Errorf("delta %d is %+v, but there were %d changes only", i, d, next)
		}
		want := l.changes[next]
		ok := d.Type == want.typ && !d.ObjectMissing
		switch {
		case d.FinalStateUnknown:
			ok = ok && d.Type == Deleted && d.Object == want.obj
		case d.Type == Deleted:
			ok = ok && slices.Contains(want.deleted, d.Object)
		default:
			ok = ok && d.Object == want.obj
		}
		if !ok {
			return fmt.Errorf("delta %d is %+v, want %+v", i, d, want)
		}
		next++
	}
	if next != len(l.changes) {
		return fmt.Errorf("only %d of %d changes have arrived", next, len(l.changes))
	}
	return nil
}

// lastWord returns what exists according to the producers.
func lastWord(logs []churnLog) map[int]churnObj {
	word := map[int]churnObj{}
	for key := range logs {
		if logs[key].exists() {
			word[key] = logs[key].last().obj
		}
	}
	return word
}

// produceChurn makes one random write for one of the keys from first to last, and notes it.
func produceChurn(q *DeltaFIFO[int, churnObj], rng *rand.Rand, logs []churnLog, first, last, version int, whole bool) error {
	key := first + rng.IntN(last-first+1)
	obj := churnObj{key, version}
	switch n := rng.IntN(20); {
	case n == 0 && whole: // a list speaks for all keys
		var list []churnObj
		for key := range logs {
			if rng.IntN(2) == 0 {
				logs[key].delete()
				continue
			}
			obj := churnObj{key, version}
			list = append(list, obj)
			logs[key].write(Replaced, obj)
		}
		return q.Replace(list)
	case n <= 1:
		return q.Resync()
	case n <= 4:
		logs[key].delete()
		return q.DeleteKey(key)
	case n <= 9:
		logs[key].delete(obj)
		return q.Delete(obj)
	case n <= 14:
		logs[key].write(Added, obj)
		return q.Add(obj)
	default:
		logs[key].write(Updated, obj)
		return q.Update(obj)
	}
}

// Producers write over few keys, while consumers apply to the Store that the queue knows, and
// fail now and then. Afterwards the Store holds the producers' last word, and each key's deltas
// have arrived exactly once, in order, in one hand at a time.
func TestDeltaFIFO_D9_Churn(t *testing.T) {
	seeds, writes := 40, 200
	if testing.Short() {
		seeds = 4
	}
	newest := func(pending Deltas[churnObj], next Delta[churnObj]) Deltas[churnObj] {
		return append(pending[:0], next)
	}
	for _, tt := range []struct {
		name                 string
		producers, consumers int
		merge                func(Deltas[churnObj], Delta[churnObj]) Deltas[churnObj]
	}{
		{"one consumer", 1, 1, nil},
		{"several consumers", 1, 3, nil},
		{"several producers, one consumer", 3, 1, nil},
		{"several producers, several consumers", 3, 3, nil},
		{"Merge", 1, 3, newest},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for range seeds {
				seed := rand.Uint64()
				t.Run(fmt.Sprint(seed), func(t *testing.T) {
					churn(t, seed, tt.producers, tt.consumers, writes, tt.merge)
				})
			}
		})
	}
}

func churn(t *testing.T, seed uint64, producers, consumers, writes int, merge func(Deltas[churnObj], Delta[churnObj]) Deltas[churnObj]) {
	const keysEach = 2
	logs := make([]churnLog, producers*keysEach)
	store := NewStore(churnKey)
	// The index function fails now and then, so that Apply stops in the middle. It runs
	// under the lock of the Store's writers, which guards its source of chance.
	chance := rand.New(rand.NewPCG(seed, 1))
	if _, err := NewIndex(store, func(o churnObj) ([]int, error) {
		if chance.IntN(16) == 0 {
			return nil, errApplyIndex
		}
		return []int{o.version}, nil
	}); err != nil {
		t.Fatal(err)
	}
	q := NewDeltaFIFO(churnKey, DeltaFIFOOptions[int, churnObj]{KnownObjects: store, Merge: merge})

	var producing, consuming sync.WaitGroup
	for p := range producers {
		producing.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(10+p)))
			for version := range writes {
				if err := produceChurn(q, rng, logs, p*keysEach, (p+1)*keysEach-1, version+1, producers == 1); err != nil {
					t.Error(err)
				}
				if rng.IntN(3) == 0 {
					runtime.Gosched()
				}
			}
		})
	}

	hands := make([]struct {
		sync.Mutex // guards the rest
		got        []Delta[churnObj]
		seen       *churnObj // what handlers have been told
	}, len(logs))
	handler := Handler[int, churnObj]{
		OnAdd: func(key int, obj churnObj, _ bool) {
			if old := hands[key].seen; old != nil {
				t.Errorf("OnAdd(%v), but %v is there", obj, *old)
			}
			hands[key].seen = &obj
		},
		OnUpdate: func(key int, old, obj churnObj) {
			if seen := hands[key].seen; seen == nil || *seen != old {
				t.Errorf("OnUpdate(%v, %v), but %v is there", old, obj, seen)
			}
			hands[key].seen = &obj
		},
		OnDelete: func(key int, obj churnObj, _ bool) {
			if hands[key].seen == nil {
				t.Errorf("OnDelete(%v), but nothing is there", obj)
			}
			hands[key].seen = nil
		},
	}
	consume := func(rng *rand.Rand) (err error) {
		defer func() {
			if r := recover(); r != nil && r != any(errProcess) {
				panic(r)
			}
		}()
		_, err = q.Pop(t.Context(), func(key int, deltas Deltas[churnObj], initial bool) error {
			hand := &hands[key]
			if !hand.TryLock() {
				t.Errorf("key %d is in two hands", key)
				return nil
			}
			defer hand.Unlock()
			if rng.IntN(2) == 0 {
				runtime.Gosched()
			}
			chance := rng.IntN(10)
			switch chance {
			case 0:
				return Requeue(nil)
			case 1:
				panic(errProcess)
			}
			if err := Apply(store, key, deltas, initial, handler); err != nil {
				return Requeue(err)
			}
			if chance == 2 { // done, and yet once more
				return Requeue(nil)
			}
			hand.got = append(hand.got, deltas...)
			return nil
		})
		return err
	}
	for c := range consumers {
		consuming.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(100+c)))
			for consume(rng) != ErrClosed {
			}
		})
	}
	producing.Wait()
	q.Close()
	consuming.Wait()

	if diff := gocmp.Diff(lastWord(logs), maps.Collect(store.All()), gocmp.AllowUnexported(churnObj{})); diff != "" {
		t.Errorf("the Store differs from the producers' last word (-want +got):\n%s", diff)
	}
	if s := q.Stats(); q.Len() != 0 || s.Ready != 0 || s.Processing != 0 || q.entries.n != 0 || !q.HasSynced() {
		t.Errorf("left behind: Len %d, %+v, %d entries; HasSynced() = %v", q.Len(), s, q.entries.n, q.HasSynced())
	}
	if merge != nil {
		return
	}
	for key := range logs {
		if err := logs[key].check(hands[key].got); err != nil {
			t.Errorf("key %d: %v", key, err)
		}
	}
}

// The same, as a schedule that rapid draws: which write, which Pop begins, which process
// returns and how, one step at a time.
func TestDeltaFIFO_D9_Schedule(t *testing.T) {
	const keys = 3
	type hold struct {
		key    int
		deltas Deltas[churnObj]
		end    chan string
	}
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			store := NewStore(churnKey)
			q := NewDeltaFIFO(churnKey, DeltaFIFOOptions[int, churnObj]{KnownObjects: store})
			logs, version, pops := make([]churnLog, keys), 0, 0
			got := make([][]Delta[churnObj], keys)
			taken, returned := make(chan *hold, 100), make(chan bool, 100)
			var holds []*hold
			settle := func() { // everybody is blocked: look who holds what
				synctest.Wait()
				for range len(taken) {
					holds = append(holds, <-taken)
				}
				for range len(returned) {
					<-returned
					pops--
				}
			}
			t.Cleanup(func() { // let everybody go, also after a failure
				q.Close()
				settle()
				for len(holds) > 0 {
					close(holds[0].end)
					holds = holds[1:]
					settle()
				}
			})
			pop := func() {
				pops++
				go func() {
					defer func() {
						_ = recover()
						returned <- true
					}()
					_, err := q.Pop(context.Background(), func(key int, deltas Deltas[churnObj], initial bool) error {
						h := &hold{key, deltas, make(chan string)}
						taken <- h
						end := <-h.end
						if end == "panic" {
							panic(errProcess)
						}
						if end != "requeue" {
							if err := Apply(store, key, deltas, initial, Handler[int, churnObj]{}); err != nil {
								t.Errorf("Apply = %v", err)
							}
						}
						if end != "apply" {
							return Requeue(nil)
						}
						got[key] = append(got[key], deltas...)
						return nil
					})
					var requeued *RequeueError
					if err != nil && err != ErrClosed && !errors.As(err, &requeued) {
						t.Errorf("Pop = %v", err)
					}
				}()
			}
			finish := func(i int, end string) {
				h := holds[i]
				holds = slices.Delete(holds, i, i+1)
				h.end <- end
			}
			object := func(t *rapid.T) churnObj {
				version++
				return churnObj{rapid.IntRange(0, keys-1).Draw(t, "key"), version}
			}
			write := func(f func(t *rapid.T) error) func(t *rapid.T) {
				return func(t *rapid.T) {
					if err := f(t); err != nil {
						t.Errorf("write = %v", err)
					}
				}
			}
			t.Repeat(map[string]func(*rapid.T){
				"Add": write(func(t *rapid.T) error {
					obj := object(t)
					logs[obj.key].write(Added, obj)
					return q.Add(obj)
				}),
				"Update": write(func(t *rapid.T) error {
					obj := object(t)
					logs[obj.key].write(Updated, obj)
					return q.Update(obj)
				}),
				"Delete": write(func(t *rapid.T) error {
					obj := object(t)
					logs[obj.key].delete(obj)
					return q.Delete(obj)
				}),
				"DeleteKey": write(func(t *rapid.T) error {
					obj := object(t)
					logs[obj.key].delete()
					return q.DeleteKey(obj.key)
				}),
				"Replace": write(func(t *rapid.T) error {
					version++
					var list []churnObj
					for key := range keys {
						if !rapid.Bool().Draw(t, fmt.Sprint("list ", key)) {
							logs[key].delete()
							continue
						}
						obj := churnObj{key, version}
						list = append(list, obj)
						logs[key].write(Replaced, obj)
					}
					return q.Replace(list)
				}),
				"Resync": write(func(*rapid.T) error { return q.Resync() }),
				"Pop": func(t *rapid.T) {
					if pops > keys {
						t.Skip("enough Pops")
					}
					pop()
				},
				"process returns": func(t *rapid.T) {
					if len(holds) == 0 {
						t.Skip("nothing is in processing")
					}
					i := rapid.IntRange(0, len(holds)-1).Draw(t, "which")
					finish(i, rapid.SampledFrom([]string{"apply", "requeue", "apply, requeue", "panic"}).Draw(t, "end"))
				},
				"": func(t *rapid.T) {
					settle()
					held := make(set[int])
					for _, h := range holds {
						if held.has(h.key) {
							t.Fatalf("key %d is in two hands", h.key)
						}
						held.add(h.key)
					}
					ready := 0
					pending := make(set[int])
					for _, key := range q.ListKeys() { // C51
						if deltas, ok := q.GetByKey(key); !ok || len(deltas) == 0 || pending.has(key) {
							t.Fatalf("key %d is in line with %v, or twice", key, deltas)
						}
						pending.add(key)
						if !held.has(key) {
							ready++
						}
					}
					if sleeping := pops - len(holds); sleeping > 0 && ready > 0 {
						t.Fatalf("%d Pops sleep while %d keys are ready", sleeping, ready)
					}
					if s := q.Stats(); s.Ready != ready || s.Processing != len(holds) || q.Len() != len(pending) {
						t.Fatalf("Stats() = %+v, Len() = %d, want %d ready, %d processing, %d pending", s, q.Len(), ready, len(holds), len(pending))
					}
				},
			})
			for settle(); len(holds) > 0 || q.Len() > 0; settle() { // drain
				if len(holds) == 0 {
					pop()
					continue
				}
				finish(0, "apply")
			}
			if diff := gocmp.Diff(lastWord(logs), maps.Collect(store.All()), gocmp.AllowUnexported(churnObj{})); diff != "" {
				t.Fatalf("the Store differs from the producers' last word (-want +got):\n%s", diff)
			}
			for key := range logs {
				if err := logs[key].check(got[key]); err != nil {
					t.Fatalf("key %d: %v", key, err)
				}
			}
		})
	})
}

// takeAll is a process function that takes what it gets.
func takeAll[K comparable, V any](K, Deltas[V], bool) error { return nil }

func TestDeltaFIFO_Q9_Allocations(t *testing.T) {
	const keys, laps = 200, 10
	q := NewDeltaFIFO(func(o int) (int, error) { return o % keys, nil }, DeltaFIFOOptions[int, int]{})
	list := make([]int, keys)
	for k := range list {
		list[k] = k
	}
	for _, tt := range []struct {
		name  string
		write func()
		most  float64 // allocations per key, from the write to the Pop
	}{
		{"Update, once", func() { _ = updateAll(q, list) }, 1},
		{"Update, 10 times", func() {
			for range laps {
				_ = updateAll(q, list)
			}
		}, 1.1},
		{"Replace", func() { _ = q.Replace(list) }, 1.1},
		{"Replace of what is pending", func() { _, _ = q.Replace(list), q.Replace(list) }, 1.1},
	} {
		n := testing.AllocsPerRun(50, func() {
			tt.write()
			for range keys {
				_, _ = q.Pop(t.Context(), takeAll)
			}
		})
		if n > tt.most*keys {
			t.Errorf("%s: %v allocations for %d keys, want %v each at most", tt.name, n, keys, tt.most)
		}
	}
}

func updateAll[K comparable, V any](q *DeltaFIFO[K, V], objs []V) (err error) {
	for _, obj := range objs {
		err = errors.Join(err, q.Update(obj))
	}
	return err
}

// The memory of many changes is given back, and those that are left, pending or in
// processing, survive that they move.
func TestDeltaFIFO_Q9_ManyUpdates(t *testing.T) {
	const keys, laps, held = 3 * chunkLen, 10, 5
	q := NewDeltaFIFO(versionKey, DeltaFIFOOptions[string, *version]{})
	update := func(k, n int) { _ = q.Update(&version{fmt.Sprint(k), n}) }
	wantVersions := func(deltas Deltas[*version], from, to int) {
		t.Helper()
		if len(deltas) != to-from {
			t.Fatalf("%d changes, want %d", len(deltas), to-from)
		}
		for i, d := range deltas {
			if d.Object.n != from+i {
				t.Fatalf("change %d is of version %d, want %d", i, d.Object.n, from+i)
			}
		}
	}
	for n := range laps {
		for k := range keys {
			update(k, n)
		}
	}
	var hold func(k int)
	hold = func(k int) { // k keys in processing, one in the other, and each changed behind that
		if k == held {
			for range keys - held {
				deltas, _ := q.Pop(t.Context(), takeAll)
				wantVersions(deltas, 0, laps)
			}
			if q.deltas.used > chunkLen {
				t.Errorf("%d slots for %d deltas", q.deltas.used, q.deltas.n)
			}
			if err := checkDeltaFIFO(q); err != nil {
				t.Error(err)
			}
			return
		}
		deltas, _ := q.Pop(t.Context(), func(string, Deltas[*version], bool) error {
			for n := range laps {
				update(k, laps+n)
			}
			hold(k + 1)
			return Requeue(nil)
		})
		wantVersions(deltas, 0, laps)
	}
	hold(0)
	for range held {
		deltas, _ := q.Pop(t.Context(), takeAll)
		wantVersions(deltas, 0, 2*laps)
	}
	if err := checkDeltaFIFO(q); err != nil {
		t.Error(err)
	}
	if q.entries.n != 0 || q.deltas.n != 0 {
		t.Errorf("%d entries and %d deltas stay", q.entries.n, q.deltas.n)
	}
}

// Merge may return the same memory each time.
func TestDeltaFIFO_D2_MergeReusesItsResult(t *testing.T) {
	var buf Deltas[string]
	l := newDeltaLine(DeltaFIFOOptions[string, string]{
		Merge: func(_ Deltas[string], next Delta[string]) Deltas[string] {
			buf = append(buf[:0], next)
			return buf
		},
	})
	if err := l.Replace([]string{"a1", "b1", "a2"}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"a2", "b1"} {
		deltas, err := l.Pop(t.Context(), takeAll)
		if err != nil || len(deltas) != 1 || deltas[0].Object != want {
			t.Errorf("popped %v, %v, want %s", deltas, err, want)
		}
	}
}

// What comes out of Merge, or goes in by AddIfNotPresent, needs no label of its own, but for
// one where the type is the caller's.
func TestDeltaFIFO_Q9_Labels(t *testing.T) {
	for typ, most := range map[DeltaType]float64{Updated: 0, "mine": 1} {
		q := NewDeltaFIFO(versionKey, DeltaFIFOOptions[string, *version]{})
		deltas := slices.Repeat(Deltas[*version]{{Type: typ, Object: &version{"a", 1}}}, 10)
		e := q.entries.insert(hashOf("a"), "a")
		if n := testing.AllocsPerRun(100, func() { q.enqueue(e, deltas) }); n > most {
			t.Errorf("%s: %v allocations for 10 changes, want %v", typ, n, most)
		}
	}
}

// The memory of changes that Merge has folded is given back, though nothing is popped.
func TestDeltaFIFO_Q9_Folded(t *testing.T) {
	const keys, changes = 10, chunkLen
	q := NewDeltaFIFO(versionKey, DeltaFIFOOptions[string, *version]{
		Merge: func(_ Deltas[*version], next Delta[*version]) Deltas[*version] { return Deltas[*version]{next} },
	})
	for k := range keys {
		key := fmt.Sprint(k)
		deltas := slices.Repeat(Deltas[*version]{{Type: Updated, Object: &version{key, 0}}}, changes)
		if err := q.AddIfNotPresent(key, deltas); err != nil {
			t.Fatal(err)
		}
		_ = q.Update(&version{key, 1})
	}
	if q.deltas.used > chunkLen {
		t.Errorf("%d slots for %d deltas", q.deltas.used, q.deltas.n)
	}
	if err := checkDeltaFIFO(q); err != nil {
		t.Error(err)
	}
}

// panickyKnown knows three keys, and panics when it is asked for the last.
type panickyKnown struct{}

func (panickyKnown) ListKeys() []string { return []string{"x", "y", "z"} }

func (panickyKnown) GetByKey(key string) (*version, bool) {
	if key == "z" {
		panic("z")
	}
	return &version{key, 0}, true
}

// Where KnownObjects or Merge panics, no entry stays that was made for what was not done.
func TestDeltaFIFO_D7_NothingHalfDone(t *testing.T) {
	merge := func(pending Deltas[*version], next Delta[*version]) Deltas[*version] {
		if next.Object.key == "d" {
			panic("d")
		}
		return append(pending, next)
	}
	for _, tt := range []struct {
		name string
		opts DeltaFIFOOptions[string, *version]
		do   func(*DeltaFIFO[string, *version]) error
	}{
		{"Replace, KnownObjects", DeltaFIFOOptions[string, *version]{KnownObjects: panickyKnown{}},
			func(q *DeltaFIFO[string, *version]) error { return q.Replace([]*version{{"b", 1}, {"c", 1}}) }},
		{"Replace, Merge", DeltaFIFOOptions[string, *version]{Merge: merge},
			func(q *DeltaFIFO[string, *version]) error { return q.Replace([]*version{{"c", 1}, {"d", 1}, {"c", 2}}) }},
		{"Resync, KnownObjects", DeltaFIFOOptions[string, *version]{KnownObjects: panickyKnown{}},
			(*DeltaFIFO[string, *version]).Resync},
	} {
		t.Run(tt.name, func(t *testing.T) {
			q := NewDeltaFIFO(versionKey, tt.opts)
			_, _ = q.Add(&version{"a", 1}), q.Add(&version{"b", 1})
			func() {
				defer func() {
					if recover() == nil {
						t.Error("no panic")
					}
				}()
				_ = tt.do(q)
			}()
			if err := checkDeltaFIFO(q); err != nil {
				t.Error(err)
			}
			if keys := q.ListKeys(); !slices.Equal(keys, []string{"a", "b"}) || q.entries.n != 2 || q.deltas.n != 2 {
				t.Errorf("pending: %v; %d entries, %d deltas", keys, q.entries.n, q.deltas.n)
			}
		})
	}
}
