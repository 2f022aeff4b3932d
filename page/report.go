package page

import (
	"cmp"
	"errors"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"
)

// report is the answer to a query: what JSON shows, and HTML besides.
type report struct {
	Title      string      `json:"title"`
	At         time.Time   `json:"at"`
	StuckAfter seconds     `json:"stuckAfterSeconds"`
	Stuck      *list[item] `json:"stuck,omitempty"`
	Queues     list[queue] `json:"queues"`
	Query      query       `json:"-"`
	Timeless   int         `json:"-"` // queues that process, and do not tell for how long
}

// list is the beginning of a list.
type list[E any] struct {
	Total    int `json:"total"`
	Matching int `json:"matching"` // of all, those that the filter lets through
	Items    []E `json:"items"`    // of those, the first
}

// Left returns how many match and are not there.
func (l list[E]) Left() int { return l.Matching - len(l.Items) }

// item is a key.
type item struct {
	Queue    string   `json:"queue,omitempty"` // where there are several
	Key      string   `json:"key"`
	KeyBytes int      `json:"keyBytes,omitempty"`
	Position int      `json:"position,omitempty"` // in line, from 1
	For      *seconds `json:"forSeconds,omitempty"`
	In       *seconds `json:"inSeconds,omitempty"`
	Stuck    bool     `json:"stuck,omitempty"`
}

// queue is what is shown of one.
type queue struct {
	ID         int      `json:"-"` // of the Entry
	Name       string   `json:"name"`
	ShutDown   bool     `json:"shutDown"`
	Stuck      bool     `json:"stuck"`
	Oldest     *seconds `json:"oldestSeconds"`
	Unfinished seconds  `json:"unfinishedSeconds"`
	Ready      int      `json:"ready"`
	Processing int      `json:"processing"`
	Waiting    int      `json:"waiting"`
	Adds       counter  `json:"adds"`
	Merged     counter  `json:"merged"`
	Retries    counter  `json:"retries"`
	Dropped    counter  `json:"dropped"`
	StrayDones counter  `json:"strayDones"`
	RateOver   seconds  `json:"rateSeconds"`
	Keys       *keys    `json:"keys,omitempty"`
	History    []point  `json:"history,omitempty"`
	ReadyChart *chart   `json:"-"`
	Charts     *charts  `json:"-"`
}

// charts are those of a queue's own page.
type charts struct{ Oldest, Processing, Ready, Waiting, Adds chart }

// counter is a counter, and how fast it rises.
type counter struct {
	Total     uint64   `json:"total"`
	PerSecond *float64 `json:"perSecond"`
}

// keys are a queue's.
type keys struct {
	Processing *list[item] `json:"processing"` // nil if the queue does not tell
	Ready      list[item]  `json:"ready"`
	Waiting    list[item]  `json:"waiting"`
}

// point is a sample.
type point struct {
	Ago        seconds  `json:"agoSeconds"`
	Oldest     *seconds `json:"oldestSeconds"`
	Ready      int      `json:"ready"`
	Processing int      `json:"processing"`
	Waiting    int      `json:"waiting"`
	Adds       uint64   `json:"adds"`
}

var errNoQueue = errors.New("there is no queue of this name: it was removed, or has been collected")

// report answers a query. Nothing in the answer keeps a queue alive, or changes.
func (p *Page) report(q query) (*report, error) {
	r := &report{Title: p.opts.Title, At: time.Now().UTC(), StuckAfter: seconds(p.opts.Stuck), Query: q}
	all := p.look()
	r.Queues = list[queue]{Total: len(all), Items: []queue{}}
	all = slices.DeleteFunc(all, func(s seen) bool {
		if q.Queue != "" {
			return s.name != q.Queue && plain(s.name) != q.Queue
		}
		return !has(s.name, q.Name)
	})
	if q.Queue != "" && len(all) == 0 {
		return r, errNoQueue
	}
	// What is stuck comes first, and the others keep their places from one look to the next.
	slices.SortStableFunc(all, func(a, b seen) int { return cmp.Compare(p.late(b), p.late(a)) })
	r.Queues.Matching = len(all)
	if q.Queue == "" {
		r.Stuck = &list[item]{Items: []item{}}
	}
	f := &filter{key: q.Key, limit: q.Limit, room: maxLimit, stuck: p.opts.Stuck}
	if q.Queue != "" {
		f.room = len(all) * 3 * maxLimit // all three lists of a queue have as much as is asked for
	}
	for i := range all {
		s := &all[i]
		contents := sync.OnceValue(s.queue.contents) // never, if no keys are shown
		if r.Stuck != nil && p.late(*s) > 0 {
			f.addStuck(r.Stuck, s.name, contents().processing)
		}
		if s.timeless() {
			r.Timeless++
		}
		if i < q.Limit || q.Queue != "" { // of one name there are few
			r.Queues.Items = append(r.Queues.Items, p.describe(s, q, f, contents))
		}
	}
	return r, nil
}

// late returns how long something is processed in s, if that is too long, and else 0.
func (p *Page) late(s seen) time.Duration {
	if s.now.LongestProcessing < p.opts.Stuck {
		return 0
	}
	return s.now.LongestProcessing
}

// timeless reports whether something is processed and nobody knows for how long.
func (s *seen) timeless() bool { return s.now.Processing > 0 && s.now.LongestProcessing == 0 }

// describe returns what is shown of a queue.
func (p *Page) describe(s *seen, q query, f *filter, contents func() contents) queue {
	from, over := s.since()
	count := func(of func(sample) uint64) counter {
		c := counter{Total: of(s.now)}
		if over > 0 {
			rate := rise(of(from), of(s.now)) / over.Seconds()
			c.PerSecond = &rate
		}
		return c
	}
	d := queue{
		ID: s.id, Name: s.name, ShutDown: s.shutDown, Stuck: p.late(*s) > 0,
		Oldest: s.now.oldest(), Unfinished: seconds(s.now.UnfinishedWork),
		Ready: s.now.Ready, Processing: s.now.Processing, Waiting: s.now.Waiting,
		Adds:       count(adds),
		Merged:     count(func(s sample) uint64 { return s.Merged }),
		Retries:    count(func(s sample) uint64 { return s.Retries }),
		Dropped:    count(func(s sample) uint64 { return s.Dropped }),
		StrayDones: count(func(s sample) uint64 { return s.StrayDones }),
		RateOver:   seconds(over),
	}
	if q.Queue != "" || q.Key != "" {
		d.Keys = f.keys(contents())
	}
	if q.Queue == "" {
		c := draw(s.columns(ready))
		d.ReadyChart = &c
	} else {
		d.Charts, d.History = s.charts(), s.history()
	}
	return d
}

// The values of a sample that charts show.
func ready(s sample) float64      { return float64(s.Ready) }
func processing(s sample) float64 { return float64(s.Processing) }
func waiting(s sample) float64    { return float64(s.Waiting) }
func age(s sample) float64        { return s.LongestProcessing.Seconds() }
func adds(s sample) uint64        { return s.Adds }

func (s *seen) charts() *charts {
	return &charts{
		Oldest:     draw(s.columns(age)),
		Processing: draw(s.columns(processing)),
		Ready:      draw(s.columns(ready)),
		Waiting:    draw(s.columns(waiting)),
		Adds:       draw(s.rates(adds)),
	}
}

func (s *seen) history() []point {
	all := make([]point, len(s.samples))
	for i, one := range s.samples {
		ago := max(0, s.now.at-one.at)
		all[i] = point{seconds(ago), one.oldest(), one.Ready, one.Processing, one.Waiting, one.Adds}
	}
	return all
}

// oldest returns how long something has been processed, and nil if nothing is, or nobody knows.
func (s *sample) oldest() *seconds {
	if s.LongestProcessing == 0 {
		return nil
	}
	d := seconds(s.LongestProcessing)
	return &d
}

// filter chooses the keys of a report.
type filter struct {
	key   string
	limit int           // of one list
	room  int           // for all lists that are still to come
	stuck time.Duration // from when on something is
}

func (f *filter) keys(c contents) *keys {
	var k keys
	if c.processing.at != nil {
		held := f.take(c.processing, f.held)
		k.Processing = &held
	}
	k.Ready = f.take(c.ready, func(it *item, i int, _ time.Duration) { it.Position = i + 1 })
	k.Waiting = f.take(c.waiting, func(it *item, _ int, d time.Duration) {
		in := seconds(d)
		it.In = &in
	})
	return &k
}

// held says how long an item has been processed, if anybody knows.
func (f *filter) held(it *item, _ int, d time.Duration) {
	if d > 0 {
		age := seconds(d)
		it.For, it.Stuck = &age, d >= f.stuck
	}
}

// take returns the beginning of a line, with what complete adds to each item, and makes the room
// smaller.
func (f *filter) take(l line, complete func(it *item, i int, d time.Duration)) list[item] {
	taken := f.pick(l, min(f.limit, f.room), complete)
	f.room -= len(taken.Items)
	return taken
}

// pick returns at most n items of a line. Keys that are neither shown nor searched are not
// looked at.
func (f *filter) pick(l line, n int, complete func(it *item, i int, d time.Duration)) list[item] {
	picked := list[item]{Total: l.n, Items: []item{}}
	for i := range l.n {
		if f.key == "" && len(picked.Items) == n {
			break
		}
		key, d := l.at(i)
		s := text(key)
		if !has(s, f.key) {
			continue
		}
		picked.Matching++
		if len(picked.Items) < n {
			var it item
			it.Key, it.KeyBytes = cut(s)
			complete(&it, i, d)
			picked.Items = append(picked.Items, it)
		}
	}
	if f.key == "" {
		picked.Matching = l.n
	}
	return picked
}

// has reports whether part stands in s, as it is or as it is shown.
func has(s, part string) bool {
	return strings.Contains(s, part) || strings.Contains(part, `\`) && strings.Contains(plain(s), part)
}

// addStuck adds to all what is stuck in processing, which is sorted, longest first, as all is.
func (f *filter) addStuck(all *list[item], queue string, processing line) {
	n := sort.Search(processing.n, func(i int) bool {
		_, d := processing.at(i)
		return d < f.stuck
	})
	stuck := f.pick(line{n, processing.at}, f.limit, func(it *item, i int, d time.Duration) {
		it.Queue = queue
		f.held(it, i, d)
	})
	all.Total += stuck.Total
	all.Matching += stuck.Matching
	all.Items = append(all.Items, stuck.Items...)
	slices.SortStableFunc(all.Items, func(a, b item) int { return cmp.Compare(*b.For, *a.For) })
	all.Items = all.Items[:min(len(all.Items), f.limit)]
}
