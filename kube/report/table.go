package main

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"golang.org/x/perf/benchmath"
)

// groups are the tables of times: what the names of their benchmarks begin with.
var groups = []struct {
	title  string
	begins []string
}{
	{"Work queues", []string{"Cycle", "Burst", "Duplicate", "Contended", "Park", "Fire", "Retry", "Priorities"}},
	{"DeltaFIFO and FIFO", []string{"Delta", "FIFO"}},
	{"Store", []string{"Store"}},
}

func writeTables(w io.Writer, res *results) error {
	out := bufio.NewWriter(w)
	for _, g := range groups {
		benches := res.beginning(g.begins...)
		if len(benches) > 0 {
			writeTimes(out, g.title, benches)
		}
	}
	if benches := res.beginning("Memory"); len(benches) > 0 {
		writeMemory(out, benches)
	}
	if benches := res.beginning("Kept"); len(benches) > 0 {
		writeKept(out, benches)
	}
	if benches := res.beginning("Growth"); len(benches) > 0 {
		writeGrowth(out, benches)
	}
	fmt.Fprintf(out, "%s; %s.\n", res.machine, res.modules)
	for _, command := range res.command {
		fmt.Fprintf(out, "`%s`\n", command)
	}
	return out.Flush()
}

func (res *results) beginning(begins ...string) (benches []*bench) {
	for _, b := range res.benches {
		if slices.ContainsFunc(begins, func(begin string) bool { return strings.HasPrefix(b.name, begin) }) {
			benches = append(benches, b)
		}
	}
	return benches
}

// writeTimes writes a row for each benchmark: what ours takes, and how many times as long
// each rival takes.
func writeTimes(w io.Writer, title string, benches []*bench) {
	var names []string
	for _, b := range benches {
		for _, name := range b.rivals("") {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	slices.SortFunc(names, byRank)
	fmt.Fprintf(w, "### %s: time of a rival / time of ours\n\n", title)
	row(w, append(append([]string{"workload", "", "ours, ns"}, names...), "rounds", "target")...)
	rule(w, 2, len(names)+2, 1)
	for _, b := range benches {
		cells := []string{b.base(), b.variant(), figure(b.median("ours-ns/item").Center)}
		if unit := "ours-handed/item"; b.has(unit) {
			cells[1] += fmt.Sprintf(" (ours handed out %.2f)", b.median(unit).Center)
		}
		var goals []string
		for _, name := range names {
			unit := name + "/ours"
			if !b.has(unit) {
				cells = append(cells, "")
				continue
			}
			ratio := b.median(unit)
			cell := interval(ratio)
			if unit := name + "-handed/item"; b.has(unit) {
				cell += fmt.Sprintf(" (%.2f)", b.median(unit).Center)
			}
			cells = append(cells, cell)
			if t, ok := targetOf(b.name, name); ok {
				goals = append(goals, t.verdict(name, ratio.Center))
			}
		}
		cells = append(cells, fmt.Sprint(len(b.values["ours-ns/item"])), strings.Join(goals, ", "))
		row(w, cells...)
	}
	fmt.Fprintln(w)
}

// verdict says what was to be reached, and whether it was.
func (t target) verdict(rival string, ratio float64) string {
	s := fmt.Sprintf("%s ≥ %.3g", rival, t.least)
	if t.stretch {
		s += " (stretch)"
	}
	if t.met(ratio) {
		return s + " met"
	}
	return s + " **missed**"
}

// figure is v with three digits, or all before the point.
func figure(v float64) string {
	if v >= 1000 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

// interval is a median with its confidence interval, if there are rounds enough for one.
func interval(s benchmath.Summary) string {
	if math.IsInf(s.Lo, 0) || math.IsInf(s.Hi, 0) {
		return figure(s.Center)
	}
	return fmt.Sprintf("%s [%s, %s]", figure(s.Center), figure(s.Lo), figure(s.Hi))
}

// measures of memory, as the units have them.
var measures = []struct{ unit, title string }{
	{"", "at 100,000"},
	{"worst-", "worst from 100,000 to 200,000"},
	{"peak-", "peak until 100,000"},
	{"worst-peak-", "worst peak"},
}

// writeMemory writes a row for each kind of item and measure.
func writeMemory(w io.Writer, benches []*bench) {
	names := measured(benches, "-B/item")
	fmt.Fprint(w, "### Memory: bytes per item (and rival / ours)\n\n")
	row(w, append(append([]string{"what", "measured"}, names...), "target")...)
	rule(w, 2, len(names), 1)
	for _, b := range benches {
		for _, m := range measures {
			cells := []string{b.variant(), m.title}
			reached, wanted := 0, 0
			for _, name := range names {
				cell, target, met := memoryCell(b, name, m.unit)
				cells = append(cells, cell)
				if target {
					wanted++
				}
				if met {
					reached++
				}
			}
			row(w, append(cells, fmt.Sprintf("%d of %d met", reached, wanted))...)
		}
	}
	fmt.Fprintln(w)
}

// measured returns who has a figure of that unit in any of benches.
func measured(benches []*bench, unit string) (names []string) {
	for _, name := range rank {
		if slices.ContainsFunc(benches, func(b *bench) bool { return b.has(name + unit) }) {
			names = append(names, name)
		}
	}
	return names
}

// memoryCell returns what one contestant takes, whether there is a target for it, and whether
// that is met.
func memoryCell(b *bench, name, unit string) (cell string, wanted, met bool) {
	if !b.has(name + "-" + unit + "B/item") {
		return "", false, false
	}
	cell = fmt.Sprintf("%.0f", b.median(name+"-"+unit+"B/item").Center)
	if name == "ours" {
		return cell, false, false
	}
	ratio := b.median(name + "/ours-" + unit + "B").Center
	cell += fmt.Sprintf(" (%.2f)", ratio)
	t, wanted := targetOf(b.name, name)
	if met = wanted && t.met(ratio); wanted && !met {
		cell = "**" + cell + "**"
	}
	return cell, wanted, met
}

// writeKept writes a row for each type of key.
func writeKept(w io.Writer, benches []*bench) {
	names := measured(benches, "-kept-KiB")
	fmt.Fprint(w, "### Kept after a burst of 1,000,000, KiB\n\n")
	row(w, append(append([]string{"key"}, names...), "target")...)
	rule(w, 1, len(names), 1)
	for _, b := range benches {
		cells := []string{strings.TrimPrefix(b.variant(), "key=")}
		for _, name := range names {
			cell := ""
			if unit := name + "-kept-KiB"; b.has(unit) {
				cell = fmt.Sprintf("%.0f", b.median(unit).Center)
			}
			cells = append(cells, cell)
		}
		verdict := "met"
		if b.median("ours-kept-KiB").Center >= mostKept {
			verdict = "**missed**"
		}
		row(w, append(cells, fmt.Sprintf("ours < %d %s", mostKept, verdict))...)
	}
	fmt.Fprintln(w)
}

// writeGrowth writes a row for each size, and a column for each workload.
func writeGrowth(w io.Writer, benches []*bench) {
	var workloads, sizes []string
	cells := map[[2]string]string{}
	for _, b := range benches {
		workload, size, _ := strings.Cut(b.variant(), "/n=")
		if !slices.Contains(workloads, workload) {
			workloads = append(workloads, workload)
		}
		if !slices.Contains(sizes, size) {
			sizes = append(sizes, size)
		}
		cells[[2]string{workload, size}] = figure(b.median("ours-ns/item").Center) + " : " + figure(b.median("client-go-ns/item").Center)
	}
	fmt.Fprint(w, "### Growth: ns per item, ours : client-go\n\n")
	row(w, append([]string{"items"}, workloads...)...)
	rule(w, 0, len(workloads)+1, 0)
	for _, size := range sizes {
		line := []string{size}
		for _, workload := range workloads {
			line = append(line, cells[[2]string{workload, size}])
		}
		row(w, line...)
	}
	fmt.Fprintln(w)
}

func row(w io.Writer, cells ...string) {
	fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | "))
}

// rule writes the line under a table's head: so many columns to the left, right and left.
func rule(w io.Writer, left, right, last int) {
	fmt.Fprintf(w, "|%s%s%s\n", strings.Repeat("---|", left), strings.Repeat("---:|", right), strings.Repeat("---|", last))
}
