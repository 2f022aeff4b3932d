package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"example.com/typedqueue"
)

func TestCooling(t *testing.T) {
	now := time.Unix(1000, 500)
	for _, test := range []struct {
		written time.Time
		want    time.Duration
	}{
		{now, 20 * time.Millisecond},
		{now.Add(-5 * time.Millisecond), 15 * time.Millisecond},
		{now.Add(-20 * time.Millisecond), 0},
		{now.Add(-time.Hour), 0},
		{now.Add(time.Hour), 0}, // set by hand; a write would bring it to now
		{time.Unix(1000, 0), 2*time.Second - 500},
		{time.Unix(999, 0), time.Second - 500},
		{time.Unix(998, 0), 0},
		{time.Time{}, 0},
	} {
		if got := cooling(test.written, now); got != test.want {
			t.Errorf("cooling(%v) = %v, want %v", test.written, got, test.want)
		}
	}
}

func TestSameContent(t *testing.T) {
	long := strings.Repeat("x", 64<<10)
	for _, test := range []struct {
		a, b string
		same bool
	}{
		{"", "", true}, {"a", "a", true}, {"a", "b", false}, {"a", "", false}, {"", "a", false},
		{long, long, true}, {long, long + "y", false}, {long + "y", long, false}, {long + "y", long + "z", false},
	} {
		same, err := sameContent(iotest.OneByteReader(strings.NewReader(test.a)), strings.NewReader(test.b))
		if same != test.same || err != nil {
			t.Errorf("%d and %d bytes: %v, %v", len(test.a), len(test.b), same, err)
		}
	}
	broken := errors.New("broken")
	fails := io.MultiReader(strings.NewReader("a"), iotest.ErrReader(broken))
	if same, err := sameContent(fails, strings.NewReader("a")); same || !errors.Is(err, broken) {
		t.Errorf("a file that cannot be read: %v, %v", same, err)
	}
}

// TestCompare breaks a good copy in every way, and sees that it is seen.
func TestCompare(t *testing.T) {
	for what, damage := range map[string]func(dst string) error{
		"":                      func(string) error { return nil },
		`"a": missing`:          func(dst string) error { return os.Remove(dst + "/a") },
		`"b": too many`:         func(dst string) error { return os.Mkdir(dst+"/b", 0o755) },
		`"a": mode`:             func(dst string) error { return os.Chmod(dst+"/a", 0o640) },
		`"d": mode`:             func(dst string) error { return os.Chmod(dst+"/d", 0o700) },
		`"l": links to "x"`:     func(dst string) error { return errors.Join(os.Remove(dst+"/l"), os.Symlink("x", dst+"/l")) },
		`"a": 0 bytes, not 1`:   func(dst string) error { return os.Truncate(dst+"/a", 0) },
		`"a": other content`:    func(dst string) error { return rewrite(dst+"/a", "b") },
		`"d": time`:             func(dst string) error { return os.Chtimes(dst+"/d", time.Time{}, time.Unix(7, 0)) },
		`"d/e/f": time`:         func(dst string) error { return os.Chtimes(dst+"/d/e/f", time.Time{}, time.Unix(7, 0)) },
		`"l": mode -rw-r--r--,`: func(dst string) error { return errors.Join(os.Remove(dst+"/l"), os.WriteFile(dst+"/l", nil, 0o644)) },
		`"d/e": mode Lrwxr`:     func(dst string) error { return errors.Join(os.RemoveAll(dst+"/d/e"), os.Symlink("..", dst+"/d/e")) },
	} {
		src, dst := trees(t, "a", "d/e/f", "l -> a")
		mirrorOnce(t, exitSame, src, dst)
		from, err := os.OpenRoot(src)
		must(t, err)
		to, err := os.OpenRoot(dst)
		must(t, err)
		must(t, damage(dst))
		diffs, err := compare(context.Background(), newTree(from), to, 1, func() {})
		must(t, err)
		var got []string
		for _, d := range diffs {
			got = append(got, d.String())
		}
		if (len(got) == 0) != (what == "") || !strings.Contains(strings.Join(got, "\n"), strings.Replace(what, "Lrwxr", "L", 1)) {
			t.Errorf("want %q, got %q", what, got)
		}
		must(t, errors.Join(from.Close(), to.Close()))
	}
}

// rewrite changes a content and nothing else.
func rewrite(name, content string) error {
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(name, []byte(content), 0), os.Chtimes(name, time.Time{}, info.ModTime()))
}

// TestSpotsFollowNoLink walks along links that os.Root would follow.
func TestSpotsFollowNoLink(t *testing.T) {
	src, _ := trees(t, "d/e/f", "in -> d", "d/up -> ..", "out -> ..")
	top, err := os.OpenRoot(src)
	must(t, err)
	defer top.Close()
	for _, path := range []string{"in/e", "in/e/f", "d/up/d", "out/src", "d/e/f/g"} {
		if at, err := find(top, path); !absent(err) {
			t.Errorf("find(%q) = %v, %v", path, at, err)
		}
	}
	if _, err := find(top, "d/e/f"); err != nil {
		t.Error(err)
	}
}

func TestResolution(t *testing.T) {
	_, dst := trees(t)
	top, err := openDestination(dst, false)
	must(t, err)
	defer top.Close()
	res, err := resolution(top)
	must(t, err)
	at := &spot{dir: top, name: "f", top: top}
	must(t, os.WriteFile(filepath.Join(dst, "f"), nil, 0o600))
	want := File{ModTime: time.Unix(1234, 987_654_321)}
	must(t, top.Chtimes("f", time.Time{}, want.ModTime))
	have, err := at.describe("f")
	must(t, err)
	if !sameTime(have, want, res) {
		t.Errorf("%v and %v are not the same to %v", have.ModTime, want.ModTime, res)
	}
}

func TestNewest(t *testing.T) {
	one, two := typedqueue.Delta[File]{Type: typedqueue.Added}, typedqueue.Delta[File]{Type: typedqueue.Deleted}
	if got := newest(newest(nil, one), two); len(got) != 1 || got[0].Type != typedqueue.Deleted {
		t.Errorf("got %v", got)
	}
}

func TestFigures(t *testing.T) {
	for bytes, want := range map[int64]string{0: "0 B", 999: "999 B", 1000: "1.0 kB", 1_500_000: "1.5 MB", 2e9: "2.0 GB", 3e12: "3.0 TB"} {
		if got := size(bytes); got != want {
			t.Errorf("size(%d) = %s, want %s", bytes, got, want)
		}
	}
	for _, test := range []struct {
		done, total int
		want        string
	}{{0, 0, ".........."}, {1, 2, "#####....."}, {3, 2, "##########"}} {
		if got := meter(test.done, test.total); got != "["+test.want+"]" {
			t.Errorf("meter(%d, %d) = %s", test.done, test.total, got)
		}
	}
}
