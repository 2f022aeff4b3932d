//go:build unix

package main

import (
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestSpecialFiles(t *testing.T) {
	src, dst := trees(t, "a", "d/b", "gone")
	pipe := filepath.Join(src, "d", "pi\npe")
	must(t, syscall.Mkfifo(pipe, 0o600))
	t.Chdir(src) // the name of a socket must be short
	socket, err := net.Listen("unix", "socket")
	must(t, err)
	defer socket.Close()

	out := mirrorOnce(t, exitSame, src, dst)
	for _, want := range []string{"skipped: 2\n", `"d/pi\npe": named pipe`, `"socket": socket`} {
		if !strings.Contains(out, want) {
			t.Errorf("no %s in\n%s", want, out)
		}
	}
	if exists(dst, "d", "pi\npe") || exists(dst, "socket") {
		t.Error("a special file was mirrored")
	}

	// A file becomes a pipe and the reverse, under the eyes of the mirror.
	m := start(t, src, dst)
	m.same()
	must(t, os.Remove(filepath.Join(src, "gone")))
	must(t, syscall.Mkfifo(filepath.Join(src, "gone"), 0o600))
	must(t, os.Remove(pipe))
	must(t, os.WriteFile(pipe, nil, 0o600))
	m.same()
	if exists(dst, "gone") {
		t.Error("a file that has become a pipe is still there")
	}
	m.until("the summary would name it", func() bool {
		_, skipped := m.reflector.problems()
		return skipped["gone"] == "named pipe" && len(skipped) == 2
	})
}

// TestPipeInPlaceOfFile has a pipe take the place of a file just before that is opened.
func TestPipeInPlaceOfFile(t *testing.T) {
	src, dst := trees(t, "a", "b")
	swapped := false
	m := start(t, src, dst, func(m *mirror) {
		m.src.openFile = func(at *spot, path string) (*os.File, error) {
			if path == "a" && !swapped {
				swapped = true
				must(t, os.Remove(filepath.Join(src, "a")))
				must(t, syscall.Mkfifo(filepath.Join(src, "a"), 0o600))
			}
			return openFile(at, path)
		}
	})
	m.same()
}

// TestModes has directories that nobody may write to, and bits beyond the permissions.
func TestModes(t *testing.T) {
	asUser(t)
	src, dst := trees(t, "ro/a", "ro/sub/b", "search/c", "ro/gone", "setuid", "sticky/", "file")
	modes := map[string]fs.FileMode{
		"ro/sub": 0o555, "ro": 0o555, "search": 0o511, "setuid": fs.ModeSetuid | 0o755,
		"sticky": fs.ModeSticky | fs.ModeSetgid | 0o777, "file": 0o444, ".": 0o555,
	}
	restrict := func() {
		for _, name := range []string{"ro/sub", "ro", "search", "setuid", "sticky", "file", "."} {
			must(t, os.Chmod(filepath.Join(src, name), modes[name]))
		}
	}
	release := func(top string) {
		_ = filepath.WalkDir(top, func(path string, d fs.DirEntry, _ error) error {
			if d != nil && d.IsDir() {
				_ = os.Chmod(path, 0o755)
			}
			return nil
		})
	}
	t.Cleanup(func() { release(src); release(dst) })

	restrict()
	mirrorOnce(t, exitSame, src, dst)
	mirrorOnce(t, exitSame, src, dst)
	info, err := os.Stat(filepath.Join(dst, "setuid"))
	must(t, err)
	if info.Mode() != 0o755 {
		t.Errorf("setuid was mirrored, the owner was not: %v", info.Mode())
	}

	m := start(t, src, dst)
	m.same()
	release(src)
	plant(t, src, "ro/new", "ro/sub/new/er", "search/new")
	must(t, os.Remove(filepath.Join(src, "ro/gone")))
	must(t, os.RemoveAll(filepath.Join(src, "sticky")))
	plant(t, src, "sticky/file")
	restrict()
	m.same()
	release(src)
	must(t, os.RemoveAll(filepath.Join(src, "ro"))) // from a destination that is still restricted
	must(t, os.Chmod(src, 0o500))
	m.same()

	// A directory that its owner cannot even read is an error until it is made readable.
	must(t, os.Chmod(filepath.Join(src, "search"), 0))
	if os.Geteuid() != 0 {
		m.until("search fails", func() bool {
			failing, _ := m.reflector.problems()
			return failing["search"] != nil
		})
	}
	m.until("the mode is mirrored", func() bool {
		info, err := os.Stat(filepath.Join(dst, "search"))
		return err == nil && info.Mode().Perm() == 0
	})
	// The queue comes to rest nevertheless, for root too, who needs no rights.
	m.until("done", m.idle)
	must(t, os.Chmod(filepath.Join(src, "search"), 0o700))
	m.same()
	if !exists(dst, "search/c") {
		t.Error("search/c is gone")
	}
}

// asUser runs the test as an ordinary user too, whom modes stop, if root runs it.
func asUser(t *testing.T) {
	if os.Geteuid() != 0 {
		return
	}
	const nobody = 65534
	self, err := os.Executable()
	must(t, err)
	binary, err := os.ReadFile(self)
	must(t, err)
	dir, err := os.MkdirTemp("", "user")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(t, os.Chown(dir, nobody, nobody))
	must(t, os.WriteFile(filepath.Join(dir, "test"), binary, 0o755))
	t.Run("as a user", func(t *testing.T) {
		cmd := exec.Command(filepath.Join(dir, "test"), "-test.run=^TestModes$", "-test.v")
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "TMPDIR="+dir, "HOME="+dir)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
}
