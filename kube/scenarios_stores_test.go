package kube_test

import (
	"errors"

	"k8s.io/client-go/tools/cache"
)

// lastLetter is an index function: "a2" has the value "2". It fails for "a!", and nil has
// the value "none".
func lastLetter(obj any) ([]string, error) {
	o, ok := obj.(*thing)
	switch {
	case !ok:
		return []string{"none"}, nil
	case o.name[len(o.name)-1] == '!':
		return nil, errors.New("no value")
	}
	return []string{o.name[len(o.name)-1:]}, nil
}

const byLast = "last letter"

// indexed makes a store with an index, and objects in it.
func (r *trial) indexed(names ...string) indexer {
	s := r.store()
	must(s.AddIndexers(cache.Indexers{byLast: lastLetter}))
	must(s.Replace(things(names...), ""))
	return s
}

func found(s indexer, value string) string {
	objects, err := s.ByIndex(byLast, value)
	must(err)
	return sorted(objects)
}

func whenStoring() []scenario {
	return without([]side{realFIFO}, []scenario{{
		does: "Store: Add a1, b1, a2; Update c1; Delete b1, d1",
		rule: "S1",
		want: "[a2 c1]",
		do: func(r *trial) {
			s := r.store()
			for _, obj := range things("a1", "b1", "a2") {
				must(s.Add(obj))
			}
			must(s.Update(&thing{"c1"}))
			for _, obj := range things("b1", "d1") {
				must(s.Delete(obj))
			}
			r.note("%s", contents(s))
		},
	}, {
		does: "Store: Add, Update, Delete and Get of an object without a key; Replace with a2, it, and b1, where a1 is",
		rule: "S1, S6",
		want: "refused refused refused refused; refused; [a1]",
		do: func(r *trial) {
			s := r.store()
			must(s.Add(&thing{"a1"}))
			bad := new(thing)
			_, _, err := s.Get(bad)
			r.note("%s %s %s %s", outcome(s.Add(bad)), outcome(s.Update(bad)), outcome(s.Delete(bad)), outcome(err))
			r.note("%s", outcome(s.Replace([]any{&thing{"a2"}, bad, &thing{"b1"}}, "")))
			r.note("%s", contents(s))
		},
	}, {
		does: "Store: change the first element of List; List",
		rule: "S5",
		want: "[a1]",
		do: func(r *trial) {
			s := r.store()
			must(s.Add(&thing{"a1"}))
			s.List()[0] = &thing{"b1"}
			r.note("%s", contents(s))
		},
	}, {
		does: "Store: Add nil, which has a key; GetByKey",
		rule: "S4",
		want: "<nil> true",
		do: func(r *trial) {
			s := r.store()
			must(s.Add(nil))
			obj, ok, err := s.GetByKey("nil")
			must(err)
			r.note("%v %v", obj, ok)
		},
	}})
}

func whenIndexing() []scenario {
	return without([]side{realFIFO}, []scenario{{
		does: "Store with a1; an index is added; Add b1, a2",
		rule: "S2",
		want: "of 1: [b1]; of 2: [a2]",
		do: func(r *trial) {
			s := r.store()
			must(s.Add(&thing{"a1"}))
			must(s.AddIndexers(cache.Indexers{byLast: lastLetter}))
			for _, obj := range things("b1", "a2") {
				must(s.Add(obj))
			}
			r.note("of 1: %s", found(s, "1"))
			r.note("of 2: %s", found(s, "2"))
		},
	}, {
		does: "Store with an index and a1, b2; Delete a1; index values",
		rule: "S3",
		want: "[2]",
		do: func(r *trial) {
			s := r.indexed("a1", "b2")
			must(s.Delete(&thing{"a1"}))
			r.note("%v", s.ListIndexFuncValues(byLast))
		},
	}, {
		does: "Store with an index and a1, which somebody turns into a2 in place; Add a3; by index",
		rule: "S2, S3",
		want: "of 1: []; of 3: [a3]",
		why: "The index values of an object are those it had when it was stored. client-go asks the index function again, " +
			"and the value by which the object was found before stays for ever. Stored objects must not be changed in either.",
		do: func(r *trial) {
			s := r.indexed()
			a := &thing{"a1"}
			must(s.Add(a))
			a.name = "a2"
			must(s.Add(&thing{"a3"}))
			r.note("of 1: %s", found(s, "1"))
			r.note("of 3: %s", found(s, "3"))
		},
	}, {
		does: "Store with an index and a1; Add a!, whose index function fails; what is stored",
		rule: "S1",
		want: "refused; [a1]; of 1: [a1]",
		why: "The error of an index function is that of the write, which changes nothing. client-go has stored the " +
			"object when it panics, and its indexes are wrong from then on.",
		do: func(r *trial) {
			s := r.indexed("a1")
			r.write(func() error { return s.Add(&thing{"a!"}) })
			r.note("%s", contents(s))
			r.note("of 1: %s", found(s, "1"))
		},
	}, {
		does: "Store with an index and a1; Replace with c!, whose index function fails",
		rule: "S1",
		want: "refused; [a1]; of 1: [a1]",
		why:  "The same. client-go's index does not know what is stored.",
		do: func(r *trial) {
			s := r.indexed("a1")
			r.write(func() error { return s.Replace(things("c!"), "") })
			r.note("%s", contents(s))
			r.note("of 1: %s", found(s, "1"))
		},
	}, {
		does: "Store with a!; an index is added whose function fails for it",
		rule: "S1, S2",
		want: "refused",
		why:  "NewIndex returns the error. client-go panics, and keeps the index.",
		do: func(r *trial) {
			s := r.store()
			must(s.Add(&thing{"a!"}))
			r.write(func() error { return s.AddIndexers(cache.Indexers{byLast: lastLetter}) })
		},
	}, {
		does: "Store with an index; Add nil, which has a key and the index value none; by index",
		rule: "S4",
		want: "[<nil>]",
		why:  "client-go takes nil for no object, and does not index it. Store something else if it shall not be found.",
		do: func(r *trial) {
			s := r.indexed()
			must(s.Add(nil))
			r.note("%s", found(s, "none"))
		},
	}, {
		does: "Store: an index function calls List",
		rule: "locks",
		want: "List answers",
		why:  "client-go calls it with the store's lock held: that would never return. With ours it may read the store.",
		do: func(r *trial) {
			s := r.store()
			must(s.AddIndexers(cache.Indexers{byLast: func(any) ([]string, error) {
				r.note("List %s", reach(func() { s.List() }))
				return nil, nil
			}}))
			must(s.Add(&thing{"a1"}))
		},
	}})
}

// write notes what becomes of a write.
func (r *trial) write(f func() error) {
	var err error
	if panics := attempt(func() { err = f() }); panics != "" {
		r.note("panics")
	} else {
		r.note("%s", outcome(err))
	}
}
