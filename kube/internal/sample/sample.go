// Package sample is a controller of Deployments in the manner of Kubernetes'
// sample-controller, on client-go's fake clientset and shared informers, with any work queue
// that is client-go's TypedRateLimitingInterface. Beside it are a user who changes the
// Deployments, and faults, both of which a seed decides, so that a run can be repeated.
package sample

import (
	"context"
	"fmt"
	"iter"
	"time"

	"k8s.io/client-go/tools/cache"
)

// Scenario is what happens in a run. Its fields must be set, but for Seed and Work.
type Scenario struct {
	Seed    uint64
	Objects int // that exist at first, and the most that exist at a time
	Workers int
	Work    time.Duration // what a reconcile takes from reading an object to writing it, and once more after that
	Phases  []Phase       // in turn; the first one's faults are there from the start, the last one's stay
}

// Names are the names that objects can have.
func (s Scenario) Names() iter.Seq[cache.ObjectName] {
	return func(yield func(cache.ObjectName) bool) {
		for i := range s.Objects {
			if !yield(nameOf(i)) {
				return
			}
		}
	}
}

// Phase is a stretch of a run.
type Phase struct {
	Name    string        // may be empty
	Changes int           // how many changes of one object the user makes
	Every   time.Duration // how long the user waits before each
	// Conflicts and Errors are the shares, from 0 to 1, of status updates that fail with a
	// conflict and with another error that passes.
	Conflicts, Errors float64
}

// Run is a running scenario. Its methods but Play may be called from any goroutine.
type Run struct {
	scenario   Scenario
	server     *server
	controller *controller
	cancel     context.CancelFunc
	ended      chan error // receives what the loop returns
}

// Start creates the objects, starts the controller on q, which must be its own, and returns
// once the objects are in its cache and its workers run.
func Start(ctx context.Context, s Scenario, q Queue, loop Loop) (*Run, error) {
	srv := newServer(s.Seed)
	srv.begin(s.Phases[0])
	if err := srv.seedObjects(ctx, s.Objects); err != nil {
		return nil, err
	}
	c, err := newController(srv.client, q, s.Work)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	r := &Run{scenario: s, server: srv, controller: c, cancel: cancel, ended: make(chan error, 1)}
	if err := r.sync(ctx); err != nil {
		cancel()
		c.factory.Shutdown()
		return nil, err
	}
	go func() { r.ended <- loop(ctx, q, s.Workers, c.reconcile) }()
	return r, nil
}

// sync waits until the objects are in the controller's cache, and it watches for more.
func (r *Run) sync(ctx context.Context) error {
	if err := r.controller.sync(ctx); err != nil {
		return err
	}
	select {
	case <-r.server.watching:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Play is the user: it makes the scenario's changes, and returns after the last one, or once
// ctx is done. It must be called once, by one goroutine.
func (r *Run) Play(ctx context.Context) error {
	for _, p := range r.scenario.Phases {
		r.server.begin(p)
		for range p.Changes {
			select {
			case <-time.After(p.Every):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			if err := r.server.change(ctx, r.scenario.Objects); err != nil {
				return err
			}
		}
	}
	return nil
}

// Phase returns the name of the phase that goes on, or is the last.
func (r *Run) Phase() string { return r.server.phaseNow().Name }

// Check reports a difference between what the user wants and what is there, in the
// Deployments or in the controller's table, if there is one: a status that is not of the last
// change, or something that has been deleted. It must not be called before Play has returned.
func (r *Run) Check() error {
	if err := r.server.check(); err != nil {
		return err
	}
	want, have := r.server.want, r.controller.tableNow()
	for name, replicas := range want {
		if n, exists := have[name]; !exists || n != replicas {
			return fmt.Errorf("the table has %d (%t) replicas of %v, not %d", n, exists, name, replicas)
		}
	}
	for name := range have {
		if _, exists := want[name]; !exists {
			return fmt.Errorf("the table has %v, which has been deleted", name)
		}
	}
	return nil
}

// Settle waits until Check finds nothing, at most for limit. It returns how long that took,
// and what Check has found last. Like Check, it must not be called before Play has returned.
func (r *Run) Settle(limit time.Duration) (time.Duration, error) {
	begin := time.Now()
	for {
		err, took := r.Check(), time.Since(begin)
		if err == nil || took >= limit {
			return took, err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Table returns a copy of what the controller has brought about: each object's replicas.
func (r *Run) Table() map[cache.ObjectName]int32 { return r.controller.tableNow() }

// Figures returns what has happened so far.
func (r *Run) Figures() Figures {
	changes, faults := r.server.soFar()
	return Figures{changes, faults, r.controller.countsSoFar()}
}

// Stop shuts the queue down with a drain, waits for the workers and the informer, and returns
// what the loop returned. It must be called once.
func (r *Run) Stop() error {
	r.controller.queue.ShutDownWithDrain()
	err := <-r.ended
	r.cancel()
	r.controller.factory.Shutdown()
	return err
}
