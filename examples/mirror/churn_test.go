package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestChurn does at random, while the mirror runs, what one can do to a tree.
func TestChurn(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	src, dst := trees(t)
	top, err := os.OpenRoot(src) // the links of the churn lead out of the tree
	must(t, err)
	defer top.Close()
	c := &churn{t: t, r: rand.New(rand.NewPCG(seed, 0)), top: top, at: 1_000_000_000}
	for range 100 {
		c.step()
	}
	m := start(t, src, dst)
	for range 5 {
		for range 400 {
			c.step()
		}
		m.same()
	}
	for range 20 { // a few at a time, so that each is seen alone
		for range 1 + c.r.IntN(3) {
			c.step()
		}
		m.same()
	}
	must(t, m.stop())
	mirrorOnce(t, exitSame, src, dst)
}

type churn struct {
	t   *testing.T
	r   *rand.Rand
	top *os.Root
	at  int64 // the latest time that was set by hand
}

// name draws a path. There are few, so that things meet.
func (c *churn) name() string {
	var names []string
	for range 1 + c.r.IntN(4) {
		names = append(names, string("abcd"[c.r.IntN(4)]))
	}
	return strings.Join(names, "/")
}

// step does one thing. Much of it fails: the name is missing, or no directory, or in use.
func (c *churn) step() {
	name, other := c.name(), c.name()
	switch n := c.r.IntN(20); {
	case n < 4:
		_ = c.top.MkdirAll(name, 0o755)
	case n < 9:
		_ = c.top.WriteFile(name, c.content(), 0o644)
	case n < 10:
		if f, err := c.top.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0); err == nil {
			_, err = f.Write(c.content())
			must(c.t, errors.Join(err, f.Close()))
		}
	case n < 13:
		_ = c.top.Rename(name, other)
	case n < 14:
		_ = c.top.Remove(name)
	case n < 15:
		if c.r.IntN(3) == 0 {
			_ = c.top.RemoveAll(name)
		}
	case n < 17:
		c.chmod(name)
	case n < 18:
		if info, err := c.top.Stat(name); err == nil {
			c.at++ // no time twice: that could hide a write
			must(c.t, c.top.Chtimes(name, info.ModTime(), time.Unix(c.at, c.at)))
		}
	default:
		_ = c.top.Symlink([]string{".", "..", "a", "../b/c", "/"}[c.r.IntN(5)], name)
	}
}

// content is short and seldom of a size of its own, or long enough to be met half-way.
func (c *churn) content() []byte {
	if c.r.IntN(10) == 0 {
		return bytes.Repeat([]byte{byte(c.r.IntN(256))}, c.r.IntN(1<<20))
	}
	return fmt.Appendf(nil, "%03d", c.r.IntN(1000))
}

func (c *churn) chmod(name string) {
	info, err := c.top.Stat(name)
	if err != nil {
		return
	}
	mode := 0o400 | fs.FileMode(c.r.IntN(0o1000)) // all are to be read, and
	if info.IsDir() {
		mode |= 0o700 // nothing is to stop the churn
	}
	must(c.t, c.top.Chmod(name, mode))
}

// TestKill kills a mirror at work, several times, and has the next one finish.
func TestKill(t *testing.T) {
	self, err := os.Executable()
	must(t, err)
	src, dst := trees(t)
	for i := range 600 {
		plant(t, src, fmt.Sprintf("d%d/e%d/f%d", i%7, i%5, i))
	}
	for round := range 3 {
		mirror := exec.Command(self, src, dst)
		mirror.Env = append(os.Environ(), "BE_THE_MIRROR=1")
		var log bytes.Buffer
		mirror.Stderr = &log
		must(t, mirror.Start())
		enough := (round + 1) * 100
		for end := time.Now().Add(time.Minute); entries(dst) < enough; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Errorf("it does not get on:\n%s", &log)
				break
			}
		}
		must(t, mirror.Process.Kill())
		_ = mirror.Wait() // which says that it was killed
		t.Logf("killed with %d of %d entries there", entries(dst), entries(src))
		for i := range 50 { // meanwhile
			plant(t, src, fmt.Sprintf("d%d/e%d/meanwhile%d.%d", i%7, i%5, i, round))
		}
		must(t, os.RemoveAll(filepath.Join(src, fmt.Sprintf("d%d/e0", round))))
		must(t, os.WriteFile(filepath.Join(src, "d3/e3/f3"), fmt.Appendln(nil, round), 0o600))
		// What a killed mirror may leave, whether or not this one has.
		plant(t, dst, marker+".fedcba9876543210.1", "d6/"+marker+".fedcba9876543210.2")
	}
	mirrorOnce(t, exitSame, src, dst)
}

func entries(top string) (n int) {
	_ = filepath.WalkDir(top, func(string, fs.DirEntry, error) error {
		n++
		return nil
	})
	return n
}
