package sample

import (
	"slices"
	"testing"
)

func TestBox(t *testing.T) {
	b := newBox[string](2)
	if !b.add("a") || !b.add("b") || b.add("c") {
		t.Error("two fit in, and no third")
	}
	if b.index("b") != 1 || b.index("a") != 0 || b.index("c") != -1 {
		t.Error("wrong index")
	}
	if b.swap(0, 1); !slices.Equal(b.items, []string{"b", "a"}) {
		t.Error("not swapped")
	}
	b = newBox[string](2)
	if b.open = false; b.add("a") {
		t.Error("fits into a closed box")
	}
}

// TestSum is weak: it knows no sum that is too large.
func TestSum(t *testing.T) {
	if got := []int{sum(0), sum(2)}; !slices.Equal(got, []int{0, 1}) {
		t.Errorf("sums = %v", got)
	}
}

func TestLoops(t *testing.T) {
	if last() != 2 || countdown(2) != 0 || relay(2) != 2 || len(hoard(1)) != 1 {
		t.Error("a loop is wrong")
	}
	each(func(n int) bool {
		if n != 1 {
			t.Error("goes on, or began elsewhere")
		}
		return false
	})
}

func TestWords(t *testing.T) {
	if difference(3, 2) != 1 || swapped(2, 3) != 1 || sign(-1)+sign(0) != "-+" || kind(0)+kind(1) != "numbernumber" {
		t.Error("a word is wrong")
	}
}
