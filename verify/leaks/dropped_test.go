package leaks

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"testing"
	"time"
	"weak"

	"go.uber.org/goleak"

	"example.com/typedqueue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// object is an item. It must be collected with its queue.
type object struct{ name string }

func keyOf(o *object) (string, error) { return o.name, nil }

func some(n int) []*object {
	objs := make([]*object, n)
	for i := range objs {
		objs[i] = &object{name: fmt.Sprint(i)}
	}
	return objs
}

// watch is what is known of a value that nobody here refers to any more.
type watch struct {
	gone    func() bool
	cleaned chan struct{} // closed once the runtime has cleaned up after it
}

func watchOf[T any](p *T) watch {
	w, cleaned := weak.Make(p), make(chan struct{})
	runtime.AddCleanup(p, func(c chan struct{}) { close(c) }, cleaned)
	return watch{func() bool { return w.Value() == nil }, cleaned}
}

// collected reports whether collections free what is watched. One ought to do, but spare memory
// of a queue is held weakly, and given back a little later.
func (w watch) collected() bool {
	for range 5 {
		runtime.GC()
		if w.gone() {
			<-w.cleaned
			return true
		}
	}
	return false
}

// mustBeCollected calls drop, which makes things and returns watches of them, and fails if one
// of them stays, or a goroutine.
func mustBeCollected(t *testing.T, drop func(t *testing.T) []watch) {
	t.Helper()
	running := goleak.IgnoreCurrent()
	for i, w := range drop(t) {
		if !w.collected() {
			t.Errorf("value %d is kept alive", i)
		}
	}
	goleak.VerifyNone(t, running)
}

var reachable any

// TestCollected: collected can fail.
func TestCollected(t *testing.T) {
	w := func() watch {
		o := new(object)
		reachable = o
		return watchOf(o)
	}()
	if w.collected() {
		t.Error("what is reachable has been collected")
	}
	reachable = nil
	if !w.collected() {
		t.Error("what is not reachable has not been collected")
	}
}

// workQueue is what the work queues share.
type workQueue interface {
	AddAll(...*object)
	AddWithPriority(*object, int)
	Add(*object)
	GetContext(context.Context) (*object, error)
	Get() (*object, bool)
	TryGet() (*object, bool)
	Done(*object)
	Consume(context.Context) iter.Seq[*object]
	Drain(context.Context) error
}

// delayingQueue is what those with delays have beside that.
type delayingQueue interface {
	workQueue
	AddAfter(*object, time.Duration)
	Reschedule(*object, time.Duration)
}

// workQueues make a queue of each kind.
var workQueues = map[string]func() (workQueue, watch){
	"Queue": func() (workQueue, watch) {
		q := typedqueue.NewQueue[*object](typedqueue.Options{TrackTime: true})
		return q, watchOf(q)
	},
	"zero Queue": func() (workQueue, watch) {
		q := new(typedqueue.Queue[*object])
		return q, watchOf(q)
	},
	"DelayingQueue": func() (workQueue, watch) {
		q := typedqueue.NewDelayingQueue[*object](typedqueue.Options{TrackTime: true})
		return q, watchOf(q)
	},
	"zero DelayingQueue": func() (workQueue, watch) {
		q := new(typedqueue.DelayingQueue[*object])
		return q, watchOf(q)
	},
	"RateLimitingQueue": func() (workQueue, watch) {
		q := typedqueue.NewRateLimitingQueue[*object](nil, typedqueue.Options{})
		return q, watchOf(q)
	},
}

const year = 365 * 24 * time.Hour

// cancelled is a context that is done.
func cancelled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// states bring a queue, which is empty and open, into the states in which it may be dropped.
var states = map[string]func(t *testing.T, q workQueue, objs []*object){
	"empty": func(t *testing.T, q workQueue, objs []*object) {},
	"ready": func(t *testing.T, q workQueue, objs []*object) { q.AddAll(objs...) },
	"ready with priorities": func(t *testing.T, q workQueue, objs []*object) {
		for i, o := range objs {
			q.AddWithPriority(o, i%3)
		}
	},
	"processing": process,
	"dirty and processing": func(t *testing.T, q workQueue, objs []*object) {
		process(t, q, objs)
		q.AddAll(objs...)
	},
	"used up": func(t *testing.T, q workQueue, objs []*object) {
		process(t, q, objs)
		for _, o := range objs {
			q.Done(o)
		}
	},
	"a getter gave up": func(t *testing.T, q workQueue, objs []*object) {
		blocking := newBlockingContext()
		ended := make(chan error)
		go func() {
			_, err := q.GetContext(blocking)
			ended <- err
		}()
		<-blocking.entered
		blocking.cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("GetContext = %v", err)
		}
	},
	"a drain gave up": func(t *testing.T, q workQueue, objs []*object) {
		q.AddAll(objs...)
		q.TryGet()
		if err := q.Drain(cancelled()); !errors.Is(err, context.Canceled) {
			t.Errorf("Drain = %v", err)
		}
	},
	"Consume broke off": func(t *testing.T, q workQueue, objs []*object) {
		q.AddAll(objs...)
		for range q.Consume(t.Context()) {
			break
		}
	},
	"waiting": func(t *testing.T, q workQueue, objs []*object) {
		if d, ok := q.(delayingQueue); ok {
			for i, o := range objs {
				d.AddAfter(o, year-time.Duration(i))
			}
			d.Reschedule(objs[0], time.Hour)
		}
	},
	"waiting and processing": func(t *testing.T, q workQueue, objs []*object) {
		process(t, q, objs)
		if d, ok := q.(delayingQueue); ok {
			for _, o := range objs {
				d.AddAfter(o, year)
			}
		}
	},
	"failed": func(t *testing.T, q workQueue, objs []*object) {
		if r, ok := q.(*typedqueue.RateLimitingQueue[*object]); ok {
			for _, o := range objs {
				r.AddRateLimited(o)
			}
		}
	},
	"Run ended": func(t *testing.T, q workQueue, objs []*object) {
		if r, ok := q.(*typedqueue.RateLimitingQueue[*object]); ok {
			ctx, cancel := context.WithCancel(t.Context())
			r.AddAll(objs...)
			err := r.Run(ctx, typedqueue.RunOptions[*object]{Workers: 3}, func(context.Context, *object) error {
				cancel()
				return errors.New("no")
			})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("Run = %v", err)
			}
		}
	},
}

// process makes objs processing.
func process(t *testing.T, q workQueue, objs []*object) {
	q.AddAll(objs...)
	for range objs {
		if _, ok := q.TryGet(); !ok {
			t.Fatal("not ready")
		}
	}
}

// TestDroppedWorkQueue: a work queue that nobody can reach is collected with its items, in
// whatever state, without ShutDown. What waits is no exception: only a getter could be handed
// it, and there will be none. What stays for a while is told by TestDroppedWait.
func TestDroppedWorkQueue(t *testing.T) {
	for kind, newQueue := range workQueues {
		for state, bring := range states {
			t.Run(kind+"/"+state, func(t *testing.T) {
				mustBeCollected(t, func(t *testing.T) []watch {
					q, w := newQueue()
					objs := some(20)
					bring(t, q, objs)
					return []watch{w, watchOf(objs[0]), watchOf(objs[19])}
				})
			})
		}
	}
}

// TestBlockedCallKeepsQueue: who waits in a queue keeps it alive, since all that it waits for is
// in there. It is collected once the call has ended.
func TestBlockedCallKeepsQueue(t *testing.T) {
	calls := map[string]func(ctx context.Context, q workQueue) error{
		"GetContext": func(ctx context.Context, q workQueue) error {
			_, err := q.GetContext(ctx)
			return err
		},
		"Consume": func(ctx context.Context, q workQueue) error {
			for range q.Consume(ctx) {
				panic("got something")
			}
			return ctx.Err()
		},
		"Drain": func(ctx context.Context, q workQueue) error {
			q.Add(&object{name: "held"})
			q.TryGet()
			return q.Drain(ctx)
		},
	}
	for kind, newQueue := range workQueues {
		for name, call := range calls {
			t.Run(kind+"/"+name, func(t *testing.T) {
				mustBeCollected(t, func(t *testing.T) []watch {
					blocking := newBlockingContext()
					ended := make(chan error)
					w := func() watch {
						q, w := newQueue()
						go func() { ended <- call(blocking, q) }()
						return w
					}()
					<-blocking.entered // or about to
					if w.collected() {
						t.Error("collected although somebody waits in it")
					}
					blocking.cancel()
					if err := <-ended; !errors.Is(err, context.Canceled) {
						t.Errorf("the call = %v", err)
					}
					return []watch{w}
				})
			})
		}
	}
}

// blockingContext tells when somebody begins to wait for it.
type blockingContext struct {
	context.Context
	cancel  context.CancelFunc
	entered chan struct{}
}

func newBlockingContext() *blockingContext {
	ctx, cancel := context.WithCancel(context.Background())
	return &blockingContext{ctx, cancel, make(chan struct{}, 1)}
}

func (c *blockingContext) Done() <-chan struct{} {
	select {
	case c.entered <- struct{}{}:
	default:
	}
	return c.Context.Done()
}

// line is what FIFO and DeltaFIFO share.
type line interface {
	typedqueue.ReflectorStore[*object]
	Synced() <-chan struct{}
	pop(ctx context.Context, process func() error) error
}

type fifo struct {
	*typedqueue.FIFO[string, *object]
}

func (f fifo) pop(ctx context.Context, process func() error) error {
	_, err := f.Pop(ctx, func(string, *object, bool) error { return process() })
	return err
}

type deltaFIFO struct {
	*typedqueue.DeltaFIFO[string, *object]
}

func (f deltaFIFO) pop(ctx context.Context, process func() error) error {
	_, err := f.Pop(ctx, func(string, typedqueue.Deltas[*object], bool) error { return process() })
	return err
}

// known outlives the DeltaFIFO that reads it.
var known = typedqueue.NewStore(keyOf)

var lines = map[string]func() (line, watch){
	"FIFO": func() (line, watch) {
		q := typedqueue.NewFIFO(keyOf)
		return fifo{q}, watchOf(q)
	},
	"DeltaFIFO": func() (line, watch) {
		q := typedqueue.NewDeltaFIFO(keyOf, typedqueue.DeltaFIFOOptions[string, *object]{})
		return deltaFIFO{q}, watchOf(q)
	},
	"DeltaFIFO with known objects": func() (line, watch) {
		q := typedqueue.NewDeltaFIFO(keyOf, typedqueue.DeltaFIFOOptions[string, *object]{KnownObjects: known})
		return deltaFIFO{q}, watchOf(q)
	},
}

// TestDroppedLine: FIFO and DeltaFIFO likewise. Who keeps the channel of Synced keeps no more
// than that.
func TestDroppedLine(t *testing.T) {
	states := map[string]func(t *testing.T, q line, objs []*object){
		"empty":   func(t *testing.T, q line, objs []*object) {},
		"pending": func(t *testing.T, q line, objs []*object) { must(t, q.Replace(objs)) },
		"popped": func(t *testing.T, q line, objs []*object) {
			must(t, q.Replace(objs))
			for range objs {
				must(t, q.pop(t.Context(), func() error { return nil }))
			}
		},
		"requeued": func(t *testing.T, q line, objs []*object) {
			must(t, q.Replace(objs))
			again := typedqueue.Requeue(errors.New("no"))
			if err := q.pop(t.Context(), func() error { return again }); err != again {
				t.Errorf("Pop = %v", err)
			}
		},
		"given up": func(t *testing.T, q line, objs []*object) {
			blocking := newBlockingContext()
			ended := make(chan error)
			go func() { ended <- q.pop(blocking, func() error { return nil }) }()
			<-blocking.entered
			blocking.cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("Pop = %v", err)
			}
		},
	}
	for kind, newLine := range lines {
		for state, bring := range states {
			t.Run(kind+"/"+state, func(t *testing.T) {
				var synced <-chan struct{}
				mustBeCollected(t, func(t *testing.T) []watch {
					q, w := newLine()
					synced = q.Synced()
					objs := some(20)
					bring(t, q, objs)
					return []watch{w, watchOf(objs[0]), watchOf(objs[19])}
				})
				runtime.KeepAlive(synced)
			})
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newIndex(t *testing.T, s *typedqueue.Store[string, *object]) *typedqueue.Index[string, string, *object] {
	x, err := typedqueue.NewIndex(s, func(o *object) ([]string, error) { return []string{o.name[:1]}, nil })
	must(t, err)
	return x
}

// TestDroppedStore: a Store and its Index refer to each other, and go together.
func TestDroppedStore(t *testing.T) {
	for _, closed := range []bool{false, true} {
		t.Run(fmt.Sprintf("closed=%v", closed), func(t *testing.T) {
			mustBeCollected(t, func(t *testing.T) []watch {
				s := typedqueue.NewStore(keyOf)
				objs := some(20)
				must(t, s.Replace(objs))
				x := newIndex(t, s)
				if closed {
					x.Close()
				}
				return []watch{watchOf(s), watchOf(x), watchOf(objs[0])}
			})
		})
	}
}

// TestDroppedIndex: a Store keeps its indexes until they are closed, since it cannot know that
// nobody will ask; then it forgets them.
func TestDroppedIndex(t *testing.T) {
	s := typedqueue.NewStore(keyOf)
	must(t, s.Replace(some(20)))
	var closeLater func()
	mustBeCollected(t, func(t *testing.T) []watch {
		x := newIndex(t, s)
		w := watchOf(x)
		p := weak.Make(x)
		closeLater = func() { p.Value().Close() }
		x = nil
		if w.collected() {
			t.Fatal("an open Index has been collected, though its Store has not")
		}
		closeLater()
		return []watch{w}
	})
	if s.Len() != 20 { // and s has been alive all the time
		t.Error("the Store has changed")
	}
}
