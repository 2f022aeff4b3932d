package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"example.com/typedqueue"
)

// A mirror keeps dst like src. This file is the pipeline, from the reflector to the
// workers; what one worker does for one path is in sync.go.
type mirror struct {
	src *tree
	dst *os.Root

	reflector *reflector
	fifo      *typedqueue.DeltaFIFO[string, File]     // what has changed, in order
	store     *typedqueue.Store[string, File]         // what dst must be: the desired state
	byDir     *typedqueue.Index[string, string, File] // store by directory
	queue     *typedqueue.RateLimitingQueue[string]   // the paths to bring in line

	opts  options
	res   time.Duration // how finely dst keeps times
	temps string        // what the names of this process's temporary files start with
	logf  func(format string, args ...any)

	ledger          // what the workers have come to
	left   []string // what drain had no time for

	temp                         atomic.Uint64 // number of the latest temporary file
	live                         sync.Map      // the names of those that are in use
	copies, bytes, made, removed atomic.Int64
	compared                     atomic.Int64
}

type options struct {
	once                  bool
	http                  string // where to show the queues, if anywhere
	workers               int
	resync, relist, drain time.Duration
}

// attempts is how often -once tries a path before it reports it.
const attempts = 8

func newMirror(src *tree, srcPath string, dst *os.Root, opts options, logf func(string, ...any)) (*mirror, error) {
	res, err := resolution(dst)
	if err != nil {
		return nil, err
	}
	store := typedqueue.NewStore(pathOf)
	limiter := typedqueue.NewItemExponentialFailureRateLimiter[string](10*time.Millisecond, 30*time.Second)
	m := &mirror{
		src: src, dst: dst, store: store, byDir: newIndex(store),
		fifo: typedqueue.NewDeltaFIFO(pathOf, typedqueue.DeltaFIFOOptions[string, File]{
			KnownObjects: store,
			Merge:        newest,
		}),
		queue:  typedqueue.NewRateLimitingQueue(limiter, typedqueue.Options{TrackTime: true}),
		opts:   opts,
		res:    res,
		temps:  fmt.Sprintf("%s.%016x.", marker, rand.Uint64()),
		logf:   logf,
		ledger: ledger{synced: map[string]bool{}, failing: map[string]error{}, doubts: map[string]bool{}},
	}
	m.reflector = newReflector(src, srcPath, m.fifo)
	m.reflector.logf = logf
	m.reflector.relist = opts.relist
	return m, nil
}

func newIndex(s *typedqueue.Store[string, File]) *typedqueue.Index[string, string, File] {
	index, err := typedqueue.NewIndex(s, parentOf)
	if err != nil {
		panic(err) // parentOf never fails
	}
	return index
}

// newest keeps one pending delta per path: of a path's past, a mirror needs nothing.
func newest(pending typedqueue.Deltas[File], next typedqueue.Delta[File]) typedqueue.Deltas[File] {
	return append(pending[:0], next)
}

// run mirrors: once, or until ctx is done. Either way it then drains, so that what has
// begun is finished. It returns in what the trees still differ, if it has compared them.
func (m *mirror) run(ctx context.Context) (diffs []difference, err error) {
	working, abort := context.WithCancel(context.WithoutCancel(ctx))
	var stages sync.WaitGroup
	stages.Go(func() { m.consume(working) })
	stages.Go(func() { m.work(working) })

	if m.opts.once {
		diffs, err = m.once(ctx)
	} else {
		m.follow(ctx)
	}
	err = errors.Join(err, m.drain())
	abort()
	stages.Wait()
	return diffs, err
}

// follow runs the reflector, and from time to time has every path looked at again, on both
// sides: no event tells of damage to dst, and not every change of src has one.
func (m *mirror) follow(ctx context.Context) {
	var resyncs sync.WaitGroup
	resyncs.Go(func() {
		tick := time.NewTicker(m.opts.resync)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				m.reflector.looks.Add(".")
				_ = m.fifo.Resync() // fails when closed, which it is not yet
			}
		}
	})
	m.reflector.run(ctx)
	resyncs.Wait()
}

// rounds is how often -once starts over because the source does not keep still.
const rounds = 3

// once lists, waits until all is done, and compares the trees.
func (m *mirror) once(ctx context.Context) ([]difference, error) {
	if _, err := m.reflector.listAll(ctx); err != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("cannot list the source: %s", reason(err))
	}
	for round := 1; ; round++ {
		if err := m.wait(ctx, m.idle); err != nil {
			return nil, err
		}
		diffs, err := compare(ctx, m.src, m.dst, m.res, func() { m.compared.Add(1) })
		if err != nil || len(diffs) == 0 || round == rounds {
			return diffs, err
		}
		changed, err := m.reflector.listAll(ctx)
		if err != nil {
			return diffs, err
		}
		if wrong := m.doubtContents(diffs); !changed && !wrong {
			return diffs, nil
		}
		m.logf("the source has changed meanwhile: starting over (%d of %d)", round+1, rounds)
	}
}

// doubtContents queues the copies whose content is wrong although size and time are
// right, and reports whether there were any.
func (m *mirror) doubtContents(diffs []difference) (any bool) {
	for _, d := range diffs {
		if d.content {
			m.changed(d.path, true)
			any = true
		}
	}
	return any
}

// consume brings the Store up to date with what the reflector has told, and queues each
// path of which it is told, until the DeltaFIFO is closed and empty.
func (m *mirror) consume(ctx context.Context) {
	// A copy of the right size and time is good, unless this process has seen how
	// another file took the place of the one that was copied.
	queued := typedqueue.Handler[string, File]{
		OnAdd: func(path string, _ File, isInInitialList bool) {
			m.changed(path, !isInInitialList)
		},
		OnUpdate: func(path string, old, new File) {
			if old.equal(new) { // a Resync, or listed again: look, it is in sync meanwhile
				m.nudge(path)
				return
			}
			m.changed(path, old.replacedBy(new))
		},
		OnDelete: func(path string, _ File, _ bool) {
			m.changed(path, false)
		},
	}
	for {
		_, err := m.fifo.Pop(ctx, func(path string, deltas typedqueue.Deltas[File], initial bool) error {
			if err := typedqueue.Apply(m.store, path, deltas, initial, queued); err != nil {
				return typedqueue.Requeue(err) // it cannot fail here; where it can, this loses nothing
			}
			return nil
		})
		if errors.Is(err, typedqueue.ErrClosed) || ctx.Err() != nil {
			return
		}
	}
}

func (m *mirror) changed(path string, doubtful bool) {
	m.pending(path, doubtful)
	m.queue.Add(path)
}

// work runs the workers. They start when the Store holds the whole first list: before,
// everything that is not in it yet would look like something to delete.
func (m *mirror) work(ctx context.Context) {
	select {
	case <-m.fifo.Synced():
	case <-ctx.Done():
		return
	}
	opts := typedqueue.RunOptions[string]{
		Workers: m.opts.workers,
		GiveUp: func(path string, err error) {
			if !errors.Is(err, typedqueue.ErrShutDown) {
				m.logf("%q: %s; giving up", path, reason(err))
			}
		},
	}
	if m.opts.once {
		opts.MaxAttempts = attempts
	}
	_ = m.queue.Run(ctx, opts, m.reconcile) // ctx's error
}

// reconcile is what the workers run. Its error decides when the path comes again.
func (m *mirror) reconcile(ctx context.Context, path string) error {
	err := m.sync(ctx, path)
	if ctx.Err() != nil {
		return err
	}
	_, stored := m.store.GetByKey(path)
	failing := m.note(path, stored, err)
	if failing && m.queue.NumRequeues(path) == 2 { // once per trouble, and not for one that passes
		m.logf("%q: %s; trying again", path, reason(err))
	}
	return err
}

// idle reports whether all that the reflector has told is done, retries included. The
// order matters: what leaves the DeltaFIFO is in the queue before.
func (m *mirror) idle() bool {
	f := m.fifo.Stats()
	q := m.queue.Stats()
	return f.Ready+f.Processing+q.Ready+q.Processing+q.Waiting == 0
}

// settled is idle, but for paths that wait because they have failed.
func (m *mirror) settled() bool {
	f := m.fifo.Stats()
	q := m.queue.Snapshot()
	return f.Ready+f.Processing+len(q.Ready)+len(q.Processing) == 0 &&
		!slices.ContainsFunc(q.Waiting, func(w typedqueue.Waiting[string]) bool { return m.queue.NumRequeues(w.Item) == 0 })
}

// wait polls: a queue's figures are there for whoever looks, and nobody is called.
func (m *mirror) wait(ctx context.Context, done func() bool) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
	return nil
}

// drain ends the pipeline from the front: no more deltas, then no more paths. What waits
// for its time is waited for, but what waits because it has failed is not.
func (m *mirror) drain() error {
	ctx, cancel := context.WithTimeout(context.Background(), m.opts.drain)
	defer cancel()
	m.fifo.Close()
	_ = m.wait(ctx, m.settled) // when the time is up, Drain says so
	err := m.queue.Drain(ctx)
	if err != nil {
		left := m.queue.Snapshot()
		for _, p := range left.Processing {
			m.left = append(m.left, p.Item)
		}
		m.left = append(m.left, left.Ready...)
	}
	return err
}

// A ledger says what has become of each path.
type ledger struct {
	mu      sync.Mutex // guards the maps
	synced  map[string]bool
	failing map[string]error
	doubts  map[string]bool // files to be copied even if size and time are right
}

// pending notes that there is something to do for path.
func (l *ledger) pending(path string, doubtful bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.synced, path)
	if doubtful {
		l.doubts[path] = true
	}
}

// note notes how a worker has left path, which is stored or is to be deleted, and reports
// whether that is a failure.
func (l *ledger) note(path string, stored bool, err error) (failing bool) {
	var later *typedqueue.RequeueAfterError
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.synced, path)
	delete(l.failing, path)
	switch {
	case err == nil && stored:
		l.synced[path] = true
	case err == nil:
		delete(l.doubts, path)
	case !errors.As(err, &later):
		l.failing[path] = err
		return true
	}
	return false
}

func (l *ledger) doubted(path string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.doubts[path]
}

func (l *ledger) clearDoubt(path string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.doubts, path)
}

// inSync returns how many paths are as they should be.
func (l *ledger) inSync() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.synced)
}

// failed returns the paths that are not, because of an error.
func (l *ledger) failed() map[string]error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.failing)
}
