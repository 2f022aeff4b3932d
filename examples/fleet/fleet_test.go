//go:build unix

package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/typedqueue/etcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// TestMain lets the test binary be a replica, right or wrong, or a whole fleet.
func TestMain(m *testing.M) {
	if o, ok := replicaFromEnv(); ok {
		os.Exit(beReplica(o, faults[o.Fault]...))
	}
	if args, ok := os.LookupEnv(fleetEnv); ok {
		os.Args = append(os.Args[:1], strings.Fields(args)...)
		main()
	}
	os.Exit(m.Run())
}

const fleetEnv = "BE_THE_FLEET"

// faults is what a replica can do wrong, by name.
var faults = map[string][]func(*replica){
	"writes without guards": {func(r *replica) {
		r.commit = func(ctx context.Context, _ *etcd.Task[string], ops ...clientv3.Op) error {
			_, err := r.client.Txn(ctx).Then(ops...).Commit()
			return err
		}
	}},
	// It believes that it is alone.
	"works on all keys": {func(r *replica) { r.places.Members = r.Prefix + "alone/" }},
}

// small is a run that takes little more than the waiting for leases.
func small() options {
	return options{
		keys: 500, replicas: 3, ttl: 2 * time.Second, duration: time.Second, rate: 300,
		workers: 4, work: 2 * time.Millisecond, seed: 1,
	}
}

// TestFleet runs the program on an etcd that is there already.
func TestFleet(t *testing.T) {
	t.Parallel()
	c, err := openCluster(t.Context(), nil, false)
	must(t, err)
	defer func() { must(t, c.close()) }()

	picture := filepath.Join(t.TempDir(), "fleet.svg")
	var stdout, stderr strings.Builder
	code := run(t.Context(), []string{
		"-endpoints", c.endpoints[0], "-keys", "500", "-ttl", "2s", "-duration", "1s", "-rate", "300", "-workers", "4", "-chart", picture,
	}, &stdout, &stderr)
	t.Log(stderr.String(), stdout.String())
	if code != exitGood || strings.Contains(stdout.String(), "BAD") {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{"r1 is killed", "r2 is paused", "r2 joins", "r4 joins", "r3 ends", "of 500 keys"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("nothing of this: %s", want)
		}
	}
	svg, err := os.ReadFile(picture)
	must(t, err)
	drawn := parseSVG(t, svg)
	for _, want := range []string{"r1 is killed", "r1's lease ends", "r2 is paused", "r2 goes on", "r2 joins", "r4 joins", "r4 ends", "r3", "nobody"} {
		if !slices.Contains(drawn.texts, want) {
			t.Errorf("nothing of this in the picture: %s", want)
		}
	}
	left, err := c.client.Get(t.Context(), "", clientv3.WithPrefix(), clientv3.WithCountOnly())
	must(t, err)
	if left.Count > 0 {
		t.Errorf("%d keys are left in etcd", left.Count)
	}
}

// TestInterrupt interrupts the program in the middle, which must leave nothing behind.
func TestInterrupt(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	ctx, interrupt := context.WithCancel(t.Context())
	stderr := &awaited{text: "r1 is killed", seen: interrupt}
	code := run(ctx, []string{"-keys", "500", "-ttl", "2s", "-duration", "1s"}, io.Discard, stderr)
	t.Log(stderr.log.String())
	if code != exitBad || !strings.Contains(stderr.log.String(), context.Canceled.Error()) {
		t.Errorf("exit code %d", code)
	}
	empty(t, temp)
}

// awaited calls seen when text has been written to it.
type awaited struct {
	text string
	seen func()

	mu  sync.Mutex // guards log
	log strings.Builder
}

func (a *awaited) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.log.Write(p)
	if strings.Contains(a.log.String(), a.text) {
		a.seen()
	}
	return len(p), nil
}

// TestUnguardedWrites has the replica that is paused write without guards.
func TestUnguardedWrites(t *testing.T) {
	t.Parallel()
	opts := small()
	opts.faults = []string{1: "writes without guards"}
	f := prepare(t, opts)
	must(t, f.run(t.Context()))
	found, err := f.judge(t.Context())
	must(t, err)
	report(t, f, found)
	// What it wrote was not refused; that is the other rule.
	if got := rulesOf(found.faults); !slices.Equal(got, []rule{ruleFenced, ruleTested}) {
		t.Errorf("found %v", got)
	}
	if !slices.ContainsFunc(found.faults, func(f fault) bool { return strings.Contains(f.text, "not alive") }) {
		t.Error("no effect was found that came after the lease")
	}
}

// TestForeignWork has a replica that works on all keys beside others that share them.
func TestForeignWork(t *testing.T) {
	t.Parallel()
	opts := small()
	opts.faults = []string{2: "works on all keys"}
	f := prepare(t, opts)
	ctx := t.Context()
	must(t, f.writer.fill(ctx))
	must(t, f.launch())
	must(t, f.launch())
	must(t, f.until(ctx, "the others had come", func() bool { return len(f.observer.live()) == 2 }))
	must(t, f.launch()) // now, so that their coming explains no move from it
	must(t, f.whileChanging(ctx, func(ctx context.Context) error {
		return f.until(ctx, "each had done something", func() bool {
			for _, p := range f.processes {
				if f.marks.tally(p.name)[accepted] < opts.keys/5 {
					return false
				}
			}
			return true
		})
	}))
	for _, p := range f.processes {
		must(t, p.end(ctx))
	}
	found, err := f.judge(ctx)
	must(t, err)
	report(t, f, found)
	for _, rule := range []rule{ruleShared, ruleForeign, ruleMoved} {
		if !slices.Contains(rulesOf(found.faults), rule) {
			t.Errorf("the rule %q was not broken", rule)
		}
	}
}

func prepare(t *testing.T, opts options) *fleet {
	t.Helper()
	f, err := newFleet(t.Context(), opts, os.Stderr, t.Logf)
	must(t, err)
	t.Cleanup(func() { must(t, f.close()) })
	return f
}

// report shows what a run came to.
func report(t *testing.T, f *fleet, found *finding) {
	var out strings.Builder
	f.print(&out, found)
	t.Log(out.String())
}

// empty checks that a folder holds nothing.
func empty(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	must(t, err)
	for _, f := range left {
		t.Errorf("%s is left in %s", f.Name(), dir)
	}
}
