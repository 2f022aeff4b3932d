package promela

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// search is one exhaustive run of core.pml, or of one with a fault in it.
type search struct {
	defines  string // core.pml is read with these
	compiler string // and pan, which spin makes of it, compiled with these
	pan      string // and run with these
}

// Ways to search. Safety is whether each assertion holds in each reachable state; shortest too,
// but nearest states first; liveness whether handedOut holds of each fair run.
func safety(defines string) search {
	return search{defines, "-O1 -DSAFETY -DNOFAIR", "-m1000000"}
}

func largeSafety(defines string) search {
	return search{defines, "-O2 -DSAFETY -DNOFAIR -DCOLLAPSE", "-m8000000"}
}

func shortest(defines string) search {
	return search{defines + " -DBREADTH_FIRST", "-O0 -DSAFETY -DNOFAIR -DBFS", ""}
}

func liveness(defines string) search {
	return search{defines + " -DLIVE -DDRAINS=1 -DFIRES=1", "-O1 -DNFAIR=3", "-a -f -m1000000"}
}

// run returns what pan reports.
func (s search) run(t *testing.T) string {
	for _, tool := range []string{"spin", "gcc"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("promela: SKIPPED, %s is not installed", tool)
		}
	}
	dir := t.TempDir()
	model, err := os.ReadFile("core.pml")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "core.pml"), model, 0o600); err != nil {
		t.Fatal(err)
	}
	in := func(name, args string) string {
		cmd := exec.Command(name, strings.Fields(args)...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %s: %v\n%s", name, args, err, out)
		}
		return string(out)
	}
	in("spin", s.defines+" -a core.pml")
	in("gcc", "-w "+s.compiler+" -o pan pan.c")
	return in(filepath.Join(dir, "pan"), s.pan)
}

var (
	errorsLine = regexp.MustCompile(`(?m)errors: (\d+)$`)
	stored     = regexp.MustCompile(`(\d+) states, stored`)
	memory     = regexp.MustCompile(`([\d.]+)\s+total actual memory usage`)
	found      = regexp.MustCompile(`(?m)^pan:1: (?:assertion violated )?(.*?) \(at depth`)
	unreached  = regexp.MustCompile(`(?m)^\tcore\.pml:.*`)
)

// first returns the first submatch of re in s.
func first(re *regexp.Regexp, s string) string {
	if m := re.FindStringSubmatch(s); m != nil {
		return m[1]
	}
	return ""
}

// mustHold fails unless pan has seen everything and found nothing. It exits with 0 in any case,
// and counts no errors also if it gave up half way.
func mustHold(t *testing.T, s search) (report string) {
	report = s.run(t)
	if first(errorsLine, report) != "0" || strings.Contains(report, "pan:1:") ||
		strings.Contains(report, "error:") || strings.Contains(report, "not completed") {
		t.Fatalf("the model is broken:\n%s", report)
	}
	t.Logf("promela: errors: 0 in %s states, %s MB", first(stored, report), first(memory, report))
	return report
}

// TestModel: no interleaving breaks a rule, or ends with somebody or something left behind.
func TestModel(t *testing.T) {
	t.Run("queue", func(t *testing.T) {
		t.Parallel()
		report := mustHold(t, safety("-DWORKERS=3"))
		for _, line := range unreached.FindAllString(report, -1) {
			if !strings.Contains(line, `"-end-"`) { // of processes that run for ever
				t.Errorf("no run comes to %s", strings.TrimSpace(line))
			}
		}
	})
	t.Run("FIFO", func(t *testing.T) {
		t.Parallel()
		mustHold(t, safety("-DKEEPSPLACE -DITEMS=3 -DWORKERS=3"))
	})
	t.Run("liveness", func(t *testing.T) {
		t.Parallel()
		mustHold(t, liveness(""))
	})
}

// TestModel_Large is TestModel with more of everything.
func TestModel_Large(t *testing.T) {
	if os.Getenv("PROMELA_LARGE") == "" {
		t.Skip("promela: PROMELA_LARGE is not set")
	}
	for name, s := range map[string]search{
		"3 items":    largeSafety("-DITEMS=3 -DWORKERS=3 -DDRAINS=1"),
		"3 drains":   largeSafety("-DWORKERS=3 -DDRAINS=3"),
		"more times": largeSafety("-DWORKERS=3 -DAHEAD=3 -DFIRES=3"),
		"FIFO":       largeSafety("-DKEEPSPLACE -DITEMS=4 -DWORKERS=4"),
		"liveness":   liveness("-DAHEAD=2"),
	} {
		t.Run(name, func(t *testing.T) { mustHold(t, s) })
	}
}

// TestModelFindsFaults: the model can fail. Each fault is found, and by the rule that it breaks.
func TestModelFindsFaults(t *testing.T) {
	for _, f := range []struct {
		search
		want string
	}{
		{shortest("-DFAULT_WAKE_UP_LOST_ON_CANCEL"), "Q8"},
		{shortest("-DFAULT_ONE_WAKE_UP_IS_ENOUGH"), "Q8"},
		{shortest("-DFAULT_DONE_WAKES_NOBODY -DKEEPSPLACE"), "Q8"},
		{shortest("-DFAULT_ONE_DRAIN_RETURNS"), "Q7"},
		{shortest("-DFAULT_DRAIN_WAITS_FOR_PROCESSING_ONLY"), "Q7"},
		{shortest("-DFAULT_DRAIN_IS_RELEASED_TOO_EARLY"), "Q7"},
		{shortest("-DFAULT_SHUTDOWN_WAKES_ONE"), "Q6"},
		{shortest("-DFAULT_ADD_AFTER_SHUTDOWN"), "Q6"},
		{shortest("-DFAULT_SHUTDOWN_KEEPS_WAITING"), "T5"},
		{shortest("-DFAULT_SHUTDOWN_FORGETS_ENTRY"), "E1"},
		{shortest("-DFAULT_ADD_KEEPS_WAIT"), "T2"},
		{shortest("-DFAULT_ADD_KEEPS_WAIT -DPROMISES_ONLY"), "T2"}, // once it comes due all the same
		{shortest("-DFAULT_DUE_IS_DROPPED_WHILE_PROCESSING"), "T2"},
		{shortest("-DFAULT_ADD_QUEUES_WHAT_IS_READY"), "Q2"},
		{shortest("-DFAULT_ADD_QUEUES_WHAT_IS_PROCESSING"), "E2"},
		{shortest("-DFAULT_GET_LEAVES_ITEM_IN_LINE"), "E2"},
		{shortest("-DFAULT_GET_LEAVES_ITEM_IN_LINE -DPROMISES_ONLY"), "Q3"},
		{shortest("-DFAULT_CANCEL_FORGETS_PASSED -DKEEPSPLACE"), "E5"},
		{shortest("-DFAULT_ARM_KEEPS_ALARM"), "E6"},
		{shortest("-DFAULT_FIRE_KEEPS_ALARM"), "E6"},
		{shortest("-DSTRICT_E6"), "E6"}, // not a fault of the queue: of a claim that says too much
		{liveness("-DFAULT_GET_TAKES_THE_NEWEST"), "acceptance cycle"},
		{liveness("-DFAULT_LATEST_TIME_WINS"), "acceptance cycle"},
	} {
		name := strings.NewReplacer("-DFAULT_", "", "-D", "").Replace(f.defines)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report := f.run(t)
			if got := first(found, report); got != f.want {
				t.Errorf("pan found %q, want %q:\n%s", got, f.want, report)
			}
		})
	}
}
