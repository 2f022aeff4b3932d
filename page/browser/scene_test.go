package browser

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/typedqueue"
	"example.com/typedqueue/page"
)

// scene is a page as it was at a moment: its answer to each query.
type scene map[string]*httptest.ResponseRecorder

func (s scene) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer := s[r.URL.RawQuery]
	if answer == nil {
		http.NotFound(w, r)
		return
	}
	maps.Copy(w.Header(), answer.Header())
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}

// newScene returns what p answers to these queries now.
func newScene(p *page.Page, queries ...string) scene {
	s := make(scene)
	for _, q := range queries {
		s[q] = httptest.NewRecorder()
		p.ServeHTTP(s[q], httptest.NewRequest(http.MethodGet, "/?"+q, nil))
	}
	return s
}

// shop is a process as it may be: five minutes of a shop's queues, in a bubble, so that it takes
// no time. Two keys are stuck, and for a while nobody looked.
func shop(t *testing.T, queries ...string) (s scene) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		p := page.New(page.Options{Title: "Shop queues"})
		stuck := make(chan struct{})

		orders := newQueue(t, p, "orders")
		running.Go(func() { work(ctx, orders, 4, 300*time.Millisecond, stuck) })
		running.Go(func() { feed(ctx, orders, "order/eu-%05d", 9) })
		mails := newQueue(t, p, "mails")
		running.Go(func() { work(ctx, mails, 2, 40*time.Millisecond, stuck) })
		running.Go(func() { feed(ctx, mails, "mail/%05d", 5) })
		search := newQueue(t, p, "search index")
		running.Go(func() { work(ctx, search, 8, 20*time.Millisecond, stuck) })
		running.Go(func() { burst(ctx, search) })
		invoices := newQueue(t, p, "invoices of November")
		for i := range 7 {
			invoices.Add(fmt.Sprintf("invoice/%d", i))
		}
		invoices.Get()
		invoices.ShutDown()
		changes := typedqueue.NewDeltaFIFO(func(s string) (string, error) { return s, nil }, typedqueue.DeltaFIFOOptions[string, string]{})
		must(t, changes.Replace([]string{"sku/1", "sku/2", "sku/3"}))
		_, err := page.WatchFIFO(p, "changes", changes)
		must(t, err)

		recording, pause := context.WithCancel(ctx)
		running.Go(func() { p.Record(recording) })
		time.Sleep(100 * time.Second)
		orders.Add("order/eu-00017 (retry)")
		time.Sleep(20 * time.Second)
		pause()
		time.Sleep(25 * time.Second) // nobody looks
		running.Go(func() { p.Record(ctx) })
		time.Sleep(155*time.Second + 400*time.Millisecond)
		s = newScene(p, queries...)
		runtime.KeepAlive([]any{invoices, changes})
		cancel()
		close(stuck)
		running.Wait()
	})
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newQueue(t *testing.T, p *page.Page, name string) *typedqueue.RateLimitingQueue[string] {
	limiter := typedqueue.NewItemExponentialFailureRateLimiter[string](time.Second, time.Minute)
	q := typedqueue.NewRateLimitingQueue(limiter, typedqueue.Options{TrackTime: true})
	_, err := page.Watch(p, name, q)
	must(t, err)
	return q
}

// work works off q. One key never ends, and one in seven fails.
func work(ctx context.Context, q *typedqueue.RateLimitingQueue[string], workers int, takes time.Duration, stuck chan struct{}) {
	_ = q.Run(ctx, typedqueue.RunOptions[string]{Workers: workers}, func(ctx context.Context, key string) error {
		if key == "order/eu-00017 (retry)" {
			<-stuck
			return nil
		}
		h := fnv.New32a()
		_, _ = h.Write([]byte(key))
		sleep(ctx, takes/2+takes*time.Duration(h.Sum32()%100)/100)
		if h.Sum32()%7 == 0 {
			return errors.New("no answer")
		}
		return nil
	})
}

// feed adds keys, some per second, more and fewer in turn.
func feed(ctx context.Context, q *typedqueue.RateLimitingQueue[string], format string, perSecond int) {
	for i := 0; ctx.Err() == nil; i++ {
		q.Add(fmt.Sprintf(format, 17+i*37%9973))
		pace := time.Second / time.Duration(perSecond)
		sleep(ctx, pace/2+pace*time.Duration(i/60%6)/5)
	}
}

// burst adds many keys from time to time.
func burst(ctx context.Context, q *typedqueue.RateLimitingQueue[string]) {
	for i := 0; ctx.Err() == nil; i++ {
		for k := range 12_000 {
			q.Add(fmt.Sprintf("document/%d/%d", i, k))
		}
		sleep(ctx, 70*time.Second)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
