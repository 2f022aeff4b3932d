package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"golang.org/x/perf/benchfmt"
	"golang.org/x/perf/benchmath"
)

// results are the benchmarks that ran, in order, and on what.
type results struct {
	benches []*bench
	machine string // CPU, cores, system, Go
	modules string // the rivals' versions
	command []string
}

// A bench is all that a benchmark has reported, over all its runs.
type bench struct {
	name   string // BurstFresh/key=int, without what comes before or after
	values map[string][]float64
	units  []string // of values, in order
}

// base is the name of the benchmark function.
func (b *bench) base() string {
	base, _, _ := strings.Cut(b.name, "/")
	return base
}

// variant is the rest of the name.
func (b *bench) variant() string {
	_, variant, _ := strings.Cut(b.name, "/")
	return variant
}

// rivals returns whose ratios with unit suffix "/ours"+what there are.
func (b *bench) rivals(what string) (names []string) {
	for _, unit := range b.units {
		if name, ok := strings.CutSuffix(unit, "/ours"+what); ok {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, byRank)
	return names
}

// median returns the median of the values of unit with its confidence interval of 95 %.
func (b *bench) median(unit string) benchmath.Summary {
	sample := benchmath.NewSample(slices.Clone(b.values[unit]), &benchmath.DefaultThresholds)
	return benchmath.AssumeNothing.Summary(sample, 0.95)
}

func (b *bench) has(unit string) bool { return len(b.values[unit]) > 0 }

// rank is the order of the contestants in tables and charts.
var rank = []string{"ours", "client-go", "client-go-RealFIFO", "controller-runtime", "kwok", "channel", "floor"}

func byRank(a, b string) int { return slices.Index(rank, a) - slices.Index(rank, b) }

// parse reads the output of the benchmarks.
func parse(r io.Reader) (*results, error) {
	res := &results{}
	known := map[string]*bench{}
	reader := benchfmt.NewReader(r, "benchmarks")
	for reader.Scan() {
		record, ok := reader.Result().(*benchfmt.Result)
		if !ok {
			continue // a line that is none of a benchmark, or a broken one
		}
		res.describe(record)
		name, _, _ := cutCores(record.Name.String())
		b := known[name]
		if b == nil {
			b = &bench{name: name, values: map[string][]float64{}}
			known[name] = b
			res.benches = append(res.benches, b)
		}
		for _, v := range record.Values {
			value, unit := v.Value, v.Unit
			if v.OrigUnit != "" {
				value, unit = v.OrigValue, v.OrigUnit
			}
			if unit == "ns/op" {
				continue // the harness sets it to 0
			}
			if !b.has(unit) {
				b.units = append(b.units, unit)
			}
			b.values[unit] = append(b.values[unit], value)
		}
	}
	if err := reader.Err(); err != nil {
		return nil, err
	}
	if len(res.benches) == 0 {
		return nil, errors.New("no benchmark results")
	}
	return res, nil
}

// cutCores cuts "-2" from the end of a benchmark's name.
func cutCores(full string) (name, cores string, ok bool) {
	if i := strings.LastIndex(full, "-"); i > 0 && strings.Trim(full[i+1:], "0123456789") == "" {
		return full[:i], full[i+1:], true
	}
	return full, "1", false
}

// describe keeps what record says about where it ran.
func (res *results) describe(record *benchfmt.Result) {
	config := func(key string) string {
		if value := record.GetConfig(key); value != "" {
			return value
		}
		return "?"
	}
	_, cores, _ := cutCores(record.Name.String())
	res.machine = fmt.Sprintf("%s, %s cores, %s/%s, %s", config("cpu"), cores, config("goos"), config("goarch"), config("go"))
	var modules []string
	for _, path := range rivals {
		name := path[strings.LastIndex(path, "/")+1:]
		modules = append(modules, name+" "+config(name))
	}
	res.modules = strings.Join(modules, ", ")
	if command := record.GetConfig("command"); command != "" && !slices.Contains(res.command, command) {
		res.command = append(res.command, command)
	}
}
