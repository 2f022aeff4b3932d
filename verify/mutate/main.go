// Command mutate proves the tests of typedqueue: it puts one small fault after the other into
// the product and runs the root module's tests, which ought to fail each time. A fault that
// they do not find must be listed in survivors.txt, with the reason why that is no loss.
//
//	go -C verify run ./mutate                    # all; an hour or two
//	go -C verify run ./mutate -file heap.go      # one file, or several, with commas
//	go -C verify run ./mutate -diff 1104         # what mutant 1104 changes
//	go -C verify run ./mutate -run 1104          # what the tests say to it
//
// It exits with 1 if a mutant survives that is not listed, or one is listed that does not
// exist or does not survive, or if anything goes wrong.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
)

func main() {
	var o options
	flag.StringVar(&o.dir, "dir", "..", "the `folder` of the package")
	flag.StringVar(&o.list, "list", "mutate/survivors.txt", "the `file` that lists survivors")
	flag.Func("file", "mutate only these `files`, with commas between them", func(s string) error {
		o.files = strings.Split(s, ",")
		return nil
	})
	flag.Func("run", "run only the mutants with these `ids`; of a single one, print the output", ids(&o.run))
	flag.Func("diff", "print the mutants with these `ids`", ids(&o.diff))
	flag.IntVar(&o.workers, "workers", 2, "how many to run at a time")
	flag.IntVar(&o.checks, "checks", 0, "try survivors on the property tests once more, with so many `draws` each")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ok, err := mutate(ctx, o, os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if !ok || err != nil {
		os.Exit(1)
	}
}

// ids parses numbers with commas between them.
func ids(to *[]int) func(string) error {
	return func(s string) error {
		for f := range strings.SplitSeq(s, ",") {
			id, err := strconv.Atoi(f)
			if err != nil {
				return err
			}
			*to = append(*to, id)
		}
		return nil
	}
}
