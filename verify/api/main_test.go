package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// TestDiff changes the record of the root module, and must be told of each change.
func TestDiff(t *testing.T) {
	recorded, err := os.ReadFile("typedqueue.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what, before, now string // the record has before where the package has now
		id                string // what the changelog should name
		compatible        bool
	}{
		{"nothing", "", "", "", true},
		{"a method is gone", "func (*Queue[T]) Peek() T { panic(0) }\nfunc (*Queue[T]) ShutDown", "func (*Queue[T]) ShutDown", "Queue.Peek", false},
		{"a method of an embedded type has another result", "func (*Queue[T]) TryGet() (item T, err error)", "func (*Queue[T]) TryGet() (item T, ok bool)", "Queue.TryGet", false},
		{"a function takes more", "func RequeueAfter() error", "func RequeueAfter(d time.Duration) error", "RequeueAfter", false},
		{"a type is gone", "type Ring[T any] struct{}\n\nconst Added", "const Added", "Ring", false},
		{"an interface asks for more", "", "	Resync() error\n", "ReflectorStore.Resync", false},
		{"a constraint is narrower", "type Store[K any, V any]", "type Store[K comparable, V any]", "Store", false},
		{"a constant has another value", `const Sync DeltaType = "Synced"`, `const Sync DeltaType = "Sync"`, "Sync", false},
		{"a field is new", "", "	TrackTime bool\n", "", true},
		{"a function is new", "", "func Requeue(err error) error { panic(0) }\n", "", true},
	} {
		t.Run(c.what, func(t *testing.T) {
			if !strings.Contains(string(recorded), c.now) {
				t.Fatalf("the record has no %q", c.now)
			}
			before := strings.Replace(string(recorded), c.now, c.before, 1)
			changes, err := diff(root, []byte(before))
			if err != nil {
				t.Fatal(err)
			}
			var ids []string
			for _, change := range changes {
				if !change.Compatible {
					ids = append(ids, identifier(".", change.Message))
				}
			}
			if c.compatible != (len(ids) == 0) || !c.compatible && !slices.Contains(ids, c.id) {
				t.Errorf("incompatible changes are %q, want %q; of all changes %v", ids, c.id, changes)
			}
		})
	}
}

// TestRecordsAreWhole: what a user can see is in the records, and a comparison of a package with
// what is rendered of it now finds nothing.
func TestRecordsAreWhole(t *testing.T) {
	for _, module := range modules {
		pkg, _, err := load(filepath.Join(root, module), nil)
		if err != nil {
			t.Fatal(err)
		}
		changes, err := diff(filepath.Join(root, module), render(pkg))
		if err != nil || len(changes) > 0 {
			t.Errorf("%s against itself: %v, %v", module, changes, err)
		}
	}
}

func TestIdentifier(t *testing.T) {
	for _, c := range []struct{ module, message, want string }{
		{".", "(*Queue[T]).Get: removed", "Queue.Get"},
		{".", "Options.TrackTime: changed from bool to int", "Options.TrackTime"},
		{"kube", "AsQueue: changed from func(a) to func(b)", "kube.AsQueue"},
	} {
		if got := identifier(c.module, c.message); got != c.want {
			t.Errorf("identifier(%q, %q) = %q, want %q", c.module, c.message, got, c.want)
		}
	}
}

func TestBreaking(t *testing.T) {
	named := breaking(`# Changelog

## Unreleased

- Breaking: ` + "`Queue.Get`" + ` has one result,
  and so has ` + "`FIFO.Pop`" + `.
- ` + "`Queue.Peek`" + ` is new.

## v0.1.0

- Breaking: ` + "`Queue.Old`" + ` is gone.
`)
	for id, want := range map[string]bool{
		"Queue.Get": true, "FIFO.Pop": true, "Queue.Peek": false, "Queue.Old": false, "Get": false,
	} {
		if named(id) != want {
			t.Errorf("the changelog names %s: %v, want %v", id, !want, want)
		}
	}
}
