package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// row is one line of the table: a figure of a phase, 0 where it was not measured.
type row struct {
	label  string
	phase  string
	format string
	value  func(result) figure
	ratio  bool // set in relation to the first server's figure
}

// Figures that several rows show.
var (
	cpuMicros   = func(r result) figure { return r.CPU }
	cpuMillis   = func(r result) figure { return r.CPU / 1000 }
	databaseCPU = func(r result) figure { return r.DatabaseCPU }
	p50         = func(r result) figure { return r.P50 }
	perSecond   = func(r result) figure { return r.PerSecond }
	rss         = func(r result) figure { return r.RSS }
	anonymous   = func(r result) figure { return r.Anonymous }
)

// rows are the table's lines. CPU is what to compare.
var rows = []row{
	{"create ConfigMap 1 KB, 1 client: p50 ms", phaseCreate1, "%.2f", p50, false},
	{"– CPU µs each", phaseCreate1, "%.0f", cpuMicros, true},
	{"create, 16 clients: per s", phaseCreate16, "%.0f", perSecond, false},
	{"– CPU µs each", phaseCreate16, "%.0f", cpuMicros, true},
	{"– Postgres CPU µs each", phaseCreate16, "%.0f", databaseCPU, false},
	{"create, 64 clients: per s", phaseCreate64, "%.0f", perSecond, false},
	{"– CPU µs each", phaseCreate64, "%.0f", cpuMicros, true},
	{"– Postgres CPU µs each", phaseCreate64, "%.0f", databaseCPU, false},
	{"update (PUT), 64 clients: per s", phaseUpdate, "%.0f", perSecond, false},
	{"– CPU µs each", phaseUpdate, "%.0f", cpuMicros, true},
	{"– Postgres CPU µs each", phaseUpdate, "%.0f", databaseCPU, false},
	{"get, 16 clients: per s", phaseGet, "%.0f", perSecond, false},
	{"– CPU µs each", phaseGet, "%.0f", cpuMicros, true},
	{"create Pod 4.8 KB, 32 clients: per s", phasePods, "%.0f", perSecond, false},
	{"– CPU µs each", phasePods, "%.0f", cpuMicros, true},
	{"– bytes of one", phasePods, "%.0f", func(r result) figure { return figure(r.Bytes) }, false},
	{"list all pods, JSON: p50 ms", phaseListJSON, "%.0f", p50, false},
	{"– CPU ms each", phaseListJSON, "%.0f", cpuMillis, true},
	{"– MB", phaseListJSON, "%.1f", func(r result) figure { return megabytes(r.Bytes) }, false},
	{"same, protobuf: p50 ms", phaseListProto, "%.0f", p50, false},
	{"– CPU ms each", phaseListProto, "%.0f", cpuMillis, true},
	{"same, as Table: p50 ms", phaseListTable, "%.0f", p50, false},
	{"– CPU ms each", phaseListTable, "%.0f", cpuMillis, true},
	{"same, in chunks of 500: whole walk, ms", phaseListChunks, "%.0f", p50, false},
	{"– CPU ms each", phaseListChunks, "%.0f", cpuMillis, true},
	{"label selector, 1 of 50: p50 ms", phaseSelector, "%.1f", p50, false},
	{"– CPU ms each", phaseSelector, "%.1f", cpuMillis, true},
	{"4 clients listing at once: CPU ms per list", phaseListFour, "%.0f", cpuMillis, true},
	{"watch: p50 ms from request sent to event seen", phaseWatch, "%.1f", p50, false},
	{"– CPU µs per event delivered", phaseWatch, "%.1f", cpuMicros, true},
	{"memory just started: RSS MiB", phaseFresh, "%.0f", rss, true},
	{"– anonymous MiB", phaseFresh, "%.0f", anonymous, true},
	{"memory, pods loaded: RSS MiB", phaseLoaded, "%.0f", rss, true},
	{"– anonymous MiB", phaseLoaded, "%.0f", anonymous, true},
	{"memory after lists: RSS MiB", phaseAfterLists, "%.0f", rss, true},
	{"– anonymous MiB", phaseAfterLists, "%.0f", anonymous, true},
	{"idle CPU, % of a core", phaseIdle, "%.2f", func(r result) figure { return r.IdleCPU }, true},
	{"– Postgres, % of a core", phaseIdle, "%.2f", func(r result) figure { return r.IdleDatabaseCPU }, false},
	{"start to /readyz, s", phaseStart, "%.2f", func(r result) figure { return r.Seconds }, true},
	{"binaries, MB", phaseStart, "%.1f", sumOfSizes, true},
	{"database, MB", phaseDatabase, "%.1f", sumOfSizes, true},
}

func sumOfSizes(r result) figure {
	var sum figure
	for _, n := range r.Sizes {
		sum += n
	}
	return sum
}

// writeTable prints the results with a column per server, in the order in which they were measured. The figures to
// compare carry their ratio to those of the first.
func writeTable(out io.Writer, results []result) error {
	var servers []string
	byPhase := map[string]result{} // by server and phase
	for _, r := range results {
		if _, seen := byPhase[r.Server]; !seen {
			servers = append(servers, r.Server)
			byPhase[r.Server] = r
		}
		byPhase[r.Server+"/"+r.Phase] = r
	}
	if len(servers) == 0 {
		return nil
	}
	lines := [][]string{append([]string{"work"}, servers...)}
	for _, line := range rows {
		base := line.value(byPhase[servers[0]+"/"+line.phase])
		cells := []string{line.label}
		for i, server := range servers {
			cells = append(cells, line.cell(line.value(byPhase[server+"/"+line.phase]), base, i > 0))
		}
		lines = append(lines, cells)
	}
	return writeMarkdown(out, lines)
}

// writeMarkdown prints the lines as a table whose columns also align as plain text. The first line is the heading.
func writeMarkdown(out io.Writer, lines [][]string) error {
	widths := make([]int, len(lines[0]))
	for _, cells := range lines {
		for i, cell := range cells {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	rule := make([]string, len(widths))
	for i, width := range widths {
		rule[i] = strings.Repeat("-", width)
	}
	text := "\n"
	for _, cells := range slices.Insert(slices.Clone(lines), 1, rule) {
		for i, cell := range cells {
			text += "| " + cell + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)) + " "
		}
		text += "|\n"
	}
	_, err := io.WriteString(out, text)
	return err
}

// cell formats one figure, with its ratio to the base where that makes sense.
func (r row) cell(value, base figure, related bool) string {
	if value == 0 {
		return ""
	}
	text := fmt.Sprintf(r.format, value)
	if r.ratio && related && base > 0 {
		text += fmt.Sprintf(" (%.2g×)", value/base)
	}
	return text
}
