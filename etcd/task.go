package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// ErrFenced says that a transaction was refused because the replica is not among the members
// any more, or the Task is over: others may work on the key. Nothing was written.
var ErrFenced = errors.New("typedqueue: fenced")

// ErrStale says that a transaction was refused because the object is not what the Task says it
// is. Nothing was written. The change is on its way to the Controller, and will be a Task.
var ErrStale = errors.New("typedqueue: the object has changed")

// Task is a key to be brought in line, and the right to do it, until the reconcile function
// returns. Its fields must not be changed. Its methods may be called from any goroutine.
type Task[V any] struct {
	Key string

	// Object is what lies under Prefixes.Source, as far as this replica has seen. It is zero
	// if there is nothing: then there should be no effect either.
	Object Object[V]

	// Effect is what lies under Prefixes.Effects, as far as this replica has seen; zero if
	// there is nothing, or the prefix is empty. It may be older than the last effect.
	Effect Object[[]byte]

	Member string           // the name of this replica
	Lease  clientv3.LeaseID // it ends with the right to write

	// Epoch is the revision of the last change of members that this replica had seen when
	// the Task began. Of two replicas that had a Task of one key, the later has the larger
	// Epoch: for effects outside etcd it is the fencing token.
	Epoch int64

	client            *clientv3.Client
	member            string // its key
	created           int64  // the revision of that
	source, effectKey string
	over              atomic.Bool
}

// Exists reports whether there is an object.
func (t *Task[V]) Exists() bool { return t.Object.Revision != 0 }

// EffectKey returns the key of etcd under which the effect belongs: Prefixes.Effects and Key.
func (t *Task[V]) EffectKey() string { return t.effectKey }

// Guards returns what a transaction has to compare so that it is carried out only if this
// replica's lease has not ended, and the object is what the Task says it is (or, if there was
// none, there still is none). It is for transactions that Commit is too simple for.
func (t *Task[V]) Guards() []clientv3.Cmp {
	return []clientv3.Cmp{
		clientv3.Compare(clientv3.CreateRevision(t.member), "=", t.created),
		clientv3.Compare(clientv3.ModRevision(t.source), "=", t.Object.Revision),
	}
}

// Commit carries out ops in one transaction, guarded by Guards, and returns etcd's answer. If
// that is no, nothing was written, and the error is an ErrFenced or an ErrStale. After the Task
// it is ErrFenced. Any other error is the client's: then ops may have been carried out, or
// still be, if the guards let them. It blocks until etcd answers or ctx is done.
func (t *Task[V]) Commit(ctx context.Context, ops ...clientv3.Op) (*clientv3.TxnResponse, error) {
	if t.over.Load() {
		return nil, fmt.Errorf("%w: the task of %q is over", ErrFenced, t.Key)
	}
	done, err := t.client.Txn(ctx).If(t.Guards()...).Then(ops...).
		Else(clientv3.OpGet(t.member, clientv3.WithKeysOnly())).Commit()
	switch {
	case err != nil:
		return nil, fmt.Errorf("typedqueue: commit %q: %w", t.Key, err)
	case done.Succeeded:
		return done, nil
	}
	kvs := done.Responses[0].GetResponseRange().Kvs
	if len(kvs) == 0 || kvs[0].CreateRevision != t.created {
		return nil, fmt.Errorf("%w: member %q has ended before %q was written", ErrFenced, t.Member, t.Key)
	}
	return nil, fmt.Errorf("%w: %q is not at revision %d any more", ErrStale, t.Key, t.Object.Revision)
}
