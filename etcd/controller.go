package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"example.com/typedqueue"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Prefixes say where in etcd things lie. None may begin with another.
type Prefixes struct {
	// Source is where the objects are. The rest of an object's key is the key of its Task.
	Source string

	// Effects is where reconcile writes, under the same key, what it has made of an object.
	// Controllers watch it for what must not be there: a replica that dies before it has
	// carried out a deletion leaves nothing else by which another could know of it. (So to
	// carry out a deletion is to delete the effect.) If it is empty that is not known, and
	// Task.Effect stays zero.
	Effects string

	// Members is where the replicas say that they are there. All replicas of one controller,
	// and no others, use the same one.
	Members string
}

// Options are the optional parts of a Controller. The zero value is the default.
type Options struct {
	// Name is the replica's name, by which keys are placed: one that comes back under its
	// name, soon or late, is given the keys that it had. It must be its own: while another
	// member has it, Run waits. If it is empty each stay among the members has a new one.
	Name string

	// TTL is how long after the death of a replica the others take its keys, and how long
	// etcd may be out of reach before a replica stops (or somewhat less, as a lease is renewed
	// but now and then); 0 means 15 s. etcd counts in seconds: a fraction counts as a whole
	// one, and less than 2 s as 2 s.
	TTL time.Duration

	// Run are the options of the workers. An object that cannot be decoded goes to GiveUp.
	Run typedqueue.RunOptions[string]

	// Limiter says how long keys wait that failed; nil means the default one of a
	// RateLimitingQueue.
	Limiter typedqueue.RateLimiter[string]

	// Queue are the options of the queue.
	Queue typedqueue.Options

	// OnMembers, if not nil, is told of each change of the members, and of how many of the
	// keys that there are this replica has gained and lost by it. Changes that come quickly
	// may be told of as one. After the replica itself has left, members is nil. It is
	// called by one goroutine, which should not wait long: it finds the keys to work on.
	OnMembers func(members []string, gained, lost int)

	// OnError, if not nil, is told of what Run gets over by itself, such as a lost
	// connection. It may be called by several goroutines at once, which wait for it.
	OnError func(error)
}

// Controller brings the keys of a prefix in line, together with all other replicas of it. Each
// watches all objects, and works on those keys that belong to it: at most one replica works on
// a key at a time, as long as leases are kept. A Controller is made by NewController; its
// methods may be called from any goroutine.
type Controller[V any] struct {
	prefixes  Prefixes
	opts      Options
	reconcile func(context.Context, *Task[V]) error
	objects   *mirror[V]
	effects   *mirror[[]byte] // nil if they are not watched
	queue     *typedqueue.RateLimitingQueue[string]
	owner     *owner
	moved     chan struct{} // holds a wake-up of who looks which keys came and went
	running   atomic.Bool
}

// NewController returns a Controller of the objects below prefixes.Source, as decode makes them
// of their values (see NewSource). It calls reconcile for each that belongs to this replica, at
// first and after each change. A nil client, decode or reconcile, a bad prefix and a negative
// option panic.
//
// The client's DialKeepAliveTime and DialKeepAliveTimeout should be set, well below TTL, or a
// connection that has died without a word is not noticed.
func NewController[V any](
	client *clientv3.Client, prefixes Prefixes, decode func(value []byte) (V, error),
	reconcile func(ctx context.Context, task *Task[V]) error, opts Options,
) *Controller[V] {
	if reconcile == nil {
		panic("typedqueue: nil reconcile")
	}
	if opts.TTL < 0 || opts.Run.Workers < 0 || opts.Run.MaxAttempts < 0 {
		panic(fmt.Sprintf("typedqueue: negative Options: TTL %v, Run.Workers %d, Run.MaxAttempts %d",
			opts.TTL, opts.Run.Workers, opts.Run.MaxAttempts))
	}
	if opts.TTL == 0 {
		opts.TTL = 15 * time.Second
	}
	opts.TTL = max(2*time.Second, (opts.TTL + time.Second - 1).Truncate(time.Second))
	prefixes.must()
	c := &Controller[V]{
		prefixes: prefixes, opts: opts, reconcile: reconcile,
		queue: typedqueue.NewRateLimitingQueue(opts.Limiter, opts.Queue),
		moved: make(chan struct{}, 1),
	}
	c.objects = newMirror(NewSource(client, prefixes.Source, decode, SourceOptions{OnError: opts.OnError}), c.changed)
	if prefixes.Effects != "" {
		same := func(value []byte) ([]byte, error) { return value, nil }
		c.effects = newMirror(NewSource(client, prefixes.Effects, same, SourceOptions{OnError: opts.OnError}), c.stray)
	}
	c.owner = &owner{
		client: client, prefix: prefixes.Members, name: opts.Name, ttl: opts.TTL, onError: opts.OnError,
		onMoved: c.wakeMoved, retry: c.queue.AddAll, held: map[string]bool{},
	}
	return c
}

func (p Prefixes) must() {
	mustPrefix("source", p.Source)
	mustPrefix("members", p.Members)
	all := []string{p.Source, p.Members}
	if p.Effects != "" {
		all = append(all, p.Effects)
	}
	slices.Sort(all) // so that what begins with another comes right after it, or after such
	for i, prefix := range all[1:] {
		if strings.HasPrefix(prefix, all[i]) {
			panic(fmt.Sprintf("typedqueue: prefix %q begins with %q", prefix, all[i]))
		}
	}
}

// Objects returns the Store of all objects, of this replica's keys and of others. It is to be
// read only.
func (c *Controller[V]) Objects() *typedqueue.Store[string, Object[V]] { return c.objects.store }

// Queue returns the queue of this replica's keys. To Add a key makes a Task of it, if it
// belongs to this replica. To shut it down ends Run, for good.
func (c *Controller[V]) Queue() *typedqueue.RateLimitingQueue[string] { return c.queue }

// Members returns the names of the replicas that are there, in order, as far as this one has
// seen; nil if it is not among them itself.
func (c *Controller[V]) Members() []string { return slices.Clone(c.owner.moment().members) }

// Owns reports whether key belongs to this replica, as far as it has seen.
func (c *Controller[V]) Owns(key string) bool { return c.owner.moment().owns(key) }

// Run works until ctx is done, and returns context.Cause(ctx) then; or until its Queue is shut
// down and empty, and returns typedqueue.ErrShutDown. It mirrors the objects and effects, joins
// the members, and reconciles; at its end it waits for the tasks that are running, and leaves the
// members, so that others go on at once. It starts no goroutine that outlives it. With etcd out of
// reach it goes on trying, and may take a TTL to end.
//
// What reconcile returns means what it means to typedqueue.RateLimitingQueue.Run, but for an
// ErrFenced or ErrStale, which end the task without a failure: somebody else, or another task,
// will see to the key. The context of a task ends, with ErrFenced as its cause, when the lease
// does. A nil ctx, and calling Run while it runs, panic; later it may be called again.
func (c *Controller[V]) Run(ctx context.Context) error {
	if ctx == nil {
		panic("typedqueue: nil context")
	}
	if !c.running.CompareAndSwap(false, true) {
		panic("typedqueue: Run of a Controller that runs")
	}
	defer c.running.Store(false)
	run, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	c.objects.begin()
	if c.effects != nil {
		c.effects.begin()
	}
	var feeds sync.WaitGroup
	defer feeds.Wait()
	feeds.Go(func() { stop(c.objects.run(run)) })
	feeds.Go(func() { stop(c.runEffects(run)) })
	if !c.synced(run) {
		return context.Cause(run)
	}
	stop(c.work(run))
	return context.Cause(run)
}

// synced waits until all that was there when run began is in the Stores. It reports whether
// that has come true before ctx is done.
func (c *Controller[V]) synced(ctx context.Context) bool {
	waits := []<-chan struct{}{c.objects.fifo.Synced()}
	if c.effects != nil {
		waits = append(waits, c.effects.fifo.Synced())
	}
	for _, synced := range waits {
		select {
		case <-synced:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

func (c *Controller[V]) runEffects(ctx context.Context) error {
	if c.effects == nil {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return c.effects.run(ctx)
}

// work joins the members, reconciles until ctx is done or the queue has been shut down, and leaves
// them. It returns why.
func (c *Controller[V]) work(ctx context.Context) error {
	among, leave := context.WithCancel(context.WithoutCancel(ctx))
	left := make(chan struct{})
	var parts sync.WaitGroup
	parts.Go(func() {
		defer close(left)
		_ = c.owner.run(among) // among's error
	})
	parts.Go(func() { c.place(left) })
	err := c.queue.Run(ctx, c.opts.Run, c.one)
	leave()
	parts.Wait()
	return cmp.Or(err, typedqueue.ErrShutDown)
}

func (c *Controller[V]) wakeMoved() {
	select {
	case c.moved <- struct{}{}:
	default:
	}
}

// place brings the queue in line with what belongs to this replica, until it has left.
func (c *Controller[V]) place(left <-chan struct{}) {
	var last moment
	for {
		select {
		case <-c.moved:
			last = c.placeAll(last)
		case <-left:
			c.placeAll(last)
			return
		}
	}
}

// placeAll adds the keys that this replica has gained since the moment last, takes back those
// that it has lost, and returns the moment after which it has done so. What changes meanwhile is
// seen by changed, or by the next placeAll.
func (c *Controller[V]) placeAll(last moment) moment {
	now := c.owner.moment()
	if now.stay == last.stay && now.era == last.era {
		return now
	}
	var gained []string
	lost := 0
	for key := range c.keys {
		was, is := last.owns(key), now.owns(key)
		switch {
		case is && (!was || now.stay != last.stay): // a stay begins with nothing
			gained = append(gained, key)
		case was && !is:
			lost++
			c.queue.Cancel(key)
			c.queue.Forget(key)
		}
	}
	c.queue.AddAll(gained...)
	if c.opts.OnMembers != nil {
		c.opts.OnMembers(slices.Clone(now.members), len(gained), lost)
	}
	return now
}

// keys yields each key that has an object or an effect, once.
func (c *Controller[V]) keys(yield func(key string) bool) {
	for _, key := range c.objects.store.ListKeys() {
		if !yield(key) {
			return
		}
	}
	if c.effects == nil {
		return
	}
	for _, key := range c.effects.store.ListKeys() {
		if _, listed := c.objects.store.GetByKey(key); !listed && !yield(key) {
			return
		}
	}
}

// changed is called after the Store has seen a change of an object.
func (c *Controller[V]) changed(key string) {
	if c.Owns(key) {
		c.queue.Add(key)
	}
}

// stray is called after the Store has seen a change of an effect. That is news where there is no
// object, and where the effect is older than the object, or gone: a task of that object may have
// seen an effect that was older still, and taken it for good. Else each effect would call for
// another; what Commit writes is younger than its object.
func (c *Controller[V]) stray(key string) {
	object, _ := c.objects.store.GetByKey(key)
	effect, _ := c.effects.store.GetByKey(key)
	if effect.Revision < object.Revision || object.Revision == 0 && effect.Revision != 0 {
		c.changed(key)
	}
}

// one reconciles key, if this replica may.
func (c *Controller[V]) one(ctx context.Context, key string) error {
	s, epoch, v := c.owner.take(key)
	if v != granted {
		return nil // it comes back when there is a reason
	}
	defer c.owner.release(key)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.ctx, func() { cancel(ErrFenced) })()
	t := c.task(key, s, epoch)
	defer t.over.Store(true)
	if t.Object.Err != nil {
		return typedqueue.Terminal(t.Object.Err)
	}
	err := c.reconcile(ctx, t)
	if errors.Is(err, ErrFenced) || errors.Is(err, ErrStale) {
		return nil
	}
	return err
}

func (c *Controller[V]) task(key string, s *stay, epoch int64) *Task[V] {
	t := &Task[V]{
		Key: key, Member: s.name, Lease: s.session.Lease(), Epoch: epoch,
		client: c.owner.client, member: s.key, created: s.created,
		source: c.prefixes.Source + key, effectKey: c.prefixes.Effects + key,
	}
	t.Object, _ = c.objects.store.GetByKey(key)
	if c.effects != nil {
		t.Effect, _ = c.effects.store.GetByKey(key)
	}
	return t
}

// mirror is a Store that follows a prefix.
type mirror[V any] struct {
	source  *Source[V]
	fifo    *typedqueue.DeltaFIFO[string, Object[V]] // of one Run
	store   *typedqueue.Store[string, Object[V]]
	changed func(key string) // called after each change of the Store
}

func newMirror[V any](source *Source[V], changed func(key string)) *mirror[V] {
	return &mirror[V]{source: source, store: typedqueue.NewStore(KeyOf[V]), changed: changed}
}

// begin makes the DeltaFIFO of a Run. An earlier one is synced already, and would let tasks see
// what was there when its Run ended.
func (m *mirror[V]) begin() {
	m.fifo = typedqueue.NewDeltaFIFO(KeyOf[V], typedqueue.DeltaFIFOOptions[string, Object[V]]{KnownObjects: m.store})
}

// run follows the prefix until ctx is done, and returns context.Cause(ctx) then.
func (m *mirror[V]) run(ctx context.Context) error {
	var feed sync.WaitGroup
	defer feed.Wait()
	feed.Go(func() { _ = m.source.Run(ctx, m.fifo) }) // ctx's error, as here
	for {
		if _, err := m.fifo.Pop(ctx, m.apply); err != nil {
			return context.Cause(ctx)
		}
	}
}

// apply brings the Store up to date. It cannot fail: the keys are those of the Store.
func (m *mirror[V]) apply(key string, deltas typedqueue.Deltas[Object[V]], initial bool) error {
	return typedqueue.Apply(m.store, key, deltas, initial, typedqueue.Handler[string, Object[V]]{
		OnAdd:    func(key string, _ Object[V], _ bool) { m.changed(key) },
		OnUpdate: m.updated,
		OnDelete: func(key string, _ Object[V], _ bool) { m.changed(key) },
	})
}

// updated passes on what is new; a list repeats what is not.
func (m *mirror[V]) updated(key string, old, obj Object[V]) {
	if old.Revision != obj.Revision {
		m.changed(key)
	}
}
