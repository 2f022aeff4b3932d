// Command mirror keeps a directory tree like another one.
//
//	mirror [flags] SRC DST
//
// It is the longest example of package typedqueue: a controller as one writes it against
// the API of a cluster, with a directory tree in its place. The files, in the order to
// read them: mirror.go is the pipeline, reflector.go its source, sync.go what a worker
// does for one path, verify.go the check of the result; tree.go and setup.go hold what
// they need, progress.go what is printed, http.go the page of its queues.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // from now on, a second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// The exit codes.
const (
	exitSame   = 0 // all that was to be mirrored has been
	exitFailed = 1
	exitUsage  = 2
)

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	opts, src, dst, force, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitSame
	case err != nil:
		return exitUsage
	}
	out := newConsole(stderr)
	m, done, err := setUp(src, dst, force, opts, out.logf)
	if err != nil {
		out.logf("%v", err)
		if errors.Is(err, errRefused) {
			return exitUsage
		}
		return exitFailed
	}
	defer done()

	url, stop, err := servePage(m, opts.http)
	if err != nil {
		out.logf("%v", err)
		return exitFailed
	}
	defer stop()
	if url != "" {
		out.logf("queues: %s", url)
	}

	start := time.Now()
	shown := out.show(m)
	diffs, err := m.run(ctx)
	shown()
	if !summarize(stdout, m, diffs, err, time.Since(start)) {
		return exitFailed
	}
	return exitSame
}

func parse(args []string, stderr io.Writer) (opts options, src, dst string, force bool, err error) {
	flags := flag.NewFlagSet("mirror", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprint(stderr, "usage: mirror [flags] SRC DST\n\n"+
			"Keeps the tree DST like the tree SRC until it is interrupted.\n\n")
		flags.PrintDefaults()
	}
	flags.BoolVar(&opts.once, "once", false, "mirror, compare the trees, and end")
	flags.IntVar(&opts.workers, "workers", 2*runtime.GOMAXPROCS(0), "how many paths to work on at a time")
	flags.BoolVar(&force, "force", false, "take over a DST that holds something else, and delete what it holds")
	flags.DurationVar(&opts.resync, "resync", 5*time.Minute, "how often to look at every path again")
	flags.DurationVar(&opts.relist, "relist", 10*time.Second, "how often to list SRC again where it cannot be watched")
	flags.DurationVar(&opts.drain, "drain", 10*time.Second, "how long to finish what has begun, at the end")
	flags.StringVar(&opts.http, "http", "", "where to show the queues as a web page, such as 127.0.0.1:8080")
	if err := flags.Parse(args); err != nil {
		return opts, "", "", false, err
	}
	if opts.http != "" {
		if err := checkLoopback(opts.http); err != nil {
			fmt.Fprintf(stderr, "-http: %v\n", err)
			return opts, "", "", false, err
		}
	}
	if flags.NArg() != 2 || opts.workers < 1 || opts.resync <= 0 || opts.relist <= 0 || opts.drain <= 0 {
		flags.Usage()
		return opts, "", "", false, errors.New("wrong arguments")
	}
	return opts, flags.Arg(0), flags.Arg(1), force, nil
}

// setUp opens both trees and makes the mirror.
func setUp(src, dst string, force bool, opts options, logf func(string, ...any)) (m *mirror, done func(), err error) {
	// One name for each tree, so that what is checked is what is opened.
	src, err = filepath.Abs(src)
	if err == nil {
		dst, err = filepath.Abs(dst)
	}
	if err != nil {
		return nil, nil, err
	}
	from, real, err := openSource(src)
	if err != nil {
		return nil, nil, failure("source", src, err)
	}
	if err := separate(real, dst); err != nil {
		_ = from.Close()
		return nil, nil, failure("destination", dst, err)
	}
	to, err := openDestination(dst, force)
	if err != nil {
		_ = from.Close()
		return nil, nil, failure("destination", dst, err)
	}
	done = func() {
		_ = from.Close() // no more than
		_ = to.Close()   // starting points
	}
	m, err = newMirror(newTree(from), real, to, opts, logf)
	if err != nil {
		done()
		return nil, nil, failure("destination", dst, err)
	}
	return m, done, nil
}

// failure names what has failed, quoted, unless err does so already.
func failure(what, name string, err error) error {
	if errors.Is(err, errRefused) {
		return err
	}
	return fmt.Errorf("%s %q: %s", what, name, reason(err))
}
