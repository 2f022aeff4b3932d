package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"

	"example.com/typedqueue"
	"example.com/typedqueue/etcd"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func text(value []byte) (string, error) {
	if string(value) == "bad" {
		return "", errors.New("not a text")
	}
	return string(value), nil
}

// copied is a Store that a Source feeds through a DeltaFIFO, and what came on the way.
type copied struct {
	fifo  *typedqueue.DeltaFIFO[string, etcd.Object[string]]
	store *typedqueue.Store[string, etcd.Object[string]]

	mu      sync.Mutex // guards what follows
	newest  map[string]int64
	faults  []string
	deleted map[string]bool // by whether the final state was unknown
	lists   int             // that a compaction called for
}

func startCopy(t *testing.T, client *clientv3.Client, page int) *copied {
	return startHookedCopy(t, client, page, text, func() {})
}

// hooked is a DeltaFIFO, and what is called before each Replace.
type hooked struct {
	*typedqueue.DeltaFIFO[string, etcd.Object[string]]
	beforeReplace func()
}

func (h hooked) Replace(objs []etcd.Object[string]) error {
	h.beforeReplace()
	return h.DeltaFIFO.Replace(objs)
}

func startHookedCopy(
	t *testing.T, client *clientv3.Client, page int, decode func([]byte) (string, error), beforeReplace func(),
) *copied {
	store := typedqueue.NewStore(etcd.KeyOf[string])
	c := &copied{
		store:  store,
		fifo:   typedqueue.NewDeltaFIFO(etcd.KeyOf[string], typedqueue.DeltaFIFOOptions[string, etcd.Object[string]]{KnownObjects: store}),
		newest: map[string]int64{}, deleted: map[string]bool{},
	}
	source := etcd.NewSource(client, "/src/", decode, etcd.SourceOptions{PageSize: page, OnError: func(err error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if errors.Is(err, rpctypes.ErrCompacted) {
			c.lists++
		}
	}})
	background(t, func(ctx context.Context) error {
		for {
			if _, err := c.fifo.Pop(ctx, c.apply); err != nil {
				return err
			}
		}
	})
	background(t, func(ctx context.Context) error { return source.Run(ctx, hooked{c.fifo, beforeReplace}) })
	return c
}

func (c *copied) apply(key string, deltas typedqueue.Deltas[etcd.Object[string]], initial bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range deltas {
		if d.Object.Revision < c.newest[key] {
			c.faults = append(c.faults, fmt.Sprintf("%s of %q at %d after %d", d.Type, key, d.Object.Revision, c.newest[key]))
		}
		c.newest[key] = d.Object.Revision
		if d.Type == typedqueue.Deleted {
			c.deleted[key] = d.FinalStateUnknown
		}
	}
	return typedqueue.Apply(c.store, key, deltas, initial, typedqueue.Handler[string, etcd.Object[string]]{})
}

// is reports whether the Store is what etcd has.
func (c *copied) is(want map[string]string) bool {
	got := map[string]string{}
	for key, obj := range c.store.All() {
		got[key] = obj.Value
	}
	return maps.Equal(got, want)
}

func (c *copied) relists() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lists
}

// same waits until the Store is what etcd has.
func (c *copied) same(t *testing.T, client *clientv3.Client) {
	t.Helper()
	want := content(t, client, "/src/")
	eventually(t, "the store equals etcd", func() bool { return c.is(want) })
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, fault := range c.faults {
		t.Error(fault)
	}
}

// TestCompactedMeanwhile: what happens out of sight, and is compacted before the watch can go
// on, is found by a new list, deletions too.
func TestCompactedMeanwhile(t *testing.T) {
	nodes := startCluster(t, 1)
	client := dial(t, endpoints(nodes)...)
	p := startProxy(t, nodes[0].endpoint())
	for i := range 10 {
		put(t, client, fmt.Sprint("/src/", i), "first")
	}
	put(t, client, "/src0", "beside it")
	c := startCopy(t, dial(t, p.endpoint()), 3)
	c.same(t, client)

	p.cut()
	remove(t, client, "/src/3")
	put(t, client, "/src/4", "second")
	remove(t, client, "/src/5")
	put(t, client, "/src/5", "anew")
	compact(t, client)
	p.mend()
	c.same(t, client)
	c.mu.Lock()
	unknown, ok := c.deleted["3"]
	c.mu.Unlock()
	if !ok || !unknown {
		t.Errorf("deletion of 3: told %v, final state unknown %v", ok, unknown)
	}
	if c.relists() == 0 {
		t.Error("the watch was not compacted: nothing was tested")
	}
}

// TestBrokenConnection: without a compaction the watch goes on where it was, and the
// deletion is a seen one.
func TestBrokenConnection(t *testing.T) {
	nodes := startCluster(t, 1)
	client := dial(t, endpoints(nodes)...)
	p := startProxy(t, nodes[0].endpoint())
	put(t, client, "/src/a", "1")
	c := startCopy(t, dial(t, p.endpoint()), 0)
	c.same(t, client)
	p.cut()
	put(t, client, "/src/a", "2")
	remove(t, client, "/src/a")
	p.mend()
	c.same(t, client)
	c.mu.Lock()
	defer c.mu.Unlock()
	if unknown, ok := c.deleted["a"]; !ok || unknown {
		t.Errorf("deletion: told %v, final state unknown %v", ok, unknown)
	}
	if c.lists != 0 {
		t.Error("the source was listed again")
	}
}

// TestWritesDuringTheList: a list is of one revision, whatever is written while its pages are
// read, and nothing falls between it and the watch.
func TestWritesDuringTheList(t *testing.T) {
	nodes := startCluster(t, 1)
	client := dial(t, endpoints(nodes)...)
	for i := range 10 {
		put(t, client, fmt.Sprint("/src/", i), "first")
	}
	wrote := make(chan struct{})
	afterPage := sync.OnceFunc(func() {
		put(t, client, "/src/8", "second")
		put(t, client, "/src/8", "third")
		remove(t, client, "/src/9")
		put(t, client, "/src/9", "anew")
		close(wrote)
	})
	decode := func(value []byte) (string, error) { afterPage(); return text(value) }
	c := startHookedCopy(t, client, 2, decode, func() {})
	receive(t, "the writes", wrote)
	c.same(t, client)

	// The first write after this list is of the very next revision.
	wrote = make(chan struct{})
	next := sync.OnceFunc(func() { put(t, client, "/src/0", "1"); close(wrote) })
	c = startHookedCopy(t, client, 2, text, next)
	receive(t, "the writes", wrote)
	c.same(t, client)
}

// TestUndecodable: a value that cannot be decoded is an object with an error, and stops no other.
func TestUndecodable(t *testing.T) {
	nodes := startCluster(t, 1)
	client := dial(t, endpoints(nodes)...)
	put(t, client, "/src/a", "bad")
	put(t, client, "/src/b", "good")
	c := startCopy(t, client, 0)
	eventually(t, "both are there", func() bool { return c.is(map[string]string{"a": "", "b": "good"}) })
	for _, step := range []struct{ a, b string }{{"good", "bad"}, {"bad", "good"}} {
		put(t, client, "/src/a", step.a)
		put(t, client, "/src/b", step.b)
		eventually(t, "both are told", func() bool {
			a, _ := c.store.GetByKey("a")
			b, _ := c.store.GetByKey("b")
			return (a.Err != nil) == (step.a == "bad") && (b.Err != nil) == (step.b == "bad") && a.Revision+1 == b.Revision
		})
	}
	remove(t, client, "/src/a")
	eventually(t, "the deletion is told", func() bool { _, ok := c.store.GetByKey("a"); return !ok })
}

// TestClosedStore: a Source ends with what it feeds.
func TestClosedStore(t *testing.T) {
	nodes := startCluster(t, 1)
	client := dial(t, endpoints(nodes)...)
	fifo := typedqueue.NewDeltaFIFO(etcd.KeyOf[string], typedqueue.DeltaFIFOOptions[string, etcd.Object[string]]{})
	fifo.Close()
	err := etcd.NewSource(client, "/src/", text, etcd.SourceOptions{}).Run(context.Background(), fifo)
	if !errors.Is(err, typedqueue.ErrClosed) {
		t.Errorf("Run of a closed store = %v", err)
	}
}

// TestRandomWrites writes, deletes, compacts, cuts and restarts at random.
func TestRandomWrites(t *testing.T) {
	nodes := startCluster(t, 1)
	client := dial(t, endpoints(nodes)...)
	p := startProxy(t, nodes[0].endpoint())
	c := startCopy(t, dial(t, p.endpoint()), 4)
	random := newRandom(t)
	for round := range scale(t, 15) {
		if random.IntN(2) == 0 {
			p.cut()
		}
		for range random.IntN(40) {
			write(t, client, random)
			if random.IntN(15) == 0 {
				compact(t, client)
			}
		}
		if round%7 == 6 {
			nodes[0].stop()
			nodes[0].start(t)
		}
		p.mend()
		if random.IntN(3) == 0 {
			c.same(t, client)
		}
	}
	c.same(t, client)
	t.Logf("listed again %d times", c.relists())
	if c.relists() == 0 {
		t.Error("no watch was compacted: half of this was not tested")
	}
}

func newRandom(t *testing.T) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// write changes one key, or a few in one transaction.
func write(t *testing.T, client *clientv3.Client, random *rand.Rand) {
	t.Helper()
	var ops []clientv3.Op
	for i, first := range random.Perm(12)[:1+random.IntN(3)] {
		key := fmt.Sprint("/src/", first)
		if random.IntN(3) == 0 {
			ops = append(ops, clientv3.OpDelete(key))
		} else {
			ops = append(ops, clientv3.OpPut(key, strconv.Itoa(random.IntN(1000)+i)))
		}
	}
	must(t, func(ctx context.Context) (*clientv3.TxnResponse, error) { return client.Txn(ctx).Then(ops...).Commit() })
}

// TestLeaderChanges: the leader is moved, then stopped, while keys are written.
func TestLeaderChanges(t *testing.T) {
	nodes := startCluster(t, 3)
	client := dial(t, endpoints(nodes)...)
	c := startCopy(t, dial(t, endpoints(nodes)...), 4)
	random := rand.New(rand.NewPCG(1, 1))
	for round := range scale(t, 4) {
		for range 20 {
			write(t, client, random)
		}
		leader := leaderOf(t, nodes)
		if round%2 == 0 {
			to := nodes[(leader+1)%3].server.Server
			must(t, func(ctx context.Context) (struct{}, error) {
				return struct{}{}, nodes[leader].server.Server.MoveLeader(ctx, uint64(nodes[leader].server.Server.MemberID()), uint64(to.MemberID()))
			})
			continue
		}
		nodes[leader].stop()
		for range 20 {
			write(t, client, random)
		}
		compact(t, client)
		nodes[leader].start(t)
	}
	c.same(t, client)
}

// leaderOf returns the number of the leader, and waits until there is one.
func leaderOf(t *testing.T, nodes []*node) (leader int) {
	t.Helper()
	eventually(t, "there is a leader", func() bool {
		leader = slices.IndexFunc(nodes, func(n *node) bool { return n.server.Server.MemberID() == n.server.Server.Leader() })
		return leader >= 0
	})
	return leader
}

// scale returns n, times what ETCD_SOAK says.
func scale(t *testing.T, n int) int {
	if s := os.Getenv("ETCD_SOAK"); s != "" {
		times, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		return n * times
	}
	return n
}
