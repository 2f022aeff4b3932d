package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"
	"time"
)

// demonstrate runs a fleet and prints what it comes to. It fails if that is not good. What has
// not come to its end, of itself, is judged all the same.
func demonstrate(ctx context.Context, opts options, stdout, stderr io.Writer, logf func(string, ...any)) (err error) {
	f, err := newFleet(ctx, opts, stderr, logf)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	err = f.run(ctx)
	if ctx.Err() != nil {
		return err
	}
	f.killAll()
	found, judged := f.judge(ctx)
	if judged != nil {
		return errors.Join(err, judged)
	}
	f.print(stdout, found)
	err = errors.Join(err, f.draw(found))
	if len(found.faults) > 0 {
		err = errors.Join(err, errBadVerdict)
	}
	return err
}

var errBadVerdict = errors.New("the verdict is bad")

// judge returns what the check finds in etcd's history, when all replicas have ended.
func (f *fleet) judge(ctx context.Context) (*finding, error) {
	history, err := f.cluster.history(ctx)
	if err != nil {
		return nil, err
	}
	found := check(history, f.marks.hands)
	found.history = history
	for _, s := range f.struck {
		if s.how == paused && f.marks.tally(s.name)[fenced] == 0 {
			found.fault(ruleTested, "%s was paused, and tried to write nothing that etcd could refuse", s.name)
		}
	}
	for _, h := range []how{killed, paused} {
		if !slices.ContainsFunc(found.turns, func(t *turn) bool { return !t.joined && f.struck[t.lease].how == h }) {
			found.fault(ruleTested, "no lease ended because a replica %s", h)
		}
	}
	return found, nil
}

// draw writes the picture of the run, if it is asked for.
func (f *fleet) draw(found *finding) error {
	if f.chart == "" {
		return nil
	}
	picture, err := f.holdings(found).svg("Who holds the keys", fmt.Sprintf("%s keys on etcd; %d replicas, and one more; leases of %v s; %v changes a second",
		thousands(f.keys), f.replicas, f.ttl.Seconds(), f.rate))
	if err != nil {
		return err
	}
	return os.WriteFile(f.chart, picture, 0o644)
}

func (f *fleet) print(out io.Writer, found *finding) {
	fmt.Fprintln(out, "\nWhat each replica did")
	f.printReplicas(out)
	fmt.Fprintln(out, "\nWhat each change of members did")
	f.printTurns(out, found)
	fmt.Fprintln(out, "\nFrom a change to its effect")
	calm, during := f.latencies()
	fmt.Fprintln(out, "  while members changed:", quantiles(during))
	fmt.Fprintln(out, "  at other times:       ", quantiles(calm))
	fmt.Fprintln(out)
	printVerdict(out, found)
}

func table(out io.Writer) *tabwriter.Writer {
	return tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
}

func (f *fleet) printReplicas(out io.Writer) {
	w := table(out)
	fmt.Fprintln(w, "\ttasks\teffects accepted\tnothing to do\tsource had changed\tfenced\tfailed\tnever ended\t")
	for _, p := range f.processes {
		t := f.marks.tally(p.name)
		tasks := 0
		for _, n := range t {
			tasks += n
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n", p.name, tasks, t[accepted], t[unchanged], t[stale], t[fenced], t[failed], t[""])
	}
	_ = w.Flush()
}

func (f *fleet) printTurns(out io.Writer, found *finding) {
	w := table(out)
	fmt.Fprintln(w, "\treplicas then\tkeys moved\tideal\tlongest without an owner\t")
	for i, t := range found.turns {
		if i < f.replicas || len(t.live) == 0 {
			continue // at the beginning, and at the end, there is nothing to move
		}
		fmt.Fprintf(w, "%s %s\t%d\t%d\t%.0f\t%v\t\n", t.name, f.verb(t), len(t.live), len(t.moved), t.ideal(), f.gap(t).Round(time.Millisecond))
	}
	_ = w.Flush()
}

func (f *fleet) verb(t *turn) how {
	if t.joined {
		return "joins"
	}
	return f.struck[t.lease].how
}

// ideal returns how many keys must move if each replica has the same number of them.
func (t *turn) ideal() float64 {
	if t.joined {
		return float64(len(t.keys)) / float64(len(t.live))
	}
	return float64(len(t.keys)) / float64(len(t.live)+1)
}

// gap returns how long a moved key was without an owner, at most: from when the old owner
// was struck, or the new one came, to the new one's first hand. What was not in the source
// needed none.
func (f *fleet) gap(t *turn) (longest time.Duration) {
	since := f.observer.at(t.revision)
	if s, ok := f.struck[t.lease]; ok && !t.joined {
		since = s.at
	}
	for key, h := range t.moved {
		if t.keys[key] {
			longest = max(longest, time.Duration(h.from-since))
		}
	}
	return longest
}

// latencies returns how long each change took to have an effect that was its own, or that
// of a later change of the same key, sorted: of those that had to wait for it while replicas
// came or went, and the others.
func (f *fleet) latencies() (calm, during []time.Duration) {
	for key, changes := range f.writer.written {
		effects := f.observer.effectsOf(key)
		for _, c := range changes {
			i, _ := slices.BinarySearchFunc(effects, c.revision, func(e moment, revision int64) int { return cmp.Compare(e.revision, revision) })
			if i == len(effects) {
				continue // it had come and gone before anybody looked
			}
			done := effects[i].at
			took := time.Duration(done - c.at)
			if slices.ContainsFunc(f.steps, func(s span) bool { return s.from < done && c.at < s.to }) {
				during = append(during, took)
			} else {
				calm = append(calm, took)
			}
		}
	}
	slices.Sort(calm)
	slices.Sort(during)
	return calm, during
}

// quantiles describes durations that are sorted.
func quantiles(d []time.Duration) string {
	if len(d) == 0 {
		return "no changes"
	}
	return fmt.Sprintf("50 %%: %v, 90 %%: %v, 99 %%: %v, 99.9 %%: %v, longest: %v, of %d", quantile(d, 0.5),
		quantile(d, 0.9), quantile(d, 0.99), quantile(d, 0.999), quantile(d, 1), len(d))
}

// quantile returns one of durations that are sorted, and of which there are some.
func quantile(d []time.Duration, q float64) time.Duration {
	return d[int(q*float64(len(d)-1))].Round(10 * time.Microsecond)
}

// shown is how many faults of a rule are printed.
const shown = 5

func printVerdict(out io.Writer, found *finding) {
	promises := []struct {
		rule rule
		text string
	}{
		{ruleLost, "every key ends with the effect of its last change"},
		{ruleFenced, "no effect was accepted from a replica without its lease, or of an old state"},
		{ruleShared, "no key was in two hands at once"},
		{ruleForeign, "nobody worked on a key that was another's"},
		{ruleMoved, "no key moved without need"},
		{ruleTested, "a paused replica did try to write"},
	}
	fmt.Fprintf(out, "Verdict, from %d changes and %d effects of %d keys\n", found.changes, found.effects, found.keys)
	for _, p := range promises {
		var broken []fault
		for _, f := range found.faults {
			if f.rule == p.rule {
				broken = append(broken, f)
			}
		}
		if len(broken) == 0 {
			fmt.Fprintf(out, "  good  %s\n", p.text)
			continue
		}
		fmt.Fprintf(out, "  BAD   not so, %d times: %s\n", len(broken), p.text)
		for _, f := range broken[:min(shown, len(broken))] {
			fmt.Fprintf(out, "          %s\n", f.text)
		}
	}
}
