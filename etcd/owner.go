package etcd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// errLost ends a stay whose lease has ended, or may have.
var errLost = errors.New("typedqueue: this replica's lease has ended")

// owner is what a replica knows of its keys, whatever these are: which are its own, and which
// of them it may begin with.
type owner struct {
	client  *clientv3.Client
	prefix  string        // of the member keys
	name    string        // "": that of the lease
	ttl     time.Duration // whole seconds
	onError func(error)
	onMoved func()               // keys may have come or gone; it must not block
	retry   func(keys ...string) // these had to wait for others, and may be begun with

	mu      sync.Mutex                 // guards everything below, and what stay says
	stay    *stay                      // nil if not among the members
	held    map[string]bool            // taken and not released
	waiting map[string]map[string]bool // keys by the member that they wait for
}

// stay is the time between joining the members and leaving them, which takes a lease.
type stay struct {
	name    string
	session *concurrency.Session
	key     string // the member key
	created int64  // its revision: the key with it is the proof that the stay lasts
	ctx     context.Context
	end     context.CancelCauseFunc
	reports chan struct{} // holds a wake-up of who writes reports

	// Guarded by owner.mu.
	view     *view
	deadline time.Time // the lease lasts at least until then
	written  report    // the last

	revision int64 // of the member key; of who writes reports alone
}

// run is among the members until ctx is done, and returns context.Cause(ctx) when it has left.
// A stay that ends by itself is followed by another.
func (o *owner) run(ctx context.Context) error {
	pause := newPauses()
	for {
		err := o.once(ctx, pause)
		if !pause.after(ctx, err, o.onError) {
			return context.Cause(ctx)
		}
	}
}

// once is one stay.
func (o *owner) once(ctx context.Context, pause *pauses) error {
	s, err := o.join(ctx)
	if err != nil {
		return err
	}
	pause.reset()
	o.onMoved()
	var parts sync.WaitGroup
	for _, part := range []func(*stay) error{o.followMembers, o.watchLease, o.writeReports, o.freshen} {
		parts.Go(func() { s.end(part(s)) })
	}
	parts.Wait()
	o.mu.Lock()
	o.stay, o.waiting = nil, nil
	o.mu.Unlock()
	o.onMoved()
	_ = s.session.Close() // the member key goes with the lease: now, or when that ends
	return context.Cause(s.ctx)
}

// join returns the stay that it begins, when no other member has its name any more.
func (o *owner) join(ctx context.Context) (*stay, error) {
	asked := time.Now()
	lease, err := o.client.Grant(ctx, int64(o.ttl/time.Second))
	if err != nil {
		return nil, fmt.Errorf("typedqueue: grant a lease: %w", err)
	}
	session, err := concurrency.NewSession(o.client, concurrency.WithLease(lease.ID),
		concurrency.WithTTL(int(lease.TTL)), concurrency.WithContext(context.WithoutCancel(ctx)))
	if err != nil {
		return nil, fmt.Errorf("typedqueue: keep the lease alive: %w", err)
	}
	s := &stay{
		name: o.name, session: session, reports: make(chan struct{}, 1),
		deadline: asked.Add(time.Duration(lease.TTL) * time.Second),
	}
	if s.name == "" {
		s.name = fmt.Sprintf("%016x", int64(lease.ID))
	}
	s.key = o.prefix + s.name
	if err := o.enter(ctx, s); err != nil {
		_ = session.Close()
		return nil, err
	}
	return s, nil
}

// enter creates the member key, and reads the others in the same transaction, so that the
// view begins without a gap at the revision at which the stay does.
func (o *owner) enter(run context.Context, s *stay) error {
	ctx, cancel := context.WithCancel(run)
	defer cancel()
	defer context.AfterFunc(s.session.Ctx(), cancel)()
	for {
		s.written = o.leftovers()
		joined, err := o.client.Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision(s.key), "=", 0)).
			Then(clientv3.OpPut(s.key, s.written.encode(), clientv3.WithLease(s.session.Lease())),
				clientv3.OpGet(o.prefix, clientv3.WithPrefix())).
			Commit()
		if err != nil {
			return fmt.Errorf("typedqueue: join the members: %w", err)
		}
		if joined.Succeeded {
			s.created, s.revision = joined.Header.Revision, joined.Header.Revision
			s.ctx, s.end = context.WithCancelCause(run)
			o.begin(s, joined.Responses[1].GetResponseRange().Kvs)
			return nil
		}
		if err := o.awaitDeletion(ctx, s.key, joined.Header.Revision); err != nil {
			return err
		}
	}
}

// leftovers returns the report with which a stay begins: what an earlier one held may be in
// hands still.
func (o *owner) leftovers() report {
	o.mu.Lock()
	defer o.mu.Unlock()
	return report{Holds: inOrder(maps.Keys(o.held))}
}

// awaitDeletion returns nil once a key that was there at a revision has been deleted.
func (o *owner) awaitDeletion(ctx context.Context, key string, revision int64) error {
	errDeleted := errors.New("deleted")
	w := follower{o.client, key, revision, newPauses(), o.onError}
	err := w.follow(ctx, func(events []*clientv3.Event) error {
		for _, e := range events {
			if e.Type == clientv3.EventTypeDelete && string(e.Kv.Key) == key {
				return errDeleted
			}
		}
		return nil
	})
	if errors.Is(err, errDeleted) {
		return nil
	}
	return err
}

// begin makes s the stay, with the members that are there as it begins.
func (o *owner) begin(s *stay, kvs []*mvccpb.KeyValue) {
	members := make(map[string]member, len(kvs))
	for _, kv := range kvs {
		members[strings.TrimPrefix(string(kv.Key), o.prefix)] = o.member(kv)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	s.view = newView(s.name, s.created, members, placed)
	o.stay, o.waiting = s, map[string]map[string]bool{}
	s.wakeReports() // what an earlier stay held may have been released meanwhile
}

func (o *owner) member(kv *mvccpb.KeyValue) member {
	m, err := newMember(kv.CreateRevision, kv.Value)
	if err != nil && o.onError != nil {
		o.onError(fmt.Errorf("typedqueue: report of member %q: %w", kv.Key, err))
	}
	return m
}

// followMembers brings the view up to date. It fails if it has missed something: only
// another stay can begin without a gap.
func (o *owner) followMembers(s *stay) error {
	w := follower{o.client, o.prefix, s.created, newPauses(), o.onError}
	return w.follow(s.ctx, func(events []*clientv3.Event) error { return o.apply(s, events) })
}

// apply applies changes of the members.
func (o *owner) apply(s *stay, events []*clientv3.Event) error {
	news := make([]member, len(events))
	for i, e := range events {
		if e.Type == clientv3.EventTypePut {
			news[i] = o.member(e.Kv)
		}
	}
	moved, free, err := o.applyAll(s, events, news)
	if err != nil {
		return err
	}
	if moved {
		o.onMoved()
		s.wakeReports()
	}
	if len(free) > 0 {
		o.retry(free...)
	}
	return nil
}

// applyAll applies all at once: a report of the half of a revision would say too much. It
// returns whether any members came or went, and the keys whose waiting may be over.
func (o *owner) applyAll(s *stay, events []*clientv3.Event, news []member) (moved bool, free []string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, e := range events {
		name := strings.TrimPrefix(string(e.Kv.Key), o.prefix)
		switch {
		case e.Type == clientv3.EventTypePut:
			began := s.view.put(e.Kv.ModRevision, name, news[i])
			moved = moved || began
		case name == s.name:
			return false, nil, errLost
		default:
			s.view.deleted(e.Kv.ModRevision, name)
			moved = true
		}
		free = append(free, o.stopWaiting(name)...)
	}
	if moved {
		free = append(free, o.stopWaiting(nobody)...)
	}
	return moved, free, nil
}

// watchLease looks, again and again, how long the lease will last.
func (o *owner) watchLease(s *stay) error {
	look := time.NewTicker(o.ttl / 6)
	defer look.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return context.Cause(s.ctx)
		case <-s.session.Done():
			return errLost
		case <-look.C:
		}
		if err := o.lookAtLease(s); err != nil {
			return err
		}
	}
}

// lookAtLease asks etcd how long the lease will last. That is counted from before asking: the
// answer may have lain about while the process was paused.
func (o *owner) lookAtLease(s *stay) error {
	ctx, cancel := context.WithDeadline(s.ctx, o.deadline(s))
	defer cancel()
	asked := time.Now()
	lease, err := o.client.TimeToLive(ctx, s.session.Lease())
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case err == nil && lease.TTL < 0, err != nil && s.expired():
		return errLost
	case err == nil:
		left := time.Duration(min(lease.TTL, lease.GrantedTTL)) * time.Second // a new leader may allow more
		if d := asked.Add(left); d.After(s.deadline) {
			s.deadline = d
		}
	}
	return nil
}

func (o *owner) deadline(s *stay) time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return s.deadline
}

// expired reports whether the lease may have ended. It asks the wall clock too, since the
// other one stands still while a machine is suspended. Needs owner.mu.
func (s *stay) expired() bool {
	now := time.Now()
	return !now.Before(s.deadline) || !now.Round(0).Before(s.deadline.Round(0))
}

// freshen makes etcd tell the watches how far they are, so that a compaction after a quiet
// time does not look like one of something that they have missed.
func (o *owner) freshen(s *stay) error {
	tick := time.NewTicker(o.ttl / 3)
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return context.Cause(s.ctx)
		case <-tick.C:
			_ = o.client.RequestProgress(clientv3.WithRequireLeader(s.ctx)) // if not now, then later
		}
	}
}

func (s *stay) wakeReports() {
	select {
	case s.reports <- struct{}{}:
	default:
	}
}

// writeReports writes a report whenever the others need a new one.
func (o *owner) writeReports(s *stay) error {
	pause := newPauses()
	for {
		select {
		case <-s.ctx.Done():
			return context.Cause(s.ctx)
		case <-s.reports:
		}
		for r, due := o.due(s); due; r, due = o.due(s) {
			err := o.write(s, r)
			if errors.Is(err, errLost) {
				return err
			}
			if err == nil {
				pause.reset()
			} else if !pause.after(s.ctx, err, o.onError) {
				return context.Cause(s.ctx)
			}
		}
	}
}

// due returns what there is to report, and whether that is anything new.
func (o *owner) due(s *stay) (r report, due bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r = s.view.report(o.held)
	return r, s.view.news(s.written, r)
}

// write writes r into the member key. The key's revision guards that, so that an attempt which
// was given up cannot come late and take back what has been said since.
func (o *owner) write(s *stay, r report) error {
	done, err := o.client.Txn(s.ctx).
		If(clientv3.Compare(clientv3.CreateRevision(s.key), "=", s.created),
			clientv3.Compare(clientv3.ModRevision(s.key), "=", s.revision)).
		Then(clientv3.OpPut(s.key, r.encode(), clientv3.WithLease(s.session.Lease()))).
		Else(clientv3.OpGet(s.key)).
		Commit()
	if err != nil {
		return fmt.Errorf("typedqueue: report to the members: %w", err)
	}
	if done.Succeeded {
		o.mu.Lock()
		defer o.mu.Unlock()
		s.written, s.revision = r, done.Header.Revision
		return nil
	}
	kvs := done.Responses[0].GetResponseRange().Kvs
	if len(kvs) == 0 || kvs[0].CreateRevision != s.created {
		return errLost
	}
	s.revision = kvs[0].ModRevision
	return errors.New("typedqueue: report to the members: an attempt that had failed came late")
}

// verdict says whether a replica may begin with a key.
type verdict int

const (
	granted verdict = iota
	foreign         // it is not this replica's, as far as this replica has seen; if that changes, retry or onMoved is called
	busy            // it is, but another may hold it still; if that changes, retry is called
)

// take makes this replica hold key until release, if that is granted, and returns the stay and
// the era in which it does.
func (o *owner) take(key string) (s *stay, era int64, v verdict) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s = o.stay
	if s == nil || s.ctx.Err() != nil {
		return nil, 0, foreign
	}
	if s.expired() {
		s.end(errLost) // for good: what is refused now comes back with the next stay
		return nil, 0, foreign
	}
	if !s.view.owns(key) {
		o.wait(nobody, key)
		return nil, 0, foreign
	}
	if name := s.view.blocker(key); name != "" {
		o.wait(name, key)
		return nil, 0, busy
	}
	o.held[key] = true
	return s, s.view.now().from, granted
}

// nobody stands for the members to come, for whom a key waits that is not the replica's own:
// it may be in the next era.
const nobody = ""

// wait makes key wait for a member. Needs mu.
func (o *owner) wait(name, key string) {
	if o.waiting[name] == nil {
		o.waiting[name] = map[string]bool{}
	}
	o.waiting[name][key] = true
}

// stopWaiting returns the keys that waited for a member. Needs mu.
func (o *owner) stopWaiting(name string) []string {
	keys := slices.Collect(maps.Keys(o.waiting[name]))
	delete(o.waiting, name)
	return keys
}

// release ends the hold of key.
func (o *owner) release(key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.held, key)
	if s := o.stay; s != nil && (!s.view.owns(key) || len(s.written.Holds) > 0) {
		s.wakeReports()
	}
}

// moment is what a replica knew of its keys at one moment. It never changes.
type moment struct {
	stay    *stay // nil if not among the members; then so is all the rest
	era     int64 // its beginning
	members []string
	owner   placement
}

// moment returns what is known now.
func (o *owner) moment() moment {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stay == nil {
		return moment{}
	}
	now := o.stay.view.now()
	return moment{o.stay, now.from, now.members, now.owner}
}

// owns reports whether key was the replica's own.
func (m moment) owns(key string) bool { return m.stay != nil && m.owner(key) == m.stay.name }
