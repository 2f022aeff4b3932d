package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"example.com/typedqueue"
	"example.com/typedqueue/etcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// This file is a replica: a controller as one writes it, and the marks by which its parent
// can check it.

// orders are what a replica is told.
type orders struct {
	Name      string
	Endpoints []string
	Prefix    string
	TTL, Work time.Duration
	Workers   int
	Fault     string `json:",omitempty"` // what it is to do wrong, in a test
}

// replicaEnv holds the orders of a replica. With it the program is one.
const replicaEnv = "TYPEDQUEUE_FLEET_REPLICA"

// replicaFromEnv returns the orders of this process, if it is to be a replica.
func replicaFromEnv() (o orders, ok bool) {
	text, ok := os.LookupEnv(replicaEnv)
	if !ok {
		return o, false
	}
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		panic(fmt.Sprintf("the orders of a replica: %v", err))
	}
	return o, true
}

// beReplica is the life of a replica, and returns its exit code. It ends with its standard
// input. The tweaks are for tests.
func beReplica(o orders, tweaks ...func(*replica)) int {
	signal.Ignore(os.Interrupt) // that is the parent's to hear
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	client, err := connect(o.Endpoints)
	if err == nil {
		defer client.Close()
		r := newReplica(o, client, newMarker(os.Stdout))
		for _, tweak := range tweaks {
			tweak(r)
		}
		err = r.newController().Run(ctx)
	}
	if !errors.Is(err, context.Canceled) {
		fmt.Fprintf(os.Stderr, "%s: %v\n", o.Name, err)
		return exitBad
	}
	return exitGood
}

// A replica brings the effects below a prefix in line with the source.
type replica struct {
	orders
	client *clientv3.Client
	marks  *marker
	places etcd.Prefixes
	commit func(ctx context.Context, t *etcd.Task[string], ops ...clientv3.Op) error
}

func newReplica(o orders, client *clientv3.Client, marks *marker) *replica {
	return &replica{
		orders: o, client: client, marks: marks, commit: commit,
		places: etcd.Prefixes{
			Source:  o.Prefix + wantDir,
			Effects: o.Prefix + doneDir,
			Members: o.Prefix + memberDir,
		},
	}
}

func (r *replica) newController() *etcd.Controller[string] {
	return etcd.NewController(r.client, r.places, decode, r.reconcile, etcd.Options{
		Name: r.Name,
		TTL:  r.TTL,
		Run:  typedqueue.RunOptions[string]{Workers: r.Workers},
	})
}

func decode(value []byte) (string, error) { return string(value), nil }

func commit(ctx context.Context, t *etcd.Task[string], ops ...clientv3.Op) error {
	_, err := t.Commit(ctx, ops...)
	return err
}

// reconcile brings one key in line, and tells the parent what it does.
func (r *replica) reconcile(ctx context.Context, t *etcd.Task[string]) error {
	r.marks.mark(mark{What: marksBegin, Key: t.Key, Lease: int64(t.Lease), Epoch: t.Epoch})
	err := errUnchanged
	if !inLine(t) {
		err = r.bringInLine(ctx, t)
	}
	r.marks.mark(mark{What: marksEnd, Key: t.Key, Outcome: outcomeOf(err)})
	if errors.Is(err, errUnchanged) {
		return nil
	}
	return err
}

// errUnchanged says that there was nothing to do.
var errUnchanged = errors.New("unchanged")

// inLine reports whether the effect is what the source asks for.
func inLine(t *etcd.Task[string]) bool {
	if !t.Exists() || t.Effect.Revision == 0 {
		return !t.Exists() && t.Effect.Revision == 0
	}
	var did effect
	err := json.Unmarshal(t.Effect.Value, &did)
	return err == nil && did.Revision == t.Object.Revision
}

// bringInLine works for a while, and then writes the effect. Like a call to some device, the
// work cannot be called back; so it tries to write even if the lease has ended meanwhile,
// which etcd must refuse.
func (r *replica) bringInLine(ctx context.Context, t *etcd.Task[string]) error {
	time.Sleep(r.Work)
	r.marks.mark(mark{What: marksWrite, Key: t.Key})
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	signed := effect{Value: t.Object.Value, Revision: t.Object.Revision, Lease: int64(t.Lease), Epoch: t.Epoch}
	if t.Exists() {
		return r.commit(ctx, t, clientv3.OpPut(t.EffectKey(), signed.String()))
	}
	return r.commit(ctx, t, clientv3.OpPut(r.Prefix+signDir+t.Key, signed.String()), clientv3.OpDelete(t.EffectKey()))
}

func outcomeOf(err error) outcome {
	switch {
	case err == nil:
		return accepted
	case errors.Is(err, errUnchanged):
		return unchanged
	case errors.Is(err, etcd.ErrFenced):
		return fenced
	case errors.Is(err, etcd.ErrStale):
		return stale
	default:
		return failed
	}
}
