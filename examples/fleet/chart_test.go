package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestHoldings has a run in which r1 is killed, r3 joins, r2 is paused and comes back, and r3
// loses its lease. What happens at a revision is seen at ten times that.
func TestHoldings(t *testing.T) {
	marks := newLedger()
	marks.hands = []*hand{
		{key: "a", lease: 1, epoch: 2, from: 35, to: 38},
		{key: "a", lease: 1, epoch: 2, from: 79, to: forever}, // r1 is killed at 80
		{key: "a", lease: 2, epoch: 10, from: 105, to: 106},
		{key: "a", lease: 3, epoch: 20, from: 206, to: 207},

		{key: "b", lease: 2, epoch: 2, from: 55, to: 56},
		{key: "b", lease: 2, epoch: 10, from: 119, to: 125}, // r3 is seen to join at 120, and has to wait
		{key: "b", lease: 3, epoch: 12, from: 128, to: 129},
		{key: "b", lease: 4, epoch: 30, from: 295, to: 296}, // before the parent sees that r3's lease has ended

		{key: "c", lease: 2, epoch: 2, from: 58, to: 59},
		{key: "c", lease: 2, epoch: 12, from: 149, to: 212}, // r2 is paused at 150
		{key: "c", lease: 3, epoch: 20, from: 205, to: 206},
		{key: "c", lease: 2, epoch: 12, from: 211, to: 213}, // r2 goes on, and does not know yet
		{key: "c", lease: 4, epoch: 22, from: 230, to: 231},
	}
	f := &fleet{
		options: options{replicas: 2}, observer: newObserver(), marks: marks,
		processes: []*process{{name: "r1"}, {name: "r2"}, {name: "r3"}},
		struck:    map[int64]strike{1: {"r1", killed, 80}, 2: {"r2", paused, 150}},
		resumed:   []happening{{210, "r2 goes on"}},
	}
	history := []event{
		{revision: 1, key: memberDir + "r1", lease: 1},
		{revision: 2, key: memberDir + "r2", lease: 2},
		{revision: 3, key: wantDir + "a"},
		{revision: 4, key: wantDir + "b"},
		{revision: 5, key: wantDir + "c"},
		{revision: 6, key: wantDir + "c", deleted: true},
		{revision: 7, key: wantDir + "c"},
		{revision: 8, key: wantDir + "c"}, // changed
		{revision: 10, key: memberDir + "r1", deleted: true},
		{revision: 12, key: memberDir + "r3", lease: 3},
		{revision: 20, key: memberDir + "r2", deleted: true},
		{revision: 22, key: memberDir + "r2", lease: 4},
		{revision: 30, key: memberDir + "r3", deleted: true},
	}
	for _, e := range history {
		f.observer.seen = append(f.observer.seen, moment{e.revision, 10 * e.revision})
	}
	found := check(history, marks.hands)
	found.history = history
	h := f.holdings(found)

	byTime := func(a, b span) int { return int(a.from - b.from) }
	for name := range h.held {
		slices.SortFunc(h.held[name], byTime)
	}
	slices.SortFunc(h.source, byTime)
	if want := map[string][]span{
		"r1": {{35, 80}},
		"r2": {{55, 125}, {58, 60}, {70, 150}, {105, 150}, {230, forever}, {295, forever}},
		"r3": {{128, 295}, {205, 220}, {206, 300}},
	}; !reflect.DeepEqual(h.held, want) {
		t.Errorf("held %v, want %v", h.held, want)
	}
	if want := []span{{30, forever}, {40, forever}, {50, 60}, {70, forever}}; !slices.Equal(h.source, want) {
		t.Errorf("source %v, want %v", h.source, want)
	}
	if want := []happening{
		{80, "r1 is killed"}, {100, "r1's lease ends"}, {120, "r3 joins"}, {150, "r2 is paused"},
		{200, "r2's lease ends"}, {210, "r2 goes on"}, {220, "r2 joins"}, {300, "r3's lease ends"},
	}; !slices.Equal(h.happened, want) {
		t.Errorf("happened %v, want %v", h.happened, want)
	}
}

const second = int64(time.Second)

// drawn is what has been found in a picture.
type drawn struct {
	texts []string
	paths map[string]string // what is filled with a color
	boxes int               // in all the picture, behind all else
}

// parseSVG reads a picture, which must be XML.
func parseSVG(t *testing.T, text []byte) drawn {
	t.Helper()
	d := drawn{paths: map[string]string{}}
	tokens := xml.NewDecoder(bytes.NewReader(text))
	var names []string // of the elements that are open
	for {
		token, err := tokens.Token()
		if err == io.EOF {
			return d
		}
		must(t, err)
		switch token := token.(type) {
		case xml.StartElement:
			names = append(names, token.Name.Local)
			attrs := map[string]string{}
			for _, a := range token.Attr {
				attrs[a.Name.Local] = a.Value
			}
			switch token.Name.Local {
			case "path":
				d.paths[attrs["fill"]] = attrs["d"]
			case "rect":
				if len(d.texts)+len(d.paths) == 0 && attrs["fill"] == "#ffffff" && attrs["width"] == fmt.Sprint(chartWidth) {
					d.boxes++
				}
			case "svg", "title", "text":
			default:
				t.Errorf("an element %q", token.Name.Local)
			}
		case xml.EndElement:
			names = names[:len(names)-1]
		case xml.CharData:
			if len(names) > 0 && names[len(names)-1] == "text" {
				d.texts = append(d.texts, string(token))
			}
		}
	}
}

// TestChart has two keys, of which a replica holds one for half of the time.
func TestChart(t *testing.T) {
	const hostile = `</text><script>alert("&amp;")</script>` + "\x01\xff"
	h := &holdings{
		replicas: []string{hostile},
		held:     map[string][]span{hostile: {{100, 100 + 5*second}}},
		source:   []span{{100, forever}, {100, forever}},
		happened: []happening{{100 + 5*second, hostile + " is killed"}, {100 + 10*second, "the end"}},
	}
	text, err := h.svg("Keys & <replicas>", "of a test")
	must(t, err)
	d := parseSVG(t, text)
	if d.boxes != 1 {
		t.Error("no background")
	}
	shown := strings.NewReplacer("\x01", "\ufffd", "\xff", "\ufffd").Replace(hostile)
	for _, want := range []string{
		"Keys & <replicas>", "of a test", "keys", "seconds since the first key", "0", "1", "2", "10",
		shown, "nobody", shown + " is killed", "the end",
	} {
		if !slices.Contains(d.texts, want) {
			t.Errorf("%q is missing among %q", want, d.texts)
		}
	}
	c := chart{most: 2, top: lanesTop + lane + 6}
	none, one, two := c.y(0), c.y(1), c.y(2)
	if none != c.top+plotHeight || two != c.top || 2*one != none+two {
		t.Errorf("numbers are at %v, %v, %v", none, one, two)
	}
	left, right := plotLeft, plotLeft+plotWidth
	middle := (left + right) / 2
	want := map[string]string{
		bandColors[0]: fmt.Sprintf("M%d %vH%dV%vH%dV%vH%dZ", left, one, middle, none, right, none, left),
		nobodyColor:   fmt.Sprintf("M%d %vH%dV%vH%dV%vH%dZ", left, two, right, none, middle, one, left),
	}
	for color, path := range want {
		if d.paths[color] != path {
			t.Errorf("the band of %s is %s, want %s", color, d.paths[color], path)
		}
	}
}

// TestChartOfLittle draws what hardly can be drawn.
func TestChartOfLittle(t *testing.T) {
	for _, h := range []*holdings{
		{},
		{replicas: []string{"r1", "r2"}, source: []span{{5, 6}}, happened: []happening{{1, "before"}}},
	} {
		text, err := h.svg("", "")
		must(t, err)
		if d := parseSVG(t, text); slices.Contains(d.texts, "r1") || bytes.Contains(text, []byte("NaN")) {
			t.Errorf("%s", text)
		}
	}
}

// TestMarks crowds the picture with what happened.
func TestMarks(t *testing.T) {
	c := &chart{to: 20 * second}
	var happened []happening
	for i := range int64(40) {
		happened = append(happened, happening{i * i * second / 80, strings.Repeat("x", int(i)%17)})
	}
	happened = append(happened, happening{20 * second, "at the very end"})
	lanes := c.placeMarks(happened)
	end := make([]float64, lanes)
	for i, m := range c.marks {
		if m.x != c.x(happened[i].at) || m.text != happened[i].what {
			t.Errorf("mark %d is %+v", i, m)
		}
		if m.left < end[m.lane] || m.right > chartWidth {
			t.Errorf("%+v covers another, or is cut off", m)
		}
		end[m.lane] = m.right
	}
	if lanes < 2 || lanes > 20 || slices.Min(end) == 0 {
		t.Errorf("%d lanes, which end at %v", lanes, end)
	}
}

// TestBandLabels has a band that is too low, then high, and has a mark in the middle.
func TestBandLabels(t *testing.T) {
	c := &chart{most: 100, marks: []markLabel{{x: plotLeft + 400}}}
	upper := slices.Repeat([]int{1}, plotWidth)
	for x := 300; x < 500; x++ {
		upper[x] = 50
	}
	labels := c.bandLabels(make([]int, plotWidth), upper, "name", "red")
	if len(labels) != 1 {
		t.Fatalf("%d labels", len(labels))
	}
	half := (4*charWidth + 12) / 2
	switch l := labels[0].(svgText); {
	case l.Text != "name" || l.Fill != "red":
		t.Errorf("label %+v", l)
	case l.X-half < plotLeft+300 || l.X+half > plotLeft+500:
		t.Errorf("the label at %v leaves its band", l.X)
	case l.X-half < plotLeft+400 && plotLeft+400 < l.X+half:
		t.Errorf("the label at %v covers the mark", l.X)
	case l.Y-4 != (c.y(0)+c.y(50))/2:
		t.Errorf("the label is at %v", l.Y)
	}
	if labels := c.bandLabels(make([]int, plotWidth), upper, strings.Repeat("long", 10), "red"); len(labels) > 0 {
		t.Errorf("labels %v do not fit", labels)
	}

	lower := make([]int, plotWidth)
	for x := range upper {
		upper[x] = 10 + 40*(x%2)
	}
	labels = c.bandLabels(lower, upper, "name", "red")
	if len(labels) != 1 || labels[0].(svgText).Y-4 != tenth((c.y(0)+c.y(10))/2) {
		t.Errorf("labels %v between teeth", labels)
	}
	for x := range upper { // high enough everywhere, but no box of the label's width is
		lower[x], upper[x] = x/10, x/10+8
	}
	if labels := c.bandLabels(lower, upper, "name", "red"); len(labels) > 0 {
		t.Errorf("labels %v on a slope", labels)
	}
}

// TestSeen has an observer tell when it saw what.
func TestSeen(t *testing.T) {
	before := now()
	o := newObserver()
	for _, e := range []event{{revision: 3, key: wantDir + "a"}, {revision: 3, key: wantDir + "b"}, {revision: 5, key: endKey}} {
		o.see(e)
	}
	if len(o.seen) != 2 || o.at(1) != o.seen[0].at || o.at(3) != o.seen[0].at || o.at(4) != o.seen[1].at {
		t.Errorf("seen %v", o.seen)
	}
	if o.at(3) < before || o.at(5) < o.at(3) || o.at(6) < o.at(5) {
		t.Errorf("at %d: %d, %d, %d", before, o.at(3), o.at(5), o.at(6))
	}
}

func TestNice(t *testing.T) {
	for most, want := range map[int]int{0: 1, 7: 1, 8: 2, 15: 5, 30: 5, 10_000: 2000, 36_000: 10_000} {
		if got := nice(most); got != want {
			t.Errorf("nice(%d) = %d, want %d", most, got, want)
		}
	}
	got := map[int]string{}
	for _, n := range []int{0, 999, 1000, 1234567} {
		got[n] = thousands(n)
	}
	if want := map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"}; !maps.Equal(got, want) {
		t.Errorf("thousands: %v", got)
	}
}
