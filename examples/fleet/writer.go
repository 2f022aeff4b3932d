package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/time/rate"
)

// A writer changes the source.
type writer struct {
	cluster *cluster
	keys    int
	seed    uint64

	mu      sync.Mutex          // guards everything below
	last    int64               // the highest revision of a change
	number  int                 // of changes so far; each writes its own
	written map[string][]moment // what churn has changed, and when it began to; by key
}

func newWriter(c *cluster, keys int, seed uint64) *writer {
	return &writer{cluster: c, keys: keys, seed: seed, written: map[string][]moment{}}
}

func keyName(i int) string { return fmt.Sprintf("k%08d", i) }

// batch is how many changes make one transaction where many are written at once; etcd
// allows 128.
const batch = 128

// fill changes all keys at once.
func (w *writer) fill(ctx context.Context) error {
	for from := 0; from < w.keys; from += batch {
		var ops []clientv3.Op
		for i := from; i < min(from+batch, w.keys); i++ {
			ops = append(ops, clientv3.OpPut(w.cluster.prefix+wantDir+keyName(i), w.value()))
		}
		done, err := w.cluster.client.Txn(ctx).Then(ops...).Commit()
		if err != nil {
			return err
		}
		w.reach(done.Header.Revision)
	}
	return nil
}

// lanes is how many changes are under way at once; each lane has its own share of the keys.
const lanes = 8

// churn changes keys at random, perSecond times a second, until ctx is done. One change
// in twenty is a deletion.
func (w *writer) churn(ctx context.Context, perSecond float64) error {
	pace := rate.NewLimiter(rate.Limit(perSecond), lanes)
	errs := make(chan error, lanes)
	for lane := range lanes {
		go func() {
			chance := rand.New(rand.NewPCG(w.seed, uint64(lane)))
			for pace.Wait(ctx) == nil {
				i := chance.IntN(w.keys)/lanes*lanes + lane
				if err := w.change(ctx, keyName(i%w.keys), chance.IntN(20) == 0); err != nil && ctx.Err() == nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	var err error
	for range lanes {
		err = errors.Join(err, <-errs)
	}
	return err
}

func (w *writer) change(ctx context.Context, key string, remove bool) error {
	// What has begun is finished, so that its revision is known.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	began := now()
	at := w.cluster.prefix + wantDir + key
	if remove {
		done, err := w.cluster.client.Delete(ctx, at)
		if err == nil && done.Deleted > 0 {
			w.note(key, done.Header.Revision, began)
		}
		return err
	}
	done, err := w.cluster.client.Put(ctx, at, w.value())
	if err == nil {
		w.note(key, done.Header.Revision, began)
	}
	return err
}

// value returns the value of the next change.
func (w *writer) value() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.number++
	return strconv.Itoa(w.number)
}

// note notes a change that churn has made, and when it began to.
func (w *writer) note(key string, revision, began int64) {
	w.mu.Lock()
	w.written[key] = append(w.written[key], moment{revision, began})
	w.mu.Unlock()
	w.reach(revision)
}

// reach notes that a change has this revision.
func (w *writer) reach(revision int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = max(w.last, revision)
}

// newest returns the highest revision of a change so far.
func (w *writer) newest() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}
