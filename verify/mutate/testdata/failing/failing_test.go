package failing

import "testing"

func TestZero(t *testing.T) {
	if zero() == 0 {
		t.Error("zero")
	}
}
