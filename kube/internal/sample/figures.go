package sample

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// Figures are a run in numbers.
type Figures struct {
	Changes
	Faults
	Counts
}

// Row is what a table tells of a run.
type Row struct {
	Name string
	Figures
	Settled time.Duration // from the last change until all was as it should be
}

// WriteTable writes a line for each of rows, under the names of the columns.
func WriteTable(w io.Writer, rows []Row) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "queue\tcreated\tupdated\tdeleted\tevents\treconciles\tmerged\tretries\tconflicts\tinjected\terrors\toverlaps\tsettled\t")
	for _, r := range rows {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%v\t\n", r.Name,
			r.Created, r.Updated, r.Deleted, r.Events, r.Reconciles, r.Merged(), r.Retries,
			r.Conflicts, r.Injected, r.Errors, r.Overlaps, r.Settled)
	}
	return t.Flush()
}
