package linear

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"example.com/typedqueue"
)

var (
	_ Queue         = (*typedqueue.Queue[int])(nil)
	_ DelayingQueue = (*typedqueue.DelayingQueue[int])(nil)
)

func TestQueue(t *testing.T) {
	mustBeLinear(t, QueueModel(), 4000, func(rng *rand.Rand) []porcupine.Operation {
		return runQueue(rng, typedqueue.NewQueue[int](typedqueue.Options{}), basic)
	})
}

func TestDelayingQueue(t *testing.T) {
	mustBeLinear(t, QueueModel(), 4000, func(rng *rand.Rand) []porcupine.Operation {
		return runQueue(rng, typedqueue.NewDelayingQueue[int](typedqueue.Options{}), delaying)
	})
}

// The calls of a producer, each as often as it is drawn.
var (
	basic    = []Op{Add, Add, Add, Add, AddWithPriority, AddWithPriority, AddAll, Cancel, Cancel, Len, TryGet, Done}
	delaying = append([]Op{AddAfter, AddAfter, AddAfter, AddAfter, Reschedule, Reschedule, Waiting, Waiting}, basic...)
)

// runQueue lets some producers, workers and a client that shuts down loose on q.
func runQueue(rng *rand.Rand, q Queue, ops []Op) []porcupine.Operation {
	h := NewHistory()
	main := h.Client()
	var fs []func()
	producers := 1 + rng.IntN(2)
	for range producers {
		fs = append(fs, produce(h.Client(), rand.New(rand.NewPCG(rng.Uint64(), 0)), q, ops))
	}
	for range 1 + rng.IntN(3) {
		fs = append(fs, work(h.Client(), rand.New(rand.NewPCG(rng.Uint64(), 0)), q))
	}
	if rng.IntN(2) == 0 {
		fs = append(fs, stop(h.Client(), rand.New(rand.NewPCG(rng.Uint64(), 0)), q))
	}
	together(producers, func() { main.Do(q, Call{Op: ShutDown}) }, fs)
	return h.Operations(-1)
}

func produce(c *Client, rng *rand.Rand, q Queue, ops []Op) func() {
	return func() {
		for range 5 + rng.IntN(10) {
			c.Do(q, drawCall(rng, pick(rng, ops...)))
			yield(rng, 2)
			if rng.IntN(8) == 0 {
				time.Sleep(time.Microsecond) // so that something comes due
			}
		}
	}
}

func drawCall(rng *rand.Rand, op Op) Call {
	c := Call{Op: op, Item: rng.IntN(Items)}
	switch op {
	case AddAll:
		c.Also = rng.IntN(Items)
	case AddWithPriority:
		c.Priority = rng.IntN(4) - 1
	case AddAfter, Reschedule:
		c.Delay = pick(rng, -1, 0, time.Microsecond, 5*time.Microsecond, 20*time.Microsecond, 50*time.Microsecond, time.Hour)
	case GetContext, Drain:
		c.Delay = pick(rng, 0, time.Microsecond, 5*time.Microsecond, 20*time.Microsecond, time.Minute)
	}
	return c
}

// work gets items, holds them for a while and calls Done, nearly always.
func work(c *Client, rng *rand.Rand, q Queue) func() {
	return func() {
		for range 5 + rng.IntN(8) {
			r := c.Do(q, drawCall(rng, pick(rng, Get, GetWithPriority, GetContext, GetContext, TryGet)))
			if r.End == Took {
				yield(rng, 3)
				if rng.IntN(8) > 0 {
					c.Do(q, Call{Op: Done, Item: r.Item})
				}
			}
		}
	}
}

func stop(c *Client, rng *rand.Rand, q Queue) func() {
	return func() {
		yield(rng, 20)
		for range 1 + rng.IntN(2) {
			c.Do(q, drawCall(rng, pick(rng, ShutDown, Drain, Drain, Drain)))
			yield(rng, 10)
		}
	}
}
