package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
)

// The tests run real mirrors on real trees. What they wait for is that the trees are the
// same, as compare sees it, or another condition; nothing is proved by the passing of
// time.

// TestMain lets the test binary be the mirror, for the test that kills it.
func TestMain(m *testing.M) {
	if os.Getenv("BE_THE_MIRROR") != "" {
		main()
	}
	os.Exit(m.Run())
}

var quick = options{workers: 4, resync: time.Hour, relist: time.Hour, drain: 10 * time.Second}

// A running mirror, which the end of the test ends.
type running struct {
	*mirror
	t    *testing.T
	stop func() error // drains, and returns run's error

	beforeClose func() // called by stop, when the mirror has ended

	mu  sync.Mutex // guards log
	log strings.Builder
}

// start mirrors src to dst until the test ends. The tweaks come before the first list.
func start(t *testing.T, src, dst string, tweaks ...func(*mirror)) *running {
	t.Helper()
	r := &running{t: t, beforeClose: func() {}}
	m, done, err := setUp(src, dst, false, quick, r.logf)
	if err != nil {
		t.Fatal(err)
	}
	r.mirror = m
	for _, tweak := range tweaks {
		tweak(m)
	}
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() {
		_, err := m.run(ctx)
		result <- err
	}()
	r.stop = sync.OnceValue(func() error {
		cancel()
		err := <-result
		r.beforeClose()
		done()
		return err
	})
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Errorf("run: %v", err)
		}
	})
	return r
}

func (r *running) logf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(&r.log, format+"\n", args...)
}

func (r *running) logged() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.String()
}

// until waits for a condition; not coming true in the time of the test is a failure.
func (r *running) until(what string, done func() bool) {
	r.t.Helper()
	end := time.Now().Add(2 * time.Minute)
	if deadline, ok := r.t.Deadline(); ok && deadline.Add(-5*time.Second).Before(end) {
		end = deadline.Add(-5 * time.Second)
	}
	for !done() {
		if time.Now().After(end) {
			r.t.Fatalf("never: %s\n%s\nfailing: %v\n%s", what, r.progress(), r.failed(), r.logged())
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// same waits until the trees are the same.
func (r *running) same() {
	r.t.Helper()
	var diffs []difference
	defer func() {
		if r.t.Failed() {
			r.t.Logf("differences: %v", diffs)
		}
	}()
	r.until("the trees are the same", func() bool {
		diffs = differ(r.t, r.mirror)
		return len(diffs) == 0
	})
}

// differ compares the trees as they are, past any fault that a test has put into src.
func differ(t *testing.T, m *mirror) []difference {
	t.Helper()
	diffs, err := compare(context.Background(), newTree(m.src.top), m.dst, m.res, func() {})
	if err != nil {
		t.Fatal(err)
	}
	return diffs
}

// mirrorOnce runs the command with -once, and fails unless it exits as wanted.
func mirrorOnce(t *testing.T, want int, args ...string) (stdout string) {
	t.Helper()
	var out, log bytes.Buffer
	if got := run(t.Context(), append([]string{"-once"}, args...), &out, &log); got != want {
		t.Fatalf("exit code %d, want %d\n%s%s", got, want, &out, &log)
	}
	return out.String()
}

// trees returns a source with the given entries and a place for the destination. What a
// name ends in says what it is: "/" a directory, "name -> target" a link, anything else
// a file that holds its own name.
func trees(t *testing.T, entries ...string) (src, dst string) {
	t.Helper()
	dir := t.TempDir()
	src = filepath.Join(dir, "src")
	plant(t, src, append([]string{"./"}, entries...)...)
	return src, filepath.Join(dir, "dst")
}

func plant(t *testing.T, top string, entries ...string) {
	t.Helper()
	for _, entry := range entries {
		name, target, link := strings.Cut(entry, " -> ")
		full := filepath.Join(top, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		switch {
		case link:
			err = os.Symlink(target, full)
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(full, 0o755)
		default:
			err = os.WriteFile(full, []byte(name), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, name ...string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(name...))
	must(t, err)
	return string(content)
}

func exists(name ...string) bool {
	_, err := os.Lstat(filepath.Join(name...))
	return err == nil
}

func TestOnceThenAgain(t *testing.T) {
	src, dst := trees(t, "a", "d/b", "d/e/f/", "l -> a", "empty/")
	must(t, os.Chmod(filepath.Join(src, "a"), 0o600))
	must(t, os.Chmod(filepath.Join(src, "d"), fs.ModeSticky|0o750))
	must(t, os.Chtimes(filepath.Join(src, "d/b"), time.Time{}, time.Date(1999, 1, 2, 3, 4, 5, 6, time.UTC)))
	mirrorOnce(t, exitSame, src, dst)
	if got := read(t, dst, "d/b"); got != "d/b" {
		t.Errorf("content %q", got)
	}
	// Again, with nothing to do, and then with something of everything to do.
	if out := mirrorOnce(t, exitSame, src, dst); !strings.Contains(out, "0 files (0 B) copied, 0 directories and links made, 0 entries removed") {
		t.Errorf("second run:\n%s", out)
	}
	must(t, os.RemoveAll(filepath.Join(src, "d")))
	must(t, os.Remove(filepath.Join(src, "l")))
	plant(t, src, "l -> nowhere", "n/e/w", "empty/not")
	mirrorOnce(t, exitSame, src, dst)
	if exists(dst, "d") {
		t.Error("d is still there")
	}
}

func TestExitCodes(t *testing.T) {
	src, dst := trees(t, "a")
	for _, args := range [][]string{
		{}, {src}, {src, dst, "more"}, {"-nonsense", src, dst}, {"-workers", "0", src, dst}, {"-drain", "-1s", src, dst},
	} {
		mirrorOnce(t, exitUsage, args...)
	}
	mirrorOnce(t, exitSame, "-help")
	mirrorOnce(t, exitFailed, filepath.Join(src, "missing"), dst)
	mirrorOnce(t, exitFailed, filepath.Join(src, "a"), dst) // no directory
	mirrorOnce(t, exitSame, src, dst)

	ctx, cancel := context.WithCancel(t.Context())
	cancel() // interrupted
	if code := run(ctx, []string{"-once", src, dst + "2"}, &bytes.Buffer{}, &bytes.Buffer{}); code != exitFailed {
		t.Errorf("interrupted: exit code %d", code)
	}
	if code := run(ctx, []string{src, dst + "3"}, &bytes.Buffer{}, &bytes.Buffer{}); code != exitSame {
		t.Errorf("interrupted while following: exit code %d", code)
	}
}

func TestRefusals(t *testing.T) {
	src, dst := trees(t, "in/", "a")
	alias := filepath.Join(t.TempDir(), "alias")
	must(t, os.Symlink(src, alias))
	loose := filepath.Join(t.TempDir(), "loose")
	must(t, os.Symlink(filepath.Join(src, "not yet"), loose))
	for _, c := range [][2]string{
		{src, src}, {src, alias}, {alias, src},
		{src, filepath.Join(src, "in")}, {src, filepath.Join(alias, "in")},
		{src, filepath.Join(src, "in/not/yet")}, {src, filepath.Join(alias, "not/yet")},
		{src, filepath.Dir(src)}, {alias, filepath.Dir(src)}, {filepath.Join(src, "in"), src},
		{src, loose},
	} {
		mirrorOnce(t, exitUsage, c[0], c[1])
		mirrorOnce(t, exitUsage, "-force", c[0], c[1])
	}
	t.Chdir(filepath.Join(src, "in")) // and by names that start here
	for _, c := range [][2]string{{src, "."}, {"..", "."}, {".", ".."}, {src, "new"}, {"..", "../new"}, {".", "not/../yet"}} {
		mirrorOnce(t, exitUsage, c[0], c[1])
	}
	if exists(src, marker) || exists(src, "new") || exists(src, "in/new") || exists(src, "in/yet") || exists(src, "in/not") || exists(src, "not") || exists(src, "not yet") {
		t.Error("a refusal has left something behind")
	}

	plant(t, dst, "mine")
	mirrorOnce(t, exitUsage, src, dst)
	if !exists(dst, "mine") {
		t.Error("a refusal has deleted something")
	}
	mirrorOnce(t, exitSame, "-force", src, dst)
	if exists(dst, "mine") {
		t.Error("-force has not taken over")
	}
	mirrorOnce(t, exitSame, src, dst) // it is the mirror's own now
	// A name that only starts like the source is not in it.
	mirrorOnce(t, exitSame, src, src+"-copy")
}

// TestMarkerInSource gives the source what only a destination should have.
func TestMarkerInSource(t *testing.T) {
	for _, entry := range []string{marker, marker + "/x", marker + " -> a"} {
		src, dst := trees(t, "a", entry, "d/"+marker, marker+".0123456789abcdef.1")
		out := mirrorOnce(t, exitSame, src, dst)
		if !strings.Contains(out, "skipped: 1") {
			t.Errorf("%s is not named:\n%s", entry, out)
		}
		if got := read(t, dst, marker); got != markerText {
			t.Errorf("the marker holds %q", got)
		}
		if !exists(dst, "d", marker) || !exists(dst, marker+".0123456789abcdef.1") {
			t.Error("other names are mirrored, but these are not")
		}
		mirrorOnce(t, exitSame, src, dst)
		mirrorOnce(t, exitSame, dst, dst+"2") // a mirror of the mirror
	}
}

func TestMarkerMustBeAFile(t *testing.T) {
	src, dst := trees(t, "a")
	plant(t, dst, marker+" -> ../src/a", "mine")
	mirrorOnce(t, exitUsage, src, dst)
	mirrorOnce(t, exitSame, "-force", src, dst)
	if got := read(t, src, "a"); got != "a" {
		t.Errorf("the marker was written through a link: %q", got)
	}
}

func TestFollow(t *testing.T) {
	src, dst := trees(t, "a", "d/b", "l -> a")
	m := start(t, src, dst)
	m.same()
	for _, step := range []func() error{
		func() error { return os.WriteFile(filepath.Join(src, "a"), []byte("other"), 0o644) },
		func() error { return os.Chmod(filepath.Join(src, "a"), 0o400) },
		func() error { return os.Chmod(filepath.Join(src, "d"), 0o711) },
		func() error { return os.Chmod(src, 0o711) },
		func() error { return os.Chtimes(filepath.Join(src, "d"), time.Time{}, time.Unix(1, 0)) },
		func() error { return os.MkdirAll(filepath.Join(src, "x/y/z"), 0o755) },
		func() error { return os.WriteFile(filepath.Join(src, "x/y/z/w"), nil, 0o644) },
		func() error { return os.Rename(filepath.Join(src, "x/y"), filepath.Join(src, "y")) },
		func() error { return os.WriteFile(filepath.Join(src, "y/z/w"), []byte("after the move"), 0o644) },
		func() error { return os.Rename(filepath.Join(src, "y"), filepath.Join(filepath.Dir(src), "out")) },
		func() error { return os.Rename(filepath.Join(filepath.Dir(src), "out"), filepath.Join(src, "back")) },
		func() error { return os.WriteFile(filepath.Join(src, "back/z/w"), []byte("after moving back"), 0o644) },
		func() error { return os.RemoveAll(filepath.Join(src, "back")) },
		func() error { return os.Remove(filepath.Join(src, "l")) },
	} {
		must(t, step())
		m.same()
	}
	must(t, m.stop())
	if failing := m.failed(); len(failing) > 0 {
		t.Errorf("failing: %v", failing)
	}
}

// TestReplacedByTwin replaces a file by another of the same size and time, which no
// comparison of sizes and times can see.
func TestReplacedByTwin(t *testing.T) {
	src, dst := trees(t, "a", "b", "c/a", "d/a", "c/b", "d/b")
	for _, name := range []string{"a", "b", "c/a", "c/b", "d/a", "d/b"} {
		must(t, os.Chtimes(filepath.Join(src, name), time.Time{}, time.Unix(1_000_000_000, 0)))
	}
	m := start(t, src, dst)
	m.same()
	must(t, os.Rename(filepath.Join(src, "a"), filepath.Join(src, "b"))) // a file takes a file's place
	m.same()
	must(t, os.Rename(filepath.Join(src, "c"), filepath.Join(src, "e"))) // directories swap
	must(t, os.Rename(filepath.Join(src, "d"), filepath.Join(src, "c")))
	must(t, os.Rename(filepath.Join(src, "e"), filepath.Join(src, "d")))
	m.same()
	must(t, os.Remove(filepath.Join(src, "c/a"))) // gone, seen to be gone, and another comes
	m.same()
	must(t, os.Rename(filepath.Join(src, "d/b"), filepath.Join(src, "c/a")))
	m.same()
}

// TestOnlyTheInitialListIsTrusted removes a file and brings another one before any worker
// has seen either, so that the copy of the first is still there.
func TestOnlyTheInitialListIsTrusted(t *testing.T) {
	src, dst := trees(t, "a")
	m, done, err := setUp(src, dst, false, quick, t.Logf)
	must(t, err)
	defer done()
	r := &running{mirror: m, t: t}
	var consumer sync.WaitGroup
	consumer.Go(func() { m.consume(t.Context()) }) // and no workers
	for _, step := range []struct {
		do      func() error
		doubted bool
	}{
		{func() error { return m.fifo.Replace([]File{{Path: "a"}}) }, false},
		{func() error { return m.fifo.Delete(File{Path: "a"}) }, false},
		{func() error { return m.fifo.Add(File{Path: "a"}) }, true},
	} {
		must(t, step.do())
		r.until("applied", func() bool { s := m.fifo.Stats(); return s.Ready+s.Processing == 0 })
		if m.doubted("a") != step.doubted {
			t.Errorf("doubted: %v", !step.doubted)
		}
	}
	m.fifo.Close()
	consumer.Wait()
}

// TestRestartTouchesNothing starts anew on a large directory that is in sync: until the
// whole list is known, most of it looks like too many.
func TestRestartTouchesNothing(t *testing.T) {
	src, dst := trees(t)
	for i := range 1000 {
		plant(t, src, fmt.Sprintf("d/%d", i))
	}
	mirrorOnce(t, exitSame, src, dst)
	if out := mirrorOnce(t, exitSame, src, dst); !strings.Contains(out, "0 files (0 B) copied, 0 directories and links made, 0 entries removed") {
		t.Errorf("second run:\n%s", out)
	}
}

// TestTypeChanges turns everything into everything else, and back.
func TestTypeChanges(t *testing.T) {
	kinds := map[string]func(name string) error{
		"file":     func(name string) error { return os.WriteFile(name, []byte("file"), 0o644) },
		"other":    func(name string) error { return os.WriteFile(name, []byte("other file"), 0o600) },
		"link":     func(name string) error { return os.Symlink("somewhere", name) },
		"dir link": func(name string) error { return os.Symlink(".", name) },
		"empty":    func(name string) error { return os.Mkdir(name, 0o755) },
		"tree": func(name string) error {
			return errors.Join(os.MkdirAll(filepath.Join(name, "b/c"), 0o755),
				os.WriteFile(filepath.Join(name, "b/c/d"), nil, 0o644), os.WriteFile(filepath.Join(name, "e"), nil, 0o644))
		},
		"nothing": func(string) error { return nil },
	}
	names := slices.Sorted(maps.Keys(kinds))
	src, dst := trees(t)
	live := start(t, src, dst)
	for _, from := range names {
		for _, to := range names {
			name := filepath.Join(src, "x")
			must(t, os.RemoveAll(name))
			must(t, kinds[from](name))
			live.same()
			mirrorOnce(t, exitSame, src, dst+"-once")
			must(t, os.RemoveAll(name))
			must(t, kinds[to](name))
			live.same()
			mirrorOnce(t, exitSame, src, dst+"-once")
		}
	}
}

// TestPlantedLink has links in the destination where directories and files belong: they
// are replaced, and nothing is written where they lead.
func TestPlantedLink(t *testing.T) {
	src, dst := trees(t, "d/e/f", "g", "h/")
	mirrorOnce(t, exitSame, src, dst)
	outside := filepath.Join(filepath.Dir(dst), "outside")
	plant(t, outside, "keep", "e/keep")
	must(t, os.RemoveAll(filepath.Join(dst, "d")))
	must(t, os.RemoveAll(filepath.Join(dst, "h")))
	must(t, os.Remove(filepath.Join(dst, "g")))
	// Out of the tree, and within it: os.Root would follow the latter.
	plant(t, dst, "d -> ../outside", "g -> ../outside/keep", "within/e/keep", "h -> within", "stray -> ../outside")
	mirrorOnce(t, exitSame, src, dst)
	if read(t, outside, "keep") != "keep" || read(t, outside, "e/keep") != "e/keep" || exists(outside, "e/f") {
		t.Error("a link was followed")
	}

	must(t, os.RemoveAll(filepath.Join(dst, "d")))
	plant(t, dst, "other/", "d -> other")
	mirrorOnce(t, exitSame, src, dst)
}

func TestLinks(t *testing.T) {
	dir := t.TempDir()
	plant(t, dir, "secret/key")
	src, dst := filepath.Join(dir, "src"), filepath.Join(dir, "dst")
	plant(t, src, "d/x", "abs -> "+filepath.Join(dir, "secret"), "up -> ../secret", "d/up -> ../../secret/key",
		"loop -> loop", "self -> .", "dangling -> \n\xff", "in -> d", "long -> "+strings.Repeat("x/", 1000))
	mirrorOnce(t, exitSame, src, dst)
	for _, name := range []string{"abs", "up", "d/up", "in"} {
		if info, err := os.Lstat(filepath.Join(dst, name)); err != nil || info.Mode()&fs.ModeSymlink == 0 {
			t.Errorf("%s is no link: %v, %v", name, info, err)
		}
	}
	m := start(t, src, dst)
	must(t, os.Remove(filepath.Join(src, "up")))
	plant(t, src, "up -> ../secret/key", "d/new -> /etc")
	m.same()
}

// TestNames mirrors what a system lets one call a file.
func TestNames(t *testing.T) {
	src, dst := trees(t)
	var names []string
	for _, name := range []string{
		"new\nline", "tab\t", "\x1b[31mred", "-rf", "...", " ", "trailing ", "a\\b", "*?[", "\"", "'", "$(x)", "%s%n", "~", ".hidden",
		"ünï", "\u202e", "nul\u0000"[:3], strings.Repeat("n", 255), strings.Repeat("é", 127), "\xff\xfe", "a\x80b", "a\x80c",
	} {
		if os.WriteFile(filepath.Join(src, name), []byte(name), 0o644) == nil { // or this system does not allow it
			names = append(names, name)
			must(t, os.MkdirAll(filepath.Join(src, "d", name, name), 0o755))
		}
	}
	if len(names) < 10 {
		t.Fatalf("only %q could be made", names)
	}
	m := start(t, src, dst)
	m.same()
	for _, name := range names {
		must(t, os.WriteFile(filepath.Join(src, name), []byte("changed "+name), 0o600))
		must(t, os.WriteFile(filepath.Join(src, "d", name, name, name), nil, 0o600))
	}
	m.same()
	for _, name := range names {
		must(t, os.RemoveAll(filepath.Join(src, "d", name)))
		must(t, os.Rename(filepath.Join(src, name), filepath.Join(src, "d", name)))
	}
	m.same()
}

// TestNamesArePrintedQuoted has every name fail, and looks at what comes out.
func TestNamesArePrintedQuoted(t *testing.T) {
	src, dst := trees(t, "new\nline", "\x1b[31mred", "\xff")
	from, real, err := openSource(src)
	must(t, err)
	defer from.Close()
	to, err := openDestination(dst, false)
	must(t, err)
	defer to.Close()
	var out, log bytes.Buffer
	opts := quick
	opts.once = true
	m, err := newMirror(newTree(from), real, to, opts, newConsole(&log).logf)
	must(t, err)
	m.src.openFile = func(at *spot, path string) (*os.File, error) {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrPermission}
	}
	diffs, err := m.run(t.Context())
	if summarize(&out, m, diffs, err, 0) {
		t.Error("all is well")
	}
	for _, c := range out.String() + log.String() {
		if c != '\n' && c < ' ' || c == '\ufffd' {
			t.Errorf("%q was printed", c)
		}
	}
	for _, want := range []string{`"new\nline": open: permission denied`, `"\xff": open`, "failed: 3", "different: 3"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %s in\n%s", want, &out)
		}
	}
}

// TestDeep has paths that are longer than a system call takes.
func TestDeep(t *testing.T) {
	src, dst := trees(t)
	top, err := os.OpenRoot(src)
	must(t, err)
	defer top.Close()
	deep := strings.Repeat(strings.Repeat("d", 200)+"/", 30)
	must(t, top.MkdirAll(deep, 0o755))
	must(t, top.WriteFile(deep+"file", []byte("deep"), 0o644))
	mirrorOnce(t, exitSame, src, dst)
	must(t, top.RemoveAll(strings.Repeat("d", 200)))
	mirrorOnce(t, exitSame, src, dst)

	// Such a path cannot be watched: it is listed again instead.
	m := start(t, src, dst, func(m *mirror) { m.reflector.relist = 50 * time.Millisecond })
	must(t, top.MkdirAll(deep, 0o755))
	m.same()
	must(t, top.WriteFile(deep+"file", []byte("deep"), 0o644))
	m.same()
	if n := strings.Count(m.logged(), "cannot watch"); n != 1 {
		t.Errorf("it was said %d times that something is not watched:\n%s", n, m.logged())
	}
}

// TestWatchLimit lets a few directories be watched, and no more.
func TestWatchLimit(t *testing.T) {
	src, dst := trees(t, "a/b/c", "d/e/f", "g/")
	m := start(t, src, dst, func(m *mirror) {
		m.reflector.relist = 50 * time.Millisecond
		m.reflector.addWatch = func(w *fsnotify.Watcher, name string) error {
			if len(w.WatchList()) >= 3 {
				return syscall.ENOSPC
			}
			return w.Add(name)
		}
	})
	m.same()
	plant(t, src, "a/b/new", "d/e/new", "g/new")
	must(t, os.RemoveAll(filepath.Join(src, "d/e/f")))
	m.same()
	if n := strings.Count(m.logged(), "cannot watch"); n != 1 {
		t.Errorf("it was said %d times that something is not watched:\n%s", n, m.logged())
	}
}

// TestOverflow makes the kernel drop events, for real: nobody takes them while files are
// written and trees are made.
func TestOverflow(t *testing.T) {
	src, dst := trees(t, "a", "b")
	hold, held := make(chan struct{}), sync.Once{}
	holding := make(chan struct{})
	m := start(t, src, dst, func(m *mirror) {
		m.reflector.onEvent = func() {
			held.Do(func() { close(holding) })
			<-hold
		}
	})
	m.same()
	var release sync.Once
	t.Cleanup(func() { release.Do(func() { close(hold) }) })

	files := make([]*os.File, 2)
	for i, name := range []string{"a", "b"} {
		f, err := os.OpenFile(filepath.Join(src, name), os.O_WRONLY, 0)
		must(t, err)
		defer f.Close()
		files[i] = f
	}
	for i := range 2 * maxQueuedEvents(t) { // in turn, as the kernel merges events that repeat
		_, err := files[i%2].WriteAt([]byte{byte(i)}, int64(i%100))
		must(t, err)
	}
	<-holding
	plant(t, src, "lost/in/the/flood", "lost/too", "also/")
	release.Do(func() { close(hold) })
	m.same()
	if !strings.Contains(m.logged(), "events may be missing") {
		t.Errorf("no overflow:\n%s", m.logged())
	}
	m.until("listed again", func() bool {
		m.reflector.mu.Lock()
		defer m.reflector.mu.Unlock()
		return m.reflector.lists > 1
	})
	plant(t, src, "lost/in/the/found")
	m.same()
}

func maxQueuedEvents(t *testing.T) int {
	t.Helper()
	var n int
	text, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	if err == nil {
		_, err = fmt.Sscan(string(text), &n)
	}
	if err != nil || n > 1<<20 {
		t.Skipf("how many events this system keeps is not known (%v), or too many (%d)", err, n)
	}
	return n
}

// deny makes paths of a source unreadable: a mode would not do, since root reads on.
type deny struct {
	mu    sync.Mutex
	paths map[string]bool
}

func (d *deny) set(path string, denied bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.paths[path] = denied
}

func (d *deny) check(path string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.paths[path] {
		return &fs.PathError{Op: "open", Path: path, Err: fs.ErrPermission}
	}
	return nil
}

func (d *deny) tweak(m *mirror) {
	m.src.openFile = func(at *spot, path string) (*os.File, error) {
		if err := d.check(path); err != nil {
			return nil, err
		}
		return openFile(at, path)
	}
	m.src.readDir = func(dir *os.Root, path string) ([]string, error) {
		if err := d.check(path); err != nil {
			return nil, err
		}
		return readDir(dir, path)
	}
}

func TestUnreadableFile(t *testing.T) {
	src, dst := trees(t, "a", "bad", "z")
	d := &deny{paths: map[string]bool{"bad": true}}
	m := start(t, src, dst, d.tweak)
	m.until("the others are there", func() bool { return len(differ(t, m.mirror)) == 2 }) // and the top's time
	m.until("bad has failed again and again", func() bool { return m.queue.NumRequeues("bad") > 3 })
	plant(t, src, "more")
	m.until("others flow", func() bool { return exists(dst, "more") })
	if err := m.failed()["bad"]; !errors.Is(err, fs.ErrPermission) {
		t.Errorf("bad: %v", err)
	}
	if exists(dst, "bad") {
		t.Error("bad is there")
	}
	d.set("bad", false)
	m.same() // its back-off brings it back
	m.until("nothing fails", func() bool { return len(m.failed()) == 0 })
}

func TestUnreadableDirectory(t *testing.T) {
	src, dst := trees(t, "d/a", "d/e/b", "z", "other/")
	d := &deny{paths: map[string]bool{}}
	m := start(t, src, dst, d.tweak)
	m.same()

	unread := func(path string) func() bool {
		return func() bool {
			failing, _ := m.reflector.problems()
			return failing[path] != nil
		}
	}
	d.set("d", true)
	must(t, os.Chmod(filepath.Join(src, "d"), 0o711)) // an event
	m.until("d fails", unread("d"))
	must(t, os.Remove(filepath.Join(src, "d/a"))) // what is known of d is not forgotten for that
	plant(t, src, "z2")
	m.until("others flow", func() bool { return exists(dst, "z2") })
	m.reflector.looks.Add(everything)
	m.until("listed again", func() bool {
		m.reflector.mu.Lock()
		defer m.reflector.mu.Unlock()
		return m.reflector.lists > 1
	})
	must(t, m.fifo.Resync())
	m.until("done", m.idle)
	if !exists(dst, "d/e/b") {
		t.Fatal("a directory that cannot be read was taken for empty")
	}
	must(t, m.stop())

	// A mirror that starts now knows nothing of d, but that it does not know.
	m = start(t, src, dst, d.tweak)
	m.until("d fails", unread("d"))
	plant(t, src, "z3")
	m.until("others flow", func() bool { return exists(dst, "z3") })
	m.until("done", m.idle)
	if !exists(dst, "d/e/b") {
		t.Fatal("a directory that cannot be read was taken for empty by the next mirror")
	}
	d.set("d", false)
	m.same() // the reflector's back-off brings it back
	m.until("nothing fails", func() bool { return !unread("d")() && len(m.failed()) == 0 })
}

// TestUnreadableTop takes the whole source away.
func TestUnreadableTop(t *testing.T) {
	src, dst := trees(t, "a", "d/b")
	d := &deny{paths: map[string]bool{}}
	m := start(t, src, dst, d.tweak)
	m.same()
	d.set(".", true)
	m.reflector.looks.Add(everything)
	m.reflector.looks.Add(".")
	m.until("the list fails", func() bool { return m.reflector.looks.NumRequeues(everything) > 1 })
	m.until("the top fails", func() bool { return m.reflector.looks.NumRequeues(".") > 1 })
	m.until("done", m.idle)
	if !exists(dst, "d/b") {
		t.Fatal("a source that cannot be read was taken for empty")
	}
	d.set(".", false)
	plant(t, src, "c")
	m.same()
}

// TestSourceMoved moves the source's top itself away: that is no reason to delete a copy.
func TestSourceMoved(t *testing.T) {
	src, dst := trees(t, "a", "b")
	m := start(t, src, dst)
	m.same()
	must(t, os.Rename(filepath.Join(src, "a"), filepath.Join(filepath.Dir(src), "a")))
	m.until("a is gone", func() bool { return !exists(dst, "a") })
	must(t, os.Rename(src, src+"-moved"))
	plant(t, src, "imposter")
	m.until("the top fails", func() bool {
		failing, _ := m.reflector.problems()
		return failing["."] != nil
	})
	m.until("done", m.idle)
	if !exists(dst, "b") || exists(dst, "imposter") {
		t.Error("another source was taken for the old one")
	}
}

// TestPeriodicResync leaves it to the clock to find out what no event tells.
func TestPeriodicResync(t *testing.T) {
	src, dst := trees(t, "a", "d/b")
	m := start(t, src, dst, func(m *mirror) {
		m.opts.resync = 50 * time.Millisecond
		m.reflector.addWatch = func(*fsnotify.Watcher, string) error { return nil } // no events at all
	})
	m.same()
	plant(t, src, "new", "d/new")
	must(t, os.Remove(filepath.Join(dst, "a")))
	m.same()
	must(t, os.Rename(src, src+"-gone"))
	m.until("the top fails", func() bool {
		failing, _ := m.reflector.problems()
		return failing["."] != nil
	})
	if !exists(dst, "a") {
		t.Error("a source that is gone was taken for empty")
	}
}

// TestChangingWhileCopied changes a file between its opening and its end.
func TestChangingWhileCopied(t *testing.T) {
	src, dst := trees(t, "a")
	must(t, os.Chtimes(filepath.Join(src, "a"), time.Time{}, time.Unix(1, 0)))
	changes := 0
	m := start(t, src, dst, func(m *mirror) {
		m.src.openFile = func(at *spot, path string) (*os.File, error) {
			f, err := openFile(at, path)
			if changes < 3 { // only one worker has this path
				changes++
				text := strings.Repeat("new", changes)
				err = errors.Join(err, os.WriteFile(filepath.Join(src, "a"), []byte(text), 0o644))
			}
			return f, err
		}
	})
	m.same()
	if got := read(t, dst, "a"); got != "newnewnew" {
		t.Errorf("a is %q", got)
	}
}

// A meddler changes a file while somebody writes to it, who copies that file.
type meddler struct{ meddle func() error }

func (m meddler) Write(p []byte) (int, error) { return len(p), m.meddle() }

// TestOnlyWhatWasListedIsCopied changes the source before it is opened, and in the midst
// of the copy.
func TestOnlyWhatWasListedIsCopied(t *testing.T) {
	src, dst := trees(t, "a")
	m, done, err := setUp(src, dst, false, quick, t.Logf)
	must(t, err)
	defer done()
	want, err := (&spot{dir: m.src.top, name: "a", top: m.src.top}).describe("a")
	must(t, err)
	in, err := m.openSource(want)
	must(t, err)
	defer in.Close()
	change := meddler{func() error { return os.Chtimes(filepath.Join(src, "a"), time.Time{}, time.Unix(1, 0)) }}
	if err := m.transfer(t.Context(), change, in, want); !errors.Is(err, errChanged) {
		t.Errorf("changed while it was copied: %v", err)
	}
	if in, err := m.openSource(want); !errors.Is(err, errChanged) {
		t.Errorf("changed before: %v, %v", in, err)
	}
}

// TestTemporaryFiles has one in use, which is left alone, until it is no longer.
func TestTemporaryFiles(t *testing.T) {
	src, dst := trees(t)
	m, done, err := setUp(src, dst, false, quick, t.Logf)
	must(t, err)
	defer done()
	must(t, m.store.Add(File{Path: ".", Mode: fs.ModeDir | 0o755, ModTime: time.Unix(1, 0)}))
	temp := m.newTemp()
	plant(t, dst, temp)
	must(t, m.sync(t.Context(), "."))
	if got := m.queue.Snapshot().Ready; len(got) > 0 {
		t.Errorf("taken for strays: %q", got)
	}
	m.live.Delete(temp)
	must(t, m.sync(t.Context(), "."))
	if got := m.queue.Snapshot().Ready; !slices.Equal(got, []string{temp}) {
		t.Errorf("left over and not found: %q", got)
	}
}

// TestOnceSourceChanges lets the source change behind -once's back, a bounded number of
// times, and without end.
func TestOnceSourceChanges(t *testing.T) {
	for _, test := range []struct {
		changes int
		same    bool
	}{{1, true}, {rounds - 1, true}, {1 << 30, false}} {
		src, dst := trees(t, "a", "d/")
		changes := 0
		opts := quick
		opts.once = true
		var log bytes.Buffer
		m, done, err := setUp(src, dst, false, opts, newConsole(&log).logf)
		must(t, err)
		m.src.readDir = func(dir *os.Root, path string) ([]string, error) {
			names, err := readDir(dir, path)
			if path == "d" && changes < test.changes && len(names) <= changes { // after each list, a new file
				err = errors.Join(err, os.WriteFile(filepath.Join(src, "d", fmt.Sprint(changes)), nil, 0o644))
				changes++
			}
			return names, err
		}
		diffs, err := m.run(t.Context())
		done()
		if err != nil || (len(diffs) == 0) != test.same {
			t.Errorf("%d changes: %v, %v\n%s", test.changes, diffs, err, &log)
		}
		if !strings.Contains(log.String(), "starting over") {
			t.Errorf("not a word of changes:\n%s", &log)
		}
	}
}

// TestOnceFindsWrongContent has a copy that only reading can tell from a good one.
func TestOnceFindsWrongContent(t *testing.T) {
	src, dst := trees(t, "a", "b")
	mirrorOnce(t, exitSame, src, dst)
	info, err := os.Stat(filepath.Join(dst, "a"))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dst, "a"), []byte("x"), 0o644))
	must(t, os.Chtimes(filepath.Join(dst, "a"), time.Time{}, info.ModTime()))
	mirrorOnce(t, exitSame, src, dst)
	if got := read(t, dst, "a"); got != "a" {
		t.Errorf("a is %q", got)
	}
}

// TestResync damages the destination, of which no event tells.
func TestResync(t *testing.T) {
	src, dst := trees(t, "a", "d/e/f", "l -> a", "keep")
	m := start(t, src, dst)
	m.same()
	must(t, os.RemoveAll(filepath.Join(dst, "d")))
	must(t, os.Remove(filepath.Join(dst, "l")))
	must(t, os.WriteFile(filepath.Join(dst, "a"), []byte("damaged"), 0o600))
	plant(t, dst, "stray/s/t", "l/in/the/way")
	must(t, m.fifo.Resync())
	m.same()

	// With the destination as it was, a directory that had to be made anew brings back
	// what it holds, without waiting for the next Resync.
	must(t, os.RemoveAll(filepath.Join(dst, "d")))
	m.queue.Add("d")
	m.same()
}

// TestDrain interrupts a mirror in the middle of its work: what has begun is finished.
func TestDrain(t *testing.T) {
	src, dst := trees(t)
	for i := range 200 {
		plant(t, src, fmt.Sprintf("d%d/f%d", i%10, i))
	}
	reached, once := make(chan struct{}), sync.Once{}
	m := start(t, src, dst, func(m *mirror) {
		m.src.openFile = func(at *spot, path string) (*os.File, error) {
			once.Do(func() { close(reached) })
			if strings.HasSuffix(path, "7") {
				return nil, fs.ErrPermission // waiting for these would take for ever
			}
			return openFile(at, path)
		}
	})
	<-reached
	var diffs []difference
	m.beforeClose = func() { diffs = differ(t, m.mirror) }
	must(t, m.stop())
	if got, want := len(m.failed()), 20; got != want {
		t.Errorf("%d paths have failed, want %d", got, want)
	}
	if got, want := m.inSync(), 191; got != want {
		t.Errorf("%d paths are in sync, want %d", got, want)
	}
	if len(diffs) != 20 { // the times of directories come last, and are not left out
		t.Errorf("more than the failing paths differ: %v", diffs)
	}
}

// TestDrainDeadline has work that does not end in time.
func TestDrainDeadline(t *testing.T) {
	src, dst := trees(t, "a", "b", "c")
	must(t, os.Truncate(filepath.Join(src, "a"), 10<<20))
	for _, name := range []string{"a", "b", "c"} {
		must(t, os.Chtimes(filepath.Join(src, name), time.Time{}, time.Unix(1, 0)))
	}
	opts := quick
	opts.workers, opts.drain = 1, 20*time.Millisecond
	m, done, err := setUp(src, dst, false, opts, t.Logf)
	must(t, err)
	defer done()
	var once sync.Once
	begun, end := make(chan struct{}), make(chan struct{})
	m.src.openFile = func(at *spot, path string) (*os.File, error) {
		once.Do(func() { close(begun) })
		<-end
		return openFile(at, path)
	}
	working, abort := context.WithCancel(t.Context())
	var stages sync.WaitGroup
	stages.Go(func() { m.consume(working) })
	stages.Go(func() { m.work(working) })
	_, err = m.reflector.listAll(t.Context())
	must(t, err)
	<-begun
	err = m.drain()
	close(end)
	abort()
	stages.Wait()
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("drain: %v", err)
	}
	var out bytes.Buffer
	if summarize(&out, m, nil, err, 0) || !strings.Contains(out.String(), "not finished") || len(m.left) == 0 {
		t.Errorf("left %q:\n%s", m.left, &out)
	}
	mirrorOnce(t, exitSame, src, dst)
}
