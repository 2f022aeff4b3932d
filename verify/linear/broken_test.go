package linear

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"example.com/typedqueue"
)

// This file proves that the checks can fail: each queue in it has one fault, and is found.

type sound = typedqueue.DelayingQueue[int]

type lossyDone struct{ *sound }

func (q lossyDone) Done(item int) {
	q.sound.Done(item)
	q.sound.Cancel(item) // what was added meanwhile
}

type strayDone struct{ *sound }

func (q strayDone) Done(item int) { // as client-go: the stranger's Add comes back
	q.sound.Done(item)
	if item == 0 {
		q.sound.Add(item)
	}
}

type twoHands struct{ *sound }

func (q twoHands) TryGet() (int, bool) {
	item, ok := q.sound.TryGet()
	if ok && item == 0 {
		q.sound.Done(item) // not his to do
	}
	return item, ok
}

type piecemeal struct{ *sound }

func (q piecemeal) AddAll(items ...int) {
	for _, item := range items {
		q.sound.Add(item)
		runtime.Gosched()
	}
}

type lateLen struct{ *sound }

func (q lateLen) Len() int { return max(0, q.sound.Len()-1) }

type noPriority struct{ *sound }

func (q noPriority) AddWithPriority(item, _ int) { q.sound.Add(item) }

type swallows struct{ *sound }

func (q swallows) GetContext(ctx context.Context) (int, error) {
	item, err := q.sound.GetContext(ctx)
	runtime.Gosched()
	if err == nil && ctx.Err() != nil {
		err = ctx.Err() // the item is lost
	}
	return item, err
}

type shyTry struct{ *sound }

func (q shyTry) TryGet() (int, bool) {
	if q.sound.Len() < 2 {
		return 0, false
	}
	return q.sound.TryGet()
}

type impatientDrain struct{ *sound }

func (q impatientDrain) Drain(ctx context.Context) error { // as client-go: with items still ready
	err := q.sound.Drain(ctx)
	if err != nil && q.sound.Len() > 0 {
		return nil
	}
	return err
}

type hastyShutDown struct{ *sound }

func (q hastyShutDown) ShutDown() {
	q.sound.ShutDown()
	for item := range Items {
		q.sound.Cancel(item)
	}
}

type early struct{ *sound }

func (q early) AddAfter(item int, delay time.Duration) { q.sound.AddAfter(item, delay/8) }

type disorderly struct{ *sound }

func (q disorderly) AddAfter(item int, delay time.Duration) {
	if item == 0 && delay > 0 {
		delay += 100 * time.Microsecond // so others overtake it
	}
	q.sound.AddAfter(item, delay)
}

type twice struct{ *sound }

func (q twice) Add(item int) { // as client-go: an Add does not end a wait
	q.sound.Add(item)
	if item == 0 {
		q.sound.AddAfter(item, time.Microsecond)
	}
}

type latest struct{ *sound }

func (q latest) AddAfter(item int, delay time.Duration) { q.sound.Reschedule(item, delay) }

type twoSteps struct{ *sound }

func (q twoSteps) Reschedule(item int, delay time.Duration) { // an item that was ready is nowhere for a moment
	q.sound.Cancel(item)
	q.sound.AddAfter(item, delay)
}

type stillWaiting struct{ *sound }

func (q stillWaiting) Waiting() int { return q.sound.Waiting() + q.sound.Len() }

// TestBrokenQueues: each is found.
func TestBrokenQueues(t *testing.T) {
	for name, broken := range map[string]func(*sound) DelayingQueue{
		"Done loses what came meanwhile":    func(q *sound) DelayingQueue { return lossyDone{q} },
		"Done of a stranger queues it":      func(q *sound) DelayingQueue { return strayDone{q} },
		"an item is in two hands":           func(q *sound) DelayingQueue { return twoHands{q} },
		"AddAll is not atomic":              func(q *sound) DelayingQueue { return piecemeal{q} },
		"Len is wrong":                      func(q *sound) DelayingQueue { return lateLen{q} },
		"priorities are ignored":            func(q *sound) DelayingQueue { return noPriority{q} },
		"a getter takes and gives up":       func(q *sound) DelayingQueue { return swallows{q} },
		"TryGet leaves the last one":        func(q *sound) DelayingQueue { return shyTry{q} },
		"a drain returns with items ready":  func(q *sound) DelayingQueue { return impatientDrain{q} },
		"ShutDown drops the backlog":        func(q *sound) DelayingQueue { return hastyShutDown{q} },
		"a timer fires early":               func(q *sound) DelayingQueue { return early{q} },
		"items come due out of order":       func(q *sound) DelayingQueue { return disorderly{q} },
		"a wait survives Add":               func(q *sound) DelayingQueue { return twice{q} },
		"the latest delay wins":             func(q *sound) DelayingQueue { return latest{q} },
		"Reschedule is two steps":           func(q *sound) DelayingQueue { return twoSteps{q} },
		"Waiting counts what is ready, too": func(q *sound) DelayingQueue { return stillWaiting{q} },
	} {
		t.Run(name, func(t *testing.T) {
			mustFind(t, QueueModel(), 20_000, func(rng *rand.Rand) []porcupine.Operation {
				return runQueue(rng, broken(new(sound)), delaying)
			})
		})
	}
}

type piecemealReplace struct{ Line }

func (q piecemealReplace) Replace(objects []Object) error {
	for key := range Keys {
		if !slices.ContainsFunc(objects, func(o Object) bool { return o.Key == key }) {
			if err := q.Line.DeleteKey(key); err != nil {
				return err
			}
		}
	}
	runtime.Gosched()
	for _, o := range objects {
		if err := q.Line.Add(o); err != nil {
			return err
		}
	}
	return nil
}

type deafDelete struct{ Line }

func (q deafDelete) DeleteKey(int) error { return q.Line.Resync() } // nil, or ErrClosed

type handsOff struct{ Line }

func (q handsOff) Pop(ctx context.Context, process func(int, Deltas, bool) error) error {
	var key int
	var deltas Deltas
	var initial bool
	err := q.Line.Pop(ctx, func(k int, d Deltas, i bool) error {
		key, deltas, initial = k, d, i
		return nil
	})
	if err != nil {
		return err
	}
	return process(key, deltas, initial) // nobody knows that it is in hand
}

type drops struct{ Line }

func (q drops) Pop(ctx context.Context, process func(int, Deltas, bool) error) error {
	return q.Line.Pop(ctx, func(key int, d Deltas, initial bool) error {
		_ = process(key, d, initial) // so nothing is put back
		return nil
	})
}

type soonSynced struct{ Line }

func (q soonSynced) HasSynced() bool { return q.Line.HasSynced() || q.Line.Len() == 0 } // as client-go: popped is not processed

type deafToContext struct{ Line }

func (q deafToContext) Pop(ctx context.Context, process func(int, Deltas, bool) error) error {
	if ctx.Err() != nil {
		brief, cancel := within(time.Microsecond)
		defer cancel()
		if err := q.Line.Pop(brief, process); err == nil {
			return nil
		}
	}
	return q.Line.Pop(ctx, process)
}

type stillOpen struct{ Line }

func (q stillOpen) Add(o Object) error {
	_ = q.Line.Add(o)
	return nil
}

// brokenDeltas returns a DeltaFIFO with other options than the model's.
func brokenDeltas(opts typedqueue.DeltaFIFOOptions[int, Object]) Line {
	q := NewDeltaFIFO()
	if opts.Merge != nil {
		opts.KnownObjects = q.known
	}
	q.DeltaFIFO = typedqueue.NewDeltaFIFO(keyOf, opts)
	return q
}

// TestBrokenLines: each is found.
func TestBrokenLines(t *testing.T) {
	type options = typedqueue.DeltaFIFOOptions[int, Object]
	for name, broken := range map[string]func() (porcupine.Model, Line){
		"FIFO: Replace is not atomic":        func() (porcupine.Model, Line) { return FIFOModel(), piecemealReplace{NewFIFO()} },
		"FIFO: a deletion is lost":           func() (porcupine.Model, Line) { return FIFOModel(), deafDelete{NewFIFO()} },
		"FIFO: a key is in two hands":        func() (porcupine.Model, Line) { return FIFOModel(), handsOff{NewFIFO()} },
		"FIFO: nothing is put back":          func() (porcupine.Model, Line) { return FIFOModel(), drops{NewFIFO()} },
		"FIFO: synced too early":             func() (porcupine.Model, Line) { return FIFOModel(), soonSynced{NewFIFO()} },
		"FIFO: takes with a context done":    func() (porcupine.Model, Line) { return FIFOModel(), deafToContext{NewFIFO()} },
		"FIFO: accepts after Close":          func() (porcupine.Model, Line) { return FIFOModel(), stillOpen{NewFIFO()} },
		"DeltaFIFO: a deletion is lost":      func() (porcupine.Model, Line) { return DeltaFIFOModel(), deafDelete{NewDeltaFIFO()} },
		"DeltaFIFO: a key is in two hands":   func() (porcupine.Model, Line) { return DeltaFIFOModel(), handsOff{NewDeltaFIFO()} },
		"DeltaFIFO: nothing is put back":     func() (porcupine.Model, Line) { return DeltaFIFOModel(), drops{NewDeltaFIFO()} },
		"DeltaFIFO: synced too early":        func() (porcupine.Model, Line) { return DeltaFIFOModel(), soonSynced{NewDeltaFIFO()} },
		"DeltaFIFO: knows nothing":           func() (porcupine.Model, Line) { return DeltaFIFOModel(), brokenDeltas(options{}) },
		"DeltaFIFO: only the newest is kept": func() (porcupine.Model, Line) { return DeltaFIFOModel(), brokenDeltas(options{Merge: newestOnly}) },
		"DeltaFIFO: all deletions are kept":  func() (porcupine.Model, Line) { return DeltaFIFOModel(), brokenDeltas(options{Merge: keepAll}) },
	} {
		t.Run(name, func(t *testing.T) {
			model, _ := broken()
			mustFind(t, model, 20_000, func(rng *rand.Rand) []porcupine.Operation {
				_, q := broken()
				return runLine(rng, q)
			})
		})
	}
}

func newestOnly(_ Deltas, next typedqueue.Delta[Object]) Deltas { return Deltas{next} }

func keepAll(pending Deltas, next typedqueue.Delta[Object]) Deltas { return append(pending, next) }

// mustFind checks histories until one is illegal, cuts it and draws it.
func mustFind(t *testing.T, model porcupine.Model, n int, run func(rng *rand.Rand) []porcupine.Operation) {
	c, illegal := checkAll(model, n, run)
	if illegal == nil {
		t.Fatalf("%d histories, and none illegal", n)
	}
	short := Shortest(model, illegal)
	t.Logf("found after %d histories, in the first %d calls of %d", c.ok+c.unknown, len(short), len(illegal))
	mustBeShortest(t, model, illegal)
	page := filepath.Join(t.ArtifactDir(), "history.html")
	if err := Draw(model, short, page); err != nil {
		t.Fatal(err)
	}
	html, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	last := short[len(short)-1]
	for _, op := range short {
		if op.Output != nil {
			last = op
		}
	}
	if what := model.DescribeOperation(last.Input, last.Output); !strings.Contains(string(html), strings.ReplaceAll(what, ">", `\u003e`)) {
		t.Errorf("the page does not show %s", what)
	}
}

// mustBeShortest: a history becomes illegal at one moment, and stays so.
func mustBeShortest(t *testing.T, model porcupine.Model, ops []porcupine.Operation) {
	first := firstIllegal(model, ops)
	for _, op := range ops {
		if at := op.Return; legalUntil(model, ops, at) != (at < first) {
			t.Errorf("illegal from %d on, but not so at %d", first, at)
		}
	}
}
