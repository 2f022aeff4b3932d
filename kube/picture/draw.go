package main

import (
	"fmt"
	"image/color"
	"strconv"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"example.com/typedqueue/kube/internal/chart"
)

const height = 7.5 * vg.Inch

var styles = []draw.LineStyle{ // of the recordings, in turn
	{Color: chart.Ours, Width: 2.2},
	{Color: chart.ClientGo, Width: 1.1},
}

// drawSVG draws recordings of one scenario, a line in each of three panels for each.
func drawSVG(captions []string, all []recording) ([]byte, error) {
	chart.UseFont()
	var panels [][]*plot.Plot
	for _, panel := range []func([]recording) (*plot.Plot, error){drawDepth, drawLatency, drawRetries} {
		p, err := panel(all)
		if err != nil {
			return nil, err
		}
		panels = append(panels, []*plot.Plot{p})
	}
	canvas := vgsvg.New(chart.Width, height)
	page := draw.New(canvas)
	page.SetColor(color.White)
	page.Fill(page.Rectangle.Path())
	page = draw.Crop(page, 8, -14, 6, -6)
	page = header(page, "One controller, on our queue and on client-go's", captions...)
	tiles := draw.Tiles{Rows: len(panels), Cols: 1, PadY: 6}
	for i, row := range plot.Align(panels, tiles, page) {
		panels[i][0].Draw(row[0])
	}
	return chart.SVG(canvas)
}

// header writes a title and captions on top of page and returns what is left of it.
func header(page draw.Canvas, title string, captions ...string) draw.Canvas {
	y := page.Max.Y
	write := func(size font.Length, c color.Color, line string) {
		style := newText(size, c)
		style.XAlign, style.YAlign = draw.XCenter, draw.YTop
		page.FillText(style, vg.Point{X: page.Center().X, Y: y}, line)
		y -= size + 5
	}
	write(12, color.Black, title)
	for _, line := range captions {
		write(9, chart.Grey, line)
	}
	return draw.Crop(page, 0, 0, 0, y-page.Max.Y-4)
}

func newText(size font.Length, c color.Color) text.Style {
	return text.Style{Color: c, Font: font.From(plot.DefaultFont, size), Handler: plot.DefaultTextHandler}
}

func drawDepth(all []recording) (*plot.Plot, error) {
	p, err := newPanel("depth: items ready", all)
	if err != nil {
		return nil, err
	}
	for i, r := range all {
		var points plotter.XYs
		for _, pt := range r.points {
			points = append(points, plotter.XY{X: pt.at.Seconds(), Y: float64(pt.depth)})
		}
		line, err := addLine(p, points, styles[i])
		if err != nil {
			return nil, err
		}
		p.Legend.Add(r.row.Name, line)
	}
	p.Legend.Top, p.Legend.YOffs = true, -36
	p.Legend.Left, p.Legend.XOffs = true, 136 // thumbnails on the left, as another font may be wider
	p.Y.Min, p.Y.Max = 0, p.Y.Max*1.2         // room for the phases' names
	return p, addPhases(p, all[0], true)
}

// drawLatency draws percentiles, and gaps where nothing was handed out. Each queue measures for
// itself: of an item that is added while it is processing, client-go's begins at the Add, and
// ours at the Done after it.
func drawLatency(all []recording) (*plot.Plot, error) {
	p, err := newPanel("latency: ready until handed out, 90th percentile; client-go adds the rest of the processing that an Add came into", all)
	if err != nil {
		return nil, err
	}
	for i, r := range all {
		for _, stretch := range percentiles(r.points) {
			if _, err := addLine(p, stretch, styles[i]); err != nil {
				return nil, err
			}
		}
	}
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, decades
	p.Y.Min, p.Y.Max = 1e-6, 10
	return p, addPhases(p, all[0], false)
}

// decades are the ticks of times.
var decades = plot.ConstantTicks{
	{Value: 1e-6, Label: "1 µs"}, {Value: 1e-5, Label: "10 µs"}, {Value: 1e-4, Label: "100 µs"},
	{Value: 1e-3, Label: "1 ms"}, {Value: 1e-2, Label: "10 ms"}, {Value: 1e-1, Label: "100 ms"},
	{Value: 1, Label: "1 s"}, {Value: 10, Label: "10 s"},
}

// percentiles returns the 90th percentiles of what items have waited, in seconds, in stretches
// without a point that has none.
func percentiles(points []point) (stretches []plotter.XYs) {
	open := false
	for _, pt := range points {
		if len(pt.waited) == 0 {
			open = false
			continue
		}
		if !open {
			stretches, open = append(stretches, nil), true
		}
		last := &stretches[len(stretches)-1]
		waited := max(pt.waited[len(pt.waited)*9/10], time.Microsecond) // the axis has no 0
		*last = append(*last, plotter.XY{X: pt.at.Seconds(), Y: waited.Seconds()})
	}
	return stretches
}

func drawRetries(all []recording) (*plot.Plot, error) {
	p, err := newPanel("retries per second", all)
	if err != nil {
		return nil, err
	}
	for i, r := range all {
		if _, err := addLine(p, rates(r.points), styles[i]); err != nil {
			return nil, err
		}
	}
	p.Y.Min, p.Y.Max = 0, max(1, p.Y.Max*1.1)
	p.X.Label.Text = "seconds"
	return p, addPhases(p, all[0], false)
}

// rates returns the retries per second over the second before each point.
func rates(points []point) (rates plotter.XYs) {
	const n = int(time.Second / window)
	for i, pt := range points {
		var before point // at 0
		if i >= n {
			before = points[i-n]
		}
		rate := float64(pt.retries-before.retries) / (pt.at - before.at).Seconds()
		rates = append(rates, plotter.XY{X: pt.at.Seconds(), Y: rate})
	}
	return rates
}

// newPanel is a sheet with a grid, wide enough for all.
func newPanel(title string, all []recording) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text = title
	p.Title.TextStyle.Font.Size, p.X.Label.TextStyle.Font.Size = 9, 9
	p.Title.Padding = 4
	p.X.Tick.Label.Font.Size, p.Y.Tick.Label.Font.Size = 8, 8
	p.Legend.TextStyle.Font.Size = 9
	p.Legend.ThumbnailWidth, p.Legend.Padding = 24, 3
	p.X.Padding, p.Y.Padding = 0, 0
	grid := plotter.NewGrid()
	grid.Vertical.Width = 0
	p.Add(grid)
	p.X.Min = 0
	for _, r := range all {
		if len(r.points) == 0 {
			return nil, fmt.Errorf("the recording of %s is empty", r.row.Name)
		}
		p.X.Max = max(p.X.Max, r.points[len(r.points)-1].at.Seconds())
	}
	p.X.Tick.Marker = seconds(p.X.Max)
	return p, nil
}

// seconds are ticks every five seconds.
func seconds(end float64) (ticks plot.ConstantTicks) {
	for s := 0; float64(s) <= end; s += 5 {
		ticks = append(ticks, plot.Tick{Value: float64(s), Label: strconv.Itoa(s)})
	}
	return ticks
}

func addLine(p *plot.Plot, points plotter.XYs, style draw.LineStyle) (*plotter.Line, error) {
	line, err := plotter.NewLine(points)
	if err != nil {
		return nil, err
	}
	line.LineStyle = style
	p.Add(line)
	return line, nil
}

// addPhases marks where r's phases begin, if named with their names.
func addPhases(p *plot.Plot, r recording, named bool) error {
	var names plotter.XYLabels
	last := ""
	for _, pt := range r.points {
		if pt.phase == last {
			continue
		}
		last = pt.phase
		x := max(0, pt.at-window).Seconds()
		if len(names.Labels) == 0 {
			x = 0 // the axis is mark enough
		} else {
			mark := draw.LineStyle{Color: chart.Grey, Width: 0.5, Dashes: []vg.Length{2, 2}}
			if _, err := addLine(p, plotter.XYs{{X: x, Y: p.Y.Min}, {X: x, Y: p.Y.Max}}, mark); err != nil {
				return err
			}
		}
		names.XYs = append(names.XYs, plotter.XY{X: x, Y: p.Y.Max})
		names.Labels = append(names.Labels, pt.phase)
	}
	if !named {
		return nil
	}
	labels, err := plotter.NewLabels(names)
	if err != nil {
		return err
	}
	for i := range labels.TextStyle {
		labels.TextStyle[i] = newText(8, chart.Grey)
		labels.TextStyle[i].YAlign = draw.YTop
	}
	labels.Offset = vg.Point{X: 3, Y: -2}
	p.Add(labels)
	return nil
}
