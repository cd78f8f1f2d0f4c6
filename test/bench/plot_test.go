package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sqube/sqube/test/harness"
)

// recorded runs a command on testdata/run.jsonl: three rounds of a few phases, with terminal output between them.
func recorded(t *testing.T, command string) string {
	t.Helper()
	file, err := os.Open("testdata/run.jsonl")
	harness.Must(t, err)
	defer file.Close()
	var out bytes.Buffer
	harness.Must(t, run(t.Context(), []string{command}, file, &out))
	return out.String()
}

// TestTable compares medians with the peer's.
func TestTable(t *testing.T) {
	table := recorded(t, "table")
	var got []string
	for line := range strings.Lines(table) {
		if line = strings.Join(strings.Fields(line), " "); line != "" {
			got = append(got, line)
		}
	}
	got = slices.DeleteFunc(got, func(line string) bool { return strings.HasPrefix(line, "| -") })
	if want := []string{
		"| work | sqube-sqlite | sqube-postgres | etcd | floor |",
		"| get, 16 clients: per s | 100 | 100 | 100 | 100 |",
		"| – CPU µs each | 200 (0.25×) | 900 (1.1×) | 800 | 40 (0.05×) |",
		"| memory, pods created: RSS MiB | 250 (0.25×) | | 1000 | |",
		"| – anonymous MiB | 180 (0.2×) | | 900 | |",
		"| list all pods, protobuf, first after they were created: CPU ms each | 600 (1×) | | 600 | |",
		"| list all pods, protobuf, the first and more: p50 ms | 200 | | 200 | |",
		"| – CPU ms each | 150 (0.25×) | | 600 | |",
	}; !slices.Equal(got, want) {
		t.Errorf("the table is\n%s\nnot\n%s", table, strings.Join(want, "\n"))
	}
}

// TestPlot draws a mark for every ratio, and the same plot each time.
func TestPlot(t *testing.T) {
	svg := recorded(t, "plot")
	if svg != recorded(t, "plot") {
		t.Error("two plots of one run differ")
	}
	var titles, labels []string
	var x []float64
	element, class := "", ""
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("the plot is not XML: %v\n%s", err, svg)
		}
		switch token := token.(type) {
		case xml.StartElement:
			element, class = token.Name.Local, ""
			for _, a := range token.Attr {
				if a.Name.Local == "class" {
					class = a.Value
				}
			}
			if class == "one" || element == "circle" {
				x = append(x, position(t, token))
			}
		case xml.CharData:
			switch {
			case element == "title":
				titles = append(titles, string(token))
			case class == "row":
				labels = append(labels, string(token))
			}
		case xml.EndElement:
			element, class = "", ""
		}
	}
	if want := []string{
		"get, 16 clients",
		"memory, pods created, RSS",
		"memory, pods created, anonymous",
		"list all pods, protobuf, first after they were created",
		"list all pods, protobuf, the first and more",
	}; !slices.Equal(labels, want) {
		t.Errorf("the rows are %q, not %q", labels, want)
	}
	if want := []string{
		"sqube in relation to kube-apiserver on etcd",
		"get, 16 clients, sqube-sqlite: 0.25",
		"get, 16 clients, sqube-postgres: 1.1",
		"memory, pods created, RSS, sqube-sqlite: 0.25",
		"memory, pods created, anonymous, sqube-sqlite: 0.2",
		"list all pods, protobuf, first after they were created, sqube-sqlite: 1",
		"list all pods, protobuf, the first and more, sqube-sqlite: 0.25",
	}; !slices.Equal(titles, want) {
		t.Errorf("the marks are %q, not %q", titles, want)
	}
	// The first circle is the legend's. The line at 1 precedes the other circles, the fourth of which is on it.
	if len(x) != 7 || x[2] >= x[1] || x[3] != x[2] || x[4] >= x[3] || x[5] != x[1] || x[6] != x[2] {
		t.Errorf("the line at 1 and the circles are at %v", x)
	}
}

// position returns the x coordinate of a vertical line or a circle.
func position(t *testing.T, e xml.StartElement) float64 {
	t.Helper()
	for _, a := range e.Attr {
		if a.Name.Local == "x1" || a.Name.Local == "cx" {
			x, err := strconv.ParseFloat(a.Value, 64)
			harness.Must(t, err)
			return x
		}
	}
	t.Fatalf("a %s without a position", e.Name.Local)
	return 0
}

// TestPlotRefuses plots runs that lack something.
func TestPlotRefuses(t *testing.T) {
	for input, want := range map[string]string{
		"":                                  "the input has no results",
		"{":                                 "line 1 is not a result",
		`{"server":"etcd","phase":"start"}`: "the run has no ratios",
		`{"server":"sqube-sqlite","phase":"start"}`:                                              "the run has no ratios",
		`{"server":"sqube-sqlite","phase":"start"}` + "\n" + `{"server":"etcd","phase":"start"}`: "the run has no phase",
	} {
		if err := plotOf(strings.NewReader(input), io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, not %q", input, err, want)
		}
	}
}
