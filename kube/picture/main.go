// Picture runs a controller of a thousand Deployments in the manner of sample-controller, on
// client-go's fake clientset and informers, twice: on our queue, and on client-go's. It
// prints what both have done side by side, and draws, as a dashboard would show it, how deep
// the queues were, how long items were ready, and how many retries there were. From the
// folder of the module around it:
//
//	go run ./picture               # takes a minute; writes picture/run.svg
//	go run ./picture -o other.svg
//
// It fails, and draws nothing, if a run has not brought every object to its last state.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"runtime"
	"runtime/debug"

	"example.com/typedqueue/kube/internal/sample"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("picture: ")
	file := flag.String("o", "picture/run.svg", "draw into this `file`")
	flag.Parse()
	if flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := picture(*file, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func picture(file string, w io.Writer) error {
	var all []recording
	for _, q := range []queue{newOurs(), newClientGo()} {
		fmt.Fprintf(os.Stderr, "running the controller on the queue of %s\n", q.name)
		r, err := record(context.Background(), scenario, q)
		if err != nil {
			return fmt.Errorf("%s: %w", q.name, err)
		}
		all = append(all, r)
	}
	if err := writeTable(w, all); err != nil {
		return err
	}
	svg, err := drawSVG(captions(), all)
	if err != nil {
		return err
	}
	return os.WriteFile(file, svg, 0o666)
}

func writeTable(w io.Writer, all []recording) error {
	var rows []sample.Row
	for _, r := range all {
		rows = append(rows, r.row)
	}
	return sample.WriteTable(w, rows)
}

// captions tell where the figures come from.
func captions() []string {
	return []string{
		fmt.Sprintf("%d Deployments, %d workers, %v of work for a change; by go -C kube run ./picture",
			scenario.Objects, scenario.Workers, 2*scenario.Work),
		fmt.Sprintf("%s/%s, %d cores, %s, client-go %s",
			runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), version("k8s.io/client-go")),
	}
}

// version returns that of a module in this program.
func version(path string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == path {
				return m.Version
			}
		}
	}
	return "?"
}
