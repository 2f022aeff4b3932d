package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// This file is the course of events: what the parent does to its replicas, and when.

type options struct {
	endpoints []string // none: an etcd of its own
	durable   bool     // of its own
	keys      int
	replicas  int
	ttl       time.Duration // of a replica's lease
	duration  time.Duration // how long keys change, besides waiting for what must happen
	rate      float64       // changes a second
	workers   int           // of each replica
	work      time.Duration // how long a worker takes before it writes
	seed      uint64
	chart     string   // the file for the picture; none: no picture
	faults    []string // what the replicas do wrong in a test, in the order of their start
}

// A fleet is a run.
type fleet struct {
	options
	cluster  *cluster
	observer *observer
	writer   *writer
	marks    *ledger
	stderr   io.Writer
	logf     func(format string, args ...any)

	watching sync.WaitGroup
	stop     context.CancelFunc // of watching

	processes []*process        // all that were started
	alive     map[*process]bool // those that must not end by themselves
	struck    map[int64]strike  // what was done to replicas, by their leases
	resumed   []happening       // when replicas that were paused went on
	steps     []span            // when members changed while keys did
}

// A span is a time on the clock that the processes share.
type span struct{ from, to int64 }

// A strike is what the parent did to a replica so that its lease ended.
type strike struct {
	name string
	how  how
	at   int64
}

type how string

const (
	killed how = "is killed"
	paused how = "is paused"
	ended  how = "ends"
)

// newFleet prepares a run. It must be closed.
func newFleet(ctx context.Context, opts options, stderr io.Writer, logf func(string, ...any)) (*fleet, error) {
	c, err := openCluster(ctx, opts.endpoints, opts.durable)
	if err != nil {
		return nil, err
	}
	f := &fleet{
		options: opts, cluster: c, observer: newObserver(), writer: newWriter(c, opts.keys, opts.seed),
		marks: newLedger(), stderr: stderr, logf: logf,
		alive: map[*process]bool{}, struck: map[int64]strike{},
	}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	f.stop = stop
	f.watching.Go(func() {
		if err := c.watch(watching, f.observer.see); watching.Err() == nil {
			logf("nothing more is seen of the replicas: %v", err)
		}
	})
	return f, nil
}

// close ends what is left of the run.
func (f *fleet) close() error {
	f.killAll()
	f.stop()
	f.watching.Wait()
	return f.cluster.close()
}

// killAll ends all replicas that are left, at once.
func (f *fleet) killAll() {
	for _, p := range f.processes {
		p.kill()
		<-p.ended
	}
}

// poll is how often a condition is looked at that is waited for.
const poll = 10 * time.Millisecond

// until waits until cond holds. It fails when ctx is done, and when a replica ends that
// should not.
func (f *fleet) until(ctx context.Context, what string, cond func() bool) error {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	limit := time.After(f.patience())
	for !cond() {
		for p := range f.alive {
			if p.hasEnded() {
				return fmt.Errorf("%s ended before %s: %w", p.name, what, p.err)
			}
		}
		select {
		case <-tick.C:
		case <-limit:
			return fmt.Errorf("it did not come so far that %s", what)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// patience is how long anything may take before it is given up.
func (f *fleet) patience() time.Duration { return time.Minute + 10*f.ttl }

// run is the course of events, up to the end of the last replica.
func (f *fleet) run(ctx context.Context) error {
	if err := f.begin(ctx); err != nil {
		return err
	}
	f.logf("%d replicas have brought %d keys in line", f.replicas, f.keys)
	if err := f.whileChanging(ctx, f.course); err != nil {
		return err
	}
	return f.finish(ctx)
}

// begin fills the source, starts the replicas, and waits until they have done it all.
func (f *fleet) begin(ctx context.Context) error {
	if err := f.writer.fill(ctx); err != nil {
		return err
	}
	for range f.replicas {
		if err := f.launch(); err != nil {
			return err
		}
	}
	return f.until(ctx, "all replicas had come and brought every key in line", func() bool {
		return len(f.observer.live()) == f.replicas && f.caughtUp()
	})
}

// whileChanging runs course while the keys change, and then waits for the effects.
func (f *fleet) whileChanging(ctx context.Context, course func(context.Context) error) error {
	changing, stop := context.WithCancel(ctx)
	defer stop()
	var changes sync.WaitGroup
	var failed error
	changes.Go(func() { failed = f.writer.churn(changing, f.rate) })
	err := course(ctx)
	stop()
	changes.Wait()
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	return f.until(ctx, "every key had the effect of its last change", f.caughtUp)
}

// course is what happens to the replicas while the keys change.
func (f *fleet) course(ctx context.Context) error {
	for _, step := range []func(context.Context) error{f.killOne, f.pauseOne, f.addOne} {
		if err := wait(ctx, f.duration/4); err != nil {
			return err
		}
		from := now()
		if err := step(ctx); err != nil {
			return err
		}
		f.steps = append(f.steps, span{from, now()})
	}
	return wait(ctx, f.duration/4)
}

// wait lets things go on for a while.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// launch starts one more replica.
func (f *fleet) launch() error {
	n := len(f.processes)
	o := orders{
		Name:      fmt.Sprintf("r%d", n+1),
		Endpoints: f.cluster.endpoints,
		Prefix:    f.cluster.prefix,
		TTL:       f.ttl,
		Work:      f.work,
		Workers:   f.workers,
	}
	if n < len(f.faults) {
		o.Fault = f.faults[n]
	}
	p, err := startProcess(o, f.marks, f.stderr)
	if err != nil {
		return err
	}
	f.processes = append(f.processes, p)
	f.alive[p] = true
	return nil
}

// strike notes what is about to be done to p.
func (f *fleet) strike(p *process, h how) {
	f.struck[f.marks.lease(p.name)] = strike{p.name, h, now()}
}

// killOne kills a replica, and waits until the others have taken its keys.
func (f *fleet) killOne(ctx context.Context) error {
	p := f.processes[0]
	f.logf("%s is killed", p.name)
	delete(f.alive, p)
	f.strike(p, killed)
	p.kill()
	<-p.ended
	return f.until(ctx, "the others had the keys of the killed replica", func() bool {
		return !f.observer.has(p.name) && f.settled()
	})
}

// pauseOne pauses a replica that has work in hand until the others have taken its keys, and
// lets it go on: it does not know yet, and tries to write.
func (f *fleet) pauseOne(ctx context.Context) error {
	p := f.processes[1]
	if err := f.pauseAtWork(ctx, p); err != nil {
		return err
	}
	f.logf("%s is paused, at work on %d keys", p.name, f.marks.working(p.name))
	err := f.until(ctx, "the others had the keys of the paused replica", func() bool {
		return !f.observer.has(p.name) && f.settled()
	})
	if err != nil {
		return err
	}
	f.logf("%s goes on", p.name)
	f.resumed = append(f.resumed, happening{now(), p.name + " goes on"})
	if err := goOn(p.cmd.Process); err != nil {
		return err
	}
	return f.until(ctx, "the paused replica was back", func() bool {
		return f.observer.has(p.name) && f.settled()
	})
}

// pauseAtWork pauses p at a moment when it works on a key and has not begun to write. Where there
// is little to do, that may not come in a reasonable time, which is an error.
func (f *fleet) pauseAtWork(ctx context.Context, p *process) error {
	for limit := now() + int64(f.patience()); ; {
		if now() > limit {
			return fmt.Errorf("%s was never at work when it was paused: there are too few changes, or too little work on a key", p.name)
		}
		f.strike(p, paused)
		if err := pause(p.cmd.Process); err != nil {
			return err
		}
		// What it has told before is in the pipe, and will be read in no time.
		for told := -1; told != f.marks.told(p.name); {
			told = f.marks.told(p.name)
			if err := wait(ctx, 5*poll); err != nil {
				return err
			}
		}
		if f.marks.working(p.name) > 0 {
			return nil
		}
		if err := goOn(p.cmd.Process); err != nil {
			return err
		}
		if err := wait(ctx, poll); err != nil {
			return err
		}
	}
}

// addOne starts one more replica, and waits until it has taken its share.
func (f *fleet) addOne(ctx context.Context) error {
	if err := f.launch(); err != nil {
		return err
	}
	p := f.processes[len(f.processes)-1]
	f.logf("%s is added", p.name)
	return f.until(ctx, "the new replica had its share", func() bool {
		return f.observer.has(p.name) && f.settled()
	})
}

// caughtUp reports whether every key has the effect of its last change so far.
func (f *fleet) caughtUp() bool { return f.observer.caughtUp(f.writer.newest()) }

// settled reports whether every key of the source was last in the hands of its owner.
func (f *fleet) settled() bool { return f.marks.heldBy(f.observer.owners()) }

// finish ends the replicas that are left, one after the other.
func (f *fleet) finish(ctx context.Context) error {
	for _, p := range f.processes {
		if !f.alive[p] {
			continue
		}
		delete(f.alive, p)
		f.strike(p, ended)
		if err := p.end(ctx); err != nil {
			return err
		}
		err := f.until(ctx, "the others had the keys of the replica that ended", func() bool {
			return !f.observer.has(p.name) && (len(f.alive) == 0 || f.settled())
		})
		if err != nil {
			return err
		}
	}
	return nil
}
