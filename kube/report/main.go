// Report runs the benchmarks of the module around it, and makes tables of ratios and
// charts of what they print:
//
//	go -C kube run ./report -charts charts        # run all, print tables, draw charts
//	go -C kube run ./report -bench Cycle          # run some
//	go -C kube run ./report -from results.txt     # read what an earlier run kept with -out
package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("report: ")
	bench := flag.String("bench", "", "run the benchmarks that match this `regexp`; all if empty")
	count := flag.Int("count", 10, "how many `rounds` to run; of all benchmarks, memory and growth get one")
	from := flag.String("from", "", "run nothing: read the output of an earlier run from this `file`")
	out := flag.String("out", "", "keep the output of the benchmarks in this `file`")
	charts := flag.String("charts", "", "draw charts into this `folder`")
	flag.Parse()
	if flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := report(*bench, *count, *from, *out, *charts, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func report(bench string, count int, from, out, charts string, w io.Writer) error {
	var output bytes.Buffer
	var to io.Writer = &output
	if out != "" {
		file, err := os.Create(out)
		if err != nil {
			return err
		}
		defer file.Close()
		to = io.MultiWriter(to, file) // as it comes: an interrupted run can be reported too
	}
	if err := copyResults(to, bench, count, from); err != nil {
		return err
	}
	res, err := parse(&output)
	if err != nil {
		return err
	}
	if err := writeTables(w, res); err != nil {
		return err
	}
	if charts != "" {
		if err := os.MkdirAll(charts, 0o777); err != nil {
			return err
		}
		return drawAll(charts, res)
	}
	return nil
}

// copyResults writes what benchmarks have printed to w, from a file or as they run.
func copyResults(w io.Writer, bench string, count int, from string) error {
	if from == "" {
		return runAll(w, bench, count)
	}
	output, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	_, err = w.Write(output)
	return err
}

// runAll runs the benchmarks and writes what they print, after lines that say what ran.
func runAll(w io.Writer, bench string, count int) error {
	// What memory and growth say hardly differs from run to run, and takes long.
	const once = "^Benchmark(Memory|Kept|Growth)$"
	n := strconv.Itoa(count)
	runs := [][]string{{"-bench", ".", "-skip", once, "-count", n}, {"-bench", once, "-count", "1"}}
	if bench != "" {
		runs = [][]string{{"-bench", bench, "-count", n}}
	}
	if err := versions(w); err != nil {
		return err
	}
	for _, args := range runs {
		if err := run(w, args...); err != nil {
			return fmt.Errorf("go test: %w", err)
		}
	}
	return nil
}

// run runs go test with args and copies what it prints to w, and to standard error, so
// that one sees how far it is.
func run(w io.Writer, args ...string) error {
	args = append([]string{"test", "-run", "^$", "-benchtime", "1x", "-timeout", "3h"}, args...)
	args = append(args, ".")
	fmt.Fprintln(w, "command: go", strings.Join(args, " "))
	cmd := exec.Command("go", args...)
	cmd.Stdout = io.MultiWriter(w, os.Stderr)
	cmd.Stderr = os.Stderr
	return cmd.Run()
}

// rivals are the modules that typedqueue is compared with.
var rivals = []string{"k8s.io/client-go", "sigs.k8s.io/controller-runtime", "sigs.k8s.io/kwok"}

// versions writes the versions of Go and of the rivals as configuration of benchmarks.
func versions(w io.Writer) error {
	fmt.Fprintln(w, "go:", runtime.Version())
	args := append([]string{"list", "-m", "-f", "{{.Path}} {{.Version}}"}, rivals...)
	list, err := exec.Command("go", args...).Output()
	if err != nil {
		return fmt.Errorf("go list -m: %w", err)
	}
	for line := range strings.Lines(string(list)) {
		path, version, _ := strings.Cut(strings.TrimSpace(line), " ")
		fmt.Fprintf(w, "%s: %s\n", path[strings.LastIndex(path, "/")+1:], version)
	}
	return nil
}
