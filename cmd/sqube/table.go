package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/sqube/sqube/cmd/sqube/internal/terminal"
)

// table prints rows in columns, for a terminal.
type table struct{ writer *tabwriter.Writer }

func newTable(out io.Writer, heads ...string) table {
	t := table{tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)}
	t.row(heads...)
	return t
}

func (t table) row(cells ...string) {
	for i, cell := range cells {
		cells[i] = cmp.Or(terminal.Printable(cell), "-")
	}
	fmt.Fprintln(t.writer, strings.Join(cells, "\t"))
}

func (t table) end() error { return t.writer.Flush() }
