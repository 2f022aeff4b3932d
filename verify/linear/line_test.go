package linear

import (
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

func TestFIFO(t *testing.T) {
	mustBeLinear(t, FIFOModel(), 4000, func(rng *rand.Rand) []porcupine.Operation { return runLine(rng, NewFIFO()) })
}

func TestDeltaFIFO(t *testing.T) {
	mustBeLinear(t, DeltaFIFOModel(), 4000, func(rng *rand.Rand) []porcupine.Operation {
		return runLine(rng, NewDeltaFIFO())
	})
}

// lineOps are the calls of a producer, each as often as it is drawn.
var lineOps = []Op{Add, Add, Add, Update, Update, Delete, DeleteKey, AddIfNotPresent, Replace, Replace, Resync, Len, HasSynced}

// runLine lets some producers and consumers loose on q.
func runLine(rng *rand.Rand, q Line) []porcupine.Operation {
	h := NewHistory()
	main := h.Client()
	var version atomic.Int32
	var fs []func()
	producers := 1 + rng.IntN(2)
	for range producers {
		fs = append(fs, produceLine(h.Client(), rand.New(rand.NewPCG(rng.Uint64(), 0)), q, &version))
	}
	for range 2 + rng.IntN(2) {
		fs = append(fs, consume(h.Client(), rand.New(rand.NewPCG(rng.Uint64(), 0)), q))
	}
	together(producers, func() { main.DoLine(q, LineCall{Op: Close}) }, fs)
	return h.Operations(-1)
}

func produceLine(c *Client, rng *rand.Rand, q Line, version *atomic.Int32) func() {
	return func() {
		for range 5 + rng.IntN(10) {
			op := pick(rng, lineOps...)
			if rng.IntN(40) == 0 {
				op = Close
			}
			n := 1
			if op == Replace {
				n = rng.IntN(4)
			}
			call := LineCall{Op: op}
			for range n {
				call.Objects = append(call.Objects, Object{rng.IntN(Keys), int(version.Add(1))})
			}
			c.DoLine(q, call)
			yield(rng, 2)
		}
	}
}

func consume(c *Client, rng *rand.Rand, q Line) func() {
	c.Hold = func(rounds int) {
		for range rounds {
			runtime.Gosched()
		}
	}
	return func() {
		for range 5 + rng.IntN(6) {
			c.DoLine(q, LineCall{
				Op:      Pop,
				Delay:   pick(rng, 0, 5*time.Microsecond, 20*time.Microsecond, time.Minute, time.Minute),
				Hold:    rng.IntN(4),
				Outcome: pick(rng, Accept, Accept, Accept, Requeue, Panic),
			})
			yield(rng, 2)
		}
	}
}
