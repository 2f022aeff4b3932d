package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A File is what is mirrored of one entry of a tree. Setuid and setgid are left out:
// the owner and the group are not mirrored, so the bits would mean something else.
type File struct {
	Path     string      // from the top of the tree, with slashes; the top itself is "."
	Mode     fs.FileMode // the type, permissions and, of a directory, the sticky bit
	Size     int64       // of a regular file
	ModTime  time.Time   // of a regular file or a directory
	Target   string      // of a symbolic link, never followed
	Unlisted bool        // a directory that could not be read: nobody knows what it holds

	info fs.FileInfo // of a regular file: tells it from another of the same size and time
}

func pathOf(f File) (string, error) { return f.Path, nil }

// parentOf is the index function of both Stores: the directory that a File is in.
func parentOf(f File) ([]string, error) {
	if f.Path == "." {
		return nil, nil
	}
	return []string{path.Dir(f.Path)}, nil
}

// equal reports whether nothing has happened between f and g, as far as one can see.
func (f File) equal(g File) bool {
	return f.Path == g.Path && f.Mode == g.Mode && f.Size == g.Size && f.ModTime.Equal(g.ModTime) &&
		f.Target == g.Target && f.Unlisted == g.Unlisted && !f.replacedBy(g)
}

// replacedBy reports whether f and g are different files that have had the same name.
func (f File) replacedBy(g File) bool {
	return f.Mode.IsRegular() && g.Mode.IsRegular() && !os.SameFile(f.info, g.info)
}

// special reports whether f is neither file, directory nor link, and names what it is.
func (f File) special() (string, bool) {
	switch mode := f.Mode; {
	case mode&fs.ModeNamedPipe != 0:
		return "named pipe", true
	case mode&fs.ModeSocket != 0:
		return "socket", true
	case mode&fs.ModeDevice != 0:
		return "device", true
	case mode&fs.ModeIrregular != 0:
		return "irregular file", true
	}
	return "", false
}

// A spot is a name in an open directory. All work in a tree is done on spots, one name
// at a time: an [os.Root] refuses links that lead out of the tree, but follows those
// that stay inside, and a mirror must follow neither.
type spot struct {
	dir  *os.Root
	name string
	top  *os.Root // the tree's own directory, which is not the spot's to close
}

func (at *spot) close() {
	if at.dir != at.top {
		_ = at.dir.Close() // it was only read
	}
}

// describe returns the File at the spot, which is called path in its tree.
func (at *spot) describe(path string) (File, error) {
	info, err := at.dir.Lstat(at.name)
	if err != nil {
		return File{}, err
	}
	f := File{Path: path, Mode: info.Mode() & (fs.ModeType | fs.ModePerm)}
	switch {
	case info.IsDir():
		f.Mode |= info.Mode() & fs.ModeSticky
		f.ModTime = info.ModTime()
	case info.Mode().IsRegular():
		f.Size, f.ModTime, f.info = info.Size(), info.ModTime(), info
	case f.Mode&fs.ModeSymlink != 0:
		f.Mode = fs.ModeSymlink
		f.Target, err = at.dir.Readlink(at.name)
	}
	return f, err
}

// open opens the directory at the spot. It fails with ENOTDIR for anything else, a link
// to a directory included.
func (at *spot) open() (*os.Root, error) {
	want, err := at.dir.Lstat(at.name)
	if err != nil {
		return nil, err
	}
	if !want.IsDir() {
		return nil, &fs.PathError{Op: "open", Path: at.name, Err: syscall.ENOTDIR}
	}
	// The final "/." opens the name as a directory and nothing else, so that a pipe
	// which has just taken its place cannot block us; a link is found out below.
	sub, err := at.dir.OpenRoot(at.name + "/.")
	if err != nil {
		return nil, err
	}
	got, err := sub.Lstat(".")
	if err == nil && !os.SameFile(want, got) {
		err = &fs.PathError{Op: "open", Path: at.name, Err: errReplaced}
	}
	if err != nil {
		_ = sub.Close()
		return nil, err
	}
	return sub, nil
}

var errReplaced = errors.New("replaced while it was opened")

// enter moves the spot into the directory at it, to name.
func (at *spot) enter(name string) error {
	sub, err := at.open()
	if err != nil {
		return err
	}
	at.close()
	at.dir, at.name = sub, name
	return nil
}

// find returns the spot of path below top. The directories on the way must exist.
func find(top *os.Root, path string) (*spot, error) {
	names := strings.Split(path, "/")
	at := &spot{dir: top, name: names[0], top: top}
	for _, name := range names[1:] {
		if err := at.enter(name); err != nil {
			at.close()
			return nil, err
		}
	}
	return at, nil
}

// A tree is how a source is read. The functions are fields for the sake of the tests:
// they must make a file unreadable for root as well, whom no mode keeps out.
type tree struct {
	top      *os.Root
	openFile func(at *spot, path string) (*os.File, error)
	readDir  func(dir *os.Root, path string) ([]string, error)
}

func newTree(top *os.Root) *tree {
	return &tree{top: top, openFile: openFile, readDir: readDir}
}

// openDir opens the directory at the spot and reads its names.
func (t *tree) openDir(at *spot, path string) (*os.Root, []string, error) {
	dir, err := at.open()
	if err != nil {
		return nil, nil, err
	}
	names, err := t.readDir(dir, path)
	if err != nil {
		_ = dir.Close()
		return nil, nil, err
	}
	return dir, names, nil
}

// openFile opens the file at the spot for reading. Should a pipe have taken its place,
// O_NONBLOCK keeps the open from waiting for a writer; callers look at what they got.
func openFile(at *spot, _ string) (*os.File, error) {
	return at.dir.OpenFile(at.name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

// readDir returns the sorted names in dir.
func readDir(dir *os.Root, _ string) ([]string, error) {
	f, err := dir.Open(".")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}

// absent reports whether err says that there is no such entry, or that something on
// the way to it is no directory.
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// reason is err's message without the file name: names are printed quoted, by callers.
func reason(err error) string {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return fmt.Sprintf("%s: %v", pathErr.Op, pathErr.Err)
	}
	var linkErr *os.LinkError
	if errors.As(err, &linkErr) {
		return fmt.Sprintf("%s: %v", linkErr.Op, linkErr.Err)
	}
	return err.Error()
}
