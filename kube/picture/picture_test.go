package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.com/typedqueue/kube/internal/sample"
)

// small is a short scenario, with depth, latency and retries.
var small = sample.Scenario{
	Objects: 50,
	Workers: 2,
	Work:    10 * time.Millisecond,
	Phases: []sample.Phase{
		{Name: "faults", Changes: 400, Every: 5 * time.Millisecond, Conflicts: 0.3, Errors: 0.1},
		{Name: "calm", Changes: 4, Every: time.Second},
	},
}

// recordSmall records small in a bubble, on both queues.
func recordSmall(t *testing.T) (all []recording) {
	t.Helper()
	for _, start := range []func() queue{newOurs, newClientGo} {
		synctest.Test(t, func(t *testing.T) {
			r, err := record(t.Context(), small, start())
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, r)
			time.Sleep(time.Minute) // client-go's queue has goroutines that find out later
		})
	}
	return all
}

func TestRecord(t *testing.T) {
	for _, r := range recordSmall(t) {
		depth, waits := 0, 0
		var longest time.Duration
		for i, pt := range r.points {
			if want := time.Duration(i+1) * window; pt.at != want {
				t.Errorf("%s: point %d is at %v, not %v", r.row.Name, i, pt.at, want)
			}
			depth, waits = max(depth, pt.depth), waits+len(pt.waited)
			for _, d := range pt.waited {
				longest = max(longest, d)
			}
		}
		if depth == 0 || longest < 2*small.Work {
			t.Errorf("%s: depths up to %d, latencies up to %v", r.row.Name, depth, longest)
		}
		last := r.points[len(r.points)-1]
		if last.phase != "calm" || last.retries != r.row.Retries || last.retries == 0 {
			t.Errorf("%s ends with %d retries in phase %q, not %d", r.row.Name, last.retries, last.phase, r.row.Retries)
		}
		if waits == 0 || waits > r.row.Reconciles { // not those after the last point
			t.Errorf("%s: %d latencies of %d reconciles", r.row.Name, waits, r.row.Reconciles)
		}
	}
}

func TestDraw(t *testing.T) {
	all := recordSmall(t)
	draw := func() string {
		svg, err := drawSVG([]string{"what ran", "on what"}, all)
		if err != nil {
			t.Fatal(err)
		}
		return string(svg)
	}
	svg := draw()
	if svg != draw() {
		t.Error("the same recordings give two pictures")
	}
	mustParse(t, svg)
	for _, want := range []string{
		"what ran", "on what", "ours", "client-go", "faults", "calm", // captions, legend, phases
		"depth", "latency", "retries", "seconds", "10 ms", // panels, axes
	} {
		if !strings.Contains(svg, ">"+want) {
			t.Errorf("no text begins with %q", want)
		}
	}
	for _, color := range []string{"#1A7F37", "#326CE5"} {
		if n := strings.Count(svg, "stroke:"+color); n < 4 {
			t.Errorf("%d lines in %s: there are three panels and a legend", n, color)
		}
	}
}

// mustParse checks that svg is XML.
func mustParse(t *testing.T, svg string) {
	t.Helper()
	for d := xml.NewDecoder(bytes.NewReader([]byte(svg))); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

func TestDrawNothing(t *testing.T) {
	if _, err := drawSVG(nil, []recording{{}}); err == nil {
		t.Error("no error of a recording without points")
	}
}

func TestRates(t *testing.T) {
	points := []point{{at: window, retries: 2}, {at: 2 * window, retries: 2}, {at: 3 * window, retries: 5}, {at: 4 * window, retries: 8}, {at: 5 * window, retries: 8}}
	for i, want := range []float64{8, 4, 20. / 3, 8, 6} {
		if got := rates(points)[i].Y; got < want-1e-9 || got > want+1e-9 {
			t.Errorf("rate %d is %v, not %v", i, got, want)
		}
	}
}

func TestPercentiles(t *testing.T) {
	ms := []time.Duration{0, 1e6, 2e6, 3e6, 4e6, 5e6, 6e6, 7e6, 8e6, 9e6}
	got := percentiles([]point{{}, {waited: ms}, {waited: ms[:1]}, {}, {}, {waited: ms[:2]}, {}})
	if len(got) != 2 || len(got[0]) != 2 || len(got[1]) != 1 {
		t.Fatalf("not one stretch of two points and one of one: %v", got)
	}
	if got[0][0].Y != 9e-3 || got[0][1].Y != 1e-6 || got[1][0].Y != 1e-3 {
		t.Errorf("not 9 ms, 1 µs instead of 0, and 1 ms: %v", got)
	}
}
