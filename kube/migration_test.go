package kube_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	cachetesting "k8s.io/client-go/tools/cache/testing"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"example.com/typedqueue"
	"example.com/typedqueue/kube"
	queueprom "example.com/typedqueue/prometheus"
)

// begin: typed, first step
func newTypedFirst(reconcile func(context.Context, string) error) *typedBefore {
	return &typedBefore{
		queue:     typedqueue.NewRateLimitingQueue[string](nil, typedqueue.Options{}),
		reconcile: reconcile,
	}
}

// end

// begin: typed, after
type typedAfter struct {
	queue     *typedqueue.RateLimitingQueue[string]
	reconcile func(ctx context.Context, key string) error
}

func newTypedAfter(reconcile func(context.Context, string) error) *typedAfter {
	return &typedAfter{typedqueue.NewRateLimitingQueue[string](nil, typedqueue.Options{}), reconcile}
}

func (c *typedAfter) Run(ctx context.Context, workers int) error {
	defer c.queue.ShutDown()
	opts := typedqueue.RunOptions[string]{Workers: workers, MaxAttempts: 16}
	return c.queue.Run(ctx, opts, c.reconcile)
}

// end

// begin: untyped, after
type untypedAfter struct {
	queue     *typedqueue.RateLimitingQueue[typedqueue.NamespacedName]
	reconcile func(ctx context.Context, key typedqueue.NamespacedName) error
}

func newUntypedAfter(reconcile func(context.Context, typedqueue.NamespacedName) error) *untypedAfter {
	limiter := typedqueue.NewItemExponentialFailureRateLimiter[typedqueue.NamespacedName](5*time.Millisecond, time.Minute)
	return &untypedAfter{typedqueue.NewRateLimitingQueue(limiter, typedqueue.Options{}), reconcile}
}

func (c *untypedAfter) Run(ctx context.Context) error {
	return c.queue.Run(ctx, typedqueue.RunOptions[typedqueue.NamespacedName]{}, c.reconcile)
}

// end

// begin: controller-runtime, after
func setUpAfter(mgr ctrl.Manager, r reconcile.Reconciler) error {
	return ctrl.NewControllerManagedBy(mgr).
		For(&appsv1.Deployment{}).
		WithOptions(controller.Options{NewQueue: kube.NewQueue[reconcile.Request]}).
		Complete(r)
}

// end

// begin: controller-runtime, with metrics
func setUpWithMetrics(mgr ctrl.Manager, r reconcile.Reconciler, collector *queueprom.Collector) error {
	newQueue := func(name string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
		series := collector.MustClaim(name)
		q := typedqueue.NewRateLimitingQueue[reconcile.Request](limiter, typedqueue.Options{Metrics: series.Metrics()})
		queueprom.Watch(series, q)
		return kube.PriorityQueue[reconcile.Request]{RateLimitingQueue: q}
	}
	return ctrl.NewControllerManagedBy(mgr).
		For(&appsv1.Deployment{}).
		WithOptions(controller.Options{NewQueue: newQueue}).
		Complete(r)
}

// end

// begin: consumer, after
type consumerAfter struct {
	fifo    *typedqueue.DeltaFIFO[typedqueue.NamespacedName, *appsv1.Deployment]
	store   *typedqueue.Store[typedqueue.NamespacedName, *appsv1.Deployment]
	byApp   *typedqueue.Index[string, typedqueue.NamespacedName, *appsv1.Deployment]
	handler typedqueue.Handler[typedqueue.NamespacedName, *appsv1.Deployment]
}

func newConsumerAfter(h typedqueue.Handler[typedqueue.NamespacedName, *appsv1.Deployment]) (*consumerAfter, error) {
	key := typedqueue.MetaNamespaceKey[*appsv1.Deployment]
	store := typedqueue.NewStore(key)
	byApp, err := typedqueue.NewIndex(store, func(d *appsv1.Deployment) ([]string, error) {
		return []string{d.Labels["app"]}, nil
	})
	if err != nil {
		return nil, err
	}
	fifo := typedqueue.NewDeltaFIFO(key, typedqueue.DeltaFIFOOptions[typedqueue.NamespacedName, *appsv1.Deployment]{KnownObjects: store})
	return &consumerAfter{fifo, store, byApp, h}, nil
}

func (c *consumerAfter) Run(ctx context.Context, lw cache.ListerWatcher) {
	go cache.NewReflector(lw, &appsv1.Deployment{}, kube.AsReflectorStore(c.fifo), 0).RunWithContext(ctx)
	for {
		if _, err := c.fifo.Pop(ctx, c.process); ctx.Err() != nil {
			return
		} else if err != nil {
			fmt.Println(err)
		}
	}
}

func (c *consumerAfter) process(key typedqueue.NamespacedName, deltas typedqueue.Deltas[*appsv1.Deployment], isInInitialList bool) error {
	return typedqueue.Apply(c.store, key, deltas, isInInitialList, c.handler)
}

func (c *consumerAfter) OfApp(app string) []*appsv1.Deployment { return c.byApp.Get(app) }

// end

// begin: consumer, first step
func newConsumerFirst(lw cache.ListerWatcher, h cache.ResourceEventHandlerFuncs) (*consumerBefore, cache.Controller, error) {
	key := typedqueue.MetaNamespaceKey[*appsv1.Deployment]
	store := typedqueue.NewStore(key)
	indexer, err := kube.AsIndexer(store, cache.Indexers{"app": func(obj any) ([]string, error) {
		return []string{obj.(*appsv1.Deployment).Labels["app"]}, nil
	}})
	if err != nil {
		return nil, nil, err
	}
	fifo := typedqueue.NewDeltaFIFO(key, typedqueue.DeltaFIFOOptions[typedqueue.NamespacedName, *appsv1.Deployment]{KnownObjects: store})
	c := &consumerBefore{store: indexer, handler: h}
	return c, cache.New(&cache.Config{
		Queue: kube.AsQueue(fifo), ListerWatcher: lw, ObjectType: &appsv1.Deployment{}, Process: c.process,
	}), nil
}

// end

// failing returns a reconcile function that fails each key so many times before it succeeds,
// and a function that tells what it was called with.
func failing[T comparable](times int) (reconcile func(context.Context, T) error, calls func() map[T]int) {
	seen := make(chan map[T]int, 1)
	seen <- map[T]int{}
	reconcile = func(_ context.Context, key T) error {
		m := <-seen
		m[key]++
		n := m[key]
		seen <- m
		if n <= times {
			return errors.New("not yet")
		}
		return nil
	}
	return reconcile, func() map[T]int {
		m := <-seen
		seen <- m
		return m
	}
}

// TestMigration_Typed runs the controller of the guide before, in the middle and after: each
// tries a and b until they succeed, and gives up what never does after 16 attempts.
func TestMigration_Typed(t *testing.T) {
	type queue = workqueue.TypedRateLimitingInterface[string]
	for name, start := range map[string]func(context.Context, func(context.Context, string) error) queue{
		"before": func(ctx context.Context, reconcile func(context.Context, string) error) queue {
			c := newTypedBefore(reconcile)
			go c.Run(ctx, 2)
			return c.queue
		},
		"first step": func(ctx context.Context, reconcile func(context.Context, string) error) queue {
			c := newTypedFirst(reconcile)
			go c.Run(ctx, 2)
			return c.queue
		},
		"after": func(ctx context.Context, reconcile func(context.Context, string) error) queue {
			c := newTypedAfter(reconcile)
			go func() {
				if err := c.Run(ctx, 2); !errors.Is(err, context.Canceled) {
					t.Errorf("Run: %v", err)
				}
			}()
			return c.queue
		},
	} {
		for _, c := range []struct{ fails, calls int }{{0, 1}, {3, 4}, {1000, 16}} {
			t.Run(fmt.Sprintf("%s/fails=%d", name, c.fails), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithCancel(t.Context())
					reconcile, calls := failing[string](c.fails)
					q := start(ctx, reconcile)
					q.Add("a")
					q.Add("b")
					time.Sleep(time.Hour)
					synctest.Wait()
					if got := calls(); got["a"] != c.calls || got["b"] != c.calls || len(got) != 2 {
						t.Errorf("reconciled %v, want each %d times", got, c.calls)
					}
					if q.Len() != 0 || q.NumRequeues("a") != 0 {
						t.Errorf("Len %d, NumRequeues(a) %d, want 0, 0", q.Len(), q.NumRequeues("a"))
					}
					cancel()
					synctest.Wait()
					if !q.ShuttingDown() {
						t.Error("the queue is not shut down")
					}
					time.Sleep(time.Second) // client-go's delaying queue ends at its next tick
				})
			})
		}
	}
}

func TestMigration_Untyped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reconcile, calls := failing[[2]string](2)
		before := newUntypedBefore(func(ctx context.Context, namespace, name string) error {
			return reconcile(ctx, [2]string{namespace, name})
		})
		before.queue.Add([2]string{"ns", "a"})
		go func() {
			for before.next(t.Context()) {
			}
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := calls()[[2]string{"ns", "a"}]; n != 3 {
			t.Errorf("before: reconciled %d times, want 3", n)
		}
		before.queue.ShutDown()

		typed, typedCalls := failing[typedqueue.NamespacedName](2)
		after := newUntypedAfter(typed)
		key := typedqueue.NamespacedName{Namespace: "ns", Name: "a"}
		after.queue.Add(key)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := after.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Run: %v, want deadline exceeded", err)
		}
		if n := typedCalls()[key]; n != 3 {
			t.Errorf("after: reconciled %d times, want 3", n)
		}
	})
}

// TestMigration_ControllerRuntime runs a manager with each of the guide's controllers, which
// reconciles what exists.
func TestMigration_ControllerRuntime(t *testing.T) {
	for name, setUp := range map[string]func(ctrl.Manager, reconcile.Reconciler) error{
		"before": setUpBefore,
		"after":  setUpAfter,
		"with metrics": func(mgr ctrl.Manager, r reconcile.Reconciler) error {
			return setUpWithMetrics(mgr, r, queueprom.NewCollector())
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			opts := managerOptions(fake.NewClientBuilder().WithObjects(deployment(0), deployment(1)).Build())
			opts.Controller.SkipNameValidation = new(true) // controller-runtime remembers names for as long as the process lives
			mgr, err := ctrl.NewManager(&rest.Config{Host: "http://nowhere.invalid"}, opts)
			if err != nil {
				t.Fatal(err)
			}
			d := newDiary()
			err = setUp(mgr, reconcile.Func(func(_ context.Context, req reconcile.Request) (reconcile.Result, error) {
				d.note(req)
				return reconcile.Result{}, nil
			}))
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- mgr.Start(ctx) }()
			time.Sleep(time.Minute)
			synctest.Wait()
			got := d.who()
			slices.Sort(got)
			wantStrings(t, "reconciled", got, deployment(0).Name, deployment(1).Name)
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("the manager returned %v", err)
			}
		})
	}
}

// TestMigration_Consumer runs the consumers of the guide on one source each, which does the
// same, and compares what their handlers were told.
func TestMigration_Consumer(t *testing.T) {
	want := []string{"add ns/a web", "add ns/b db", "update ns/a web db", "delete ns/b"}
	deployment := func(name, app string) *appsv1.Deployment {
		return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{"app": app}}}
	}
	for name, run := range map[string]func(ctx context.Context, lw cache.ListerWatcher, told *[]string) (ofApp func(string) int){
		"before": func(ctx context.Context, lw cache.ListerWatcher, told *[]string) func(string) int {
			c := newConsumerBefore(untypedHandler(told))
			go c.Run(ctx, lw)
			return func(app string) int { return untypedOfApp(t, c, app) }
		},
		"first step": func(ctx context.Context, lw cache.ListerWatcher, told *[]string) func(string) int {
			before, controller, err := newConsumerFirst(lw, untypedHandler(told))
			if err != nil {
				t.Fatal(err)
			}
			go controller.RunWithContext(ctx)
			return func(app string) int { return untypedOfApp(t, before, app) }
		},
		"after": func(ctx context.Context, lw cache.ListerWatcher, told *[]string) func(string) int {
			c, err := newConsumerAfter(typedHandler(told))
			if err != nil {
				t.Fatal(err)
			}
			go c.Run(ctx, lw)
			return func(app string) int { return len(c.OfApp(app)) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := cachetesting.NewFakeControllerSource()
				defer source.Shutdown()
				ctx, cancel := context.WithCancel(t.Context())
				defer synctest.Wait()
				defer cancel()
				var told []string
				ofApp := run(ctx, source, &told)
				synctest.Wait()
				for _, change := range []func(){
					func() { source.Add(deployment("a", "web")) },
					func() { source.Add(deployment("b", "db")) },
					func() { source.Modify(deployment("a", "db")) },
					func() { source.Delete(deployment("b", "db")) },
				} {
					change()
					time.Sleep(time.Minute)
					synctest.Wait()
				}
				if !slices.Equal(told, want) {
					t.Errorf("the handler was told %q, want %q", told, want)
				}
				if web, db := ofApp("web"), ofApp("db"); web != 0 || db != 1 {
					t.Errorf("%d of web and %d of db, want 0 and 1", web, db)
				}
			})
		})
	}
}

func untypedOfApp(t *testing.T, c *consumerBefore, app string) int {
	objs, err := c.OfApp(app)
	if err != nil {
		t.Error(err)
	}
	return len(objs)
}

func untypedHandler(told *[]string) cache.ResourceEventHandlerFuncs {
	h := typedHandler(told)
	key := func(d *appsv1.Deployment) typedqueue.NamespacedName {
		return typedqueue.NamespacedName{Namespace: d.Namespace, Name: d.Name}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			d := obj.(*appsv1.Deployment)
			h.OnAdd(key(d), d, false)
		},
		UpdateFunc: func(old, obj any) {
			d := obj.(*appsv1.Deployment)
			h.OnUpdate(key(d), old.(*appsv1.Deployment), d)
		},
		DeleteFunc: func(obj any) {
			d := obj.(*appsv1.Deployment)
			h.OnDelete(key(d), d, false)
		},
	}
}

func typedHandler(told *[]string) typedqueue.Handler[typedqueue.NamespacedName, *appsv1.Deployment] {
	tell := func(words ...any) { *told = append(*told, strings.TrimSuffix(fmt.Sprintln(words...), "\n")) }
	return typedqueue.Handler[typedqueue.NamespacedName, *appsv1.Deployment]{
		OnAdd: func(key typedqueue.NamespacedName, obj *appsv1.Deployment, _ bool) {
			tell("add", key, obj.Labels["app"])
		},
		OnUpdate: func(key typedqueue.NamespacedName, old, obj *appsv1.Deployment) {
			tell("update", key, old.Labels["app"], obj.Labels["app"])
		},
		OnDelete: func(key typedqueue.NamespacedName, _ *appsv1.Deployment, _ bool) { tell("delete", key) },
	}
}

// TestGuide checks that the code in the guide is the code above, which compiles and runs.
func TestGuide(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]string{}
	for _, m := range regexp.MustCompile("(?s)<!-- (.+?) -->\n```go\n(.*?)```\n").FindAllStringSubmatch(string(readme), -1) {
		shown[m[1]] = m[2]
	}
	tested := map[string]string{}
	for _, file := range []string{"migration_before_test.go", "migration_test.go"} {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?s)\n// begin: (.+?)\n(.*?)\n// end\n`).FindAllStringSubmatch(string(src), -1) {
			tested[m[1]] = m[2]
		}
	}
	if n := strings.Count(string(readme), "```go\n"); n != len(shown) {
		t.Errorf("the guide has %d blocks of code, %d with a name", n, len(shown))
	}
	if len(tested) < 7 {
		t.Errorf("found only %d blocks of code in the tests", len(tested))
	}
	for name, code := range tested {
		if shown[name] != code {
			t.Errorf("%q is not the same in the guide:\n%s\nand in the tests:\n%s", name, shown[name], code)
		}
	}
	for name := range shown {
		if _, ok := tested[name]; !ok {
			t.Errorf("%q is in the guide, and not in the tests", name)
		}
	}
}
