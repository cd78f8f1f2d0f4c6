package robustness

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/robustness/check"
	"github.com/sqube/sqube/test/robustness/history"
	"github.com/sqube/sqube/test/robustness/workload"
)

var (
	seedFlag     = flag.Uint64("seed", 2, "decides the faults and the clients' choices; 0 for a new one every round")
	durationFlag = flag.Duration("duration", 8*time.Second, "how long faults occur in each configuration")
	forFlag      = flag.Duration("for", 0, "run more rounds, each with a new seed, until this time is over")
	patroniFlag  = flag.Bool("patroni", false, "run the configurations with Patroni too")
	oldFlag      = flag.String("old", "", "run the first of three servers with this older sqube, and no other configuration")
	keepFlag     = flag.Bool("keep", false, "keep the history and the logs even if the test passes")
	historyFlag  = flag.String("history", "", "the directory of a kept history, for TestHistory to check")
)

// settleTimeout limits the time from the last fault until everything works again and all watches are up to date.
const settleTimeout = 2 * time.Minute

// TestRobustness runs each configuration, round by round.
func TestRobustness(t *testing.T) {
	seed := *seedFlag
	played := configurations
	if *patroniFlag {
		played = append(slices.Clone(configurations), patroniConfigurations...)
	}
	if *oldFlag != "" {
		played = skewConfigurations
	}
	paused := map[string]pauses{}
	for _, c := range played {
		paused[c.name] = pauses{}
	}
	for began := time.Now(); ; seed = 0 {
		if seed == 0 {
			seed = uint64(rand.Uint32())
		}
		for _, c := range played {
			t.Run(c.name, func(t *testing.T) {
				if *forFlag == 0 {
					t.Parallel()
				}
				round(t, c, seed, *durationFlag, paused[c.name])
			})
		}
		if t.Failed() || time.Since(began) >= *forFlag {
			return
		}
	}
}

// round runs a configuration with the faults of a seed and checks its history. It adds the pauses of failovers to paused.
func round(t *testing.T, c configuration, seed uint64, duration time.Duration, paused pauses) {
	t.Logf("replay: go test ./test/robustness -run 'TestRobustness/^%s$' -seed %d -duration %s", c.name, seed, duration)
	recorder := history.NewRecorder()
	took := stopwatch()
	cl := startCluster(t, c, recorder)
	work, err := workload.Start(t.Context(), recorder, seed, cl.configs(t))
	harness.Must(t, err)
	starting := took()
	ctx, stop := context.WithCancel(t.Context())
	wait := cl.supervise(ctx)
	defer wait()
	defer stop()
	cl.began = recorder.Now()
	var windows []window
	var errs []error
	var suffered int
	if c.patroni {
		if windows, err = cl.failOver(ctx, seed, duration); err != nil {
			errs = append(errs, err)
		}
		suffered = len(windows)
	} else if c.kills != nil {
		if suffered, err = cl.kill(ctx, c, seed, duration); err != nil {
			errs = append(errs, err)
		}
	} else {
		plan := newPlan(seed, c, duration)
		cl.run(ctx, plan)
		suffered = len(plan)
	}
	cl.note("all faults have ended")
	failing := took()
	errs = append(errs, settle(t.Context(), work)...)
	stop()
	wait()
	settling := took()
	h := recorder.History()
	errs = append(errs, check.All(h)...)
	errs = append(errs, cl.inspect(t)...)
	errs = append(errs, work.Refusals()...)
	errs = append(errs, cl.panics(t)...)
	t.Logf("%v; %d faults; started in %s, %s of faults, settled in %s, checked in %s", h, suffered, starting, failing, settling, took())
	if c.patroni {
		paused.add(h, windows)
		t.Logf("without writes, in all rounds: %s", paused)
	}
	report(t, errs)
	if len(errs) > 0 || *keepFlag {
		cl.save(t, h, errs)
	}
}

// stopwatch returns a function that returns the time since its previous call.
func stopwatch() func() time.Duration {
	last := time.Now()
	return func() time.Duration {
		defer func() { last = time.Now() }()
		return time.Since(last).Round(time.Millisecond)
	}
}

// settle waits until all servers work, all watches are up to date and all clients have finished.
func settle(ctx context.Context, work *workload.Workload) (errs []error) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	if err := work.Finish(ctx); err != nil {
		errs = append(errs, err)
	}
	return errs
}

// panics searches the logs for panics, which no fault may cause.
func (c *cluster) panics(t *testing.T) (errs []error) {
	for _, s := range c.servers {
		for line := range strings.Lines(s.Log(t)) {
			for _, word := range []string{"panic:", "panicked: true", "Observed a panic", "fatal error:"} {
				if strings.Contains(line, word) {
					errs = append(errs, fmt.Errorf("server %d wrote %s", s.number, line))
				}
			}
		}
	}
	return errs
}

// report fails the test with the first errors; the file has all of them.
func report(t *testing.T, errs []error) {
	for i, err := range errs {
		if i == 10 {
			t.Errorf("and %d more", len(errs)-i)
			return
		}
		t.Error(err)
	}
}

// save keeps the history, the errors and the logs.
func (c *cluster) save(t *testing.T, h *history.History, errs []error) {
	dir, err := os.MkdirTemp("", "sqube-robustness-")
	harness.Must(t, err)
	files := map[string][]byte{"faults.log": []byte(c.log.String())}
	for _, err := range errs {
		files["errors"] = append(files["errors"], err.Error()+"\n"...)
	}
	for _, s := range c.servers {
		files[fmt.Sprintf("server-%d.log", s.number)] = []byte(s.Log(t))
	}
	if c.postgres != nil {
		if files["postgres.log"], err = c.postgres.Log(); err != nil {
			t.Error(err)
		}
	}
	if c.patroni != nil {
		files["patroni.log"] = []byte(c.patroni.Logs())
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			t.Error(err)
		}
	}
	if err := h.Save(dir); err != nil {
		t.Error(err)
	}
	t.Logf("the history and all logs are in %s", dir)
}

// TestHistory checks the history in the directory that -history names.
func TestHistory(t *testing.T) {
	if *historyFlag == "" {
		return
	}
	h, err := history.Load(*historyFlag)
	harness.Must(t, err)
	report(t, check.All(h))
}
