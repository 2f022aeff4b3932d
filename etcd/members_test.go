package etcd

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func keys(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("key-%d", i)
	}
	return all
}

func replicas(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("replica-%d", i)
	}
	return all
}

// TestOwnerOfIsTheSameEverywhere fails if a version of this module places keys elsewhere than
// the versions before it: replicas of both would then believe to own a key.
func TestOwnerOfIsTheSameEverywhere(t *testing.T) {
	for key, want := range map[string]string{
		"":         "replica-4",
		"a":        "replica-3",
		"key-1":    "replica-0",
		"key-2":    "replica-1",
		"orders/7": "replica-4",
		"\x00\xff": "replica-1",
	} {
		if got := OwnerOf(key, replicas(5)); got != want {
			t.Errorf("OwnerOf(%q) = %s, was %s", key, got, want)
		}
	}
	if got := OwnerOf("a", nil); got != "" {
		t.Errorf("OwnerOf without members = %q", got)
	}
}

// TestPropertyOwnerOf: who comes takes keys, and who leaves gives keys, but no other moves one;
// and neither the order of names nor their slice matters.
func TestPropertyOwnerOf(t *testing.T) {
	names := rapid.SliceOfNDistinct(rapid.StringN(1, 8, -1), 1, 12, rapid.ID)
	rapid.Check(t, func(t *rapid.T) {
		members := names.Draw(t, "members")
		fewer := members[1:]
		shuffled := rapid.Permutation(members).Draw(t, "shuffled")
		given := slices.Clone(shuffled)
		for range 20 {
			key := rapid.String().Draw(t, "key")
			owner := OwnerOf(key, members)
			if other := OwnerOf(key, shuffled); other != owner {
				t.Fatalf("%q is %q's or, in another order, %q's", key, owner, other)
			}
			if other := OwnerOf(key, fewer); owner != members[0] && other != owner {
				t.Fatalf("without %q, %q moves from %q to %q", members[0], key, owner, other)
			}
		}
		if !slices.Equal(shuffled, given) {
			t.Fatal("OwnerOf has changed its argument")
		}
	})
}

// TestMovedFraction: of n replicas each has 1/n of the keys, give or take five standard
// deviations, and so many move when it comes or goes.
func TestMovedFraction(t *testing.T) {
	const total = 20000
	all := keys(total)
	for _, n := range []int{2, 3, 5, 10, 100} {
		members := replicas(n)
		count := map[string]int{}
		owner := placed(slices.Clone(members))
		for _, key := range all {
			count[owner(key)]++
		}
		p := 1 / float64(n)
		spread := 5 * math.Sqrt(total*p*(1-p))
		for _, name := range members {
			if off := math.Abs(float64(count[name]) - total*p); off > spread {
				t.Errorf("%s of %d has %d keys of %d: %.0f off, more than %.0f", name, n, count[name], total, off, spread)
			}
		}
	}
}

func BenchmarkOwnerOf(b *testing.B) {
	for _, n := range []int{3, 10, 100} {
		b.Run(fmt.Sprint("members=", n), func(b *testing.B) {
			owner, all := placed(replicas(n)), keys(1000)
			for i := 0; b.Loop(); i++ {
				owner(all[i%len(all)])
			}
		})
	}
}
