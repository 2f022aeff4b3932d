package leaks

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"example.com/typedqueue"
)

const (
	queues = 10_000
	most   = 400 // bytes of each
)

// TestDroppedWait: what stays of queues that are dropped with items which wait for a year. The
// queue goes, and its items with it: the timer holds it weakly. The timer itself stays, since
// the runtime keeps a timer until it fires or is stopped, and so do its function and the weak
// pointer in there: some 170 bytes for each queue, until the year is over. Nothing of that runs
// before then, and then it does nothing. Who makes queues by the thousand and drops them with
// items waiting far ahead calls ShutDown, which stops the timer.
func TestDroppedWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := inUse()
		var gone func() bool
		for i := range queues {
			gone = dropWaiting(i, false)
		}
		stays := perQueue(before)
		if !gone() {
			t.Fatal("kept alive")
		}
		t.Logf("of each queue %d bytes stay until the item would be due", stays)
		if stays > most {
			t.Errorf("%d bytes of each queue stay, want %d at most", stays, most)
		}

		time.Sleep(2 * year)
		synctest.Wait()
		if stays := perQueue(before); stays > most/20 {
			t.Errorf("%d bytes of each queue stay after the timers have fired", stays)
		}
	})
}

// TestShutDownWait: with ShutDown nothing stays at all.
func TestShutDownWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := inUse()
		var gone func() bool
		for i := range queues {
			gone = dropWaiting(i, true)
		}
		if stays := perQueue(before); stays > most/20 {
			t.Errorf("%d bytes of each queue stay", stays)
		}
		if !gone() {
			t.Error("kept alive")
		}
	})
}

// dropWaiting makes a queue in which an item waits for a year, and drops it. It returns whether
// it has been collected. The ith timer fires i seconds later than the first, since as many
// goroutines at once would leave the runtime's records of goroutines in use.
func dropWaiting(i int, shutDown bool) (gone func() bool) {
	q := typedqueue.NewDelayingQueue[*object](typedqueue.Options{})
	q.AddAfter(&object{name: "later"}, year+time.Duration(i)*time.Second)
	if shutDown {
		q.ShutDown()
	}
	w := weak.Make(q)
	return func() bool { return w.Value() == nil }
}

// inUse returns how many bytes are in use once garbage has been collected.
func inUse() uint64 {
	for range 3 { // cleanups run after the first, and leave garbage
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// perQueue returns how many bytes more are in use than before, for each queue.
func perQueue(before uint64) int {
	return (int(inUse()) - int(before)) / queues
}
