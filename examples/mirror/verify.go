package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"time"
)

// A difference is one path in which the trees are not the same.
type difference struct {
	path    string
	what    string
	content bool // only the content differs
}

func (d difference) String() string { return fmt.Sprintf("%q: %s", d.path, d.what) }

// compare reads both trees from top to bottom, contents included, and knows nothing of
// queues and stores: it is the independent check of what the mirror has done. It calls
// next for each path that it comes to.
func compare(ctx context.Context, src *tree, dst *os.Root, res time.Duration, next func()) ([]difference, error) {
	c := &comparison{src: src, dst: newTree(dst), res: res, next: next}
	c.pair(ctx, &spot{dir: src.top, name: ".", top: src.top}, &spot{dir: dst, name: ".", top: dst}, ".")
	return c.diffs, ctx.Err()
}

type comparison struct {
	src, dst *tree
	res      time.Duration
	next     func()
	diffs    []difference
}

func (c *comparison) differ(name, format string, args ...any) {
	c.diffs = append(c.diffs, difference{path: name, what: fmt.Sprintf(format, args...)})
}

// pair compares what the trees have under one name.
func (c *comparison) pair(ctx context.Context, from, to *spot, name string) {
	if ctx.Err() != nil || name == marker {
		return
	}
	c.next()
	want, err := from.describe(name)
	_, special := want.special()
	missing := special || errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		c.differ(name, "cannot be compared: %s", reason(err))
		return
	}
	have, err := to.describe(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if !missing {
			c.differ(name, "missing")
		}
		return
	case err != nil:
		c.differ(name, "cannot be compared: %s", reason(err))
		return
	case missing:
		c.differ(name, "too many")
		return
	}
	if what := contrast(want, have, c.res); what != "" {
		c.differ(name, "%s", what)
	}
	switch {
	case want.Mode.Type() != have.Mode.Type():
	case want.Mode.IsDir():
		c.dirs(ctx, from, to, name)
	case want.Mode.IsRegular() && want.Size == have.Size:
		c.contents(from, to, name)
	}
}

// contrast says in what two entries differ, if they do.
func contrast(want, have File, res time.Duration) string {
	switch {
	case want.Mode != have.Mode:
		return fmt.Sprintf("mode %v, not %v", have.Mode, want.Mode)
	case want.Target != have.Target:
		return fmt.Sprintf("links to %q, not %q", have.Target, want.Target)
	case want.Size != have.Size:
		return fmt.Sprintf("%d bytes, not %d", have.Size, want.Size)
	case !sameTime(want, have, res):
		return fmt.Sprintf("time %v, not %v", have.ModTime, want.ModTime)
	}
	return ""
}

func (c *comparison) dirs(ctx context.Context, from, to *spot, name string) {
	fromDir, names, err := c.src.openDir(from, name)
	if err != nil {
		c.differ(name, "cannot be compared: %s", reason(err))
		return
	}
	defer fromDir.Close()
	toDir, toNames, err := c.dst.openDir(to, name)
	if err != nil {
		c.differ(name, "cannot be compared: %s", reason(err))
		return
	}
	defer toDir.Close()
	all := map[string]bool{}
	for _, n := range slices.Concat(names, toNames) {
		all[n] = true
	}
	for _, n := range slices.Sorted(maps.Keys(all)) {
		c.pair(ctx, &spot{dir: fromDir, name: n, top: fromDir}, &spot{dir: toDir, name: n, top: toDir}, path.Join(name, n))
	}
}

func (c *comparison) contents(from, to *spot, name string) {
	a, err := c.src.openFile(from, name)
	if err != nil {
		c.differ(name, "cannot be compared: %s", reason(err))
		return
	}
	defer a.Close()
	b, err := c.dst.openFile(to, name)
	if err != nil {
		c.differ(name, "cannot be compared: %s", reason(err))
		return
	}
	defer b.Close()
	same, err := sameContent(a, b)
	switch {
	case err != nil:
		c.differ(name, "cannot be compared: %s", reason(err))
	case !same:
		c.diffs = append(c.diffs, difference{path: name, what: "other content", content: true})
	}
}

func sameContent(a, b io.Reader) (bool, error) {
	x, y := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		n, errA := io.ReadFull(a, x)
		k, errB := io.ReadFull(b, y)
		switch {
		case !bytes.Equal(x[:n], y[:k]):
			return false, nil
		case errA == nil && errB == nil:
		case ended(errA) && ended(errB):
			return true, nil
		default:
			return false, errors.Join(errA, errB)
		}
	}
}

func ended(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }
