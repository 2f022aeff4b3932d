package kube_test

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

// A trial is a scenario that is being done with one side's queue.
type trial struct {
	side
	made
	limiter *countingLimiter
	meter   *meter
	worker  *worker // the first

	priorities bool
	notes      []string
	releases   []func()
}

// observe does s with of and returns what was seen.
func (s scenario) observe(t *testing.T, of side) (seen string) {
	if s.deadly && os.Getenv(childOf) == "" {
		return s.observeChild(t, of)
	}
	synctest.Test(t, func(*testing.T) {
		r := &trial{side: of, limiter: &countingLimiter{delay: time.Second}, priorities: s.priorities}
		if of.make != nil {
			r.start(s.metered)
		}
		if panics := attempt(func() { s.do(r) }); panics != "" {
			r.note("%s", panics)
		}
		for _, release := range r.releases {
			release()
		}
		seen = strings.Join(r.notes, "; ")
	})
	return seen
}

// start makes the work queue and its first worker.
func (r *trial) start(metered bool) {
	var name string
	var provider workqueue.MetricsProvider
	if metered {
		r.meter = new(meter)
		name, provider = "pods", r.meter
	}
	r.made = r.another(name, r.limiter, provider)
	r.worker = r.newWorker()
}

// another makes a queue, which is released at the end.
func (r *trial) another(name string, l anyLimiter, p workqueue.MetricsProvider) made {
	m := r.side.make(name, l, p)
	r.releases = append(r.releases, m.release)
	synctest.Wait()
	return m
}

func (r *trial) note(format string, args ...any) {
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

// In each of the following the others have done what they can when it returns: what a rival
// hands from goroutine to goroutine has arrived.

func (r *trial) add(items ...any) {
	for _, item := range items {
		r.queue.Add(item)
		synctest.Wait()
	}
}

func (r *trial) after(delay time.Duration, items ...any) {
	for _, item := range items {
		r.queue.AddAfter(item, delay)
		synctest.Wait()
	}
}

func (r *trial) retry(items ...any) {
	for _, item := range items {
		r.queue.AddRateLimited(item)
		synctest.Wait()
	}
}

func (r *trial) with(o priorityqueue.AddOpts, items ...any) {
	r.queue.(priorityqueue.PriorityQueue[any]).AddWithOpts(o, items...)
	synctest.Wait()
}

func (r *trial) done(item any) {
	r.queue.Done(item)
	synctest.Wait()
}

func (r *trial) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// take has one worker get n times, without Done, and returns what it got.
func (r *trial) take(n int) string {
	got := make([]string, n)
	for i := range got {
		got[i], _ = r.worker.get()
	}
	return strings.Join(got, " ")
}

// work is take with Done.
func (r *trial) work(n int) string {
	got := make([]string, n)
	for i := range got {
		var done func()
		got[i], done = r.worker.get()
		done()
		synctest.Wait()
	}
	return strings.Join(got, " ")
}

// A worker is a goroutine's loop, a step at a time.
type worker struct {
	r   *trial
	got chan func() (text string, done func()) // of the call of Get that is under way, or nil
}

func (r *trial) newWorker() *worker { return &worker{r: r} }

// get returns what Get returns, as text, and how to be done with it. If that is nothing, Get
// goes on, and the next get sees what it returns.
func (w *worker) get() (text string, done func()) {
	if w.got == nil {
		w.got = make(chan func() (string, func()), 1)
		go func() { w.got <- w.call() }()
	}
	synctest.Wait()
	select {
	case got := <-w.got:
		w.got = nil
		return got()
	default:
		return "nothing", func() {}
	}
}

func (w *worker) call() func() (string, func()) {
	var item any
	var priority int
	var shutdown bool
	q := w.r.queue
	if w.r.priorities {
		item, priority, shutdown = q.(priorityqueue.PriorityQueue[any]).GetWithPriority()
	} else {
		item, shutdown = q.Get()
	}
	return func() (string, func()) {
		switch {
		case shutdown:
			return "shutdown", func() {}
		case w.r.priorities:
			return fmt.Sprintf("%v(%d)", item, priority), func() { q.Done(item) }
		}
		return fmt.Sprint(item), func() { q.Done(item) }
	}
}

// A call is one that may block.
type call struct{ result chan string }

func begin(f func()) call {
	c := call{make(chan string, 1)}
	go func() { c.result <- attempt(f) }()
	return c
}

// state says what has become of c, an hour later if that is not known at once.
func (c call) state() string {
	synctest.Wait()
	if len(c.result) == 0 {
		time.Sleep(time.Hour)
		synctest.Wait()
	}
	select {
	case panics := <-c.result:
		c.result <- panics
		if panics != "" {
			return panics
		}
		return "returned"
	default:
		return "blocks"
	}
}

// attempt calls f and returns what it panics with, if it does.
func attempt(f func()) (panics string) {
	defer func() {
		if v := recover(); v != nil {
			panics = fmt.Sprintf("panics: %v", v)
		}
	}()
	f()
	return ""
}

// reach says whether f, called in a goroutine of its own, can go on now, or waits for a lock.
// That is no blocking that a bubble could see, so it looks at the goroutine's stack.
func reach(f func()) string {
	done := make(chan struct{}, 1)
	go reached(f, done)
	for {
		if len(done) == 1 {
			return "answers"
		}
		if waitsForLock("kube_test.reached(") {
			return "waits for the lock that is held here"
		}
		runtime.Gosched()
	}
}

func reached(f func(), done chan<- struct{}) {
	f()
	done <- struct{}{}
}

var lockHeader = regexp.MustCompile(`\[sync\.(RW)?Mutex\.R?Lock`)

// waitsForLock reports whether a goroutine that is in function waits for a mutex.
func waitsForLock(function string) bool {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for stack := range bytes.SplitSeq(stacks, []byte("\n\n")) {
		head, _, _ := bytes.Cut(stack, []byte("\n"))
		if lockHeader.Match(head) && bytes.Contains(stack, []byte(function)) {
			return true
		}
	}
	return false
}

var bubbleHeader = regexp.MustCompile(`(?m)^goroutine \d+ \[.*(synctest bubble \d+)`)

// goroutines returns how many goroutines there are in the caller's bubble.
func goroutines() (n int) {
	stacks := make([]byte, 1<<20)
	all := bubbleHeader.FindAllSubmatch(stacks[:runtime.Stack(stacks, true)], -1)
	for _, m := range all { // the first is the caller
		if bytes.Equal(m[1], all[0][1]) {
			n++
		}
	}
	return n
}

// countingLimiter answers with one delay, and counts how often it is asked.
type countingLimiter struct {
	delay time.Duration
	when  func() // if not nil, called by When

	mu    sync.Mutex
	asked map[any]int
}

func (l *countingLimiter) When(item any) time.Duration {
	if l.when != nil {
		l.when()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asked == nil {
		l.asked = make(map[any]int)
	}
	l.asked[item]++
	return l.delay
}

func (l *countingLimiter) Forget(item any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.asked, item)
}

func (l *countingLimiter) NumRequeues(item any) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.asked[item]
}

// meter is somebody's MetricsProvider. All its names are one.
type meter struct {
	depth, adds, retries, latency, work, unfinished, longest metric
}

// metric is whatever a queue wants it to be. Of what is observed it is the sum.
type metric struct {
	then func() // if not nil, called after each change by a difference

	mu    sync.Mutex
	value float64
}

func (m *metric) add(by float64) {
	m.mu.Lock()
	m.value += by
	m.mu.Unlock()
	if m.then != nil {
		m.then()
	}
}

func (m *metric) Inc()              { m.add(1) }
func (m *metric) Dec()              { m.add(-1) }
func (m *metric) Observe(v float64) { m.add(v) }
func (m *metric) Set(v float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.value = v
}

func (m *metric) get() float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.value
}

func (m *meter) NewDepthMetric(string) workqueue.GaugeMetric            { return &m.depth }
func (m *meter) NewAddsMetric(string) workqueue.CounterMetric           { return &m.adds }
func (m *meter) NewRetriesMetric(string) workqueue.CounterMetric        { return &m.retries }
func (m *meter) NewLatencyMetric(string) workqueue.HistogramMetric      { return &m.latency }
func (m *meter) NewWorkDurationMetric(string) workqueue.HistogramMetric { return &m.work }
func (m *meter) NewUnfinishedWorkSecondsMetric(string) workqueue.SettableGaugeMetric {
	return &m.unfinished
}
func (m *meter) NewLongestRunningProcessorSecondsMetric(string) workqueue.SettableGaugeMetric {
	return &m.longest
}
