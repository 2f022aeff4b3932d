package kube_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"example.com/typedqueue/kube"
)

func init() { ctrl.SetLogger(logr.Discard()) } // what fails here fails on purpose

// managed is a controller-runtime manager in a bubble. Everything is controller-runtime's
// own, cache, informer, source, handler, controller and builder, but for two things: lists,
// watches and writes go to its fake client, and the queue is ours.
type managed struct {
	client.Client
	queue  kube.PriorityQueue[reconcile.Request]
	cancel context.CancelFunc
	ended  chan error // receives what the manager's Start returns
}

// manage starts a manager that has one worker, or opts' number of them, and a controller of
// Deployments, of which n exist. Its queue has priorities unless opts say that it has not. It
// returns when the initial list has been queued, and all is quiet.
func manage(t *testing.T, n int, opts controller.Options, r reconcile.Func) *managed {
	t.Helper()
	server := fake.NewClientBuilder().WithStatusSubresource(new(appsv1.Deployment))
	for i := range n {
		server = server.WithObjects(deployment(i))
	}
	m := &managed{Client: server.Build(), ended: make(chan error, 1)}
	mgr, err := ctrl.NewManager(&rest.Config{Host: "http://nowhere.invalid"}, managerOptions(m.Client.(client.WithWatch)))
	if err != nil {
		t.Fatal(err)
	}
	opts.SkipNameValidation = new(true) // controller-runtime remembers names for as long as the process lives
	opts.NewQueue = func(name string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
		m.queue = kube.NewQueue(name, limiter).(kube.PriorityQueue[reconcile.Request])
		if opts.UsePriorityQueue != nil && !*opts.UsePriorityQueue {
			return m.queue.RateLimitingQueue
		}
		return m.queue
	}
	if err := ctrl.NewControllerManagedBy(mgr).For(new(appsv1.Deployment)).WithOptions(opts).Complete(r); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	m.cancel = cancel
	go func() { m.ended <- mgr.Start(ctx) }()
	t.Cleanup(func() { m.stop(t) })
	time.Sleep(time.Second) // a cache asks every 100 ms whether its informers have synced
	synctest.Wait()
	return m
}

// managerOptions are those of a manager whose API server is server.
func managerOptions(server client.WithWatch) ctrl.Options {
	return ctrl.Options{
		Logger:  logr.Discard(),
		Metrics: metricsserver.Options{BindAddress: "0"},
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
			mapper := meta.NewDefaultRESTMapper(nil)
			mapper.Add(appsv1.SchemeGroupVersion.WithKind("Deployment"), meta.RESTScopeNamespace)
			return mapper, nil
		},
		NewClient: func(*rest.Config, client.Options) (client.Client, error) { return server, nil },
		Cache: cache.Options{NewInformer: func(_ toolscache.ListerWatcher, obj runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
			return toolscache.NewSharedIndexInformer(fromServer(server), obj, resync, indexers)
		}},
	}
}

// fromServer lists and watches the Deployments of server.
func fromServer(server client.WithWatch) toolscache.ListerWatcher {
	lw := &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
			list := new(appsv1.DeploymentList)
			return list, server.List(ctx, list)
		},
		WatchFuncWithContext: func(ctx context.Context, _ metav1.ListOptions) (apiwatch.Interface, error) {
			return server.Watch(ctx, new(appsv1.DeploymentList))
		},
	}
	return toolscache.ToListWatcherWithWatchListSemantics(lw, listsFirst{})
}

// listsFirst tells a reflector that a watch does not begin with what there is.
type listsFirst struct{}

func (listsFirst) IsWatchListSemanticsUnSupported() bool { return true }

func deployment(i int) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("app-%03d", i)}}
}

func requestOf(i int) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(deployment(i))}
}

// scale makes deployment i want so many replicas.
func (m *managed) scale(t *testing.T, i int, replicas int32) {
	t.Helper()
	d := deployment(i)
	before := client.MergeFrom(d.DeepCopy())
	d.Spec.Replicas = &replicas
	if err := m.Patch(t.Context(), d, before); err != nil {
		t.Fatal(err)
	}
}

// stop ends the manager, and checks that nothing is left in the queue and that no goroutine
// is in it.
func (m *managed) stop(t *testing.T) {
	t.Helper()
	m.cancel()
	if err := <-m.ended; err != nil {
		t.Errorf("the manager returned %v", err)
	}
	synctest.Wait()
	if s := m.queue.Stats(); s.Ready+s.Processing+s.Waiting != 0 || s.StrayDones != 0 || !m.queue.ShuttingDown() {
		t.Errorf("after the end: %+v, ShuttingDown %t", s, m.queue.ShuttingDown())
	}
	if stacks := allStacks(t); strings.Contains(stacks, "example.com/typedqueue.") {
		t.Errorf("a goroutine is in our queue:\n%s", stacks)
	}
}

// allStacks returns the stacks of all goroutines.
func allStacks(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	if err := pprof.Lookup("goroutine").WriteTo(&b, 2); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// diary tells who was reconciled when.
type diary struct {
	begin time.Time
	mu    sync.Mutex
	names []string
	times []time.Duration
}

func newDiary() *diary { return &diary{begin: time.Now()} }

// note notes that req is reconciled, and returns how many notes there were before.
func (d *diary) note(req reconcile.Request) (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.names = append(d.names, req.Name)
	d.times = append(d.times, time.Since(d.begin))
	return len(d.names) - 1
}

// who returns the names noted so far.
func (d *diary) who() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.names)
}

// gaps returns the times between notes.
func (d *diary) gaps() []time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	var gaps []time.Duration
	for i := 1; i < len(d.times); i++ {
		gaps = append(gaps, d.times[i]-d.times[i-1])
	}
	return gaps
}

func (d *diary) check(t *testing.T, gaps ...time.Duration) {
	t.Helper()
	if got := d.gaps(); !slices.Equal(got, gaps) {
		t.Errorf("reconciled after %v, not %v", got, gaps)
	}
}

const ms = time.Millisecond

// inBubble is a subtest in a bubble.
func inBubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// Under a controller-runtime manager, every object is reconciled to its last state.
func TestManagerReconciles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 100
		var server client.Client
		started := make(chan struct{})
		m := manage(t, n, controller.Options{MaxConcurrentReconciles: 4}, func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			<-started
			d := new(appsv1.Deployment)
			if err := server.Get(ctx, req.NamespacedName, d); err != nil {
				return reconcile.Result{}, err
			}
			if d.Spec.Replicas == nil || d.Status.Replicas == *d.Spec.Replicas {
				return reconcile.Result{}, nil
			}
			time.Sleep(10 * ms)
			d.Status.Replicas = *d.Spec.Replicas
			return reconcile.Result{}, server.Status().Update(ctx, d) // a conflict, if it has been scaled meanwhile
		})
		server = m.Client
		close(started)
		last := map[string]int32{}
		for i := range int32(500) {
			time.Sleep(ms)
			which := int(i) * 7 % n
			if i%2 == 0 {
				which %= 10 // often the same
			}
			m.scale(t, which, i+1)
			last[deployment(which).Name] = i + 1
		}
		time.Sleep(time.Hour)

		list := new(appsv1.DeploymentList)
		if err := m.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		if len(list.Items) != n {
			t.Errorf("%d objects, not %d", len(list.Items), n)
		}
		for _, d := range list.Items {
			if d.Status.Replicas != last[d.Name] {
				t.Errorf("%s has %d replicas, not %d", d.Name, d.Status.Replicas, last[d.Name])
			}
		}
		if s := m.queue.Stats(); s.Retries == 0 || s.Ready+s.Processing+s.Waiting != 0 {
			t.Errorf("not what a run with conflicts ends with: %+v", s)
		}
	})
}

// What Reconcile returns, and whether it panics, decides when it is called again.
func TestManagerRetries(t *testing.T) {
	failed := errors.New("failed")
	for name, test := range map[string]struct {
		calls    []func() (reconcile.Result, error) // one after the other; after the last one nothing fails
		gaps     []time.Duration
		failures int // that the limiter remembers in the end
	}{
		"errors back off": {
			calls: repeat(6, func() (reconcile.Result, error) { return reconcile.Result{}, failed }),
			gaps:  []time.Duration{5 * ms, 10 * ms, 20 * ms, 40 * ms, 80 * ms, 160 * ms},
		},
		"a panic is an error": {
			calls: repeat(3, func() (reconcile.Result, error) { panic(failed) }),
			gaps:  []time.Duration{5 * ms, 10 * ms, 20 * ms},
		},
		"RequeueAfter": {
			calls: repeat(2, func() (reconcile.Result, error) { return reconcile.Result{RequeueAfter: time.Hour}, nil }),
			gaps:  []time.Duration{time.Hour, time.Hour},
		},
		"a success forgets": {
			calls: []func() (reconcile.Result, error){
				func() (reconcile.Result, error) { return reconcile.Result{}, failed },
				func() (reconcile.Result, error) { return reconcile.Result{}, failed },
				func() (reconcile.Result, error) { return reconcile.Result{RequeueAfter: time.Minute}, nil },
				func() (reconcile.Result, error) { panic(failed) },
			},
			gaps: []time.Duration{5 * ms, 10 * ms, time.Minute, 5 * ms},
		},
		"a terminal error ends it": {
			calls: []func() (reconcile.Result, error){
				func() (reconcile.Result, error) { return reconcile.Result{}, failed },
				func() (reconcile.Result, error) { return reconcile.Result{}, reconcile.TerminalError(failed) },
			},
			gaps:     []time.Duration{5 * ms},
			failures: 1, // controller-runtime does not Forget
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			d := newDiary()
			m := manage(t, 1, controller.Options{RecoverPanic: new(true)}, func(_ context.Context, req reconcile.Request) (reconcile.Result, error) {
				if n := d.note(req); n < len(test.calls) {
					return test.calls[n]()
				}
				return reconcile.Result{}, nil
			})
			time.Sleep(5 * time.Hour) // short of the resync
			d.check(t, test.gaps...)
			if n := m.queue.NumRequeues(requestOf(0)); n != test.failures {
				t.Errorf("NumRequeues = %d, not %d", n, test.failures)
			}
		})
	}
}

func repeat(n int, f func() (reconcile.Result, error)) []func() (reconcile.Result, error) {
	return slices.Repeat([]func() (reconcile.Result, error){f}, n)
}

// An event ends the wait that a RequeueAfter asked for: the object is reconciled at once, and
// not a second time.
func TestManagerEventEndsRequeueAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDiary()
		m := manage(t, 1, controller.Options{}, func(_ context.Context, req reconcile.Request) (reconcile.Result, error) {
			if d.note(req) == 0 {
				return reconcile.Result{RequeueAfter: time.Hour}, nil
			}
			return reconcile.Result{}, nil
		})
		if n := m.queue.Waiting(); n != 1 {
			t.Errorf("Waiting = %d", n)
		}
		m.scale(t, 0, 1)
		time.Sleep(5 * time.Hour) // short of the resync
		if len(d.gaps()) != 1 || d.gaps()[0] >= time.Hour {
			t.Errorf("reconciled after %v", d.gaps())
		}
	})
}

// What comes from the initial list or a resync has the priority -100 and keeps it over
// retries, so what changes later is reconciled first; unless the queue has no priorities.
func TestManagerPriorities(t *testing.T) {
	for name, test := range map[string]struct {
		calls int // of reconcile, before what is looked at
		prior bool
	}{
		"initial list":                {0, true},
		"initial list, no priorities": {0, false},
		"resync":                      {6, true},
		"resync, no priorities":       {6, false},
	} {
		inBubble(t, name, func(t *testing.T) { testPriorities(t, 6, test.calls, test.prior) })
	}
}

func testPriorities(t *testing.T, n, calls int, prior bool) {
	d := newDiary()
	begun, goOn := make(chan struct{}), make(chan struct{})
	m := manage(t, n, controller.Options{UsePriorityQueue: &prior}, func(_ context.Context, req reconcile.Request) (reconcile.Result, error) {
		switch call := d.note(req); {
		case call == calls:
			close(begun)
			<-goOn
			return reconcile.Result{}, errors.New("failed")
		case call > calls:
			time.Sleep(10 * time.Second) // so that the retry comes while others are ready
		}
		return reconcile.Result{}, nil
	})
	<-begun
	synctest.Wait()
	queued := m.queue.Snapshot()
	if len(queued.Ready) != n-1 || len(queued.Processing) != 1 {
		t.Fatalf("%d objects, and in the queue are %+v", n, queued)
	}
	first := queued.Processing[0].Item.Name
	var ready []string
	for _, req := range queued.Ready {
		ready = append(ready, req.Name)
	}
	last := ready[n-2]
	if err := m.Create(t.Context(), deployment(n)); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	m.scale(t, numberOf(t, last), 1)
	synctest.Wait()
	close(goOn)
	time.Sleep(time.Hour)

	want := []string{first}
	if prior {
		want = append(want, deployment(n).Name, last)
		want = append(want, ready[:n-2]...)
	} else {
		want = append(want, ready...)
		want = append(want, deployment(n).Name)
	}
	want = append(want, first) // it failed, and has the same priority again
	if got := d.who()[calls:]; !slices.Equal(got, want) {
		t.Errorf("reconciled %v, not %v", got, want)
	}
}

// numberOf returns the number of the deployment of that name.
func numberOf(t *testing.T, name string) (i int) {
	t.Helper()
	if _, err := fmt.Sscanf(name, "app-%d", &i); err != nil {
		t.Fatal(err)
	}
	return i
}

// The priority that a Result asks for counts, with an error and with RequeueAfter.
func TestManagerResultPriority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 5
		d := newDiary()
		m := manage(t, n, controller.Options{}, func(_ context.Context, req reconcile.Request) (reconcile.Result, error) {
			switch d.note(req) {
			case 0:
				return reconcile.Result{Priority: new(5)}, errors.New("failed")
			case 2:
				return reconcile.Result{Priority: new(5), RequeueAfter: time.Second}, nil
			case 4:
				return reconcile.Result{}, nil
			}
			time.Sleep(10 * time.Second) // so that the first one is ready when this ends
			return reconcile.Result{}, nil
		})
		var others []string // without the one that is being reconciled
		for _, req := range m.queue.Snapshot().Ready {
			others = append(others, req.Name)
		}
		time.Sleep(time.Hour)
		got := d.who()
		if len(got) != n+2 || got[2] != got[0] || got[4] != got[0] {
			t.Fatalf("reconciled %v: the first one has not come in third and in fifth place", got)
		}
		if rest := []string{got[3], got[5], got[6]}; !slices.Equal(rest, slices.DeleteFunc(others, func(name string) bool { return name == got[0] })) {
			t.Errorf("reconciled %v, not as it was queued: %v", rest, others)
		}
	})
}

// A manager that is stopped lets the workers finish what they have, and no more: it may not
// be the leader any longer. So it is with controller-runtime's own queue.
func TestManagerStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 10
		d := newDiary()
		m := manage(t, n, controller.Options{MaxConcurrentReconciles: 2}, func(_ context.Context, req reconcile.Request) (reconcile.Result, error) {
			if d.note(req) == 0 {
				return reconcile.Result{RequeueAfter: time.Hour}, nil
			}
			time.Sleep(3 * time.Second)
			return reconcile.Result{}, nil
		})
		m.queue.Add(m.queue.Snapshot().Processing[0].Item)
		s := m.queue.Stats()
		if s.Processing != 2 || s.Ready == 0 || s.Waiting != 1 {
			t.Fatalf("before the stop: %+v", s)
		}
		begun := len(d.who())
		m.cancel()
		time.Sleep(time.Minute)
		if got := d.who(); len(got) != begun {
			t.Errorf("reconciled %v, %d of them after the stop", got, len(got)-begun)
		}
		if s := m.queue.Stats(); s.Dropped != 1 {
			t.Errorf("after the stop: %+v", s)
		}
	})
}

// PriorityQueue's ShutDown drops the backlog, the embedded queue's does not.
func TestPriorityQueueShutDown(t *testing.T) {
	for embedded, want := range map[bool][]string{false: nil, true: {"b", "c", "a"}} {
		q := kube.NewQueue[string]("", nil).(kube.PriorityQueue[string])
		q.Add("a")
		q.Get()
		for _, item := range []string{"a", "b", "c"} {
			q.Add(item)
		}
		q.AddAfter("d", time.Hour)
		for range 2 {
			if embedded {
				q.RateLimitingQueue.ShutDown()
			} else {
				q.ShutDown()
			}
		}
		q.Add("e")
		q.Done("a")
		var got []string
		for {
			item, shutdown := q.Get()
			if shutdown {
				break
			}
			got = append(got, item)
			q.Done(item)
		}
		if !slices.Equal(got, want) || q.Len() != 0 || !q.ShuttingDown() {
			t.Errorf("embedded %t: got %q, want %q", embedded, got, want)
		}
	}
}
