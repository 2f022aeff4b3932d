package kube_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// The second of client-go's error handlers sleeps, by a clock that a bubble would take over
// from the one before it.
func init() { utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1] }

// script is what a source does, as far as whoever lists and watches it can tell. It goes on
// only while somebody watches, so it is the same for all that do, however fast they are. After
// the steps comes a bookmark, so that all can know the last version.
type script struct {
	objects  int // how many there are at the start
	listing  listing
	refusals []fault // the answers to the first requests
	steps    []step
}

// listing says how a source can be listed.
type listing string

const (
	streamed listing = "streamed" // by a watch that begins with what there is
	declined listing = "declined" // such a watch is an error
	unasked  listing = "unasked"  // and clients know that
)

var listings = []listing{streamed, declined, unasked}

// step is one of its fields, after a pause.
type step struct {
	pause     time.Duration
	change    change
	elsewhere bool // a new version of what nobody watches
	bookmark  bool
	end       *end
}

// change deletes an object, if it is there, or else makes a new version of it.
type change struct {
	object int
	delete bool
}

// end ends a watch: with an error as an event, or without a word.
type end struct {
	event    fault
	missed   []change // what happens before the next watch
	forget   bool     // whether no watch can begin at a version before that
	refusals []fault  // the answers to the next requests
}

// fault is how a request or a watch can fail.
type fault string

const (
	none    fault = ""
	torn    fault = "torn"    // half of the answer
	refused fault = "refused" // no connection
)

var statuses = map[fault]*apierrors.StatusError{
	"expired":     apierrors.NewResourceExpired("too old"),
	"gone":        gone(),
	"ahead":       tooLarge(),
	"internal":    apierrors.NewInternalError(errors.New("no leader")),
	"busy":        apierrors.NewTooManyRequests("later", 1),
	"unavailable": apierrors.NewServiceUnavailable("restarting"),
}

// gone is what watches ended with before there was a reason Expired.
func gone() *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonGone, Message: "too old",
	}}
}

func tooLarge() *apierrors.StatusError {
	err := apierrors.NewTimeoutError("too large resource version", 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}
	return err
}

func (f fault) err() error {
	switch f {
	case none:
		return nil
	case torn:
		return io.ErrUnexpectedEOF
	case refused:
		return syscall.ECONNREFUSED
	}
	return statuses[f]
}

// source is a cache.ListerWatcher that does what its script says. It stands for an API server
// and its watch cache: whoever watches it from a version on is told all later changes.
type source struct {
	finished chan struct{} // closed when a watch has been told all

	mu       sync.Mutex
	script   script // what is still to come
	objects  map[string]*corev1.ConfigMap
	log      []apiwatch.Event // log[i] is the change that made version i+1, or nothing if it was elsewhere
	oldest   int              // the first version that a watch can begin at
	requests map[string]int
}

var (
	_ cache.ListerWatcher            = (*source)(nil)
	_ cache.ListerWatcherWithContext = (*source)(nil)
)

func newSource(s script) *source {
	s.steps = append(slices.Clip(s.steps), step{bookmark: true})
	src := &source{
		finished: make(chan struct{}),
		script:   s,
		objects:  map[string]*corev1.ConfigMap{},
		requests: map[string]int{},
	}
	for i := range s.objects {
		src.makeLocked(change{object: i})
	}
	return src
}

// makeLocked makes the next version.
func (s *source) makeLocked(c change) apiwatch.Event {
	version := strconv.Itoa(len(s.log) + 1)
	name, namespace := fmt.Sprint("object", c.object), fmt.Sprint("ns", c.object%3)
	key := namespace + "/" + name
	old, existed := s.objects[key]
	obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, ResourceVersion: version, UID: types.UID(version),
	}}
	e := apiwatch.Event{Type: apiwatch.Added, Object: obj}
	s.objects[key] = obj
	if existed {
		e.Type, obj.UID = apiwatch.Modified, old.UID
		if c.delete {
			e.Type = apiwatch.Deleted
			delete(s.objects, key)
		}
	}
	s.log = append(s.log, e)
	return e
}

func (s *source) listLocked() []*corev1.ConfigMap {
	var list []*corev1.ConfigMap
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		list = append(list, s.objects[key])
	}
	return list
}

func (s *source) version() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.versionLocked()
}

func (s *source) versionLocked() string { return strconv.Itoa(len(s.log)) }

// nextRefusalLocked counts the request.
func (s *source) nextRefusalLocked(request string) fault {
	f := none
	if r := s.script.refusals; len(r) > 0 {
		f, s.script.refusals = r[0], r[1:]
	}
	s.requests[request+string(f)]++
	return f
}

func (s *source) IsWatchListSemanticsUnSupported() bool { return s.script.listing == unasked }

func (s *source) List(o metav1.ListOptions) (runtime.Object, error) {
	return s.ListWithContext(context.Background(), o)
}

func (s *source) ListWithContext(context.Context, metav1.ListOptions) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.nextRefusalLocked("list "); f != none {
		return nil, f.err()
	}
	list := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: s.versionLocked()}}
	for _, obj := range s.listLocked() {
		list.Items = append(list.Items, *obj)
	}
	return list, nil
}

func (s *source) Watch(o metav1.ListOptions) (apiwatch.Interface, error) {
	return s.WatchWithContext(context.Background(), o)
}

func (s *source) WatchWithContext(_ context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kind := "watch "
	if o.SendInitialEvents != nil {
		kind = "stream "
	}
	f := s.nextRefusalLocked(kind)
	if f != none && f != torn {
		return nil, f.err()
	}
	first, err := s.firstLocked(o)
	if err != nil {
		return nil, err
	}
	w := &connection{events: make(chan apiwatch.Event), stopped: make(chan struct{})}
	if f == torn {
		go w.tear(first)
	} else {
		go s.serve(w, first)
	}
	return w, nil
}

// firstLocked returns with what a watch begins.
func (s *source) firstLocked(o metav1.ListOptions) ([]apiwatch.Event, error) {
	if o.SendInitialEvents == nil {
		from, err := strconv.Atoi(o.ResourceVersion)
		if err != nil || from < s.oldest || from > len(s.log) {
			s.requests["too old"]++
			return nil, statuses["expired"]
		}
		elsewhere := func(e apiwatch.Event) bool { return e.Type == "" }
		return slices.DeleteFunc(slices.Clone(s.log[from:]), elsewhere), nil
	}
	if s.script.listing != streamed {
		return nil, apierrors.NewBadRequest("sendInitialEvents is forbidden")
	}
	var first []apiwatch.Event
	for _, obj := range s.listLocked() {
		first = append(first, apiwatch.Event{Type: apiwatch.Added, Object: obj})
	}
	return append(first, bookmark(s.versionLocked(), true)), nil
}

func bookmark(version string, endsList bool) apiwatch.Event {
	obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version}}
	if endsList {
		obj.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	return apiwatch.Event{Type: apiwatch.Bookmark, Object: obj}
}

// serve tells w what there is, and then goes on with the script.
func (s *source) serve(w *connection, first []apiwatch.Event) {
	defer close(w.events)
	for _, e := range first {
		if !w.send(e) {
			return
		}
	}
	for {
		st, ok := s.nextStep()
		if !ok {
			close(s.finished)
			<-w.stopped
			return
		}
		if !w.wait(st.pause) {
			return
		}
		e, ends := s.do(st)
		if e.Type != "" && !w.send(e) || ends {
			return
		}
	}
}

func (s *source) nextStep() (st step, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.script.steps) == 0 {
		return st, false
	}
	st, s.script.steps = s.script.steps[0], s.script.steps[1:]
	return st, true
}

// do does one step, and returns what is told of it, and whether that is the end of the watch.
func (s *source) do(st step) (e apiwatch.Event, ends bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case st.bookmark:
		s.requests["bookmark"]++
		return bookmark(s.versionLocked(), false), false
	case st.elsewhere:
		s.log = append(s.log, e)
		return e, false
	case st.end == nil:
		return s.makeLocked(st.change), false
	}
	for _, c := range st.end.missed {
		s.makeLocked(c)
	}
	if st.end.forget {
		s.oldest = len(s.log)
	}
	s.script.refusals = st.end.refusals
	s.requests["end "+string(st.end.event)]++
	if status, ok := statuses[st.end.event]; ok {
		e = apiwatch.Event{Type: apiwatch.Error, Object: status.ErrStatus.DeepCopy()}
	}
	return e, true
}

// versions returns the version of each object.
func (s *source) versions() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	versions := map[string]string{}
	for key, obj := range s.objects {
		versions[key] = obj.ResourceVersion
	}
	return versions
}

// connection is a watch.
type connection struct {
	events  chan apiwatch.Event
	stopped chan struct{}
	stop    sync.Once
}

func (w *connection) ResultChan() <-chan apiwatch.Event { return w.events }
func (w *connection) Stop()                             { w.stop.Do(func() { close(w.stopped) }) }

// send reports false if the client has stopped the watch. So does wait.
func (w *connection) send(e apiwatch.Event) bool {
	select {
	case w.events <- e:
		return true
	case <-w.stopped:
		return false
	}
}

// A pause of nothing makes no timer: in a bubble, timers that have fired when they are made, in
// several goroutines, can crash the race detector of Go 1.26.
func (w *connection) wait(d time.Duration) bool {
	if d == 0 {
		return true
	}
	select {
	case <-time.After(d):
		return true
	case <-w.stopped:
		return false
	}
}

func (w *connection) tear(first []apiwatch.Event) {
	defer close(w.events)
	for _, e := range first[:len(first)/2] {
		if !w.send(e) {
			return
		}
	}
}
