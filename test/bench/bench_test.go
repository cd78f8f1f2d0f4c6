package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// TestMain lets this binary act as the server with canned responses, which the benchmark starts as a separate process.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == floorCommand {
		main()
		return
	}
	os.Exit(m.Run())
}

// mayBeNothing are the units of what a server may have used nothing of, or a cluster that sleeps.
var mayBeNothing = map[string]bool{
	writtenMinute.unit: true, idleCPU.unit: true, idleDatabaseCPU.unit: true, idleCPUEach.unit: true, goroutinesEach.unit: true, filesEach.unit: true,
}

// TestQuickRun runs every phase of every command on sqube and on the floor, some on both engines in turns, and checks that the
// table is complete.
func TestQuickRun(t *testing.T) {
	binary := sqube.Binary(t)
	for command, quick := range map[string]struct{ flags, servers string }{
		"":              {"", "sqube-sqlite sqube-postgres floor"},
		"size":          {"--sqube sqlite --floor=false --writes 40 --gets 40 --objects 200", "sqube-sqlite"},
		"watches":       {"--sqube sqlite", "sqube-sqlite floor"},
		"busy":          {"--sqube sqlite --floor=false", "sqube-sqlite"},
		"transactions":  {"--sqube sqlite --floor=false", "sqube-sqlite"},
		"wear":          {"--floor=false --rounds 2 --writes 40 --duration 2s", "sqube-sqlite sqube-postgres"},
		"churn":         {"--sqube sqlite --floor=false --updates 100 --settle 1ms", "sqube-sqlite"},
		"clients":       {"--sqube sqlite --floor=false", "sqube-sqlite"},
		"control-plane": {"--sqube sqlite --nodes 2 --pods 4 --replicas 2", "sqube-sqlite"},
		"large-objects": {"--sqube sqlite --floor=false", "sqube-sqlite"},
		"finished":      {"--sqube sqlite --floor=false", "sqube-sqlite"},
		"definitions":   {"--sqube sqlite --floor=false", "sqube-sqlite"},
		"fleet":         {"", "sqube-sqlite sqube-postgres"},
	} {
		t.Run("bench "+command, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			args := append(strings.Fields(quick.flags), "--quick", "--binary", binary)
			if command != "" {
				args = append(args, command)
			}
			if err := run(t.Context(), args, nil, &out); err != nil {
				t.Fatalf("%v\n%s", err, out.String())
			}
			results, err := readResults(&out)
			harness.Must(t, err)
			for _, r := range results {
				if r.Operations > 0 && (r.PerSecond <= 0 || r.P50 <= 0) {
					t.Errorf("a phase has no figures: %+v", r)
				}
			}
			suite, err := suiteOf(command)
			harness.Must(t, err)
			f := newFigures(results)
			if measured := strings.Join(f.servers, " "); measured != quick.servers {
				t.Errorf("measured %s instead of %s", measured, quick.servers)
			}
			for _, row := range suite.rows() {
				for _, server := range f.servers {
					if server == "floor" {
						continue // it has only some of the figures
					}

					if strings.HasPrefix(row.unit, "of that Postgres") && server == squbePrefix+"sqlite" {
						continue
					}
					if f.of(server, row) == 0 && !mayBeNothing[row.unit] {
						t.Errorf("%s: no figure for %q, %s", server, row.phase, row.unit)
					}
				}
			}
			if command == "wear" {
				last := results[len(results)-1]
				if turns := slices.IndexFunc(results, func(r result) bool { return r.Round == 2 }); results[turns].Server != f.servers[0] || last.Server != f.servers[1] {
					t.Error("the servers were not measured in turns")
				}
			}
		})
	}
}

// TestScale starts pods on a few nodes, and on Postgres kills a server meanwhile.
func TestScale(t *testing.T) {
	binary := sqube.Binary(t)
	for _, engine := range []string{"sqlite", "postgres"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			args := []string{"--quick", "--sqube", engine, "--binary", binary, "--nodes", "4", "--pods", "20", "--replicas", "5", "--pace", "60", "--duration", "1s", "scale"}
			if err := run(t.Context(), args, nil, &out); err != nil {
				t.Fatalf("%v\n%s", err, out.String())
			}
			results, err := readResults(&out)
			harness.Must(t, err)
			measured := map[string]result{}
			for _, r := range results {
				measured[r.Phase] = r
			}
			for _, phase := range []string{phaseScaleStarts, phaseScaleObject, phaseScaleAll, phaseScaleNodes} {
				if r := measured[phase]; r.P99 <= 0 || r.Limit <= 0 {
					t.Errorf("a phase has no figures: %+v", r)
				}
			}
			// Some of a steady phase may start in the next one.
			if pods := measured[phaseScaleGrow+scaleTenth].Operations + measured[phaseScaleGrow].Operations; pods < 20 {
				t.Errorf("only %d pods started, of 20", pods)
			}
			for _, phase := range []string{phaseScaleSteady + scaleTenth, phaseScaleSteady} {
				r := measured[phase]
				if r.Cores <= 0 || r.RSS <= 0 || r.Writes <= 0 || r.Sent <= 0 || r.LoadCores <= 0 || r.LoadRSS <= 0 {
					t.Errorf("a phase has no figures: %+v", r)
				}
			}
			if took := measured[phaseScaleTakeover].Seconds; (took > 0) != (engine == "postgres") {
				t.Errorf("another server took over after %v s", took)
			}
			if end := measured[phaseScaleDatabase]; end.Times <= 0 {
				t.Errorf("database: %+v", end)
			}
		})
	}
}

// TestProcessFigures reads the CPU time and the memory of this process.
func TestProcessFigures(t *testing.T) {
	self := []int{os.Getpid()}
	if cpu, err := cpuTime(self); err != nil || cpu < 0 {
		t.Errorf("CPU time: %s, %v", cpu, err)
	}
	m, err := readMemory(self)
	if err != nil || m.RSS < m.Anonymous || m.Anonymous == 0 {
		t.Errorf("memory: %+v, %v", m, err)
	}
	if share, err := treeMemory(self[0]); err != nil || share.RSS < share.Anonymous || share.Anonymous == 0 || share.RSS > 2*m.RSS {
		t.Errorf("memory with shared pages divided: %+v, %v; without that %+v", share, err, m)
	}
}

// TestContinueToken finds tokens wherever a server puts a list's metadata.
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

// TestKubernetesResolves checks that all packages of Kubernetes' programs resolve. sqube's own go.sum lacks some of them.
func TestKubernetesResolves(t *testing.T) {
	b, err := newBinaries(t.Context(), t.TempDir())
	harness.Must(t, err)
	modfile, err := b.modfile(apiserverProgram)
	harness.Must(t, err)
	cmd := exec.CommandContext(t.Context(), "go", "list", "-mod=mod", "-modfile", modfile, "-deps", apiserverProgram.pkg, managerProgram.pkg, schedulerProgram.pkg)
	cmd.Dir = b.root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestEnded ends a process before its files are opened, and between opening and reading them.
func TestEnded(t *testing.T) {
	command := exec.Command("sleep", "1000")
	harness.Must(t, command.Start())
	stat, err := os.Open(fmt.Sprintf("/proc/%d/stat", command.Process.Pid))
	harness.Must(t, err)
	defer stat.Close()
	harness.Must(t, command.Process.Kill())
	_ = command.Wait() // it was killed
	if _, err := io.ReadAll(stat); !ended(err) {
		t.Errorf("reading: %v", err)
	}
	if _, err := readStat(command.Process.Pid); !ended(err) {
		t.Errorf("opening: %v", err)
	}
}
