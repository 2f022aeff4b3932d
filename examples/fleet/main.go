// Command fleet shows replicas that share their keys on etcd, and checks that they do it
// right.
//
//	fleet [flags]
//
// It starts an etcd and three replicas, as processes of their own, and changes keys all the
// time. It kills a replica, pauses another until its lease has ended and lets it go on, and
// adds a fourth; then it reads in etcd's history whether all went as it should.
//
// The files, in the order to read them: replica.go is what a program of one's own would
// have, a controller; fleet.go is the course of events, verdict.go the check; cluster.go,
// process.go, marks.go, writer.go and observer.go hold what they need, report.go and
// measure.go what is printed, holdings.go and chart.go the picture.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	if o, ok := replicaFromEnv(); ok {
		os.Exit(beReplica(o))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // from now on, a second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// The exit codes.
const (
	exitGood  = 0 // the verdict is good
	exitBad   = 1 // it is not, or there is none
	exitUsage = 2
)

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	opts, measured, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitGood
	case err != nil:
		return exitUsage
	}
	if err := canPause(); err != nil {
		fmt.Fprintln(stderr, err)
		return exitUsage
	}
	began := time.Now()
	logf := func(format string, args ...any) {
		fmt.Fprintf(stderr, "%5.1f s  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
	if measured {
		err = measure(ctx, opts, stdout, stderr, logf)
	} else {
		err = demonstrate(ctx, opts, stdout, stderr, logf)
	}
	if err != nil {
		fmt.Fprintln(stderr, "fleet:", err)
		return exitBad
	}
	return exitGood
}

func parse(args []string, stderr io.Writer) (opts options, measured bool, err error) {
	flags := flag.NewFlagSet("fleet", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprint(stderr, "usage: fleet [flags]\n\n"+
			"Has replicas share keys on etcd, kills, pauses and adds some, and checks the result.\n\n")
		flags.PrintDefaults()
	}
	endpoints := flags.String("endpoints", "", "use the etcd at these `addresses`, with commas between them, instead of starting one")
	flags.IntVar(&opts.keys, "keys", 10_000, "how many keys there are")
	flags.IntVar(&opts.replicas, "replicas", 3, "how many replicas there are at first; at least 3")
	flags.DurationVar(&opts.ttl, "ttl", 5*time.Second, "how long the lease of a replica lasts without it")
	flags.DurationVar(&opts.duration, "duration", 12*time.Second, "how long keys change, besides waiting for what must happen")
	flags.Float64Var(&opts.rate, "rate", 500, "how many changes a second there are")
	flags.IntVar(&opts.workers, "workers", 8, "how many keys each replica works on at a time")
	flags.DurationVar(&opts.work, "work", 2*time.Millisecond, "how long the work on a key takes")
	flags.Uint64Var(&opts.seed, "seed", 1, "of the keys that are drawn to be changed")
	flags.StringVar(&opts.chart, "chart", "", "draw who held how many keys when, as SVG, into this `file`")
	flags.BoolVar(&measured, "measure", false, "instead, measure times and throughput with 1, 2, 3 and 5 replicas, and print tables as Markdown")
	if err := flags.Parse(args); err != nil {
		return opts, false, err
	}
	if *endpoints != "" {
		opts.endpoints = strings.Split(*endpoints, ",")
	}
	if flags.NArg() > 0 || opts.keys < 1 || opts.replicas < 3 || opts.ttl < time.Second ||
		opts.duration < 0 || opts.rate <= 0 || opts.workers < 1 || opts.work < 0 || measured && opts.chart != "" {
		flags.Usage()
		return opts, false, errors.New("wrong arguments")
	}
	return opts, measured, nil
}
