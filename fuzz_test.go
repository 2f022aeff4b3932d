package typedqueue

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// The models of the property tests as fuzz targets: where rapid draws at random, the fuzzer
// looks for inputs that reach new code. verify/fuzz.sh runs them all.

func FuzzHeap(f *testing.F)        { fuzz(f, heapProperty()) }
func FuzzStacks(f *testing.F)      { fuzz(f, stacksProperty()) }
func FuzzTable(f *testing.F)       { fuzz(f, tableProperty()) }
func FuzzOrder(f *testing.F)       { fuzz(f, orderProperty()) }
func FuzzQueue(f *testing.F)       { fuzz(f, queueProperty(rapid.IntRange(0, 3))) }
func FuzzFIFO(f *testing.F)        { fuzz(f, fifoProperty()) }
func FuzzDeltaFIFO(f *testing.F)   { fuzz(f, deltaFIFOProperty()) }
func FuzzStore(f *testing.F)       { fuzz(f, storeProperty()) }
func FuzzStoreBursts(f *testing.F) { fuzz(f, storeBurstsProperty()) }

// fuzz makes property a target. An input is the stream of bits that rapid draws from, and one
// that ends too early is of no use, so the fuzzer is given some that are long enough.
func fuzz(f *testing.F, property func(*rapid.T)) {
	for seed := range uint64(3) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		var input []byte
		for range 512 {
			input = binary.LittleEndian.AppendUint64(input, rnd.Uint64())
		}
		f.Add(input)
	}
	f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) {
		defer skipStuck(t)
		property(t)
	}))
}

// skipStuck makes an input of no use that asks a hundred times in a row for actions which do
// not apply, such as to remove from what is empty. To rapid that is a failure: at random it
// hardly happens, but the fuzzer goes for it.
func skipStuck(t *rapid.T) {
	switch r := recover(); {
	case r == nil:
	case fmt.Sprint(r) == "can't find a valid (non-skipped) action":
		t.Skip(r)
	default:
		panic(r)
	}
}
