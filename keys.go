package typedqueue

import (
	"fmt"
	"reflect"
	"sync/atomic"
)

// fitness tells which values of K are fit to be keys: those that can be found again,
// because they are equal to themselves and can be hashed (Q10). For nearly all types that is
// every value, which the first call finds out. The zero fitness is ready; it may be used from
// any goroutine.
type fitness[K comparable] struct{ verdict atomic.Uint32 }

const (
	unknown uint32 = iota
	allFit
	someFit
)

// fault returns why key is not fit, or nil.
func (f *fitness[K]) fault(key K) error {
	if f.verdict.Load() == allFit {
		return nil
	}
	return f.examine(key)
}

func (f *fitness[K]) examine(key K) error {
	if f.verdict.Load() == unknown {
		f.verdict.Store(verdictOn(reflect.TypeFor[K]()))
	}
	if f.verdict.Load() == allFit {
		return nil
	}
	return faultOf(key)
}

// must panics if key is not fit.
func (f *fitness[K]) must(key K) {
	if f.verdict.Load() != allFit {
		f.mustExamine(key)
	}
}

func (f *fitness[K]) mustExamine(key K) {
	if err := f.examine(key); err != nil {
		panic("typedqueue: " + err.Error())
	}
}

// hash returns the hash of key, and panics if key is not fit: so a caller who hashes before
// taking the lock has checked the key as well.
func (f *fitness[K]) hash(key K) uint32 {
	f.must(key)
	return hashOf(key)
}

// verdictOn returns allFit or someFit, of the values of t.
func verdictOn(t reflect.Type) uint32 {
	switch t.Kind() {
	case reflect.Float32, reflect.Float64, reflect.Complex64, reflect.Complex128, reflect.Interface:
		return someFit
	case reflect.Array:
		return verdictOn(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if verdictOn(t.Field(i).Type) == someFit {
				return someFit
			}
		}
	}
	return allFit
}

// faultOf compares key with itself and returns what is wrong with it, or nil.
func faultOf[K comparable](key K) (err error) {
	defer func() {
		if recover() != nil { // by the comparison below, its one cause
			err = fmt.Errorf("key of type %T holds something that cannot be hashed", key)
		}
	}()
	if other := key; other != key {
		return fmt.Errorf("key %v is not equal to itself", key)
	}
	return nil
}
