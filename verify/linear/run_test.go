package linear

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// histories returns how many histories to look at: TYPEDQUEUE_HISTORIES if that is set.
func histories(t *testing.T, usual int) int {
	s := os.Getenv("TYPEDQUEUE_HISTORIES")
	if s == "" {
		return usual
	}
	n, err := strconv.Atoi(s)
	if err != nil || n <= 0 {
		t.Fatalf("TYPEDQUEUE_HISTORIES=%s is no number of histories", s)
	}
	return n
}

// tally counts histories by what became of them, and calls.
type tally struct{ ok, unknown, calls, due int }

func (c *tally) count(ops []porcupine.Operation, result porcupine.CheckResult) {
	if result == porcupine.Ok {
		c.ok++
	} else {
		c.unknown++
	}
	c.calls += len(ops)
	for _, op := range ops {
		if call, ok := op.Input.(Call); ok && call.Op == due {
			c.due++
		}
	}
}

// report prints the counts, and fails the test if of too many histories nothing is known.
func (c *tally) report(t *testing.T) {
	t.Helper()
	t.Logf("%d histories of %d calls: %d linearizable, %d unknown; %d waits could come due",
		c.ok+c.unknown, c.calls, c.ok, c.unknown, c.due)
	if c.unknown*100 > c.ok {
		t.Errorf("%d of %d histories took too long to check", c.unknown, c.ok+c.unknown)
	}
}

// checkAll makes histories and checks them, until one is illegal. That one it returns.
func checkAll(model porcupine.Model, n int, run func(rng *rand.Rand) []porcupine.Operation) (c tally, illegal []porcupine.Operation) {
	for range n {
		ops := run(rand.New(rand.NewPCG(rand.Uint64(), 0)))
		result := Check(model, ops)
		if result == porcupine.Illegal {
			return c, ops
		}
		c.count(ops, result)
	}
	return c, nil
}

// mustBeLinear checks many histories. An illegal one is cut, and drawn.
func mustBeLinear(t *testing.T, model porcupine.Model, usual int, run func(rng *rand.Rand) []porcupine.Operation) {
	c, illegal := checkAll(model, histories(t, usual), run)
	if illegal == nil {
		c.report(t)
		return
	}
	short := Shortest(model, illegal)
	path := filepath.Join(artifacts(t), "history.html")
	if err := Draw(model, short, path); err != nil {
		t.Error(err)
	}
	t.Fatalf("after %d others, no order explains these %d calls, of %d; drawn in %s\n%s",
		c.ok+c.unknown, len(short), len(illegal), path, list(model, short))
}

// artifacts returns a folder that stays when the test is over.
func artifacts(t *testing.T) string {
	if f := flag.Lookup("test.artifacts"); f != nil && f.Value.String() == "true" {
		return t.ArtifactDir()
	}
	dir, err := os.MkdirTemp("", "linear")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// list is a history as text.
func list(model porcupine.Model, ops []porcupine.Operation) (text string) {
	for _, op := range ops {
		text += fmt.Sprintf("%8d to %8d ns, client %d: %s\n", op.Call, op.Return, op.ClientId, model.DescribeOperation(op.Input, op.Output))
	}
	return text
}

// together runs fs at once, as nearly as can be, and returns when all have returned. While they
// run, meanwhile is called once producers of them have, and again now and then.
func together(producers int, meanwhile func(), fs []func()) {
	start := make(chan struct{})
	var first, all sync.WaitGroup
	first.Add(producers)
	for i, f := range fs {
		all.Go(func() {
			<-start
			f()
			if i < producers {
				first.Done()
			}
		})
	}
	close(start)
	first.Wait()
	over := make(chan struct{})
	go func() { all.Wait(); close(over) }()
	for {
		meanwhile()
		select {
		case <-over:
			return
		case <-time.After(time.Millisecond):
		}
	}
}

// yield lets others run, up to n times.
func yield(rng *rand.Rand, n int) {
	for range rng.IntN(n + 1) {
		runtime.Gosched()
	}
}

// pick returns one of choices, which are drawn as often as they are listed.
func pick[T any](rng *rand.Rand, choices ...T) T { return choices[rng.IntN(len(choices))] }
