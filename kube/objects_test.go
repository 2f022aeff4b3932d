package kube_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing/synctest"

	"k8s.io/client-go/tools/cache"

	"example.com/typedqueue"
)

// A thing is an object: of key a, the second is "a2". Its key is its first letter, and no
// name is no key; nil is an object too, whose key is "nil".
type thing struct{ name string }

func (o *thing) String() string { return o.name }

func things(names ...string) []any {
	list := make([]any, len(names))
	for i, name := range names {
		list[i] = &thing{name}
	}
	return list
}

func keyOf(obj any) (string, error) {
	switch o := obj.(type) {
	case nil:
		return "nil", nil
	case *thing:
		if o.name != "" {
			return o.name[:1], nil
		}
	}
	return "", errors.New("no key")
}

// objectMakers make one side's stores and queues of objects, through client-go's interfaces.
type objectMakers struct {
	store     func() indexer
	fifo      func() cache.Queue
	deltaFIFO func(deltaOptions) (q cache.Queue, known indexer)
}

// indexer is what the scenarios need of a cache.Indexer.
type indexer interface {
	cache.Store
	AddIndexers(cache.Indexers) error
	ByIndex(name, value string) ([]any, error)
	ListIndexFuncValues(name string) []string
}

type deltaOptions struct {
	known     []any // nil: there are no known objects
	asOfOld   bool  // no Replaced
	transform func(any) (any, error)
}

func newTheirStore() indexer { return cache.NewIndexer(keyOf, cache.Indexers{}) }

func newTheirFIFO() cache.Queue { return cache.NewFIFO(keyOf) }

func newTheirDeltaFIFO(o deltaOptions) (cache.Queue, indexer) {
	known := newTheirStore()
	opts := cache.DeltaFIFOOptions{KeyFunction: keyOf, EmitDeltaTypeReplaced: !o.asOfOld, Transformer: o.transform}
	if o.known != nil {
		must(known.Replace(o.known, ""))
		opts.KnownObjects = known
	}
	return cache.NewDeltaFIFOWithOptions(opts), known
}

// newTheirRealFIFO gives it an empty store if nothing is known, since it needs one.
func newTheirRealFIFO(o deltaOptions) (cache.Queue, indexer) {
	known := newTheirStore()
	must(known.Replace(o.known, ""))
	return cache.NewRealFIFOWithOptions(cache.RealFIFOOptions{
		KeyFunction: keyOf, KnownObjects: known, Transformer: o.transform,
	}), known
}

// ourStore is a Store as an indexer. Its objects are of any type, so most methods fit.
type ourStore struct {
	*typedqueue.Store[string, any]
	indexes map[string]*typedqueue.Index[string, string, any]
}

func newOurStore() indexer {
	return ourStore{typedqueue.NewStore(keyOf), make(map[string]*typedqueue.Index[string, string, any])}
}

func (s ourStore) Bookmark(string)                      {}
func (s ourStore) LastStoreSyncResourceVersion() string { return "" }
func (s ourStore) Replace(list []any, _ string) error   { return s.Store.Replace(list) }

func (s ourStore) GetByKey(key string) (any, bool, error) {
	obj, ok := s.Store.GetByKey(key)
	return obj, ok, nil
}

func (s ourStore) AddIndexers(indexers cache.Indexers) error {
	for name, f := range indexers {
		x, err := typedqueue.NewIndex(s.Store, f)
		if err != nil {
			return err
		}
		s.indexes[name] = x
	}
	return nil
}

func (s ourStore) ByIndex(name, value string) ([]any, error) { return s.indexes[name].Get(value), nil }
func (s ourStore) ListIndexFuncValues(name string) []string  { return s.indexes[name].Values() }

// ourFIFO is a FIFO as a cache.Queue.
type ourFIFO struct {
	*typedqueue.FIFO[string, any]
}

func newOurFIFO() cache.Queue { return ourFIFO{typedqueue.NewFIFO(keyOf)} }

func (q ourFIFO) HasSyncedChecker() cache.DoneChecker { return syncedChannel(q.Synced()) }
func (q ourFIFO) Replace(list []any, _ string) error  { return q.FIFO.Replace(list) }
func (q ourFIFO) Pop(p cache.PopProcessFunc) (any, error) {
	return q.FIFO.Pop(context.Background(), func(_ string, obj any, initial bool) error { return p(obj, initial) })
}

// ourDeltaFIFO is a DeltaFIFO as a cache.Queue.
type ourDeltaFIFO struct {
	*typedqueue.DeltaFIFO[string, any]
}

func newOurDeltaFIFO(o deltaOptions) (cache.Queue, indexer) {
	known := newOurStore().(ourStore)
	opts := typedqueue.DeltaFIFOOptions[string, any]{EmitSyncOnReplace: o.asOfOld, Transform: o.transform}
	if o.known != nil {
		must(known.Store.Replace(o.known))
		opts.KnownObjects = known.Store
	}
	return ourDeltaFIFO{typedqueue.NewDeltaFIFO(keyOf, opts)}, known
}

func (q ourDeltaFIFO) HasSyncedChecker() cache.DoneChecker { return syncedChannel(q.Synced()) }
func (q ourDeltaFIFO) Replace(list []any, _ string) error  { return q.DeltaFIFO.Replace(list) }

func (q ourDeltaFIFO) Delete(obj any) error {
	if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		return q.DeleteKey(d.Key)
	}
	return q.DeltaFIFO.Delete(obj)
}

func (q ourDeltaFIFO) Pop(p cache.PopProcessFunc) (popped any, err error) {
	_, err = q.DeltaFIFO.Pop(context.Background(), func(key string, ours typedqueue.Deltas[any], initial bool) error {
		theirs := make(cache.Deltas, len(ours))
		for i, d := range ours {
			theirs[i] = cache.Delta{Type: cache.DeltaType(d.Type), Object: d.Object}
			if d.FinalStateUnknown {
				theirs[i].Object = cache.DeletedFinalStateUnknown{Key: key, Obj: d.Object}
			}
		}
		popped = theirs
		return p(theirs, initial)
	})
	return popped, err
}

type syncedChannel <-chan struct{}

func (syncedChannel) Name() string            { return "typedqueue" }
func (c syncedChannel) Done() <-chan struct{} { return c }

// An objectLine is a queue of objects in a trial.
type objectLine struct {
	cache.Queue
	known  indexer
	popped chan string // the result of the Pop that is under way, or nil
}

func (r *trial) newFIFO() *objectLine { return r.newLine(r.fifo(), nil) }

func (r *trial) newDeltaFIFO(o deltaOptions) *objectLine { return r.newLine(r.deltaFIFO(o)) }

func (r *trial) newLine(q cache.Queue, known indexer) *objectLine {
	r.releases = append(r.releases, q.Close)
	return &objectLine{Queue: q, known: known}
}

// each does f, which must accept it, for each named object.
func (l *objectLine) each(f func(any) error, names ...string) {
	for _, obj := range things(names...) {
		must(f(obj))
	}
}

func (l *objectLine) list(names ...string) { must(l.Replace(things(names...), "")) }

// pop pops n times.
func (l *objectLine) pop(n int) string {
	got := make([]string, n)
	for i := range got {
		got[i] = l.popWith(func(string, bool) error { return nil })
	}
	return strings.Join(got, " / ")
}

// popWith pops once and says what, or that there is nothing, or what came of it. A Pop that
// waits goes on, and the next popWith sees what it returns.
func (l *objectLine) popWith(process func(what string, initial bool) error) string {
	if l.popped == nil {
		result := make(chan string, 1)
		l.popped = result
		go func() { result <- l.popOnce(process) }()
	}
	synctest.Wait()
	select {
	case s := <-l.popped:
		l.popped = nil
		return s
	default:
		return "nothing"
	}
}

func (l *objectLine) popOnce(process func(what string, initial bool) error) (s string) {
	panics := attempt(func() {
		popped, err := l.Pop(func(obj any, initial bool) error { return process(describe(obj), initial) })
		switch {
		case errors.Is(err, cache.ErrFIFOClosed), errors.Is(err, typedqueue.ErrClosed):
			s = "closed"
		case err != nil:
			s = describe(popped) + " and its error"
		default:
			s = describe(popped)
		}
	})
	return s + panics
}

// describe says what a consumer is given.
func describe(popped any) string {
	deltas, ok := popped.(cache.Deltas)
	if !ok {
		return fmt.Sprint(popped)
	}
	var changes []string
	for _, d := range deltas {
		if unknown, ok := d.Object.(cache.DeletedFinalStateUnknown); ok {
			changes = append(changes, fmt.Sprintf("%s? %v", d.Type, unknown.Obj))
		} else {
			changes = append(changes, fmt.Sprintf("%s %v", d.Type, d.Object))
		}
	}
	return strings.Join(changes, ", ")
}

// outcome says what became of a write.
func outcome(err error) string {
	if err != nil {
		return "refused"
	}
	return "accepted"
}

// contents says what is in s.
func contents(s cache.Store) string { return sorted(s.List()) }

func sorted(objects []any) string {
	var names []string
	for _, obj := range objects {
		names = append(names, fmt.Sprint(obj))
	}
	slices.Sort(names)
	return "[" + strings.Join(names, " ") + "]"
}
