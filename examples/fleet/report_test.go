package main

import (
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestArguments(t *testing.T) {
	for _, args := range [][]string{
		{"stranger"}, {"-keys", "0"}, {"-replicas", "2"}, {"-ttl", "1ms"}, {"-rate", "0"}, {"-workers", "0"}, {"-measure", "-chart", "x.svg"}, {"-unknown"},
	} {
		if code := run(t.Context(), args, io.Discard, io.Discard); code != exitUsage {
			t.Errorf("%q: exit code %d", args, code)
		}
	}
}

func TestLedger(t *testing.T) {
	l := newLedger()
	marks := strings.NewReader(`{"at":1,"what":"begin","key":"a","lease":7,"epoch":3}
{"at":2,"what":"begin","key":"b","lease":7,"epoch":3}
{"at":3,"what":"write","key":"a"}
{"at":4,"what":"end","key":"a","outcome":"accepted"}
{"at":5,"what":"begin","key":"c","lease":7,"epoch":3}
{"at":6,"what":"write","key":"c"}
`)
	if err := l.read("r1", marks); err != nil {
		t.Fatal(err)
	}
	if l.working("r1") != 1 || l.working("r2") != 0 || l.told("r1") != 6 || l.lease("r1") != 7 {
		t.Errorf("working %d, told %d, lease %d", l.working("r1"), l.told("r1"), l.lease("r1"))
	}
	if got := l.tally("r1"); got[accepted] != 1 || got[""] != 2 {
		t.Errorf("tally %v", got)
	}
	if a := l.hands[0]; *a != (hand{key: "a", lease: 7, epoch: 3, from: 1, to: 4, writing: true, outcome: accepted}) {
		t.Errorf("first hand %+v", a)
	}
	if b := l.hands[1]; b.to != forever {
		t.Errorf("second hand %+v", b)
	}
	if !l.heldBy(map[string]string{"a": "r1", "b": "r1"}) || l.heldBy(map[string]string{"a": "r1", "z": "r1"}) || l.heldBy(map[string]string{"a": "r2"}) {
		t.Error("heldBy is wrong")
	}
	for _, line := range []string{
		`{"what":"begin","key":"b"}`, // it has it
		`{"what":"write","key":"a"}`, // it has not
		`{"what":"end","key":"a"}`,
		`{`,
	} {
		if err := l.read("r1", strings.NewReader(line)); err == nil {
			t.Errorf("%s was taken", line)
		}
	}
}

func TestLatencies(t *testing.T) {
	f := &fleet{observer: newObserver(), writer: newWriter(nil, 1, 1), steps: []span{{100, 200}}}
	f.writer.written = map[string][]moment{
		"a": {{1, 10}, {2, 20}, {9, 110}, {12, 300}, {20, 400}}, // the last came and went
		"b": {{6, 90}},                                          // it had to wait
	}
	f.observer.effects = map[string][]moment{
		"a": {{3, 25}, {10, 150}, {13, 310}},
		"b": {{11, 210}},
	}
	calm, during := f.latencies()
	if !slices.Equal(calm, []time.Duration{5, 10, 15}) || !slices.Equal(during, []time.Duration{40, 120}) {
		t.Errorf("calm %v, during %v", calm, during)
	}
}

func TestGap(t *testing.T) {
	f := &fleet{observer: newObserver(), struck: map[int64]strike{1: {"r1", killed, 100}}}
	f.observer.seen = []moment{{5, 500}, {6, 600}}
	moved := map[string]*hand{"a": {from: 610}, "b": {from: 650}, "later": {from: 9000}}
	there := map[string]bool{"a": true, "b": true}
	left := &turn{revision: 5, lease: 1, moved: moved, keys: there, live: []string{"r2"}}
	came := &turn{revision: 6, lease: 2, joined: true, moved: moved, keys: there, live: []string{"r2", "r3"}}
	if f.gap(left) != 550 || f.gap(came) != 50 {
		t.Errorf("gaps %d, %d", f.gap(left), f.gap(came))
	}
	if left.ideal() != 1 || came.ideal() != 1 {
		t.Errorf("ideals %v, %v", left.ideal(), came.ideal())
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
