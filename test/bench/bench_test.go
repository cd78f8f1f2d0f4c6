package main

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/sqube/sqube/test/harness/sqube"
)

// TestMain lets this binary be the server with ready bytes, which the benchmark starts as a process of its own.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == floorCommand {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestQuickRun runs every phase on sqube, on both engines, and on the floor, and looks whether the output is complete.
func TestQuickRun(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), []string{"--quick", "--binary", sqube.Binary(t)}, &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	lines := map[string]int{}
	for line := range strings.Lines(out.String()) {
		if !strings.HasPrefix(line, "{") {
			continue
		}
		var r result
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		lines[r.Server]++
		if r.Operations > 0 && (r.PerSecond <= 0 || r.P50 <= 0) {
			t.Errorf("a phase without figures: %s", line)
		}
	}
	want := len(phases(quickSizes))
	if lines["sqube-sqlite"] != want || lines["sqube-postgres"] != want || lines["floor"] == 0 {
		t.Errorf("%v phases were measured, not %d on each engine", lines, want)
	}
	if table := out.String(); !strings.Contains(table, "| idle CPU") {
		t.Errorf("no table:\n%s", table)
	}
}

// TestChurn updates a few times, and looks whether all ratios are there.
func TestChurn(t *testing.T) {
	var out bytes.Buffer
	args := []string{"--quick", "--updates", "100", "--settle", "1ms", "--direct", "--sqube", "sqlite", "--binary", sqube.Binary(t), "churn"}
	if err := run(t.Context(), args, &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if ratios := regexp.MustCompile(`(?m)^\|.*\| \d+\.\d\d +\|$`).FindAllString(out.String(), -1); len(ratios) != 11 {
		t.Errorf("no table of 11 figures:\n%s", out.String())
	}
}

// TestListenerOf finds the process behind a port, which is this one.
func TestListenerOf(t *testing.T) {
	https := httptest.NewTLSServer(newFloorHandler(1))
	t.Cleanup(https.Close)
	server := https.URL
	pid, err := listenerOf(server)
	if err != nil {
		t.Fatal(err)
	}
	if pid != os.Getpid() {
		t.Errorf("the listener of %s is process %d, not %d", server, pid, os.Getpid())
	}
	if cpu, err := cpuTime([]int{pid}); err != nil || cpu < 0 {
		t.Errorf("CPU time of this process: %s, %v", cpu, err)
	}
	if m, err := readMemory([]int{pid}); err != nil || m.RSS < m.Anonymous || m.Anonymous == 0 {
		t.Errorf("memory of this process: %+v, %v", m, err)
	}
}

// TestContinueToken reads tokens wherever a server puts a list's metadata.
func TestContinueToken(t *testing.T) {
	for list, want := range map[string]string{
		`{"metadata":{"resourceVersion":"1","continue":"abc"},"items":[{"metadata":{"name":"a"}}]}`: "abc",
		`{"items":[{"metadata":{"name":"a"}}],"metadata":{"continue":"abc"}}`:                       "abc",
		`{"metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"a"}}]}`:                  "",
	} {
		if got, err := continueToken([]byte(list)); err != nil || got != want {
			t.Errorf("%s: %q, %v", list, got, err)
		}
	}
}
