package main

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"example.com/typedqueue/etcd"
)

// An observer follows the run from outside, so that the parent knows when to go on, and how
// long things take. It decides nothing: the verdict is check's.
type observer struct {
	mu      sync.Mutex // guards everything below
	newest  int64      // the revision of the last event
	want    map[string]int64
	done    map[string]int64
	behind  int                 // how many keys have another effect than they should
	members map[string]bool     // who is there
	seen    []moment            // when each revision was seen, oldest first
	effects map[string][]moment // by key, oldest first
	last    int64               // when the last effect was seen
}

// A moment is when something was seen, or begun, that has a revision.
type moment struct {
	revision int64
	at       int64 // on the clock that the processes share
}

func newObserver() *observer {
	return &observer{
		want: map[string]int64{}, done: map[string]int64{}, members: map[string]bool{},
		effects: map[string][]moment{},
	}
}

func (o *observer) see(e event) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if e.revision > o.newest {
		o.seen = append(o.seen, moment{e.revision, now()})
	}
	o.newest = e.revision
	dir, name, _ := strings.Cut(e.key, "/")
	switch dir + "/" {
	case wantDir:
		revision := e.revision
		if e.deleted {
			revision = 0
		}
		o.set(o.want, name, revision)
	case doneDir:
		var did effect
		_ = json.Unmarshal(e.value, &did) // check complains
		o.set(o.done, name, did.Revision)
		o.last = now()
		o.effects[name] = append(o.effects[name], moment{e.revision, o.last})
	case memberDir:
		o.members[name] = !e.deleted
	}
	return true
}

// set notes the revision of a key, in want or in done, 0 if it has gone, and keeps behind
// right.
func (o *observer) set(in map[string]int64, key string, revision int64) {
	if o.want[key] != o.done[key] {
		o.behind--
	}
	if in[key] = revision; revision == 0 {
		delete(in, key)
	}
	if o.want[key] != o.done[key] {
		o.behind++
	}
}

// caughtUp reports whether all up to a revision has been seen, and every key has the effect
// of its newest change.
func (o *observer) caughtUp(revision int64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.newest >= revision && o.behind == 0
}

// lastEffect returns when the last effect was seen.
func (o *observer) lastEffect() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last
}

// effectsOf returns the effects of a key that have been seen so far, oldest first. Later ones do
// not change it.
func (o *observer) effectsOf(key string) []moment {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.effects[key]
}

// at returns when a revision was seen, or one after it.
func (o *observer) at(revision int64) int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	i, _ := slices.BinarySearchFunc(o.seen, revision, func(m moment, revision int64) int { return cmp.Compare(m.revision, revision) })
	if i == len(o.seen) {
		return now() // not yet
	}
	return o.seen[i].at
}

// has reports whether a replica is among the members.
func (o *observer) has(name string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.members[name]
}

// live returns the names of the members.
func (o *observer) live() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.liveLocked()
}

func (o *observer) liveLocked() (names []string) {
	for name, there := range o.members {
		if there {
			names = append(names, name)
		}
	}
	return names
}

// owners returns whom each key of the source belongs to.
func (o *observer) owners() map[string]string {
	o.mu.Lock()
	defer o.mu.Unlock()
	live := o.liveLocked()
	owners := make(map[string]string, len(o.want))
	for key := range o.want {
		owners[key] = etcd.OwnerOf(key, live)
	}
	return owners
}
