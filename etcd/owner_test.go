package etcd

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"example.com/typedqueue"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// stayOf returns an owner that has joined at revision 10 as "me", with what etcd would have
// told it, and the keys that it was told to ask for again.
func stayOf(t *testing.T) (o *owner, s *stay, again *[]string) {
	again = new([]string)
	o = &owner{
		prefix: "/m/", held: map[string]bool{}, onMoved: func() {},
		retry: func(keys ...string) { *again = append(*again, keys...) },
	}
	s = &stay{name: "me", created: 10, reports: make(chan struct{}, 1), deadline: time.Now().Add(time.Hour)}
	s.ctx, s.end = context.WithCancelCause(t.Context())
	o.begin(s, []*mvccpb.KeyValue{{Key: []byte("/m/me"), CreateRevision: 10, ModRevision: 10, Value: []byte("{}")}})
	return o, s, again
}

func written(name string, created, revision int64, r report) *clientv3.Event {
	return &clientv3.Event{Type: clientv3.EventTypePut, Kv: &mvccpb.KeyValue{
		Key: []byte("/m/" + name), CreateRevision: created, ModRevision: revision, Value: []byte(r.encode()),
	}}
}

func gone(name string, revision int64) *clientv3.Event {
	return &clientv3.Event{Type: clientv3.EventTypeDelete, Kv: &mvccpb.KeyValue{Key: []byte("/m/" + name), ModRevision: revision}}
}

// keyOf returns a key that belongs to owner among members.
func keyOf(owner string, members ...string) string {
	for _, key := range keys(1000) {
		if OwnerOf(key, members) == owner {
			return key
		}
	}
	panic("no key")
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestRefusedKeysComeBack: a key that is refused because it is another's is asked for again
// when that may have changed, though whoever compares before and after sees no difference.
func TestRefusedKeysComeBack(t *testing.T) {
	o, s, again := stayOf(t)
	theirs := keyOf("other", "me", "other")
	must(t, o.apply(s, []*clientv3.Event{written("other", 11, 11, report{})}))
	if _, _, v := o.take(theirs); v != foreign {
		t.Fatalf("take of another's key = %v", v)
	}
	must(t, o.apply(s, []*clientv3.Event{written("other", 11, 12, report{Seen: 11})}))
	if len(*again) > 0 {
		t.Errorf("retry of %q when nothing had changed for it", *again)
	}
	must(t, o.apply(s, []*clientv3.Event{gone("other", 13)}))
	if !slices.Equal(*again, []string{theirs}) {
		t.Errorf("retry of %q, want %q", *again, theirs)
	}
	if _, era, v := o.take(theirs); v != granted || era != 13 {
		t.Errorf("take = era %d, %v", era, v)
	}
}

// TestBusyKeysComeBack: a key that another may hold is asked for again at each report of
// that one, and not at those of others.
func TestBusyKeysComeBack(t *testing.T) {
	o, s, again := stayOf(t)
	mine := keyOf("me", "me", "other", "third")
	must(t, o.apply(s, []*clientv3.Event{
		written("other", 11, 11, report{Holds: [][]byte{[]byte(mine)}}), written("third", 12, 12, report{}),
	}))
	if _, _, v := o.take(mine); v != busy {
		t.Fatalf("take of a key that another holds = %v", v)
	}
	must(t, o.apply(s, []*clientv3.Event{written("third", 12, 13, report{Seen: 12})}))
	if len(*again) > 0 {
		t.Errorf("retry of %q at a report of a third", *again)
	}
	must(t, o.apply(s, []*clientv3.Event{written("other", 11, 14, report{Seen: 12})}))
	if !slices.Equal(*again, []string{mine}) {
		t.Errorf("retry of %q", *again)
	}
	if _, _, v := o.take(mine); v != granted {
		t.Errorf("take of a key that was released = %v", v)
	}
}

// TestExpiredStayGrantsNothing: past its deadline a stay is over, whatever etcd says later.
func TestExpiredStayGrantsNothing(t *testing.T) {
	for name, deadline := range map[string]time.Time{
		"both clocks":    time.Now().Add(-time.Second),
		"the wall clock": time.Now().Round(0).Add(-time.Second),
	} {
		t.Run(name, func(t *testing.T) {
			o, s, _ := stayOf(t)
			s.deadline = deadline
			if _, _, v := o.take("k"); v != foreign {
				t.Errorf("take = %v", v)
			}
			if err := context.Cause(s.ctx); !errors.Is(err, errLost) {
				t.Errorf("the stay has ended with %v", err)
			}
			s.deadline = time.Now().Add(time.Hour)
			if _, _, v := o.take("k"); v != foreign {
				t.Errorf("take after a late answer = %v", v)
			}
		})
	}
}

// TestEndOfOwnMemberKey ends the stay.
func TestEndOfOwnMemberKey(t *testing.T) {
	o, s, _ := stayOf(t)
	if err := o.apply(s, []*clientv3.Event{gone("me", 11)}); !errors.Is(err, errLost) {
		t.Errorf("apply = %v", err)
	}
}

// TestReportsWhatItHoldsForOthers: news is an era, and what changes of the held keys of others.
func TestReportsWhatItHoldsForOthers(t *testing.T) {
	o, s, _ := stayOf(t)
	theirs := keyOf("other", "me", "other")
	o.take(theirs)
	if r, due := o.due(s); due {
		t.Errorf("report %+v of its own key", r)
	}
	must(t, o.apply(s, []*clientv3.Event{written("other", 11, 11, report{})}))
	r, due := o.due(s)
	if !due || r.Seen != 11 || len(r.Holds) != 1 || string(r.Holds[0]) != theirs {
		t.Errorf("report %+v, due %v", r, due)
	}
	s.written = r
	if r, due := o.due(s); due {
		t.Errorf("report %+v again", r)
	}
	<-s.reports
	o.release(theirs)
	select {
	case <-s.reports:
	default:
		t.Error("nobody writes that the key was released")
	}
	if r, due := o.due(s); !due || len(r.Holds) != 0 {
		t.Errorf("report %+v, due %v", r, due)
	}
}

// TestUnreadableReport: who cannot be understood may hold anything.
func TestUnreadableReport(t *testing.T) {
	o, s, _ := stayOf(t)
	var told []error
	o.onError = func(err error) { told = append(told, err) }
	e := written("other", 11, 11, report{})
	e.Kv.Value = []byte("what?")
	must(t, o.apply(s, []*clientv3.Event{e}))
	if _, _, v := o.take(keyOf("me", "me", "other")); v != busy || len(told) != 1 {
		t.Errorf("take = %v, told %v", v, told)
	}
}

func TestBadInputPanics(t *testing.T) {
	client := &clientv3.Client{}
	decode := func([]byte) (int, error) { return 0, nil }
	reconcile := func(context.Context, *Task[int]) error { return nil }
	var none context.Context
	good := Prefixes{Source: "/s/", Members: "/m/"}
	for name, f := range map[string]func(){
		"source without client": func() { NewSource(nil, "/s/", decode, SourceOptions{}) },
		"source without prefix": func() { NewSource(client, "", decode, SourceOptions{}) },
		"source without decode": func() { NewSource[int](client, "/s/", nil, SourceOptions{}) },
		"negative page":         func() { NewSource(client, "/s/", decode, SourceOptions{PageSize: -1}) },
		"run without context": func() {
			_ = NewSource(client, "/s/", decode, SourceOptions{}).Run(none, typedqueue.NewStore(KeyOf[int]))
		},
		"run without store":       func() { _ = NewSource(client, "/s/", decode, SourceOptions{}).Run(t.Context(), nil) },
		"controller of no client": func() { NewController(nil, good, decode, reconcile, Options{}) },
		"no decode":               func() { NewController(client, good, nil, reconcile, Options{}) },
		"no reconcile":            func() { NewController(client, good, decode, nil, Options{}) },
		"no source":               func() { NewController(client, Prefixes{Members: "/m/"}, decode, reconcile, Options{}) },
		"no members":              func() { NewController(client, Prefixes{Source: "/s/"}, decode, reconcile, Options{}) },
		"prefix of a prefix": func() {
			NewController(client, Prefixes{Source: "/s/", Members: "/s/m/"}, decode, reconcile, Options{})
		},
		"equal prefixes": func() {
			NewController(client, Prefixes{Source: "/s/", Members: "/m/", Effects: "/s/"}, decode, reconcile, Options{})
		},
		"negative TTL": func() { NewController(client, good, decode, reconcile, Options{TTL: -1}) },
		"negative workers": func() {
			NewController(client, good, decode, reconcile, Options{Run: typedqueue.RunOptions[string]{Workers: -1}})
		},
		"negative attempts": func() {
			NewController(client, good, decode, reconcile, Options{Run: typedqueue.RunOptions[string]{MaxAttempts: -1}})
		},
		"nil context": func() { _ = NewController(client, good, decode, reconcile, Options{}).Run(none) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if text, ok := recover().(string); !ok || !strings.HasPrefix(text, "typedqueue: ") {
					t.Errorf("panicked with %q", text)
				}
			}()
			f()
		})
	}
}

// TestPlaceAll: a replica that has left and joined between two looks has all its keys again,
// and one that has lost and gained in an era has the difference.
func TestPlaceAll(t *testing.T) {
	decode := func([]byte) (int, error) { return 0, nil }
	reconcile := func(context.Context, *Task[int]) error { return nil }
	var gained, lost int
	c := NewController(&clientv3.Client{}, Prefixes{Source: "/s/", Members: "/m/"}, decode, reconcile, Options{
		OnMembers: func(_ []string, g, l int) { gained, lost = g, l },
	})
	for _, key := range keys(100) {
		must(t, c.objects.store.Add(Object[int]{Key: key, Revision: 1}))
	}
	_, first, _ := stayOf(t)
	c.owner.stay = first
	last := c.placeAll(moment{})
	if n := c.queue.Len(); n != 100 || gained != 100 || lost != 0 {
		t.Fatalf("%d keys are ready after joining alone, gained %d, lost %d", n, gained, lost)
	}

	must(t, c.owner.apply(first, []*clientv3.Event{written("other", 11, 11, report{})}))
	last = c.placeAll(last)
	mine := 0
	for _, key := range keys(100) {
		if OwnerOf(key, []string{"me", "other"}) == "me" {
			mine++
		}
	}
	if n := c.queue.Len(); n != mine || gained != 0 || lost != 100-mine {
		t.Fatalf("%d keys are ready, not %d; gained %d, lost %d", n, mine, gained, lost)
	}

	for range mine { // refused by the end of the stay
		key, _ := c.queue.TryGet()
		c.queue.Done(key)
	}
	_, second, _ := stayOf(t)
	must(t, c.owner.apply(second, []*clientv3.Event{written("other", 11, 11, report{})}))
	c.owner.stay = second
	c.placeAll(last)
	if n := c.queue.Len(); n != mine || gained != mine || lost != 0 {
		t.Errorf("%d keys are ready after joining again, not %d; gained %d, lost %d", n, mine, gained, lost)
	}
}
