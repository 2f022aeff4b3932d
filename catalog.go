package typedqueue

import "slices"

// catalog is the contents of an Index: which records have which values. A record and a
// posting point to each other and each knows its place in the other, so that taking a record
// out of a posting of any size costs O(1) and hashes nothing.
type catalog[I comparable, K comparable, V any] struct {
	// cards[r.at] is where record r is filed (S2: its remembered values). I1: one for each
	// record of the Store. I2: what a place names is a member that names the record and
	// this place.
	cards [][]place[I, K, V]

	// I3: each posting is under its own value, and has members (S3). I4: there are as many
	// members as places, so with I2 none is stale, and none is there twice.
	postings map[I]*posting[I, K, V]
	peak     int // I5: not less than len(postings); see trimmed.
}

// posting is all the records with one index value.
type posting[I comparable, K comparable, V any] struct {
	value   I
	members []member[K, V]
}

// member is a record in a posting: there because of the nth of the record's places.
type member[K comparable, V any] struct {
	record *record[K, V]
	nth    int
}

// place is a posting that a record is in: as members[i].
type place[I comparable, K comparable, V any] struct {
	posting *posting[I, K, V]
	i       int
}

func (c *catalog[I, K, V]) members(value I) []member[K, V] {
	if p := c.postings[value]; p != nil {
		return p.members
	}
	return nil
}

// file puts r at values, which holds nothing twice, and nowhere else. A new r has to be the
// last of the records. Where the nth value is what it was, nothing moves.
func (c *catalog[I, K, V]) file(r *record[K, V], values []I) {
	if r.at == len(c.cards) {
		c.cards = append(c.cards, nil)
	}
	places := c.cards[r.at]
	for n, v := range values {
		switch {
		case n == len(places):
			places = append(slices.Grow(places, len(values)-n), c.join(v, member[K, V]{r, n}))
		case places[n].posting.value != v:
			c.leave(places[n])
			places[n] = c.join(v, member[K, V]{r, n})
		}
	}
	for _, pl := range places[len(values):] {
		c.leave(pl)
	}
	clear(places[len(values):])
	places = places[:len(values)]
	if cap(places) > keepCap && len(places) < cap(places)/4 {
		places = slices.Clone(places)
	}
	c.cards[r.at] = places
}

// join adds m to the posting of value.
func (c *catalog[I, K, V]) join(value I, m member[K, V]) place[I, K, V] {
	p := c.postings[value]
	if p == nil {
		p = &posting[I, K, V]{value: value}
		c.postings[value] = p
		c.peak = max(c.peak, len(c.postings))
	}
	p.members = append(p.members, m)
	return place[I, K, V]{p, len(p.members) - 1}
}

// leave removes the member at pl. The last one of the posting takes its index.
func (c *catalog[I, K, V]) leave(pl place[I, K, V]) {
	p := pl.posting
	if len(p.members) == 1 {
		delete(c.postings, p.value)
		c.postings = trimmed(c.postings, &c.peak)
		return
	}
	p.members = swapRemove(p.members, pl.i)
	if pl.i < len(p.members) {
		moved := p.members[pl.i]
		c.cards[moved.record.at][moved.nth].i = pl.i
	}
}

// remove takes r out of all its postings. The card of the last of the records replaces its own.
func (c *catalog[I, K, V]) remove(r *record[K, V]) {
	c.file(r, nil)
	c.cards = swapRemove(c.cards, r.at)
}

// swapRemove takes element i out of list, and puts the last one there. An array that has
// become mostly empty is replaced by a smaller one.
func swapRemove[T any](list []T, i int) []T {
	last := len(list) - 1
	list[i] = list[last]
	clear(list[last:])
	list = list[:last]
	if cap(list) > keepCap && last < cap(list)/4 {
		list = append(make([]T, 0, cap(list)/2), list...)
	}
	return list
}
