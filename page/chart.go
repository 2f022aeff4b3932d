package page

import (
	"math"
	"strconv"
	"strings"
)

// chart is a series as the paths of an SVG with one unit per column.
type chart struct {
	Width, Height int
	Area, Line    string // paths
	Gaps          []gap  // the columns in which nobody looked
	Max           float64
	Blank         int // columns in Gaps
}

type gap struct{ From, Width int }

const chartHeight = 24

// draw draws a series from 0 to its highest value. Each run of columns is drawn by itself.
func draw(cols series) chart {
	c := chart{Width: len(cols), Height: chartHeight}
	for _, v := range cols {
		if v > c.Max { // not if NaN
			c.Max = v
		}
	}
	var area, line strings.Builder
	for from := 0; from < len(cols); {
		to := from
		for to < len(cols) && math.IsNaN(cols[to]) == math.IsNaN(cols[from]) {
			to++
		}
		if math.IsNaN(cols[from]) {
			c.Gaps = append(c.Gaps, gap{from, to - from})
			c.Blank += to - from
		} else {
			steps := c.steps(cols[from:to], to)
			line.WriteString("M" + strconv.Itoa(from) + " " + steps)
			area.WriteString("M" + strconv.Itoa(from) + " " + strconv.Itoa(chartHeight) + "V" + steps + "V" + strconv.Itoa(chartHeight) + "Z")
		}
		from = to
	}
	c.Area, c.Line = area.String(), line.String()
	return c
}

// steps is the part of a path from the height of the first of cols, whose x is left to the
// caller, to the end of the last, at to. Equal columns are one step.
func (c *chart) steps(cols series, to int) string {
	var b strings.Builder
	height := c.height(cols[0])
	b.WriteString(height)
	for i, v := range cols {
		if h := c.height(v); h != height {
			b.WriteString("H" + strconv.Itoa(to-len(cols)+i) + "V" + h)
			height = h
		}
	}
	b.WriteString("H" + strconv.Itoa(to))
	return b.String()
}

// height returns the y of a value. A unit is left free above and below, for the line's width.
func (c *chart) height(v float64) string {
	y := float64(chartHeight - 1)
	if c.Max > 0 {
		y -= v / c.Max * (chartHeight - 2)
	}
	return strconv.FormatFloat(math.Round(y*10)/10, 'f', -1, 64)
}
