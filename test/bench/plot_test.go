package main

import (
	"bytes"
	"encoding/xml"
	"io"
	"os"
	"regexp"
	"slices"
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
	if err := xml.Unmarshal([]byte(svg), &struct{}{}); err != nil {
		t.Errorf("the plot is not XML: %v\n%s", err, svg)
	}
	found := func(pattern string) (all []string) {
		for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(svg, -1) {
			all = append(all, match[1])
		}
		return all
	}
	titles := found(`<title.*?>(.*?)</title>`)
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
	// One circle is on the line at 1, and equal ratios are at the same place.
	x := found(`</title><circle .*?cx="(.*?)"`)
	if one := found(`class="one" x1="(.*?)"`); len(x) != 5 || x[1] != x[0] || x[3] != one[0] || x[4] != x[0] {
		t.Errorf("the line at 1 is at %q, and the circles at %q", one, x)
	}
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
