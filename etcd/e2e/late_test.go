package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// gate holds back what a client hears of a prefix, while it is shut.
type gate struct {
	prefix string
	shut   atomic.Pointer[chan struct{}] // nil while it is open; closed by who opens it
}

func (g *gate) close() {
	c := make(chan struct{})
	g.shut.Store(&c)
}

func (g *gate) open() { close(*g.shut.Swap(nil)) }

// wait returns once the gate is open or ctx is done.
func (g *gate) wait(ctx context.Context) {
	if c := g.shut.Load(); c != nil {
		select {
		case <-*c:
		case <-ctx.Done():
		}
	}
}

// heldWatcher is a Watcher whose news of a prefix come through a gate.
type heldWatcher struct {
	clientv3.Watcher
	gate   *gate
	passed *atomic.Int64 // how many answers have come through
}

func (w heldWatcher) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	in := w.Watcher.Watch(ctx, key, opts...)
	if !strings.HasPrefix(key, w.gate.prefix) {
		return in
	}
	out := make(chan clientv3.WatchResponse)
	go func() {
		defer close(out)
		for r := range in {
			w.gate.wait(ctx)
			select {
			case out <- r:
				w.passed.Add(int64(len(r.Events)))
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

// heldKV is a KV whose reads of a prefix come through a gate.
type heldKV struct {
	clientv3.KV
	gate *gate
	came *atomic.Int64 // how many have come to it
}

func (kv heldKV) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if strings.HasPrefix(key, kv.gate.prefix) {
		kv.came.Add(1)
		kv.gate.wait(ctx)
	}
	return kv.KV.Get(ctx, key, opts...)
}

// TestOldEffect: an object goes from x to y and back, and its replica hears of the effect of y only
// after that. Looking at the effect that it knows, it thinks that all is well; it must look again.
func TestOldEffect(t *testing.T) {
	nodes := startCluster(t, 1)
	client, held := dial(t, endpoints(nodes)...), dial(t, endpoints(nodes)...)
	g, passed := &gate{prefix: prefixes.Effects}, new(atomic.Int64)
	held.Watcher = heldWatcher{held.Watcher, g, passed}
	var tasks atomic.Int64
	startReplica(t, held, "a", func(ctx context.Context, task *task) error {
		defer tasks.Add(1)
		want := fmt.Sprintf("f(%s)", task.Object.Value)
		if string(task.Effect.Value) == want {
			return nil
		}
		_, err := task.Commit(ctx, clientv3.OpPut(task.EffectKey(), want))
		return err
	})
	effect := func(want string) {
		t.Helper()
		eventually(t, want, func() bool { return content(t, client, prefixes.Effects)["k"] == want })
	}
	put(t, client, prefixes.Source+"k", "x")
	effect("f(x)")
	eventually(t, "the replica hears of its effect", func() bool { return passed.Load() > 0 })
	g.close()
	put(t, client, prefixes.Source+"k", "y")
	effect("f(y)")
	before := tasks.Load()
	put(t, client, prefixes.Source+"k", "x")
	eventually(t, "the replica works on it", func() bool { return tasks.Load() > before })
	g.open()
	effect("f(x)")
}

// TestRunAgain: a second Run works on nothing before it has its own list.
func TestRunAgain(t *testing.T) {
	nodes := startCluster(t, 1)
	client, held := dial(t, endpoints(nodes)...), dial(t, endpoints(nodes)...)
	g, came := &gate{prefix: prefixes.Source}, new(atomic.Int64)
	held.KV = heldKV{held.KV, g, came}
	seen := make(chan string, 100)
	c := newReplica(held, "a", func(_ context.Context, task *task) error {
		if task.Exists() {
			seen <- task.Object.Value
		}
		return nil
	}, nil)

	put(t, client, prefixes.Source+"gone", "old")
	stop := background(t, c.Run)
	if got := receive(t, "a task", seen); got != "old" {
		t.Fatalf("the first Run works on %q", got)
	}
	stop()

	remove(t, client, prefixes.Source+"gone")
	put(t, client, prefixes.Source+"there", "new")
	g.close()
	before := came.Load()
	background(t, c.Run)
	eventually(t, "it asks for the list", func() bool { return came.Load() > before })
	for range 300 { // meanwhile it might join, and begin: that takes a few turns with etcd
		content(t, client, prefixes.Members)
	}
	g.open()
	if got := receive(t, "a task", seen); got != "new" {
		t.Errorf("the second Run works on %q, which is not there any more", got)
	}
}
