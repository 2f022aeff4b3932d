package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

type options struct {
	dir, list string
	files     []string
	run, diff []int
	workers   int
	checks    int
}

// mutate does what the command does, and reports whether all is well.
func mutate(ctx context.Context, o options, out, progress io.Writer) (ok bool, err error) {
	p, err := load(o.dir, o.files)
	if err != nil {
		return false, err
	}
	if len(o.diff) > 0 {
		for _, m := range p.some(o.diff) {
			fmt.Fprint(out, m.diff(p.sources[m.file]))
		}
		return true, nil
	}
	reasons, err := readSurvivors(o.list)
	if err != nil {
		return false, err
	}
	mutants := p.mutants
	if len(o.run) > 0 {
		mutants = p.some(o.run)
	}
	b, err := newBench(p, o.checks)
	if err != nil {
		return false, err
	}
	defer b.close()
	outcomes, err := b.all(ctx, mutants, o.workers, progress)
	if err != nil {
		return false, err
	}
	if len(o.run) == 1 {
		for m, got := range outcomes {
			fmt.Fprintf(out, "%s%s\n%s\n", m.diff(p.sources[m.file]), got.output, got)
		}
	}
	r := report{product: p, phases: b.phases, mutants: mutants, outcomes: outcomes, reasons: reasons, partial: len(o.run) > 0}
	return r.print(out), nil
}

func (p *product) some(ids []int) (list []*mutant) {
	for _, m := range p.mutants {
		if slices.Contains(ids, m.id) {
			list = append(list, m)
		}
	}
	return list
}

// all tries the mutants, file by file and several at a time.
func (b *bench) all(ctx context.Context, mutants []*mutant, workers int, progress io.Writer) (map[*mutant]outcome, error) {
	outcomes := map[*mutant]outcome{}
	for _, file := range b.product.files {
		var todo []*mutant
		for _, m := range mutants {
			if m.file == file {
				todo = append(todo, m)
			}
		}
		if len(todo) == 0 {
			continue
		}
		if err := b.calibrate(ctx, file); err != nil {
			return nil, err
		}
		if len(b.apart) > 0 {
			fmt.Fprintf(progress, "%s: its schema does not stand %q: survivors face them in builds of their own\n", file, b.apart)
		}
		if err := b.each(ctx, todo, workers, outcomes, progress); err != nil {
			return nil, err
		}
		b.remove(file)
	}
	return outcomes, nil
}

// each tries the mutants of one file and adds what becomes of them to outcomes.
func (b *bench) each(ctx context.Context, mutants []*mutant, workers int, outcomes map[*mutant]outcome, progress io.Writer) error {
	var mu sync.Mutex // guards outcomes, progress and the variables below
	var fault error
	tried, start := 0, time.Now()

	todo := make(chan *mutant)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for m := range todo {
				o, err := b.try(ctx, m)
				mu.Lock()
				outcomes[m] = o
				if err != nil {
					fault = err
				}
				tried++
				fmt.Fprintf(progress, "%d/%d %v %d %s: %s\n", tried, len(mutants), time.Since(start).Round(time.Second), m.id, m.key(), o)
				mu.Unlock()
			}
		})
	}
	for _, m := range mutants {
		select {
		case todo <- m:
		case <-ctx.Done():
		}
	}
	close(todo)
	wg.Wait()
	return cmp.Or(fault, ctx.Err())
}

// report says what became of the mutants, and what is wrong with the list.
type report struct {
	product  *product
	phases   []*phase
	mutants  []*mutant
	outcomes map[*mutant]outcome
	reasons  map[string]string
	partial  bool // only some mutants were run
}

// print prints r, and reports whether each survivor has a reason, and each reason a survivor.
func (r *report) print(w io.Writer) bool {
	counts := map[string]map[string]int{}
	var unlisted []*mutant
	seen := map[string]bool{}
	listed := 0
	for _, m := range r.mutants {
		o := r.outcomes[m]
		column := o.phase
		switch {
		case o.fate == timedOut || o.fate == crashed:
			column = fateNames[o.fate]
		case o.fate == survived && r.reasons[m.key()] != "":
			column = "listed"
			listed++
			seen[m.key()] = true
		case o.fate == survived:
			column = "UNLISTED"
			unlisted = append(unlisted, m)
		}
		for _, row := range []string{m.file, total} {
			if counts[row] == nil {
				counts[row] = map[string]int{}
			}
			counts[row][column]++
			counts[row]["mutants"]++
		}
	}
	for _, m := range r.product.broken {
		counts[m.file]["refused"]++
		counts[total]["refused"]++
	}
	r.table(w, counts)
	stale := r.stale(seen)
	for _, m := range unlisted {
		fmt.Fprintf(w, "survived, and has no reason: (%d, line %d)\n%s\n", m.id, m.line, m.key())
	}
	for _, s := range stale {
		fmt.Fprintf(w, "%s\n", s)
	}
	fmt.Fprintf(w, "%d mutants: %d killed, %d survive for a reason, %d without; %d reasons are out of date\n",
		len(r.mutants), len(r.mutants)-listed-len(unlisted), listed, len(unlisted), len(stale))
	return len(unlisted) == 0 && len(stale) == 0
}

const total = "all"

func (r *report) table(w io.Writer, counts map[string]map[string]int) {
	columns := []string{"mutants"}
	for _, ph := range r.phases {
		columns = append(columns, ph.name)
	}
	columns = append(columns, only().name, fateNames[crashed], fateNames[timedOut], "listed", "UNLISTED", "refused")
	fmt.Fprintf(w, "| file | %s |\n|---|%s\n", strings.Join(columns, " | "), strings.Repeat("---:|", len(columns)))
	rows := slices.Sorted(maps.Keys(counts))
	rows = append(slices.DeleteFunc(rows, func(s string) bool { return s == total }), total)
	for _, row := range rows {
		fmt.Fprintf(w, "| %s |", row)
		for _, c := range columns {
			fmt.Fprintf(w, " %d |", counts[row][c])
		}
		fmt.Fprintln(w)
	}
}

// stale returns what is wrong with the list: entries of mutants that were killed or do not
// exist. Of mutants that were not run it says nothing.
func (r *report) stale(survivors map[string]bool) (list []string) {
	fates := map[string]string{}
	for _, m := range r.mutants {
		fates[m.key()] = r.outcomes[m].String()
	}
	for _, key := range slices.Sorted(maps.Keys(r.reasons)) {
		file, _, _ := strings.Cut(key, " ")
		got, run := fates[key]
		switch {
		case survivors[key] || !slices.Contains(r.product.files, file) && r.product.sources[file] != "":
		case run:
			list = append(list, fmt.Sprintf("listed, but %s:\n%s", got, key))
		case !r.partial:
			list = append(list, "listed, but there is no such mutant:\n"+key)
		}
	}
	return list
}
