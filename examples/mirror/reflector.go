package main

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"example.com/typedqueue"
	"github.com/fsnotify/fsnotify"
)

// everything is the key that makes the reflector list the whole source again.
const everything = ""

// gather is how long the events of one path are gathered before it is looked at: a file
// that is being written is looked at once in this time, not once per write.
const gather = 20 * time.Millisecond

// A reflector tells a [typedqueue.ReflectorStore] what the source holds: it lists, then
// watches, and lists again whenever the watch may have missed something.
//
// It is a controller itself. Its queue holds paths to look at; events, and what could
// not be read, put paths into it. One worker looks at what is there now and tells the
// difference to what it told before. So an event says where to look and nothing else,
// and may come twice, late, or in any order.
type reflector struct {
	src   *tree
	path  string // the source's real name, for the watches
	to    typedqueue.ReflectorStore[File]
	looks *typedqueue.RateLimitingQueue[string]

	// What has been told. The mirror's own Store lags behind it, by what is pending.
	told  *typedqueue.Store[string, File]
	below *typedqueue.Index[string, string, File] // by directory

	relist   time.Duration // how often to list what cannot be watched
	logf     func(format string, args ...any)
	onEvent  func()                                       // called before each event is taken; tests wait in it
	addWatch func(w *fsnotify.Watcher, name string) error // tests reach the limit in it
	watching bool
	watcher  *fsnotify.Watcher // of the latest list; nil if there is none
	pumps    sync.WaitGroup

	mu      sync.Mutex        // guards the rest
	watched map[string]bool   // the directories that were given to watcher
	warned  bool              // that not everything is watched
	failing map[string]error  // what could not be read
	skipped map[string]string // what is not mirrored, and why
	lists   int               // of everything, so far
}

func newReflector(src *tree, name string, to typedqueue.ReflectorStore[File]) *reflector {
	told := typedqueue.NewStore(pathOf)
	limiter := typedqueue.NewItemExponentialFailureRateLimiter[string](50*time.Millisecond, 10*time.Second)
	return &reflector{
		src: src, path: name, to: to, told: told, below: newIndex(told),
		looks:   typedqueue.NewRateLimitingQueue(limiter, typedqueue.Options{TrackTime: true}),
		relist:  10 * time.Second,
		onEvent: func() {}, addWatch: (*fsnotify.Watcher).Add,
		watched: map[string]bool{}, failing: map[string]error{}, skipped: map[string]string{},
	}
}

// run lists and watches until ctx is done.
func (r *reflector) run(ctx context.Context) {
	r.watching = true
	r.looks.Add(everything)
	_ = r.looks.Run(ctx, typedqueue.RunOptions[string]{}, r.look) // ctx's error
	r.closeWatcher()
}

// look tells what has changed at name and below it. An error makes the queue come back
// to it, ever more rarely.
func (r *reflector) look(ctx context.Context, name string) error {
	if name == everything {
		_, err := r.listAll(ctx)
		if err != nil && ctx.Err() == nil && r.looks.NumRequeues(everything) == 0 {
			r.logf("cannot list %q: %s", r.path, reason(err))
		}
		return err
	}
	l := r.list(ctx, name)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := errors.Join(r.tell(name, l), r.tellTime(path.Dir(name))); err != nil {
		return err
	}
	return r.record(name, l)
}

// listAll lists the whole source under new watches, replaces all that was told, and
// reports whether anything was different.
//
// The watches are new because fsnotify keeps those below a renamed directory under
// their old names. A source whose top cannot be read is an error, not an empty tree.
func (r *reflector) listAll(ctx context.Context) (changed bool, err error) {
	if r.watching {
		r.newWatcher()
	}
	l := r.list(ctx, ".")
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if err := l.failed["."]; err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.failing["."] = err
		return false, err
	}
	changed = len(l.files) != r.told.Len()
	for _, f := range l.files {
		old, known := r.told.GetByKey(f.Path)
		changed = changed || !known || !old.equal(f)
	}
	if err := errors.Join(r.to.Replace(l.files), r.told.Replace(l.files)); err != nil {
		return changed, err
	}
	r.mu.Lock()
	r.lists++
	r.mu.Unlock()
	return changed, r.record(".", l)
}

// tell passes on how a listing of name differs from what was told of it.
func (r *reflector) tell(name string, l *listing) error {
	listed := map[string]bool{}
	for _, f := range l.files {
		listed[f.Path] = true
		if err := r.tellFile(f); err != nil {
			return err
		}
	}
	for _, old := range r.toldOf(name) {
		if listed[old.Path] {
			continue
		}
		if err := errors.Join(r.to.Delete(old), r.told.Delete(old)); err != nil {
			return err
		}
	}
	return nil
}

func (r *reflector) tellFile(f File) error {
	old, known := r.told.GetByKey(f.Path)
	switch {
	case !known:
		return errors.Join(r.to.Add(f), r.told.Add(f))
	case !old.equal(f):
		return errors.Join(r.to.Update(f), r.told.Update(f))
	}
	return nil
}

// tellTime passes on the new time of a directory in which something has changed: no
// event comes for that.
func (r *reflector) tellTime(dir string) error {
	old, known := r.told.GetByKey(dir)
	if !known {
		return nil
	}
	at, err := find(r.src.top, dir)
	if err != nil {
		return nil // gone, or not to be read, and an event of its own
	}
	defer at.close()
	f, err := at.describe(dir)
	if err != nil || !f.Mode.IsDir() {
		return nil
	}
	f.Unlisted = old.Unlisted
	return r.tellFile(f)
}

// toldOf returns what was told of name and of all below it, toldBelow only the latter.
func (r *reflector) toldOf(name string) []File {
	f, known := r.told.GetByKey(name)
	if !known {
		return r.toldBelow(name)
	}
	return append([]File{f}, r.toldBelow(name)...)
}

func (r *reflector) toldBelow(dir string) []File {
	var files []File
	for _, f := range r.below.Get(dir) {
		files = append(append(files, f), r.toldBelow(f.Path)...)
	}
	return files
}

// record notes what could not be read at name and below, makes sure that somebody comes
// back to it, and returns the error of name itself.
func (r *reflector) record(name string, l *listing) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.failing, func(p string, _ error) bool { return within(name, p) })
	maps.DeleteFunc(r.skipped, func(p string, _ string) bool { return within(name, p) })
	maps.Copy(r.failing, l.failed)
	maps.Copy(r.skipped, l.skipped)
	for p := range l.failed {
		if p != name {
			r.looks.AddRateLimited(p)
		}
	}
	return l.failed[name]
}

// within reports whether p is name or below it.
func within(name, p string) bool {
	return name == "." || p == name || strings.HasPrefix(p, name+"/")
}

// problems returns what could not be read, and what was skipped and why.
func (r *reflector) problems() (failing map[string]error, skipped map[string]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.failing), maps.Clone(r.skipped)
}

// A listing is what one walk through the source, or a part of it, has found.
type listing struct {
	r       *reflector
	files   []File            // a directory comes before what it holds
	failed  map[string]error  // what could not be read
	skipped map[string]string // what is not mirrored, and why
}

func (r *reflector) list(ctx context.Context, name string) *listing {
	l := &listing{r: r, failed: map[string]error{}, skipped: map[string]string{}}
	at, err := find(r.src.top, name)
	if err == nil {
		defer at.close()
		err = l.visit(ctx, at, name)
	}
	if name == "." {
		err = errors.Join(err, r.inPlace())
	}
	if err != nil && (!absent(err) || name == ".") {
		l.failed[name] = err
		l.files = r.toldOf(name)
	}
	return l
}

// inPlace fails if the source's name leads elsewhere by now. What is open is then an
// empty directory that was deleted, or one that has moved away with its watches.
func (r *reflector) inPlace() error {
	opened, err := r.src.top.Stat(".")
	if err != nil {
		return err
	}
	named, err := os.Stat(r.path)
	if err != nil {
		return err
	}
	if !os.SameFile(opened, named) {
		return errors.New("the source was replaced by another directory")
	}
	return nil
}

// visit lists the entry at the spot, and what is below it. It fails if it cannot even
// tell what the entry is.
func (l *listing) visit(ctx context.Context, at *spot, name string) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	f, err := at.describe(name)
	if err != nil {
		return err
	}
	kind, special := f.special()
	switch {
	case name == marker:
		l.skipped[name] = "the name of the mirror's own marker"
	case special:
		l.skipped[name] = kind
	case f.Mode.IsDir():
		l.visitDir(ctx, at, f)
	default:
		l.files = append(l.files, f)
	}
	return nil
}

// visitDir lists a directory. One that cannot be read is not taken for empty: it is
// marked as unlisted, and what was told of it before stays.
func (l *listing) visitDir(ctx context.Context, at *spot, f File) {
	watchErr := l.r.watch(f.Path) // before reading: what comes after that is an event
	place := len(l.files)
	l.files = append(l.files, f)
	dir, names, err := l.r.src.openDir(at, f.Path)
	if err != nil {
		if absent(err) && f.Path != "." {
			l.files = l.files[:place] // gone meanwhile
			return
		}
		l.files[place].Unlisted = true
		l.files = append(l.files, l.r.toldBelow(f.Path)...)
		l.failed[f.Path] = err
		return
	}
	defer dir.Close()
	if watchErr != nil {
		l.r.unwatched(f.Path, watchErr)
	}
	for _, name := range names {
		child := path.Join(f.Path, name)
		err := l.visit(ctx, &spot{dir: dir, name: name, top: dir}, child)
		if err != nil && !absent(err) { // there is something, but nobody can tell what
			l.files[place].Unlisted = true
			l.files = append(l.files, l.r.toldOf(child)...)
			l.failed[child] = err
		}
	}
}

// newWatcher starts over with no watches at all.
func (r *reflector) newWatcher() {
	r.closeWatcher()
	r.mu.Lock()
	clear(r.watched)
	r.mu.Unlock()
	w, err := fsnotify.NewWatcher()
	if err != nil {
		r.unwatched(".", err)
		return
	}
	r.watcher = w
	r.pumps.Go(func() { r.pump(w) })
}

func (r *reflector) closeWatcher() {
	if r.watcher != nil {
		_ = r.watcher.Close() // and nothing can be done about an error
		r.pumps.Wait()
		r.watcher = nil
	}
}

// watch asks for the events of a directory.
func (r *reflector) watch(dir string) error {
	if r.watcher == nil {
		return nil
	}
	r.mu.Lock()
	r.watched[dir] = true // before the first event can come
	r.mu.Unlock()
	return r.addWatch(r.watcher, filepath.Join(r.path, filepath.FromSlash(dir)))
}

// unwatched makes up for events that will be missing: listing everything after a while
// finds the same things, only later.
func (r *reflector) unwatched(dir string, err error) {
	if errors.Is(err, fs.ErrNotExist) {
		return // gone meanwhile
	}
	r.mu.Lock()
	first := !r.warned
	r.warned = true
	r.mu.Unlock()
	r.looks.AddAfter(everything, r.relist)
	if first {
		r.logf("cannot watch %q: %s; listing everything each %v instead", dir, reason(err), r.relist)
	}
}

// pump turns events into paths to look at. It must be quick, or the kernel drops events.
func (r *reflector) pump(w *fsnotify.Watcher) {
	for {
		select {
		case event, ok := <-w.Events:
			if !ok {
				return
			}
			r.onEvent()
			r.event(event)
		case err, ok := <-w.Errors:
			if !ok {
				return
			}
			r.logf("events may be missing, listing again: %s", reason(err))
			r.looks.Add(everything)
		}
	}
}

func (r *reflector) event(event fsnotify.Event) {
	rel, err := filepath.Rel(r.path, event.Name)
	if err != nil {
		r.looks.Add(everything)
		return
	}
	name := filepath.ToSlash(rel)
	r.mu.Lock()
	movedDir := event.Has(fsnotify.Rename) && r.watched[name]
	r.mu.Unlock()
	if movedDir {
		r.looks.Add(everything)
	}
	r.looks.AddAfter(name, gather)
}
