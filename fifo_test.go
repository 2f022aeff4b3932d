package typedqueue

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// The objects of these tests are strings: "a1" is version 1 of the object with key "a". One
// that begins with "!" has no key.

var errNoLineKey = errors.New("no key")

func lineKey(obj string) (string, error) {
	if strings.HasPrefix(obj, "!") {
		return "", errNoLineKey
	}
	return obj[:1], nil
}

// testLine is what FIFO and DeltaFIFO have in common, for the rules that hold for both.
type testLine interface {
	ReflectorStore[string]
	DeleteKey(key string) error
	ListKeys() []string
	Len() int
	HasSynced() bool
	Synced() <-chan struct{}
	Close()
	IsClosed() bool
	Stats() Stats

	addIfAbsent(obj string) error
	contents() []string // what is pending, in line, as next would tell it
	entryCount() int
	// next is Pop, with what is popped told as a text.
	next(ctx context.Context, process func(key, content string, initial bool) error) (string, error)
}

type fifoLine struct{ *FIFO[string, string] }

func newFIFOLine() fifoLine { return fifoLine{NewFIFO(lineKey)} }

func (l fifoLine) addIfAbsent(obj string) error { return l.AddIfNotPresent(obj) }
func (l fifoLine) contents() []string           { return l.List() }
func (l fifoLine) entryCount() int              { return l.entries.n }

func (l fifoLine) next(ctx context.Context, process func(key, content string, initial bool) error) (string, error) {
	return l.Pop(ctx, process)
}

// forLines runs test with an empty FIFO and with an empty DeltaFIFO without KnownObjects.
func forLines(t *testing.T, test func(t *testing.T, q testLine)) {
	t.Run("FIFO", func(t *testing.T) { test(t, newFIFOLine()) })
	t.Run("DeltaFIFO", func(t *testing.T) { test(t, newDeltaLine(DeltaFIFOOptions[string, string]{})) })
}

// forLinesInBubble is forLines, each in a bubble of its own.
func forLinesInBubble(t *testing.T, test func(t *testing.T, q testLine)) {
	t.Run("FIFO", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, newFIFOLine()) })
	})
	t.Run("DeltaFIFO", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, newDeltaLine(DeltaFIFOOptions[string, string]{})) })
	})
}

var errProcess = errors.New("process failed")

// lineEnd is a way for process to end.
type lineEnd struct {
	name     string
	putsBack bool
	end      func() error
}

var (
	endNil        = lineEnd{"nil", false, func() error { return nil }}
	endError      = lineEnd{"error", false, func() error { return errProcess }}
	endRequeue    = lineEnd{"Requeue", true, func() error { return Requeue(errProcess) }}
	endRequeueNil = lineEnd{"Requeue(nil)", true, func() error { return Requeue(nil) }}
	endWrapped    = lineEnd{"wrapped Requeue", true, func() error { return fmt.Errorf("oh: %w", Requeue(errProcess)) }}
	endJoined     = lineEnd{"joined Requeue", true, func() error { return errors.Join(errProcess, Requeue(nil)) }}
	endPanic      = lineEnd{"panic", true, func() error { panic(errProcess) }}
	endGoexit     = lineEnd{"Goexit", true, func() error { runtime.Goexit(); return nil }}

	lineEnds = []lineEnd{endNil, endError, endRequeue, endRequeueNil, endWrapped, endJoined, endPanic, endGoexit}
)

// popped is what came of a Pop.
type popped struct {
	content  string
	err      error
	panicked any
	exited   bool
}

// popOnce pops in a goroutine of its own, which process may end. during, if not nil, runs in
// process, before end.
func popOnce(q testLine, end lineEnd, during func(key, content string, initial bool)) popped {
	result := make(chan popped)
	go func() {
		p := popped{exited: true}
		defer func() {
			if p.panicked = recover(); p.panicked != nil {
				p.exited = false
			}
			result <- p
		}()
		p.content, p.err = q.next(context.Background(), func(key, content string, initial bool) error {
			if during != nil {
				during(key, content, initial)
			}
			return end.end()
		})
		p.exited = false
	}()
	return <-result
}

// check compares p with what Pop promises of an end like this one (F4).
func (p popped) check(t *testing.T, end lineEnd) {
	t.Helper()
	if want := end.name == endGoexit.name; p.exited != want {
		t.Errorf("the goroutine of Pop has exited: %v, want %v", p.exited, want)
	}
	switch end.name {
	case endPanic.name:
		if p.panicked != errProcess {
			t.Errorf("Pop panicked with %v, want %v", p.panicked, errProcess)
		}
		return
	case endNil.name, endGoexit.name:
		if p.err != nil {
			t.Errorf("Pop = %v, want nil", p.err)
		}
	case endRequeueNil.name:
		if p.err == nil {
			t.Error("Pop = nil, want what process returned")
		}
	default:
		if !errors.Is(p.err, errProcess) {
			t.Errorf("Pop = %v, want an error that is %v", p.err, errProcess)
		}
	}
	if p.panicked != nil {
		t.Errorf("Pop panicked: %v", p.panicked)
	}
}

// lineRun plays a scenario with a line.
type lineRun struct {
	t      *testing.T
	q      testLine
	log    []string // what has been popped, one text each
	synced bool
}

type move func(r *lineRun)

// play makes the moves and checks after each what must hold always (F5).
func (r *lineRun) play(moves ...move) {
	r.t.Helper()
	for _, m := range moves {
		m(r)
		has, closed := r.q.HasSynced(), false
		select {
		case <-r.q.Synced():
			closed = true
		default:
		}
		if has != closed {
			r.t.Errorf("HasSynced() = %v, but Synced() is closed: %v", has, closed)
		}
		if r.synced && !has {
			r.t.Error("HasSynced() has become false again")
		}
		r.synced = has
	}
}

// playLine plays moves, pops what is left, and returns what has been popped.
func playLine(t *testing.T, q testLine, moves ...move) []string {
	t.Helper()
	r := &lineRun{t: t, q: q}
	r.play(moves...)
	for r.q.Stats().Ready > 0 {
		r.play(doPop("", endNil))
	}
	if n := q.Len(); n != 0 {
		t.Errorf("Len() = %d after all has been popped", n)
	}
	if n := q.entryCount(); n != 0 {
		t.Errorf("%d entries are left after all has been popped", n)
	}
	return r.log
}

// doEach makes a move of a write that must succeed for each object.
func doEach(name string, write func(testLine, string) error) func(objs ...string) move {
	return func(objs ...string) move {
		return func(r *lineRun) {
			for _, obj := range objs {
				if err := write(r.q, obj); err != nil {
					r.t.Errorf("%s(%s) = %v", name, obj, err)
				}
			}
		}
	}
}

var (
	doAdd       = doEach("Add", testLine.Add)
	doUpdate    = doEach("Update", testLine.Update)
	doDelete    = doEach("Delete", testLine.Delete)
	doDeleteKey = doEach("DeleteKey", testLine.DeleteKey)
	doAddAbsent = doEach("AddIfNotPresent", testLine.addIfAbsent)
)

func doReplace(objs ...string) move {
	return func(r *lineRun) {
		if err := r.q.Replace(objs); err != nil {
			r.t.Errorf("Replace(%v) = %v", objs, err)
		}
	}
}

func doResync(r *lineRun) {
	if err := r.q.Resync(); err != nil {
		r.t.Errorf("Resync() = %v", err)
	}
}

func doClose(r *lineRun) { r.q.Close() }

// doRefused makes every write with an object that has no key.
func doRefused(r *lineRun) {
	for name, write := range lineWrites {
		if err := write(r.q, "!"); !errors.Is(err, errNoLineKey) {
			r.t.Errorf("%s of an object without a key = %v, want %v", name, err, errNoLineKey)
		}
	}
}

// lineWrites are the writes that take an object.
var lineWrites = map[string]func(q testLine, obj string) error{
	"Add":             testLine.Add,
	"Update":          testLine.Update,
	"Delete":          testLine.Delete,
	"AddIfNotPresent": testLine.addIfAbsent,
	"Replace":         func(q testLine, obj string) error { return q.Replace([]string{"x1", obj, "y1"}) },
}

// doPop pops, while process makes the moves of during and then ends like end. want is the
// key, with a star if it has to be in the initial list, or empty for any.
func doPop(want string, end lineEnd, during ...move) move {
	return func(r *lineRun) {
		r.t.Helper()
		if r.q.Stats().Ready == 0 {
			r.t.Errorf("nothing is ready, want %q", want)
			return
		}
		var seen string
		p := popOnce(r.q, end, func(key, content string, initial bool) {
			seen = content
			r.log = append(r.log, content)
			if initial {
				key += "*"
			}
			if want != "" && key != want {
				r.t.Errorf("popped %s (%s), want %s", key, content, want)
			}
			r.play(during...)
		})
		p.check(r.t, end)
		if p.panicked == nil && !p.exited && p.content != seen {
			r.t.Errorf("Pop returned %q, but process was given %q", p.content, seen)
		}
	}
}

func wantSynced(want bool) move {
	return func(r *lineRun) {
		r.t.Helper()
		if got := r.q.HasSynced(); got != want {
			r.t.Errorf("HasSynced() = %v, want %v, after %v", got, want, r.log)
		}
	}
}

var synced, unsynced = wantSynced(true), wantSynced(false)

// wantKeys checks which keys are pending, in line.
func wantKeys(keys ...string) move {
	return func(r *lineRun) {
		r.t.Helper()
		if got := r.q.ListKeys(); !slices.Equal(got, keys) {
			r.t.Errorf("ListKeys() = %v, want %v", got, keys)
		}
		if got := r.q.Len(); got != len(keys) {
			r.t.Errorf("Len() = %d, want %d", got, len(keys))
		}
	}
}

// wantLinePanic checks that f panics as the package does about misuse.
func wantLinePanic(t *testing.T, name string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if s, ok := recover().(string); !ok || !strings.HasPrefix(s, "typedqueue: ") {
			t.Errorf("%s panicked with %q, want a string that begins with \"typedqueue: \"", name, s)
		}
	}()
	f()
}

func TestFIFO_F1_Order(t *testing.T) {
	for _, tt := range []struct {
		name  string
		moves []move
		want  []string
	}{
		{"new keys go to the tail", []move{doAdd("b1", "a1"), doUpdate("c1")}, []string{"b1", "a1", "c1"}},
		{"a pending key keeps its place", []move{doAdd("a1", "b1", "a2")}, []string{"a2", "b1"}},
		{"also by Update", []move{doAdd("a1", "b1"), doUpdate("a2")}, []string{"a2", "b1"}},
		{"a deleted key is gone", []move{doAdd("a1", "b1", "c1"), doDelete("b1")}, []string{"a1", "c1"}},
		{"by an object of another version", []move{doAdd("a1", "b1"), doDelete("a9")}, []string{"b1"}},
		{"by key", []move{doAdd("a1", "b1"), doDeleteKey("a")}, []string{"b1"}},
		{"deleting what is not there", []move{doAdd("a1"), doDelete("b1"), doDeleteKey("c")}, []string{"a1"}},
		{"deleted and added again", []move{doAdd("a1", "b1"), doDelete("a1"), doAdd("a2")}, []string{"b1", "a2"}},
		{"and again", []move{
			doAdd("a1", "b1"), doDelete("a1"), doAdd("a2"), doDelete("a1"), doAdd("a3", "c1"), doDeleteKey("a"), doDelete("a1"), doAdd("a4"),
		}, []string{"b1", "c1", "a4"}},
		{"AddIfNotPresent of an absent key", []move{doAdd("a1"), doAddAbsent("b1")}, []string{"a1", "b1"}},
		{"AddIfNotPresent of a pending key", []move{doAdd("a1", "b1"), doAddAbsent("a2")}, []string{"a1", "b1"}},
		{"AddIfNotPresent of a deleted key", []move{doAdd("a1", "b1"), doDelete("a1"), doAddAbsent("a2")}, []string{"b1", "a2"}},
		{"popped and added again", []move{ // C44
			doAdd("f10", "b1", "f11", "f13", "z30"), doPop("f", endNil), doAdd("f14"),
		}, []string{"b1", "z30", "f14"}},
		{"popped with the newest object", []move{doAdd("a1", "a2", "a3")}, []string{"a3"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			q := newFIFOLine()
			(&lineRun{t: t, q: q}).play(tt.moves...)
			if diff := cmp.Diff(tt.want, q.List()); diff != "" {
				t.Errorf("List (-want +got):\n%s", diff)
			}
			var keys []string
			for _, obj := range tt.want {
				keys = append(keys, obj[:1])
				if got, ok := q.GetByKey(obj[:1]); got != obj || !ok {
					t.Errorf("GetByKey(%s) = %q, %v, want %q", obj[:1], got, ok, obj)
				}
				if got, ok, err := q.Get(obj[:1] + "-any"); got != obj || !ok || err != nil {
					t.Errorf("Get = %q, %v, %v, want %q", got, ok, err, obj)
				}
			}
			wantKeys(keys...)(&lineRun{t: t, q: q})
			if got, ok := q.GetByKey("n"); got != "" || ok {
				t.Errorf("GetByKey of an absent key = %q, %v", got, ok)
			}
			if got, ok, err := q.Get("!"); got != "" || ok || !errors.Is(err, errNoLineKey) {
				t.Errorf("Get of an object without a key = %q, %v, %v", got, ok, err)
			}
			if diff := cmp.Diff(tt.want, playLine(t, q)); diff != "" {
				t.Errorf("popped (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFIFO_F1_AddedInProcessingTakesItsPlaceThen(t *testing.T) {
	for _, tt := range []struct {
		name   string
		during []move
		want   []string
	}{
		{"in front of what comes later", []move{doAdd("a2", "b1"), wantKeys("a", "b")}, []string{"a1", "a2", "b1"}},
		{"behind what came earlier", []move{doAdd("b1", "a2", "c1")}, []string{"a1", "b1", "a2", "c1"}},
		{"and keeps it", []move{doAdd("a2", "b1", "a3"), doUpdate("a4")}, []string{"a1", "a4", "b1"}},
		{"by AddIfNotPresent, as only pending keys are present", []move{doAddAbsent("a2"), doAdd("b1"), doAddAbsent("a3")}, []string{"a1", "a2", "b1"}},
		{"but is passed over", []move{doAdd("a2", "b1", "c1"), doPop("b", endNil), wantKeys("a", "c")}, []string{"a1", "b1", "a2", "c1"}},
		{"unless deleted", []move{doAdd("a2", "b1"), doDelete("a2"), wantKeys("b")}, []string{"a1", "b1"}},
		{"and added again", []move{doAdd("a2", "b1"), doDelete("a2"), doAdd("a3"), wantKeys("b", "a")}, []string{"a1", "b1", "a3"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := playLine(t, newFIFOLine(), doAdd("a1"), doPop("a", endNil, tt.during...))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("popped (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFIFO_F2_Replace(t *testing.T) {
	for _, tt := range []struct {
		name  string
		moves []move
		want  []string
	}{
		{"of nothing", []move{doReplace("b1", "a1")}, []string{"b1", "a1"}},
		{"with nothing", []move{doAdd("a1", "b1"), doReplace()}, nil},
		{"forgets what was pending", []move{doAdd("a1", "b1"), doReplace("c1")}, []string{"c1"}},
		{"in list order", []move{doAdd("a1", "b1", "d1"), doReplace("c1", "b2", "a2")}, []string{"c1", "b2", "a2"}},
		{"the last duplicate, at its first place", []move{doReplace("a1", "b1", "a2", "c1", "b2", "a3")}, []string{"a3", "b2", "c1"}},
		{"duplicates of a pending key", []move{doAdd("b1", "a1"), doReplace("a2", "b2", "a3")}, []string{"a3", "b2"}},
		{"then added", []move{doReplace("a1", "b1"), doAdd("c1", "a2")}, []string{"a2", "b1", "c1"}},
		{"in processing, listed", []move{
			doAdd("a1"), doPop("a", endNil, doAdd("a2", "b1"), doReplace("b2", "a3", "c1"), wantKeys("b", "a", "c")),
		}, []string{"a1", "b2", "a3", "c1"}},
		{"in processing, not pending, listed", []move{
			doAdd("a1"), doPop("a", endNil, doReplace("a2", "b1"), wantKeys("a", "b"), doPop("b", endNil)),
		}, []string{"a1", "b1", "a2"}},
		{"in processing, not listed", []move{
			doAdd("a1"), doPop("a", endNil, doAdd("a2", "b1"), doReplace("b2"), wantKeys("b")),
		}, []string{"a1", "b2"}},
		{"Resync changes nothing", []move{doAdd("b1", "a1"), doPop("b", endNil, doResync, wantKeys("a")), doResync}, []string{"b1", "a1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, playLine(t, newFIFOLine(), tt.moves...)); diff != "" {
				t.Errorf("popped (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLine_F2_ListsAreNotShared(t *testing.T) {
	forLines(t, func(t *testing.T, q testLine) {
		list := []string{"a1", "b1"}
		if err := q.Replace(list); err != nil {
			t.Fatal(err)
		}
		clear(list)
		clear(q.ListKeys())
		clear(q.contents())
		if got := q.ListKeys(); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("ListKeys() = %v after changes of other slices", got)
		}
		if got := strings.Join(playLine(t, q), " "); !strings.Contains(got, "a1") || !strings.Contains(got, "b1") {
			t.Errorf("popped %v", got)
		}
	})
}

func TestLine_F3_ProcessMayCallTheQueue(t *testing.T) {
	forLines(t, func(t *testing.T, q testLine) { // C38: with the lock held each of these would hang
		r := &lineRun{t: t, q: q}
		r.play(doAdd("a1", "b1"), doPop("a", endNil,
			doAdd("c1", "a2"), doUpdate("c2"), doAddAbsent("d1"), doDelete("c2"), doDeleteKey("d"), doResync,
			doReplace("b2", "e1"), doPop("b", endNil, doPop("", endNil)),
			func(r *lineRun) {
				if s := r.q.Stats(); s.Processing != 1 {
					r.t.Errorf("Stats() = %+v in process, want Processing 1", s)
				}
				_ = r.q.contents()
			},
			doClose,
		))
		if !q.IsClosed() {
			t.Error("IsClosed() = false after a Close in process")
		}
	})
}

// Producers never wait for a consumer, and see its backlog (C33, C34).
func TestLine_F3_ProducersNeverWait(t *testing.T) {
	forLinesInBubble(t, func(t *testing.T, q testLine) {
		release, end := make(chan struct{}), make(chan error)
		r := &lineRun{t: t, q: q}
		r.play(doAdd("a1"))
		go func() {
			_, err := q.next(t.Context(), func(string, string, bool) error { <-release; return nil })
			end <- err
		}()
		synctest.Wait()
		// The consumer is stuck now. Each of these would hang if it had the lock.
		r.play(doAdd("b1", "a2", "c1"), doUpdate("a3"), wantKeys("b", "a", "c"), doDelete("c1"), doDeleteKey("b"), doResync, doReplace("d1", "a4"))
		select {
		case err := <-end:
			t.Errorf("Pop = %v while process runs", err)
		default:
		}
		close(release)
		if err := <-end; err != nil {
			t.Error(err)
		}
	})
}

// While process runs its key is not handed out, also if it is the only one pending; what was
// added meanwhile comes afterwards, and the wake-up is not lost.
func TestLine_F3_KeyInProcessingIsNotHandedOut(t *testing.T) {
	for _, end := range []lineEnd{endNil, endError, endRequeue, endPanic, endGoexit} {
		t.Run(end.name, func(t *testing.T) {
			forLinesInBubble(t, func(t *testing.T, q testLine) {
				release, first, second := make(chan struct{}), make(chan popped), make(chan popped)
				r := &lineRun{t: t, q: q}
				r.play(doAdd("a1"))
				go func() { first <- popOnce(q, end, func(string, string, bool) { <-release }) }()
				synctest.Wait()
				go func() { second <- popOnce(q, endNil, nil) }()
				synctest.Wait()
				r.play(doAdd("a2"))
				synctest.Wait()
				select {
				case p := <-second:
					t.Errorf("popped %q while its key is in processing", p.content)
				default:
				}
				r.play(doAdd("b1"))
				if p := <-second; !strings.Contains(p.content, "b1") {
					t.Errorf("popped %q, want b1, the only ready key", p.content)
				}
				go func() { second <- popOnce(q, endNil, nil) }()
				synctest.Wait()
				close(release)
				(<-first).check(t, end)
				if p := <-second; !strings.Contains(p.content, "a2") {
					t.Errorf("popped %q, want a2", p.content)
				}
				r.play(wantKeys())
			})
		})
	}
}

func TestFIFO_F4_PutBack(t *testing.T) {
	for _, tt := range []struct {
		name          string
		during        []move
		kept, putBack []string // what is pending afterwards
	}{
		{"alone", nil, nil, []string{"a1"}},
		{"behind others", []move{doAdd("b1")}, []string{"b1"}, []string{"b1", "a1"}},
		{"a newer one is pending", []move{doAdd("a2", "b1")}, []string{"a2", "b1"}, []string{"a2", "b1"}}, // C46
		{"a newer one behind others", []move{doAdd("b1", "a2")}, []string{"b1", "a2"}, []string{"b1", "a2"}},
		{"a newer one by AddIfNotPresent", []move{doAddAbsent("a2")}, []string{"a2"}, []string{"a2"}},
		{"a newer one by Replace", []move{doReplace("b1", "a2")}, []string{"b1", "a2"}, []string{"b1", "a2"}},
		{"deleted", []move{doAdd("b1"), doDelete("a1")}, []string{"b1"}, []string{"b1"}},
		{"deleted by key", []move{doDeleteKey("a")}, nil, nil},
		{"a newer one deleted", []move{doAdd("a2"), doDelete("a2")}, nil, nil},
		{"deleted, added again", []move{doDelete("a1"), doAdd("b1", "a2")}, []string{"b1", "a2"}, []string{"b1", "a2"}},
		{"deleted, added again, deleted", []move{doDelete("a1"), doAdd("a2"), doDelete("a2")}, nil, nil},
		{"forgotten", []move{doReplace("b1")}, []string{"b1"}, []string{"b1"}},
		{"forgotten by an empty list", []move{doReplace()}, nil, nil},
		{"a newer one forgotten", []move{doAdd("a2"), doReplace("b1")}, []string{"b1"}, []string{"b1"}},
		{"forgotten, listed again", []move{doReplace(), doReplace("a2", "b1")}, []string{"a2", "b1"}, []string{"a2", "b1"}},
		{"another is deleted", []move{doAdd("b1"), doDelete("b1")}, nil, []string{"a1"}},
		{"Resync", []move{doResync}, nil, []string{"a1"}},
		{"another is requeued", []move{doAdd("b1"), doPop("b", endRequeue)}, []string{"b1"}, []string{"b1", "a1"}},
		{"closed", []move{doAdd("b1"), doClose}, []string{"b1"}, []string{"b1", "a1"}},
	} {
		for _, end := range lineEnds {
			t.Run(tt.name+"/"+end.name, func(t *testing.T) {
				want := tt.kept
				if end.putsBack {
					want = tt.putBack
				}
				q := newFIFOLine()
				r := &lineRun{t: t, q: q}
				r.play(doAdd("a1"), doPop("a", end, tt.during...))
				if got := q.List(); !slices.Equal(got, want) {
					t.Errorf("List() = %v, want %v", got, want)
				}
				if got := playLine(t, q); !slices.Equal(got, want) {
					t.Errorf("popped %v, want %v", got, want)
				}
			})
		}
	}
}

// What happened to a key in an earlier processing has no bearing on the next one.
func TestFIFO_F4_DeletionIsForThisTimeOnly(t *testing.T) {
	got := playLine(t, newFIFOLine(), doAdd("a1"),
		doPop("a", endRequeue, doDelete("a1"), doAdd("a2")), doPop("a", endRequeue), doPop("a", endNil))
	if want := []string{"a1", "a2", "a2"}; !slices.Equal(got, want) {
		t.Errorf("popped %v, want %v", got, want)
	}
}

func TestLine_F4_Errors(t *testing.T) {
	if Requeue(nil) == nil {
		t.Error("Requeue(nil) = nil")
	}
	var asked *RequeueError
	if err := Requeue(errProcess); !errors.As(err, &asked) || asked.Err != errProcess || !errors.Is(err, errProcess) {
		t.Errorf("Requeue(%v) = %#v", errProcess, err)
	}
	for _, err := range []error{nil, errProcess} {
		text := Requeue(err).Error()
		if !strings.HasPrefix(text, "typedqueue: ") || strings.Contains(text, "nil") || err != nil && !strings.Contains(text, err.Error()) {
			t.Errorf("Requeue(%v).Error() = %q", err, text)
		}
	}
	forLines(t, func(t *testing.T, q testLine) {
		r := &lineRun{t: t, q: q}
		for _, want := range []error{nil, errProcess, Requeue(errProcess), fmt.Errorf("oh: %w", Requeue(nil))} {
			r.play(doReplace("a1"))
			if _, err := q.next(t.Context(), func(string, string, bool) error { return want }); err != want {
				t.Errorf("Pop = %v, want %v, as process returned it", err, want)
			}
		}
	})
}

// A key that fails for ever does not stop the others (C39, C48).
func TestLine_F4_OthersKeepFlowing(t *testing.T) {
	for _, end := range []lineEnd{endError, endRequeue, endPanic, endGoexit} {
		t.Run(end.name, func(t *testing.T) {
			forLines(t, func(t *testing.T, q testLine) {
				playLine(t, q, doAdd("a1", "b1"), doPop("a", end), doPop("b", endNil), doAdd("c1"), doAdd("a2"))
			})
		})
	}
}

// The rules of F5 that FIFO and DeltaFIFO share.
func TestLine_F5_Synced(t *testing.T) {
	for _, tt := range []struct {
		name  string
		moves []move
	}{
		{"not before the first write", []move{unsynced}},
		{"failed writes do not count", []move{doRefused, unsynced, doReplace("a1"), unsynced, doPop("a*", endNil), synced}},
		{"nor do deletions of what is not there", []move{doDelete("a1"), doDeleteKey("b"), unsynced, doReplace("a1"), unsynced, doPop("a*", endNil), synced}},
		{"nor does Resync", []move{doResync, unsynced, doReplace("a1"), unsynced, doPop("a*", endNil), synced}},
		{"nor does Close", []move{doClose, unsynced}},
		{"first Add", []move{doAdd("a1"), synced, doPop("a", endNil), synced}},
		{"first Update", []move{doUpdate("a1"), synced, doPop("a", endNil)}},
		{"first AddIfNotPresent", []move{doAddAbsent("a1"), synced, doPop("a", endNil)}},
		{"a Replace that is not the first write", []move{doAdd("a1"), doReplace("a2", "b1"), synced, doPop("a", endNil), doPop("b", endNil)}},
		{"empty Replace", []move{doReplace(), synced, doReplace("a1"), synced, doPop("a", endNil)}},
		{"drained, not only listed", []move{ // C25, C28
			doReplace("a1", "b1"), unsynced, doPop("a*", endNil), unsynced, doPop("b*", endNil), synced, doAdd("c1"), doPop("c", endNil),
		}},
		{"processed, not only popped", []move{doReplace("a1"), doPop("a*", endNil, unsynced), synced}}, // C29
		{"a key listed twice counts once", []move{doReplace("a1", "b1", "a2"), doPop("a*", endNil), unsynced, doPop("b*", endNil), synced}},
		{"what is added later does not count", []move{doReplace("a1"), doAdd("b1"), doPop("a*", endNil), synced, doPop("b", endNil)}},
		{"nor if it is popped first", []move{
			doReplace("a1", "b1"), doPop("a*", endRequeue, doAdd("c1")), doPop("b*", endNil), unsynced, doPop("c", endNil), unsynced, doPop("a*", endNil), synced,
		}},
		{"a newer object of an initial key is initial", []move{doReplace("a1"), doAdd("a2"), doUpdate("a3"), unsynced, doPop("a*", endNil), synced}},
		{"an error is an end", []move{doReplace("a1"), doPop("a*", endError, unsynced), synced}},
		{"a requeue is none", []move{doReplace("a1"), doPop("a*", endRequeue), unsynced, doPop("a*", endRequeueNil), unsynced, doPop("a*", endWrapped), unsynced, doPop("a*", endNil), synced}},
		{"nor is a panic or Goexit", []move{doReplace("a1"), doPop("a*", endPanic), unsynced, doPop("a*", endGoexit), unsynced, doPop("a*", endError), synced}},
		{"requeued with a newer one pending", []move{doReplace("a1"), doPop("a*", endRequeue, doAdd("a2"), unsynced), unsynced, doPop("a*", endNil), synced}},
		{"processed with a newer one pending", []move{doReplace("a1"), doPop("a*", endNil, doAdd("a2"), unsynced), synced, doPop("a", endNil)}},
		{"listed again while pending", []move{doReplace("a1"), doReplace("a2"), unsynced, doPop("a*", endNil), synced}},
		{"listed again in processing, processed", []move{doReplace("a1"), doPop("a*", endNil, doReplace("a2"), unsynced), synced, doPop("a", endNil)}},
		{"listed again in processing, requeued", []move{doReplace("a1"), doPop("a*", endRequeue, doReplace("a2"), unsynced), unsynced, doPop("a*", endNil), synced}},
		{"a second list has no initial keys of its own", []move{doReplace("a1"), doReplace("a2", "b1"), doPop("a*", endNil), synced, doPop("b", endNil)}},
		{"for ever", []move{doReplace("a1"), doPop("a*", endNil), synced, doReplace("a2", "b1"), synced, doPop("a", endRequeue), synced, doDelete("b1"), synced, doClose, synced}},
		{"after Close too", []move{doReplace("a1"), doClose, unsynced, doPop("a*", endRequeue), unsynced, doPop("a*", endNil), synced}},
		{"two in processing at once", []move{doReplace("a1", "b1"), doPop("a*", endNil, doPop("b*", endNil, unsynced), unsynced), synced}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			forLines(t, func(t *testing.T, q testLine) { playLine(t, q, tt.moves...) })
			t.Run("DeltaFIFO with Merge", func(t *testing.T) {
				playLine(t, newDeltaLine(DeltaFIFOOptions[string, string]{Merge: new(mergeLog).merge}), tt.moves...)
			})
		})
	}
}

// In a FIFO deleted and forgotten keys are settled as well.
func TestFIFO_F5_DeletedAndForgotten(t *testing.T) {
	for _, tt := range []struct {
		name  string
		moves []move
	}{
		{"deleted", []move{doReplace("a1"), doDelete("a1"), synced}},
		{"deleted by key", []move{doReplace("a1", "b1"), doDeleteKey("a"), unsynced, doPop("b*", endNil), synced}},
		{"last one deleted", []move{doReplace("a1", "b1"), doPop("a*", endNil), unsynced, doDelete("b1"), synced}},
		{"deleted and added again", []move{doReplace("a1", "b1"), doDelete("a1"), doAdd("a2"), unsynced, doPop("b*", endNil), synced, doPop("a", endNil)}},
		{"deleted, listed again", []move{doReplace("a1", "b1"), doDelete("a1"), doReplace("a2", "b2"), doPop("a", endNil), unsynced, doPop("b*", endNil), synced}},
		{"deleted twice", []move{doReplace("a1", "b1"), doDelete("a1", "a1"), doDeleteKey("a"), unsynced, doPop("b*", endNil), synced}},
		{"another is deleted", []move{doReplace("a1"), doAdd("b1"), doDelete("b1"), doDelete("c1"), unsynced, doPop("a*", endNil), synced}},
		{"deleted in processing, processed", []move{doReplace("a1"), doPop("a*", endNil, doDelete("a1"), unsynced), synced}},
		{"deleted in processing, requeued", []move{doReplace("a1"), doPop("a*", endRequeue, doDelete("a1"), unsynced), synced}},
		{"deleted in processing, panic", []move{doReplace("a1"), doPop("a*", endPanic, doDelete("a1"), unsynced), synced}},
		{"deleted in processing, added again", []move{doReplace("a1"), doPop("a*", endRequeue, doDelete("a1"), doAdd("a2"), unsynced), synced, doPop("a", endNil)}},
		{"newer one deleted in processing", []move{doReplace("a1"), doPop("a*", endRequeue, doAdd("a2"), doDelete("a2"), unsynced), synced}},
		{"requeued, then deleted", []move{doReplace("a1"), doPop("a*", endRequeue), unsynced, doDelete("a1"), synced}},
		{"forgotten", []move{doReplace("a1", "b1"), doReplace(), synced}},
		{"forgotten for another", []move{doReplace("a1"), doReplace("b1"), synced, doPop("b", endNil)}},
		{"one forgotten, one listed again", []move{doReplace("a1", "b1"), doReplace("c1", "a2"), unsynced, doPop("c", endNil), unsynced, doPop("a*", endNil), synced}},
		{"forgotten in processing, processed", []move{doReplace("a1"), doPop("a*", endNil, doReplace(), unsynced), synced}},
		{"forgotten in processing, requeued", []move{doReplace("a1"), doPop("a*", endRequeue, doReplace("b1"), unsynced), synced, doPop("b", endNil)}},
		{"forgotten, listed once more", []move{doReplace("a1"), doReplace(), doReplace("a2"), synced, doPop("a", endNil)}},
		{"requeued, then forgotten", []move{doReplace("a1", "b1"), doPop("a*", endRequeue), doReplace("b2"), unsynced, doPop("b*", endNil), synced}},
		{"first Delete", []move{doDelete("a1"), unsynced, doAdd("a1"), synced}},
	} {
		t.Run(tt.name, func(t *testing.T) { playLine(t, newFIFOLine(), tt.moves...) })
	}
}

// Waiting for Synced takes no polling: virtual time does not move (C30).
func TestLine_F5_SyncedWakes(t *testing.T) {
	forLinesInBubble(t, func(t *testing.T, q testLine) {
		start := time.Now()
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				<-q.Synced()
				if !q.HasSynced() {
					t.Error("Synced() is closed, but HasSynced() = false")
				}
			})
		}
		playLine(t, q, doReplace("a1", "b1"), doPop("a*", endNil), doPop("b*", endNil))
		wg.Wait()
		if d := time.Since(start); d != 0 {
			t.Errorf("the news took %v", d)
		}
	})
}

func TestLine_F6_LenCountsPendingKeys(t *testing.T) {
	forLines(t, func(t *testing.T, q testLine) {
		r := &lineRun{t: t, q: q}
		gauges := func(ready, processing int) move {
			return func(r *lineRun) {
				r.t.Helper()
				if s := r.q.Stats(); s.Ready != ready || s.Processing != processing || s.Waiting != 0 {
					r.t.Errorf("Stats() = %+v, want Ready %d, Processing %d", s, ready, processing)
				}
			}
		}
		r.play(wantKeys(), doAdd("a1", "b1", "a2"), wantKeys("a", "b"), gauges(2, 0),
			doPop("a", endNil,
				wantKeys("b"), gauges(1, 1),
				doAdd("a3"), wantKeys("b", "a"), gauges(1, 1), // Len counts what is pending behind its processing
				doPop("b", endRequeue, wantKeys("a"), gauges(0, 2)), wantKeys("a", "b"), gauges(1, 1)),
			wantKeys("a", "b"), gauges(2, 0), doPop("a", endNil), doPop("b", endNil), wantKeys(), gauges(0, 0))
		r.play(doDelete("n1"), doDeleteKey("n"), doAdd("a4"), doAddAbsent("a5"), doPop("a", endNil))
		r.play(doAdd("c1"), doDelete("c1"))
		// Added: a, b, a while in processing, b put back, a at last, c. Changed nothing: three calls.
		if s := q.Stats(); s.Adds != 6 || s.Merged != 3 {
			t.Errorf("Stats() = %+v, want Adds 6, Merged 3", s)
		}
	})
}

// Close wakes every Pop (C40), also one that comes later, and may be called again.
func TestLine_F6_CloseWakesEveryPop(t *testing.T) {
	forLinesInBubble(t, func(t *testing.T, q testLine) {
		if q.IsClosed() {
			t.Error("a new queue is closed")
		}
		const waiters = 10
		errs := make(chan error, waiters)
		pop := func() {
			_, err := q.next(t.Context(), func(key, _ string, _ bool) error {
				t.Errorf("popped %s from an empty queue", key)
				return nil
			})
			errs <- err
		}
		for range waiters {
			go pop()
		}
		synctest.Wait()
		q.Close()
		q.Close()
		synctest.Wait()
		if n := len(errs); n != waiters {
			t.Errorf("Close woke %d of %d", n, waiters)
		}
		go pop()
		for range waiters + 1 {
			if err := <-errs; err != ErrClosed {
				t.Errorf("Pop = %v, want ErrClosed", err)
			}
		}
		if !q.IsClosed() {
			t.Error("IsClosed() = false after Close")
		}
	})
}

// A Close between the check and the wait of a Pop is not missed (C41).
func TestLine_F6_CloseRacesWithPop(t *testing.T) {
	rounds := 3000
	if testing.Short() {
		rounds = 300
	}
	for range rounds {
		var q testLine = newFIFOLine()
		if rand.IntN(2) == 0 {
			q = newDeltaLine(DeltaFIFOOptions[string, string]{})
		}
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				if _, err := q.next(t.Context(), processNothing); err != ErrClosed {
					t.Errorf("Pop = %v, want ErrClosed", err)
				}
			})
		}
		if rand.IntN(2) == 0 {
			runtime.Gosched()
		}
		q.Close()
		wg.Wait()
	}
}

func processNothing(string, string, bool) error { return nil }

func TestLine_F6_ClosedHandsOutWhatIsPending(t *testing.T) {
	forLines(t, func(t *testing.T, q testLine) {
		closed := func(r *lineRun) {
			r.t.Helper()
			if _, err := r.q.next(t.Context(), processNothing); err != ErrClosed {
				r.t.Errorf("Pop = %v, want ErrClosed", err)
			}
		}
		playLine(t, q,
			doAdd("a1", "b1"), doPop("a", endRequeue, doAdd("a2"), doClose, doPop("b", endRequeue), doPop("b", endNil),
				wantKeys("a"), closed), // a2 is for the one who holds a, and so is what it puts back
			wantKeys("a"), doPop("a", endRequeue, wantKeys(), closed), doPop("a", endPanic, closed),
			doPop("a", endGoexit), wantKeys("a"), doPop("a", endNil), closed, closed)
	})
}

func TestLine_F6_ClosedRefusesWrites(t *testing.T) {
	forLines(t, func(t *testing.T, q testLine) { // C42
		r := &lineRun{t: t, q: q}
		r.play(doAdd("a1", "b1"), doClose)
		before, stats := q.contents(), q.Stats()
		for _, obj := range []string{"a1", "a2", "c1", "!"} { // pending, newer, absent, and one without a key
			for name, write := range lineWrites {
				if err := write(q, obj); err != ErrClosed {
					t.Errorf("%s(%s) after Close = %v, want ErrClosed", name, obj, err)
				}
			}
		}
		for name, err := range map[string]error{
			"DeleteKey": q.DeleteKey("a"), "DeleteKey of an absent key": q.DeleteKey("n"),
			"empty Replace": q.Replace(nil), "Resync": q.Resync(),
		} {
			if err != ErrClosed {
				t.Errorf("%s after Close = %v, want ErrClosed", name, err)
			}
		}
		if diff := cmp.Diff(before, q.contents()); diff != "" {
			t.Errorf("changed after Close (-before +after):\n%s", diff)
		}
		if diff := cmp.Diff(stats, q.Stats()); diff != "" {
			t.Errorf("Stats changed after Close (-before +after):\n%s", diff)
		}
	})
}

func TestLine_F6_DoneContextTakesNothing(t *testing.T) {
	forLinesInBubble(t, func(t *testing.T, q testLine) {
		r := &lineRun{t: t, q: q}
		r.play(doReplace("a1", "b1"))
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		late, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		<-late.Done()
		for ctx, want := range map[context.Context]error{canceled: context.Canceled, late: context.DeadlineExceeded} {
			content, err := q.next(ctx, func(key, _ string, _ bool) error {
				t.Errorf("process got %s although its context is done", key)
				return nil
			})
			if !errors.Is(err, want) || content != "" {
				t.Errorf("Pop = %q, %v, want %v", content, err, want)
			}
		}
		r.play(wantKeys("a", "b"), unsynced, doPop("a*", endNil), doPop("b*", endNil), synced)
	})
}

// A waiting Pop gives up when its ctx is done; the queue stays open, and what comes next goes
// to another (C43).
func TestLine_F6_CancelEndsAWaitingPop(t *testing.T) {
	forLinesInBubble(t, func(t *testing.T, q testLine) {
		ctx, cancel := context.WithCancel(t.Context())
		gone, got := make(chan error), make(chan string)
		go func() {
			_, err := q.next(ctx, processNothing)
			gone <- err
		}()
		synctest.Wait()
		go func() {
			content, _ := q.next(t.Context(), processNothing)
			got <- content
		}()
		synctest.Wait()
		cancel()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Errorf("Pop = %v, want %v", err, context.Canceled)
		}
		if q.IsClosed() {
			t.Error("a canceled Pop has closed the queue")
		}
		if err := q.Add("a1"); err != nil {
			t.Error(err)
		}
		if content := <-got; !strings.Contains(content, "a1") {
			t.Errorf("popped %q, want a1", content)
		}
	})
}

// A Pop that has been woken for a key, but gives up instead, wakes another.
func TestLine_F6_CanceledPopPassesTheWakeUpOn(t *testing.T) {
	forLinesInBubble(t, func(t *testing.T, q testLine) {
		for i := range 50 {
			ctx, cancel := context.WithCancel(t.Context())
			popped := make(chan error, 2)
			for _, ctx := range []context.Context{ctx, t.Context()} { // the first to sleep is the first to be woken
				go func() {
					_, err := q.next(ctx, processNothing)
					popped <- err
				}()
				synctest.Wait()
			}
			steps := []func(){func() { _ = q.Add("a1") }, cancel}
			steps[i%2]()
			steps[1-i%2]()
			synctest.Wait()
			if n := q.Len(); n > 0 {
				t.Errorf("a key is ready, and %d Pops have returned", len(popped))
			}
			cancel()
			if err := q.Add("b1"); err != nil { // for the second, if the first got a1 in time
				t.Error(err)
			}
			for range 2 {
				if err := <-popped; err != nil && !errors.Is(err, context.Canceled) {
					t.Errorf("Pop = %v", err)
				}
			}
			if q.Len() > 0 {
				playLine(t, q)
			}
		}
	})
}

// Pops give up, and keys come, at drawn moments, many of them the same: each key is popped
// once or still there, and no Pop sleeps while one is ready (C43).
func TestLine_F6_CancelRacesWithAdd(t *testing.T) {
	race := func(newLine func() testLine) func(t *testing.T) {
		return rapid.MakeCheck(func(t *rapid.T) {
			rapid.SyncTest(t, func(t *rapid.T) {
				q := newLine()
				moment := rapid.IntRange(0, 4)
				gaveUp := rapid.SliceOfN(moment, 1, 5).Draw(t, "Pops give up at")
				added := rapid.SliceOfN(moment, 1, 5).Draw(t, "keys come at")
				got := make(chan string, len(gaveUp))
				returned := make(chan bool, len(gaveUp)+1)
				for _, at := range gaveUp {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(at)*time.Second)
					defer cancel()
					go func() {
						_, err := q.next(ctx, func(key, _ string, _ bool) error { got <- key; return nil })
						if err != nil && !errors.Is(err, context.DeadlineExceeded) {
							t.Errorf("Pop = %v", err)
						}
						returned <- true
					}()
				}
				for i, at := range added {
					time.AfterFunc(time.Duration(at)*time.Second, func() {
						if err := q.Add(string(rune('a'+i)) + "1"); err != nil {
							t.Errorf("Add = %v", err)
						}
					})
				}
				for range 6 {
					synctest.Wait()
					if left := len(gaveUp) - len(returned); left > 0 && q.Len() > 0 {
						t.Errorf("%d Pops sleep while %d keys are ready", left, q.Len())
					}
					time.Sleep(time.Second)
				}
				synctest.Wait()
				if n := len(returned); n != len(gaveUp) {
					t.Errorf("%d of %d Pops have returned", n, len(gaveUp))
				}
				keys := q.ListKeys()
				for range len(got) {
					keys = append(keys, <-got)
				}
				slices.Sort(keys)
				if n := len(slices.Compact(slices.Clone(keys))); n != len(added) || len(keys) != n {
					t.Errorf("%v have been popped or are left, want %d keys, each once", keys, len(added))
				}
			})
		})
	}
	t.Run("FIFO", race(func() testLine { return newFIFOLine() }))
	t.Run("DeltaFIFO", race(func() testLine { return newDeltaLine(DeltaFIFOOptions[string, string]{}) }))
}

// The same with threads instead of a schedule.
func TestLine_F6_CancelRacesWithAddInParallel(t *testing.T) {
	rounds := 2000
	if testing.Short() {
		rounds = 200
	}
	forLines(t, func(t *testing.T, q testLine) {
		for range rounds {
			ctx, cancel := context.WithCancel(t.Context())
			var content string
			var err error
			var wg sync.WaitGroup
			wg.Go(func() { content, err = q.next(ctx, processNothing) })
			wg.Go(cancel)
			if err := q.Add("a1"); err != nil {
				t.Error(err)
			}
			wg.Wait()
			switch left := q.Len(); {
			case err == nil && strings.Contains(content, "a1") && left == 0:
			case errors.Is(err, context.Canceled) && content == "" && left == 1:
				if got := playLine(t, q); len(got) != 1 {
					t.Errorf("popped %v", got)
				}
			default:
				t.Fatalf("Pop = %q, %v, and %d left", content, err, left)
			}
		}
	})
}

// Several producers and consumers: no key is in two hands, versions of a key never go back,
// and the newest is processed in the end.
func TestFIFO_F3_SeveralConsumers(t *testing.T) {
	seeds := 20
	if testing.Short() {
		seeds = 3
	}
	for range seeds {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			type obj struct{ key, version int }
			const producers, keysEach, writes = 2, 3, 200
			q := NewFIFO(func(o obj) (int, error) { return o.key, nil })
			var newest, deleted [producers * keysEach]int // the last word of the producers
			var producing, consuming sync.WaitGroup
			for p := range producers {
				producing.Go(func() {
					rng := rand.New(rand.NewPCG(seed, uint64(p)))
					for v := range writes {
						key := p*keysEach + rng.IntN(keysEach)
						var err error
						switch rng.IntN(8) {
						case 0:
							err = q.DeleteKey(key)
							deleted[key] = v + 1
						case 1:
							err = q.AddIfNotPresent(obj{key, newest[key]})
						default:
							newest[key] = v + 1
							err = q.Add(obj{key, v + 1})
						}
						if err != nil {
							t.Error(err)
						}
						if rng.IntN(4) == 0 {
							runtime.Gosched()
						}
					}
				})
			}
			var hands [producers * keysEach]sync.Mutex
			var done [producers * keysEach]int // guarded by hands
			for c := range 3 {
				consuming.Go(func() {
					rng := rand.New(rand.NewPCG(seed, uint64(100+c)))
					for {
						_, err := q.Pop(t.Context(), func(key int, o obj, _ bool) error {
							if !hands[key].TryLock() {
								t.Errorf("key %d is in two hands", key)
								return nil
							}
							defer hands[key].Unlock()
							if o.key != key {
								t.Errorf("key %d came with the object of key %d", key, o.key)
							}
							if rng.IntN(2) == 0 {
								runtime.Gosched()
							}
							if rng.IntN(4) == 0 {
								return Requeue(errProcess)
							}
							if o.version < done[key] {
								t.Errorf("key %d: version %d came after version %d", key, o.version, done[key])
							}
							done[key] = o.version
							return nil
						})
						if err == ErrClosed {
							return
						}
					}
				})
			}
			producing.Wait()
			q.Close()
			consuming.Wait()
			for key := range newest {
				if newest[key] > deleted[key] && done[key] != newest[key] {
					t.Errorf("key %d: version %d was processed last, want %d", key, done[key], newest[key])
				}
			}
			if s := q.Stats(); q.Len() != 0 || s.Ready != 0 || s.Processing != 0 || q.entries.n != 0 {
				t.Errorf("left behind: Len %d, %+v, %d entries", q.Len(), s, q.entries.n)
			}
		})
	}
}

// badLineKeys are keys that no queue can hold.
var badLineKeys = map[string]any{
	"NaN":                   math.NaN(),
	"NaN in an array":       [2]float64{1, math.NaN()},
	"NaN in a struct":       struct{ f float64 }{math.NaN()},
	"a slice":               []int{1},
	"a map":                 map[string]int{},
	"a function":            func() {},
	"a slice in a struct":   struct{ v any }{[]int{1}},
	"a slice in an array":   [1]any{[]string{"x"}},
	"NaN within interfaces": [1]any{struct{ v any }{math.NaN()}},
}

// lineIdentity is a key function that lets every bad key through.
func lineIdentity(obj any) (any, error) { return obj, nil }

// sameText reports whether a and b look the same, for what == cannot compare.
func sameText(a, b any) bool { return fmt.Sprintf("%T %v", a, a) == fmt.Sprintf("%T %v", b, b) }

func TestLine_S6_BadKeysFromTheKeyFunction(t *testing.T) {
	fifo := NewFIFO(lineIdentity)
	delta := NewDeltaFIFO(lineIdentity, DeltaFIFOOptions[any, any]{})
	for _, q := range []ReflectorStore[any]{fifo, delta} {
		if err := q.Replace([]any{"a", 1.5, [1]any{"x"}}); err != nil {
			t.Fatal(err)
		}
	}
	for name, bad := range badLineKeys {
		for call, f := range map[string]func() error{
			"FIFO.Add":             func() error { return fifo.Add(bad) },
			"FIFO.Update":          func() error { return fifo.Update(bad) },
			"FIFO.Delete":          func() error { return fifo.Delete(bad) },
			"FIFO.AddIfNotPresent": func() error { return fifo.AddIfNotPresent(bad) },
			"FIFO.Replace":         func() error { return fifo.Replace([]any{"b", bad, "c"}) },
			"FIFO.Get":             func() error { _, _, err := fifo.Get(bad); return err },
			"DeltaFIFO.Add":        func() error { return delta.Add(bad) },
			"DeltaFIFO.Update":     func() error { return delta.Update(bad) },
			"DeltaFIFO.Delete":     func() error { return delta.Delete(bad) },
			"DeltaFIFO.Replace":    func() error { return delta.Replace([]any{"b", bad, "c"}) },
			"DeltaFIFO.Get":        func() error { _, _, err := delta.Get(bad); return err },
			"DeltaFIFO.KeyOf":      func() error { _, err := delta.KeyOf(bad); return err },
		} {
			var keyErr *KeyError[any]
			if err := f(); !errors.As(err, &keyErr) {
				t.Errorf("%s of %s = %v, want a *KeyError", call, name, err)
			} else if !sameText(keyErr.Obj, bad) || keyErr.Err == nil {
				t.Errorf("%s of %s: the KeyError has %v and %v", call, name, keyErr.Obj, keyErr.Err)
			}
		}
		for call, f := range map[string]func(){
			"FIFO.DeleteKey":                       func() { _ = fifo.DeleteKey(bad) },
			"FIFO.GetByKey":                        func() { fifo.GetByKey(bad) },
			"DeltaFIFO.DeleteKey":                  func() { _ = delta.DeleteKey(bad) },
			"DeltaFIFO.GetByKey":                   func() { delta.GetByKey(bad) },
			"DeltaFIFO.AddIfNotPresent":            func() { _ = delta.AddIfNotPresent(bad, Deltas[any]{{Type: Added}}) },
			"DeltaFIFO.AddIfNotPresent of nothing": func() { _ = delta.AddIfNotPresent(bad, nil) },
			"Apply": func() {
				_ = Apply(NewStore(lineIdentity), bad, Deltas[any]{{Type: Deleted}}, false, Handler[any, any]{})
			},
			"Apply of nothing": func() { _ = Apply(NewStore(lineIdentity), bad, nil, false, Handler[any, any]{}) },
		} {
			wantLinePanic(t, call+" of "+name, f) // Q10
		}
	}
	want := []any{"a", 1.5, [1]any{"x"}}
	if diff := cmp.Diff(want, fifo.ListKeys()); diff != "" {
		t.Errorf("the FIFO has changed (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, delta.ListKeys()); diff != "" {
		t.Errorf("the DeltaFIFO has changed (-want +got):\n%s", diff)
	}
}

func TestLine_S6_KeyFunctionFails(t *testing.T) {
	forLines(t, func(t *testing.T, q testLine) {
		r := &lineRun{t: t, q: q}
		r.play(doAdd("a1", "b1"))
		before := q.contents()
		r.play(doRefused)
		for name, write := range lineWrites {
			var keyErr *KeyError[string]
			if err := write(q, "!"); !errors.As(err, &keyErr) || keyErr.Obj != "!" || keyErr.Err != errNoLineKey {
				t.Errorf("%s = %#v, want a *KeyError of the object and the cause", name, err)
			}
		}
		if diff := cmp.Diff(before, q.contents()); diff != "" {
			t.Errorf("changed by failed writes (-before +after):\n%s", diff)
		}
	})
}

// A key function that panics in the middle of a list leaves nothing behind, and may itself
// look at the queue.
func TestLine_KeyFunctionPanicsAndCallsBack(t *testing.T) {
	var q testLine
	key := func(obj string) (string, error) {
		if q.Len(); obj == "p1" {
			panic(errProcess)
		}
		return lineKey(obj)
	}
	for name, line := range map[string]testLine{
		"FIFO":      fifoLine{NewFIFO(key)},
		"DeltaFIFO": deltaLine{NewDeltaFIFO(key, DeltaFIFOOptions[string, string]{})},
	} {
		t.Run(name, func(t *testing.T) {
			q = line
			(&lineRun{t: t, q: q}).play(doAdd("a1", "b1"))
			before := q.contents()
			for name, write := range lineWrites {
				func() {
					defer func() {
						if r := recover(); r != errProcess {
							t.Errorf("%s panicked with %v, want %v", name, r, errProcess)
						}
					}()
					_ = write(q, "p1")
				}()
			}
			if diff := cmp.Diff(before, q.contents()); diff != "" {
				t.Errorf("changed by writes that panicked (-before +after):\n%s", diff)
			}
			playLine(t, q)
		})
	}
}

func TestLine_Misuse(t *testing.T) {
	wantLinePanic(t, "NewFIFO(nil)", func() { NewFIFO[string, string](nil) })
	wantLinePanic(t, "NewDeltaFIFO(nil)", func() { NewDeltaFIFO(nil, DeltaFIFOOptions[string, string]{}) })

	for name, q := range map[string]testLine{"zero FIFO": fifoLine{new(FIFO[string, string])}, "zero DeltaFIFO": deltaLine{new(DeltaFIFO[string, string])}} {
		for call, write := range lineWrites {
			wantLinePanic(t, call+" of a "+name, func() { _ = write(q, "a1") })
		}
		wantLinePanic(t, "DeleteKey of a "+name, func() { _ = q.DeleteKey("a") })
		wantLinePanic(t, "empty Replace of a "+name, func() { _ = q.Replace(nil) })
		wantLinePanic(t, "HasSynced of a "+name, func() { q.HasSynced() })
		wantLinePanic(t, "Synced of a "+name, func() { q.Synced() })
		wantLinePanic(t, "Pop of a "+name, func() { _, _ = q.next(t.Context(), processNothing) })
	}
	var zero FIFO[string, string]
	wantLinePanic(t, "Get of a zero FIFO", func() { _, _, _ = zero.Get("a1") })
	wantLinePanic(t, "Resync of a zero FIFO", func() { _ = zero.Resync() })
	var zeroDelta DeltaFIFO[string, string]
	wantLinePanic(t, "Get of a zero DeltaFIFO", func() { _, _, _ = zeroDelta.Get("a1") })
	wantLinePanic(t, "KeyOf of a zero DeltaFIFO", func() { _, _ = zeroDelta.KeyOf("a1") })
	wantLinePanic(t, "Resync of a zero DeltaFIFO", func() { _ = zeroDelta.Resync() })

	fifo, delta := newFIFOLine(), newDeltaLine(DeltaFIFOOptions[string, string]{})
	var nilContext context.Context
	pops := func() {
		t.Helper()
		wantLinePanic(t, "FIFO.Pop with a nil process", func() { _, _ = fifo.Pop(t.Context(), nil) })
		wantLinePanic(t, "DeltaFIFO.Pop with a nil process", func() { _, _ = delta.Pop(t.Context(), nil) })
		wantLinePanic(t, "FIFO.Pop with a nil ctx", func() { _, _ = fifo.next(nilContext, processNothing) })
		wantLinePanic(t, "DeltaFIFO.Pop with a nil ctx", func() { _, _ = delta.next(nilContext, processNothing) })
	}
	pops()
	for _, q := range []testLine{fifo, delta} {
		(&lineRun{t: t, q: q}).play(doAdd("a1"))
	}
	pops()
	for _, q := range []testLine{fifo, delta} {
		if got := playLine(t, q); len(got) != 1 {
			t.Errorf("popped %v, want a, once", got)
		}
	}
}

// Objects that have left are not kept alive, however they left, and delete and add again
// leaves nothing behind (Q9).
func TestLine_Q9_NothingIsKept(t *testing.T) {
	type obj struct {
		key int
		_   *int
	}
	key := func(o *obj) (int, error) { return o.key, nil }
	type line interface {
		ReflectorStore[*obj]
		DeleteKey(int) error
		Len() int
	}
	fifo, delta := NewFIFO(key), NewDeltaFIFO(key, DeltaFIFOOptions[int, *obj]{})
	for _, tt := range []struct {
		name string
		q    line
		pop  func() error
		n    func() int
	}{
		{"FIFO", fifo, func() error {
			_, err := fifo.Pop(t.Context(), func(int, *obj, bool) error { return nil })
			return err
		}, func() int { return fifo.entries.n }},
		{"DeltaFIFO", delta, func() error {
			_, err := delta.Pop(t.Context(), func(int, Deltas[*obj], bool) error { return nil })
			return err
		}, func() int { return delta.entries.n }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			const keys = 50
			var kept []weak.Pointer[obj]
			add := func(k int) *obj {
				o := &obj{key: k}
				kept = append(kept, weak.Make(o))
				if err := tt.q.Add(o); err != nil {
					t.Error(err)
				}
				return o
			}
			for range 3 {
				for k := range keys {
					o := add(k)
					if err := tt.q.Delete(o); err != nil {
						t.Error(err)
					}
					add(k)
					if k%2 == 0 {
						if err := tt.q.DeleteKey(k); err != nil {
							t.Error(err)
						}
					}
				}
				if err := tt.q.Replace([]*obj{add(keys), add(1)}); err != nil {
					t.Error(err)
				}
				for tt.q.Len() > 0 {
					if err := tt.pop(); err != nil {
						t.Error(err)
					}
				}
			}
			if n := tt.n(); n != 0 {
				t.Errorf("%d entries are left in an empty queue", n)
			}
			runtime.GC()
			alive := 0
			for _, w := range kept {
				if w.Value() != nil {
					alive++
				}
			}
			if alive > 0 {
				t.Errorf("%d of %d objects are kept alive by an empty queue", alive, len(kept))
			}
			runtime.KeepAlive(tt.q)
		})
	}
	t.Run("FIFO, deleted while in processing", func(t *testing.T) {
		if err := fifo.Add(&obj{}); err != nil {
			t.Fatal(err)
		}
		if _, err := fifo.Pop(t.Context(), func(int, *obj, bool) error {
			newer := &obj{}
			kept := weak.Make(newer)
			if err := errors.Join(fifo.Add(newer), fifo.Delete(newer)); err != nil {
				t.Error(err)
			}
			runtime.GC()
			if kept.Value() != nil {
				t.Error("a deleted object is kept alive while an older one is in processing")
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	})
}

func TestLine_Q9_SteadyStateAllocations(t *testing.T) {
	const keys = 10
	fifo := NewFIFO(func(o int) (int, error) { return o % keys, nil })
	delta := NewDeltaFIFO(func(o int) (int, error) { return o % keys, nil }, DeltaFIFOOptions[int, int]{})
	takeObj := func(int, int, bool) error { return nil }
	takeDeltas := func(int, Deltas[int], bool) error { return nil }
	ctx := t.Context()
	fifoRound := func() {
		for k := range keys {
			if err := fifo.Add(k); err != nil {
				t.Error(err)
			}
		}
		for range keys {
			if _, err := fifo.Pop(ctx, takeObj); err != nil {
				t.Error(err)
			}
		}
	}
	deltaRound := func() {
		for k := range keys {
			if err := delta.Add(k); err != nil {
				t.Error(err)
			}
		}
		for range keys {
			if _, err := delta.Pop(ctx, takeDeltas); err != nil {
				t.Error(err)
			}
		}
	}
	if n := testing.AllocsPerRun(100, fifoRound); n != 0 {
		t.Errorf("FIFO: %v allocations for %d keys, want 0", n, keys)
	}
	if n := testing.AllocsPerRun(100, deltaRound); n > keys {
		t.Errorf("DeltaFIFO: %v allocations for %d keys, want 1 each at most", n, keys)
	}
}
