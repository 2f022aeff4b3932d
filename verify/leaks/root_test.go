package leaks

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// root is the folder of the module that is checked.
const root = "../.."

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
// goleak: so the file comes in by -overlay, a go.mod that has it by -modfile, and nothing is
// written to the root.
func buildRoot(t *testing.T) (bin string) {
	dir := t.TempDir()
	bin = filepath.Join(dir, "root.test")
	output(t, root, "go", "test", "-c", "-o", bin, "-modfile="+modfile(t, dir), "-overlay="+overlay(t, dir), ".")
	return bin
}

func runRoot(bin, env, flag string) (string, error) {
	cmd := exec.Command(bin, flag)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), env)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// modfile writes the root's go.mod with goleak in it, in the version that is tested with here,
// and a go.sum that knows what both modules know. It returns the former's name.
func modfile(t *testing.T, dir string) string {
	name := filepath.Join(dir, "go.mod")
	write(t, name, read(t, filepath.Join(root, "go.mod")))
	write(t, filepath.Join(dir, "go.sum"), append(read(t, filepath.Join(root, "go.sum")), read(t, "../go.sum")...))
	goleak := output(t, ".", "go", "list", "-m", "-f", "{{.Path}}@{{.Version}}", "go.uber.org/goleak")
	output(t, ".", "go", "mod", "edit", "-require="+goleak, name)
	return name
}

// overlay writes what is added, and a file that tells the go command to take it for one of the
// root's. It returns that one's name.
func overlay(t *testing.T, dir string) string {
	at, err := filepath.Abs(filepath.Join(root, "goleak_added_test.go"))
	must(t, err)
	if _, err := os.Lstat(at); err == nil {
		t.Fatalf("%s exists", at)
	}
	from := filepath.Join(dir, "added.go")
	write(t, from, []byte(added))
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{at: from}})
	must(t, err)
	name := filepath.Join(dir, "overlay.json")
	write(t, name, text)
	return name
}

// output runs a command in a folder and returns what it prints.
func output(t *testing.T, dir, name string, args ...string) string {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
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
