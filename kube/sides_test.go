package kube_test

import (
	"reflect"
	"time"
	"unsafe"
	"weak"

	"golang.org/x/time/rate"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"

	"example.com/typedqueue"
	"example.com/typedqueue/kube"
)

// A side is whose things a scenario is done with.
type side struct {
	name string
	make func(name string, l anyLimiter, p workqueue.MetricsProvider) made
	limiterMakers
	objectMakers
}

type (
	anyQueue   = workqueue.TypedRateLimitingInterface[any]
	anyLimiter = workqueue.TypedRateLimiter[any]
)

// made is a queue, and what a trial needs to know of it beyond the interface. Only queue
// keeps it alive: a scenario looks at what becomes of a queue that is dropped.
type made struct {
	queue   anyQueue
	publish func() // brings the metrics up to date, if they are not always
	release func() // ends all goroutines, blocked or not
}

var (
	ours = side{name: "typedqueue", make: makeOurs, limiterMakers: limiterMakers{
		exponential: func(base, max time.Duration) anyLimiter {
			return typedqueue.NewItemExponentialFailureRateLimiter[any](base, max)
		},
		fastSlow: func(fast, slow time.Duration, n int) anyLimiter {
			return typedqueue.NewItemFastSlowRateLimiter[any](fast, slow, n)
		},
		bucket:   bucketOfOurs,
		maxOf:    maxOfOurs,
		maxWait:  func(l anyLimiter, max time.Duration) anyLimiter { return typedqueue.NewWithMaxWaitRateLimiter(l, max) },
		defaults: func() anyLimiter { return typedqueue.NewDefaultControllerRateLimiter[any]() },
	}, objectMakers: objectMakers{newOurStore, newOurFIFO, newOurDeltaFIFO}}
	clientGo = side{name: "client-go", make: makeClientGos, limiterMakers: limiterMakers{
		exponential: workqueue.NewTypedItemExponentialFailureRateLimiter[any],
		fastSlow:    workqueue.NewTypedItemFastSlowRateLimiter[any],
		bucket:      bucketOfClientGo,
		maxOf:       workqueue.NewTypedMaxOfRateLimiter[any],
		maxWait:     workqueue.NewTypedWithMaxWaitRateLimiter[any],
		defaults:    workqueue.DefaultTypedControllerRateLimiter[any],
	}, objectMakers: objectMakers{newTheirStore, newTheirFIFO, newTheirDeltaFIFO}}
	controllerRuntime = side{name: "controller-runtime", make: makeControllerRuntimes}
	realFIFO          = side{name: "RealFIFO", objectMakers: objectMakers{deltaFIFO: newTheirRealFIFO}}
)

// workQueue is a queue of ours with the methods of a PriorityQueue, whose ShutDown is not
// that of a work queue, but controller-runtime's.
type workQueue struct{ kube.PriorityQueue[any] }

func (q workQueue) ShutDown() { q.RateLimitingQueue.ShutDown() }

func makeOurs(name string, l anyLimiter, p workqueue.MetricsProvider) made {
	if p == nil {
		return oursWith(l, typedqueue.Options{}, func(kube.StatsQueue) {})
	}
	publisher := kube.NewPublisher(p, name)
	return oursWith(l, typedqueue.Options{Metrics: publisher.Metrics()}, publisher.Publish)
}

func oursWith(l anyLimiter, opts typedqueue.Options, publish func(kube.StatsQueue)) made {
	q := typedqueue.NewRateLimitingQueue(l, opts)
	w := weak.Make(q)
	return made{
		queue:   workQueue{kube.PriorityQueue[any]{RateLimitingQueue: q}},
		publish: func() { publish(w.Value()) },
		release: whileAlive(q, (*typedqueue.RateLimitingQueue[any]).ShutDown),
	}
}

// makeClientGos makes the inner queues first, which is what client-go does too, so that
// they can be released also where a ShutDown from outside does not reach them any more.
func makeClientGos(name string, l anyLimiter, p workqueue.MetricsProvider) made {
	inner := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[any]{Name: name, MetricsProvider: p})
	delaying := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[any]{
		Name: name, MetricsProvider: p, Queue: inner,
	})
	endDelays := whileAlive(delaying, workqueue.TypedDelayingInterface[any].ShutDown)
	endDrains := whileAlive(inner, (*workqueue.Typed[any]).ShutDown)
	return made{
		queue:   workqueue.NewTypedRateLimitingQueueWithConfig(l, workqueue.TypedRateLimitingQueueConfig[any]{DelayingQueue: delaying}),
		publish: func() {},
		release: func() {
			endDelays()
			endDrains()
		},
	}
}

func makeControllerRuntimes(name string, l anyLimiter, p workqueue.MetricsProvider) made {
	q := priorityqueue.New(name, func(o *priorityqueue.Opts[any]) { o.RateLimiter, o.MetricProvider = l, p })
	return made{q, func() {}, whileAlive(q, func(q priorityqueue.PriorityQueue[any]) {
		attempt(q.ShutDown) // which panics if it is the second
	})}
}

// whileAlive returns a function that calls f with q, which holds a pointer, unless what that
// points to has been collected. It does not keep it alive.
func whileAlive[Q any](q Q, f func(Q)) func() {
	pointer := reflect.ValueOf(q)
	typ, w := pointer.Type().Elem(), weak.Make((*byte)(pointer.UnsafePointer()))
	return func() {
		if p := w.Value(); p != nil {
			f(reflect.NewAt(typ, unsafe.Pointer(p)).Interface().(Q))
		}
	}
}

// limiterMakers make one side's limiters.
type limiterMakers struct {
	exponential func(base, max time.Duration) anyLimiter
	fastSlow    func(fast, slow time.Duration, maxFastAttempts int) anyLimiter
	bucket      func(*rate.Limiter) anyLimiter
	maxOf       func(...anyLimiter) anyLimiter
	maxWait     func(anyLimiter, time.Duration) anyLimiter
	defaults    func() anyLimiter
}

func bucketOfOurs(l *rate.Limiter) anyLimiter { return typedqueue.NewBucketRateLimiter[any](l) }

func bucketOfClientGo(l *rate.Limiter) anyLimiter {
	return &workqueue.TypedBucketRateLimiter[any]{Limiter: l}
}

func maxOfOurs(limiters ...anyLimiter) anyLimiter {
	var all []typedqueue.RateLimiter[any]
	for _, l := range limiters {
		all = append(all, l)
	}
	return typedqueue.NewMaxOfRateLimiter(all...)
}
