package sample

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// Queue is what the controller needs of a work queue.
type Queue = workqueue.TypedRateLimitingInterface[cache.ObjectName]

// NewLimiter returns controller-runtime's default limiter. Unlike client-go's it has no bucket
// over all items, for which a run with many faults would wait.
func NewLimiter() workqueue.TypedRateLimiter[cache.ObjectName] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](5*time.Millisecond, 1000*time.Second)
}

// Loop runs so many workers, which call reconcile for what they get from q, until q has
// been shut down and is empty. An error of reconcile means that the key is to be tried again.
type Loop func(ctx context.Context, q Queue, workers int, reconcile func(context.Context, cache.ObjectName) error) error

// ByHand is the Loop as controllers write it themselves, sample-controller among them: Get,
// reconcile, Forget or AddRateLimited, Done.
func ByHand(ctx context.Context, q Queue, workers int, reconcile func(context.Context, cache.ObjectName) error) error {
	next := func() bool {
		key, shutdown := q.Get()
		if shutdown {
			return false
		}
		defer q.Done(key)
		if err := reconcile(ctx, key); err != nil {
			q.AddRateLimited(key)
			return true
		}
		q.Forget(key)
		return true
	}
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for next() {
			}
		})
	}
	running.Wait()
	return nil
}

// Counts are what a controller has seen.
type Counts struct {
	Events     int // of the informer; each is an Add
	Reconciles int
	Retries    int // reconciles that failed; each is an AddRateLimited
	Overlaps   int // reconciles of a key that another worker had in hands. There must be none
}

// Merged returns how many calls of Add and AddRateLimited did without a reconcile of their
// own, once the queue is idle.
func (c Counts) Merged() int { return c.Events + c.Retries - c.Reconciles }

// controller brings a table to the state that Deployments ask for, and tells in each
// Deployment's status that it has.
type controller struct {
	client  kubernetes.Interface
	lister  appslisters.DeploymentLister
	factory informers.SharedInformerFactory
	queue   Queue
	work    time.Duration

	mu     sync.Mutex // guards what follows
	table  map[cache.ObjectName]int32
	hands  map[cache.ObjectName]bool
	counts Counts
}

func newController(client kubernetes.Interface, queue Queue, work time.Duration) (*controller, error) {
	factory := informers.NewSharedInformerFactory(client, 0)
	informer := factory.Apps().V1().Deployments()
	c := &controller{
		client:  client,
		lister:  informer.Lister(),
		factory: factory,
		queue:   queue,
		work:    work,
		table:   map[cache.ObjectName]int32{},
		hands:   map[cache.ObjectName]bool{},
	}
	_, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    c.enqueue,
		UpdateFunc: func(_, d any) { c.enqueue(d) },
		DeleteFunc: c.enqueue,
	})
	return c, err
}

func (c *controller) enqueue(obj any) {
	name, err := cache.DeletionHandlingObjectToName(obj)
	if err != nil {
		panic(err) // only a Deployment can come
	}
	c.mu.Lock()
	c.counts.Events++
	c.mu.Unlock()
	c.queue.Add(name)
}

// sync starts the informer and waits until its cache is filled.
func (c *controller) sync(ctx context.Context) error {
	c.factory.Start(ctx.Done())
	for kind, synced := range c.factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return fmt.Errorf("%v has not synced: %w", kind, context.Cause(ctx))
		}
	}
	return nil
}

// reconcile is reconcileOne with its counts.
func (c *controller) reconcile(ctx context.Context, name cache.ObjectName) error {
	c.take(name)
	err := c.reconcileOne(ctx, name)
	c.release(name, err != nil)
	return err
}

func (c *controller) take(name cache.ObjectName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts.Reconciles++
	if c.hands[name] {
		c.counts.Overlaps++
	}
	c.hands[name] = true
}

func (c *controller) release(name cache.ObjectName, failed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.hands, name)
	if failed {
		c.counts.Retries++
	}
}

func (c *controller) reconcileOne(ctx context.Context, name cache.ObjectName) error {
	d, err := c.lister.Deployments(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.table, name)
		return nil
	}
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.table[name] = *d.Spec.Replicas
	c.mu.Unlock()
	if current(d) {
		return nil
	}
	time.Sleep(c.work) // what changes now is a conflict
	d = d.DeepCopy()   // it is the cache's
	d.Status.ObservedGeneration, d.Status.Replicas = d.Generation, *d.Spec.Replicas
	_, err = c.client.AppsV1().Deployments(name.Namespace).UpdateStatus(ctx, d, metav1.UpdateOptions{})
	if err == nil {
		time.Sleep(c.work) // and what changes now would be lost, but that the queue remembers it
	}
	return err
}

// current reports whether d's status is of its spec.
func current(d *appsv1.Deployment) bool {
	return d.Status.ObservedGeneration == d.Generation && d.Status.Replicas == *d.Spec.Replicas
}

func (c *controller) countsSoFar() Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts
}

func (c *controller) tableNow() map[cache.ObjectName]int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.table)
}
