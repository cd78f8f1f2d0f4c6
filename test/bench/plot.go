package main

import (
	"cmp"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// ratio is a row of the plot.
type ratio struct {
	label  string
	values []figure // by series, in multiples of the reference's figure; 0 if not measured
}

// plotOf draws the ratios of sqube's servers to the reference in a recorded run, as SVG.
func plotOf(in io.Reader, out io.Writer) error {
	results, err := readResults(in)
	if err != nil {
		return err
	}
	f := newFigures(results)
	var series []string
	for _, server := range f.servers {
		if strings.HasPrefix(server, squbePrefix) {
			series = append(series, server)
		}
	}
	reference := f.reference()
	if len(series) == 0 || slices.Contains(series, reference) {
		return errors.New("the run has no ratios; measure sqube and a peer in one run, as with --peers etcd")
	}
	ratios := f.ratios(suites[0].rows(), series, reference)
	if len(ratios) == 0 {
		return errors.New("the run has no phase that was measured both on sqube and on the peer")
	}
	rounds := 0
	for _, r := range results {
		rounds = max(rounds, r.Round)
	}
	_, err = io.WriteString(out, draw(series, reference, rounds, ratios))
	return err
}

// ratios returns the ratios of the rows that were measured on the reference and on at least one of the series.
func (f figures) ratios(rows []row, series []string, reference string) (all []ratio) {
	work := ""
	for _, line := range rows {
		work = cmp.Or(line.work, work)
		base := f.of(reference, line)
		if !line.ratio || base == 0 {
			continue
		}
		r := ratio{label: work}
		if memory, found := strings.CutSuffix(line.unit, " MiB"); found {
			r.label += ", " + memory
		}
		measured := false
		for _, server := range series {
			value := f.of(server, line) / base
			r.values = append(r.values, value)
			measured = measured || value > 0
		}
		if measured {
			all = append(all, r)
		}
	}
	return all
}

// Dimensions of the drawing in pixels.
const (
	plotLabels = 370 // from the left edge to the axis
	plotAxis   = 480 // its length
	plotMargin = 30  // on the right
	plotTop    = 92  // above the first row
	plotRow    = 20  // the height of a row
	plotBottom = 40  // below the last row
)

// draw returns the plot: a row per ratio, a mark per series, and an axis whose steps are factors.
func draw(series []string, reference string, rounds int, ratios []ratio) string {
	axis := newAxis(ratios)
	width, bottom := plotLabels+plotAxis+plotMargin, plotTop+plotRow*len(ratios)
	height := bottom + plotBottom
	title := "sqube in relation to kube-apiserver on " + reference
	about := fmt.Sprintf("CPU time, memory, start-up and sizes, divided by those of kube-apiserver on %s in the same run; medians of %d rounds. Left of 1, sqube needs less.", reference, rounds)
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-labelledby="title about">`, width, height, width, height)
	p(`<title id="title">%s</title>`, escaped(title))
	p(`<desc id="about">%s</desc>`, escaped(about))
	p("%s", plotStyle)
	p(`<text class="title" x="16" y="26">%s</text>`, escaped(title))
	p(`<text class="about" x="16" y="46">%s</text>`, escaped(about))
	for i, server := range series {
		x := plotLabels + i*160
		p(`%s<text x="%d" y="72">%s</text>`, mark(i, float64(x), 68), x+12, escaped(server))
	}
	for i, r := range ratios {
		if i%2 == 0 {
			p(`<rect class="band" x="0" y="%d" width="%d" height="%d"/>`, plotTop+i*plotRow, width, plotRow)
		}
		p(`<text class="row" x="%d" y="%d" text-anchor="end">%s</text>`, plotLabels-12, plotTop+i*plotRow+14, escaped(r.label))
	}
	for _, tick := range axis.ticks() {
		class := "grid"
		if tick == 1 {
			class = "one"
		}
		x := axis.x(tick)
		p(`<line class="%s" x1="%.1f" y1="%d" x2="%.1f" y2="%d"/>`, class, x, plotTop, x, bottom)
		p(`<text class="tick" x="%.1f" y="%d" text-anchor="middle">%g</text>`, x, bottom+18, tick)
	}
	for i, r := range ratios {
		for j, value := range r.values {
			if value > 0 {
				p(`<g><title>%s, %s: %.2g</title>%s</g>`, escaped(r.label), escaped(series[j]), float64(value), mark(j, axis.x(float64(value)), plotTop+i*plotRow+plotRow/2))
			}
		}
	}
	p(`</svg>`)
	return b.String()
}

// plotStyle has colours for light and dark pages, safe for red-green colour blindness; the marks' shapes differ as well.
const plotStyle = `<style>
text { font: 12px system-ui, sans-serif; fill: #1f2328; }
.title { font-size: 16px; font-weight: 600; }
.about, .tick { fill: #59636e; font-size: 11px; }
.band { fill: #818b98; fill-opacity: .1; }
.grid { stroke: #818b98; stroke-opacity: .35; }
.one { stroke: #1f2328; stroke-width: 1.5; }
.mark0 { fill: #0969da; }
.mark1 { fill: #bc4c00; }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc; }
.about, .tick { fill: #9198a1; }
.one { stroke: #f0f6fc; }
.mark0 { fill: #4493f8; }
.mark1 { fill: #f0883e; }
}
</style>`

// mark draws the mark of a series: a circle for the first, diamonds for the others.
func mark(series int, x float64, y int) string {
	if series%2 == 0 {
		return fmt.Sprintf(`<circle class="mark0" cx="%.1f" cy="%d" r="4.5"/>`, x, y)
	}
	return fmt.Sprintf(`<path class="mark1" d="M%.1f %d l5.5 5.5 l-5.5 5.5 l-5.5 -5.5 z"/>`, x, y-5)
}

// logAxis is a logarithmic axis between two of its ticks.
type logAxis struct{ from, to int } // the ticks' numbers

// newAxis returns an axis with room for all ratios and 1.
func newAxis(ratios []ratio) logAxis {
	a := logAxis{}
	for _, r := range ratios {
		for _, value := range r.values {
			for value > 0 && tickOf(a.from) > float64(value) {
				a.from--
			}
			for tickOf(a.to) < float64(value) {
				a.to++
			}
		}
	}
	if a.from == a.to { // all ratios are 1
		a.from, a.to = -1, 1
	}
	return a
}

// tickOf returns the tick with a number: 1 for 0, 2 and 5 for 1 and 2, 0.5 and 0.2 for -1 and -2.
func tickOf(i int) float64 {
	exponent, digit := i/3, i%3
	if digit < 0 {
		exponent, digit = exponent-1, digit+3
	}
	tick := []float64{1, 2, 5}[digit]
	if exponent < 0 {
		return tick / math.Pow10(-exponent)
	}
	return tick * math.Pow10(exponent)
}

func (a logAxis) ticks() (ticks []float64) {
	for i := a.from; i <= a.to; i++ {
		ticks = append(ticks, tickOf(i))
	}
	return ticks
}

// x returns the position of a value.
func (a logAxis) x(value float64) float64 {
	from, to := math.Log(tickOf(a.from)), math.Log(tickOf(a.to))
	return plotLabels + plotAxis*(math.Log(value)-from)/(to-from)
}

// escaped returns a string escaped for XML.
func escaped(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a Builder never fails
	return b.String()
}
