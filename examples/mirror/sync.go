package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
	"time"

	"example.com/typedqueue"
)

// How a worker brings one path of the destination to what the Store says.
//
// Nothing here knows what has happened to a path, only what it should be and what it is.
// Nothing is recursive either: whoever changes an entry queues its directory, whose time
// has changed with it, and whoever finds entries that should not be there queues them.

const (
	// linger is how long a directory waits for more of its entries to change.
	linger = 20 * time.Millisecond
	// lookAgain is how soon a path comes back that waits for others. They wake it
	// earlier; this is for the case that they fail.
	lookAgain = time.Second
)

var (
	errChanged = errors.New("the source is not what it was when it was listed")
	errNoDir   = errors.New("the directory it belongs in is not known yet")
)

// sync brings one path in line. It is called for one path by one worker at a time.
func (m *mirror) sync(ctx context.Context, name string) error {
	want, ok := m.store.GetByKey(name)
	if !ok {
		return m.remove(name)
	}
	at, err := m.spot(name, true)
	if err != nil {
		return err
	}
	defer at.close()
	switch {
	case want.Mode.IsDir():
		err = m.syncDir(at, want)
	case want.Mode&fs.ModeSymlink != 0:
		err = m.syncLink(at, want)
	default:
		err = m.syncFile(ctx, at, want)
	}
	if unnameable(err) {
		return typedqueue.Terminal(err)
	}
	return err
}

// unnameable reports whether dst's file system cannot hold such a name. Trying again
// cannot help.
func unnameable(err error) bool {
	return errors.Is(err, syscall.ENAMETOOLONG) || errors.Is(err, syscall.EILSEQ) || errors.Is(err, syscall.EINVAL)
}

// touched queues the directory of a path that was changed: its time has to be set again,
// and its mode too if it was opened up.
func (m *mirror) touched(name string) {
	m.queue.AddAfter(path.Dir(name), linger)
}

// nudge queues a path that something is wrong with, unless it has failed before: then it
// comes when its back-off says.
func (m *mirror) nudge(name string) {
	if m.queue.NumRequeues(name) == 0 {
		m.queue.Add(name)
	}
}

// spot finds the place of a path in dst. Directories on the way are made if asked for,
// and opened up if they must be.
func (m *mirror) spot(name string, mkdir bool) (*spot, error) {
	names := strings.Split(name, "/")
	at := &spot{dir: m.dst, name: names[0], top: m.dst}
	for i := range names[1:] {
		dir := path.Join(names[:i+1]...)
		var err error
		if mkdir {
			err = m.makeDir(at, dir)
		}
		if err == nil {
			err = m.openUpFor(at, dir, 0o500)
		}
		if err == nil {
			err = at.enter(names[i+1])
		}
		if err != nil {
			at.close()
			return nil, err
		}
	}
	return at, nil
}

// openUp gives the owner the access to a directory that the mirror needs now, and reports
// whether it had to.
func openUp(at *spot, need fs.FileMode) (opened bool, err error) {
	have, err := at.describe("")
	if err != nil || !have.Mode.IsDir() || have.Mode&need == need {
		return false, err
	}
	return true, at.dir.Chmod(at.name, have.Mode|0o700)
}

// openUpFor opens up the directory dir for the sake of another path. The directory is
// queued, to get its mode back.
func (m *mirror) openUpFor(at *spot, dir string, need fs.FileMode) error {
	opened, err := openUp(at, need)
	if opened {
		m.queue.AddAfter(dir, linger)
	}
	return err
}

// beforeChange makes the directory that holds the spot writable. Callers say touched
// afterwards.
func (m *mirror) beforeChange(at *spot, name string) error {
	return m.openUpFor(&spot{dir: at.dir, name: ".", top: at.dir}, path.Dir(name), 0o700)
}

// makeDir makes sure that there is a directory at the spot, if the Store wants one.
func (m *mirror) makeDir(at *spot, dir string) error {
	have, err := at.describe(dir)
	if err == nil && have.Mode.IsDir() {
		return nil
	}
	if err != nil && !absent(err) {
		return err
	}
	if want, ok := m.store.GetByKey(dir); !ok || !want.Mode.IsDir() {
		return errNoDir
	}
	if err == nil {
		if err := m.removeAt(at, dir); err != nil { // a file or a link
			return err
		}
	}
	if err := m.beforeChange(at, dir); err != nil {
		return err
	}
	defer m.touched(dir)
	if err := at.dir.Mkdir(at.name, 0o700); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil // another worker was faster; what it is shows when it is opened
		}
		return err
	}
	m.made.Add(1)
	// It may have been in dst before, and have been taken away: all that it holds is
	// due, and so is itself, as its mode and time are not set yet.
	m.nudge(dir)
	for _, child := range m.byDir.Keys(dir) {
		m.nudge(child)
	}
	return nil
}

func (m *mirror) syncDir(at *spot, want File) error {
	if err := m.makeDir(at, want.Path); err != nil {
		return err
	}
	if !want.Unlisted {
		if err := m.findStrays(at, want.Path); err != nil {
			return err
		}
	}
	have, err := at.describe(want.Path)
	if err != nil {
		return err
	}
	if have.Mode != want.Mode {
		if err := at.dir.Chmod(at.name, want.Mode&(fs.ModePerm|fs.ModeSticky)); err != nil {
			return err
		}
	}
	if !sameTime(have, want, m.res) {
		return at.dir.Chtimes(at.name, time.Time{}, want.ModTime)
	}
	return nil
}

// findStrays queues what a directory holds and should not. The workers find that the
// Store does not have it, and remove it.
func (m *mirror) findStrays(at *spot, name string) error {
	names, err := namesAt(at)
	if err != nil {
		return err
	}
	wanted := map[string]bool{}
	for _, child := range m.byDir.Keys(name) {
		wanted[child] = true
	}
	for _, n := range names {
		child := path.Join(name, n)
		if _, live := m.live.Load(n); !wanted[child] && !live && child != marker {
			m.nudge(child)
		}
	}
	return nil
}

// namesAt reads a directory. If it has to be opened up for that, whoever works on it sets
// its mode, or removes it, afterwards.
func namesAt(at *spot) ([]string, error) {
	if _, err := openUp(at, 0o500); err != nil {
		return nil, err
	}
	dir, err := at.open()
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return readDir(dir, "")
}

// remove removes what the Store does not have.
func (m *mirror) remove(name string) error {
	at, err := m.spot(name, false)
	if err == nil {
		defer at.close()
		_, err = at.describe(name)
	}
	if err == nil {
		err = m.removeAt(at, name)
	}
	if err != nil && absent(err) {
		return nil
	}
	return err
}

// removeAt removes what is at the spot. A directory has to be empty: what it holds is
// queued, and when the last of it is gone, this path is queued in turn.
func (m *mirror) removeAt(at *spot, name string) error {
	if err := m.beforeChange(at, name); err != nil {
		return err
	}
	err := at.dir.Remove(at.name)
	switch {
	case err == nil:
		m.removed.Add(1)
		m.touched(name)
		return nil
	case !errors.Is(err, fs.ErrExist): // which is what ENOTEMPTY is
		return err
	}
	names, err := namesAt(at)
	if err != nil {
		return err
	}
	for _, n := range names {
		m.nudge(path.Join(name, n))
	}
	return typedqueue.RequeueAfter(lookAgain)
}

// clear removes a directory that is where a file or a link should be.
func (m *mirror) clear(at *spot, have File) error {
	if !have.Mode.IsDir() {
		return nil // a rename replaces it
	}
	return m.removeAt(at, have.Path)
}

func (m *mirror) syncLink(at *spot, want File) error {
	have, err := at.describe(want.Path)
	switch {
	case err != nil && !absent(err):
		return err
	case err == nil && have.Target == want.Target && have.Mode == want.Mode:
		return nil
	case err == nil:
		if err := m.clear(at, have); err != nil {
			return err
		}
	}
	if err := m.beforeChange(at, want.Path); err != nil {
		return err
	}
	defer m.touched(want.Path) // after the next, so that a left-over is found
	temp := m.newTemp()
	defer m.live.Delete(temp)
	if err := at.dir.Symlink(want.Target, temp); err != nil {
		return err
	}
	if err := at.dir.Rename(temp, at.name); err != nil {
		return errors.Join(err, at.dir.Remove(temp))
	}
	m.made.Add(1)
	return nil
}

func (m *mirror) syncFile(ctx context.Context, at *spot, want File) error {
	have, err := at.describe(want.Path)
	if err != nil && !absent(err) {
		return err
	}
	if err == nil && !m.doubted(want.Path) && m.copied(have, want) {
		if have.Mode == want.Mode {
			return nil
		}
		return at.dir.Chmod(at.name, want.Mode.Perm())
	}
	if wait := cooling(want.ModTime, time.Now()); wait > 0 {
		return typedqueue.RequeueAfter(wait)
	}
	if err == nil {
		if err := m.clear(at, have); err != nil {
			return err
		}
	}
	m.clearDoubt(want.Path) // a doubt that comes from now on may be about this very copy
	if err := m.copyFile(ctx, at, want); err != nil {
		m.pending(want.Path, true)
		return err
	}
	return nil
}

// copied reports whether have looks like a copy of want.
func (m *mirror) copied(have, want File) bool {
	return have.Mode.IsRegular() && have.Size == want.Size && sameTime(have, want, m.res)
}

// sameTime compares times as well as a file system with this resolution can.
func sameTime(f, g File, res time.Duration) bool {
	return f.ModTime.Truncate(res).Equal(g.ModTime.Truncate(res))
}

// cooling returns how long to leave a file alone that was written just now. Until the
// clock that file systems use has moved on, another write of the same size would leave
// size and time as they are, and nobody would know of it. That clock ticks each 10 ms at
// the slowest; a time of whole seconds may come from one that ticks each two seconds.
func cooling(written, now time.Time) time.Duration {
	tick := 20 * time.Millisecond
	if written.Nanosecond() == 0 {
		tick = 2 * time.Second
	}
	if age := now.Sub(written); age >= 0 && age < tick {
		return tick - age
	}
	return 0
}

// copyFile puts a copy in place, whole, with its mode and time, or not at all. It copies
// what the Store describes and nothing else: of a source that has changed since, there
// will be news.
func (m *mirror) copyFile(ctx context.Context, at *spot, want File) (err error) {
	in, err := m.openSource(want)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := m.beforeChange(at, want.Path); err != nil {
		return err
	}
	defer m.touched(want.Path) // after the next, so that a left-over is found
	temp := m.newTemp()
	defer m.live.Delete(temp)
	out, err := at.dir.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = m.transfer(ctx, out, in, want)
	if err == nil {
		err = out.Chmod(want.Mode.Perm())
	}
	err = errors.Join(err, out.Close())
	if err == nil {
		err = at.dir.Chtimes(temp, time.Time{}, want.ModTime)
	}
	if err == nil {
		err = at.dir.Rename(temp, at.name)
	}
	if err != nil {
		return errors.Join(err, at.dir.Remove(temp))
	}
	m.copies.Add(1)
	return nil
}

// openSource opens the file in the source, if it is still what the Store says.
func (m *mirror) openSource(want File) (*os.File, error) {
	at, err := find(m.src.top, want.Path)
	if err != nil {
		return nil, err
	}
	defer at.close()
	in, err := m.src.openFile(at, want.Path)
	if err != nil {
		return nil, err
	}
	if err := unchanged(in, want); err != nil {
		_ = in.Close()
		return nil, err
	}
	return in, nil
}

// transfer copies the content in pieces, to be stopped between them, and makes sure that
// the source was the same all the while.
func (m *mirror) transfer(ctx context.Context, out io.Writer, in *os.File, want File) error {
	for left := want.Size; left > 0; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := io.CopyN(out, in, min(left, 4<<20))
		m.bytes.Add(n)
		left -= n
		if errors.Is(err, io.EOF) {
			return errChanged
		}
		if err != nil {
			return err
		}
	}
	return unchanged(in, want)
}

func unchanged(in *os.File, want File) error {
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Size() != want.Size || !info.ModTime().Equal(want.ModTime) {
		return errChanged
	}
	return nil
}

// newTemp returns a name that nothing in the source can have: it is drawn when the mirror
// starts. It is live until it is renamed or removed. One that is not, because that has
// failed or the mirror was killed, is a stray like others.
func (m *mirror) newTemp() string {
	name := fmt.Sprintf("%s%d", m.temps, m.temp.Add(1))
	m.live.Store(name, true)
	return name
}
