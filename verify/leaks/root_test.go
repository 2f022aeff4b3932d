package leaks

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"example.com/typedqueue/verify/overlay"
)

// added is what the root module's tests get beside their own: a check at the end of all, and a
// test that leaks a goroutine if it is told to.
const added = `package typedqueue

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLeak(t *testing.T) {
	if os.Getenv("LEAK") == "" {
		t.Skip("told not to leak")
	}
	go leak()
}

func leak() { select {} }
`

// TestRootLeaksNoGoroutine: after all tests of the root module no goroutine is left. By default
// its tests run with -short; with LEAKS_FULL set, all of them. And the check can fail.
func TestRootLeaksNoGoroutine(t *testing.T) {
	bin := buildRoot(t)
	flag := "-test.short"
	if os.Getenv("LEAKS_FULL") != "" {
		flag = "-test.short=false"
	}
	out, err := runRoot(bin, "", flag)
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = runRoot(bin, "LEAK=yes", "-test.run=^TestLeak$")
	if err == nil || !strings.Contains(out, "found unexpected goroutines") || !strings.Contains(out, "typedqueue.leak") {
		t.Errorf("a leaked goroutine is not reported: %v\n%s", err, out)
	}
}

// buildRoot builds the tests of the root module, with what is added. The root must not require
// goleak: so a go.mod that does comes in by -modfile.
func buildRoot(t *testing.T) (bin string) {
	c := overlay.Changes{Added: map[string]string{"goleak_added_test.go": added}}
	return overlay.Build(t, overlay.Root, c, "-modfile="+modfile(t))
}

func runRoot(bin, env, flag string) (string, error) {
	cmd := exec.Command(bin, flag)
	cmd.Dir = overlay.Root
	cmd.Env = append(os.Environ(), env)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// modfile writes the root's go.mod with goleak in it, in the version that is tested with here,
// and a go.sum that knows what both modules know. It returns the former's name.
func modfile(t *testing.T) string {
	dir := t.TempDir()
	name := filepath.Join(dir, "go.mod")
	write(t, name, read(t, filepath.Join(overlay.Root, "go.mod")))
	write(t, filepath.Join(dir, "go.sum"), append(read(t, filepath.Join(overlay.Root, "go.sum")), read(t, "../go.sum")...))
	goleak := output(t, "go", "list", "-m", "-f", "{{.Path}}@{{.Version}}", "go.uber.org/goleak")
	output(t, "go", "mod", "edit", "-require="+goleak, name)
	return name
}

// output runs a command and returns what it prints.
func output(t *testing.T, name string, args ...string) string {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func read(t *testing.T, name string) []byte {
	text, err := os.ReadFile(name)
	must(t, err)
	return text
}

func write(t *testing.T, name string, text []byte) {
	must(t, os.WriteFile(name, text, 0o600))
}
