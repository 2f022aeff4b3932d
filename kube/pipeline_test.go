package kube_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"pgregory.net/rapid"

	"example.com/typedqueue"
	"example.com/typedqueue/kube"
)

type (
	configMap      = *corev1.ConfigMap
	configMapKey   = typedqueue.NamespacedName
	configMapStore = typedqueue.Store[configMapKey, configMap]
	configMapFIFO  = typedqueue.DeltaFIFO[configMapKey, configMap]
)

func newStoreAndFIFO() (*configMapStore, *configMapFIFO) {
	key := typedqueue.MetaNamespaceKey[configMap]
	store := typedqueue.NewStore(key)
	return store, typedqueue.NewDeltaFIFO(key, typedqueue.DeltaFIFOOptions[configMapKey, configMap]{KnownObjects: store})
}

// notice is what a handler is told of one object.
type notice struct {
	what     string // add, update, delete
	old, new string // versions
	initial  bool   // an add of the initial list
	unknown  bool   // a delete whose final state is not known
}

// record is all that a handler was told, by key. Between keys there is no order.
type record struct {
	mu      sync.Mutex
	notices map[string][]notice
}

func (r *record) add(key string, n notice) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.notices == nil {
		r.notices = map[string][]notice{}
	}
	r.notices[key] = append(r.notices[key], n)
}

// handler records for Apply.
func (r *record) handler() typedqueue.Handler[configMapKey, configMap] {
	return typedqueue.Handler[configMapKey, configMap]{
		OnAdd: func(key configMapKey, obj configMap, initial bool) {
			r.add(key.String(), notice{what: "add", new: obj.ResourceVersion, initial: initial})
		},
		OnUpdate: func(key configMapKey, old, obj configMap) {
			r.add(key.String(), notice{what: "update", old: old.ResourceVersion, new: obj.ResourceVersion})
		},
		OnDelete: func(key configMapKey, obj configMap, unknown bool) {
			r.add(key.String(), notice{what: "delete", old: obj.ResourceVersion, unknown: unknown})
		},
	}
}

// A record is also client-go's handler.
var _ cache.ResourceEventHandler = (*record)(nil)

func (r *record) OnAdd(obj any, initial bool) {
	key, _ := cache.MetaNamespaceKeyFunc(obj)
	r.add(key, notice{what: "add", new: obj.(configMap).ResourceVersion, initial: initial})
}

func (r *record) OnUpdate(old, obj any) {
	key, _ := cache.MetaNamespaceKeyFunc(obj)
	r.add(key, notice{what: "update", old: old.(configMap).ResourceVersion, new: obj.(configMap).ResourceVersion})
}

func (r *record) OnDelete(obj any) {
	key, _ := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	d, unknown := obj.(cache.DeletedFinalStateUnknown)
	if unknown {
		obj = d.Obj
	}
	r.add(key, notice{what: "delete", old: obj.(configMap).ResourceVersion, unknown: unknown})
}

func (r *record) count(matches func(notice) bool) (n int) {
	for _, notices := range r.notices {
		for _, x := range notices {
			if matches(x) {
				n++
			}
		}
	}
	return n
}

// mirror is something that keeps up with a source, of its own.
type mirror struct {
	*source
	record
	run     func(ctx context.Context)
	synced  func() bool
	list    func() []any
	version func() string // the last it knows of
}

func (m *mirror) versions() map[string]string {
	versions := map[string]string{}
	for _, obj := range m.list() {
		key, _ := cache.MetaNamespaceKeyFunc(obj)
		versions[key] = obj.(configMap).ResourceVersion
	}
	return versions
}

// hitches are what can go wrong in a consumer: it is slow, now and then so slow that a source is
// listed again meanwhile, or fails and wants to try again.
type hitches struct {
	mu       sync.Mutex
	random   *rand.Rand
	requeues int
	longest  int // of the deltas that came together
}

func newHitches() *hitches { return &hitches{random: rand.New(rand.NewPCG(1, 2))} }

func (h *hitches) hitch(deltas int) error {
	h.mu.Lock()
	delay := time.Duration(h.random.IntN(50)) * time.Millisecond
	if h.random.IntN(8) == 0 {
		delay *= 100
	}
	fails := h.random.IntN(8) == 0
	h.longest = max(h.longest, deltas)
	if fails {
		h.requeues++
	}
	h.mu.Unlock()
	time.Sleep(delay)
	if fails {
		return typedqueue.Requeue(errors.New("not now"))
	}
	return nil
}

// newReflected is client-go's Reflector, our DeltaFIFO, two consumers, Apply, our Store.
func newReflected(s script, resync time.Duration, h *hitches) *mirror {
	store, fifo := newStoreAndFIFO()
	m := &mirror{source: newSource(s), synced: fifo.HasSynced, list: func() []any { return listed(store.List()) }}
	r := cache.NewReflectorWithOptions(m.source, configMap(nil), kube.AsReflectorStore(fifo), cache.ReflectorOptions{ResyncPeriod: resync})
	m.version = r.LastSyncResourceVersion
	consume := func(ctx context.Context) {
		for ctx.Err() == nil {
			fifo.Pop(ctx, func(key configMapKey, deltas typedqueue.Deltas[configMap], initial bool) error {
				if err := h.hitch(len(deltas)); err != nil {
					return err
				}
				return typedqueue.Apply(store, key, deltas, initial, m.handler())
			})
		}
	}
	m.run = func(ctx context.Context) {
		var wg sync.WaitGroup
		wg.Go(func() { r.RunWithContext(ctx) })
		wg.Go(func() { consume(ctx) })
		wg.Go(func() { consume(ctx) })
		wg.Wait()
	}
	return m
}

func listed(objs []configMap) (list []any) {
	for _, obj := range objs {
		list = append(list, obj)
	}
	return list
}

// newControlled is client-go's Controller on our DeltaFIFO, and our Store as its Indexer.
func newControlled(s script, resync time.Duration, h *hitches) *mirror {
	store, fifo := newStoreAndFIFO()
	x, err := kube.AsIndexer(store, nil)
	must(err)
	m := &mirror{source: newSource(s), list: x.List}
	c := cache.New(&cache.Config{
		Queue:            kube.AsQueue(fifo),
		ListerWatcher:    m.source,
		ObjectType:       configMap(nil),
		FullResyncPeriod: resync,
		Process: func(obj any, initial bool) error {
			if err := h.hitch(len(obj.(cache.Deltas))); err != nil {
				return err
			}
			return process(x, obj.(cache.Deltas), initial, m)
		},
	})
	m.run, m.synced, m.version = c.RunWithContext, c.HasSynced, c.LastSyncResourceVersion
	return m
}

// process is what client-go's informers do with deltas.
func process(x cache.Indexer, deltas cache.Deltas, initial bool, h cache.ResourceEventHandler) error {
	for _, d := range deltas {
		if d.Type == cache.Deleted {
			if err := x.Delete(d.Object); err != nil {
				return err
			}
			h.OnDelete(d.Object)
			continue
		}
		old, existed, err := x.Get(d.Object)
		if err == nil {
			err = x.Update(d.Object)
		}
		if err != nil {
			return err
		}
		if existed {
			h.OnUpdate(old, d.Object)
		} else {
			h.OnAdd(d.Object, initial)
		}
	}
	return nil
}

// newStored is client-go's Reflector that fills our Store itself. It tells nobody.
func newStored(s script) *mirror {
	store, _ := newStoreAndFIFO()
	m := &mirror{source: newSource(s), list: func() []any { return listed(store.List()) }, synced: always}
	r := cache.NewReflectorWithOptions(m.source, configMap(nil), kube.AsReflectorStore(store), cache.ReflectorOptions{})
	m.run, m.version = r.RunWithContext, r.LastSyncResourceVersion
	return m
}

// newIndexed is newStored with our Store as an Indexer, which knows versions itself.
func newIndexed(s script) *mirror {
	store, _ := newStoreAndFIFO()
	x, err := kube.AsIndexer(store, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	must(err)
	m := &mirror{source: newSource(s), list: x.List, synced: always, version: x.LastStoreSyncResourceVersion}
	m.run = cache.NewReflectorWithOptions(m.source, configMap(nil), x, cache.ReflectorOptions{}).RunWithContext
	return m
}

func always() bool { return true }

// newInformed is client-go's informer.
func newInformed(s script, resync time.Duration) *mirror {
	m := &mirror{source: newSource(s)}
	store, c := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: m.source, ObjectType: configMap(nil), Handler: m, ResyncPeriod: resync,
	})
	m.run, m.synced, m.list, m.version = c.RunWithContext, c.HasSynced, store.List, c.LastSyncResourceVersion
	return m
}

// newShared is client-go's shared informer.
func newShared(s script, resync time.Duration) *mirror {
	m := &mirror{source: newSource(s)}
	i := cache.NewSharedIndexInformer(m.source, &corev1.ConfigMap{}, resync, nil)
	_, err := i.AddEventHandler(m)
	must(err)
	m.run, m.synced, m.list, m.version = i.RunWithContext, i.HasSynced, i.GetStore().List, i.LastSyncResourceVersion
	return m
}

// mirrors are all there are.
type mirrors struct {
	reflected, controlled, stored, indexed *mirror // ours
	informed, shared                       *mirror // client-go's
	hitches                                *hitches
}

func (ms mirrors) all() map[string]*mirror {
	return map[string]*mirror{
		"reflector": ms.reflected, "controller": ms.controlled, "store": ms.stored,
		"indexer": ms.indexed, "informer": ms.informed, "shared informer": ms.shared,
	}
}

// keepUp lets all mirrors keep up with s, and returns them when they have. It must run in a
// bubble.
func keepUp(s script, resync, rest time.Duration) mirrors {
	h := newHitches()
	ms := mirrors{
		reflected:  newReflected(s, resync, h),
		controlled: newControlled(s, resync, h),
		stored:     newStored(s),
		indexed:    newIndexed(s),
		informed:   newInformed(s, resync),
		shared:     newShared(s, resync),
		hitches:    h,
	}
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), klog.Logger{}))
	var wg sync.WaitGroup
	for _, m := range ms.all() {
		wg.Go(func() { m.run(ctx) })
	}
	for _, m := range ms.all() {
		<-m.finished
	}
	time.Sleep(rest) // for consumers that are slow
	synctest.Wait()
	cancel()
	wg.Wait()
	return ms
}

// agree checks that all mirrors have what the source has, and have told the same. It compares
// what a handler is told of each key, in order, whether it came in one batch or more.
func (ms mirrors) agree(t interface {
	Helper()
	Errorf(string, ...any)
}) {
	t.Helper()
	for name, m := range ms.all() {
		if got, want := m.versions(), m.source.versions(); !maps.Equal(got, want) {
			t.Errorf("%s has %v, its source %v", name, got, want)
		}
		if got, want := m.version(), m.source.version(); got != want {
			t.Errorf("%s has version %s, its source %s", name, got, want)
		}
		if !m.synced() {
			t.Errorf("%s has not synced", name)
		}
	}
	same := func(name string, got, want map[string][]notice) {
		for key := range union(got, want) {
			if !reflect.DeepEqual(got[key], want[key]) {
				t.Errorf("%s told of %s\n%v\nclient-go's informer\n%v", name, key, got[key], want[key])
			}
		}
	}
	want := ms.informed.notices
	same("reflector", ms.reflected.notices, want)
	same("controller", ms.controlled.notices, want)
	same("shared informer", ms.shared.notices, want)
}

func union[V any](a, b map[string]V) map[string]V {
	both := maps.Clone(a)
	if both == nil {
		both = map[string]V{}
	}
	maps.Copy(both, b)
	return both
}

// first is a pause for the initial list to be processed: as long as that has not happened,
// which adds belong to it depends on who is fast.
const first = time.Hour

// TestMirrors goes through the ways in which a watch can end and begin again, one by one.
func TestMirrors(t *testing.T) {
	put := func(i int) step { return step{change: change{object: i}} }
	del := func(i int) step { return step{change: change{object: i, delete: true}} }
	lost := []change{{object: 0, delete: true}, {object: 1}, {object: 2, delete: true}, {object: 2}, {object: 9}}
	unknown := func(n notice) bool { return n.unknown }
	repeat := func(n notice) bool { return n.what == "update" && n.old == n.new }
	requeues, longest := 0, 0
	for name, c := range map[string]struct {
		start    []fault
		steps    []step
		request  string // which there must have been
		unknowns int    // deletions of unknown final state
		repeats  int    // updates that change nothing
	}{
		"changes":         {steps: []step{put(0), put(9), del(0), put(0), del(0), del(1)}, request: "list "},
		"bookmark":        {steps: []step{put(0), {elsewhere: true}, {bookmark: true}, {end: &end{forget: true}}, put(1)}, request: "bookmark"},
		"no bookmark":     {steps: []step{put(0), {elsewhere: true}, {end: &end{forget: true}}, put(1)}, request: "too old", repeats: 5},
		"dropped":         {steps: []step{put(0), {end: &end{missed: lost}}, put(1)}, request: "end "},
		"expired event":   {steps: []step{{end: &end{event: "expired", missed: lost, forget: true}}, put(1)}, request: "end expired", unknowns: 1, repeats: 2},
		"gone event":      {steps: []step{{end: &end{event: "gone", missed: lost, forget: true}}, put(1)}, request: "end gone", unknowns: 1, repeats: 2},
		"expired watch":   {steps: []step{{end: &end{missed: lost, forget: true}}, put(1)}, request: "too old", unknowns: 1, repeats: 2},
		"expired list":    {steps: []step{{end: &end{event: "expired", missed: lost, refusals: []fault{"expired", "expired", "gone"}}}}, request: "list expired", unknowns: 1, repeats: 2},
		"ahead":           {steps: []step{{end: &end{event: "expired", missed: lost, refusals: []fault{"ahead", "ahead"}}}}, request: "list ahead", unknowns: 1, repeats: 2},
		"internal":        {steps: []step{{end: &end{event: "internal", missed: lost}}}, request: "end internal", unknowns: 1, repeats: 2},
		"busy":            {steps: []step{{end: &end{event: "busy", missed: lost, refusals: []fault{"busy", refused}}}}, request: "watch busy"},
		"refused":         {steps: []step{{end: &end{missed: lost, refusals: []fault{refused, refused, refused}}}}, request: "watch refused"},
		"unavailable":     {steps: []step{{end: &end{missed: lost, refusals: []fault{"unavailable"}}}}, request: "watch unavailable", unknowns: 1, repeats: 2},
		"torn":            {steps: []step{{end: &end{event: "gone", missed: lost, refusals: []fault{torn, torn, torn}}}}, request: "list torn", unknowns: 1, repeats: 2},
		"a bad beginning": {start: []fault{"internal", "expired", refused, torn, "ahead", "busy"}, request: "list torn"},
	} {
		for _, l := range listings {
			t.Run(fmt.Sprint(name, "/", l), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := script{objects: 5, listing: l, refusals: c.start, steps: append([]step{{pause: first, bookmark: true}}, c.steps...)}
					ms := keepUp(s, 0, time.Hour)
					ms.agree(t)
					told := &ms.reflected.record
					if n := told.count(unknown); n != c.unknowns {
						t.Errorf("%d deletions of unknown final state, want %d", n, c.unknowns)
					}
					if n := told.count(repeat); n != c.repeats {
						t.Errorf("%d updates that change nothing, want %d", n, c.repeats)
					}
					ms.haveAsked(t, c.request)
					requeues, longest = requeues+ms.hitches.requeues, max(longest, ms.hitches.longest)
				})
			})
		}
	}
	if requeues == 0 || longest < 2 {
		t.Errorf("%d requeues, and %d changes at most in a batch", requeues, longest)
	}
}

// haveAsked checks that request has been made of every source. A streamed list is a list.
func (ms mirrors) haveAsked(t *testing.T, request string) {
	t.Helper()
	for name, m := range ms.all() {
		n := m.requests[request]
		if of, ok := strings.CutPrefix(request, "list "); ok {
			n += m.requests["stream "+of]
		}
		if n == 0 {
			t.Errorf("%s: no %q in %v", name, request, m.requests)
		}
		if (m.requests["stream "] == 0) != (m.script.listing == unasked) {
			t.Errorf("%s: streams in %v, of a source with lists %s", name, m.requests, m.script.listing)
		}
	}
}

// TestMirrorsAtRandom does all of it in any order, and with slow consumers that fail.
func TestMirrorsAtRandom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawScript(t)
		rapid.SyncTest(t, func(t *rapid.T) { keepUp(s, 0, time.Hour).agree(t) })
	})
}

func drawScript(t *rapid.T) script {
	allFaults := []fault{"expired", "gone", "ahead", "internal", "busy", "unavailable", refused, torn}
	changes := rapid.Custom(func(t *rapid.T) change {
		return change{rapid.IntRange(0, 120).Draw(t, "object"), rapid.IntRange(0, 2).Draw(t, "delete") == 0}
	})
	faults := rapid.SliceOfN(rapid.SampledFrom(allFaults), 0, 3)
	ends := rapid.Custom(func(t *rapid.T) *end {
		return &end{
			event:    rapid.SampledFrom([]fault{none, none, "expired", "gone", "internal", "busy", "unavailable"}).Draw(t, "event"),
			missed:   rapid.SliceOfN(changes, 0, 10).Draw(t, "missed"),
			forget:   rapid.Bool().Draw(t, "forget"),
			refusals: faults.Draw(t, "refusals"),
		}
	})
	pauses := rapid.SampledFrom([]time.Duration{0, 0, 0, time.Millisecond, 20 * time.Millisecond, time.Second})
	steps := rapid.Custom(func(t *rapid.T) step {
		st := step{pause: pauses.Draw(t, "pause")}
		switch kind := rapid.IntRange(0, 20).Draw(t, "kind"); {
		case kind < 17:
			st.change = changes.Draw(t, "change")
		case kind < 18:
			st.elsewhere = true
		case kind < 20:
			st.end = ends.Draw(t, "end")
		default:
			st.bookmark = true
		}
		return st
	})
	n := rapid.IntRange(0, 300).Draw(t, "n")
	return script{
		objects:  rapid.IntRange(0, 100).Draw(t, "objects"),
		listing:  rapid.SampledFrom(listings).Draw(t, "listing"),
		refusals: faults.Draw(t, "refusals"),
		steps:    append([]step{{pause: first, bookmark: true}}, rapid.SliceOfN(steps, n, n).Draw(t, "steps")...),
	}
}

// TestMirrorsResync lets nothing be under way when resyncs come: a DeltaFIFO passes over a key
// that has changes, which client-go's informer tells again as they are.
func TestMirrorsResync(t *testing.T) {
	for _, l := range listings {
		t.Run(string(l), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := script{objects: 5, listing: l, steps: []step{
					{pause: 150 * time.Minute, change: change{object: 1}},
					{pause: time.Hour, change: change{object: 2, delete: true}},
					{pause: time.Hour, change: change{object: 9}},
				}}
				ms := keepUp(s, time.Hour, time.Hour)
				ms.agree(t)
				resyncs := ms.reflected.count(func(n notice) bool { return n.what == "update" && n.old == n.new })
				if want := 2*5 + 5 + 4 + 5; resyncs != want {
					t.Errorf("%d notices of resyncs, want %d", resyncs, want)
				}
			})
		})
	}
}
