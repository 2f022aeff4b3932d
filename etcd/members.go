package etcd

import (
	"bytes"
	"encoding/json"
	"iter"
	"slices"
	"sort"

	"github.com/cespare/xxhash/v2"
	"github.com/dgryski/go-rendezvous"
)

// OwnerOf returns which of members a key belongs to: the one with the highest weight. Their
// order does not matter, and a change of members moves only the keys of those that left, and to
// those that joined. Without members it is "". A weight is a 64-bit xorshift* of the xor of both
// names' XXH64 with seed 0; so it is the same in each process, on each machine, and in each
// version of this module. O(m log m) for m members.
func OwnerOf(key string, members []string) string { return placed(slices.Clone(members))(key) }

// placement tells the owner of a key. A placement never changes.
type placement func(key string) string

// placed returns the placement over names, which it sorts and keeps.
func placed(names []string) placement {
	sort.Strings(names) // equal weights, should there ever be any: the first wins everywhere
	return rendezvous.New(names, xxhash.Sum64String).Lookup
}

// How replicas take turns with a key.
//
// All that they tell each other are changes of their member keys, which each sees in the same
// order, but not at the same time. Between two changes of who is there lies an era; it begins
// at the revision of the change, and has one placement. A report is what a member writes into
// its key: up to which revision it has seen, and which keys it holds then (is working on)
// though they are not its own any more. So what a member p holds, at any later time, is
//
//   - among the keys that p's last report names, or
//   - p's own in an era that lasted, or began, between that report and what p has seen by now.
//
// A member m that wants to begin with a key that is its own in the era that it has seen last
// must therefore look, for each other member p, at p's last report that m has seen, and at the
// eras from there until now: was the key p's in none of them, and is not named, then p does not
// hold it; and p will not begin with it in a later era before m's report from there says that
// m does not hold it.

// report is the value of a member key.
type report struct {
	Seen  int64    `json:"seen,omitempty"`  // 0: what was there when the key was created
	Holds [][]byte `json:"holds,omitempty"` // bytes, as JSON cannot have just any string
}

func (r report) encode() string {
	text, err := json.Marshal(r)
	if err != nil {
		panic(err) // it has nothing that could fail
	}
	return string(text)
}

// member is what is known of another replica.
type member struct {
	created int64 // the revision that its key was created at
	seen    int64 // of its last report
	holds   map[string]bool
}

// newMember returns the member that a key of etcd tells of. A report that cannot be read says
// nothing, so it stands for one that was never written.
func newMember(created int64, value []byte) (m member, err error) {
	var r report
	err = json.Unmarshal(value, &r)
	m = member{created: created, seen: max(created, r.Seen)}
	if err != nil {
		m.seen = 0
	}
	if len(r.Holds) > 0 {
		m.holds = make(map[string]bool, len(r.Holds))
		for _, key := range r.Holds {
			m.holds[string(key)] = true
		}
	}
	return m, err
}

// era is a time in which nobody joined or left.
type era struct {
	from    int64 // the revision at which it began
	members []string
	owner   placement
}

// view is what one replica has seen of the members, up to one revision. It knows no clock, no
// network and no lock.
type view struct {
	self    string
	place   func(names []string) placement
	seen    int64             // V1: all changes up to it have been applied, none after it
	members map[string]member // V2: all that are there, self among them

	// V3: eras are without a gap, oldest first, the last is now. V4: of those that are over,
	// there are only such as a report of another member still calls for.
	eras []era

	// V5: the other members because of which a key that is self's may have to wait: those
	// whose last report names keys, or is of an earlier era.
	suspects []string
}

// newView returns the view of self that has just joined at revision seen.
func newView(self string, seen int64, members map[string]member, place func([]string) placement) *view {
	v := &view{self: self, place: place, seen: seen, members: members}
	v.begin()
	return v
}

// now returns the era that has been seen last.
func (v *view) now() *era { return &v.eras[len(v.eras)-1] }

// begin begins an era at v.seen.
func (v *view) begin() {
	names := make([]string, 0, len(v.members))
	for name := range v.members {
		names = append(names, name)
	}
	sort.Strings(names)
	v.eras = append(v.eras, era{v.seen, names, v.place(slices.Clone(names))})
	v.review()
}

// put says that at revision at the key of a member was written. It reports whether an era began.
func (v *view) put(at int64, name string, m member) (began bool) {
	old, known := v.members[name]
	v.members[name] = m
	v.seen = at
	if !known || old.created != m.created {
		v.begin()
		return true
	}
	v.review()
	return false
}

// deleted says that at revision at the key of a member was deleted, so that an era began.
func (v *view) deleted(at int64, name string) {
	delete(v.members, name)
	v.seen = at
	v.begin()
}

// review works out V4 and V5.
func (v *view) review() {
	oldest := v.now().from
	v.suspects = v.suspects[:0]
	for name, m := range v.members {
		if name == v.self {
			continue
		}
		oldest = min(oldest, m.seen)
		if m.seen < v.now().from || len(m.holds) > 0 {
			v.suspects = append(v.suspects, name)
		}
	}
	needed := 0 // the era that was at oldest
	for needed+1 < len(v.eras) && v.eras[needed+1].from <= oldest {
		needed++
	}
	v.eras = slices.Delete(v.eras, 0, needed)
}

// owns reports whether key is self's now.
func (v *view) owns(key string) bool { return v.now().owner(key) == v.self }

// blocker returns the name of another member that may hold key, which is self's, or "".
func (v *view) blocker(key string) string {
	for _, name := range v.suspects {
		if v.mayHold(name, key) {
			return name
		}
	}
	return ""
}

// report returns what self has to report while it holds the keys of held.
func (v *view) report(held map[string]bool) report {
	foreign := func(yield func(string) bool) {
		for key := range held {
			if !v.owns(key) && !yield(key) {
				return
			}
		}
	}
	return report{Seen: v.seen, Holds: inOrder(foreign)}
}

// news reports whether the others need next, when the last report was written: it is of
// another era, or names other keys.
func (v *view) news(written, next report) bool {
	return max(written.Seen, v.members[v.self].created) < v.now().from ||
		!slices.EqualFunc(written.Holds, next.Holds, bytes.Equal)
}

// inOrder returns keys as reports have them.
func inOrder(keys iter.Seq[string]) (bytes [][]byte) {
	for _, key := range slices.Sorted(keys) {
		bytes = append(bytes, []byte(key))
	}
	return bytes
}

// mayHold reports whether another member may hold key, for all that is known.
func (v *view) mayHold(name, key string) bool {
	m := v.members[name]
	if m.holds[key] || m.seen < v.eras[0].from { // the latter: before self came
		return true
	}
	for _, e := range slices.Backward(v.eras) {
		if e.owner(key) == name {
			return true
		}
		if e.from <= m.seen {
			break
		}
	}
	return false
}
