package linear

import (
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

// History is what several clients did with one queue. Its clients may be used by one goroutine
// each; everything else only when they are done.
type History struct {
	start   time.Time
	clients []*Client
}

// NewHistory returns an empty history, whose clock starts now.
func NewHistory() *History { return &History{start: time.Now()} }

// Client records the calls of one goroutine.
type Client struct {
	// Hold, if not nil, is called while Pop is at work on what it took, with the call's Hold.
	Hold func(rounds int)

	id    int
	start time.Time
	ops   []porcupine.Operation
	open  any // the input of the call that has not returned yet
}

// Client adds a client.
func (h *History) Client() *Client {
	c := &Client{id: len(h.clients), start: h.start}
	h.clients = append(h.clients, c)
	return c
}

// Open returns the call that c has not returned from, or nil.
func (c *Client) Open() any { return c.open }

func (c *Client) now() int64 { return int64(time.Since(c.start)) }

// begin notes that a call begins, and returns when.
func (c *Client) begin(input any) (at int64) {
	c.open = input
	return c.now()
}

// end records a call, that began at a time and ends now. A nil output says that it returned
// nothing.
func (c *Client) end(input any, at int64, output any) {
	c.ops = append(c.ops, porcupine.Operation{ClientId: c.id, Input: input, Call: at, Output: output, Return: c.now()})
	c.open = nil
}

// Operations returns all calls that have returned, for a model of this package. With a lag that
// is not negative, what comes due does so at most so much later than it must.
func (h *History) Operations(lag time.Duration) []porcupine.Operation {
	var ops []porcupine.Operation
	for _, c := range h.clients {
		ops = append(ops, c.ops...)
	}
	return append(ops, dues(ops, lag)...)
}

// endOf returns when the last of ops returned.
func endOf(ops []porcupine.Operation) int64 {
	end := int64(math.MinInt64)
	for _, op := range ops {
		end = max(end, op.Return)
	}
	return end
}

var seed = maphash.MakeSeed()

// modelOf returns a model whose states are of type S, the zero one first. step makes a call, and
// reports whether that could have had this result, which is zero if it returned nothing.
func modelOf[S interface {
	comparable
	fmt.Stringer
}, C interface {
	fmt.Stringer
	with(result R) string
}, R any](step func(s *S, c C, r R) (possible bool)) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return *new(S) },
		Step: func(state, input, output any) (bool, any) {
			s := state.(S)
			r, _ := output.(R)
			possible := step(&s, input.(C), r)
			return possible, s
		},
		Hash: func(state any) uint64 { return maphash.Comparable(seed, state.(S)) },
		DescribeOperation: func(input, output any) string {
			if output == nil {
				return input.(C).String()
			}
			return input.(C).with(output.(R))
		},
		DescribeState: func(state any) string { return state.(S).String() },
	}
}

// Shortest returns the shortest prefix of a history that no order of its calls can explain, with
// the calls that are still open at its end. The history must be illegal.
//
// A call that is open may have taken effect or not. So a prefix is illegal only if that is so
// whichever of them are left out; those that stay have the result that they had in the end. Hence
// whatever follows an illegal prefix, it stays illegal, and a search by halves finds the first.
func Shortest(model porcupine.Model, ops []porcupine.Operation) []porcupine.Operation {
	returned, open := until(ops, firstIllegal(model, ops))
	return append(returned, open...)
}

// firstIllegal returns the moment from which on a history is illegal.
func firstIllegal(model porcupine.Model, ops []porcupine.Operation) (at int64) {
	var returns []int64
	for _, op := range ops {
		returns = append(returns, op.Return)
	}
	slices.Sort(returns)
	return returns[sort.Search(len(returns)-1, func(i int) bool { return !legalUntil(model, ops, returns[i]) })]
}

// until returns the calls that had returned at a time, and those that were open.
func until(ops []porcupine.Operation, at int64) (returned, open []porcupine.Operation) {
	for _, op := range ops {
		switch {
		case op.Return <= at:
			returned = append(returned, op)
		case op.Call <= at:
			op.Return = at + 1
			open = append(open, op)
		}
	}
	return returned, open
}

// legalUntil reports whether some order explains what had returned at a time.
func legalUntil(model porcupine.Model, ops []porcupine.Operation, at int64) bool {
	returned, open := until(ops, at)
	var choices []porcupine.Operation
	for _, op := range open {
		if op.Output == nil { // always possible at the very end, so never in the way
			returned = append(returned, op)
		} else {
			choices = append(choices, op)
		}
	}
	for chosen := range 1 << len(choices) {
		some := slices.Clone(returned)
		for i, op := range choices {
			if chosen&(1<<i) != 0 {
				some = append(some, op)
			}
		}
		if Check(model, some) != porcupine.Illegal {
			return true
		}
	}
	return false
}

// patience is how long a search for an order may take: most take less than a millisecond, but a
// few would take for ever.
const patience = 5 * time.Second

// Check tells whether some order of a history's calls explains it, or that this is too hard to
// say.
func Check(model porcupine.Model, ops []porcupine.Operation) porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(model, ops, patience)
}

// Draw writes a page that shows a history, and how far it can be explained.
func Draw(model porcupine.Model, ops []porcupine.Operation, path string) error {
	_, info := porcupine.CheckOperationsVerbose(model, ops, patience)
	return porcupine.VisualizePath(model, info, path)
}
