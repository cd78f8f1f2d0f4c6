package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// label is the line's label in the table.
func (r row) label() string {
	if r.work == "" {
		return "– " + r.unit
	}
	return r.work + ": " + r.unit
}

// figures are the results of a run, by server and phase, in the order of the rounds.
type figures struct {
	servers []string // in the order in which they were measured
	results map[string][]result
}

func newFigures(results []result) figures {
	f := figures{results: map[string][]result{}}
	for _, r := range results {
		if !slices.Contains(f.servers, r.Server) {
			f.servers = append(f.servers, r.Server)
		}
		key := r.Server + "/" + r.Phase
		f.results[key] = append(f.results[key], r)
	}
	return f
}

// reference returns the server that the others are compared with: the first that is neither sqube nor the floor, or else the
// first.
func (f figures) reference() string {
	for _, server := range f.servers {
		if !strings.HasPrefix(server, squbePrefix) && server != floorName {
			return server
		}
	}
	return f.servers[0]
}

// of returns a row's figure of a server: the median of its rounds, 0 if it was not measured.
func (f figures) of(server string, r row) figure {
	value := f.median(server, r.phase, r.value)
	if r.over == "" {
		return value
	}
	if over := f.median(server, r.over, r.value); over > 0 {
		return value / over
	}
	return 0
}

func (f figures) median(server, phase string, value func(result) figure) figure {
	var values []figure
	for _, r := range f.results[server+"/"+phase] {
		values = append(values, value(r))
	}
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	middle := len(values) / 2
	if len(values)%2 == 1 {
		return values[middle]
	}
	return (values[middle-1] + values[middle]) / 2
}

// writeTable prints the medians of the results with a column per server. Comparable figures have their ratio to the
// reference's: below 1, a server needs less.
func writeTable(out io.Writer, rows []row, results []result) error {
	if len(results) == 0 {
		return nil
	}
	f := newFigures(results)
	reference := f.reference()
	lines := [][]string{append([]string{"work"}, f.servers...)}
	for _, line := range rows {
		base := f.of(reference, line)
		cells := []string{line.label()}
		measured := false
		for _, server := range f.servers {
			cell := line.cell(f.of(server, line), base, server != reference)
			measured = measured || cell != ""
			cells = append(cells, cell)
		}
		if measured {
			lines = append(lines, cells)
		}
	}
	return writeMarkdown(out, lines)
}

// writeMarkdown prints the lines as a table with columns aligned for reading as plain text. The first line is the heading.
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

// cell formats one figure, with its ratio to the base if that makes sense.
func (r row) cell(value, base figure, related bool) string {
	if value == 0 {
		return ""
	}
	text := fmt.Sprintf("%.3g", value)
	if value >= 100 {
		text = fmt.Sprintf("%.0f", value)
	}
	if r.ratio && related && base > 0 {
		text += fmt.Sprintf(" (%.2g×)", value/base)
	}
	return text
}

// row is one line of a table: a figure of a phase, empty if not measured.
type row struct {
	unit  string // of the figure
	value func(result) figure
	ratio bool   // shown with its ratio to the reference
	work  string // "" if it is that of the line above
	phase string
	over  string // the phase whose figure it is divided by, unless ""
}

// of returns the row with another label than the phase's name.
func (r row) of(work string) row {
	r.work = work
	return r
}

// with returns the row with or without the ratio to the reference.
func (r row) with(ratio bool) row {
	r.ratio = ratio
	return r
}

// dividedBy returns the figure as a multiple of that of another phase.
func (r row) dividedBy(phase, unit string) row {
	r.over, r.unit, r.ratio = phase, unit, false
	return r
}

// The figures of phases, by which they are compared or not.
var (
	cpuMicros   = row{unit: "CPU µs each", value: func(r result) figure { return r.CPU }, ratio: true}
	cpuMillis   = row{unit: "CPU ms each", value: func(r result) figure { return r.CPU / 1000 }, ratio: true}
	firstMillis = row{unit: "CPU ms each", value: func(r result) figure { return r.FirstCPU / 1000 }, ratio: true}
	startMillis = row{unit: "CPU ms", value: func(r result) figure { return r.CPU / 1000 }}
	delivery    = row{unit: "CPU µs each", value: func(r result) figure { return r.Delivery }, ratio: true}
	databaseCPU = row{unit: "of that Postgres, µs", value: func(r result) figure { return r.DatabaseCPU }}
	p50         = row{unit: "p50 ms", value: func(r result) figure { return r.P50 }}
	p50ToEvent  = row{unit: "p50 ms from the request to the event", value: p50.value}
	p99         = row{unit: "p99 ms", value: func(r result) figure { return r.P99 }}
	longest     = row{unit: "longest ms", value: func(r result) figure { return r.Longest }}
	perSecond   = row{unit: "per s", value: func(r result) figure { return r.PerSecond }}
	length      = row{unit: "bytes of one", value: func(r result) figure { return figure(r.Bytes) }}
	answerSize  = row{unit: "MB", value: func(r result) figure { return megabytes(r.Bytes) }}
	historySize = row{unit: "bytes of history each", value: length.value}
	storedSize  = row{unit: "MB", value: sumOfSizes, ratio: true}
	seconds     = row{unit: "s", value: func(r result) figure { return r.Seconds }}

	rss           = row{unit: "RSS MiB", value: func(r result) figure { return r.RSS }, ratio: true}
	databaseRSS   = row{unit: "of that Postgres, MiB", value: func(r result) figure { return r.DatabaseRSS }}
	anonymous     = row{unit: "anonymous MiB", value: func(r result) figure { return r.Anonymous }, ratio: true}
	rssEach       = row{unit: "RSS KiB each", value: func(r result) figure { return r.RSSEach }, ratio: true}
	anonymousEach = row{unit: "anonymous KiB each", value: func(r result) figure { return r.AnonymousEach }, ratio: true}
	liveEach      = row{unit: "KiB each of heap and stacks", value: func(r result) figure { return r.LiveEach }, ratio: true}

	idleCPU         = row{unit: "CPU, % of a core", value: func(r result) figure { return r.IdleCPU }, ratio: true}
	idleDatabaseCPU = row{unit: "of that Postgres, %", value: func(r result) figure { return r.IdleDatabaseCPU }}
	written         = row{unit: "KB written each", value: func(r result) figure { return r.Written }, ratio: true}
	writtenMinute   = row{unit: "KB written a minute", value: func(r result) figure { return r.WrittenMinute }, ratio: true}
	writtenYear     = row{unit: "GB written a year", value: func(r result) figure { return r.WrittenYear }, ratio: true}
)

// sumOfSizes adds the sizes of all binaries.
func sumOfSizes(r result) figure {
	var sum figure
	for _, n := range r.Sizes {
		sum += n
	}
	return sum
}
