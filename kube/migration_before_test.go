//lint:file-ignore SA1019 the untyped queues are deprecated, but they are what people come from
package kube_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// The code that the guide in README.md starts from. What stands between begin and end stands
// in the guide word for word, which TestGuide checks.

// begin: typed, before
type typedBefore struct {
	queue     workqueue.TypedRateLimitingInterface[string]
	reconcile func(ctx context.Context, key string) error
}

func newTypedBefore(reconcile func(context.Context, string) error) *typedBefore {
	return &typedBefore{
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.DefaultTypedControllerRateLimiter[string](),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: "deployments"},
		),
		reconcile: reconcile,
	}
}

func (c *typedBefore) Run(ctx context.Context, workers int) {
	var group wait.Group
	for range workers {
		group.StartWithContext(ctx, c.work)
	}
	<-ctx.Done()
	c.queue.ShutDown()
	group.Wait()
}

func (c *typedBefore) work(ctx context.Context) {
	for c.next(ctx) {
	}
}

func (c *typedBefore) next(ctx context.Context) bool {
	key, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(key)
	if err := c.reconcile(ctx, key); err != nil && c.queue.NumRequeues(key) < 15 {
		c.queue.AddRateLimited(key)
		return true
	}
	c.queue.Forget(key)
	return true
}

// end

// begin: untyped, before
type untypedBefore struct {
	queue     workqueue.RateLimitingInterface
	reconcile func(ctx context.Context, namespace, name string) error
}

func newUntypedBefore(reconcile func(ctx context.Context, namespace, name string) error) *untypedBefore {
	limiter := workqueue.NewItemExponentialFailureRateLimiter(5*time.Millisecond, time.Minute)
	return &untypedBefore{workqueue.NewRateLimitingQueue(limiter), reconcile}
}

func (c *untypedBefore) next(ctx context.Context) bool {
	obj, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(obj)
	key, ok := obj.([2]string)
	if !ok {
		c.queue.Forget(obj)
		fmt.Printf("want a key, got %T\n", obj)
		return true
	}
	if err := c.reconcile(ctx, key[0], key[1]); err != nil {
		c.queue.AddRateLimited(obj)
		return true
	}
	c.queue.Forget(obj)
	return true
}

// end

// begin: controller-runtime, before
func setUpBefore(mgr ctrl.Manager, r reconcile.Reconciler) error {
	return ctrl.NewControllerManagedBy(mgr).
		For(&appsv1.Deployment{}).
		Complete(r)
}

// end

// begin: consumer, before
type consumerBefore struct {
	fifo    *cache.DeltaFIFO
	store   cache.Indexer
	handler cache.ResourceEventHandlerFuncs
}

func newConsumerBefore(h cache.ResourceEventHandlerFuncs) *consumerBefore {
	store := cache.NewIndexer(cache.DeletionHandlingMetaNamespaceKeyFunc, cache.Indexers{"app": func(obj any) ([]string, error) {
		return []string{obj.(*appsv1.Deployment).Labels["app"]}, nil
	}})
	fifo := cache.NewDeltaFIFOWithOptions(cache.DeltaFIFOOptions{
		KeyFunction: cache.MetaNamespaceKeyFunc, KnownObjects: store, EmitDeltaTypeReplaced: true,
	})
	return &consumerBefore{fifo, store, h}
}

func (c *consumerBefore) Run(ctx context.Context, lw cache.ListerWatcher) {
	go cache.NewReflector(lw, &appsv1.Deployment{}, c.fifo, 0).RunWithContext(ctx)
	go func() { <-ctx.Done(); c.fifo.Close() }()
	for {
		if _, err := c.fifo.Pop(c.process); errors.Is(err, cache.ErrFIFOClosed) {
			return
		}
	}
}

func (c *consumerBefore) process(obj any, isInInitialList bool) error {
	for _, d := range obj.(cache.Deltas) {
		if err := c.apply(d, isInInitialList); err != nil {
			return err
		}
	}
	return nil
}

func (c *consumerBefore) apply(d cache.Delta, isInInitialList bool) error {
	if d.Type == cache.Deleted {
		if err := c.store.Delete(d.Object); err != nil {
			return err
		}
		c.handler.OnDelete(d.Object)
		return nil
	}
	if old, exists, err := c.store.Get(d.Object); err != nil {
		return err
	} else if exists {
		if err := c.store.Update(d.Object); err != nil {
			return err
		}
		c.handler.OnUpdate(old, d.Object)
		return nil
	}
	if err := c.store.Add(d.Object); err != nil {
		return err
	}
	c.handler.OnAdd(d.Object, isInInitialList)
	return nil
}

func (c *consumerBefore) OfApp(app string) ([]any, error) { return c.store.ByIndex("app", app) }

// end
