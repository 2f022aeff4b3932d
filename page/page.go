package page

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
	"weak"

	"example.com/typedqueue"
)

// ErrTaken is what Watch and WatchFIFO return, wrapped, if the name belongs to another queue.
var ErrTaken = errors.New("typedqueue: name is taken")

// Options are the settings of a Page. The zero value is the default.
type Options struct {
	Title string        // the heading; "Queues" if empty
	Stuck time.Duration // what is processed for so long is stuck; a minute if 0
}

// Page is an http.Handler that shows queues. It is made by New; the zero Page is not usable. All
// methods may be called from any goroutine.
type Page struct {
	opts  Options
	start time.Time // from which samples count their time

	mu      sync.Mutex        // guards all below, and the entries' samples
	entries map[string]*Entry // by name; that of a collected queue stays until somebody looks
	latest  int               // the latest Entry's id
}

// New returns a Page without queues. A negative Options.Stuck panics.
func New(opts Options) *Page {
	if opts.Stuck < 0 {
		panic("typedqueue: negative Stuck")
	}
	opts.Title = cmp.Or(opts.Title, "Queues")
	opts.Stuck = cmp.Or(opts.Stuck, time.Minute)
	return &Page{opts: opts, start: time.Now(), entries: make(map[string]*Entry)}
}

// Entry is a queue's place on a Page. It is made by Watch or WatchFIFO; the zero Entry is not
// usable. All methods may be called from any goroutine.
type Entry struct {
	page    *Page
	name    string
	id      int            // no other entry of the page has it
	queue   func() *source // returns nil once the queue has been collected
	samples []sample       // oldest first; see keep
}

// source is a queue of any type. It keeps the queue alive.
type source struct {
	stats    func() typedqueue.Stats
	shutDown func() bool
	contents func() contents
}

// contents are a queue's keys at one moment, detached from it.
type contents struct {
	processing, ready, waiting line
}

// line is a list of keys of some type, each with an age or a delay if it has one.
type line struct {
	n  int
	at func(i int) (key any, d time.Duration) // nil if the queue does not tell, or has no such line
}

// Watch shows queue on p under name: a typedqueue.Queue, DelayingQueue or RateLimitingQueue, or a
// type of the caller's around one. The queue is not kept alive, so that it disappears from the
// page when nobody else has this very pointer any more.
//
// A name belongs to one queue until that is collected, removed or shut down; until then Watch
// returns an error that matches ErrTaken. A name that is empty, or longer than 256 bytes, is an
// error too. A nil page or queue panics.
//
// (It is no method of Page because Go's methods have no type parameters, and a weak pointer needs
// the type. K and T are inferred.)
func Watch[K comparable, T any, Q interface {
	*T
	Stats() typedqueue.Stats
	Snapshot() typedqueue.Snapshot[K]
	ShuttingDown() bool
}](p *Page, name string, queue Q) (*Entry, error) {
	return watch(p, name, (*T)(queue), func(q *T) *source {
		return &source{Q(q).Stats, Q(q).ShuttingDown, func() contents { return ofSnapshot(Q(q).Snapshot()) }}
	})
}

// WatchFIFO is Watch for a typedqueue.FIFO or DeltaFIFO, which is shut down once it is closed.
func WatchFIFO[K comparable, T any, Q interface {
	*T
	Stats() typedqueue.Stats
	ListKeys() []K
	IsClosed() bool
}](p *Page, name string, queue Q) (*Entry, error) {
	return watch(p, name, (*T)(queue), func(q *T) *source {
		return &source{Q(q).Stats, Q(q).IsClosed, func() contents { return ofKeys(Q(q).ListKeys()) }}
	})
}

func ofSnapshot[K comparable](s typedqueue.Snapshot[K]) contents {
	return contents{
		processing: line{len(s.Processing), func(i int) (any, time.Duration) { return s.Processing[i].Item, s.Processing[i].For }},
		ready:      line{len(s.Ready), func(i int) (any, time.Duration) { return s.Ready[i], 0 }},
		waiting:    line{len(s.Waiting), func(i int) (any, time.Duration) { return s.Waiting[i].Item, s.Waiting[i].In }},
	}
}

func ofKeys[K comparable](keys []K) contents {
	return contents{ready: line{len(keys), func(i int) (any, time.Duration) { return keys[i], 0 }}}
}

func watch[T any](p *Page, name string, queue *T, of func(*T) *source) (*Entry, error) {
	if p == nil {
		panic("typedqueue: nil page")
	}
	if queue == nil {
		panic("typedqueue: nil queue")
	}
	w := weak.Make(queue)
	return p.enter(name, func() *source {
		if q := w.Value(); q != nil {
			return of(q)
		}
		return nil
	})
}

// enter gives name to a queue.
func (p *Page) enter(name string, queue func() *source) (*Entry, error) {
	if name == "" || len(name) > maxText {
		return nil, fmt.Errorf("typedqueue: the name of a queue must have 1 to %d bytes, not %d", maxText, len(name))
	}
	p.mu.Lock()
	old := p.entries[name]
	p.mu.Unlock()
	if old != nil && !old.over() {
		return nil, fmt.Errorf("%w: %q", ErrTaken, name)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := p.entries[name]; now != nil && now != old { // somebody was quicker
		return nil, fmt.Errorf("%w: %q", ErrTaken, name)
	}
	p.latest++
	e := &Entry{page: p, name: name, id: p.latest, queue: queue}
	p.entries[name] = e
	return e, nil
}

// over reports whether the queue is gone or has been shut down. The page's mu must not be held:
// the queue may wait for its own.
func (e *Entry) over() bool {
	q := e.queue()
	return q == nil || q.shutDown()
}

// Remove takes the queue off the page at once, and frees its name. It does nothing to the queue,
// nor to a later one of the same name, and may be called again.
func (e *Entry) Remove() {
	p := e.page
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.entries[e.name] == e {
		delete(p.entries, e.name)
	}
}

// live is an entry whose queue is there, and is kept alive by this.
type live struct {
	*Entry
	queue *source
}

// live returns all entries with a queue, by name, and forgets the others.
func (p *Page) live() []live {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]live, 0, len(p.entries))
	for name, e := range p.entries {
		if q := e.queue(); q != nil {
			all = append(all, live{e, q})
		} else {
			delete(p.entries, name)
		}
	}
	slices.SortFunc(all, func(a, b live) int { return cmp.Compare(a.name, b.name) })
	return all
}
