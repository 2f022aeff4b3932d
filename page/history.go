package page

import (
	"context"
	"math"
	"time"

	"example.com/typedqueue"
)

const (
	window = 5 * time.Minute        // how long samples are kept
	apart  = 500 * time.Millisecond // how long after a sample none is kept
	tick   = time.Second            // how often Record takes one
	column = 2 * time.Second        // of a chart; twice tick, so that a late one leaves no gap
)

// sample is what Stats returned at a moment.
type sample struct {
	at time.Duration // since Page.start
	typedqueue.Stats
}

// Record takes a sample of every queue now and each second until ctx is done, for the charts. It
// blocks, and starts no goroutine; run it in one. Without it there are samples only of the time
// when somebody looked. Several at once take no more. A nil ctx panics.
func (p *Page) Record(ctx context.Context) {
	if ctx == nil {
		panic("typedqueue: nil context")
	}
	t := time.NewTicker(tick)
	defer t.Stop()
	for ctx.Err() == nil {
		p.look()
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}
}

// seen is a queue that somebody looked at.
type seen struct {
	live
	now      sample
	shutDown bool
	samples  []sample // up to now, which may be left out; not to be changed
}

// look reads the Stats of all queues, and keeps them as samples.
func (p *Page) look() []seen {
	queues := p.live()
	all := make([]seen, len(queues))
	for i, l := range queues { // not under mu: each may wait for the queue's lock
		all[i] = seen{live: l, shutDown: l.queue.shutDown()}
		all[i].now = sample{time.Since(p.start), l.queue.stats()}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range all {
		all[i].samples = all[i].keep(all[i].now)
	}
	return all
}

// keep adds s, unless it comes too soon after the last, drops what is too old, and returns what
// there is. Needs mu. The slice may be read without: elements are written once, before they are
// part of any slice that was returned.
func (e *Entry) keep(s sample) []sample {
	if n := len(e.samples); n == 0 || s.at-e.samples[n-1].at >= apart {
		e.samples = append(e.samples, s)
	}
	old := 0
	for s.at-e.samples[old].at > window {
		old++
	}
	e.samples = e.samples[old:]
	return e.samples
}

// series is one value per column of a chart, up to now; NaN where there was no sample.
type series []float64

// columns returns the highest value of the samples in each column. Columns lie at fixed times, so
// that a chart moves by whole columns and keeps its shape.
func (s *seen) columns(value func(sample) float64) series {
	cols := blank()
	for _, one := range s.samples {
		if c := s.column(one, len(cols)); c >= 0 && !(cols[c] >= value(one)) { // also if NaN
			cols[c] = value(one)
		}
	}
	return cols
}

// rates returns how fast counter has risen to the last sample of each column from that of the
// column before; NaN if either has none.
func (s *seen) rates(counter func(sample) uint64) series {
	cols := blank()
	last := make([]*sample, len(cols))
	for i := range s.samples {
		if c := s.column(s.samples[i], len(cols)); c >= 0 {
			last[c] = &s.samples[i]
		}
	}
	for c := 1; c < len(cols); c++ {
		if from, to := last[c-1], last[c]; from != nil && to != nil {
			cols[c] = rise(counter(*from), counter(*to)) / (to.at - from.at).Seconds()
		}
	}
	return cols
}

// rise returns by how much a counter has risen. Of two who look at once, the one who began later
// may have asked the queue first.
func rise(from, to uint64) float64 { return float64(max(from, to) - from) }

// column returns in which of n columns a sample lies, and -1 if it is older. One that somebody
// else took since lies in the last.
func (s *seen) column(one sample, n int) int {
	return min(n-1, max(-1, n-1-int(s.now.at/column-one.at/column)))
}

func blank() series {
	cols := make(series, int(window/column))
	for i := range cols {
		cols[i] = math.NaN()
	}
	return cols
}

// since returns the oldest sample of the last minute, from which rates are told, and how long
// ago it was taken; 0 if there is none.
func (s *seen) since() (sample, time.Duration) {
	for _, one := range s.samples {
		if d := s.now.at - one.at; d > 0 && d <= time.Minute {
			return one, d
		}
	}
	return s.now, 0
}
