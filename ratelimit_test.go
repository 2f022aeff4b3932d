package typedqueue

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/time/rate"
	"pgregory.net/rapid"
)

// T is inferred at the call wherever an argument says it.
var (
	_ *RateLimitingQueue[string] = NewRateLimitingQueue(NewDefaultControllerRateLimiter[string](), Options{})
	_ *MaxOfRateLimiter[int]     = NewMaxOfRateLimiter(
		NewItemExponentialFailureRateLimiter[int](0, 0),
		NewItemFastSlowRateLimiter[int](0, 0, 0),
		NewBucketRateLimiter[int](rate.NewLimiter(1, 1)),
	)
	_ *WithMaxWaitRateLimiter[int] = NewWithMaxWaitRateLimiter(NewItemFastSlowRateLimiter[int](0, 0, 0), 0)
	_ *WithJitterRateLimiter[int]  = NewWithJitterRateLimiter(NewMaxOfRateLimiter(NewItemFastSlowRateLimiter[int](0, 0, 0)), 0)
)

// RateLimiter has the method set of client-go's TypedRateLimiter, and all limiters have it.
var (
	_ RateLimiter[string] = interface {
		When(item string) time.Duration
		Forget(item string)
		NumRequeues(item string) int
	}(nil)
	_ RateLimiter[string] = (*ItemExponentialFailureRateLimiter[string])(nil)
	_ RateLimiter[string] = (*ItemFastSlowRateLimiter[string])(nil)
	_ RateLimiter[string] = (*BucketRateLimiter[string])(nil)
	_ RateLimiter[string] = (*MaxOfRateLimiter[string])(nil)
	_ RateLimiter[string] = (*WithMaxWaitRateLimiter[string])(nil)
	_ RateLimiter[string] = (*WithJitterRateLimiter[string])(nil)
	_ RateLimiter[string] = (*notingLimiter)(nil)
)

// notingLimiter tells note of each call before it counts it, and answers as delay says to
// the number of an item's failures so far.
type notingLimiter struct {
	note  func(call string)
	delay func(failures int) time.Duration

	mu     sync.Mutex
	counts map[string]int
}

func (l *notingLimiter) call(name string) {
	if l.note != nil {
		l.note(name)
	}
	l.mu.Lock()
	if l.counts == nil {
		l.counts = make(map[string]int)
	}
}

func (l *notingLimiter) When(item string) time.Duration {
	l.call("When")
	defer l.mu.Unlock()
	l.counts[item]++
	return l.delay(l.counts[item] - 1)
}

func (l *notingLimiter) Forget(item string) {
	l.call("Forget")
	defer l.mu.Unlock()
	delete(l.counts, item)
}

func (l *notingLimiter) NumRequeues(item string) int {
	l.call("NumRequeues")
	defer l.mu.Unlock()
	return l.counts[item]
}

// always is a delay of notingLimiter's.
func always(d time.Duration) func(int) time.Duration {
	return func(int) time.Duration { return d }
}

// panicOf returns what f panics with, or nil.
func panicOf(f func()) (x any) {
	defer func() { x = recover() }()
	f()
	return nil
}

// ours reports whether x is a panic value that says where it comes from.
func ours(x any) bool {
	s, ok := x.(string)
	return ok && strings.HasPrefix(s, "typedqueue: ")
}

// W52
func TestRateLimiters_WrongParametersPanic(t *testing.T) {
	type K = string
	bucket := func(r rate.Limit, burst int) func() {
		return func() { NewBucketRateLimiter[K](rate.NewLimiter(r, burst)) }
	}
	good := NewItemExponentialFailureRateLimiter[K](1, 1)
	for name, f := range map[string]func(){
		"exponential, base":       func() { NewItemExponentialFailureRateLimiter[K](-1, 1) },
		"exponential, max":        func() { NewItemExponentialFailureRateLimiter[K](1, -1) },
		"fast and slow, fast":     func() { NewItemFastSlowRateLimiter[K](-1, 1, 1) },
		"fast and slow, slow":     func() { NewItemFastSlowRateLimiter[K](1, -1, 1) },
		"fast and slow, attempts": func() { NewItemFastSlowRateLimiter[K](1, 1, -1) },
		"bucket, nil":             func() { NewBucketRateLimiter[K](nil) },
		"bucket, rate 0":          bucket(0, 1),
		"bucket, burst 0":         bucket(10, 0),
		"bucket, both 0":          bucket(0, 0),
		"bucket, rate < 0":        bucket(-1, 1),
		"bucket, burst < 0":       bucket(10, -1),
		"bucket, rate NaN":        bucket(rate.Limit(math.NaN()), 1),
		"max of, none":            func() { NewMaxOfRateLimiter[K]() },
		"max of, nil":             func() { NewMaxOfRateLimiter[K](good, nil) },
		"max of, nil first":       func() { NewMaxOfRateLimiter[K](nil, good) },
		"max wait, nil":           func() { NewWithMaxWaitRateLimiter[K](nil, 1) },
		"max wait, max":           func() { NewWithMaxWaitRateLimiter(good, -1) },
		"jitter, nil":             func() { NewWithJitterRateLimiter[K](nil, 1) },
		"jitter, factor < 0":      func() { NewWithJitterRateLimiter(good, -0.1) },
		"jitter, factor NaN":      func() { NewWithJitterRateLimiter(good, math.NaN()) },
		"jitter, factor infinite": func() { NewWithJitterRateLimiter(good, math.Inf(1)) },
	} {
		if x := panicOf(f); !ours(x) {
			t.Errorf("%s: panic %v, want one that starts with the package's name", name, x)
		}
	}
	for name, f := range map[string]func(){
		"exponential, zeros":       func() { NewItemExponentialFailureRateLimiter[K](0, 0) },
		"exponential, base > max":  func() { NewItemExponentialFailureRateLimiter[K](2, 1) },
		"fast and slow, zeros":     func() { NewItemFastSlowRateLimiter[K](0, 0, 0) },
		"fast and slow, fast last": func() { NewItemFastSlowRateLimiter[K](2, 1, 1) },
		"bucket, infinite rate":    bucket(rate.Inf, 0),
		"max wait, 0":              func() { NewWithMaxWaitRateLimiter(good, 0) },
		"jitter, 0":                func() { NewWithJitterRateLimiter(good, 0) },
	} {
		if x := panicOf(f); x != nil {
			t.Errorf("%s: panic %v, want none", name, x)
		}
	}
}

// W10: an item that cannot be found again would be remembered for ever.
func TestRateLimiters_Q10_FaultyItemsPanic(t *testing.T) {
	exponential := NewItemExponentialFailureRateLimiter[any](1, 1)
	fastSlow := NewItemFastSlowRateLimiter[any](1, 1, 1)
	for name, l := range map[string]RateLimiter[any]{
		"exponential":   exponential,
		"fast and slow": fastSlow,
		"bucket":        NewBucketRateLimiter[any](rate.NewLimiter(rate.Inf, 1)),
		"wrapped":       NewWithJitterRateLimiter(NewWithMaxWaitRateLimiter(NewMaxOfRateLimiter(exponential), 1), 1),
	} {
		for _, item := range []any{math.NaN(), []int{1}, [1]any{func() {}}} {
			for method, f := range map[string]func(){
				"When":        func() { l.When(item) },
				"Forget":      func() { l.Forget(item) },
				"NumRequeues": func() { l.NumRequeues(item) },
			} {
				if x := panicOf(f); !ours(x) {
					t.Errorf("%s: %s(%T) panics with %v", name, method, item, x)
				}
			}
		}
		if l.When(1); l.NumRequeues(1) == 0 && name != "bucket" {
			t.Errorf("%s: unusable after the panics", name)
		}
	}
	if n := len(exponential.counts) + len(fastSlow.counts); n != 2 {
		t.Errorf("the limiters remember %d items, want 2", n)
	}
}

// A limiter of the caller's that answers with less than nothing means: at once.
func TestRateLimiters_NegativeAnswers(t *testing.T) {
	for name, l := range map[string]RateLimiter[string]{
		"jitter": NewWithJitterRateLimiter[string](negative{}, 1),
		"max of": NewMaxOfRateLimiter[string](negative{}, negative{}),
	} {
		if d := l.When("x"); d != 0 {
			t.Errorf("%s: When = %v, want 0s", name, d)
		}
	}
}

type negative struct{}

func (negative) When(string) time.Duration { return -5 }
func (negative) Forget(string)             {}
func (negative) NumRequeues(string) int    { return 0 }

func TestItemExponentialFailureRateLimiter_R1_Delays(t *testing.T) {
	const top = math.MaxInt64
	for _, tt := range []struct {
		base, max time.Duration
		want      []time.Duration
	}{
		{5 * time.Millisecond, 1000 * time.Second, []time.Duration{5e6, 10e6, 20e6, 40e6, 80e6, 160e6}},
		{1, 5, []time.Duration{1, 2, 4, 5, 5}},
		{1, 8, []time.Duration{1, 2, 4, 8, 8}},
		{3, 2, []time.Duration{2, 2}},
		{0, 9, []time.Duration{0, 0, 0}},
		{9, 0, []time.Duration{0, 0}},
		{1 << 61, top, []time.Duration{1 << 61, 1 << 62, top, top}},
		{1<<62 + 1, top, []time.Duration{1<<62 + 1, top}},
		{1<<62 - 1, top, []time.Duration{1<<62 - 1, 1<<63 - 2, top, top}},
		{1, top - 1, append(powersOfTwo(63), top-1, top-1)},
		{1, top, append(powersOfTwo(63), top, top)},
	} {
		l := NewItemExponentialFailureRateLimiter[string](tt.base, tt.max)
		var got []time.Duration
		for range tt.want {
			got = append(got, l.When("x"))
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("base %d, max %d (-want +got):\n%s", tt.base, tt.max, diff)
		}
	}
}

func powersOfTwo(n int) (p []time.Duration) {
	for i := range n {
		p = append(p, 1<<i)
	}
	return p
}

// doubled is base<<n, or limit if that is less, in integers that cannot overflow.
func doubled(base, limit time.Duration, n int) time.Duration {
	d := new(big.Int).Lsh(big.NewInt(int64(base)), uint(n))
	if d.Cmp(big.NewInt(int64(limit))) > 0 {
		return limit
	}
	return time.Duration(d.Int64())
}

// anyDelay draws durations of all sizes, from 0 to the longest, those at the borders often.
func anyDelay() *rapid.Generator[time.Duration] {
	return rapid.Custom(func(t *rapid.T) time.Duration {
		const top = math.MaxInt64
		borders := []int64{0, 1, 2, 3, 1000, 5e6, 1e9, 1e12, 1<<62 - 1, 1 << 62, 1<<62 + 1, top - 1, top}
		if rapid.Bool().Draw(t, "border") {
			return time.Duration(rapid.SampledFrom(borders).Draw(t, "delay"))
		}
		size := rapid.IntRange(0, 62).Draw(t, "size")
		return time.Duration(rapid.Int64Range(0, 1<<size-1+1<<size).Draw(t, "delay"))
	})
}

func TestItemExponentialFailureRateLimiter_R1_DoublesUpToMax(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base, limit := anyDelay().Draw(t, "base"), anyDelay().Draw(t, "max")
		l := NewItemExponentialFailureRateLimiter[int](base, limit)
		var last time.Duration
		for n := range rapid.IntRange(1, 300).Draw(t, "calls") {
			d := l.When(0)
			if d < last || d > limit {
				t.Fatalf("delay %d after %d failures, want it in [%d, %d]", d, n, last, limit)
			}
			if want := doubled(base, limit, n); d != want {
				t.Fatalf("delay %d after %d failures, want %d", d, n, want)
			}
			last = d
		}
	})
}

// W46
func TestRateLimiters_R1_CombinedDelaysNeitherFallNorOverflow(t *testing.T) {
	const limit = 1000 * time.Second
	for _, interval := range []time.Duration{time.Second, math.MaxInt64} {
		l := NewWithMaxWaitRateLimiter(NewMaxOfRateLimiter(
			NewItemFastSlowRateLimiter[string](interval, interval, 0),
			NewItemExponentialFailureRateLimiter[string](time.Second, math.MaxInt64),
		), limit)
		for n := range 200 {
			want := min(limit, max(interval, doubled(time.Second, math.MaxInt64, n)))
			if d := l.When("x"); d != want {
				t.Fatalf("interval %v: delay %v after %d failures, want %v", interval, d, n, want)
			}
		}
	}
}

// W56, W61: every limiter counts each item by itself, answers to that count, and forgets.
func TestRateLimiters_R3_CountSinceForget(t *testing.T) {
	const base, top = 3, 100_000
	exponential := func() RateLimiter[string] { return NewItemExponentialFailureRateLimiter[string](base, top) }
	fastSlow := func() RateLimiter[string] { return NewItemFastSlowRateLimiter[string](7, 5000, 4) }
	bucket := func() RateLimiter[string] { return NewBucketRateLimiter[string](rate.NewLimiter(rate.Inf, 1)) }
	doubles := func(n int) time.Duration { return doubled(base, top, n) }
	fastThenSlow := func(n int) time.Duration {
		if n < 4 {
			return 7
		}
		return 5000
	}
	exactly := func(delay func(int) time.Duration) func(int) (low, high time.Duration) {
		return func(n int) (low, high time.Duration) { return delay(n), delay(n) }
	}
	for _, tt := range []struct {
		name   string
		make   func() RateLimiter[string]
		delay  func(n int) (low, high time.Duration)
		counts bool
	}{
		{"exponential", exponential, exactly(doubles), true},
		{"fast and slow", fastSlow, exactly(fastThenSlow), true},
		{"bucket", bucket, exactly(always(0)), false},
		{"max of one", func() RateLimiter[string] { return NewMaxOfRateLimiter(fastSlow()) }, exactly(fastThenSlow), true},
		{"max of three", func() RateLimiter[string] {
			return NewMaxOfRateLimiter(bucket(), exponential(), fastSlow())
		}, exactly(func(n int) time.Duration { return max(doubles(n), fastThenSlow(n)) }), true},
		{"max of, three deep", func() RateLimiter[string] {
			return NewMaxOfRateLimiter(fastSlow(), NewMaxOfRateLimiter(bucket(), NewMaxOfRateLimiter(exponential(), bucket())))
		}, exactly(func(n int) time.Duration { return max(doubles(n), fastThenSlow(n)) }), true},
		{"max of buckets", func() RateLimiter[string] { return NewMaxOfRateLimiter(bucket(), bucket()) }, exactly(always(0)), false},
		{"max wait", func() RateLimiter[string] {
			return NewWithMaxWaitRateLimiter(exponential(), 50)
		}, exactly(func(n int) time.Duration { return min(50, doubles(n)) }), true},
		{"jitter", func() RateLimiter[string] { return NewWithJitterRateLimiter(exponential(), 0.5) },
			func(n int) (low, high time.Duration) { return doubles(n), doubles(n) + doubles(n)/2 }, true},
		{"max wait around jitter", func() RateLimiter[string] {
			return NewWithMaxWaitRateLimiter(NewWithJitterRateLimiter(fastSlow(), 1), 9)
		}, func(n int) (low, high time.Duration) { return min(9, fastThenSlow(n)), 9 }, true},
	} {
		t.Run(tt.name, rapid.MakeCheck(func(t *rapid.T) {
			l, failed := tt.make(), map[string]int{}
			items := []string{"a", "b", "c"}
			item := rapid.SampledFrom(items)
			t.Repeat(map[string]func(*rapid.T){
				"When": func(t *rapid.T) {
					x := item.Draw(t, "item")
					low, high := tt.delay(failed[x])
					if d := l.When(x); d < low || d > high {
						t.Fatalf("delay %v after %d failures, want it in [%v, %v]", d, failed[x], low, high)
					}
					failed[x]++
				},
				"Forget": func(t *rapid.T) {
					x := item.Draw(t, "item")
					l.Forget(x)
					failed[x] = 0
				},
				"": func(t *rapid.T) {
					for _, x := range items {
						want := 0
						if tt.counts {
							want = failed[x]
						}
						if n := l.NumRequeues(x); n != want {
							t.Fatalf("NumRequeues(%s) = %d, want %d", x, n, want)
						}
					}
				},
			})
		}))
	}
}

// W61: the largest of what the limiters report, though they disagree.
func TestMaxOfRateLimiter_R3_LargestDelayAndCount(t *testing.T) {
	a := NewItemExponentialFailureRateLimiter[string](1, 1000)
	b := NewItemExponentialFailureRateLimiter[string](100, 100)
	limiters := []RateLimiter[string]{a, b}
	l := NewMaxOfRateLimiter(limiters...)
	limiters[0], limiters[1] = nil, nil // the slice is the caller's
	a.When("x")
	a.When("x")
	if d := l.When("x"); d != 100 {
		t.Errorf("When = %d, want 100", d)
	}
	if n := l.NumRequeues("x"); n != 3 {
		t.Errorf("NumRequeues = %d, want 3", n)
	}
	b.Forget("x")
	if n := l.NumRequeues("x"); n != 3 {
		t.Errorf("NumRequeues = %d once one limiter has forgotten, want 3", n)
	}
	l.Forget("x")
	if n := a.NumRequeues("x") + b.NumRequeues("x") + l.NumRequeues("x"); n != 0 {
		t.Errorf("the limiters still count %d after Forget", n)
	}
}

// W59: the tokens come with the clock of the bubble.
func TestBucketRateLimiter_FollowsVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewBucketRateLimiter[string](rate.NewLimiter(1, 2))
		expect := func(want ...time.Duration) {
			t.Helper()
			for i, want := range want {
				if d := l.When(fmt.Sprint(i)); d != want {
					t.Errorf("call %d: delay %v, want %v", i, d, want)
				}
			}
		}
		expect(0, 0, time.Second, 2*time.Second)
		l.Forget("0") // gives no token back
		expect(3 * time.Second)
		time.Sleep(3500 * time.Millisecond)
		expect(500*time.Millisecond, 1500*time.Millisecond)
		time.Sleep(time.Hour)
		expect(0, 0, time.Second)
		if n := l.NumRequeues("0"); n != 0 {
			t.Errorf("NumRequeues = %d, want 0", n)
		}
	})
}

// W47
func TestDefaultControllerRateLimiter_R2_NeverBeyondItsMaximum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const longest = 1000 * time.Second
		l := NewDefaultControllerRateLimiter[int]()
		for i := range 100 { // the burst: the back-off of a new item alone
			if d := l.When(i); d != 5*time.Millisecond {
				t.Fatalf("item %d: delay %v, want 5ms", i, d)
			}
		}
		if d := l.When(100); d != 100*time.Millisecond { // 10 a second from here on
			t.Fatalf("after the burst: delay %v, want 100ms", d)
		}
		calls := 100_000
		if testing.Short() {
			calls = 20_000
		}
		var last time.Duration
		for i := range calls {
			d := l.When(i % 5000)
			if d < 0 || d > longest {
				t.Fatalf("call %d: delay %v, want it in [0, %v]", i, d, longest)
			}
			last = d
		}
		if last != longest {
			t.Errorf("last delay %v, want %v", last, longest)
		}
		time.Sleep(24 * time.Hour) // the bucket is full again; item 1 has failed often
		l.Forget(1)
		if d := l.When(1); d != 5*time.Millisecond {
			t.Errorf("delay %v once forgotten, want 5ms", d)
		}
		if d := l.When(2); calls == 100_000 && d != doubled(5*time.Millisecond, longest, 21) {
			t.Errorf("delay %v after 21 failures, want %v", d, doubled(5*time.Millisecond, longest, 21))
		}
	})
}

// W55
func TestWithJitterRateLimiter_Range(t *testing.T) {
	t.Run("property", rapid.MakeCheck(func(t *rapid.T) {
		d := anyDelay().Draw(t, "delay")
		factor := rapid.OneOf(
			rapid.SampledFrom([]float64{0, 1e-300, 1e-9, 0.5, 1, 2, 1e9, 1e300, math.MaxFloat64, math.SmallestNonzeroFloat64}),
			rapid.Float64Range(0, 3),
		).Draw(t, "factor")
		l := NewWithJitterRateLimiter(&notingLimiter{delay: always(d)}, factor)
		extra := new(big.Float).SetInt64(int64(d))
		extra.Mul(extra, big.NewFloat(factor))
		extra.Mul(extra, big.NewFloat(1+1e-15)) // a product of floats may round up
		for range 20 {
			got := l.When("x")
			if got < d || new(big.Float).SetInt64(int64(got-d)).Cmp(extra) > 0 {
				t.Fatalf("delay %d, want %d and up to %.0f more", got, d, extra)
			}
		}
	}))
	t.Run("spread", func(t *testing.T) {
		const d = time.Second
		l := NewWithJitterRateLimiter(NewItemFastSlowRateLimiter[string](d, d, 0), 0.5)
		low, high := time.Duration(math.MaxInt64), time.Duration(0)
		for range 10_000 {
			got := l.When("x")
			low, high = min(low, got), max(high, got)
		}
		if low < d || low > d+d/100 || high > d+d/2 || high < d+d/2-d/100 {
			t.Errorf("10,000 delays lie in [%v, %v], want nearly [1s, 1.5s]", low, high)
		}
	})
}

func TestRateLimiters_R5_ConcurrentUse(t *testing.T) {
	const workers, each = 8, 500
	exponential := NewItemExponentialFailureRateLimiter[int](1, math.MaxInt64)
	fastSlow := NewItemFastSlowRateLimiter[int](1, 2, workers*each/2)
	bucket := NewBucketRateLimiter[int](rate.NewLimiter(rate.Inf, 1))
	all := NewWithMaxWaitRateLimiter(NewWithJitterRateLimiter(NewMaxOfRateLimiter(exponential, fastSlow, bucket), 0.5), math.MaxInt64)

	var mu sync.Mutex
	delays := make(map[time.Duration]int) // of exponential, for item -1
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				all.When(0)
				all.NumRequeues(0)
				all.When(1 + w)
				if i%2 == 1 {
					all.Forget(1 + w)
				}
				if i < 7 { // 56 calls in all: still without overflow
					d := exponential.When(-1)
					mu.Lock()
					delays[d]++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	if n := all.NumRequeues(0); n != workers*each {
		t.Errorf("NumRequeues = %d after %d failures", n, workers*each)
	}
	for w := range workers {
		if n := all.NumRequeues(1 + w); n != 0 {
			t.Errorf("NumRequeues(%d) = %d, want 0", 1+w, n)
		}
	}
	want := make(map[time.Duration]int)
	for _, d := range powersOfTwo(7 * workers) {
		want[d] = 1
	}
	if diff := cmp.Diff(want, delays); diff != "" {
		t.Errorf("delays of concurrent failures (-want +got):\n%s", diff)
	}
}

// W50: what is forgotten keeps no memory.
func TestRateLimiters_ForgottenItemsGiveMemoryBack(t *testing.T) {
	items := scaled(1_000_000)
	live := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	l := NewItemExponentialFailureRateLimiter[int](1, 1)
	before := live()
	for i := range items {
		l.When(i)
	}
	peak := live() - before
	for i := range items {
		if l.Forget(i); i%20 == 0 {
			l.When(-1) // others go on failing meanwhile
		}
	}
	if kept := live() - before; kept > 1<<20 || peak < 1<<20 {
		t.Errorf("%d bytes live once all is forgotten, %d before that; want less than 1 MiB, and much", kept, peak)
	}
	runtime.KeepAlive(l)
}

// R3: the zero queue, and one made without a limiter, have the default limiter, each its
// own (W54).
func TestRateLimitingQueue_DefaultLimiter(t *testing.T) {
	for name, make := range map[string]func() *RateLimitingQueue[string]{
		"zero": func() *RateLimitingQueue[string] { return new(RateLimitingQueue[string]) },
		"nil":  func() *RateLimitingQueue[string] { return NewRateLimitingQueue[string](nil, Options{}) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, other := make(), make()
				if n := q.NumRequeues("0"); n != 0 {
					t.Errorf("NumRequeues of a new item = %d", n)
				}
				var want []Waiting[string]
				for i := range 100 {
					item := fmt.Sprint(i)
					q.AddRateLimited(item)
					want = append(want, Waiting[string]{item, 5 * time.Millisecond})
				}
				q.AddRateLimited("late")
				want = append(want, Waiting[string]{"late", 100 * time.Millisecond}) // the bucket is empty
				if diff := cmp.Diff(want, q.Snapshot().Waiting); diff != "" {
					t.Errorf("waiting (-want +got):\n%s", diff)
				}
				if n := other.NumRequeues("0"); n != 0 {
					t.Errorf("another queue counts %d failures", n)
				}
				other.AddRateLimited("0")
				if in := other.Snapshot().Waiting[0].In; in != 5*time.Millisecond {
					t.Errorf("another queue's item waits %v: its bucket is shared", in)
				}
				time.Sleep(time.Second)
				synctest.Wait()
				if q.Len() != 101 || q.Waiting() != 0 {
					t.Errorf("a second later %d are ready and %d wait, want 101 and 0", q.Len(), q.Waiting())
				}
				if n := q.NumRequeues("0"); n != 1 {
					t.Errorf("NumRequeues = %d, want 1", n)
				}
				q.Forget("0")
				if n := q.NumRequeues("0"); n != 0 {
					t.Errorf("NumRequeues = %d after Forget, want 0", n)
				}
				q.ShutDown()
				if err := q.Run(t.Context(), RunOptions[string]{}, func(context.Context, string) error { return nil }); err != nil {
					t.Errorf("Run = %v", err)
				}
				if q.Len() != 0 {
					t.Errorf("Run has left %d items", q.Len())
				}
			})
		})
	}
}

func TestRateLimitingQueue_ZeroValueFirstUsedByMany(t *testing.T) {
	var q RateLimitingQueue[int]
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			q.NumRequeues(i)
			q.AddRateLimited(i)
			q.Forget(i)
			q.AddRateLimited(8 + i)
		})
	}
	wg.Wait()
	for i := range 8 {
		if a, b := q.NumRequeues(i), q.NumRequeues(8+i); a != 0 || b != 1 {
			t.Errorf("NumRequeues = %d and %d, want 0 and 1: more than one limiter was made", a, b)
		}
	}
	q.ShutDown()
}

// W54: a limiter that two queues share is shared in all it remembers.
func TestNewRateLimitingQueue_SharedLimiter(t *testing.T) {
	l := NewItemExponentialFailureRateLimiter[string](time.Hour, time.Hour)
	a, b := NewRateLimitingQueue(l, Options{}), NewRateLimitingQueue(l, Options{})
	a.AddRateLimited("x")
	b.AddRateLimited("x")
	if n := a.NumRequeues("x"); n != 2 {
		t.Errorf("NumRequeues = %d, want 2", n)
	}
	b.Forget("x")
	if n := a.NumRequeues("x"); n != 0 {
		t.Errorf("NumRequeues = %d after the other's Forget, want 0", n)
	}
	if a.Waiting() != 1 || b.Waiting() != 1 {
		t.Errorf("%d and %d wait, want 1 and 1", a.Waiting(), b.Waiting())
	}
	a.ShutDown()
	b.ShutDown()
}

func TestRateLimitingQueue_Q10_FaultyItemsPanic(t *testing.T) {
	asked := 0
	l := &askedLimiter{asked: &asked}
	q := NewRateLimitingQueue(l, Options{})
	q.Add("x")
	for _, item := range []any{math.NaN(), []int{1}} {
		for name, f := range map[string]func(){
			"AddRateLimited":             func() { q.AddRateLimited(item) },
			"AddRateLimitedWithPriority": func() { q.AddRateLimitedWithPriority(item, 1) },
			"Forget":                     func() { q.Forget(item) },
			"NumRequeues":                func() { q.NumRequeues(item) },
		} {
			before := q.Stats()
			if x := panicOf(f); !ours(x) {
				t.Errorf("%s(%T) panics with %v", name, item, x)
			}
			if diff := cmp.Diff(before, q.Stats()); diff != "" || asked != 0 {
				t.Errorf("%s(%T) asked the limiter %d times and changed (-before +after):\n%s", name, item, asked, diff)
			}
		}
	}
}

// askedLimiter takes any item and counts all calls.
type askedLimiter struct{ asked *int }

func (l *askedLimiter) When(any) time.Duration { *l.asked++; return 0 }
func (l *askedLimiter) Forget(any)             { *l.asked++ }
func (l *askedLimiter) NumRequeues(any) int    { *l.asked++; return 0 }

// An item that was retried at once, and then waits because of an AddAfter, does not wait because of
// the retry: the next one counts.
func TestRateLimitingQueue_R4_RetryAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := NewItemFastSlowRateLimiter[string](0, time.Second, 1)
		q := NewRateLimitingQueue[string](limiter, Options{})
		q.AddRateLimited("x")
		q.Get()
		q.AddAfter("x", time.Hour)
		q.Done("x")
		q.AddRateLimited("x")
		if n := q.NumRequeues("x"); n != 2 {
			t.Errorf("%d failures, want 2", n)
		}
		if w := q.Snapshot().Waiting; !slices.Equal(w, []Waiting[string]{{"x", time.Second}}) {
			t.Errorf("Waiting = %v, want x in a second", w)
		}
		if !q.retry("x", priority{}, 0) {
			t.Error("a retry that merges is refused")
		}
		q.ShutDown()
		if q.retry("x", priority{}, 0) {
			t.Error("a retry after ShutDown is accepted")
		}
	})
}

// The rows bring x into a state; then comes one AddRateLimited, to which the limiter says
// 10 s. W56, W78.
func TestRateLimitingQueue_R4_MergedCallIsNoFailure(t *testing.T) {
	const answer = 10 * time.Second
	type Q = *RateLimitingQueue[string]
	take := func(q Q) {
		if item, ok := q.TryGet(); !ok || item != "x" {
			panic(fmt.Sprintf("TryGet = %q, %v", item, ok))
		}
	}
	hold := func(q Q) { q.Add("x"); take(q) }
	for _, tt := range []struct {
		name    string
		prepare func(q Q)
		asks    bool
		ready   bool          // afterwards
		in      time.Duration // how long it waits afterwards; 0: it does not
	}{
		{"absent", func(Q) {}, true, false, answer},
		{"ready", func(q Q) { q.Add("x") }, false, true, 0},
		{"ready after AddAll", func(q Q) { q.AddAll("x") }, false, true, 0},
		{"ready, waiting by AddAfter", func(q Q) { q.Add("x"); q.AddAfter("x", time.Second) }, false, true, time.Second},
		{"ready, waiting by AddRateLimited", func(q Q) { hold(q); q.Add("x"); q.AddRateLimited("x"); q.Done("x") }, false, true, answer},
		{"ready, waiting by both", func(q Q) {
			hold(q)
			q.Add("x")
			q.AddRateLimited("x")
			q.AddAfter("x", time.Second)
			q.Done("x")
		}, false, true, time.Second},
		{"processing", hold, true, false, answer},
		{"processing, dirty", func(q Q) { hold(q); q.Add("x") }, true, false, answer},
		{"processing, waiting by AddAfter", func(q Q) { hold(q); q.AddAfter("x", time.Minute) }, true, false, answer},
		{"processing, waiting by sooner AddAfter", func(q Q) { hold(q); q.AddAfter("x", time.Second) }, true, false, time.Second},
		{"processing, waiting by AddRateLimited", func(q Q) { hold(q); q.AddRateLimited("x") }, true, false, answer},
		{"processing, dirty, waiting by AddRateLimited", func(q Q) { hold(q); q.Add("x"); q.AddRateLimited("x") }, true, false, answer},
		{"waiting by AddAfter", func(q Q) { q.AddAfter("x", time.Minute) }, true, false, answer},
		{"waiting by sooner AddAfter", func(q Q) { q.AddAfter("x", time.Second) }, true, false, time.Second},
		{"waiting by AddAfter since it was processing", func(q Q) { hold(q); q.AddAfter("x", time.Minute); q.Done("x") }, true, false, answer},
		{"waiting by AddRateLimited", func(q Q) { q.AddRateLimited("x") }, false, false, answer},
		{"waiting by AddRateLimited since it was processing", func(q Q) { hold(q); q.AddRateLimited("x"); q.Done("x") }, false, false, answer},
		{"waiting by AddRateLimited for a while", func(q Q) { q.AddRateLimited("x"); time.Sleep(4 * time.Second) }, false, false, 6 * time.Second},
		{"waiting by AddRateLimited, then AddAfter", func(q Q) { q.AddRateLimited("x"); q.AddAfter("x", time.Minute) }, false, false, answer},
		{"waiting by AddRateLimited, then sooner AddAfter", func(q Q) { q.AddRateLimited("x"); q.AddAfter("x", time.Second) }, false, false, time.Second},
		{"waiting by AddAfter, then AddRateLimited", func(q Q) { q.AddAfter("x", time.Minute); q.AddRateLimited("x") }, false, false, answer},
		{"waiting by sooner AddAfter, then AddRateLimited", func(q Q) { q.AddAfter("x", time.Second); q.AddRateLimited("x") }, false, false, time.Second},
		{"waiting by AddRateLimitedWithPriority", func(q Q) { q.AddRateLimitedWithPriority("x", 3) }, false, false, answer},
		{"waiting by AddRateLimited, forgotten", func(q Q) { q.AddRateLimited("x"); q.Forget("x") }, false, false, answer}, // R5
		// The wait has ended: the next one is anew.
		{"wait ended by coming due", func(q Q) { q.AddRateLimited("x"); time.Sleep(answer); synctest.Wait() }, false, true, 0},
		{"wait ended by coming due, then done", func(q Q) {
			q.AddRateLimited("x")
			time.Sleep(answer)
			synctest.Wait()
			take(q)
			q.Done("x")
		}, true, false, answer},
		{"wait ended by Add", func(q Q) { q.AddRateLimited("x"); q.Add("x") }, false, true, 0},
		{"wait ended by Add, then done, then AddAfter", func(q Q) {
			q.AddRateLimited("x")
			hold(q)
			q.Done("x")
			q.AddAfter("x", time.Minute)
		}, true, false, answer},
		{"wait ended by Cancel", func(q Q) { q.AddRateLimited("x"); q.Cancel("x") }, true, false, answer},
		{"wait ended by Cancel, then AddAfter", func(q Q) { q.AddRateLimited("x"); q.Cancel("x"); q.AddAfter("x", time.Second) }, true, false, time.Second},
		{"wait ended by Reschedule", func(q Q) { q.AddRateLimited("x"); q.Reschedule("x", time.Minute) }, true, false, answer},
		{"wait ended while processing, then AddAfter", func(q Q) {
			hold(q)
			q.AddRateLimited("x")
			time.Sleep(answer)
			synctest.Wait() // dirty now
			q.AddAfter("x", time.Second)
			q.Done("x")
			take(q)
			q.Done("x")
		}, true, false, time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var calls []string
				l := &notingLimiter{note: func(call string) { calls = append(calls, call) }, delay: always(answer)}
				q := NewRateLimitingQueue(l, Options{})
				tt.prepare(q)

				calls = nil
				stats, snap, failures := q.Stats(), q.Snapshot(), l.counts["x"]
				q.AddRateLimited("x")

				if tt.asks {
					stats.Retries++
					failures++
				} else {
					stats.Merged++
				}
				if got := slices.Equal(calls, []string{"When"}); got != tt.asks || !tt.asks && len(calls) > 0 {
					t.Errorf("the limiter's calls are %q, want it to be asked: %v", calls, tt.asks)
				}
				if n := q.NumRequeues("x"); n != failures {
					t.Errorf("NumRequeues = %d, want %d", n, failures)
				}
				got := q.Stats()
				got.Waiting = stats.Waiting // follows
				if diff := cmp.Diff(stats, got); diff != "" {
					t.Errorf("stats (-want +got):\n%s", diff)
				}
				after := q.Snapshot()
				if !tt.asks {
					if diff := cmp.Diff(snap, after); diff != "" {
						t.Errorf("a merged call has changed the queue (-before +after):\n%s", diff)
					}
				}
				if ready := slices.Equal(after.Ready, []string{"x"}); ready != tt.ready {
					t.Errorf("ready: %q, want x there: %v", after.Ready, tt.ready)
				}
				want := []Waiting[string]{}
				if tt.in > 0 {
					want = append(want, Waiting[string]{"x", tt.in})
				}
				if diff := cmp.Diff(want, after.Waiting); diff != "" {
					t.Errorf("waiting (-want +got):\n%s", diff)
				}
				q.ShutDown()
			})
		})
	}
}

// T1 applies to what the limiter answers, whatever that is.
func TestRateLimitingQueue_R4_OddAnswers(t *testing.T) {
	for _, tt := range []struct {
		answer  time.Duration
		ready   int
		waiting int
	}{
		{0, 1, 0}, {-1, 1, 0}, {math.MinInt64, 1, 0}, {1, 0, 1}, {math.MaxInt64, 0, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			q := NewRateLimitingQueue(&notingLimiter{delay: always(tt.answer)}, Options{})
			q.AddRateLimited("x")
			if q.Len() != tt.ready || q.Waiting() != tt.waiting {
				t.Errorf("answer %d: %d ready and %d waiting, want %d and %d", tt.answer, q.Len(), q.Waiting(), tt.ready, tt.waiting)
			}
			q.AddRateLimited("x") // merges in each case
			want := Stats{Ready: tt.ready, Waiting: tt.waiting, Adds: uint64(tt.ready), Merged: 1, Retries: 1}
			if diff := cmp.Diff(want, q.Stats()); diff != "" {
				t.Errorf("answer %d: stats (-want +got):\n%s", tt.answer, diff)
			}
			if tt.ready > 0 { // there was no wait that another one could be taken for
				q.TryGet()
				q.Done("x")
				q.AddAfter("x", time.Hour)
				if q.AddRateLimited("x"); q.Stats().Retries != 2 {
					t.Errorf("answer %d: merged with the wait of an AddAfter", tt.answer)
				}
			}
			q.ShutDown()
		})
	}
}

// W21
func TestRateLimitingQueue_R4_NotAskedAfterShutDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls []string
		l := &notingLimiter{note: func(call string) { calls = append(calls, call) }, delay: always(time.Second)}
		q := NewRateLimitingQueue(l, Options{})
		q.AddAll("held", "ready")
		q.TryGet()
		q.AddAfter("waiting", time.Hour)
		q.ShutDown()
		before := q.Stats()
		for _, item := range []string{"absent", "held", "ready", "waiting"} {
			q.AddRateLimited(item)
			q.AddRateLimitedWithPriority(item, 5)
		}
		q.Add("absent")
		q.AddAfter("absent", time.Second)
		if len(calls) > 0 {
			t.Errorf("the limiter's calls are %q, want none", calls)
		}
		if diff := cmp.Diff(before, q.Stats()); diff != "" {
			t.Errorf("calls after ShutDown have changed (-before +after):\n%s", diff)
		}
		if n := q.NumRequeues("absent"); n != 0 {
			t.Errorf("NumRequeues = %d, want 0", n)
		}
	})
}

// A queue that is shut down while the limiter thinks accepts nothing.
func TestRateLimitingQueue_R4_ShutDownByLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &notingLimiter{delay: always(time.Second)}
		q := NewRateLimitingQueue(l, Options{})
		l.note = func(call string) { q.ShutDown() }
		q.AddRateLimited("x")
		if diff := cmp.Diff(Snapshot[string]{Ready: []string{}, Processing: []Processing[string]{}, Waiting: []Waiting[string]{}}, q.Snapshot()); diff != "" {
			t.Errorf("snapshot (-want +got):\n%s", diff)
		}
	})
}

func TestRateLimitingQueue_R4_RacingCalls(t *testing.T) {
	const workers = 8
	rounds := 200
	if testing.Short() {
		rounds = 40
	}
	for range rounds {
		l := NewItemExponentialFailureRateLimiter[string](time.Hour, time.Hour)
		q := NewRateLimitingQueue(l, Options{})
		var wg sync.WaitGroup
		for range workers {
			wg.Go(func() { q.AddRateLimited("x") })
		}
		wg.Wait()
		s := q.Stats()
		if s.Retries < 1 || s.Retries+s.Merged != workers || s.Waiting != 1 || s.Ready != 0 {
			t.Fatalf("stats are %+v, want one waiting, and %d calls each a retry or merged", s, workers)
		}
		if n := q.NumRequeues("x"); n != int(s.Retries) {
			t.Fatalf("NumRequeues = %d, and %d retries", n, s.Retries)
		}
		q.ShutDown()
	}
}

// No method of the limiter runs under the lock: it may call the queue.
func TestRateLimitingQueue_LimiterMayCallTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &notingLimiter{delay: always(time.Second)}
		q := NewRateLimitingQueue(l, Options{})
		seen := make(map[string]int)
		l.note = func(call string) {
			if !q.mu.TryLock() { // nobody else uses the queue just now
				t.Errorf("%s is called under the lock", call)
				return
			}
			q.mu.Unlock()
			if seen[call]++; seen[call] == 1 {
				q.Add("other of " + call)
			}
			q.Len()
		}
		q.AddRateLimited("x")
		q.AddRateLimitedWithPriority("y", 1)
		q.NumRequeues("x")
		q.Forget("x")
		results := map[string]error{"fails": errors.New("no"), "later": RequeueAfter(time.Second), "never": Terminal(errors.New("no"))}
		q.AddAll(slices.Sorted(maps.Keys(results))...)
		done := make(chan error)
		go func() {
			done <- q.Run(t.Context(), RunOptions[string]{}, func(_ context.Context, item string) error {
				err := results[item]
				delete(results, item)
				return err
			})
		}()
		time.Sleep(time.Minute)
		l.mu.Lock() // the worker sleeps, and the timer does not call the limiter
		l.note = nil
		l.mu.Unlock()
		q.ShutDown()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
		for _, call := range []string{"When", "Forget", "NumRequeues"} {
			if seen[call] == 0 {
				t.Errorf("%s was not called", call)
			}
		}
	})
}

// A limiter that panics does so in its caller, and leaves the queue as it was.
func TestRateLimitingQueue_LimiterPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &notingLimiter{delay: always(time.Second)}
		q := NewRateLimitingQueue(l, Options{})
		q.AddAll("held", "ready")
		q.TryGet()
		q.AddAfter("waiting", time.Hour)
		before, stats := q.Snapshot(), q.Stats()
		l.note = func(string) { panic("limiter") }
		for _, item := range []string{"absent", "held", "waiting"} {
			for name, f := range map[string]func(){
				"AddRateLimited":             func() { q.AddRateLimited(item) },
				"AddRateLimitedWithPriority": func() { q.AddRateLimitedWithPriority(item, 1) },
				"Forget":                     func() { q.Forget(item) },
				"NumRequeues":                func() { q.NumRequeues(item) },
			} {
				if x := panicOf(f); x != "limiter" {
					t.Errorf("%s(%s) panics with %v, want the limiter's own", name, item, x)
				}
				if !q.mu.TryLock() {
					t.Fatalf("%s(%s) has left the lock held", name, item)
				}
				q.mu.Unlock()
			}
		}
		if diff := cmp.Diff(before, q.Snapshot()); diff != "" {
			t.Errorf("the queue has changed (-before +after):\n%s", diff)
		}
		if diff := cmp.Diff(stats, q.Stats()); diff != "" {
			t.Errorf("the stats have changed (-before +after):\n%s", diff)
		}
		l.note = nil
		q.AddRateLimited("absent")
		if q.Waiting() != 2 {
			t.Errorf("%d items wait after the limiter has recovered, want 2", q.Waiting())
		}
		q.ShutDown()
	})
}

func TestRateLimitingQueue_R5_ForgetLeavesTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewRateLimitingQueue(NewItemExponentialFailureRateLimiter[string](time.Hour, time.Hour), Options{})
		q.AddAll("held", "ready")
		q.TryGet()
		for _, item := range []string{"held", "waiting"} {
			q.AddRateLimited(item)
		}
		before, stats := q.Snapshot(), q.Stats()
		for _, item := range []string{"absent", "held", "ready", "waiting"} {
			q.Forget(item)
			if n := q.NumRequeues(item); n != 0 {
				t.Errorf("NumRequeues(%s) = %d after Forget", item, n)
			}
		}
		if diff := cmp.Diff(before, q.Snapshot()); diff != "" {
			t.Errorf("Forget has changed the queue (-before +after):\n%s", diff)
		}
		if diff := cmp.Diff(stats, q.Stats()); diff != "" {
			t.Errorf("Forget has changed the stats (-before +after):\n%s", diff)
		}
		q.ShutDown()
	})
}

// W49, W56, W78: only AddRateLimited is a failure and a retry.
func TestRateLimitingQueue_OnlyAddRateLimitedAsksTheLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls []string
		l := &notingLimiter{note: func(call string) { calls = append(calls, call) }, delay: always(time.Second)}
		q := NewRateLimitingQueue(l, Options{})
		for i := range 5000 {
			q.Add(fmt.Sprint(i))
		}
		if q.Len() != 5000 {
			t.Errorf("%d of 5000 items are ready at once", q.Len())
		}
		q.AddAfter("a", 0)
		q.AddAfter("b", time.Hour)
		q.AddAfter("b", time.Hour)
		q.AddAfterWithPriority("c", time.Hour, 1)
		q.Reschedule("c", time.Hour)
		q.AddWithPriority("d", 1)
		for range 10 {
			item, _ := q.Get()
			q.Add(item)
			q.Done(item)
		}
		q.Cancel("b")
		if s := q.Stats(); len(calls) > 0 || s.Retries != 0 {
			t.Errorf("the limiter's calls are %q, and %d retries; want none", calls, s.Retries)
		}
		q.AddRateLimited("b")
		if s := q.Stats(); s.Retries != 1 || !slices.Equal(calls, []string{"When"}) {
			t.Errorf("the limiter's calls are %q, and %d retries; want one", calls, s.Retries)
		}
		q.ShutDown()
	})
}

// W65
func TestRateLimitingQueue_T7_RetryKeepsPriority(t *testing.T) {
	type Q = *RateLimitingQueue[string]
	for _, answer := range []time.Duration{0, -1, time.Second} {
		for _, tt := range []struct {
			name  string
			start int
			retry func(q Q)
			want  int
		}{
			{"low", -100, func(q Q) { q.AddRateLimited("x") }, -100},
			{"high", 7, func(q Q) { q.AddRateLimited("x") }, 7},
			{"0 stated", -100, func(q Q) { q.AddRateLimitedWithPriority("x", 0) }, 0},
			{"lower stated", 7, func(q Q) { q.AddRateLimitedWithPriority("x", -3) }, -3},
			{"higher stated", 7, func(q Q) { q.AddRateLimitedWithPriority("x", 9) }, 9},
			{"highest of two", -100, func(q Q) { q.AddRateLimited("x"); q.AddRateLimitedWithPriority("x", -3) }, -3},
			{"highest of two, reverse", 4, func(q Q) { q.AddRateLimitedWithPriority("x", -3); q.AddRateLimited("x") }, 4},
			{"higher than AddAfter's", -100, func(q Q) { q.AddAfterWithPriority("x", time.Second, -5); q.AddRateLimitedWithPriority("x", -3) }, -3},
			{"lower than AddAfter's", -100, func(q Q) { q.AddAfterWithPriority("x", time.Second, 5); q.AddRateLimited("x") }, 5},
			{"raised while processing", -100, func(q Q) { q.AddWithPriority("x", 2); q.AddRateLimited("x") }, 2},
		} {
			synctest.Test(t, func(t *testing.T) {
				q := NewRateLimitingQueue(&notingLimiter{delay: always(answer)}, Options{})
				q.AddWithPriority("x", tt.start)
				if _, p, _ := q.GetWithPriority(); p != tt.start {
					t.Fatalf("%s: handed out with priority %d, want %d", tt.name, p, tt.start)
				}
				tt.retry(q)
				q.Done("x")
				_, p, _ := q.GetWithPriority()
				if p != tt.want {
					t.Errorf("%s, answer %v: retried with priority %d, want %d", tt.name, answer, p, tt.want)
				}
				q.ShutDown()
			})
		}
	}
	// An item that is not processing has no priority to keep, but a wait has.
	synctest.Test(t, func(t *testing.T) {
		q := NewRateLimitingQueue(&notingLimiter{delay: always(time.Second)}, Options{})
		q.AddRateLimited("plain")
		q.AddRateLimitedWithPriority("stated", -1)
		q.AddAfterWithPriority("raised", time.Hour, 5)
		q.AddRateLimited("raised")
		for _, want := range []struct {
			item     string
			priority int
		}{{"raised", 5}, {"plain", 0}, {"stated", -1}} {
			time.Sleep(time.Second)
			synctest.Wait()
			if item, p, _ := q.GetWithPriority(); item != want.item || p != want.priority {
				t.Errorf("got %s with priority %d, want %s with %d", item, p, want.item, want.priority)
			}
		}
		q.ShutDown()
	})
}

func TestRequeueAfterAndTerminal(t *testing.T) {
	for _, d := range []time.Duration{time.Second, 0, -1} {
		var after *RequeueAfterError
		if err := fmt.Errorf("wrapped: %w", RequeueAfter(d)); !errors.As(err, &after) || after.Delay != d {
			t.Errorf("RequeueAfter(%v) is %#v", d, after)
		}
	}
	cause := errors.New("cause")
	var terminal *TerminalError
	if err := fmt.Errorf("wrapped: %w", Terminal(cause)); !errors.As(err, &terminal) || terminal.Err != cause || !errors.Is(err, cause) {
		t.Errorf("Terminal(cause) is %#v", terminal)
	}
	if !strings.Contains(Terminal(cause).Error(), "cause") || !strings.Contains(RequeueAfter(time.Minute).Error(), "1m0s") {
		t.Errorf("messages are %q and %q", Terminal(cause), RequeueAfter(time.Minute))
	}
	if err := Terminal(nil); err != nil {
		t.Errorf("Terminal(nil) = %v", err)
	}
}

// trial is a queue and all that a Run of it does, in order. All is in one bubble.
type trial struct {
	*RateLimitingQueue[string]
	cancel context.CancelCauseFunc
	ended  chan error // gets what Run returns

	mu     sync.Mutex
	events []string
}

// newTrial returns a queue that holds x, with priority 3, and has a limiter that always
// answers 10 s.
func newTrial() *trial {
	tr := &trial{ended: make(chan error, 1)}
	limiter := &notingLimiter{note: func(call string) { tr.note("%s", call) }, delay: always(10 * time.Second)}
	tr.RateLimitingQueue = NewRateLimitingQueue(limiter, Options{Metrics: Metrics{Worked: func(time.Duration) { tr.note("Done") }}})
	tr.AddWithPriority("x", 3)
	return tr
}

// start starts Run.
func (tr *trial) start(t *testing.T, opts RunOptions[string], reconcile func(item string) error) {
	ctx, cancel := context.WithCancelCause(t.Context())
	tr.cancel = cancel
	if opts.GiveUp == nil {
		opts.GiveUp = func(_ string, err error) { tr.note("GiveUp: %v", err) }
	}
	began := time.Now()
	go func() {
		tr.ended <- tr.Run(ctx, opts, func(_ context.Context, item string) error {
			tr.note("%s at %v", item, time.Since(began))
			return reconcile(item)
		})
	}()
}

// start starts a new trial.
func start(t *testing.T, opts RunOptions[string], reconcile func(tr *trial, item string) error) *trial {
	tr := newTrial()
	tr.start(t, opts, func(item string) error { return reconcile(tr, item) })
	return tr
}

func (tr *trial) note(format string, args ...any) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.events = append(tr.events, fmt.Sprintf(format, args...))
}

// expect compares what has happened.
func (tr *trial) expect(t *testing.T, want ...string) {
	t.Helper()
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if diff := cmp.Diff(want, tr.events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// replies is a reconcile that returns errs one after the other, and nil after that.
func replies(errs ...error) func(*trial, string) error {
	return func(*trial, string) (err error) {
		if len(errs) > 0 {
			err, errs = errs[0], errs[1:]
		}
		return err
	}
}

// unwrapsTo is an error that wraps errors in a way that the standard library does not.
type unwrapsTo []error

func (e unwrapsTo) Error() string   { return fmt.Sprint("wraps ", []error(e)) }
func (e unwrapsTo) Unwrap() []error { return e }

// wrapsOne is an error that can wrap one, or nothing.
type wrapsOne struct{ err error }

func (e wrapsOne) Error() string { return fmt.Sprint("wraps ", e.err) }
func (e wrapsOne) Unwrap() error { return e.err }

// What Run does for each result: with the item, and in which order. W57, W58.
func TestRateLimitingQueue_R6_Results(t *testing.T) {
	boom := errors.New("boom")
	var (
		succeeds = []string{"x at 0s", "Forget", "Done"}
		fails    = func(again string) []string {
			return []string{"x at 0s", "When", "Done", "x at " + again, "Forget", "Done"}
		}
		requeues = func(again string) []string {
			return []string{"x at 0s", "Forget", "Done", "x at " + again, "Forget", "Done"}
		}
		givesUp = func(err error) []string { return []string{"x at 0s", "Forget", "GiveUp: " + err.Error(), "Done"} }
	)
	type row struct {
		name string
		err  error
		want []string
	}
	rows := []row{
		{"nil", nil, succeeds},
		{"Terminal(nil)", Terminal(nil), succeeds},

		{"error", boom, fails("10s")},
		{"wrapped error", fmt.Errorf("wrapped: %w", boom), fails("10s")},
		{"joined errors are one failure", errors.Join(boom, errors.New("bang")), fails("10s")},
		{"wraps nil", wrapsOne{}, fails("10s")},
		{"wraps no errors", unwrapsTo(nil), fails("10s")},
		{"context.Canceled", context.Canceled, fails("10s")},
		{"ErrShutDown", ErrShutDown, fails("10s")},

		{"RequeueAfter", RequeueAfter(5 * time.Second), requeues("5s")},
		{"RequeueAfterError", &RequeueAfterError{Delay: 5 * time.Second}, requeues("5s")},
		{"wrapped RequeueAfter", fmt.Errorf("twice: %w", fmt.Errorf("once: %w", RequeueAfter(5*time.Second))), requeues("5s")},
		{"joined alone", errors.Join(nil, RequeueAfter(5*time.Second)), requeues("5s")},
		{"joined in another way", unwrapsTo{RequeueAfter(5 * time.Second)}, requeues("5s")},
		{"RequeueAfter longer than the limiter's answer", RequeueAfter(time.Minute), requeues("1m0s")},
		{"RequeueAfter joined with another", errors.Join(RequeueAfter(20*time.Second), RequeueAfter(5*time.Second)), requeues("5s")}, // T1
		{"RequeueAfter joined with a later", errors.Join(RequeueAfter(5*time.Second), RequeueAfter(20*time.Second)), requeues("5s")},
		{"RequeueAfter(0)", RequeueAfter(0), succeeds},
		{"RequeueAfter(-1)", RequeueAfter(-1), succeeds},
		{"RequeueAfter(MinInt64)", RequeueAfter(math.MinInt64), succeeds},
		{"wrapped RequeueAfter(0)", fmt.Errorf("wrapped: %w", RequeueAfter(0)), succeeds},
		{"two RequeueAfter(0)", errors.Join(RequeueAfter(0), RequeueAfter(-1)), succeeds},

		{"RequeueAfter, shorter, and a failure", errors.Join(RequeueAfter(5*time.Second), boom), fails("10s")},
		{"RequeueAfter, longer, and a failure", errors.Join(RequeueAfter(20*time.Second), boom), fails("20s")},
		{"failure and RequeueAfter", errors.Join(boom, RequeueAfter(20*time.Second)), fails("20s")},
		{"failure and RequeueAfter(0)", errors.Join(boom, RequeueAfter(0)), fails("10s")},
		{"failure and two RequeueAfters", errors.Join(RequeueAfter(20*time.Second), boom, RequeueAfter(30*time.Second)), fails("30s")},
		{"both in one text", fmt.Errorf("%w, %w", RequeueAfter(20*time.Second), boom), fails("20s")},
		{"failure beside a deep RequeueAfter", fmt.Errorf("a: %w", errors.Join(boom, fmt.Errorf("b: %w", RequeueAfter(20*time.Second)))), fails("20s")},
		{"RequeueAfter beside a deep failure", errors.Join(RequeueAfter(20*time.Second), fmt.Errorf("a: %w", errors.Join(fmt.Errorf("b: %w", boom)))), fails("20s")},
	}
	for name, err := range map[string]error{
		"Terminal":                   Terminal(boom),
		"TerminalError":              &TerminalError{Err: boom},
		"wrapped Terminal":           fmt.Errorf("wrapped: %w", Terminal(boom)),
		"Terminal joined":            errors.Join(errors.New("other"), Terminal(boom)),
		"Terminal with RequeueAfter": errors.Join(RequeueAfter(time.Second), Terminal(boom)),
		"Terminal of RequeueAfter":   Terminal(RequeueAfter(time.Second)),
		"Terminal of Terminal":       Terminal(Terminal(boom)),
	} {
		rows = append(rows, row{name, err, givesUp(err)})
	}
	for _, tt := range rows {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := start(t, RunOptions[string]{}, replies(tt.err))
				time.Sleep(time.Hour)
				tr.ShutDown()
				if err := <-tr.ended; err != nil {
					t.Errorf("Run = %v", err)
				}
				tr.expect(t, tt.want...)
				retries := uint64(0)
				if slices.Contains(tt.want, "When") {
					retries = 1
				}
				if s := tr.Stats(); s.Retries != retries || s.Dropped != 0 || s.StrayDones != 0 {
					t.Errorf("stats are %+v, want %d retries", s, retries)
				}
			})
		})
	}
}

// The item is in the queue's hands again before Done: it waits already, with the priority
// that it had (T7).
func TestRateLimitingQueue_R6_WaitsBeforeDone(t *testing.T) {
	for name, err := range map[string]error{"error": errors.New("boom"), "RequeueAfter": RequeueAfter(10 * time.Second)} {
		synctest.Test(t, func(t *testing.T) {
			var q *RateLimitingQueue[string]
			atDone := -1
			q = NewRateLimitingQueue(&notingLimiter{delay: always(10 * time.Second)}, Options{
				Metrics: Metrics{Worked: func(time.Duration) { atDone = q.Waiting() }},
			})
			q.AddWithPriority("x", -7)
			ended := make(chan error)
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				ended <- q.Run(ctx, RunOptions[string]{}, func(context.Context, string) error { return err })
			}()
			synctest.Wait()
			cancel()
			<-ended
			if atDone != 1 {
				t.Errorf("%s: %d items wait at Done, want 1", name, atDone)
			}
			if item, p, _ := q.GetWithPriority(); item != "x" || p != -7 {
				t.Errorf("%s: got %s with priority %d, want x with -7", name, item, p)
			}
			q.ShutDown()
		})
	}
}

// An Add while the item is reconciled is not lost, whatever the result.
func TestRateLimitingQueue_R6_AddedWhileReconciled(t *testing.T) {
	boom := errors.New("boom")
	for _, tt := range []struct {
		name string
		err  error
		want []string
	}{
		{"nil", nil, []string{"x at 0s", "Forget", "Done", "x at 0s", "Forget", "Done"}},
		{"error", boom, []string{"x at 0s", "When", "Done", "x at 0s", "Forget", "Done", "x at 10s", "Forget", "Done"}},
		{"RequeueAfter", RequeueAfter(time.Second), []string{"x at 0s", "Forget", "Done", "x at 0s", "Forget", "Done", "x at 1s", "Forget", "Done"}},
		{"Terminal", Terminal(boom), []string{"x at 0s", "Forget", "GiveUp: " + Terminal(boom).Error(), "Done", "x at 0s", "Forget", "Done"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first := true
				tr := start(t, RunOptions[string]{}, func(tr *trial, item string) error {
					if !first {
						return nil
					}
					first = false
					tr.Add(item)
					return tt.err
				})
				time.Sleep(time.Hour)
				tr.ShutDown()
				<-tr.ended
				tr.expect(t, tt.want...)
			})
		})
	}
}

// W50: the back-off grows with failures in a row, and starts afresh after success.
func TestRateLimitingQueue_R6_BackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		boom := errors.New("boom")
		q := NewRateLimitingQueue(NewItemExponentialFailureRateLimiter[string](5*time.Millisecond, 20*time.Millisecond), Options{})
		q.Add("x")
		began, reply := time.Now(), replies(boom, boom, boom, boom, nil, boom, RequeueAfter(time.Second), boom)
		var at []time.Duration
		var counts []int
		ended := make(chan error)
		go func() {
			ended <- q.Run(t.Context(), RunOptions[string]{}, func(context.Context, string) error {
				at = append(at, time.Since(began)/time.Millisecond)
				counts = append(counts, q.NumRequeues("x"))
				return reply(nil, "")
			})
		}()
		time.Sleep(100 * time.Millisecond)
		q.Add("x")
		time.Sleep(time.Hour)
		q.ShutDown()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v", err)
		}
		if diff := cmp.Diff([]time.Duration{0, 5, 15, 35, 55, 100, 105, 1105, 1110}, at); diff != "" {
			t.Errorf("reconciled at, in ms (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]int{0, 1, 2, 3, 4, 0, 1, 0, 1}, counts); diff != "" {
			t.Errorf("NumRequeues (-want +got):\n%s", diff)
		}
		if n := q.NumRequeues("x"); n != 0 {
			t.Errorf("NumRequeues = %d after success", n)
		}
	})
}

// W57
func TestRateLimitingQueue_R6_MaxAttempts(t *testing.T) {
	boom := errors.New("boom")
	later, now, never := RequeueAfter(time.Hour), RequeueAfter(0), Terminal(boom)
	both := errors.Join(boom, RequeueAfter(time.Hour))
	for _, tt := range []struct {
		name    string
		max     int
		results []error
		givesUp []int // at which results
	}{
		{"third of three", 3, []error{boom, boom, boom}, []int{2}},
		{"starts afresh", 3, []error{boom, boom, boom, boom, boom, boom, boom}, []int{2, 5}},
		{"first of one", 1, []error{boom, boom}, []int{0, 1}},
		{"no limit", 0, slices.Repeat([]error{boom}, 200), nil},
		{"reset by success", 3, []error{boom, boom, nil, boom, boom, boom}, []int{5}},
		{"reset by RequeueAfter", 3, []error{boom, boom, later, boom, boom, boom}, []int{5}},
		{"reset by RequeueAfter(0)", 3, []error{boom, boom, now, boom, boom, boom}, []int{5}},
		{"reset by Terminal", 3, []error{boom, boom, never, boom, boom, boom}, []int{2, 5}},
		{"RequeueAfter with a failure counts", 3, []error{boom, both, boom}, []int{2}},
		{"RequeueAfter with the last failure", 3, []error{boom, boom, both, nil}, []int{2}},
		{"alternating", 2, []error{boom, nil, boom, nil, boom, nil}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := NewRateLimitingQueue(NewItemExponentialFailureRateLimiter[string](time.Second, time.Minute), Options{})
				i := 0
				var givesUp []int
				ended := make(chan error)
				go func() {
					ended <- q.Run(t.Context(), RunOptions[string]{
						MaxAttempts: tt.max,
						GiveUp: func(item string, err error) {
							if givesUp = append(givesUp, i); item != "x" || err != tt.results[i] {
								t.Errorf("GiveUp(%s, %v), want x and %v", item, err, tt.results[i])
							}
							if n := q.NumRequeues("x"); n != 0 {
								t.Errorf("%d failures not yet forgotten in GiveUp", n)
							}
						},
					}, func(context.Context, string) error {
						q.Forget("x") // R6: Run counts itself, whatever the limiter knows
						return tt.results[i]
					})
				}()
				for i = range tt.results {
					q.Add("x") // ends the wait
					synctest.Wait()
					if wait, given := q.Waiting() > 0, slices.Contains(tt.givesUp, i); wait && given {
						t.Errorf("result %d: given up, and waiting", i)
					}
				}
				q.ShutDown()
				if err := <-ended; err != nil {
					t.Errorf("Run = %v", err)
				}
				if diff := cmp.Diff(tt.givesUp, givesUp); diff != "" {
					t.Errorf("gives up at (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// The last failure does not ask the limiter, and Forget comes before GiveUp.
func TestRateLimitingQueue_R6_MaxAttemptsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		boom := errors.New("boom")
		tr := start(t, RunOptions[string]{MaxAttempts: 2}, replies(boom, boom))
		time.Sleep(time.Hour)
		tr.ShutDown()
		<-tr.ended
		tr.expect(t, "x at 0s", "When", "Done", "x at 10s", "Forget", "GiveUp: boom", "Done")
	})
}

// Each Run counts by itself, whatever the limiter has seen, or another Run.
func TestRateLimitingQueue_R6_EachRunCountsItsOwnFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewItemExponentialFailureRateLimiter[string](time.Second, time.Second)
		for range 10 {
			l.When("x")
		}
		q := NewRateLimitingQueue(l, Options{})
		calls, gaveUp := 0, 0
		run := func(ctx context.Context) error {
			return q.Run(ctx, RunOptions[string]{MaxAttempts: 3, GiveUp: func(string, error) { gaveUp++ }},
				func(context.Context, string) error { calls++; return errors.New("boom") })
		}
		q.Add("x")
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		if err := run(ctx); err != context.DeadlineExceeded {
			t.Errorf("first Run = %v", err)
		}
		if calls != 2 || gaveUp != 0 {
			t.Errorf("first Run: %d calls and given up %d times, want 2 and 0", calls, gaveUp)
		}
		ended := make(chan error)
		go func() { ended <- run(t.Context()) }()
		time.Sleep(time.Hour)
		q.ShutDown()
		if err := <-ended; err != nil {
			t.Errorf("second Run = %v", err)
		}
		if calls != 5 || gaveUp != 1 {
			t.Errorf("both Runs: %d calls and given up %d times, want 5 and 1", calls, gaveUp)
		}
	})
}

// Nobody gets the item while GiveUp runs, even if GiveUp adds it again.
func TestRateLimitingQueue_R6_GiveUpBeforeDone(t *testing.T) {
	for name, err := range map[string]error{"MaxAttempts": errors.New("boom"), "Terminal": Terminal(errors.New("boom"))} {
		synctest.Test(t, func(t *testing.T) {
			givesUp, first := false, true
			tr := newTrial()
			opts := RunOptions[string]{Workers: 3, MaxAttempts: 1, GiveUp: func(item string, _ error) {
				givesUp = true
				tr.Add(item)
				time.Sleep(time.Second)
				if _, ok := tr.TryGet(); ok {
					t.Errorf("%s: handed out before GiveUp has returned", name)
				}
				if p := tr.Snapshot().Processing; len(p) != 1 || p[0].Item != item {
					t.Errorf("%s: in processing is %v, want %s", name, p, item)
				}
				givesUp = false
			}}
			tr.start(t, opts, func(string) error {
				if givesUp {
					t.Errorf("%s: reconciled while GiveUp runs", name)
				}
				if !first {
					return nil
				}
				first = false
				return err
			})
			time.Sleep(time.Hour)
			tr.ShutDown()
			if err := <-tr.ended; err != nil {
				t.Errorf("%s: Run = %v", name, err)
			}
			// Metrics hear of a Done when the next worker may have the item already.
			tr.events = slices.DeleteFunc(tr.events, func(event string) bool { return event == "Done" })
			tr.expect(t, "x at 0s", "Forget", "x at 1s", "Forget")
		})
	}
}

// Without a GiveUp there is nobody to tell.
func TestRateLimitingQueue_R6_NoGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewRateLimitingQueue(&notingLimiter{delay: always(time.Second)}, Options{})
		q.AddAll("fails", "terminal")
		q.ShutDown()
		if err := q.Run(t.Context(), RunOptions[string]{MaxAttempts: 1}, func(_ context.Context, item string) error {
			if item == "terminal" {
				return Terminal(errors.New("boom"))
			}
			return errors.New("boom")
		}); err != nil {
			t.Errorf("Run = %v", err)
		}
		if s := q.Stats(); s.Ready+s.Processing+s.Waiting != 0 {
			t.Errorf("stats are %+v, want nothing left", s)
		}
	})
}

// Reconciles that are interrupted half-way by a done context, a shutdown or both.
func TestRateLimitingQueue_R7_Interrupted(t *testing.T) {
	boom, cause := errors.New("boom"), errors.New("stop")
	const never = 1000
	type outcome struct {
		Events  []string
		Run     error
		Ready   []string
		Waiting []Waiting[string]
		Dropped uint64
	}
	waits := []Waiting[string]{{"x", 5 * time.Second}}
	for _, tt := range []struct {
		name             string
		cancel, shutDown bool
		err              error
		want             outcome // Events between "x at 0s" and "Done"
		endsInShutDown   bool    // GiveUp gets an error that is both the cause and ErrShutDown
	}{
		{"ctx done, then success", true, false, nil, outcome{Events: []string{"Forget"}, Run: cause}, false},
		{"ctx done, then error", true, false, boom, outcome{Run: cause, Ready: []string{"x"}}, false},
		{"ctx done, then ctx's own error", true, false, context.Canceled, outcome{Run: cause, Ready: []string{"x"}}, false},
		{"ctx done, then RequeueAfter", true, false, RequeueAfter(5 * time.Second), outcome{Events: []string{"Forget"}, Run: cause, Waiting: waits}, false},
		{"ctx done, then RequeueAfter(0)", true, false, RequeueAfter(0), outcome{Events: []string{"Forget"}, Run: cause}, false},
		{"ctx done, then Terminal", true, false, Terminal(boom), outcome{Events: []string{"Forget", "GiveUp"}, Run: cause}, false},

		{"shutdown, then success", false, true, nil, outcome{Events: []string{"Forget"}}, false},
		{"shutdown, then error", false, true, boom, outcome{Events: []string{"Forget", "GiveUp"}}, true},
		{"shutdown, then wrapped error", false, true, fmt.Errorf("wrapped: %w", boom), outcome{Events: []string{"Forget", "GiveUp"}}, true},
		{"shutdown, then RequeueAfter", false, true, RequeueAfter(5 * time.Second), outcome{Events: []string{"Forget"}, Dropped: 1}, false},
		{"shutdown, then RequeueAfter(0)", false, true, RequeueAfter(0), outcome{Events: []string{"Forget"}}, false},
		{"shutdown, then Terminal", false, true, Terminal(boom), outcome{Events: []string{"Forget", "GiveUp"}}, false},
		{"shutdown, then RequeueAfter and failure", false, true, errors.Join(RequeueAfter(5*time.Second), boom), outcome{Events: []string{"Forget", "GiveUp"}}, true},

		{"both, then success", true, true, nil, outcome{Events: []string{"Forget"}, Run: cause}, false},
		{"both, then error", true, true, boom, outcome{Events: []string{"Forget", "GiveUp"}, Run: cause}, true},
		{"both, then RequeueAfter", true, true, RequeueAfter(5 * time.Second), outcome{Events: []string{"Forget"}, Run: cause, Dropped: 1}, false},
		{"both, then Terminal", true, true, Terminal(boom), outcome{Events: []string{"Forget", "GiveUp"}, Run: cause}, false},
	} {
		for _, maxAttempts := range []int{0, 1, never} {
			t.Run(fmt.Sprintf("%s, MaxAttempts %d", tt.name, maxAttempts), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					tr := newTrial()
					opts := RunOptions[string]{Workers: 2, MaxAttempts: maxAttempts, GiveUp: func(item string, err error) {
						tr.note("GiveUp")
						if item != "x" || !errors.Is(err, tt.err) {
							t.Errorf("GiveUp(%s, %v), want x and %v", item, err, tt.err)
						}
						if errors.Is(err, ErrShutDown) != tt.endsInShutDown {
							t.Errorf("GiveUp gets %v; want it to be ErrShutDown: %v", err, tt.endsInShutDown)
						}
					}}
					tr.start(t, opts, func(string) error { time.Sleep(time.Second); return tt.err })
					began := time.Now()
					time.Sleep(time.Second / 2)
					if tt.cancel {
						tr.cancel(cause)
					}
					if tt.shutDown {
						tr.ShutDown()
					}
					got := outcome{Run: <-tr.ended}
					if d := time.Since(began); d != time.Second {
						t.Errorf("Run has returned after %v, want it to wait for the running reconcile", d)
					}
					s := tr.Snapshot()
					got.Events, got.Ready, got.Waiting, got.Dropped = tr.events, s.Ready, s.Waiting, tr.Stats().Dropped
					want := tt.want
					want.Events = slices.Concat([]string{"x at 0s"}, want.Events, []string{"Done"})
					want.Ready, want.Waiting = append([]string{}, want.Ready...), append([]Waiting[string]{}, want.Waiting...)
					if got.Run != want.Run {
						t.Errorf("Run = %v, want %v", got.Run, want.Run)
					}
					got.Run, want.Run = nil, nil
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("outcome (-want +got):\n%s", diff)
					}
					if len(want.Ready)+len(want.Waiting) > 0 { // R7, T7
						if item, p, _ := tr.GetWithPriority(); item != "x" || p != 3 {
							t.Errorf("got %s with priority %d, want x with 3", item, p)
						}
					}
					tr.ShutDown()
				})
			})
		}
	}
}

// An item that already waits when its error comes after ctx is done runs once, now (T2).
func TestRateLimitingQueue_R7_ErrorAfterCtxDoneCountsAsNoAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		boom := errors.New("boom")
		tr := start(t, RunOptions[string]{MaxAttempts: 2}, func(tr *trial, item string) error {
			tr.AddAfter(item, time.Hour)
			tr.AddAll("y", "z")
			tr.cancel(nil)
			return boom
		})
		if err := <-tr.ended; err != context.Canceled {
			t.Errorf("Run = %v, want context.Canceled", err)
		}
		tr.expect(t, "x at 0s", "Done")
		s := tr.Snapshot()
		if diff := cmp.Diff([]string{"x", "y", "z"}, s.Ready); diff != "" || len(s.Waiting) > 0 { // x has priority 3
			t.Errorf("%d items wait; ready (-want +got):\n%s", len(s.Waiting), diff)
		}
		if n := tr.NumRequeues("x"); n != 0 || tr.Stats().Retries != 0 {
			t.Errorf("counted as %d failures and %d retries", n, tr.Stats().Retries)
		}
	})
}

// The limiter shuts the queue down, so the failure that it was asked about is not tried
// again.
func TestRateLimitingQueue_R7_ShutDownByLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		boom := errors.New("boom")
		l := &notingLimiter{delay: always(time.Second)}
		q := NewRateLimitingQueue(l, Options{})
		l.note = func(call string) {
			if call == "When" {
				q.ShutDown()
			}
		}
		q.Add("x")
		var gaveUp error
		if err := q.Run(t.Context(), RunOptions[string]{GiveUp: func(_ string, err error) { gaveUp = err }},
			func(context.Context, string) error { return boom }); err != nil {
			t.Errorf("Run = %v", err)
		}
		if !errors.Is(gaveUp, boom) || !errors.Is(gaveUp, ErrShutDown) {
			t.Errorf("GiveUp gets %v, want both the cause and ErrShutDown", gaveUp)
		}
	})
}

// A retry that waits when the queue is shut down is dropped, as everything that waits.
func TestRateLimitingQueue_R7_WaitingRetryIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := start(t, RunOptions[string]{}, replies(errors.New("boom")))
		time.Sleep(time.Second)
		tr.ShutDown()
		if err := <-tr.ended; err != nil {
			t.Errorf("Run = %v", err)
		}
		tr.expect(t, "x at 0s", "When", "Done")
		if s := tr.Stats(); s.Dropped != 1 {
			t.Errorf("stats are %+v, want one dropped", s)
		}
	})
}

func TestRateLimitingQueue_R6_CtxDoneBeforeTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewRateLimitingQueue[string](nil, Options{})
		q.AddAll("a", "b")
		cause := errors.New("stop")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		err := q.Run(ctx, RunOptions[string]{Workers: 4}, func(context.Context, string) error {
			t.Error("reconcile is called")
			return nil
		})
		if err != cause {
			t.Errorf("Run = %v, want the cause", err)
		}
		if q.Len() != 2 {
			t.Errorf("%d items are ready, want 2", q.Len())
		}
	})
}

// Run hands its context on, and returns the cause once the running calls have.
func TestRateLimitingQueue_R6_CtxDone(t *testing.T) {
	type key struct{}
	cause := errors.New("stop")
	for _, tt := range []struct {
		name string
		make func(context.Context) (context.Context, func())
		want error
	}{
		{"cancel", func(ctx context.Context) (context.Context, func()) {
			ctx, cancel := context.WithCancel(ctx)
			return ctx, cancel
		}, context.Canceled},
		{"cancel with cause", func(ctx context.Context) (context.Context, func()) {
			ctx, cancel := context.WithCancelCause(ctx)
			return ctx, func() { cancel(cause) }
		}, cause},
		{"deadline", func(ctx context.Context) (context.Context, func()) {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			return ctx, func() { time.AfterFunc(time.Hour, cancel) }
		}, context.DeadlineExceeded},
		{"deadline with cause", func(ctx context.Context) (context.Context, func()) {
			ctx, cancel := context.WithTimeoutCause(ctx, time.Second, cause)
			return ctx, func() { time.AfterFunc(time.Hour, cancel) }
		}, cause},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := tt.make(context.WithValue(t.Context(), key{}, "value"))
				time.AfterFunc(time.Second, cancel)
				q := NewRateLimitingQueue[string](nil, Options{})
				q.AddAll("a", "b", "c", "d")
				var running, ended atomic.Int32
				began := time.Now()
				err := q.Run(ctx, RunOptions[string]{Workers: 2}, func(ctx context.Context, item string) error {
					running.Add(1)
					if ctx.Value(key{}) != "value" {
						t.Error("reconcile does not get Run's context")
					}
					<-ctx.Done()
					if item == "b" {
						time.Sleep(time.Minute)
					}
					ended.Add(1)
					return nil
				})
				if err != tt.want {
					t.Errorf("Run = %v, want %v", err, tt.want)
				}
				if d := time.Since(began); d != time.Second+time.Minute || ended.Load() != 2 {
					t.Errorf("Run has returned after %v, with %d reconciles ended; want to wait for both", d, ended.Load())
				}
				if diff := cmp.Diff([]string{"c", "d"}, q.Snapshot().Ready); diff != "" || running.Load() != 2 {
					t.Errorf("%d reconciles, ready (-want +got):\n%s", running.Load(), diff)
				}
				if q.ShuttingDown() {
					t.Error("Run has shut the queue down")
				}
			})
		})
	}
	t.Run("while workers sleep", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			tr := start(t, RunOptions[string]{Workers: 3}, replies())
			synctest.Wait()
			tr.cancel(cause)
			if err := <-tr.ended; err != cause {
				t.Errorf("Run = %v, want the cause", err)
			}
			tr.Add("y")
			if tr.Len() != 1 {
				t.Errorf("%d items are ready, want 1", tr.Len())
			}
		})
	})
}

func TestRateLimitingQueue_R6_Workers(t *testing.T) {
	for _, tt := range []struct {
		workers, runs int
		atOnce        int
		takes         time.Duration // for 12 items of 1 s
	}{
		{0, 1, 1, 12 * time.Second},
		{1, 1, 1, 12 * time.Second},
		{3, 1, 3, 4 * time.Second},
		{12, 1, 12, time.Second},
		{20, 1, 12, time.Second},
		{1, 2, 2, 6 * time.Second}, // several Runs at once
		{2, 3, 6, 2 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			var q RateLimitingQueue[int]
			for i := range 12 {
				q.Add(i)
			}
			q.ShutDown() // the backlog is still handed out
			var mu sync.Mutex
			running, most, calls := 0, 0, make(map[int]int)
			began := time.Now()
			var runs sync.WaitGroup
			for range tt.runs {
				runs.Go(func() {
					err := q.Run(t.Context(), RunOptions[int]{Workers: tt.workers}, func(_ context.Context, item int) error {
						mu.Lock()
						running++
						most = max(most, running)
						calls[item]++
						mu.Unlock()
						time.Sleep(time.Second)
						mu.Lock()
						running--
						mu.Unlock()
						return nil
					})
					if err != nil {
						t.Errorf("Run = %v", err)
					}
					if q.Len() != 0 {
						t.Errorf("Run has returned nil with %d items ready", q.Len())
					}
				})
			}
			runs.Wait()
			if d := time.Since(began); most != tt.atOnce || d != tt.takes {
				t.Errorf("%d Runs of %d workers: %d at once, in %v; want %d, in %v", tt.runs, tt.workers, most, d, tt.atOnce, tt.takes)
			}
			for i := range 12 {
				if calls[i] != 1 {
					t.Errorf("item %d is reconciled %d times", i, calls[i])
				}
			}
		})
	}
}

// Run returns nil only at shutdown, at once if the queue is empty by then; later Runs too.
func TestRateLimitingQueue_R6_ShutDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := start(t, RunOptions[string]{Workers: 2}, replies())
		time.Sleep(time.Hour)
		select {
		case err := <-tr.ended:
			t.Fatalf("Run = %v before shutdown", err)
		default:
		}
		began := time.Now()
		tr.ShutDown()
		if err := <-tr.ended; err != nil || time.Since(began) > 0 {
			t.Errorf("Run = %v, %v after shutdown", err, time.Since(began))
		}
		if err := tr.Run(t.Context(), RunOptions[string]{}, func(context.Context, string) error { return nil }); err != nil {
			t.Errorf("Run after shutdown = %v", err)
		}
	})
}

// What Done makes ready again after shutdown is reconciled before Run returns.
func TestRateLimitingQueue_R6_DirtyAtShutDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := true
		tr := start(t, RunOptions[string]{Workers: 2}, func(tr *trial, item string) error {
			if first {
				first = false
				tr.Add(item)
				tr.ShutDown()
				time.Sleep(time.Second)
			}
			return nil
		})
		if err := <-tr.ended; err != nil {
			t.Errorf("Run = %v", err)
		}
		tr.expect(t, "x at 0s", "Forget", "Done", "x at 1s", "Forget", "Done")
	})
}

// A drain and a Run end together, when all is done; what fails meanwhile is given up.
func TestRateLimitingQueue_R6_Drain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		boom := errors.New("boom")
		tr := start(t, RunOptions[string]{}, func(_ *trial, item string) error {
			time.Sleep(time.Second)
			if item == "y" {
				return boom
			}
			return nil
		})
		began := time.Now()
		tr.AddAll("y", "z")
		if err := tr.Drain(t.Context()); err != nil {
			t.Errorf("Drain = %v", err)
		}
		if d := time.Since(began); d != 3*time.Second {
			t.Errorf("drained after %v, want 3s", d)
		}
		if err := <-tr.ended; err != nil {
			t.Errorf("Run = %v", err)
		}
		tr.expect(t, "x at 0s", "Forget", "Done",
			"y at 1s", "Forget", fmt.Sprintf("GiveUp: %v: boom", ErrShutDown), "Done",
			"z at 2s", "Forget", "Done")
	})
}

func TestRateLimitingQueue_R6_GoexitEndsOneWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := start(t, RunOptions[string]{Workers: 2}, func(tr *trial, item string) error {
			if item == "x" {
				runtime.Goexit()
			}
			time.Sleep(time.Second)
			return nil
		})
		synctest.Wait()
		tr.expect(t, "x at 0s", "Done")
		tr.AddAll("y", "z")
		time.Sleep(time.Hour)
		tr.ShutDown()
		if err := <-tr.ended; err != nil {
			t.Errorf("Run = %v, want nil: a worker was left", err)
		}
		tr.expect(t, "x at 0s", "Done", "y at 0s", "Forget", "Done", "z at 1s", "Forget", "Done")
	})
}

func TestRateLimitingQueue_R6_GoexitEndsAllWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewRateLimitingQueue[string](nil, Options{})
		q.AddAll("a", "b", "c", "d")
		err := q.Run(t.Context(), RunOptions[string]{Workers: 3}, func(_ context.Context, item string) error {
			q.Add(item)
			runtime.Goexit()
			return nil
		})
		if err == nil || !strings.HasPrefix(err.Error(), "typedqueue: ") || errors.Is(err, ErrShutDown) {
			t.Errorf("Run = %v, want an error of its own that starts with the package's name", err)
		}
		s := q.Snapshot()
		slices.Sort(s.Ready)
		if diff := cmp.Diff([]string{"a", "b", "c", "d"}, s.Ready); diff != "" || len(s.Processing) > 0 {
			t.Errorf("%d items in processing; ready (-want +got):\n%s", len(s.Processing), diff)
		}
		if s := q.Stats(); s.StrayDones != 0 {
			t.Errorf("%d stray Dones", s.StrayDones)
		}
	})
}

// The last worker leaves by Goexit, with its item ready again, when the other has found the
// queue shut down and empty: then it is not, and Run must not say so.
func TestRateLimitingQueue_R6_GoexitOfTheLastWorker(t *testing.T) {
	for _, dirty := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			q := NewRateLimitingQueue[string](nil, Options{})
			q.Add("x")
			err := q.Run(t.Context(), RunOptions[string]{Workers: 2}, func(_ context.Context, item string) error {
				if dirty {
					q.Add(item)
				}
				q.ShutDown()
				time.Sleep(time.Second) // the other worker leaves
				runtime.Goexit()
				return nil
			})
			if (err != nil) != dirty || (q.Len() > 0) != dirty {
				t.Errorf("dirty %t: Run = %v with %d items left", dirty, err, q.Len())
			}
		})
	}
}

// noCauses is an error whose causes are all nil: a failure of its own.
type noCauses struct{}

func (noCauses) Error() string   { return "no causes" }
func (noCauses) Unwrap() []error { return []error{nil} }

func TestRateLimitingQueue_R6_ErrorWithoutCausesIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewRateLimitingQueue[string](nil, Options{})
		q.Add("x")
		tries, givenUp := 0, 0
		opts := RunOptions[string]{MaxAttempts: 3, GiveUp: func(string, error) { givenUp++; q.ShutDown() }}
		err := q.Run(t.Context(), opts, func(context.Context, string) error { tries++; return noCauses{} })
		if err != nil || tries != 3 || givenUp != 1 {
			t.Errorf("Run = %v after %d tries, given up %d times", err, tries, givenUp)
		}
	})
}

// GiveUp is the caller's as well: the item is done when it does not return.
func TestRateLimitingQueue_R6_GoexitInGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := start(t, RunOptions[string]{GiveUp: func(string, error) { runtime.Goexit() }}, replies(Terminal(errors.New("boom"))))
		if err := <-tr.ended; err == nil {
			t.Error("Run = nil, want an error")
		}
		tr.expect(t, "x at 0s", "Forget", "Done")
	})
}

// A panic ends the program, so another process runs this test's body. W05
func TestRateLimitingQueue_R6_PanicGoesOnAfterDone(t *testing.T) {
	const inChild = "TYPEDQUEUE_TEST_PANICS"
	if os.Getenv(inChild) != "" {
		q := NewRateLimitingQueue[string](nil, Options{Metrics: Metrics{Worked: func(time.Duration) { fmt.Println("item is done") }}})
		q.Add("x")
		err := q.Run(t.Context(), RunOptions[string]{Workers: 2}, func(context.Context, string) error { panic("boom in reconcile") })
		fmt.Println("Run has returned", err)
		return
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^"+t.Name()+"$", "-test.count=1", "-test.timeout=1m")
	cmd.Env = append(os.Environ(), inChild+"=1")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() == 0 {
		t.Errorf("the program ends with %v, want a status other than 0", err)
	}
	done, panicked := bytes.Index(out, []byte("item is done")), bytes.Index(out, []byte("panic: boom in reconcile"))
	if done < 0 || panicked < done || bytes.Contains(out, []byte("Run has returned")) {
		t.Errorf("want Done, then the panic, and no return from Run; the output is:\n%s", out)
	}
}

func TestRateLimitingQueue_R6_WrongArgumentsPanic(t *testing.T) {
	fine := func(context.Context, string) error { return nil }
	var q RateLimitingQueue[string]
	q.Add("x")
	for name, f := range map[string]func(){
		//lint:ignore SA1012 a nil context is what is tested
		"nil ctx":         func() { _ = q.Run(nil, RunOptions[string]{}, fine) },
		"nil reconcile":   func() { _ = q.Run(t.Context(), RunOptions[string]{}, nil) },
		"Workers < 0":     func() { _ = q.Run(t.Context(), RunOptions[string]{Workers: -1}, fine) },
		"MaxAttempts < 0": func() { _ = q.Run(t.Context(), RunOptions[string]{MaxAttempts: -1}, fine) },
	} {
		if x := panicOf(f); !ours(x) {
			t.Errorf("%s: panic %v, want one that starts with the package's name", name, x)
		}
	}
	x := panicOf(func() { _ = q.Run(t.Context(), RunOptions[string]{Workers: -1, MaxAttempts: 2}, fine) })
	if x != "typedqueue: negative RunOptions: Workers -1, MaxAttempts 2" {
		t.Errorf("panic %v", x)
	}
	if s := q.Stats(); s.Ready != 1 || s.Processing != 0 {
		t.Errorf("stats are %+v, want x still ready", s)
	}
}

// several is an error of several, which need not be there.
type several []error

func (several) Error() string     { return "several" }
func (s several) Unwrap() []error { return s }

// An error of several fails if one of them does, or if none of them is there.
func TestRateLimitingQueue_R6_ErrorsOfSeveral(t *testing.T) {
	again, boom := RequeueAfter(time.Second), errors.New("boom")
	for _, tt := range []struct {
		err    several
		failed bool
	}{
		{nil, true}, {several{nil, nil}, true}, {several{again}, false}, {several{again, nil}, false},
		{several{nil, again}, false}, {several{boom, nil}, true}, {several{again, boom}, true},
	} {
		if v := judge(tt.err); v.failed != tt.failed {
			t.Errorf("%v is a failure: %t, want %t", []error(tt.err), v.failed, tt.failed)
		}
	}
}

// What is given up is forgotten, also if it had one attempt only.
func TestRateLimitingQueue_R6_GivenUpIsForgotten(t *testing.T) {
	for attempts := range 3 {
		var q RateLimitingQueue[string]
		r := run[string]{q: &q, ctx: t.Context(), opts: RunOptions[string]{MaxAttempts: attempts + 1}}
		for range attempts + 1 {
			r.fail("x", errors.New("boom"), 0)
		}
		if n := len(r.attempts.counts); n != 0 {
			t.Errorf("%d items are remembered after %d attempts", n, attempts+1)
		}
		q.ShutDown()
	}
}

// The shortest delay that asks for anything counts, however short; one of nothing asks for nothing.
func TestRateLimitingQueue_R6_SoonestRequeue(t *testing.T) {
	for name, tt := range map[string]struct {
		result error
		want   time.Duration
	}{
		"shortest of all": {RequeueAfter(1), 1},
		"then nothing":    {errors.Join(RequeueAfter(time.Second), RequeueAfter(0)), time.Second},
		"then less":       {errors.Join(RequeueAfter(time.Second), RequeueAfter(-5)), time.Second},
		"after less":      {errors.Join(RequeueAfter(-5), RequeueAfter(time.Second)), time.Second},
		"two":             {errors.Join(RequeueAfter(time.Second), RequeueAfter(time.Minute)), time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var q RateLimitingQueue[string]
				var runs []time.Time
				q.Add("x")
				go q.Run(t.Context(), RunOptions[string]{}, func(context.Context, string) error {
					if runs = append(runs, time.Now()); len(runs) == 1 {
						return tt.result
					}
					q.ShutDown()
					return nil
				})
				pass(time.Hour)
				if len(runs) != 2 || runs[1].Sub(runs[0]) != tt.want {
					t.Errorf("runs at %v, want two, %v apart", runs, tt.want)
				}
				q.ShutDown()
			})
		})
	}
}

// Any results, for several items, in any number of workers: each item runs exactly when
// its own results say.
func TestRateLimitingQueue_R6_EachItemGoesByItsOwnResults(t *testing.T) {
	const base, top = 5 * time.Millisecond, 100 * time.Millisecond
	boom := errors.New("boom")
	results := map[string]error{
		"succeed": nil,
		"fail":    boom,
		"later":   RequeueAfter(time.Second),
		"both":    errors.Join(boom, RequeueAfter(50*time.Millisecond)),
		"stop":    Terminal(boom),
	}
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			opts := RunOptions[int]{
				Workers:     rapid.IntRange(0, 3).Draw(t, "workers"),
				MaxAttempts: rapid.IntRange(0, 4).Draw(t, "max attempts"),
			}
			kind := rapid.SampledFrom([]string{"fail", "fail", "fail", "later", "both", "succeed", "stop"})
			scripts := rapid.SliceOfN(rapid.SliceOfN(kind, 0, 8), 1, 5).Draw(t, "results")

			want, wantUp := make([][]time.Duration, len(scripts)), make([]int, len(scripts))
			for i, script := range scripts {
				var at time.Duration
				failures := 0
			results:
				for _, kind := range append(script, "succeed") {
					want[i] = append(want[i], at)
					switch kind {
					case "fail", "both":
						if failures++; failures == opts.MaxAttempts {
							wantUp[i]++
							break results
						}
						d := doubled(base, top, failures-1)
						if kind == "both" {
							d = max(d, 50*time.Millisecond)
						}
						at += d
					case "later":
						failures = 0
						at += time.Second
					case "stop":
						wantUp[i]++
						break results
					case "succeed":
						break results
					}
				}
			}

			q := NewRateLimitingQueue(NewItemExponentialFailureRateLimiter[int](base, top), Options{})
			for i := range scripts {
				q.Add(i)
			}
			var mu sync.Mutex
			got, gotUp := make([][]time.Duration, len(scripts)), make([]int, len(scripts))
			opts.GiveUp = func(i int, err error) {
				mu.Lock()
				defer mu.Unlock()
				gotUp[i]++
			}
			began, ended := time.Now(), make(chan error)
			go func() {
				ended <- q.Run(context.Background(), opts, func(_ context.Context, i int) error {
					mu.Lock()
					defer mu.Unlock()
					got[i] = append(got[i], time.Since(began))
					if n := len(got[i]); n <= len(scripts[i]) {
						return results[scripts[i][n-1]]
					}
					return nil
				})
			}()
			time.Sleep(time.Hour)
			q.ShutDown()
			if err := <-ended; err != nil {
				t.Errorf("Run = %v", err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("reconciled at (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(wantUp, gotUp); diff != "" {
				t.Errorf("given up (-want +got):\n%s", diff)
			}
			for i := range scripts {
				if n := q.NumRequeues(i); n != 0 {
					t.Errorf("NumRequeues(%d) = %d at the end", i, n)
				}
			}
		})
	})
}

// An item is never in two hands, whatever several Runs and producers do (-race).
func TestRateLimitingQueue_R6_NeverInTwoHands(t *testing.T) {
	const items = 5
	adds := 3000
	if testing.Short() {
		adds = 500
	}
	q := NewRateLimitingQueue(briefLimiter{}, Options{})
	var hands [items]sync.Mutex
	var calls [items]int // guarded by hands
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			hold := func(item int) (release func()) {
				if !hands[item].TryLock() {
					t.Errorf("item %d is in two hands", item)
					return func() {}
				}
				runtime.Gosched()
				return hands[item].Unlock
			}
			err := q.Run(t.Context(), RunOptions[int]{Workers: 3, MaxAttempts: 2, GiveUp: func(item int, _ error) {
				defer hold(item)()
			}}, func(_ context.Context, item int) error {
				defer hold(item)()
				calls[item]++
				return []error{nil, errors.New("boom"), RequeueAfter(1), Terminal(errors.New("boom"))}[calls[item]%4]
			})
			if err != nil {
				t.Errorf("Run = %v", err)
			}
		})
	}
	for i := range adds {
		q.Add(i % items)
		if i%7 == 0 {
			q.AddRateLimited(i % items)
		}
	}
	q.ShutDownWithDrain()
	wg.Wait()
	if s := q.Stats(); s.Ready+s.Processing+s.Waiting != 0 || s.StrayDones != 0 {
		t.Errorf("stats are %+v, want nothing left", s)
	}
}

// briefLimiter answers 1 ns, and remembers nothing.
type briefLimiter struct{}

func (briefLimiter) When(int) time.Duration { return 1 }
func (briefLimiter) Forget(int)             {}
func (briefLimiter) NumRequeues(int) int    { return 0 }
