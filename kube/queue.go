package kube

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"

	"example.com/typedqueue"
)

// What the compiler promises: our queues are client-go's, and limiters serve both ways.
var (
	_ workqueue.TypedInterface[int]             = (*typedqueue.Queue[int])(nil)
	_ workqueue.TypedDelayingInterface[int]     = (*typedqueue.DelayingQueue[int])(nil)
	_ workqueue.TypedRateLimitingInterface[int] = (*typedqueue.RateLimitingQueue[int])(nil)
	_ priorityqueue.PriorityQueue[int]          = PriorityQueue[int]{}

	_ workqueue.TypedRateLimiter[int] = typedqueue.RateLimiter[int](nil)
	_ typedqueue.RateLimiter[int]     = workqueue.TypedRateLimiter[int](nil)
)

// PriorityQueue is a RateLimitingQueue that controller-runtime takes for its own priority
// queue: a controller then gives what comes from the initial list or a resync the priority
// -100, and keeps an item's priority over retries. Everything but AddWithOpts and ShutDown is
// the embedded queue's, which must not be nil. So, unlike controller-runtime's,
// ShutDownWithDrain waits until all is done.
type PriorityQueue[T comparable] struct {
	*typedqueue.RateLimitingQueue[T]
}

// NewQueue returns a queue that is ready for the NewQueue of controller-runtime's
// controller.Options:
//
//	builder.WithOptions(controller.Options{NewQueue: kube.NewQueue[reconcile.Request]})
//
// It is a [PriorityQueue], also where UsePriorityQueue is false: there, return the embedded
// RateLimitingQueue. It has no metrics: for those, make one of these by hand. The name,
// which is the controller's, is not used. A nil limiter is typedqueue's default one.
func NewQueue[T comparable](name string, limiter workqueue.TypedRateLimiter[T]) workqueue.TypedRateLimitingInterface[T] {
	return PriorityQueue[T]{typedqueue.NewRateLimitingQueue[T](limiter, typedqueue.Options{})}
}

// AddWithOpts adds each of items: after o.After, after what the limiter says if
// o.RateLimited, after the shorter of both if both are wanted, or else at once. Without
// o.Priority it is Add, AddAfter and AddRateLimited, else these with it; of several
// priorities the highest stays. A merged call is not a failure, so unlike in
// controller-runtime it is not charged to the limiter.
func (q PriorityQueue[T]) AddWithOpts(o priorityqueue.AddOpts, items ...T) {
	after, limited := q.AddAfter, q.AddRateLimited
	if o.Priority != nil {
		after = func(item T, delay time.Duration) { q.AddAfterWithPriority(item, delay, *o.Priority) }
		limited = func(item T) { q.AddRateLimitedWithPriority(item, *o.Priority) }
	}
	for _, item := range items {
		if o.After > 0 || !o.RateLimited {
			after(item, o.After)
		}
		if o.RateLimited { // second: should the limiter say 0, this Add ends the wait, which else would begin beside it
			limited(item)
		}
	}
}

// ShutDown shuts the queue down, as the embedded queue's does, and drops what is ready or is
// to run again after its Done, as controller-runtime's queue does: a controller whose manager
// ends, or leads no longer, must not go on. Until it returns, Get may still hand out some
// of it. It does not block, and may be called again. O(n) for n items. To have the backlog
// handed out, call the embedded queue's ShutDown.
func (q PriorityQueue[T]) ShutDown() {
	q.RateLimitingQueue.ShutDown()
	left := q.Snapshot()
	for _, item := range left.Ready {
		q.Cancel(item)
	}
	for _, p := range left.Processing { // some are dirty
		q.Cancel(p.Item)
	}
}
