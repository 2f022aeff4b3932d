package main

import (
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"example.com/typedqueue/kube/internal/chart"
)

var colors = map[string]color.Color{
	"ours":               chart.Ours,
	"client-go":          chart.ClientGo,
	"client-go-RealFIFO": color.RGBA{R: 0x8a, G: 0xb4, B: 0xf8, A: 0xff},
	"controller-runtime": color.RGBA{R: 0xd9, G: 0x6c, B: 0x06, A: 0xff},
	"kwok":               color.RGBA{R: 0x82, G: 0x50, B: 0xdf, A: 0xff},
	"channel":            color.RGBA{R: 0xcf, G: 0x22, B: 0x2e, A: 0xff},
	"floor":              chart.Grey,
}

func drawAll(dir string, res *results) error {
	chart.UseFont()
	for name, draw := range map[string]func(*results) (*plot.Plot, vg.Length, error){
		"ratios.svg": drawRatios,
		"memory.svg": drawMemory,
		"growth.svg": drawGrowth,
	} {
		p, height, err := draw(res)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if p == nil {
			continue // nothing of it has run
		}
		if err := save(p, height, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// save writes p as SVG.
func save(p *plot.Plot, height vg.Length, file string) error {
	drawing, err := p.WriterTo(chart.Width, height, "svg")
	if err != nil {
		return err
	}
	svg, err := chart.SVG(drawing)
	if err != nil {
		return err
	}
	return os.WriteFile(file, svg, 0o666)
}

// newPlot is a white sheet with a title, and below it where the figures come from.
func newPlot(res *results, title string) *plot.Plot {
	p := plot.New()
	p.Title.Text = title + "\n" + res.machine + "\n" + res.modules
	p.Title.TextStyle.Font.Size = 10
	p.Title.Padding = 6
	p.X.Padding, p.Y.Padding = 0, 0
	p.Legend.TextStyle.Font.Size = 9
	p.Legend.Padding = 2
	return p
}

// short makes the name of a benchmark a label.
var short = strings.NewReplacer(
	"/key=struct", "", "/by=object", "", "/by=key", "", "/pods=10000", "",
	"/producers=", " ", "/consumers=", " to ", "/indexes=", ", indexes: ", "/index=", " by ", "/delay=", " after ",
)

// charted returns the benchmarks in the chart of ratios, the last first: of those with keys,
// the ones with structs.
func charted(res *results) (benches []*bench) {
	for _, g := range groups {
		for _, b := range res.beginning(g.begins...) {
			if !strings.Contains(b.name, "key=") || strings.HasSuffix(b.name, "key=struct") {
				benches = append(benches, b)
			}
		}
	}
	slices.Reverse(benches)
	return benches
}

// drawRatios draws a bar for each workload: how many times as long client-go takes. Other
// rivals are dots.
func drawRatios(res *results) (*plot.Plot, vg.Length, error) {
	benches := charted(res)
	if len(benches) == 0 {
		return nil, 0, nil
	}
	bottom, top := -0.6, float64(len(benches))-0.4
	p := newPlot(res, "Time of a rival / time of ours, keys of two strings. Right of 1, ours is faster")
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.ConstantTicks{}
	p.Add(plotter.NewGrid())

	legend := map[string]plot.Thumbnailer{}
	low, high := 1.0, 1.0
	for _, rival := range rank {
		ratios := ratiosOf(benches, rival)
		if len(ratios) == 0 {
			continue
		}
		add := addDots
		if rival == "client-go" {
			add = addBars
		}
		t, err := add(p, ratios, colors[rival])
		if err != nil {
			return nil, 0, err
		}
		legend[rival] = t
		for _, r := range ratios {
			low, high = min(low, r.X), max(high, r.X)
		}
	}
	one, err := plotter.NewLine(plotter.XYs{{X: 1, Y: bottom}, {X: 1, Y: top}})
	if err != nil {
		return nil, 0, err
	}
	one.Width = 1
	p.Add(one)
	addLegend(p, legend)
	p.Legend.XOffs = -4
	room := 1 + float64(len(legend)) // rows, for the legend
	var labels []string
	for _, b := range benches {
		labels = append(labels, short.Replace(b.name))
	}
	p.NominalY(labels...)
	p.Y.Tick.Label.Font.Size = 8
	p.X.Min, p.X.Max = low*0.9, high*1.3
	p.X.Tick.Marker = ticks(p.X.Min, p.X.Max)
	p.Y.Min, p.Y.Max = bottom-room, top
	return p, vg.Length(float64(len(benches))+room)*13 + 90, nil
}

// ratiosOf returns how many times as long a rival takes, at the number of the benchmark.
func ratiosOf(benches []*bench, rival string) (ratios plotter.XYs) {
	for i, b := range benches {
		if b.has(rival + "/ours") {
			ratios = append(ratios, plotter.XY{X: b.median(rival + "/ours").Center, Y: float64(i)})
		}
	}
	return ratios
}

// addBars adds a bar from 1 to each ratio, and the number behind it.
func addBars(p *plot.Plot, ratios plotter.XYs, fill color.Color) (t plot.Thumbnailer, err error) {
	for _, r := range ratios {
		bar, err := box(1, r.Y-0.35, r.X, r.Y+0.35, fill)
		if err != nil {
			return nil, err
		}
		value, err := plotter.NewLabels(plotter.XYLabels{
			XYs:    plotter.XYs{{X: max(1, r.X), Y: r.Y}},
			Labels: []string{fmt.Sprintf(" %.2g", r.X)},
		})
		if err != nil {
			return nil, err
		}
		value.TextStyle[0].YAlign = -0.5
		value.TextStyle[0].Font.Size = 8
		p.Add(bar, value)
		t = bar
	}
	return t, nil
}

// addDots adds dots with a white rim, so that they show on a bar.
func addDots(p *plot.Plot, points plotter.XYs, fill color.Color) (plot.Thumbnailer, error) {
	s, err := plotter.NewScatter(points)
	if err != nil {
		return nil, err
	}
	rim := *s
	rim.Shape, rim.Radius, rim.Color = draw.CircleGlyph{}, 4, color.White
	s.Shape, s.Radius, s.Color = draw.CircleGlyph{}, 3, fill
	p.Add(&rim, s)
	return s, nil
}

// addLegend adds the contestants that are in it, in the order of the tables.
func addLegend(p *plot.Plot, legend map[string]plot.Thumbnailer) {
	for _, name := range rank {
		if t, ok := legend[name]; ok {
			p.Legend.Add(name, t)
		}
	}
}

// box is a filled rectangle. On a logarithmic axis a bar cannot start at 0.
func box(x0, y0, x1, y1 float64, fill color.Color) (*plotter.Polygon, error) {
	p, err := plotter.NewPolygon(plotter.XYs{{X: x0, Y: y0}, {X: x1, Y: y0}, {X: x1, Y: y1}, {X: x0, Y: y1}})
	if err != nil {
		return nil, err
	}
	p.Color = fill
	p.LineStyle.Width = 0
	return p, nil
}

// ticks are round numbers from low to high for a logarithmic axis.
func ticks(low, high float64) plot.ConstantTicks {
	var all plot.ConstantTicks
	for decade := math.Pow(10, math.Floor(math.Log10(low))); decade <= high; decade *= 10 {
		for _, step := range []float64{1, 2, 5} {
			if v := decade * step; v >= low && v <= high {
				all = append(all, plot.Tick{Value: v, Label: strconv.FormatFloat(v, 'f', -1, 64)})
			}
		}
	}
	return all
}

// drawMemory draws bytes per item, a group of bars for each kind of item: at 100,000 items,
// and as a thin line up to the worst peak.
func drawMemory(res *results) (*plot.Plot, vg.Length, error) {
	benches := res.beginning("Memory")
	if len(benches) == 0 {
		return nil, 0, nil
	}
	p := newPlot(res, "Bytes per item at 100,000 items; the line: at the worst peak until 200,000")
	p.Y.Min = 0
	grid := plotter.NewGrid()
	grid.Vertical.Width = 0
	p.Add(grid)
	var labels []string
	legend := map[string]plot.Thumbnailer{}
	for i, b := range benches {
		labels = append(labels, strings.NewReplacer("/key=", "\n", "/indexes=", "\nindexes: ").Replace(b.variant()))
		var names []string
		for _, name := range rank {
			if b.has(name + "-B/item") {
				names = append(names, name)
			}
		}
		for j, name := range names {
			x := float64(i) + (float64(j)-float64(len(names)-1)/2)*0.2
			bar, err := box(x-0.09, 0, x+0.09, b.median(name+"-B/item").Center, colors[name])
			if err != nil {
				return nil, 0, err
			}
			peak, err := plotter.NewLine(plotter.XYs{{X: x, Y: 0}, {X: x, Y: b.median(name + "-worst-peak-B/item").Center}})
			if err != nil {
				return nil, 0, err
			}
			peak.Color = colors[name]
			p.Add(bar, peak)
			legend[name] = bar
		}
	}
	addLegend(p, legend)
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.XOffs = 6
	p.NominalX(labels...)
	p.X.Tick.Label.Font.Size = 9
	p.X.Min, p.X.Max = -0.6, float64(len(benches))-0.4
	return p, 4 * vg.Inch, nil
}

// drawGrowth draws ns per item over the number of items, ours solid and client-go dashed.
func drawGrowth(res *results) (*plot.Plot, vg.Length, error) {
	benches := res.beginning("Growth")
	if len(benches) == 0 {
		return nil, 0, nil
	}
	palette := []color.Color{colors["client-go"], colors["controller-runtime"], colors["ours"], colors["kwok"]}
	p := newPlot(res, "ns per item over the number of items: ours solid, client-go dashed")
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.Add(plotter.NewGrid())
	var workloads []string
	points := map[[2]string]plotter.XYs{}
	for _, b := range benches {
		workload, size, _ := strings.Cut(b.variant(), "/n=")
		n, err := strconv.ParseFloat(size, 64)
		if err != nil {
			return nil, 0, err
		}
		if !slices.Contains(workloads, workload) {
			workloads = append(workloads, workload)
		}
		for _, name := range []string{"ours", "client-go"} {
			key := [2]string{workload, name}
			points[key] = append(points[key], plotter.XY{X: n, Y: b.median(name + "-ns/item").Center})
		}
	}
	for i, workload := range workloads {
		for _, name := range []string{"ours", "client-go"} {
			line, err := plotter.NewLine(points[[2]string{workload, name}])
			if err != nil {
				return nil, 0, err
			}
			line.Width, line.Color = 2, palette[i%len(palette)]
			if name == "ours" {
				p.Legend.Add(workload, line)
			} else {
				line.Width, line.Dashes = 1.5, []vg.Length{5, 3}
			}
			p.Add(line)
		}
	}
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.XOffs = 6
	p.Y.Max *= 2   // room for the legend
	p.X.Max *= 1.5 // room for the last label
	p.X.Tick.Marker = decades(p.X.Min, p.X.Max)
	p.Y.Tick.Marker = ticks(p.Y.Min, p.Y.Max)
	p.X.Label.Text, p.Y.Label.Text = "items", "ns per item"
	return p, 4 * vg.Inch, nil
}

// count writes a number of items.
func count(n float64) string {
	switch {
	case n >= 1e6:
		return fmt.Sprintf("%.0f million", n/1e6)
	case n >= 1000:
		return fmt.Sprintf("%.0f,000", n/1000)
	}
	return fmt.Sprintf("%.0f", n)
}

// decades are the powers of ten from low to high.
func decades(low, high float64) plot.ConstantTicks {
	var all plot.ConstantTicks
	for v := math.Pow(10, math.Floor(math.Log10(low))); v <= high; v *= 10 {
		if v >= low {
			all = append(all, plot.Tick{Value: v, Label: count(v)})
		}
	}
	return all
}
