package kube_test

import (
	"testing"
	"time"

	"example.com/typedqueue"
)

// The tests of this module look at counts, never at times: they say the same on any
// machine.

// TestWorkloads does each workload once in small, so that no benchmark rots.
func TestWorkloads(t *testing.T) {
	const size = recurring
	for name, workloads := range map[string][]workload{
		"Cycle":             cycles(),
		"BurstAgain":        burstsAgain(),
		"BurstFresh":        burstsFresh(),
		"DuplicateAdd":      duplicates(),
		"Contended":         contentions(recurring),
		"ContendedDistinct": contentions(0),
		"Park":              parks(),
		"Fire":              fires(),
		"Retry":             retries(),
		"Priorities":        priorities(),
		"DeltaAddPop":       deltaAddPops(),
		"DeltaReplaceFresh": deltaReplacesFresh(),
		"DeltaReplaceAgain": deltaReplacesAgain(),
		"DeltaUpdates":      deltaUpdates(),
		"DeltaStream":       deltaStreams(),
		"FIFO":              fifos(),
		"StoreAdd":          storeAdds(),
		"StoreUpdate":       storeUpdates(),
		"StoreGet":          storeGets(),
		"StoreGetByKey":     storeGetsByKey(),
		"StoreList":         storeLists(),
		"StoreByIndex":      storesByIndex(),
		"StoreDelete":       storeDeletes(),
		"Growth":            growths(size),
	} {
		for _, wl := range workloads {
			for _, c := range wl.contestants {
				t.Run(name+"/"+wl.name+"/"+c.name, func(t *testing.T) {
					var w watch
					c.setup(t, size)(&w)
					if w.items <= 0 || w.took <= 0 {
						t.Errorf("did %d items in %v", w.items, w.took)
					}
				})
			}
		}
	}
}

// TestTanks fills each tank once in small.
func TestTanks(t *testing.T) {
	const n = 500
	for name, tanks := range map[string][]tank{
		"ready":   readyTanks(names(2 * n)),
		"waiting": waitingTanks(names(2*n + 1)),
		"pending": pendingTanks(pods(2 * n)),
		"stored":  storeTanks(pods(2*n), true),
	} {
		for _, tank := range tanks {
			t.Run(name+"/"+tank.name, func(t *testing.T) {
				if at, worst := tank.weigh(n); at > worst {
					t.Errorf("weighs %g B, %g at worst", at, worst)
				}
				if at, worst := tank.weighPeak(n); at > worst {
					t.Errorf("weighs %g B, %g at worst, at its peak", at, worst)
				}
			})
		}
	}
	for _, m := range queues[int]() {
		if kept := leftBehind(m.make(), ints(n)); kept < 0 {
			t.Errorf("%s kept %g KiB", m.name, kept)
		}
	}
}

// TestAllocations counts what we allocate per item, once all has been done before.
func TestAllocations(t *testing.T) {
	keys, waits := names(recurring), newOursDelaying[name]()
	list := pods(recurring)
	indexed := storeMakers()[0].make(list, true)
	addAll(indexed, list)

	ready := newOurs[name]()
	ready.AddAll(keys...)
	cycled := newOurs[name]()
	limited := typedqueue.NewRateLimitingQueue(typedqueue.NewItemExponentialFailureRateLimiter[name](0, 0), typedqueue.Options{})
	deltas := func() line { return deltaFIFOs()[0].make(list) }
	added, replaced, updated := deltas(), deltas(), deltas()

	for _, test := range []struct {
		name  string
		items int
		most  float64 // allocations per item
		do    func()
	}{
		{"cycle", recurring, 0, func() {
			for _, key := range keys {
				cycled.Add(key)
				item, _ := cycled.Get()
				cycled.Done(item)
			}
		}},
		{"duplicate Add", recurring, 0, func() {
			for _, key := range keys {
				ready.Add(key)
			}
		}},
		{"retry", recurring, 0, func() {
			for _, key := range keys {
				limited.AddRateLimited(key)
				item, _ := limited.Get()
				limited.Forget(item)
				limited.Done(item)
			}
		}},
		{"AddAfter and Cancel", recurring, 0, func() {
			for _, key := range keys {
				waits.AddAfter(key, time.Hour)
				waits.Cancel(key)
			}
		}},
		{"DeltaFIFO: Add and Pop of a key", recurring, 1, func() {
			for _, p := range list {
				added.add(p)
				added.pop()
			}
		}},
		{"DeltaFIFO: 10 updates and Pop of a key", recurring, 2, func() {
			for _, p := range list {
				for range 10 {
					updated.update(p)
				}
				updated.pop()
			}
		}},
		{"DeltaFIFO: Replace and Pop of a key", recurring, 2, func() { replacePop(replaced, list) }},
		{"Store: Get", recurring, 0, func() {
			for _, p := range list {
				indexed.get(p)
			}
		}},
		{"Store: GetByKey", recurring, 0, func() {
			for i := range list {
				indexed.getByKey(i)
			}
		}},
		{"Store: List", 1, 1, func() { indexed.list() }},
		{"Store: by index", 1, 1, func() { indexed.namespace("ns-1") }},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.do()
			got := testing.AllocsPerRun(10, test.do) / float64(test.items)
			t.Logf("%.3f allocations per item", got)
			// A queue may give memory back now and then, and take it again.
			if got > test.most+0.01 {
				t.Errorf("%.3f allocations per item, want %g at most", got, test.most)
			}
		})
	}
}
