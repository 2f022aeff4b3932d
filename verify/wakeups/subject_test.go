package wakeups

import (
	"context"
	"time"

	"example.com/typedqueue"
)

// subject is a queue, as far as all of them have the same to offer, and more if it has that.
type subject struct {
	add    func(key int)
	addAll func(keys ...int) // in one step; a FIFO forgets what was pending
	forget func(key int)
	take   func(ctx context.Context, work func()) error // gets one, works, is done with it
	end    func()

	drain  func(context.Context) error // nil in a FIFO and DeltaFIFO
	delays delays                      // nil if it has none
}

// subjects make one of each.
var subjects = []struct {
	name string
	make func() subject
}{
	{"Queue", func() subject { return workQueue(typedqueue.NewQueue[int](typedqueue.Options{})) }},
	{"DelayingQueue", func() subject { return delaying(typedqueue.NewDelayingQueue[int](typedqueue.Options{})) }},
	{"RateLimitingQueue", func() subject { return delaying(newRateLimiting()) }},
	{"FIFO", func() subject {
		q := typedqueue.NewFIFO(itself)
		return line(q, func(ctx context.Context, work func()) error {
			_, err := q.Pop(ctx, func(int, int, bool) error { work(); return nil })
			return err
		})
	}},
	{"DeltaFIFO", func() subject {
		q := typedqueue.NewDeltaFIFO(itself, typedqueue.DeltaFIFOOptions[int, int]{})
		return line(q, func(ctx context.Context, work func()) error {
			_, err := q.Pop(ctx, func(int, typedqueue.Deltas[int], bool) error { work(); return nil })
			return err
		})
	}},
}

func itself(key int) (int, error) { return key, nil }

// newRateLimiting returns a queue whose limiter always answers a second.
func newRateLimiting() *typedqueue.RateLimitingQueue[int] {
	limiter := typedqueue.NewItemFastSlowRateLimiter[int](time.Second, time.Second, 0)
	return typedqueue.NewRateLimitingQueue(limiter, typedqueue.Options{})
}

// anyWorkQueue is what all work queues have.
type anyWorkQueue interface {
	Add(key int)
	AddAll(keys ...int)
	Cancel(key int) bool
	GetContext(ctx context.Context) (int, error)
	Done(key int)
	ShutDown()
	Drain(ctx context.Context) error
}

func workQueue(q anyWorkQueue) subject {
	return subject{
		add:    q.Add,
		addAll: q.AddAll,
		forget: func(key int) { q.Cancel(key) },
		take: func(ctx context.Context, work func()) error {
			key, err := q.GetContext(ctx)
			if err != nil {
				return err
			}
			work()
			q.Done(key)
			return nil
		},
		end:   q.ShutDown,
		drain: q.Drain,
	}
}

// delays are what queues with delays have.
type delays interface {
	AddAfter(key int, delay time.Duration)
	Reschedule(key int, delay time.Duration)
}

func delaying(q interface {
	anyWorkQueue
	delays
}) subject {
	s := workQueue(q)
	s.delays = q
	return s
}

// line makes a subject of a FIFO or DeltaFIFO. Their writes fail once they are closed, as they
// must, so that nothing comes of them.
func line(q interface {
	Add(int) error
	Replace([]int) error
	DeleteKey(int) error
	Close()
}, take func(context.Context, func()) error) subject {
	return subject{
		add:    func(key int) { _ = q.Add(key) },
		addAll: func(keys ...int) { _ = q.Replace(keys) },
		forget: func(key int) { _ = q.DeleteKey(key) },
		take:   take,
		end:    q.Close,
	}
}
