package typedqueue

// catalog is the contents of an Index: which entries of a Store have which index values. For
// each value of each entry there is a place. It is in the chain of its entry (S2: these are
// the remembered values) and in the list of its value, and knows where in that, so an entry
// is taken out of a value that any number of others have in O(1), and no value is hashed for
// it. Places stand in slots and are linked by number, as entries are, and the collector
// follows none of them. The zero catalog is empty and ready.
type catalog[I comparable] struct {
	// I1: cards[r] begins the chain of entry r's places. Each of them names r, and no two are of
	// one value. Where there is no entry there is no chain.
	cards column[placeID]

	// I2: under each value are the places of all that have it. Each names the value's entry in
	// this table, and its own index in the list. I3: no list is empty (S3).
	postings table[I, []placeID]

	// I4: each slot is a place, n of them, in a chain and a list; or free, and zero but for the
	// chain that links it. I5: neither they nor the postings are sparse.
	slots[placeID, place]
	free placeID
	n    int
}

// place is one entry at one index value.
type place struct {
	posting ref     // the value's entry in catalog.postings; 0: the place is free
	i       uint32  // where it is in the list there
	entry   ref     // in the Store's table
	more    placeID // the next in the chain of its entry, or of the free places
}

// placeID is the number of a place's slot. 0 is none.
type placeID uint32

// members returns the places of value, whose hash is given.
func (c *catalog[I]) members(hash uint32, value I) []placeID {
	if p := c.postings.find(hash, value); p.found() {
		return p.acc
	}
	return nil
}

// file puts entry r at values, which holds nothing twice, and nowhere else. Where the nth
// value is what it was, nothing moves.
func (c *catalog[I]) file(r ref, values []I) {
	last := placeID(0)
	for _, v := range values {
		id := *c.after(r, last)
		switch {
		case id == 0:
			id = c.take()
			*c.at(id) = place{entry: r}
			*c.after(r, last) = id
			c.join(id, v)
		case c.postings.at(c.at(id).posting).key != v:
			c.leave(id)
			c.join(id, v)
		}
		last = id
	}
	link := c.after(r, last)
	rest := *link
	*link = 0
	for rest != 0 {
		id := rest
		rest = c.at(id).more
		c.leave(id)
		c.release(id)
	}
	c.trim()
}

// after returns the link that follows a place in the chain of entry r, or, if id is 0, begins
// it.
func (c *catalog[I]) after(r ref, id placeID) *placeID {
	if id == 0 {
		return c.cards.at(r)
	}
	return &c.at(id).more
}

// join puts a place at value.
func (c *catalog[I]) join(id placeID, value I) {
	hash := hashOf(value)
	p := c.postings.find(hash, value)
	if !p.found() {
		p = c.postings.insert(hash, value)
	}
	pl := c.at(id)
	pl.posting, pl.i = p.ref, uint32(len(p.acc))
	p.acc = append(p.acc, id)
}

// leave takes a place from its value, which vanishes with its last one.
func (c *catalog[I]) leave(id placeID) {
	pl := c.at(id)
	p := c.postings.slot(pl.posting)
	last := len(p.acc) - 1
	if last == 0 {
		c.postings.remove(p)
		return
	}
	moved := p.acc[last]
	p.acc[pl.i], c.at(moved).i = moved, pl.i
	p.acc = p.acc[:last]
	if cap(p.acc) > keepCap && last < cap(p.acc)/4 {
		p.acc = append(make([]placeID, 0, cap(p.acc)/2), p.acc...)
	}
}

// take returns a slot for a place.
func (c *catalog[I]) take() placeID {
	id := c.free
	if id == 0 {
		id = c.extend()
	}
	c.free = c.at(id).more
	c.n++
	return id
}

// release frees the slot of a place that has left its value.
func (c *catalog[I]) release(id placeID) {
	*c.at(id) = place{more: c.free}
	c.free = id
	c.n--
}

// renamed says that an entry has another number than it had. Before anything else comes in,
// the cards have to be trimmed to the numbers that are left.
func (c *catalog[I]) renamed(from, to ref) {
	c.cards.move(from, to)
	for id := c.cards.get(to); id != 0; id = c.at(id).more {
		c.at(id).entry = to
	}
}

// trim gives back what has become mostly empty, once it has.
func (c *catalog[I]) trim() {
	if c.postings.sparse() {
		c.postings.compact(func(_, to ref) {
			for _, id := range c.postings.at(to).acc {
				c.at(id).posting = to
			}
		})
	}
	if c.sparse() {
		c.compact()
	}
}

// sparse reports whether most of the places' memory is of no use.
func (c *catalog[I]) sparse() bool { return c.slots.sparse(c.n) }

// compact moves the places to the first slots. O(slots).
func (c *catalog[I]) compact() {
	last, to := placeID(c.n), placeID(1)
	for from := c.used; from > last; from-- {
		if c.at(from).posting == 0 {
			continue
		}
		// All the places of its entry move now, as the chain has to be followed from its start.
		for link := c.cards.at(c.at(from).entry); *link != 0; link = &c.at(*link).more {
			if *link <= last {
				continue
			}
			for c.at(to).posting != 0 {
				to++
			}
			old := c.at(*link)
			*c.at(to) = *old
			c.postings.at(old.posting).acc[old.i] = to
			*old = place{} // so its entry is not looked at again
			*link = to
		}
	}
	c.free = 0
	c.shrink(last)
}
