package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// phase is one way to run the tests. A mutant goes through all until one kills it.
type phase struct {
	name string
	args []string
	env  []string

	// What a run may take, set by calibrate. Of processor time it is tight, for livelocks;
	// the other depends on how busy the machine is.
	cpu, wall time.Duration
}

// phases go from what kills most for little to what is slow. The last is left out unless
// checks says how often it draws.
func phases(checks int) []*phase {
	list := []*phase{
		{name: "models", args: []string{"-test.short", "-test.run=Property"}, env: []string{"RAPID_CHECKS=20"}},
		{name: "short", args: []string{"-test.short"}},
		{name: "full"},
	}
	if checks > 0 {
		list = append(list, &phase{name: "long", args: []string{"-test.run=Property"}, env: []string{fmt.Sprintf("RAPID_CHECKS=%d", checks)}})
	}
	return list
}

// fate is what became of a mutant in one run.
type fate int

const (
	survived fate = iota
	failed        // a test found it
	crashed       // a panic outside a test, a deadlock, or no memory
	timedOut
)

var fateNames = map[fate]string{survived: "survived", failed: "killed", crashed: "crashed", timedOut: "timed out"}

// outcome is what became of a mutant in the end.
type outcome struct {
	fate   fate
	phase  string
	killer string // the test that failed first
	cpu    time.Duration
	output []byte
}

// bench is where the mutants are built and run.
type bench struct {
	product *product
	temp    string
	phases  []*phase
	apart   []string // the tests that the schema of the file in hand does not stand
}

func newBench(p *product, checks int) (*bench, error) {
	temp, err := os.MkdirTemp("", "mutate")
	return &bench{product: p, temp: temp, phases: phases(checks)}, err
}

func (b *bench) close() { os.RemoveAll(b.temp) }

// build compiles the tests, with those files of the product replaced.
func (b *bench) build(ctx context.Context, name string, changed map[string]string) error {
	dir := filepath.Join(b.temp, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	replace := map[string]string{}
	put := func(file, text string) error {
		replace[filepath.Join(b.product.dir, file)] = filepath.Join(dir, file)
		return os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644)
	}
	for file, text := range changed {
		if err := put(file, text); err != nil {
			return err
		}
	}
	if err := put("mutate_switch.go", switchSource(b.product.pkg.Name)); err != nil {
		return err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o644); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", file, "-o", b.binary(name), ".")
	cmd.Dir = b.product.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go test -c: %w\n%s", err, out)
	}
	return nil
}

func (b *bench) remove(name string) {
	os.RemoveAll(filepath.Join(b.temp, name))
	os.Remove(b.binary(name))
}

func (b *bench) binary(name string) string { return filepath.Join(b.temp, name+".test") }

// calibrate builds the tests for the mutants of a file, and runs them without a mutant. They
// must pass, and the time that they take bounds that of the mutants. A test of allocations may
// fail because of the schema, which is not inlined as the product is. Such tests are left out,
// and try looks at them apart.
func (b *bench) calibrate(ctx context.Context, file string) error {
	b.apart = nil
	if err := b.build(ctx, file, map[string]string{file: b.product.schemas[file]}); err != nil {
		return err
	}
	for _, ph := range b.phases {
		o, took := b.unchanged(ctx, file, ph)
		for range 3 {
			if o.fate != failed || b.passes(ctx, o.killer) != nil {
				break
			}
			b.apart = append(b.apart, o.killer)
			o, took = b.unchanged(ctx, file, ph)
		}
		if o.fate != survived {
			return fmt.Errorf("without a mutant the tests %s in phase %s:\n%s", fateNames[o.fate], ph.name, o.output)
		}
		ph.cpu, ph.wall = 4*o.cpu+2*time.Second, 10*took+20*time.Second
	}
	return nil
}

// unchanged runs a phase without a mutant and says how long that took.
func (b *bench) unchanged(ctx context.Context, binary string, ph *phase) (outcome, time.Duration) {
	ph.cpu, ph.wall = 10*time.Minute, 20*time.Minute
	start := time.Now()
	o := b.once(ctx, binary, 0, ph)
	return o, time.Since(start)
}

// passes returns an error unless the test passes with the product as it is.
func (b *bench) passes(ctx context.Context, test string) error {
	defer b.remove("product")
	if err := b.build(ctx, "product", nil); err != nil {
		return err
	}
	if o, _ := b.unchanged(ctx, "product", only(test)); o.fate != survived {
		return fmt.Errorf("%s: %s", test, o)
	}
	return nil
}

// only is a phase of some tests.
func only(tests ...string) *phase {
	return &phase{name: "apart", args: []string{"-test.run=^(" + strings.Join(tests, "|") + ")$"}}
}

// try takes m through the phases, and then through the tests that stand apart.
func (b *bench) try(ctx context.Context, m *mutant) (outcome, error) {
	phases := b.phases
	if !m.solo {
		o := b.through(ctx, m.file, m, phases)
		if o.fate != survived || len(b.apart) == 0 {
			return o, ctx.Err()
		}
		ph := only(b.apart...)
		ph.cpu, ph.wall = phases[len(phases)-1].cpu, phases[len(phases)-1].wall
		phases = []*phase{ph}
	}
	own := fmt.Sprintf("m%d", m.id)
	defer b.remove(own)
	if err := b.build(ctx, own, map[string]string{m.file: m.apply(b.product.sources[m.file])}); err != nil {
		return outcome{}, err
	}
	return b.through(ctx, own, m, phases), ctx.Err()
}

func (b *bench) through(ctx context.Context, binary string, m *mutant, phases []*phase) (o outcome) {
	for _, ph := range phases {
		if o = b.once(ctx, binary, m.id, ph); o.fate != survived {
			break
		}
	}
	return o
}

// memory is what a mutant may address, in KB: one that grows without end must not take the
// machine with it.
const memory = 3 << 20

// once runs the tests with one mutant switched on, apart from others and at low priority.
func (b *bench) once(ctx context.Context, binary string, id int, ph *phase) outcome {
	ctx, cancel := context.WithTimeout(ctx, ph.wall)
	defer cancel()
	script := fmt.Sprintf(`ulimit -v %d; ulimit -t %d; exec nice -n 10 "$0" "$@"`, memory, int(ph.cpu.Seconds()))
	args := append([]string{"-c", script, b.binary(binary), "-test.failfast", "-test.timeout=0"}, ph.args...)
	if len(b.apart) > 0 && b.product.schemas[binary] != "" {
		args = append(args, "-test.skip=^("+strings.Join(b.apart, "|")+")$")
	}
	cmd := exec.CommandContext(ctx, "sh", args...)
	cmd.Dir = b.product.dir
	cmd.Env = append(os.Environ(), append(ph.env, fmt.Sprintf("%s=%d", environment, id), "RAPID_SEED=1", "RAPID_NOFAILFILE=1", "RAPID_SHRINKTIME=0s")...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	var out clipped
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	o := outcome{phase: ph.name, output: out.Bytes()}
	if ended := cmd.ProcessState; ended != nil {
		o.cpu = ended.UserTime() + ended.SystemTime()
	}
	o.judge(err, ctx.Err() != nil || o.cpu >= ph.cpu-time.Second)
	return o
}

var failure = regexp.MustCompile(`(?m)^--- FAIL: (\S+)`)

func (o *outcome) judge(err error, expired bool) {
	if found := failure.FindSubmatch(o.output); found != nil {
		o.killer = string(found[1])
	}
	var exit *exec.ExitError
	switch {
	case err == nil:
		o.fate = survived
	case expired:
		o.fate = timedOut
	case errors.As(err, &exit) && o.killer != "":
		o.fate = failed
	default:
		o.fate = crashed
	}
}

// clipped is a buffer that keeps the beginning of what is written to it.
type clipped struct{ bytes.Buffer }

func (c *clipped) Write(p []byte) (int, error) {
	if room := 1<<16 - c.Len(); room > 0 {
		c.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

func (o outcome) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s in phase %s %s", fateNames[o.fate], o.phase, o.killer))
}
