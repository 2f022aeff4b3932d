package kube_test

import (
	"fmt"
	"testing"
)

// BenchmarkGrowth is how the time per item grows with the number of items: of a burst of a
// new queue, of parking and firing, and of a new DeltaFIFO, from 1,000 to 10,000,000
// items, of pods 1,000,000, since those alone take more than 1 GB then. Keys are ints. It
// takes minutes, and is skipped with -short.
func BenchmarkGrowth(b *testing.B) {
	if testing.Short() {
		b.Skip("takes minutes")
	}
	for n := 1000; n <= 10_000_000; n *= 10 {
		for _, wl := range growths(n) {
			b.Run(wl.name, wl.run)
		}
	}
}

func growths(n int) []workload {
	all := []workload{
		grown("Burst", n, burstFresh("int", ints)),
		grown("Park", n, park("int", ints)),
		grown("Fire", n, fire("int", ints)),
	}
	if n <= 1_000_000 {
		all = append(all, grown("DeltaAddPop", n, lines(0, true, deltaFIFOs(), pods, addPop)[0]))
	}
	return all
}

// grown is wl with n items, and two contestants. Small rounds are repeated.
func grown(name string, n int, wl workload) workload {
	big := workload{name: fmt.Sprintf("%s/n=%d", name, n), size: n}
	for _, c := range wl.contestants[:2] {
		big.contestants = append(big.contestants, contestant{c.name, func(tb testing.TB, size int) round {
			once := c.setup(tb, size)
			return func(w *watch) {
				for range max(1, min(20, 50_000/size)) {
					once(w)
				}
			}
		}})
	}
	return big
}
