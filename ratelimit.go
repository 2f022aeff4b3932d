package typedqueue

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// RateLimiter decides how long an item waits before it is tried again. Its method set is
// that of client-go's workqueue.TypedRateLimiter, so either serves for the other. All
// methods must be safe for concurrent use.
type RateLimiter[T comparable] interface {
	// When counts a failure of item and returns how long it should wait.
	When(item T) time.Duration
	// Forget clears what the limiter remembers of item, usually because it succeeded.
	Forget(item T)
	// NumRequeues returns how often When was called for item since it was forgotten.
	NumRequeues(item T) int
}

// failures counts calls of When by item. The zero value is ready.
type failures[T comparable] struct {
	keys fitness[T]

	mu     sync.Mutex // guards everything below
	counts map[T]int  // never holds a 0
	peak   int        // not less than len(counts); see trimmed
}

// next counts a failure and returns how many came before.
func (f *failures[T]) next(item T) int {
	f.keys.must(item)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.counts == nil {
		f.counts = make(map[T]int)
	}
	n := f.counts[item]
	f.counts[item] = n + 1
	f.peak = max(f.peak, len(f.counts))
	return n
}

// Forget clears the count of item. An item that is not equal to itself, or cannot be
// hashed, panics.
func (f *failures[T]) Forget(item T) {
	f.keys.must(item)
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.counts, item)
	f.counts = trimmed(f.counts, &f.peak)
}

// NumRequeues returns how often When was called for item since it was forgotten. An item
// that is not equal to itself, or cannot be hashed, panics.
func (f *failures[T]) NumRequeues(item T) int {
	f.keys.must(item)
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts[item]
}

// ItemExponentialFailureRateLimiter doubles an item's delay with each failure. Make it
// with NewItemExponentialFailureRateLimiter. Memory grows with the items not forgotten.
type ItemExponentialFailureRateLimiter[T comparable] struct {
	failures[T]
	base, max time.Duration
}

// NewItemExponentialFailureRateLimiter returns a limiter whose delays for one item are
// base, 2*base, 4*base and so on, but max at most. It panics if base or max is negative.
func NewItemExponentialFailureRateLimiter[T comparable](base, max time.Duration) *ItemExponentialFailureRateLimiter[T] {
	mustNotBeNegative("base", base)
	mustNotBeNegative("max", max)
	return &ItemExponentialFailureRateLimiter[T]{base: base, max: max}
}

// When counts a failure of item and returns its delay: never more than max, never less
// than the last one, however many failures there were. An item that is not equal to
// itself, or cannot be hashed, panics.
func (l *ItemExponentialFailureRateLimiter[T]) When(item T) time.Duration {
	return backOff(l.base, l.max, l.next(item))
}

// backOff returns base doubled n times, in integers, or limit if that is less.
func backOff(base, limit time.Duration, n int) time.Duration {
	d := base
	for range min(n, 63) { // 63 doublings bring every base but 0 to any limit
		if d >= limit/2+limit%2 {
			return limit
		}
		d *= 2
	}
	return min(d, limit)
}

// ItemFastSlowRateLimiter tries an item fast a few times and slowly after that. Make it
// with NewItemFastSlowRateLimiter. Memory grows with the items not forgotten.
type ItemFastSlowRateLimiter[T comparable] struct {
	failures[T]
	fast, slow      time.Duration
	maxFastAttempts int
}

// NewItemFastSlowRateLimiter returns a limiter that answers fast to the first
// maxFastAttempts failures of an item and slow to all others. It panics if one of the
// three is negative.
func NewItemFastSlowRateLimiter[T comparable](fast, slow time.Duration, maxFastAttempts int) *ItemFastSlowRateLimiter[T] {
	mustNotBeNegative("fast", fast)
	mustNotBeNegative("slow", slow)
	if maxFastAttempts < 0 {
		panic(fmt.Sprintf("typedqueue: maxFastAttempts is negative: %d", maxFastAttempts))
	}
	return &ItemFastSlowRateLimiter[T]{fast: fast, slow: slow, maxFastAttempts: maxFastAttempts}
}

// When counts a failure of item and returns fast or slow. An item that is not equal to
// itself, or cannot be hashed, panics.
func (l *ItemFastSlowRateLimiter[T]) When(item T) time.Duration {
	if l.next(item) < l.maxFastAttempts {
		return l.fast
	}
	return l.slow
}

// BucketRateLimiter limits how often items are tried in all, whichever they are. Make it
// with NewBucketRateLimiter.
type BucketRateLimiter[T comparable] struct {
	keys    fitness[T]
	limiter *rate.Limiter
}

// NewBucketRateLimiter returns a limiter that answers with the time until limiter has a
// token, which it takes. It panics if limiter is nil, or can never give one: if its rate
// is 0 or less, or its burst is and its rate is not infinite.
func NewBucketRateLimiter[T comparable](limiter *rate.Limiter) *BucketRateLimiter[T] {
	if limiter == nil {
		panic("typedqueue: nil limiter")
	}
	if r := limiter.Limit(); !(r > 0) || r < rate.Inf && limiter.Burst() <= 0 {
		panic(fmt.Sprintf("typedqueue: a limiter with rate %v and burst %d never lets anything pass", float64(r), limiter.Burst()))
	}
	return &BucketRateLimiter[T]{limiter: limiter}
}

// When takes a token and returns the time until it is there. Nothing bounds that; see
// NewWithMaxWaitRateLimiter.
func (l *BucketRateLimiter[T]) When(item T) time.Duration {
	l.keys.must(item)
	return l.limiter.Reserve().Delay()
}

// Forget does nothing: a bucket does not know items.
func (l *BucketRateLimiter[T]) Forget(item T) { l.keys.must(item) }

// NumRequeues returns 0: a bucket does not know items.
func (l *BucketRateLimiter[T]) NumRequeues(item T) int { l.keys.must(item); return 0 }

// MaxOfRateLimiter asks several limiters. Make it with NewMaxOfRateLimiter.
type MaxOfRateLimiter[T comparable] struct{ limiters []RateLimiter[T] }

// NewMaxOfRateLimiter returns a limiter that answers with the longest delay of limiters.
// It panics if there are none, or one is nil.
func NewMaxOfRateLimiter[T comparable](limiters ...RateLimiter[T]) *MaxOfRateLimiter[T] {
	if len(limiters) == 0 {
		panic("typedqueue: no limiters")
	}
	for _, l := range limiters {
		mustLimiter(l)
	}
	return &MaxOfRateLimiter[T]{slices.Clone(limiters)}
}

// When asks all limiters, each of which counts a failure, and returns the longest delay.
func (l *MaxOfRateLimiter[T]) When(item T) time.Duration {
	var d time.Duration
	for _, each := range l.limiters {
		d = max(d, each.When(item))
	}
	return d
}

// Forget forwards to all limiters.
func (l *MaxOfRateLimiter[T]) Forget(item T) {
	for _, each := range l.limiters {
		each.Forget(item)
	}
}

// NumRequeues returns the largest number that one of the limiters reports.
func (l *MaxOfRateLimiter[T]) NumRequeues(item T) int {
	n := 0
	for _, each := range l.limiters {
		n = max(n, each.NumRequeues(item))
	}
	return n
}

// wrapped forwards what a limiter around another one leaves as it is.
type wrapped[T comparable] struct{ limiter RateLimiter[T] }

// Forget forwards to the limiter within.
func (w wrapped[T]) Forget(item T) { w.limiter.Forget(item) }

// NumRequeues returns what the limiter within reports.
func (w wrapped[T]) NumRequeues(item T) int { return w.limiter.NumRequeues(item) }

// WithMaxWaitRateLimiter bounds the delays of another limiter. Make it with
// NewWithMaxWaitRateLimiter.
type WithMaxWaitRateLimiter[T comparable] struct {
	wrapped[T]
	max time.Duration
}

// NewWithMaxWaitRateLimiter returns a limiter that answers as limiter does, but with max
// at most. It panics if limiter is nil or max is negative.
func NewWithMaxWaitRateLimiter[T comparable](limiter RateLimiter[T], max time.Duration) *WithMaxWaitRateLimiter[T] {
	mustLimiter(limiter)
	mustNotBeNegative("max", max)
	return &WithMaxWaitRateLimiter[T]{wrapped[T]{limiter}, max}
}

// When returns the delay of the limiter within, or max if that is shorter.
func (l *WithMaxWaitRateLimiter[T]) When(item T) time.Duration {
	return min(l.limiter.When(item), l.max)
}

// WithJitterRateLimiter spreads the delays of another limiter, so that items which failed
// together are not tried together. client-go has no such limiter. Make it with
// NewWithJitterRateLimiter.
type WithJitterRateLimiter[T comparable] struct {
	wrapped[T]
	factor float64
}

// NewWithJitterRateLimiter returns a limiter whose delays are random, evenly spread from
// the delay d of limiter to d + factor*d. It panics if limiter is nil, or factor is
// negative or not finite. To bound the result put NewWithMaxWaitRateLimiter around it.
func NewWithJitterRateLimiter[T comparable](limiter RateLimiter[T], factor float64) *WithJitterRateLimiter[T] {
	mustLimiter(limiter)
	if !(factor >= 0) || math.IsInf(factor, 1) {
		panic(fmt.Sprintf("typedqueue: jitter factor is not a finite number of at least 0: %v", factor))
	}
	return &WithJitterRateLimiter[T]{wrapped[T]{limiter}, factor}
}

// When returns the delay of the limiter within, spread.
func (l *WithJitterRateLimiter[T]) When(item T) time.Duration {
	d := max(0, l.limiter.When(item))
	extra := rand.Float64() * l.factor * float64(d)
	if extra >= float64(math.MaxInt64-d) {
		return math.MaxInt64
	}
	return d + time.Duration(extra)
}

// NewDefaultControllerRateLimiter returns the limiter that controllers usually want: 5 ms
// doubling up to 1000 s for each item, and 10 a second with bursts of 100 over all items.
// Unlike client-go's it never answers with more than 1000 s.
func NewDefaultControllerRateLimiter[T comparable]() *WithMaxWaitRateLimiter[T] {
	const longest = 1000 * time.Second
	return NewWithMaxWaitRateLimiter(NewMaxOfRateLimiter[T](
		NewItemExponentialFailureRateLimiter[T](5*time.Millisecond, longest),
		NewBucketRateLimiter[T](rate.NewLimiter(10, 100)),
	), longest)
}

func mustNotBeNegative(name string, d time.Duration) {
	if d < 0 {
		panic(fmt.Sprintf("typedqueue: %s is negative: %v", name, d))
	}
}

func mustLimiter[T comparable](l RateLimiter[T]) {
	if l == nil {
		panic("typedqueue: nil limiter")
	}
}

// RateLimitingQueue is a DelayingQueue that knows how long an item which failed should
// wait: a RateLimiter tells it. It is client-go's workqueue.TypedRateLimitingInterface.
//
// The zero RateLimitingQueue is ready to use, with a limiter of its own from
// NewDefaultControllerRateLimiter; it must not be copied after first use.
type RateLimitingQueue[T comparable] struct {
	delayingQueue[T]
	defaults sync.Once
	limiter  RateLimiter[T] // set by defaults if NewRateLimitingQueue has not
}

// NewRateLimitingQueue returns an empty queue. If limiter is nil, the queue has one of its
// own from NewDefaultControllerRateLimiter. Queues that share a limiter share what it
// remembers of items, and its tokens.
func NewRateLimitingQueue[T comparable](limiter RateLimiter[T], opts Options) *RateLimitingQueue[T] {
	q := &RateLimitingQueue[T]{limiter: limiter}
	q.configure(opts)
	return q
}

func (q *RateLimitingQueue[T]) limits() RateLimiter[T] {
	q.defaults.Do(func() {
		if q.limiter == nil {
			q.limiter = NewDefaultControllerRateLimiter[T]()
		}
	})
	return q.limiter
}

// AddRateLimited reports a failure of item to the limiter, and adds item after the delay
// that it answers, as AddAfter does. A call that merges is no failure: if item is not
// processing and is ready, or waits because of an earlier AddRateLimited, then neither the
// limiter nor the queue change, where client-go charges the limiter each time. It is meant
// for retries, before Done; start-up work goes through Add or AddAll.
//
// It never blocks, if the limiter does not. After ShutDown it does nothing, and the limiter
// is not asked. O(log n) for n items that wait.
func (q *RateLimitingQueue[T]) AddRateLimited(item T) { q.retry(item, priority{}, 0) }

// AddRateLimitedWithPriority is AddRateLimited with a priority of the caller's.
func (q *RateLimitingQueue[T]) AddRateLimitedWithPriority(item T, p int) {
	q.retry(item, priority{p, true}, 0)
}

// retry is AddRateLimited with a delay of at least floor. It reports whether the queue was
// open. The limiter is asked with no lock held, so the queue may change meanwhile, and of
// racing calls each may be counted.
func (q *RateLimitingQueue[T]) retry(item T, p priority, floor time.Duration) (accepted bool) {
	hash := q.keys.hash(item)
	if merges, open := q.mergesRetry(hash, item); merges || !open {
		return open
	}
	delay := max(q.limits().When(item), floor)
	now := q.nowFor(delay)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.retries++
	if q.closed {
		return false
	}
	e := q.need(hash, item)
	q.addLater(e, delay, p, now)
	if e.is(waiting) {
		e.marks |= limited
	}
	return true
}

// mergesRetry reports whether an AddRateLimited of item is no failure (R4), and whether
// the queue is open.
func (q *RateLimitingQueue[T]) mergesRetry(hash uint32, item T) (merges, open bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false, false
	}
	e := q.entries.find(hash, item)
	merges = e.found() && !e.is(processing) && e.is(dirty|limited)
	q.count(!merges)
	return merges, true
}

// Forget clears the limiter's memory of item: its next failure counts as the first. Only
// the limiter changes; to take item itself back, see Cancel.
func (q *RateLimitingQueue[T]) Forget(item T) {
	q.keys.must(item)
	q.limits().Forget(item)
}

// NumRequeues returns what the limiter reports: how often item has failed in a row.
func (q *RateLimitingQueue[T]) NumRequeues(item T) int {
	q.keys.must(item)
	return q.limits().NumRequeues(item)
}

// RequeueAfter returns an error with which a reconcile function asks Run to call it again
// after d, though nothing failed. If d is 0 or less, Run takes it for success.
func RequeueAfter(d time.Duration) error { return &RequeueAfterError{d} }

// RequeueAfterError is what RequeueAfter returns. It may be wrapped.
type RequeueAfterError struct{ Delay time.Duration }

func (e *RequeueAfterError) Error() string {
	return fmt.Sprintf("typedqueue: requeue after %v", e.Delay)
}

// Terminal returns an error with which a reconcile function tells Run that trying again is
// of no use. Terminal(nil) is nil.
func Terminal(err error) error {
	if err == nil {
		return nil
	}
	return &TerminalError{err}
}

// TerminalError is what Terminal returns. It may be wrapped.
type TerminalError struct{ Err error }

func (e *TerminalError) Error() string { return fmt.Sprintf("typedqueue: terminal: %v", e.Err) }

// Unwrap returns the error that Terminal was called with.
func (e *TerminalError) Unwrap() error { return e.Err }

// RunOptions are the optional parts of Run. The zero value is the default.
type RunOptions[T comparable] struct {
	// Workers is how many items are reconciled at once; 0 means 1.
	Workers int
	// MaxAttempts is how many failures in a row an item may have before Run gives it up; 0
	// means that there is no limit. Each Run counts by itself, whatever the limiter counts.
	MaxAttempts int
	// GiveUp, if not nil, is told of each item that failed and is not tried again: because
	// of MaxAttempts, because the error is a TerminalError, or because the queue has been
	// shut down (then err is ErrShutDown too). It runs before Done, so no other worker holds
	// the item, and may add it again. It may run in several goroutines at once.
	GiveUp func(item T, err error)
}

// Run is the worker pool that a controller needs: it gets items, calls reconcile for each,
// and does what the result asks for, until the queue is shut down and empty, when it
// returns nil, or until ctx is done and the running calls have returned, when it returns
// context.Cause(ctx). What is ready then stays in the queue. Run waits for the goroutines
// that it starts. It may be called several times, one after the other or at once.
//
//	nil                 Forget
//	RequeueAfter(d)     Forget, AddAfter(d) unless d <= 0
//	Terminal(err)       Forget, GiveUp
//	any other error     AddRateLimited; from the MaxAttempts-th in a row on Forget, GiveUp
//
// Done follows in each case. The error's whole tree counts: with a TerminalError anywhere
// it is terminal; of several RequeueAfters alone the shortest above 0 counts; joined with
// another error they are a failure that waits at least the longest. A failure after
// shutdown cannot be tried again, and is given up. Otherwise a failure that comes after ctx
// is done counts as no attempt: the item is made ready again, with the priority that it was
// handed out with, for whoever works on the queue next. Terminal and RequeueAfter mean the
// same as ever; a RequeueAfter after shutdown is dropped, and counted in Stats.Dropped.
//
// A panic in reconcile goes on panicking, after Done, in a goroutine of Run's, so it ends
// the program. A runtime.Goexit ends that worker, after Done; when no worker is left because
// of that, Run returns an error. A nil ctx or reconcile, or a negative option, panics at once.
func (q *RateLimitingQueue[T]) Run(ctx context.Context, opts RunOptions[T], reconcile func(context.Context, T) error) error {
	mustContext(ctx)
	if reconcile == nil {
		panic("typedqueue: nil reconcile")
	}
	if opts.Workers < 0 || opts.MaxAttempts < 0 {
		panic(fmt.Sprintf("typedqueue: negative RunOptions: Workers %d, MaxAttempts %d", opts.Workers, opts.MaxAttempts))
	}
	r := run[T]{q: q, ctx: ctx, opts: opts, reconcile: reconcile}
	var workers sync.WaitGroup
	for range max(1, opts.Workers) {
		workers.Go(r.work)
	}
	workers.Wait()
	switch {
	case r.stopped.Load():
		return context.Cause(ctx)
	case r.emptied.Load() && (!r.exited.Load() || q.Len() == 0):
		return nil
	}
	return errors.New("typedqueue: runtime.Goexit has ended the last worker")
}

// run is one call of Run.
type run[T comparable] struct {
	q         *RateLimitingQueue[T]
	ctx       context.Context
	opts      RunOptions[T]
	reconcile func(context.Context, T) error

	attempts failures[T] // in a row; used only if MaxAttempts is not 0

	// How workers ended: at least one found ctx done, found the queue shut down and empty, or
	// left through runtime.Goexit, perhaps with its item ready again.
	stopped, emptied, exited atomic.Bool
}

func (r *run[T]) work() {
	end := &r.exited
	defer func() { end.Store(true) }()
	for {
		item, err := r.q.GetContext(r.ctx)
		switch {
		case err == nil:
			r.one(item)
			continue
		case errors.Is(err, ErrShutDown):
			end = &r.emptied
		default:
			end = &r.stopped
		}
		return
	}
}

// one reconciles item.
func (r *run[T]) one(item T) {
	defer r.q.Done(item) // whatever happens
	err := r.reconcile(r.ctx, item)
	v := judge(err)
	switch {
	case v.terminal:
		r.giveUp(item, err)
	case v.failed:
		r.fail(item, err, v.longest)
	default:
		r.forget(item)
		if v.soonest > 0 && !r.q.addAfter(item, v.soonest, priority{}) {
			r.q.drop()
		}
	}
}

// fail deals with a failure that asks to be tried again, not before floor has passed.
func (r *run[T]) fail(item T, err error, floor time.Duration) {
	var accepted bool
	switch {
	case r.q.ShuttingDown():
	case r.ctx.Err() != nil:
		accepted = r.q.addAfter(item, 0, priority{})
	case r.opts.MaxAttempts > 0 && r.attempts.next(item)+1 >= r.opts.MaxAttempts:
		r.giveUp(item, err)
		return
	default:
		accepted = r.q.retry(item, priority{}, floor)
	}
	if !accepted {
		r.giveUp(item, fmt.Errorf("%w: %w", ErrShutDown, err))
	}
}

func (r *run[T]) giveUp(item T, err error) {
	r.forget(item)
	if r.opts.GiveUp != nil {
		r.opts.GiveUp(item, err)
	}
}

func (r *run[T]) forget(item T) {
	if r.opts.MaxAttempts > 0 {
		r.attempts.Forget(item)
	}
	r.q.Forget(item)
}

// drop counts a request to wait that came after shutdown.
func (q *RateLimitingQueue[T]) drop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dropped++
}

// verdict is what the tree of an error says to Run; of nil, nothing.
type verdict struct {
	terminal bool
	failed   bool          // it has a leaf that is no RequeueAfterError
	soonest  time.Duration // the shortest positive delay of its RequeueAfterErrors, or 0
	longest  time.Duration // the longest
}

func judge(err error) (v verdict) {
	v.read(err)
	return v
}

func (v *verdict) read(err error) {
	switch e := err.(type) {
	case nil:
	case *TerminalError:
		v.terminal = true
	case *RequeueAfterError:
		v.longest = max(v.longest, e.Delay)
		if e.Delay > 0 && (v.soonest == 0 || e.Delay < v.soonest) {
			v.soonest = e.Delay
		}
	case interface{ Unwrap() []error }:
		leaf := true
		for _, each := range e.Unwrap() {
			leaf = leaf && each == nil
			v.read(each)
		}
		v.failed = v.failed || leaf
	case interface{ Unwrap() error }:
		v.read(e.Unwrap())
		v.failed = v.failed || e.Unwrap() == nil
	default:
		v.failed = true
	}
}
