package page

import "time"

// This file is how the template sees a report.

// view is a queue and the query that it is shown for.
type view struct {
	Queue queue
	Query query
}

// label returns a name as an item, since names are shown as keys are.
func label(name string) item {
	head, bytes := cut(name)
	return item{Key: head, KeyBytes: bytes}
}

// Age returns for how long something is processed at most, in words.
func (q queue) Age() string {
	switch {
	case q.Oldest != nil:
		return q.Oldest.String()
	case q.Processing > 0:
		return "unknown"
	}
	return "–"
}

// Rate returns how fast a counter rises, in words.
func (c counter) Rate() string {
	if c.PerSecond == nil {
		return "–"
	}
	return perSecond(*c.PerSecond)
}

// Due returns when an item is due, in words.
func (it item) Due() string {
	if *it.In == 0 {
		return "now"
	}
	return "in " + it.In.String()
}

// figure is a value, and how it has been.
type figure struct {
	Name, Value string
	Chart       chart
	Most        string // the highest value in the chart, in words
	Late        bool
}

// Figures returns the figures of a queue's own page.
func (q queue) Figures() []figure {
	count := func(v float64) string { return grouped(int(v)) }
	age := func(v float64) string { return seconds(v * float64(time.Second)).String() }
	return []figure{
		{"Oldest in processing", q.Age(), q.Charts.Oldest, q.Charts.Oldest.most(age), q.Stuck},
		{"Processing", grouped(q.Processing), q.Charts.Processing, q.Charts.Processing.most(count), false},
		{"Ready", grouped(q.Ready), q.Charts.Ready, q.Charts.Ready.most(count), false},
		{"Waiting", grouped(q.Waiting), q.Charts.Waiting, q.Charts.Waiting.most(count), false},
		{"Adds per second", q.Adds.Rate(), q.Charts.Adds, q.Charts.Adds.most(perSecond), false},
	}
}

// most says what a chart shows.
func (c chart) most(text func(float64) string) string {
	if c.Blank == c.Width {
		return "no samples yet"
	}
	return "at most " + text(c.Max)
}

// explained is a counter, and what it counts.
type explained struct {
	Name, Meaning string
	counter
}

// Counters returns the counters of a queue's own page.
func (q queue) Counters() []explained {
	return []explained{
		{"Adds", "became ready, or was added while processed", q.Adds},
		{"Merged", "calls that changed nothing, because of an earlier one", q.Merged},
		{"Retries", "calls of AddRateLimited that counted", q.Retries},
		{"Dropped", "waited at shutdown, or was to wait after it", q.Dropped},
		{"Stray Dones", "Done of what was not processing: a fault of the program", q.StrayDones},
	}
}

// named is one of a queue's lists.
type named struct {
	Name, Order string
	List        list[item]
	Untold      bool
}

// Lists returns the lists of a queue's keys.
func (q queue) Lists() []named {
	held := named{Name: "Processing", Order: "longest first"}
	if q.Keys.Processing != nil {
		held.List = *q.Keys.Processing
	} else {
		held.List.Total, held.List.Matching, held.Untold = q.Processing, q.Processing, q.Processing > 0
	}
	return []named{
		held,
		{"Ready", "next first", q.Keys.Ready, false},
		{"Waiting", "due first", q.Keys.Waiting, false},
	}
}

// Matching returns how many keys match.
func (k *keys) Matching() int {
	n := k.Ready.Matching + k.Waiting.Matching
	if k.Processing != nil {
		n += k.Processing.Matching
	}
	return n
}
