// Package overlay builds tests together with another version of package typedqueue: with faults,
// which the tests must find, or with what lets them see and do more than a user can. The folder
// of the package stays as it is, since the go command's -overlay replaces files for one build.
package overlay

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Root is the folder of package typedqueue, as seen from each package right below verify/.
const Root = "../.."

// Changes are what a build has other than the package.
type Changes struct {
	Edits  []Edit
	Faults []Fault
	Added  map[string]string // the texts of files, by name
}

// Edit is a change of one file.
type Edit struct{ file, before, after string }

// In returns the Edit of a file that replaces the text before, which stands there once.
func In(file, before, after string) Edit { return Edit{file, before, after} }

// Fault is an Edit that has an effect only while it is switched on, so that one build serves
// for many: what is wrong in the new text hangs on fault == $, where $ stands for Name.
type Fault struct {
	Name string
	Edit Edit
}

const (
	variable = "TYPEDQUEUE_FAULT" // of the environment
	declared = "package typedqueue\n\nimport \"os\"\n\nvar fault = os.Getenv(\"" + variable + "\")\n"
)

// On returns the variable of the environment, with its value, that switches on a fault. A name
// that no fault has switches all off.
func On(fault string) string { return variable + "=" + fault }

// Build builds the tests of the package in dir, with these changes and flags of go test, and
// returns the path of the binary, which is there until t has ended. A change that does not fit,
// and a build that fails, fail t.
func Build(t *testing.T, dir string, c Changes, flags ...string) (binary string) {
	t.Helper()
	files, err := c.files()
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs(Root)
	if err != nil {
		t.Fatal(err)
	}
	temp := t.TempDir()
	replace := map[string]string{}
	for name, text := range files {
		replace[filepath.Join(root, name)] = write(t, temp, name, []byte(text))
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	binary = filepath.Join(temp, "overlay.test")
	args := append([]string{"test", "-c", "-overlay", write(t, temp, "overlay.json", list), "-o", binary}, flags...)
	cmd := exec.Command("go", append(args, ".")...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go test -c: %v\n%s", err, out)
	}
	return binary
}

// write writes a file and returns its path.
func write(t *testing.T, dir, name string, text []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// files returns the texts of all files that are changed or added, by name.
func (c Changes) files() (map[string]string, error) {
	edits := slices.Clone(c.Edits)
	for _, f := range c.Faults {
		f.Edit.after = strings.ReplaceAll(f.Edit.after, "$", strconv.Quote(f.Name))
		edits = append(edits, f.Edit)
	}
	added := map[string]string{}
	maps.Copy(added, c.Added)
	if len(c.Faults) > 0 {
		added["fault.go"] = declared
	}
	files := map[string]string{}
	for _, e := range edits {
		if err := e.apply(files); err != nil {
			return nil, err
		}
	}
	for name, text := range added {
		if _, err := os.Lstat(filepath.Join(Root, name)); err == nil {
			return nil, fmt.Errorf("overlay: the package has a file %s already", name)
		}
		files[name] = text
	}
	return files, nil
}

// apply makes the edit in the file as it is after the edits so far.
func (e Edit) apply(files map[string]string) error {
	text, edited := files[e.file]
	if !edited {
		b, err := os.ReadFile(filepath.Join(Root, e.file))
		if err != nil {
			return fmt.Errorf("overlay: %w", err)
		}
		text = string(b)
	}
	if n := strings.Count(text, e.before); n != 1 {
		return fmt.Errorf("overlay: this stands %d times in %s, not once: %q", n, e.file, e.before)
	}
	files[e.file] = strings.Replace(text, e.before, e.after, 1)
	return nil
}
