package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// sample is what go test prints, cut short: six rounds of two benchmarks, and one of each
// other kind.
const sample = `go: go1.26.0
client-go: v0.1.2
command: go test -bench .
goos: linux
goarch: amd64
cpu: A CPU
BenchmarkCycle/key=struct-2  1  300 client-go-ns/item  3.0 client-go/ours  90 floor-ns/item  0.9 floor/ours  100 ours-ns/item
BenchmarkCycle/key=struct-2  1  310 client-go-ns/item  3.1 client-go/ours  90 floor-ns/item  0.8 floor/ours  100 ours-ns/item
BenchmarkCycle/key=struct-2  1  320 client-go-ns/item  3.2 client-go/ours  90 floor-ns/item  0.7 floor/ours  100 ours-ns/item
BenchmarkCycle/key=struct-2  1  330 client-go-ns/item  3.3 client-go/ours  90 floor-ns/item  0.7 floor/ours  100 ours-ns/item
BenchmarkCycle/key=struct-2  1  340 client-go-ns/item  3.4 client-go/ours  90 floor-ns/item  0.7 floor/ours  100 ours-ns/item
BenchmarkCycle/key=struct-2  1  350 client-go-ns/item  3.5 client-go/ours  90 floor-ns/item  0.7 floor/ours  100 ours-ns/item
BenchmarkStoreGet/by=object-2  1  20 client-go-ns/item  2.0 client-go/ours  10 ours-ns/item
BenchmarkMemory/ready/key=int-2  1  20 client-go-B/item  30 client-go-worst-B/item  20 client-go-peak-B/item  40 client-go-worst-peak-B/item  2 client-go/ours-B  2 client-go/ours-worst-B  0.5 client-go/ours-peak-B  2 client-go/ours-worst-peak-B  10 ours-B/item  15 ours-worst-B/item  40 ours-peak-B/item  20 ours-worst-peak-B/item
BenchmarkKept/key=int-2  1  50 ours-kept-KiB  5000 client-go-kept-KiB
BenchmarkGrowth/Burst/n=1000-2  1  100 client-go-ns/item  2 client-go/ours  50 ours-ns/item
BenchmarkGrowth/Burst/n=10000-2  1  100 client-go-ns/item  2 client-go/ours  50 ours-ns/item
PASS
`

func TestReport(t *testing.T) {
	dir := t.TempDir()
	from, kept, charts := filepath.Join(dir, "in.txt"), filepath.Join(dir, "out.txt"), filepath.Join(dir, "charts")
	if err := os.WriteFile(from, []byte(sample), 0o666); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := report("", 0, from, kept, charts, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| Cycle | key=struct | 100 | 3.25 [3, 3.5] | 0.7 [0.7, 0.9] | 6 | client-go ≥ 3 met, floor ≥ 0.83 **missed** |",
		"| StoreGet | by=object | 10 | 2 | 1 | client-go ≥ 1.5 met |",
		"| ready/key=int | at 100,000 | 10 | 20 (2.00) | 1 of 1 met |",
		"| ready/key=int | peak until 100,000 | 40 | **20 (0.50)** | 0 of 1 met |",
		"| int | 50 | 5000 | ours < 1024 met |",
		"| 10000 | 50 : 100 |",
		"A CPU, 2 cores, linux/amd64, go1.26.0; client-go v0.1.2, controller-runtime ?, kwok ?.",
		"`go test -bench .`",
	} {
		if !strings.Contains(out.String(), want+"\n") {
			t.Errorf("no line %s in\n%s", want, out.String())
		}
	}
	if raw, err := os.ReadFile(kept); err != nil || string(raw) != sample {
		t.Errorf("-out keeps %q, %v", raw, err)
	}
	for _, name := range []string{"ratios.svg", "memory.svg", "growth.svg"} {
		svg, err := os.ReadFile(filepath.Join(charts, name))
		if err != nil || !strings.HasPrefix(string(svg), "<?xml") {
			t.Errorf("%s: %.20q, %v", name, svg, err)
		}
	}
}

func TestNothingToReport(t *testing.T) {
	if _, err := parse(strings.NewReader("PASS\n")); err == nil {
		t.Error("no error for an output without results")
	}
}

// TestTargets finds the more special target first.
func TestTargets(t *testing.T) {
	for _, test := range []struct {
		bench, rival string
		least        float64
	}{
		{"Cycle/key=int", "client-go", 2.2},
		{"Cycle/key=string", "client-go", 3},
		{"DeltaReplaceFresh/key=struct", "client-go", 2.2},
		{"DeltaReplaceAgain/key=struct", "client-go", 3},
		{"Memory/waiting/key=int", "client-go", 1.33},
		{"Memory/waiting/key=int", "kwok", 1},
		{"ContendedDistinct/producers=2/consumers=2/key=string", "client-go", 0},
		{"Cycle/key=int", "kwok", 0},
	} {
		if got, ok := targetOf(test.bench, test.rival); got.least != test.least || ok != (test.least > 0) {
			t.Errorf("targetOf(%s, %s) = %v, %v, want %g", test.bench, test.rival, got.least, ok, test.least)
		}
	}
}
