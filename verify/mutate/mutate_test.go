package main

import (
	"bytes"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const sample = "testdata/sample"

// golden compares got with a file in testdata that was read by eye. WRITE=1 writes it anew.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if os.Getenv("WRITE") != "" {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s ought to be\n%s", path, got)
	}
}

// TestOperators wants every operator to yield what it ought to, of the sample.
func TestOperators(t *testing.T) {
	p, err := load(sample, nil)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, m := range p.mutants {
		b.WriteString(m.key() + "\n")
	}
	b.WriteString("\nrefused by the type checker:\n")
	for _, m := range p.broken {
		b.WriteString(m.key() + "\n")
	}
	golden(t, "mutants.txt", b.String())
}

// TestSample runs the mutants of the sample, whose tests are weak in one place.
func TestSample(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the sample's tests, and runs them some hundred times")
	}
	p, err := load(sample, nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := newBench(p, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	outcomes, err := b.all(t.Context(), p.mutants, 2, io.Discard)
	if err != nil {
		t.Fatal(err)
	}

	fates := map[fate][]string{}
	for _, m := range p.mutants {
		fates[outcomes[m].fate] = append(fates[outcomes[m].fate], m.key()+"\n")
	}
	golden(t, "survivors.txt", "Why: the sample's tests are weak.\n"+strings.Join(fates[survived], ""))
	golden(t, "ends.txt", "crashed:\n"+strings.Join(fates[crashed], "")+"\ntimed out:\n"+strings.Join(fates[timedOut], ""))

	listed, err := readSurvivors("testdata/survivors.txt")
	if err != nil {
		t.Fatal(err)
	}
	const gone = "sample.go old: `return` -> `(left out)`"
	killed := strings.TrimSpace(fates[failed][0])
	for _, test := range []struct {
		name   string
		change func(map[string]string)
		says   string // besides not being content
	}{
		{"complete", func(map[string]string) {}, ""},
		{"unlisted", func(m map[string]string) { delete(m, slices.Min(slices.Collect(maps.Keys(m)))) }, "has no reason"},
		{"killed", func(m map[string]string) { m[killed] = "lost" }, "listed, but killed in phase short"},
		{"gone", func(m map[string]string) { m[gone] = "lost" }, "there is no such mutant:\n" + gone},
	} {
		t.Run(test.name, func(t *testing.T) {
			reasons := maps.Clone(listed)
			test.change(reasons)
			var out bytes.Buffer
			r := report{product: p, phases: b.phases, mutants: p.mutants, outcomes: outcomes, reasons: reasons}
			if ok := r.print(&out); ok != (test.says == "") || !strings.Contains(out.String(), test.says) {
				t.Errorf("all is well: %v, after\n%s", ok, &out)
			}
		})
	}
}

// TestMutate_Fails wants a package whose tests fail, or that is not there, to be no success.
func TestMutate_Fails(t *testing.T) {
	list := filepath.Join(t.TempDir(), "survivors.txt")
	if err := os.WriteFile(list, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, o := range []options{
		{dir: "testdata/none", list: list},
		{dir: sample, list: list, files: []string{"none.go"}},
		{dir: sample, list: "testdata/none.txt"},
		{dir: "testdata/failing", list: list, workers: 1},
	} {
		var out bytes.Buffer
		if ok, err := mutate(t.Context(), o, &out, io.Discard); ok || err == nil {
			t.Errorf("mutate(%+v) = %v, %v after\n%s", o, ok, err, &out)
		}
	}
}

func TestReadSurvivors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "survivors.txt")
	read := func(text string) (map[string]string, error) {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return readSurvivors(path)
	}
	got, err := read("# all of them\n\nWhy: one\n  and more\na.go f: x\na.go g: y\n\nWhy: two\nb.go h: z\n")
	want := map[string]string{"a.go f: x": "one and more", "a.go g: y": "one and more", "b.go h: z": "two"}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("readSurvivors = %v, %v, want %v", got, err, want)
	}
	for _, text := range []string{"a.go f: x\n", "Why: one\na.go f: x\n\nb.go g: y\n", "Why: one\na\na\n"} {
		if got, err := read(text); err == nil {
			t.Errorf("readSurvivors of %q = %v", text, got)
		}
	}
}
