package main

import (
	"encoding/xml"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// This file draws the picture of a run, as SVG: over time, how many keys each replica holds,
// one band above the other, and on top those that nobody holds.

// The sizes, in pixels.
const (
	chartWidth = 860
	plotLeft   = 62
	plotWidth  = 738 // a sample of the holdings for each
	plotHeight = 260
	lanesTop   = 52 // where the lanes of the labels of what happened begin
	lane       = 15
	charWidth  = 6.2 // of a small letter, on average: fonts differ
	lineHeight = 16  // the least that a band must have for its label
)

// bandColors are those of the replicas, in the order of their start, and again from the first.
// White text is readable on each.
var bandColors = []string{"#1a7f37", "#326ce5", "#b35900", "#8250df", "#bf3989", "#0a7580", "#57606a"}

const (
	nobodyColor = "#d0d7de"
	inkColor    = "#24292f"
)

// What SVG calls its elements and attributes.
type (
	svgImage struct {
		XMLName xml.Name `xml:"http://www.w3.org/2000/svg svg"`
		Width   int      `xml:"width,attr"`
		Height  int      `xml:"height,attr"`
		ViewBox string   `xml:"viewBox,attr"`
		Role    string   `xml:"role,attr"`
		Font    string   `xml:"font-family,attr"`
		Size    int      `xml:"font-size,attr"`
		Title   string   `xml:"title"`
		Parts   []any
	}
	svgRect struct {
		XMLName xml.Name `xml:"rect"`
		Width   int      `xml:"width,attr"`
		Height  int      `xml:"height,attr"`
		Fill    string   `xml:"fill,attr"`
	}
	svgPath struct {
		XMLName xml.Name `xml:"path"`
		Fill    string   `xml:"fill,attr"`
		Stroke  string   `xml:"stroke,attr,omitempty"`
		Dashes  string   `xml:"stroke-dasharray,attr,omitempty"`
		Data    string   `xml:"d,attr"`
	}
	svgText struct {
		XMLName xml.Name `xml:"text"`
		X       float64  `xml:"x,attr"`
		Y       float64  `xml:"y,attr"`
		Anchor  string   `xml:"text-anchor,attr,omitempty"`
		Fill    string   `xml:"fill,attr"`
		Size    int      `xml:"font-size,attr,omitempty"`
		Weight  string   `xml:"font-weight,attr,omitempty"`
		Turn    string   `xml:"transform,attr,omitempty"`
		Text    string   `xml:",chardata"`
	}
)

// A chart is a picture while it is drawn.
type chart struct {
	from, to int64 // the time that it shows
	most     int   // keys at one time
	top      float64
	marks    []markLabel
	parts    []any
}

// svg returns the picture of the holdings.
func (h *holdings) svg(title, subtitle string) ([]byte, error) {
	total := h.bounds()
	c := &chart{from: total.from, to: total.to}
	source := c.sample(h.source)
	c.most = max(slices.Max(source), 1)
	lanes := c.placeMarks(h.happened)
	c.top = float64(lanesTop + lanes*lane + 6)
	height := int(c.top) + plotHeight + 46
	c.add(svgRect{Width: chartWidth, Height: height, Fill: "#ffffff"})
	c.add(svgText{X: plotLeft, Y: 24, Fill: inkColor, Size: 17, Weight: "bold", Text: title})
	c.add(svgText{X: plotLeft, Y: 42, Fill: "#57606a", Text: subtitle})
	c.bands(h, source)
	c.axes()
	c.drawMarks()
	text, err := xml.Marshal(svgImage{
		Width: chartWidth, Height: height, ViewBox: fmt.Sprintf("0 0 %d %d", chartWidth, height), Role: "img",
		Font: "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif", Size: 12,
		Title: title + ". " + subtitle, Parts: c.parts,
	})
	return append(text, '\n'), err
}

// bounds returns the time from the first key to the last happening.
func (h *holdings) bounds() span {
	s := span{from: forever}
	for _, there := range h.source {
		s.from = min(s.from, there.from)
	}
	s.to = s.from + int64(time.Second)
	for _, e := range h.happened {
		s.to = max(s.to, e.at)
	}
	return s
}

func (c *chart) add(part any) { c.parts = append(c.parts, part) }

// column returns the first sample that is not before a time.
func (c *chart) column(at int64) int {
	if at >= c.to {
		return plotWidth
	}
	return int(math.Ceil(float64(max(at, c.from)-c.from) / float64(c.to-c.from) * plotWidth))
}

// x returns where a time is.
func (c *chart) x(at int64) float64 {
	return plotLeft + tenth(float64(at-c.from)/float64(c.to-c.from)*plotWidth)
}

// y returns where a number of keys is.
func (c *chart) y(keys int) float64 {
	return tenth(c.top + plotHeight*(1-float64(keys)/float64(c.most)))
}

func tenth(x float64) float64 { return math.Round(10*x) / 10 }

// sample returns how many of the spans there are at the time of each column.
func (c *chart) sample(spans []span) []int {
	n := make([]int, plotWidth+1)
	for _, s := range spans {
		n[c.column(s.from)]++
		n[c.column(s.to)]--
	}
	for i := range plotWidth {
		n[i+1] += n[i]
	}
	return n[:plotWidth]
}

// bands draws what each replica holds, the newest below, so that what an old one loses is
// grey in the old one's place.
func (c *chart) bands(h *holdings, source []int) {
	var labels []any // above all bands
	lower := make([]int, plotWidth)
	for i, name := range slices.Backward(h.replicas) {
		upper := c.sample(h.held[name])
		for x := range upper {
			upper[x] += lower[x]
		}
		c.band(lower, upper, bandColors[i%len(bandColors)])
		labels = append(labels, c.bandLabels(lower, upper, name, "#ffffff")...)
		lower = upper
	}
	c.band(lower, source, nobodyColor)
	labels = append(labels, c.bandLabels(lower, source, "nobody", inkColor)...)
	c.parts = append(c.parts, labels...)
}

// band draws what is between two lines of steps.
func (c *chart) band(lower, upper []int, color string) {
	var d strings.Builder
	fmt.Fprintf(&d, "M%d %v", plotLeft, c.y(upper[0]))
	for x := 1; x < plotWidth; x++ {
		c.step(&d, plotLeft+x, upper[x-1], upper[x])
	}
	fmt.Fprintf(&d, "H%dV%v", plotLeft+plotWidth, c.y(lower[plotWidth-1]))
	for x := plotWidth - 1; x > 0; x-- {
		c.step(&d, plotLeft+x, lower[x], lower[x-1])
	}
	fmt.Fprintf(&d, "H%dZ", plotLeft)
	c.add(svgPath{Fill: color, Data: d.String()})
}

// step goes from one number of keys to another, if that can be seen.
func (c *chart) step(d *strings.Builder, x, from, to int) {
	if c.y(from) != c.y(to) {
		fmt.Fprintf(d, "H%dV%v", x, c.y(to))
	}
}

// bandLabels puts the name of a band into each part of it that is high and wide enough.
func (c *chart) bandLabels(lower, upper []int, name, color string) (labels []any) {
	width := min(int(float64(len([]rune(name)))*charWidth)+12, plotWidth)
	for from := 0; from < plotWidth; {
		to := from
		for to < plotWidth && c.y(lower[to])-c.y(upper[to]) >= lineHeight {
			to++
		}
		if x, y, ok := c.widest(lower, upper, from, to, width); ok {
			labels = append(labels, svgText{X: x, Y: y + 4, Anchor: "middle", Fill: color, Weight: "bold", Text: name})
		}
		from = to + 1
	}
	return labels
}

// highEnough is as high as a band needs to be for its label to look well.
const highEnough = 3 * lineHeight

// widest returns the middle of a box of some width between two lines, where no mark is: of
// the highest one, or of those that are high enough, that nearest to the middle.
func (c *chart) widest(lower, upper []int, from, to, width int) (x, y float64, ok bool) {
	best := 0.0
	middle := float64(from+to) / 2
	for left := from; left+width <= to; left++ {
		if c.marked(plotLeft+left, plotLeft+left+width) {
			continue
		}
		floor := c.y(slices.Max(lower[left : left+width]))
		roof := c.y(slices.Min(upper[left : left+width]))
		center := float64(left) + float64(width)/2
		nearer := math.Abs(center-middle) < math.Abs(x-plotLeft-middle)
		if high := min(math.Round(floor-roof), highEnough); high >= lineHeight && (high > best || high == best && nearer) {
			best, x, y, ok = high, plotLeft+center, tenth((floor+roof)/2), true
		}
	}
	return x, y, ok
}

// A markLabel is the place of what happened: where its line is, and its text above that.
type markLabel struct {
	x, left, right float64
	lane           int
	text           string
}

// marked reports whether there is a mark between two places.
func (c *chart) marked(left, right int) bool {
	return slices.ContainsFunc(c.marks, func(l markLabel) bool { return float64(left) <= l.x && l.x <= float64(right) })
}

// placeMarks finds places for the texts of what happened, in as many lanes as it takes for
// none to cover another, and returns how many that are.
func (c *chart) placeMarks(happened []happening) (lanes int) {
	var ends []float64 // of the last label in each lane
	for _, h := range happened {
		width := float64(len([]rune(h.what)))*charWidth + 10
		l := markLabel{x: c.x(h.at), text: h.what}
		l.left = min(l.x, chartWidth-width)
		l.right = l.left + width
		for l.lane < len(ends) && ends[l.lane] > l.left {
			l.lane++
		}
		if l.lane == len(ends) {
			ends = append(ends, 0)
		}
		ends[l.lane] = l.right
		c.marks = append(c.marks, l)
	}
	return len(ends)
}

// drawMarks draws what happened.
func (c *chart) drawMarks() {
	bottom := c.top + plotHeight
	for _, l := range c.marks {
		y := float64(lanesTop + l.lane*lane)
		c.add(svgPath{Fill: "none", Stroke: inkColor, Dashes: "3 2", Data: fmt.Sprintf("M%v %vV%v", l.x, y+3, bottom)})
	}
	for _, l := range c.marks {
		y := float64(lanesTop + l.lane*lane)
		// White behind the text, where lines of others pass.
		c.add(svgPath{Fill: "#ffffff", Data: fmt.Sprintf("M%v %vh%vv%dh%vZ", tenth(l.left+2), y+2, tenth(l.right-l.left-6), lane-1, -tenth(l.right-l.left-6))})
		c.add(svgText{X: tenth(l.left + 4), Y: y + 13, Fill: inkColor, Text: l.text})
	}
}

// axes draws both axes with their ticks.
func (c *chart) axes() {
	bottom := c.top + plotHeight
	c.add(svgPath{Fill: "none", Stroke: "#8c959f", Data: fmt.Sprintf("M%d %vV%vH%d", plotLeft, c.top, bottom, plotLeft+plotWidth)})
	for keys := 0; keys <= c.most; keys += nice(c.most) {
		c.add(svgText{X: plotLeft - 7, Y: c.y(keys) + 4, Anchor: "end", Fill: inkColor, Text: thousands(keys)})
	}
	seconds := int(time.Duration(c.to - c.from).Seconds())
	for s := 0; s <= seconds; s += nice(seconds) {
		x := c.x(c.from + int64(s)*int64(time.Second))
		c.add(svgText{X: x, Y: bottom + 17, Anchor: "middle", Fill: inkColor, Text: strconv.Itoa(s)})
	}
	middle := c.top + plotHeight/2
	c.add(svgText{X: 14, Y: middle, Anchor: "middle", Fill: inkColor, Turn: fmt.Sprintf("rotate(-90 14 %v)", middle), Text: "keys"})
	c.add(svgText{X: plotLeft + plotWidth/2, Y: bottom + 36, Anchor: "middle", Fill: inkColor, Text: "seconds since the first key"})
}

// nice returns a round distance, of which there are between two and seven in most, or 1.
func nice(most int) int {
	for step := 1; ; step *= 10 {
		for _, d := range []int{step, 2 * step, 5 * step} {
			if most <= 7*d {
				return d
			}
		}
	}
}

// thousands writes a number with commas.
func thousands(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
