package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"example.com/typedqueue"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Object is a key of etcd and its value, as of one revision.
type Object[V any] struct {
	Key      string // without the prefix of the Source
	Value    V      // what decode made of the value; the zero value if Err is not nil
	Revision int64  // etcd's ModRevision. 0 in the zero Object alone: there is no such key
	Err      error  // why the value could not be decoded, or is not known
}

// KeyOf returns the key of obj; it is a typedqueue.KeyFunc.
func KeyOf[V any](obj Object[V]) (string, error) { return obj.Key, nil }

// ErrUnknownValue is the Err of an object that is passed to Delete when etcd no longer has its
// last value.
var ErrUnknownValue = errors.New("typedqueue: etcd has compacted the value of a deleted key")

// SourceOptions are the optional parts of a Source. The zero value is the default.
type SourceOptions struct {
	// PageSize is how many keys one request lists; 0 means 1000.
	PageSize int

	// OnError, if not nil, is told why Run lists or watches anew. It is called by Run, which
	// waits for it.
	OnError func(error)
}

// Source lists and watches the keys below a prefix. A Source is made by NewSource, never
// changes, and may be used by any number of goroutines.
type Source[V any] struct {
	client *clientv3.Client
	prefix string
	decode func(value []byte) (V, error)
	opts   SourceOptions
}

// NewSource returns a Source of the keys that begin with prefix. decode makes objects of their
// values. It runs in the goroutine of Run; it may keep the slice, but not change it. An empty
// prefix, a nil client or decode, and a negative PageSize panic.
func NewSource[V any](client *clientv3.Client, prefix string, decode func(value []byte) (V, error), opts SourceOptions) *Source[V] {
	mustClient(client)
	mustPrefix("source", prefix)
	if decode == nil {
		panic("typedqueue: nil decode")
	}
	if opts.PageSize < 0 {
		panic(fmt.Sprintf("typedqueue: negative PageSize: %d", opts.PageSize))
	}
	if opts.PageSize == 0 {
		opts.PageSize = 1000
	}
	return &Source[V]{client, prefix, decode, opts}
}

func mustClient(client *clientv3.Client) {
	if client == nil {
		panic("typedqueue: nil client")
	}
}

func mustPrefix(of, prefix string) {
	if prefix == "" {
		panic("typedqueue: no " + of + " prefix")
	}
}

// Run brings store up to date until ctx is done, and returns context.Cause(ctx) then; or until
// store is closed, and returns typedqueue.ErrClosed. It starts no goroutine that outlives it. A nil
// ctx or store panics.
//
// It lists the prefix at one revision, in pages, and passes that to Replace; then it watches
// from the next revision on, and passes each change to Add, Update or Delete, oldest first. A
// watch that breaks is taken up again after the last revision seen. Where etcd has compacted
// what comes next, or store refuses an object, Run lists again: what was deleted unseen is then
// missing in the list, and a DeltaFIFO with KnownObjects finds out. The first page is
// read from the quorum, so a list is never older than what has been passed on before.
// Between attempts Run waits, 50 ms doubling up to 30 s and up to as much again by chance.
//
// A value that cannot be decoded is an object with Err, not a deletion, and stops no other. What
// Delete is given is the object before its deletion, with the revision that it had; where etcd
// does not know that any more, an object with ErrUnknownValue and the revision of the deletion.
func (s *Source[V]) Run(ctx context.Context, store typedqueue.ReflectorStore[Object[V]]) error {
	if ctx == nil || store == nil {
		panic("typedqueue: nil context or store")
	}
	pause := newPauses()
	for {
		err := s.listAndWatch(ctx, store, pause)
		if errors.Is(err, typedqueue.ErrClosed) {
			return err
		}
		if !pause.after(ctx, err, s.opts.OnError) {
			return context.Cause(ctx)
		}
	}
}

func (s *Source[V]) listAndWatch(ctx context.Context, store typedqueue.ReflectorStore[Object[V]], pause *pauses) error {
	objs, revision, err := s.list(ctx)
	if err != nil {
		return err
	}
	if err := store.Replace(objs); err != nil {
		return err
	}
	w := follower{s.client, s.prefix, revision, pause, s.opts.OnError}
	return w.follow(ctx, func(events []*clientv3.Event) error {
		for _, e := range events {
			if err := s.pass(e, store); err != nil {
				return err
			}
		}
		return nil
	})
}

// list returns all objects as of one revision.
func (s *Source[V]) list(ctx context.Context) (objs []Object[V], revision int64, err error) {
	end := clientv3.GetPrefixRangeEnd(s.prefix)
	for from := s.prefix; ; {
		page, err := s.client.Get(ctx, from, clientv3.WithRange(end),
			clientv3.WithLimit(int64(s.opts.PageSize)), clientv3.WithRev(revision)) // 0: the latest
		if err != nil {
			return nil, 0, fmt.Errorf("typedqueue: list %q: %w", s.prefix, err)
		}
		if revision == 0 {
			revision = page.Header.Revision
		}
		for _, kv := range page.Kvs {
			objs = append(objs, s.object(kv))
		}
		if !page.More {
			return objs, revision, nil
		}
		from = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
	}
}

func (s *Source[V]) object(kv *mvccpb.KeyValue) Object[V] {
	obj := Object[V]{Key: strings.TrimPrefix(string(kv.Key), s.prefix), Revision: kv.ModRevision}
	value, err := s.decode(kv.Value)
	if err != nil {
		obj.Err = fmt.Errorf("typedqueue: decode %q: %w", kv.Key, err)
		return obj
	}
	obj.Value = value
	return obj
}

// pass passes one change on to store.
func (s *Source[V]) pass(e *clientv3.Event, store typedqueue.ReflectorStore[Object[V]]) error {
	switch {
	case e.IsCreate():
		return store.Add(s.object(e.Kv))
	case e.Type == clientv3.EventTypePut:
		return store.Update(s.object(e.Kv))
	case e.PrevKv != nil:
		return store.Delete(s.object(e.PrevKv))
	}
	return store.Delete(Object[V]{
		Key: strings.TrimPrefix(string(e.Kv.Key), s.prefix), Revision: e.Kv.ModRevision, Err: ErrUnknownValue,
	})
}

// follower follows the changes below a prefix.
type follower struct {
	client   *clientv3.Client
	prefix   string
	revision int64 // all up to it has been handled
	pause    *pauses
	onError  func(error)
}

// follow calls handle with the changes after f.revision, in order, those of one revision never
// apart, until handle fails, ctx is done, or what comes next has been compacted; it returns why.
// Whatever else ends a watch, it watches again.
func (f *follower) follow(ctx context.Context, handle func([]*clientv3.Event) error) error {
	for {
		final, err := f.watch(ctx, handle)
		if final || errors.Is(err, rpctypes.ErrCompacted) {
			return err
		}
		if !f.pause.after(ctx, err, f.onError) {
			return context.Cause(ctx)
		}
	}
}

// watch is one watch. The error is final if it came from handle.
func (f *follower) watch(ctx context.Context, handle func([]*clientv3.Event) error) (final bool, err error) {
	ctx, cancel := context.WithCancel(ctx) // the client keeps a watch until then
	defer cancel()
	changes := f.client.Watch(clientv3.WithRequireLeader(ctx), f.prefix, clientv3.WithPrefix(),
		clientv3.WithRev(f.revision+1), clientv3.WithPrevKV(), clientv3.WithProgressNotify(), clientv3.WithFragment())
	for changed := range changes {
		if err := changed.Err(); err != nil {
			return false, fmt.Errorf("typedqueue: watch %q: %w", f.prefix, err)
		}
		if changed.IsProgressNotify() {
			f.revision = max(f.revision, changed.Header.Revision)
		} else if err := f.batch(changed.Events, handle); err != nil {
			return true, err
		}
		f.pause.reset()
	}
	return false, fmt.Errorf("typedqueue: watch %q: the client has ended it", f.prefix)
}

// batch handles what is new of events, which are whole revisions. (That is why revision can
// follow them. Their header's may be beyond what this watch has brought so far.)
func (f *follower) batch(events []*clientv3.Event, handle func([]*clientv3.Event) error) error {
	for len(events) > 0 && events[0].Kv.ModRevision <= f.revision {
		events = events[1:]
	}
	if len(events) == 0 {
		return nil
	}
	if err := handle(events); err != nil {
		return err
	}
	f.revision = events[len(events)-1].Kv.ModRevision
	return nil
}

// pauses are the waits between attempts.
type pauses struct {
	limiter typedqueue.RateLimiter[struct{}]
	ended   time.Time // the last one
}

func newPauses() *pauses {
	return &pauses{limiter: typedqueue.NewWithJitterRateLimiter(
		typedqueue.NewItemExponentialFailureRateLimiter[struct{}](50*time.Millisecond, 30*time.Second), 1)}
}

// after waits after err, which onError is told. It reports false at once if ctx is done.
func (p *pauses) after(ctx context.Context, err error, onError func(error)) bool {
	if ctx.Err() != nil {
		return false
	}
	if err != nil && onError != nil {
		onError(err)
	}
	if time.Since(p.ended) > time.Minute { // a watch may be quiet, and well
		p.reset()
	}
	t := time.NewTimer(p.limiter.When(struct{}{}))
	defer t.Stop()
	defer func() { p.ended = time.Now() }()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// reset makes the next wait a short one.
func (p *pauses) reset() { p.limiter.Forget(struct{}{}) }
