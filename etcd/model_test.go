package etcd

import (
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// The rules of members.go, tried in every order of events. One key is enough: all that is
// said of a key is said of it alone. What placements there are does not matter either, so
// every table of owners is tried, whether or not a hash could make it.
//
// A replica of the model joins, is told of changes one by one, takes the key, releases it,
// composes a report, writes it later, leaves, and loses its lease with the key in hands; then it
// may join again before it has released it. Views are the real ones.

const (
	theKey = "k"
	takes  = "takes the key"
)

// change is one revision of the log; the first is 1.
type change struct {
	name    string
	left    bool
	created int64 // the join it belongs to
	report  report
	member  member // as the others read it
}

// process is a replica of the model.
type process struct {
	joined  int64 // 0: not among the members, as far as it knows
	seen    int   // so much of the log has been delivered
	view    *view
	holds   int64   // the join in which it took the key that it holds; 0: it holds none
	written report  // as it knows
	pending *report // composed, and not yet in the log
}

func (p *process) held() map[string]bool {
	if p.holds == 0 {
		return nil
	}
	return map[string]bool{theKey: true}
}

// world is a state of the model. There are five processes, of which the exhaustive search uses
// three.
type world struct {
	log       []change
	there     [5]int64 // the join of those who are there; 0 for the others
	processes [5]process
	turns     []int64 // the revisions of joins and leaves
}

var names = [5]string{"a", "b", "c", "d", "e"}

func (w *world) append(i int, c change) {
	c.name = names[i]
	var err error
	if c.member, err = newMember(c.created, []byte(c.report.encode())); err != nil {
		panic(err)
	}
	w.log = append(slices.Clip(w.log), c)
}

// live reports whether process i is there, and knows it.
func (w *world) live(i int) bool {
	p := &w.processes[i]
	return p.joined != 0 && w.there[i] == p.joined
}

// id is equal for worlds that differ in nothing that matters. Of a revision that is the eras
// before it.
func (w *world) id() string {
	e := encoder{turns: w.turns}
	from := len(w.log)
	for i, p := range w.processes {
		e.revisions(w.there[i], p.joined, p.holds)
		if p.joined == 0 {
			continue
		}
		from = min(from, p.seen)
		e.report(&p.written)
		e.report(p.pending)
		e.view(p.view)
	}
	for i, p := range w.processes {
		if p.joined != 0 {
			e.b = append(e.b, names[i][0], byte(p.seen-from))
		}
	}
	for _, c := range w.log[from:] {
		e.b = append(e.b, c.name[0])
		e.flag(c.left)
		e.revisions(c.created)
		e.report(&c.report)
	}
	return string(e.b)
}

type encoder struct {
	b     []byte
	turns []int64
}

func (e *encoder) revisions(revs ...int64) {
	for _, rev := range revs {
		era, _ := slices.BinarySearch(e.turns, rev+1)
		e.b = append(e.b, byte(era))
	}
}

func (e *encoder) flag(b bool) {
	if b {
		e.b = append(e.b, 1)
	} else {
		e.b = append(e.b, 0)
	}
}

func (e *encoder) report(r *report) {
	e.flag(r != nil)
	if r != nil {
		e.flag(len(r.Holds) > 0)
		e.revisions(r.Seen)
	}
}

func (e *encoder) view(v *view) {
	for _, name := range names {
		m, ok := v.members[name]
		e.flag(ok)
		e.flag(len(m.holds) > 0)
		e.revisions(m.created, m.seen)
	}
	e.b = append(e.b, byte(len(v.eras)))
	for _, era := range v.eras {
		e.revisions(era.from) // which says who was there
	}
}

// model explores worlds.
type model struct {
	n       int // how many processes take part
	owner   func(there []string) string
	changes int // how many joins and leaves there may be
	blocker func(v *view, key string) string
	seen    map[string]bool
	taken   int // how often the key was taken
}

func (m *model) place(there []string) placement {
	owner := m.owner(there)
	return func(string) string { return owner }
}

// explore tries all that can happen in w, and returns how it went wrong, oldest step first.
func (m *model) explore(w *world) (trail []string) {
	id := w.id()
	if m.seen[id] {
		return nil
	}
	m.seen[id] = true
	if fault := m.stuck(w); fault != "" {
		return []string{fault}
	}
	for i := range m.n {
		for _, step := range m.steps() {
			next := *w
			name, fault := step(&next, i)
			if fault != "" {
				return []string{names[i] + " " + name, fault}
			}
			if name == "" {
				continue // it cannot be
			}
			if trail := m.explore(&next); trail != nil {
				return append([]string{names[i] + " " + name}, trail...)
			}
		}
	}
	return nil
}

func (m *model) steps() []func(*world, int) (name, fault string) {
	return []func(*world, int) (string, string){
		m.join, m.deliver, m.take, m.release, m.compose, m.write, m.leave, m.expire,
	}
}

func (m *model) join(w *world, i int) (name, fault string) {
	p := &w.processes[i]
	if p.joined != 0 || w.there[i] != 0 || len(w.turns) == m.changes {
		return "", ""
	}
	p.written = report{Holds: inOrder(maps.Keys(p.held()))}
	p.joined = int64(len(w.log) + 1)
	w.append(i, change{created: p.joined, report: p.written})
	w.there[i], p.seen = p.joined, len(w.log)
	w.turns = append(slices.Clip(w.turns), p.joined)
	p.view = newView(names[i], p.joined, members(w.log), m.place)
	return fmt.Sprintf("joins at %d", p.joined), ""
}

// members returns who is there at the end of log.
func members(log []change) map[string]member {
	all := map[string]member{}
	for _, c := range log {
		if c.left {
			delete(all, c.name)
		} else {
			all[c.name] = c.member
		}
	}
	return all
}

func (m *model) deliver(w *world, i int) (name, fault string) {
	p := &w.processes[i]
	if p.joined == 0 || p.seen == len(w.log) {
		return "", ""
	}
	c := w.log[p.seen]
	p.seen++
	v := *p.view
	v.members, v.eras, v.suspects = maps.Clone(v.members), slices.Clone(v.eras), nil
	p.view = &v
	switch {
	case c.left && c.name == names[i]:
		p.joined, p.pending, p.view = 0, nil, nil
	case c.left:
		v.deleted(int64(p.seen), c.name)
	default:
		v.put(int64(p.seen), c.name, c.member)
	}
	return fmt.Sprintf("sees %d", p.seen), ""
}

// take checks what all this is for.
func (m *model) take(w *world, i int) (name, fault string) {
	p := &w.processes[i]
	if !w.live(i) || p.holds != 0 { // the deadline tells it that it may not be live
		return "", ""
	}
	if !p.view.owns(theKey) || m.blocker(p.view, theKey) != "" {
		return "", ""
	}
	m.taken++
	p.holds = p.joined
	name = takes
	for j, other := range w.processes {
		if j == i || other.holds == 0 {
			continue
		}
		if w.there[j] == other.holds {
			return name, names[j] + " holds it"
		}
		if known, ok := p.view.members[names[j]]; ok && known.created == other.joined {
			return name, names[j] + " has come back with it in hands, which is known"
		}
	}
	return name, ""
}

func (m *model) release(w *world, i int) (name, fault string) {
	p := &w.processes[i]
	if p.holds == 0 {
		return "", ""
	}
	p.holds = 0
	return "releases the key", ""
}

func (m *model) compose(w *world, i int) (name, fault string) {
	p := &w.processes[i]
	if p.joined == 0 || p.pending != nil {
		return "", ""
	}
	r := p.view.report(p.held())
	if !p.view.news(p.written, r) {
		return "", ""
	}
	p.pending = &r
	return fmt.Sprintf("composes a report as of %d, with %d keys", r.Seen, len(r.Holds)), ""
}

func (m *model) write(w *world, i int) (name, fault string) {
	p := &w.processes[i]
	if p.pending == nil || !w.live(i) {
		return "", ""
	}
	p.written, p.pending = *p.pending, nil
	w.append(i, change{created: p.joined, report: p.written})
	return fmt.Sprintf("writes it at %d", len(w.log)), ""
}

// leave is a member's own wish, so it holds nothing.
func (m *model) leave(w *world, i int) (name, fault string) {
	p := &w.processes[i]
	if !w.live(i) || p.holds != 0 || len(w.turns) == m.changes {
		return "", ""
	}
	m.end(w, i)
	p.joined, p.pending, p.view = 0, nil, nil
	return fmt.Sprintf("leaves at %d", len(w.log)), ""
}

// expire ends the lease of a member, which may take long to notice.
func (m *model) expire(w *world, i int) (name, fault string) {
	p := &w.processes[i]
	if !w.live(i) || p.holds == 0 || len(w.turns) == m.changes {
		return "", ""
	}
	m.end(w, i)
	return fmt.Sprintf("loses its lease at %d", len(w.log)), ""
}

func (m *model) end(w *world, i int) {
	w.there[i] = 0
	w.append(i, change{left: true})
	w.turns = append(slices.Clip(w.turns), int64(len(w.log)))
}

// stuck reports a key that its owner cannot take although everybody has seen, said and
// released everything.
func (m *model) stuck(w *world) string {
	for i, p := range w.processes {
		if p.holds != 0 || w.there[i] != p.joined {
			return ""
		}
		if p.joined == 0 {
			continue
		}
		if p.seen != len(w.log) || p.pending != nil || p.view.news(p.written, p.view.report(nil)) {
			return ""
		}
	}
	for i, p := range w.processes {
		if p.joined == 0 || !p.view.owns(theKey) {
			continue
		}
		if name := m.blocker(p.view, theKey); name != "" {
			return fmt.Sprintf("the key is %s's, which waits for %s for ever", names[i], name)
		}
	}
	return ""
}

// tables yields the tables of owners for three names, but for those that are another one
// with the names exchanged.
func tables(yield func(map[string]string) bool) {
	sets := []string{"ab", "ac", "bc", "abc"}
	for n := range 2 * 2 * 2 * 3 {
		table := map[string]string{"a": "a", "b": "b", "c": "c"}
		for _, set := range sets {
			table[set] = string(set[n%len(set)])
			n /= len(set)
		}
		if first(table, sets) && !yield(table) {
			return
		}
	}
}

// first reports whether no exchange of names makes table come earlier in the alphabet.
func first(table map[string]string, sets []string) bool {
	text := func(exchange string) (s string) {
		name := func(c string) string { return string(exchange[c[0]-'a']) }
		renamed := map[string]string{}
		for set, owner := range table {
			var to []string
			for _, c := range set {
				to = append(to, name(string(c)))
			}
			slices.Sort(to)
			renamed[strings.Join(to, "")] = name(owner)
		}
		for _, set := range sets {
			s += renamed[set]
		}
		return s
	}
	for _, exchange := range []string{"acb", "bac", "bca", "cab", "cba"} {
		if text(exchange) < text("abc") {
			return false
		}
	}
	return true
}

// check tries all tables, first with nobody there and so many joins and leaves, then with all
// three there and two less. It returns the first trail that went wrong, and how many worlds there were.
func check(changes int, blocker func(*view, string) string) (trail []string, worlds, taken int) {
	for owners := range tables {
		for there, changes := range map[int]int{0: changes, 3: 3 + changes - 2} {
			owner := func(there []string) string { return owners[strings.Join(there, "")] }
			m := &model{n: 3, owner: owner, changes: changes, blocker: blocker, seen: map[string]bool{}}
			w := &world{}
			for i := range there {
				m.join(w, i)
				m.settle(w)
			}
			trail = m.explore(w)
			worlds += len(m.seen)
			taken += m.taken
			if trail != nil {
				return trail, worlds, taken
			}
		}
	}
	return nil, worlds, taken
}

// settle lets everybody see and report everything.
func (m *model) settle(w *world) {
	for again := true; again; {
		again = false
		for i := range m.n {
			for _, step := range []func(*world, int) (string, string){m.deliver, m.compose, m.write} {
				name, _ := step(w, i)
				again = again || name != ""
			}
		}
	}
}

// TestModel proves, for three replicas and as many joins and leaves as MODEL_CHANGES says, that
// a key is never held by two whose leases last, and never held back for good.
func TestModel(t *testing.T) {
	changes := 3
	if s := os.Getenv("MODEL_CHANGES"); s != "" {
		var err error
		if changes, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	trail, worlds, taken := check(changes, (*view).blocker)
	if trail != nil {
		t.Fatalf("after %d worlds:\n%s", worlds, strings.Join(trail, "\n"))
	}
	t.Logf("%d worlds, the key was taken %d times", worlds, taken)
	if taken == 0 {
		t.Error("the key was never taken: nothing was checked")
	}
}

// faults are rules that are wrong.
var faults = map[string]func(v *view, key string) string{
	"nobody waits": func(*view, string) string { return "" },
	"only what reports name is held": func(v *view, key string) string {
		return anyOther(v, func(name string, m member) bool { return m.holds[key] })
	},
	"what reports name is not held": func(v *view, key string) string {
		return anyOther(v, func(name string, m member) bool {
			m.holds = nil
			other := *v
			other.members = map[string]member{name: m}
			return other.mayHold(name, key)
		})
	},
	"only the last era before this one counts": func(v *view, key string) string {
		return anyOther(v, func(name string, m member) bool {
			last := v.eras[max(0, len(v.eras)-2)]
			return m.holds[key] || m.seen < v.eras[0].from || m.seen < v.now().from && last.owner(key) == name
		})
	},
	"the era of the report does not count": func(v *view, key string) string {
		return anyOther(v, func(name string, m member) bool {
			owned := func(e era) bool { return e.from > m.seen && e.owner(key) == name }
			return m.holds[key] || m.seen < v.eras[0].from || slices.ContainsFunc(v.eras, owned)
		})
	},
	"who joins does not wait for those of whom it knows too little": func(v *view, key string) string {
		return anyOther(v, func(name string, m member) bool {
			m.seen = max(m.seen, v.eras[0].from)
			other := *v
			other.members = map[string]member{name: m}
			return other.mayHold(name, key)
		})
	},
	"everybody waits for a report of this era, and of the next": func(v *view, key string) string {
		return anyOther(v, func(name string, m member) bool { return m.seen <= v.now().from })
	},
}

// TestModelFindsFaults gives the model rules that are wrong. That one of several eras is
// forgotten takes more than three replicas to do harm.
func TestModelFindsFaults(t *testing.T) {
	for name, blocker := range faults {
		if name == "only the last era before this one counts" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			for changes := 2; changes <= 3; changes++ { // a short trail is found soon
				if trail, worlds, _ := check(changes, blocker); trail != nil {
					t.Logf("found after %d worlds: %s", worlds, trail[len(trail)-1])
					return
				}
			}
			t.Error("not found")
		})
	}
}

// walk goes one way at random through the model with five processes and any number of joins
// and leaves, and returns what went wrong.
func walk(t *rapid.T, blocker func(*view, string) string) (trail []string, taken int) {
	seed := rapid.Uint32().Draw(t, "placement")
	owner := func(there []string) string {
		h := fnv.New32a()
		fmt.Fprint(h, seed, there)
		return there[h.Sum32()%uint32(len(there))]
	}
	m := &model{n: len(names), owner: owner, changes: math.MaxInt, blocker: blocker}
	w := &world{}
	for _, choice := range rapid.SliceOfN(rapid.IntRange(0, 9999), 20, 200).Draw(t, "choices") {
		can := m.possible(w, choice%4 == 0)
		if len(can) == 0 {
			continue
		}
		next := can[choice/4%len(can)]
		trail = append(trail, next.name)
		if next.fault != "" {
			return append(trail, next.fault), taken
		}
		if strings.HasSuffix(next.name, takes) {
			taken++
		}
		if w = next.w; m.stuck(w) != "" {
			return append(trail, m.stuck(w)), taken
		}
	}
	return nil, taken
}

type outcome struct {
	w           *world
	name, fault string
}

// possible returns what can happen in w. Members come and go only if turns says so: else the
// rest would hardly get its turn.
func (m *model) possible(w *world, turns bool) (all []outcome) {
	for i := range m.n {
		for n, step := range m.steps() {
			if turn := n == 0 || n >= 6; turn && !turns {
				continue
			}
			next := *w
			if name, fault := step(&next, i); name != "" {
				all = append(all, outcome{&next, names[i] + " " + name, fault})
			}
		}
	}
	return all
}

func TestPropertyModel(t *testing.T) {
	taken := 0
	rapid.Check(t, func(t *rapid.T) {
		trail, n := walk(t, (*view).blocker)
		if taken += n; trail != nil {
			t.Fatal(strings.Join(trail, "\n"))
		}
	})
	if taken == 0 {
		t.Error("the key was never taken: nothing was checked")
	}
}

// TestPropertyModelFindsFaults is TestModelFindsFaults for walks.
func TestPropertyModelFindsFaults(t *testing.T) {
	for name, blocker := range faults {
		t.Run(name, func(t *testing.T) {
			for seed := range 20000 {
				trail := rapid.Custom(func(t *rapid.T) []string {
					trail, _ := walk(t, blocker)
					return trail
				}).Example(seed)
				if trail != nil {
					t.Logf("found by walk %d: %s", seed, trail[len(trail)-1])
					return
				}
			}
			t.Error("not found")
		})
	}
}

// anyOther returns the name of another member of which bad is true, or "".
func anyOther(v *view, bad func(name string, m member) bool) string {
	for name, m := range v.members {
		if name != v.self && bad(name, m) {
			return name
		}
	}
	return ""
}
