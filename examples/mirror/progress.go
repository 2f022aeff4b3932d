package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// A console prints lines, and on a terminal a status line below them.
type console struct {
	mu     sync.Mutex // guards out and status
	out    io.Writer
	tty    bool
	status string
}

func newConsole(out io.Writer) *console {
	c := &console{out: out}
	if f, ok := out.(*os.File); ok {
		info, err := f.Stat()
		c.tty = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return c
}

const clearLine = "\r\x1b[K"

// logf prints a line. File names must be quoted by the caller.
func (c *console) logf(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	line := fmt.Sprintf(format, args...) + "\n"
	if c.tty {
		line = clearLine + line + c.status
	}
	_, _ = io.WriteString(c.out, line) // there is nowhere to report an error to
}

// setStatus replaces the status line.
func (c *console) setStatus(status string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status = status
	_, _ = io.WriteString(c.out, clearLine+status)
}

// show shows how m gets on, until the function that it returns is called: a bar that
// moves on a terminal, elsewhere a line now and then, if anything has changed.
func (c *console) show(m *mirror) (stop func()) {
	every := 2 * time.Second
	if c.tty {
		every = 100 * time.Millisecond
	}
	ended := make(chan struct{})
	var shower sync.WaitGroup
	shower.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		last := ""
		for {
			select {
			case <-ended:
				return
			case <-tick.C:
			}
			if c.tty {
				c.setStatus(m.bar())
				continue
			}
			if line := m.progress(); line != last {
				c.logf("%s", line)
				last = line
			}
		}
	})
	return func() {
		close(ended)
		shower.Wait()
		if c.tty {
			c.setStatus("")
		}
	}
}

// progress is a line of figures. All of them are pulled from where they belong.
func (m *mirror) progress() string {
	total := m.store.Len()
	if total == 0 {
		return "listing"
	}
	q := m.queue.Stats()
	line := fmt.Sprintf("%d of %d in sync, %s copied; %d deltas; queue: %d ready, %d in work, %d waiting, %d retries",
		m.inSync(), total, size(m.bytes.Load()), m.fifo.Len(), q.Ready, q.Processing, q.Waiting, q.Retries)
	if n := m.compared.Load(); n > 0 {
		line += fmt.Sprintf("; %d compared", n)
	}
	return line
}

// bar is progress for the 80 columns of a terminal.
func (m *mirror) bar() string {
	done, total, q := m.inSync(), m.store.Len(), m.queue.Stats()
	line := fmt.Sprintf("%s %d/%d %s, queue %d+%d+%d, %d retries", meter(done, total), done, total,
		size(m.bytes.Load()), q.Ready, q.Processing, q.Waiting, q.Retries)
	if n := m.compared.Load(); n > 0 {
		line += fmt.Sprintf(", %d compared", n)
	}
	return line
}

func meter(done, total int) string {
	const width = 10
	full := 0
	if total > 0 {
		full = min(width, width*done/total)
	}
	return "[" + strings.Repeat("#", full) + strings.Repeat(".", width-full) + "]"
}

func size(bytes int64) string {
	if bytes < 1000 {
		return fmt.Sprintf("%d B", bytes)
	}
	value := float64(bytes)
	for _, unit := range []string{"kB", "MB", "GB"} {
		if value /= 1000; value < 1000 {
			return fmt.Sprintf("%.1f %s", value, unit)
		}
	}
	return fmt.Sprintf("%.1f TB", value/1000)
}

// summarize prints what has come of it, and reports whether all is well.
func summarize(w io.Writer, m *mirror, diffs []difference, err error, took time.Duration) bool {
	q := m.queue.Stats()
	fmt.Fprintf(w, "%d of %d in sync after %v: %d files (%s) copied, %d directories and links made, %d entries removed\n",
		m.inSync(), m.store.Len(), took.Round(time.Millisecond), m.copies.Load(), size(m.bytes.Load()), m.made.Load(), m.removed.Load())
	fmt.Fprintf(w, "queue: %d runs asked for, %d of them merged, %d retries\n", q.Adds+q.Merged, q.Merged, q.Retries)

	unread, skipped := m.reflector.problems()
	failing := m.failed()
	maps.Copy(failing, unread)
	list(w, "skipped", skipped)
	list(w, "failed", reasons(failing))
	if err != nil {
		fmt.Fprintf(w, "not finished: %s\n", reason(err))
		for _, name := range m.left {
			fmt.Fprintf(w, "  %q\n", name)
		}
	}
	if m.opts.once && err == nil {
		if len(diffs) == 0 {
			fmt.Fprintln(w, "verified: the trees are the same")
		}
		list(w, "different", differences(diffs))
	}
	return err == nil && len(failing) == 0 && len(diffs) == 0
}

func list(w io.Writer, title string, lines map[string]string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(w, "%s: %d\n", title, len(lines))
	for _, name := range slices.Sorted(maps.Keys(lines)) {
		fmt.Fprintf(w, "  %q: %s\n", name, lines[name])
	}
}

func reasons(errs map[string]error) map[string]string {
	lines := make(map[string]string, len(errs))
	for name, err := range errs {
		lines[name] = reason(err)
	}
	return lines
}

func differences(diffs []difference) map[string]string {
	lines := make(map[string]string, len(diffs))
	for _, d := range diffs {
		lines[d.path] = d.what
	}
	return lines
}
