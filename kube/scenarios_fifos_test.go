package kube_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

func whenLining() []scenario {
	return without([]side{realFIFO}, []scenario{{
		does: "FIFO: Add a1, b1, Update a2",
		rule: "F1",
		want: "a2 / b1 / nothing",
		do: func(r *trial) {
			q := r.newFIFO()
			q.each(q.Add, "a1", "b1")
			q.each(q.Update, "a2")
			r.note("%s", q.pop(3))
		},
	}, {
		does: "FIFO: Add a1, b1; Delete a; Add a2",
		rule: "F1",
		want: "b1 / a2 / nothing",
		why: "A key that was deleted and is added again is new, and goes to the tail. In client-go it gets its old place " +
			"back, and leaves another behind each time.",
		do: func(r *trial) {
			q := r.newFIFO()
			q.each(q.Add, "a1", "b1")
			q.each(q.Delete, "a1")
			q.each(q.Add, "a2")
			r.note("%s", q.pop(3))
		},
	}, {
		does: "FIFO: Add a1; Replace with 50 others; their order, and whether a comes",
		rule: "F2",
		want: "the list's; no",
		why:  "client-go's order is that of a Go map.",
		do: func(r *trial) {
			q := r.newFIFO()
			q.each(q.Add, "a1")
			names := fifty()
			q.list(names...)
			got := strings.Split(q.pop(50), " / ")
			r.note("%s", orderOf(got, names))
			r.note("%s", map[bool]string{true: "yes", false: "no"}[q.pop(1) != "nothing"])
		},
	}, {
		does: "FIFO: Replace with a1, a2; Resync",
		rule: "F2",
		want: "a2 / nothing",
		do: func(r *trial) {
			q := r.newFIFO()
			q.list("a1", "a2")
			must(q.Resync())
			r.note("%s", q.pop(2))
		},
	}, {
		does: "FIFO: Add a1; Replace with b1, an object without a key",
		rule: "F2, S6",
		want: "refused; a1 / nothing",
		do: func(r *trial) {
			q := r.newFIFO()
			q.each(q.Add, "a1")
			r.note("%s", outcome(q.Replace(things("b1", ""), "")))
			r.note("%s", q.pop(2))
		},
	}, {
		does: "FIFO: Pop waits; Close",
		rule: "F6",
		want: "nothing, then closed",
		do: func(r *trial) {
			q := r.newFIFO()
			before := q.pop(1)
			q.Close()
			r.note("%s, then %s", before, q.pop(1))
		},
	}, {
		does: "FIFO: Add b1 while a1 is processed",
		rule: "F3, locks",
		want: "Add answers; a1 / b1",
		why:  "client-go calls the consumer with its lock held, so producers wait for it. So does its DeltaFIFO.",
		do: func(r *trial) {
			q := r.newFIFO()
			r.addMeanwhile(q)
		},
	}, {
		does: "FIFO: Add a1, b1; Pop while a1 is processed",
		rule: "F3",
		want: "Pop answers",
		why:  "With ours several consumers may work at once: no key is in two hands.",
		do: func(r *trial) {
			q := r.newFIFO()
			q.each(q.Add, "a1", "b1")
			q.popWith(func(string, bool) error {
				r.note("Pop %s", reach(func() { q.popOnce(func(string, bool) error { return nil }) }))
				return nil
			})
		},
	}, {
		does: "FIFO: Add a1; the consumer returns an error",
		rule: "F4",
		want: "a1 and its error / nothing",
		do:   func(r *trial) { r.failWith(r.newFIFO(), func() error { return errors.New("no") }) },
	}, {
		does: "FIFO: Add a1; the consumer panics",
		rule: "F4",
		want: "panics: no / a1",
		why:  "What was not processed is put back. client-go has lost it.",
		do:   func(r *trial) { r.failWith(r.newFIFO(), func() error { panic("no") }) },
	}, {
		does: "FIFO: Add a1; Close; Add b1; three Pops",
		rule: "F6",
		want: "refused; a1 / closed / closed",
		why:  "A closed FIFO or DeltaFIFO takes nothing more in: ErrClosed. client-go's go on, and it is popped.",
		do:   func(r *trial) { r.addAfterClose(r.newFIFO()) },
	}})
}

// fifty returns 50 names with different keys.
func fifty() []string {
	var names []string
	for i := range 50 {
		names = append(names, string(rune('0'+i)))
	}
	return names
}

func orderOf(got, want []string) string {
	switch {
	case slices.Equal(got, want):
		return "the list's"
	case slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))):
		return "another"
	}
	return fmt.Sprint(got)
}

// addMeanwhile adds b1 while a1 is processed.
func (r *trial) addMeanwhile(q *objectLine) {
	q.each(q.Add, "a1")
	a := q.popWith(func(string, bool) error {
		r.note("Add %s", reach(func() { must(q.Add(&thing{"b1"})) }))
		return nil
	})
	r.note("%s / %s", a, q.pop(1))
}

// failWith adds a1, pops it with fail, and pops again.
func (r *trial) failWith(q *objectLine, fail func() error) {
	q.each(q.Add, "a1")
	first := q.popWith(func(string, bool) error { return fail() })
	r.note("%s / %s", first, q.pop(1))
}

func (r *trial) addAfterClose(q *objectLine) {
	q.each(q.Add, "a1")
	q.Close()
	r.note("%s", outcome(q.Add(&thing{"b1"})))
	r.note("%s", q.pop(3))
}

// whenListing is about the initial list, and when a queue says that it has been processed.
func whenListing() []scenario {
	fifos := slices.Concat(
		initialLists("FIFO", (*trial).newFIFO, whys{
			stray: "A deletion of what is not there changes nothing, and says nothing of the list. client-go takes it for the first write.",
		}),
		[]scenario{{
			does: "FIFO: Replace with a1; Delete a",
			rule: "F5",
			want: "synced",
			why: "An initial key that has been deleted has been dealt with. client-go waits for it until another has been " +
				"popped.",
			do: func(r *trial) {
				q := r.newFIFO()
				q.list("a1")
				q.each(q.Delete, "a1")
				r.note("%s", q.synced())
			},
		}, {
			does: "FIFO: Replace with a1, b1; Replace with c1; Pop",
			rule: "F5",
			want: "not synced, then synced, then synced",
			why: "An initial key that a later list has forgotten has been dealt with. client-go counts two pops, whatever " +
				"comes.",
			do: func(r *trial) {
				q := r.newFIFO()
				q.list("a1", "b1")
				before := q.synced()
				q.list("c1")
				then := q.synced()
				q.pop(1)
				r.note("%s, then %s, then %s", before, then, q.synced())
			},
		}},
	)
	return slices.Concat(without([]side{realFIFO}, fifos), initialLists("DeltaFIFO", (*trial).newPlainDeltaFIFO, whys{
		early: "Synced means processed. client-go's DeltaFIFO says so when the last key is popped, before it is processed.",
		bad:   "A write that is refused changes nothing. client-go's takes it for the first one, so no list is initial any more.",
		stray: "As above. RealFIFO queues the deletion, known or not.",
	}))
}

// synced looks at the channel: HasSynced would wait for the lock where the consumer holds it.
func (l *objectLine) synced() string {
	select {
	case <-l.HasSyncedChecker().Done():
		return "synced"
	default:
		return "not synced"
	}
}

// whys say why the scenarios of initialLists differ; see there.
type whys struct{ early, bad, stray string }

// initialLists returns what both kinds of queue do.
func initialLists(kind string, make func(*trial) *objectLine, why whys) []scenario {
	return []scenario{{
		does: kind + ": before anything; Add a1",
		rule: "F5",
		want: "not synced, then synced",
		do: func(r *trial) {
			q := make(r)
			before := q.synced()
			q.each(q.Add, "a1")
			r.note("%s, then %s", before, q.synced())
		},
	}, {
		does: kind + ": Replace with nothing",
		rule: "F5",
		want: "synced",
		do: func(r *trial) {
			q := make(r)
			q.list()
			r.note("%s", q.synced())
		},
	}, {
		does: kind + ": Replace with a1, b1; Add c1; three Pops, what each is told of the list and what is so while it runs; after them",
		rule: "F5",
		want: "initial, not synced; initial, not synced; not initial, synced; synced",
		why:  why.early,
		do: func(r *trial) {
			q := make(r)
			q.list("a1", "b1")
			q.each(q.Add, "c1")
			for range 3 {
				q.popWith(func(_ string, initial bool) error {
					r.note("%sinitial, %s", map[bool]string{false: "not "}[initial], q.synced())
					return nil
				})
			}
			r.note("%s", q.synced())
		},
	}, {
		does: kind + ": Add of an object without a key",
		rule: "F5, S6",
		want: "refused; not synced",
		why:  why.bad,
		do: func(r *trial) {
			q := make(r)
			r.note("%s", outcome(q.Add(new(thing))))
			r.note("%s", q.synced())
		},
	}, {
		does: kind + ": Delete a, which is not there",
		rule: "F5",
		want: "not synced",
		why:  why.stray,
		do: func(r *trial) {
			q := make(r)
			q.each(q.Delete, "a1")
			r.note("%s", q.synced())
		},
	}}
}
