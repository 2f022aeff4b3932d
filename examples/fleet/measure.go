package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// This file measures what sharing keys costs. Its etcd waits for the disk, unlike that of the
// demonstration.

// fleets are the numbers of replicas that are measured.
var fleets = []int{1, 2, 3, 5}

// rounds is how often throughput is measured; each round measures everything once, so that
// its ratios are of figures from the same time.
const rounds = 3

// slow is the work on a key that lets replicas, and not etcd, be what limits the throughput.
const slow = 20 * time.Millisecond

func measure(ctx context.Context, opts options, stdout, stderr io.Writer, logf func(string, ...any)) error {
	opts.durable = true
	m := &measuring{opts, stdout, stderr, logf}
	for _, part := range []func(context.Context) error{m.throughput, m.latency, m.turns, m.sizes} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return nil
}

type measuring struct {
	options
	stdout, stderr io.Writer
	logf           func(format string, args ...any)
}

// with calls use with replicas that have nothing to do yet, and ends them after it.
func (m *measuring) with(ctx context.Context, replicas int, change func(*options), use func(*fleet) error) (err error) {
	opts := m.options
	opts.replicas = replicas
	change(&opts)
	f, err := newFleet(ctx, opts, m.stderr, m.logf)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	for range replicas {
		if err := f.launch(); err != nil {
			return err
		}
	}
	err = f.until(ctx, "all replicas had come", func() bool { return len(f.observer.live()) == replicas })
	if err != nil {
		return err
	}
	if err := use(f); err != nil {
		return err
	}
	return f.finish(ctx)
}

// burst changes all keys at once, and returns how many effects a second follow.
func (f *fleet) burst(ctx context.Context) (perSecond float64, err error) {
	from := now()
	if err := f.writer.fill(ctx); err != nil {
		return 0, err
	}
	if err := f.until(ctx, "every key had its effect", f.caughtUp); err != nil {
		return 0, err
	}
	return float64(f.keys) / time.Duration(f.observer.lastEffect()-from).Seconds(), nil
}

// throughput prints how many effects a second there are after a change of all keys.
func (m *measuring) throughput(ctx context.Context) error {
	fmt.Fprintf(m.stdout, "### Throughput\n\n%d keys are changed at once; each replica works on %d at a time. Effects a second,\nmedians of %d rounds; in brackets, as a multiple of one replica's in the same round.\n\n",
		m.keys, m.workers, rounds)
	fmt.Fprintln(m.stdout, "| work on a key; replicas: |"+columns(" %d |"))
	fmt.Fprintln(m.stdout, "|---|"+columns("---|"))
	for _, work := range []time.Duration{0, slow} {
		rates, ratios := make([][]float64, len(fleets)), make([][]float64, len(fleets))
		for round := range rounds {
			for i, n := range fleets {
				err := m.with(ctx, n, func(o *options) { o.work = work }, func(f *fleet) error {
					rate, err := f.burst(ctx)
					rates[i] = append(rates[i], rate)
					return err
				})
				if err != nil {
					return err
				}
				ratios[i] = append(ratios[i], rates[i][round]/rates[0][round])
			}
			m.logf("throughput with work of %v, round %d of %d", work, round+1, rounds)
		}
		fmt.Fprintf(m.stdout, "| %v |", work)
		for i := range fleets {
			fmt.Fprintf(m.stdout, " %.0f (%.2f) |", median(rates[i]), median(ratios[i]))
		}
		fmt.Fprintln(m.stdout)
	}
	return nil
}

// columns repeats a part of a table's line for each number of replicas.
func columns(format string) (line string) {
	for _, n := range fleets {
		if strings.Contains(format, "%d") {
			line += fmt.Sprintf(format, n)
		} else {
			line += format
		}
	}
	return line
}

func median(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}

// latency prints how long it takes from a change to its effect.
func (m *measuring) latency(ctx context.Context) error {
	fmt.Fprint(m.stdout, "\n### From a change to its effect\n\nThree replicas; from before the change is written until a watcher sees its effect.\n\n"+
		"| changes a second | 50 % | 90 % | 99 % | 99.9 % | longest | changes |\n|---|---|---|---|---|---|---|\n")
	for _, rate := range []float64{100, 500, 1000} {
		err := m.with(ctx, 3, func(o *options) { o.work, o.rate = 0, rate }, func(f *fleet) error {
			if _, err := f.burst(ctx); err != nil {
				return err
			}
			err := f.whileChanging(ctx, func(ctx context.Context) error { return wait(ctx, f.duration) })
			if err != nil {
				return err
			}
			took, _ := f.latencies()
			if len(took) == 0 {
				return errors.New("no changes in this time")
			}
			fmt.Fprintf(m.stdout, "| %.0f |", rate)
			for _, q := range []float64{0.5, 0.9, 0.99, 0.999, 1} {
				fmt.Fprintf(m.stdout, " %v |", quantile(took, q))
			}
			fmt.Fprintf(m.stdout, " %d |\n", len(took))
			return nil
		})
		if err != nil {
			return err
		}
		m.logf("latency at %.0f changes a second", rate)
	}
	return nil
}

// turns prints what moves when replicas come and go.
func (m *measuring) turns(ctx context.Context) error {
	fmt.Fprintf(m.stdout, "\n### Keys moved\n\n%d keys, leases of %v. The last column is how long a key was without an owner, at most.\n\n"+
		"| | replicas then | keys moved | ideal | ratio | longest without an owner |\n|---|---|---|---|---|---|\n", m.keys, m.ttl)
	return m.with(ctx, 1, func(o *options) { o.work = 0 }, func(f *fleet) error {
		if _, err := f.burst(ctx); err != nil {
			return err
		}
		for range 4 {
			if err := f.addOne(ctx); err != nil {
				return err
			}
		}
		if err := f.killOne(ctx); err != nil {
			return err
		}
		if err := f.finish(ctx); err != nil {
			return err
		}
		found, err := f.judge(ctx)
		if err != nil {
			return err
		}
		for _, t := range found.turns[1 : len(found.turns)-1] {
			fmt.Fprintf(m.stdout, "| %s %s | %d | %d | %.0f | %.3f | %v |\n", t.name, f.verb(t), len(t.live),
				len(t.moved), t.ideal(), float64(len(t.moved))/t.ideal(), f.gap(t).Round(time.Millisecond))
		}
		return nil
	})
}

// sizes prints what a key costs in etcd, and in each replica.
func (m *measuring) sizes(ctx context.Context) error {
	fmt.Fprint(m.stdout, "\n### Sizes\n\nOne change and one effect of each key, two replicas.\n\n"+
		"| keys | etcd's database | peak memory of a replica | until a new replica has its share |\n|---|---|---|---|\n")
	for _, keys := range []int{m.keys, 5 * m.keys, 10 * m.keys} {
		err := m.with(ctx, 1, func(o *options) { o.work, o.keys = 0, keys }, func(f *fleet) error {
			if _, err := f.burst(ctx); err != nil {
				return err
			}
			status, err := f.cluster.client.Status(ctx, f.cluster.endpoints[0])
			if err != nil {
				return err
			}
			from := now()
			if err := f.addOne(ctx); err != nil {
				return err
			}
			took := time.Duration(now() - from)
			p := f.processes[1]
			delete(f.alive, p)
			if err := p.end(ctx); err != nil {
				return err
			}
			fmt.Fprintf(m.stdout, "| %d | %.1f MB | %s | %v |\n", keys, float64(status.DbSizeInUse)/1e6, peakMemory(p.cmd.ProcessState), took.Round(time.Millisecond))
			return nil
		})
		if err != nil {
			return err
		}
		m.logf("sizes with %d keys", keys)
	}
	return nil
}
