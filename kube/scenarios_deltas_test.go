package kube_test

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/client-go/tools/cache"
)

func (r *trial) newPlainDeltaFIFO() *objectLine { return r.newDeltaFIFO(deltaOptions{}) }

// knowing returns a DeltaFIFO that knows the named objects.
func (r *trial) knowing(names ...string) *objectLine {
	return r.newDeltaFIFO(deltaOptions{known: things(names...)})
}

func whenRecording() []scenario {
	return []scenario{{
		does: "DeltaFIFO: Add a1, b1; Update a2",
		rule: "D1",
		want: "Added a1, Updated a2 / Added b1 / nothing",
		why: "All changes of a key come together, so the consumer of a key sees at once how it is now. RealFIFO hands out " +
			"each alone, in the order in which they came.",
		do: func(r *trial) {
			q := r.newPlainDeltaFIFO()
			q.each(q.Add, "a1", "b1")
			q.each(q.Update, "a2")
			r.note("%s", q.pop(3))
		},
	}, {
		does: "DeltaFIFO: Add a1; Update a1, a1; Delete a2, a3",
		rule: "D1, D2",
		want: "Added a1, Updated a1, Updated a1, Deleted a2",
		why:  "RealFIFO merges nothing.",
		do: func(r *trial) {
			q := r.newPlainDeltaFIFO()
			q.each(q.Add, "a1")
			q.each(q.Update, "a1", "a1")
			q.each(q.Delete, "a2", "a3")
			r.note("%s", q.popKey())
		},
	}, {
		does: "DeltaFIFO that knows a1: Replace with nothing; Delete a2",
		rule: "D2, D4",
		want: "Deleted a2",
		why:  "Of two deletions in a row the one that was seen stays. RealFIFO merges nothing.",
		do: func(r *trial) {
			q := r.knowing("a1")
			q.list()
			q.each(q.Delete, "a2")
			r.note("%s", q.popKey())
		},
	}, {
		does: "DeltaFIFO that knows nothing: Delete a1",
		rule: "D3",
		want: "nothing",
		why:  "What does not exist cannot go. RealFIFO leaves that to its consumer.",
		do: func(r *trial) {
			q := r.knowing()
			q.each(q.Delete, "a1")
			r.note("%s", q.popKey())
		},
	}, {
		does:    "DeltaFIFO without known objects: Add a1, Pop, Delete a1; Resync",
		rule:    "D3, D6",
		want:    "nothing",
		without: []side{realFIFO},
		do: func(r *trial) {
			q := r.newPlainDeltaFIFO()
			q.each(q.Add, "a1")
			q.pop(1)
			q.each(q.Delete, "a1")
			must(q.Resync())
			r.note("%s", q.popKey())
		},
	}, {
		does: "DeltaFIFO that knows a1, b1: Update a2; Resync",
		rule: "D6",
		want: "Updated a2 / Sync b1 / nothing",
		do: func(r *trial) {
			q := r.knowing("a1", "b1")
			q.each(q.Update, "a2")
			must(q.Resync())
			r.note("%s", q.pop(3))
		},
	}, {
		does: "DeltaFIFO that knows a1: Update a2; Delete by key, without an object",
		rule: "D5, D7",
		want: "Updated a2, Deleted? a2",
		why: "DeleteKey carries the newest object seen, so that a handler has something to go by. With client-go's the " +
			"object is what the DeletedFinalStateUnknown holds.",
		do: func(r *trial) {
			q := r.knowing("a1")
			q.each(q.Update, "a2")
			must(q.Delete(cache.DeletedFinalStateUnknown{Key: "a"}))
			r.note("%s", q.popKey())
		},
	}, {
		does: "DeltaFIFO: Add b1 while a1 is processed",
		rule: "F3, locks",
		want: "Add answers; Added a1 / Added b1",
		why: "client-go calls the consumer with its lock held, so producers wait for it. RealFIFO does not with " +
			"AtomicEvents and UnlockWhileProcessing, unless it is 2,000 behind.",
		do: func(r *trial) { r.addMeanwhile(r.newPlainDeltaFIFO()) },
	}, {
		does: "DeltaFIFO: Add a1; the consumer returns an error",
		rule: "F4",
		want: "Added a1 and its error / nothing",
		do:   func(r *trial) { r.failWith(r.newPlainDeltaFIFO(), func() error { return errors.New("no") }) },
	}, {
		does: "DeltaFIFO: Add a1; the consumer panics",
		rule: "F4, D8",
		want: "panics: no / Added a1",
		why:  "What was not processed is put back. Theirs have lost it.",
		do:   func(r *trial) { r.failWith(r.newPlainDeltaFIFO(), func() error { panic("no") }) },
	}, {
		does: "DeltaFIFO: Add a1; while it is processed, Update a2; the consumer panics",
		rule: "D8",
		want: "panics: no / Added a1, Updated a2",
		why:  "What was not processed goes back in front of what came meanwhile, so history keeps its order. Theirs have lost it.",
		do: func(r *trial) {
			q := r.newPlainDeltaFIFO()
			r.failWith(q, func() error {
				reach(func() { must(q.Update(&thing{"a2"})) })
				panic("no")
			})
		},
	}, {
		does: "DeltaFIFO: Add a1; Close; Add b1; three Pops",
		rule: "F6",
		want: "refused; Added a1 / closed / closed",
		why:  "As with a FIFO.",
		do:   func(r *trial) { r.addAfterClose(r.newPlainDeltaFIFO()) },
	}}
}

// popKey pops all of one key, which is all that there is.
func (l *objectLine) popKey() string {
	var changes []string
	for s := l.pop(1); s != "nothing"; s = l.pop(1) {
		changes = append(changes, s)
	}
	if changes == nil {
		return "nothing"
	}
	return strings.Join(changes, " / ")
}

func whenReplacing() []scenario {
	return []scenario{{
		does: "DeltaFIFO: Replace with a1, by default",
		rule: "D4",
		want: "Replaced a1",
		why: "client-go's says Sync, unless it is made with EmitDeltaTypeReplaced, as here otherwise. For that, use " +
			"EmitSyncOnReplace.",
		without: []side{realFIFO},
		do: func(r *trial) {
			q := r.newDeltaFIFO(deltaOptions{asOfOld: r.side.name == clientGo.name})
			q.list("a1")
			r.note("%s", q.popKey())
		},
	}, {
		does:    "DeltaFIFO with our EmitSyncOnReplace, without client-go's EmitDeltaTypeReplaced: Replace with a1",
		rule:    "D4",
		want:    "Sync a1",
		without: []side{realFIFO},
		do: func(r *trial) {
			q := r.newDeltaFIFO(deltaOptions{asOfOld: true})
			q.list("a1")
			r.note("%s", q.popKey())
		},
	}, {
		does: "DeltaFIFO that knows a1: Delete a1; Replace with a2",
		rule: "D4",
		want: "Deleted a1, Replaced a2",
		why:  "RealFIFO hands out each alone.",
		do: func(r *trial) {
			q := r.knowing("a1")
			q.each(q.Delete, "a1")
			q.list("a2")
			r.note("%s", q.popKey())
		},
	}, {
		does: "DeltaFIFO that knows a1: Add b1; Update b2; Replace with c1, c2",
		rule: "D4",
		want: "Added b1, Updated b2, Deleted? b2 / Replaced c1, Replaced c2 / Deleted? a1",
		why:  "RealFIFO hands out each alone, and deletions before what is listed.",
		do: func(r *trial) {
			q := r.knowing("a1")
			q.each(q.Add, "b1")
			q.each(q.Update, "b2")
			q.list("c1", "c2")
			r.note("%s", q.popKey())
		},
	}, {
		does: "DeltaFIFO that knows a1: Replace with b1; two Pops, what each is told",
		rule: "D4, F5",
		want: "initial, not synced; initial, not synced; synced",
		why:  "The deletions that come of the initial list belong to it. client-go's DeltaFIFO is early, as above.",
		do: func(r *trial) {
			q := r.knowing("a1")
			q.list("b1")
			for range 2 {
				q.popWith(func(_ string, initial bool) error {
					r.note("%sinitial, %s", map[bool]string{false: "not "}[initial], q.synced())
					return nil
				})
			}
			r.note("%s", q.synced())
		},
	}, {
		does: "DeltaFIFO: Replace with a1, an object without a key, b1",
		rule: "D7, S6",
		want: "refused; nothing",
		why:  "Replace is all or nothing. client-go's DeltaFIFO has queued what came before the error.",
		do: func(r *trial) {
			q := r.newPlainDeltaFIFO()
			r.note("%s", outcome(q.Replace(things("a1", "", "b1"), "")))
			r.note("%s", q.pop(1))
		},
	}}
}

func whenTransforming() []scenario {
	fails := func(obj any) (any, error) {
		if strings.HasSuffix(fmt.Sprint(obj), "!") {
			return nil, errors.New("no")
		}
		return &thing{fmt.Sprint(obj) + "t"}, nil
	}
	return []scenario{{
		does: "DeltaFIFO that knows b1, with a transform: Add a1; Resync; Replace with a1; Pop all",
		rule: "D7",
		want: "Added a1t, Replaced a1t / Sync b1, Deleted? b1",
		why:  "Each object that comes in is transformed once; what is known has been. RealFIFO hands out each alone.",
		do: func(r *trial) {
			q := r.newDeltaFIFO(deltaOptions{known: things("b1"), transform: fails})
			q.each(q.Add, "a1")
			must(q.Resync())
			q.list("a1")
			r.note("%s", q.popKey())
		},
	}, {
		does: "DeltaFIFO with a transform: Add a!, for which it fails",
		rule: "D7, F5",
		want: "refused; nothing; not synced",
		why:  "A write that is refused changes nothing; as above.",
		do: func(r *trial) {
			q := r.newDeltaFIFO(deltaOptions{transform: fails})
			r.note("%s", outcome(q.Add(&thing{"a!"})))
			r.note("%s", q.pop(1))
			r.note("%s", q.synced())
		},
	}, {
		does: "DeltaFIFO that knows a1, with a transform: Delete a!, for which it fails",
		rule: "D7",
		want: "accepted; Deleted? a1",
		why:  "A deletion is not lost: it becomes one by key. In client-go nobody hears of it until the next list.",
		do: func(r *trial) {
			q := r.newDeltaFIFO(deltaOptions{known: things("a1"), transform: fails})
			r.note("%s", outcome(q.Delete(&thing{"a!"})))
			r.note("%s", q.pop(1))
		},
	}, {
		does: "DeltaFIFO with a transform: Replace with a1, b!, for which it fails",
		rule: "D7",
		want: "refused; nothing",
		why:  "Replace is all or nothing. Theirs have queued what came before the error.",
		do: func(r *trial) {
			q := r.newDeltaFIFO(deltaOptions{transform: fails})
			r.note("%s", outcome(q.Replace(things("a1", "b!"), "")))
			r.note("%s", q.pop(1))
		},
	}, {
		does: "DeltaFIFO with a transform that makes b1 of a1: Add a1",
		rule: "D7",
		want: "refused; nothing",
		why:  "The object would be queued for one key and stored for another. A transform must not change the key.",
		do: func(r *trial) {
			q := r.newDeltaFIFO(deltaOptions{transform: func(any) (any, error) { return &thing{"b1"}, nil }})
			r.note("%s", outcome(q.Add(&thing{"a1"})))
			r.note("%s", q.pop(1))
		},
	}}
}
