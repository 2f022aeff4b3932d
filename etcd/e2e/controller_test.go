package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/typedqueue"
	"example.com/typedqueue/etcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

var prefixes = etcd.Prefixes{Source: "/src/", Effects: "/done/", Members: "/fleet/"}

type (
	task       = etcd.Task[string]
	controller = etcd.Controller[string]
)

// carryOut makes the effect of an object: its value, by whom, and of which revision. An
// effect that is there already is left alone.
func carryOut(ctx context.Context, task *task) error {
	if !task.Exists() {
		_, err := task.Commit(ctx, clientv3.OpDelete(task.EffectKey()))
		return err
	}
	value := fmt.Sprintf("%s %d %d %s", task.Object.Value, task.Object.Revision, task.Epoch, task.Member)
	if old := strings.Fields(string(task.Effect.Value)); len(old) > 1 && old[1] == strconv.FormatInt(task.Object.Revision, 10) {
		return nil
	}
	_, err := task.Commit(ctx, clientv3.OpPut(task.EffectKey(), value))
	return err
}

// hands watches who works on what.
type hands struct {
	mu     sync.Mutex // guards what follows
	in     map[string]*hand
	last   map[string]hand
	tasks  int
	faults []string
}

type hand struct {
	member string
	epoch  int64
	ctx    context.Context
}

func newHands() *hands { return &hands{in: map[string]*hand{}, last: map[string]hand{}} }

// watched returns reconcile with a check that no other replica works on the key whose
// lease lasts, as far as itself knows, and that epochs grow from one owner to the next.
func (h *hands) watched(reconcile func(context.Context, *task) error) func(context.Context, *task) error {
	return func(ctx context.Context, task *task) error {
		mine := &hand{task.Member, task.Epoch, ctx}
		h.begin(task.Key, mine)
		defer h.end(task.Key, mine)
		return reconcile(ctx, task)
	}
}

func (h *hands) begin(key string, mine *hand) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tasks++
	if other := h.in[key]; other != nil && other.ctx.Err() == nil {
		h.faults = append(h.faults, fmt.Sprintf("%q: %s begins at epoch %d while %s has it since %d", key, mine.member, mine.epoch, other.member, other.epoch))
	}
	last := h.last[key]
	if mine.epoch < last.epoch || mine.epoch == last.epoch && mine.member != last.member {
		h.faults = append(h.faults, fmt.Sprintf("%q: %s has epoch %d after %d of %s", key, mine.member, mine.epoch, last.epoch, last.member))
	}
	h.in[key], h.last[key] = mine, *mine
}

func (h *hands) end(key string, mine *hand) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.in[key] == mine {
		delete(h.in, key)
	}
}

func (h *hands) verify(t *testing.T) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, fault := range h.faults {
		t.Error(fault)
	}
	if h.tasks == 0 {
		t.Error("no task: nothing was checked")
	}
}

// replica is a Controller that runs.
type replica struct {
	*controller
	name string
	stop func()
}

func startReplica(t *testing.T, client *clientv3.Client, name string, reconcile func(context.Context, *task) error) replica {
	t.Helper()
	c := newReplica(client, name, reconcile, nil)
	return replica{c, name, background(t, c.Run)}
}

func newReplica(client *clientv3.Client, name string, reconcile func(context.Context, *task) error, onMembers func([]string, int, int)) *controller {
	return etcd.NewController(client, prefixes, text, reconcile, etcd.Options{
		Name: name, TTL: 3 * time.Second, Run: typedqueue.RunOptions[string]{Workers: 4}, OnMembers: onMembers,
		Limiter: typedqueue.NewItemExponentialFailureRateLimiter[string](5*time.Millisecond, time.Second),
	})
}

// joined waits until each of replicas sees exactly those as members.
func joined(t *testing.T, replicas ...replica) {
	t.Helper()
	var names []string
	for _, r := range replicas {
		names = append(names, r.name)
	}
	slices.Sort(names)
	for _, r := range replicas {
		eventually(t, fmt.Sprintf("%s sees %v", r.name, names), func() bool { return slices.Equal(r.Members(), names) })
	}
}

// carriedOut waits until the effects are those of the objects as they are.
func carriedOut(t *testing.T, client *clientv3.Client) {
	t.Helper()
	want := map[string]string{}
	got := must(t, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return client.Get(ctx, prefixes.Source, clientv3.WithPrefix())
	})
	for _, kv := range got.Kvs {
		want[strings.TrimPrefix(string(kv.Key), prefixes.Source)] = fmt.Sprintf("%s %d", kv.Value, kv.ModRevision)
	}
	eventually(t, "every object has its effect", func() bool {
		effects := content(t, client, prefixes.Effects)
		for key, value := range effects {
			fields := strings.Fields(value)
			effects[key] = fields[0] + " " + fields[1]
		}
		return maps.Equal(effects, want)
	})
}

func putAll(t *testing.T, client *clientv3.Client, n int, value string) {
	t.Helper()
	for i := range n {
		put(t, client, fmt.Sprint(prefixes.Source, "key-", i), value)
	}
}

// TestReplicasShareKeys changes keys and members, and then asks etcd's history.
func TestReplicasShareKeys(t *testing.T) {
	nodes := startCluster(t, 1)
	client := dial(t, endpoints(nodes)...)
	h := newHands()
	start := func(name string) replica {
		return startReplica(t, dial(t, endpoints(nodes)...), name, h.watched(carryOut))
	}
	const n = 200
	putAll(t, client, n, "one")
	a, b := start("a"), start("b")
	joined(t, a, b)
	carriedOut(t, client)
	c := start("c")
	putAll(t, client, n, "two")
	joined(t, a, b, c)
	carriedOut(t, client)
	b.stop()
	for i := range n / 2 {
		remove(t, client, fmt.Sprint(prefixes.Source, "key-", i))
	}
	joined(t, a, c)
	carriedOut(t, client)
	for i := range n {
		owners := 0
		for _, r := range []replica{a, b, c} {
			if r.Owns(fmt.Sprint("key-", i)) {
				owners++
			}
		}
		if owners != 1 {
			t.Errorf("key-%d has %d owners", i, owners)
		}
	}
	h.verify(t)
	if effects := history(t, client); effects < 2*n+n/2 {
		t.Errorf("%d effects in the history, less than %d", effects, 2*n+n/2)
	}
}

// history replays all that etcd was told, and checks that each effect was of the object as it
// was, by a member that was there. It returns the number of effects.
func history(t *testing.T, client *clientv3.Client) (effects int) {
	t.Helper()
	put(t, client, "/src-end", "")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	there := map[string]*clientv3.Event{}
	for changed := range client.Watch(ctx, "/", clientv3.WithPrefix(), clientv3.WithRev(1)) {
		if err := changed.Err(); err != nil {
			t.Fatal(err)
		}
		for _, e := range changed.Events {
			key := string(e.Kv.Key)
			if key == "/src-end" {
				return effects
			}
			if name, ok := strings.CutPrefix(key, prefixes.Effects); ok {
				effects++
				judge(t, e, there[prefixes.Source+name], there)
			}
			there[key] = e
			if e.Type == clientv3.EventTypeDelete {
				delete(there, key)
			}
		}
	}
	t.Fatal("the history has no end")
	return 0
}

func judge(t *testing.T, effect, object *clientv3.Event, there map[string]*clientv3.Event) {
	t.Helper()
	if effect.Type == clientv3.EventTypeDelete {
		if object != nil {
			t.Errorf("revision %d deletes the effect of %q, which is there", effect.Kv.ModRevision, object.Kv.Key)
		}
		return
	}
	fields := strings.Fields(string(effect.Kv.Value))
	if object == nil || fields[1] != strconv.FormatInt(object.Kv.ModRevision, 10) {
		t.Errorf("revision %d is an effect of %s, and the object is %v", effect.Kv.ModRevision, fields[1], object)
	}
	if there[prefixes.Members+fields[3]] == nil {
		t.Errorf("revision %d is by %s, which is no member", effect.Kv.ModRevision, fields[3])
	}
}

// keyThatMoves returns a key that is from's among before, and to's among after.
func keyThatMoves(t *testing.T, from string, before []string, to string, after []string) string {
	t.Helper()
	for i := range 1000 {
		key := fmt.Sprint("moving-", i)
		if etcd.OwnerOf(key, before) == from && etcd.OwnerOf(key, after) == to {
			return key
		}
	}
	t.Fatal("no key moves")
	return ""
}

// TestHandOver: what a replica works on while it loses it goes on, and the new owner
// waits for that, but for nothing else.
func TestHandOver(t *testing.T) {
	nodes := startCluster(t, 1)
	client := dial(t, endpoints(nodes)...)
	slow := keyThatMoves(t, "a", []string{"a"}, "b", []string{"a", "b"})
	begun, finish := make(chan struct{}), make(chan struct{})
	first := sync.OnceFunc(func() { close(begun) }) // a has it again once b has left
	byB := make(chan string, 1000)
	h := newHands()
	a := startReplica(t, client, "a", h.watched(func(ctx context.Context, task *task) error {
		if task.Key == slow {
			first()
			hold(t, finish)
		}
		return carryOut(ctx, task)
	}))
	put(t, client, prefixes.Source+slow, "x")
	putAll(t, client, 100, "x")
	carried := func(value string) func() bool {
		return func() bool {
			n := 0
			for _, effect := range content(t, client, prefixes.Effects) {
				if strings.HasPrefix(effect, value+" ") {
					n++
				}
			}
			return n == 100
		}
	}
	receive(t, "a has begun with the slow one", begun)
	eventually(t, "all but one are carried out", carried("x"))

	b := startReplica(t, dial(t, endpoints(nodes)...), "b", h.watched(func(ctx context.Context, task *task) error {
		byB <- task.Key
		return carryOut(ctx, task)
	}))
	joined(t, a, b)
	gained := 0
	for i := range 100 {
		if b.Owns(fmt.Sprint("key-", i)) {
			gained++
		}
	}
	for range gained {
		if key := receive(t, "b begins with what it has gained", byB); key == slow {
			t.Fatal("b has begun with what a holds")
		}
	}
	putAll(t, client, 100, "y") // a goes on too, and so does b
	eventually(t, "all but one are carried out again", carried("y"))
	if got := content(t, client, prefixes.Effects); got[slow] != "" {
		t.Errorf("%q was carried out: %s", slow, got[slow])
	}
	close(finish)
	eventually(t, "b begins with what a held", func() bool {
		select {
		case key := <-byB:
			return key == slow
		default:
			return false
		}
	})
	carriedOut(t, client)
	h.verify(t)
}

// TestLostKeysAreCancelled: what is ready when it is lost is taken back.
func TestLostKeysAreCancelled(t *testing.T) {
	nodes := startCluster(t, 1)
	client := dial(t, endpoints(nodes)...)
	putAll(t, client, 100, "x")
	ready := func(r replica) (n, foreign int) {
		for _, key := range r.Queue().Snapshot().Ready {
			n++
			if !r.Owns(key) {
				foreign++
			}
		}
		return n, foreign
	}
	stuck := make(chan struct{})
	a := startReplica(t, client, "a", func(ctx context.Context, task *task) error { hold(t, stuck); return nil })
	defer close(stuck)
	eventually(t, "a has all but four", func() bool { n, _ := ready(a); return n == 96 })
	b := startReplica(t, client, "b", carryOut)
	joined(t, a, b)
	eventually(t, "a has only its own", func() bool { n, foreign := ready(a); return n > 0 && n < 96 && foreign == 0 })
}

// TestFencing: a task whose lease has ended, whose object has changed, or that is over,
// writes nothing.
func TestFencing(t *testing.T) {
	nodes := startCluster(t, 1)
	client := dial(t, endpoints(nodes)...)
	tasks, answers := make(chan *task), make(chan error)
	contexts := make(chan context.Context, 100)
	put(t, client, prefixes.Source+"k", "one")
	startReplica(t, client, "a", func(ctx context.Context, task *task) error {
		contexts <- ctx
		select {
		case tasks <- task:
			return <-answers
		case <-t.Context().Done():
			return nil
		}
	})
	defer close(answers)
	next := func() *task {
		t.Helper()
		return receive(t, "a task", tasks)
	}

	first := next()
	put(t, client, prefixes.Source+"k", "two")
	err := carryOut(context.Background(), first)
	if !errors.Is(err, etcd.ErrStale) || errors.Is(err, etcd.ErrFenced) {
		t.Errorf("Commit after the object has changed = %v", err)
	}
	answers <- err

	second := next()
	if second.Object.Value != "two" {
		t.Errorf("the task after a stale one has %q", second.Object.Value)
	}
	if err := carryOut(context.Background(), first); !errors.Is(err, etcd.ErrFenced) {
		t.Errorf("Commit after the task = %v", err)
	}
	<-contexts
	ctx := <-contexts
	if _, err := client.Revoke(context.Background(), second.Lease); err != nil {
		t.Fatal(err)
	}
	err = carryOut(context.Background(), second)
	if !errors.Is(err, etcd.ErrFenced) || errors.Is(err, etcd.ErrStale) {
		t.Errorf("Commit after the lease = %v", err)
	}
	receive(t, "the task's context ends", ctx.Done())
	if cause := context.Cause(ctx); !errors.Is(cause, etcd.ErrFenced) {
		t.Errorf("the task's context ended with %v", cause)
	}
	if got := content(t, client, prefixes.Effects); len(got) != 0 {
		t.Errorf("effects of refused transactions: %v", got)
	}
	answers <- err

	third := next()
	if third.Lease == second.Lease || third.Epoch <= second.Epoch {
		t.Errorf("after lease %d and epoch %d come %d and %d", second.Lease, second.Epoch, third.Lease, third.Epoch)
	}
	if err := carryOut(context.Background(), third); err != nil {
		t.Error(err)
	}
	answers <- nil
	carriedOut(t, client)
}

// TestComesBackWithItInHands: a replica that has lost its lease with a key in hands says so
// when it joins again.
func TestComesBackWithItInHands(t *testing.T) {
	nodes := startCluster(t, 1)
	client := dial(t, endpoints(nodes)...)
	start := put(t, client, prefixes.Source+"k", "one")
	tasks, finish := make(chan *task, 10), make(chan struct{})
	release := sync.OnceFunc(func() { close(finish) })
	startReplica(t, client, "a", func(ctx context.Context, task *task) error { tasks <- task; <-finish; return nil })
	t.Cleanup(release)
	first := receive(t, "a task", tasks)
	if _, err := client.Revoke(context.Background(), first.Lease); err != nil {
		t.Fatal(err)
	}
	reports := client.Watch(t.Context(), prefixes.Members+"a", clientv3.WithRev(start))
	want := []string{`{}`, `{"holds":["aw=="]}`}
	if got := firstReports(t, reports, 2); !slices.Equal(got, want) {
		t.Errorf("a joins with %s, want %s", got, want)
	}
	release()
	if second := receive(t, "another task", tasks); second.Epoch <= first.Epoch {
		t.Errorf("epoch %d after %d", second.Epoch, first.Epoch)
	}
	eventually(t, "a says that it holds nothing of others", func() bool {
		return !strings.Contains(content(t, client, prefixes.Members)["a"], "holds")
	})
}

// firstReports returns the reports with which n stays begin.
func firstReports(t *testing.T, reports clientv3.WatchChan, n int) (first []string) {
	t.Helper()
	for changed := range reports {
		for _, e := range changed.Events {
			if e.IsCreate() {
				first = append(first, string(e.Kv.Value))
			}
		}
		if len(first) >= n {
			return first
		}
	}
	t.Fatal("the watch has ended")
	return nil
}

// TestWritesPerChange: a change of members costs one write each.
func TestWritesPerChange(t *testing.T) {
	nodes := startCluster(t, 1)
	client := dial(t, endpoints(nodes)...)
	putAll(t, client, 50, "x")
	changes := client.Watch(t.Context(), prefixes.Members, clientv3.WithPrefix(), clientv3.WithRev(1))
	var all []replica
	for i, name := range []string{"a", "b", "c", "d"} {
		all = append(all, startReplica(t, client, name, carryOut))
		joined(t, all...)
		carriedOut(t, client)
		writes(t, changes, i+1)
	}
	all[3].stop()
	writes(t, changes, 4)
}

// writes waits for n writes of different members, and fails at a second one of a member, but
// for one that had keys in hands.
func writes(t *testing.T, changes clientv3.WatchChan, n int) {
	t.Helper()
	wrote := map[string]string{}
	for len(wrote) < n {
		for _, e := range receive(t, "a write", changes).Events {
			key, value := string(e.Kv.Key), string(e.Kv.Value)
			if before, again := wrote[key]; again && !strings.Contains(before, "holds") {
				t.Errorf("%s was written twice: %s, then %s", key, before, value)
			}
			wrote[key] = value
		}
	}
}

// TestDeletionOfADeadOwner: a deletion that its owner has not carried out is not lost with it.
func TestDeletionOfADeadOwner(t *testing.T) {
	nodes := startCluster(t, 1)
	client := dial(t, endpoints(nodes)...)
	p := startProxy(t, nodes[0].endpoint())
	key := keyThatMoves(t, "a", []string{"a", "b"}, "b", []string{"b"})
	put(t, client, prefixes.Source+key, "x")
	stuck := make(chan struct{})
	a := startReplica(t, dial(t, p.endpoint()), "a", func(ctx context.Context, task *task) error {
		if !task.Exists() {
			hold(t, stuck)
		}
		return carryOut(ctx, task)
	})
	b := startReplica(t, client, "b", carryOut)
	joined(t, a, b)
	carriedOut(t, client)
	remove(t, client, prefixes.Source+key)
	eventually(t, "a has it in hands", func() bool { return a.Queue().Stats().Processing == 1 })
	p.cut()
	carriedOut(t, client)
	p.mend()
	close(stuck)
	joined(t, a, b)
}

// TestStrayEffects: an effect without an object is deleted, and an object whose effect has gone
// gets another.
func TestStrayEffects(t *testing.T) {
	nodes := startCluster(t, 1)
	client := dial(t, endpoints(nodes)...)
	put(t, client, prefixes.Source+"k", "x")
	put(t, client, prefixes.Effects+"before", "stray 0")
	startReplica(t, client, "a", carryOut)
	carriedOut(t, client)
	put(t, client, prefixes.Effects+"after", "stray 0")
	carriedOut(t, client)
	remove(t, client, prefixes.Effects+"k")
	carriedOut(t, client)
}

// TestUndecodableObject: reconcile never sees what cannot be decoded, and GiveUp does.
func TestUndecodableObject(t *testing.T) {
	nodes := startCluster(t, 1)
	client := dial(t, endpoints(nodes)...)
	given := make(chan error, 10)
	c := etcd.NewController(client, prefixes, text, carryOut, etcd.Options{
		TTL: 3 * time.Second, Run: typedqueue.RunOptions[string]{GiveUp: func(_ string, err error) { given <- err }},
	})
	put(t, client, prefixes.Source+"k", "bad")
	background(t, c.Run)
	if err := receive(t, "the object is given up", given); !strings.Contains(err.Error(), "not a text") {
		t.Error(err)
	}
	put(t, client, prefixes.Source+"k", "good")
	carriedOut(t, client)
}

// TestNameIsTaken: of two replicas with one name the second waits until the first has left.
func TestNameIsTaken(t *testing.T) {
	nodes := startCluster(t, 1)
	client := dial(t, endpoints(nodes)...)
	h := newHands()
	putAll(t, client, 10, "x")
	a := startReplica(t, client, "a", h.watched(carryOut))
	carriedOut(t, client)
	again := startReplica(t, dial(t, endpoints(nodes)...), "a", h.watched(carryOut))
	putAll(t, client, 10, "y")
	carriedOut(t, client)
	if again.Members() != nil {
		t.Error("both are members")
	}
	a.stop()
	eventually(t, "the other joins", func() bool { return len(again.Members()) == 1 })
	putAll(t, client, 10, "z")
	carriedOut(t, client)
	h.verify(t)
}

// TestEnds: Run leaves nothing behind, neither in etcd nor here, and can run again.
func TestEnds(t *testing.T) {
	nodes := startCluster(t, 1)
	client := dial(t, endpoints(nodes)...)
	var told [][]string
	c := newReplica(client, "a", carryOut, func(members []string, _, _ int) { told = append(told, members) })
	for _, value := range []string{"one", "two"} {
		told = nil
		putAll(t, client, 10, value)
		stop := background(t, c.Run)
		carriedOut(t, client)
		stop()
		if got := content(t, client, prefixes.Members); len(got) != 0 {
			t.Errorf("members after Run: %v", got)
		}
		if len(told) != 2 || !slices.Equal(told[0], []string{"a"}) || told[1] != nil {
			t.Errorf("OnMembers was told %v", told)
		}
		buf := make([]byte, 1<<20)
		stacks := string(buf[:runtime.Stack(buf, true)])
		for _, stack := range strings.Split(stacks, "\n\n")[1:] {
			if strings.Contains(stack, "typedqueue/etcd.") {
				t.Errorf("a goroutine is left:\n%s", stack)
			}
		}
	}
}

// TestShutDownQueue: to shut the queue down ends Run, which leaves the members.
func TestShutDownQueue(t *testing.T) {
	nodes := startCluster(t, 1)
	client := dial(t, endpoints(nodes)...)
	putAll(t, client, 10, "x")
	c := newReplica(client, "a", carryOut, nil)
	ended := make(chan error, 1)
	go func() { ended <- c.Run(t.Context()) }()
	carriedOut(t, client)
	c.Queue().ShutDown()
	if err := receive(t, "Run ends", ended); !errors.Is(err, typedqueue.ErrShutDown) {
		t.Errorf("Run = %v", err)
	}
	if got := content(t, client, prefixes.Members); len(got) != 0 {
		t.Errorf("members after Run: %v", got)
	}
}

// TestComingAndGoing joins, leaves, cuts off and mends replicas at random, restarts the server,
// compacts, and changes keys all the while.
func TestComingAndGoing(t *testing.T) {
	nodes := startCluster(t, 1)
	client := dial(t, endpoints(nodes)...)
	h := newHands()
	names := []string{"a", "b", "c", "d"}
	proxies := map[string]*proxy{}
	running := map[string]replica{}
	for _, name := range names {
		proxies[name] = startProxy(t, nodes[0].endpoint())
	}
	random := newRandom(t)
	for range scale(t, 12) {
		name := names[random.IntN(len(names))]
		switch r, runs := running[name]; {
		case !runs:
			running[name] = startReplica(t, dial(t, proxies[name].endpoint()), name, h.watched(carryOut))
		case random.IntN(2) == 0:
			proxies[name].mend()
			r.stop()
			delete(running, name)
		case random.IntN(2) == 0:
			proxies[name].cut()
		default:
			proxies[name].mend()
		}
		if random.IntN(8) == 0 {
			nodes[0].stop()
			nodes[0].start(t)
		}
		for range 20 {
			write(t, client, random)
		}
		if random.IntN(4) == 0 {
			compact(t, client)
		}
	}
	var all []replica
	for _, name := range names {
		proxies[name].mend()
		if _, runs := running[name]; !runs {
			running[name] = startReplica(t, dial(t, proxies[name].endpoint()), name, h.watched(carryOut))
		}
		all = append(all, running[name])
	}
	joined(t, all...)
	carriedOut(t, client)
	h.verify(t)
}
