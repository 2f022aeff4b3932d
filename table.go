package typedqueue

import (
	"fmt"
	"hash/maphash"
	"math/bits"
	"reflect"
)

// table finds entries by key. It is a hash table whose chains run through the entries
// themselves, with the hash kept in the entry, so that neither growing nor removing
// hashes a key, inserting allocates no more than the entry, and shrinking is as cheap
// as growing. It has no lock. The zero table is empty and ready.
type table[K comparable, A any] struct {
	// B1: an entry is in the chain of the bucket that its hash names, once, and no two
	// have equal keys. B2: len(buckets) is 0 or a power of two, and at least n. Q9: remove
	// leaves no more of them than the larger of tableKeep and 8*n.
	buckets []*entry[K, A]
	n       int

	// B3: spare entries are zero but for their link, and there are at most spareKeep.
	spare  *entry[K, A]
	spares int
}

const (
	tableKeep = 512 // buckets that a table keeps however empty it gets
	spareKeep = 512 // entries that a table keeps for the next keys
)

// seed is one for all tables: a stranger must not be able to choose keys that collide.
var seed = maphash.MakeSeed()

// hashOf returns the hash of key. It panics like mustKey, so a caller who hashes before
// taking the lock has checked the key as well.
func hashOf[K comparable](key K) uint32 {
	mustKey(key)
	return hashUnchecked(key)
}

func hashUnchecked[K comparable](key K) uint32 { return uint32(maphash.Comparable(seed, key)) }

func (t *table[K, A]) bucket(hash uint32) **entry[K, A] {
	return &t.buckets[int(hash)&(len(t.buckets)-1)]
}

// find returns the entry of key, whose hash is given, or nil.
func (t *table[K, A]) find(hash uint32, key K) *entry[K, A] {
	if t.n == 0 {
		return nil
	}
	for e := *t.bucket(hash); e != nil; e = e.chain {
		if e.hash == hash && e.key == key {
			return e
		}
	}
	return nil
}

// insert adds and returns an entry for key, which the table must not hold.
func (t *table[K, A]) insert(hash uint32, key K) *entry[K, A] {
	t.reserve(1)
	e := t.spare
	if e != nil {
		t.spare, e.chain = e.chain, nil
		t.spares--
	} else {
		e = new(entry[K, A])
	}
	e.key, e.hash = key, hash
	b := t.bucket(hash)
	e.chain, *b = *b, e
	t.n++
	return e
}

// reserve makes room for more keys, so that inserting them grows the table once at most.
func (t *table[K, A]) reserve(more int) {
	if need := t.n + more; need > len(t.buckets) {
		t.resize(max(8, sizeFor(need)))
	}
}

// sizeFor returns the least power of two that is at least n.
func sizeFor(n int) int { return 1 << bits.Len(uint(max(1, n)-1)) }

// remove takes out e, which the table must hold. The entry is cleared and may be used
// again at the next insert, so nobody may touch it any more.
func (t *table[K, A]) remove(e *entry[K, A]) {
	link := t.bucket(e.hash)
	for *link != e {
		link = &(*link).chain
	}
	*link = e.chain
	t.n--
	*e = entry[K, A]{} // Q9: let the key and what it accumulated be collected
	if t.spares < spareKeep {
		e.chain, t.spare = t.spare, e
		t.spares++
	}
	if len(t.buckets) > tableKeep && t.n < len(t.buckets)/8 {
		t.resize(max(tableKeep, sizeFor(2*t.n)))
	}
}

// resize deals the entries out to n buckets, a power of two.
func (t *table[K, A]) resize(n int) {
	old := t.buckets
	t.buckets = make([]*entry[K, A], n)
	for _, e := range old {
		for e != nil {
			next := e.chain
			b := t.bucket(e.hash)
			e.chain, *b = *b, e
			e = next
		}
	}
}

// all calls yield for each entry, in no order, until it returns false. The table must
// not change meanwhile.
func (t *table[K, A]) all(yield func(*entry[K, A]) bool) {
	for _, e := range t.buckets {
		for ; e != nil; e = e.chain {
			if !yield(e) {
				return
			}
		}
	}
}

// mustKey panics if key could not be found again once it is in a table: if it is not
// equal to itself (NaN), or its dynamic type cannot be hashed (Q10).
func mustKey[K comparable](key K) {
	if err := keyFault(key); err != nil {
		panic("typedqueue: " + err.Error())
	}
}

// keyFault returns what mustKey would panic about, or nil.
func keyFault[K comparable](key K) error {
	switch reflect.TypeFor[K]().Kind() {
	case reflect.Float32, reflect.Float64, reflect.Complex64, reflect.Complex128,
		reflect.Interface, reflect.Struct, reflect.Array:
		return faultOf(key)
	}
	return nil // no value of the other kinds can be at fault
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
