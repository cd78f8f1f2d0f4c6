package servertest

import (
	"fmt"
	"maps"
	"math/rand"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	utilrand "k8s.io/apimachinery/pkg/util/rand"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/featuregate"

	"github.com/sqube/sqube/server"
)

// Exploration configures Explore. The zero value is 100 seeds, with every fault, on servers with default options.
type Exploration struct {
	// Options are those of each seed's server. It is Virtual.
	Options Options
	// Seeds is how many are tried, from 1. The default is 100.
	Seeds int
	// Without are faults that do not happen.
	Without []Fault
}

// settleTime is how long a server's controllers have work after its start, such as the first ConfigMap in each namespace.
const settleTime = 10 * time.Second

// Explore runs a test once for each seed, in a subtest named after it, until one fails. Each has its own bubble of testing/synctest and its
// own server. The clients of configurations from Server.Unsteady meet delays and faults that the seed determines, as they happen between a
// controller and an API server. Explore reports what the failed seed's clients met, and how to run that seed again.
//
// Faults end a minute after the test's start, so a controller should have reached its aim a little later: time.Sleep(2 * time.Minute) takes
// no time. What the test itself does through s.Config meets no faults.
//
// The same seed gives the n-th request of a client for a path the same delay and the same fault. Requests sent at different times therefore
// arrive in the same order again. The jitter of client-go's backoff and generated names are the seed's, too. What Go decides for requests
// sent at the same time, such as the order of a map or which of two goroutines runs first, remains random. Tests must not run in parallel
// with Explore: they would take its random numbers.
//
// The tests in test/virtual/races_test.go are an example.
func Explore(t *testing.T, e Exploration, test func(t *testing.T, s *Server)) {
	t.Helper()
	if e.Seeds == 0 {
		e.Seeds = 100
	}
	e.Options.Virtual = true
	for seed := 1; seed <= e.Seeds; seed++ {
		if !t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { e.run(t, seed, test) }) {
			return
		}
	}
}

func (e Exploration) run(t *testing.T, seed int, test func(t *testing.T, s *Server)) {
	var f *faults
	defer func() {
		if t.Failed() && f != nil {
			t.Logf("what the clients met, by seconds since the start:\n%s\nonce more: %s", f.report(), again(t.Name()))
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		s := Run(t, e.Options)
		time.Sleep(settleTime)
		synctest.Wait()
		seedLibraries(int64(seed))
		f = newFaults(uint64(seed), e.Without)
		s.faults = f
		test(t, s)
	})
}

// seedLibraries makes what Kubernetes' libraries draw at random repeatable: the names that generateName leads to, and the jitter of backoffs.
func seedLibraries(seed int64) {
	utilrand.Seed(seed)
	const variable = "GODEBUG"
	before := os.Getenv(variable)
	os.Setenv(variable, before+",randseednop=0") // without it, Seed does nothing
	defer os.Setenv(variable, before)
	//lint:ignore SA1019 client-go has no other source
	rand.Seed(seed)
}

// again returns the command that runs a test again.
func again(name string) string {
	parts := strings.Split(name, "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	program := "."
	if info, ok := debug.ReadBuildInfo(); ok && info.Path != "" {
		program = strings.TrimSuffix(info.Path, ".test")
	}
	return fmt.Sprintf("go test %s -run '%s'", program, strings.Join(parts, "/"))
}

// Unsteady returns a configuration for clients that meet Explore's delays and faults. Give it to the code under test, once for each process
// that it stands for. Outside Explore, it returns a copy of config.
func (s *Server) Unsteady(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	if s.faults != nil {
		config.Wrap(s.faults.client())
	}
	return config
}

// report lists what has happened.
func (f *faults) report() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	entries := slices.Clone(f.happened)
	for _, r := range f.restarts {
		if r.at <= f.last {
			entries = append(entries, entry{r.at, fmt.Sprintf("the server restarts: connections break, requests are refused for %v", r.down)})
		}
	}
	slices.SortStableFunc(entries, func(a, b entry) int { return int(a.at - b.at) })
	var text strings.Builder
	for _, e := range entries {
		fmt.Fprintf(&text, "  %9.4f  %s\n", e.at.Seconds(), e.what)
	}
	return text.String()
}

// gates are the feature gates of the process while servers run.
var gates struct {
	mu      sync.Mutex
	running int
	before  map[string]bool // values of the gates that servers have changed
}

// setGates sets feature gates for a server. done must be called when the server has stopped; it may be called more than once.
func setGates(wanted map[string]bool) (done func(), err error) {
	gates.mu.Lock()
	defer gates.mu.Unlock()
	if err := server.SetDefaultGates(); err != nil {
		return nil, err
	}
	known := utilfeature.DefaultMutableFeatureGate.GetAll()
	changed := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if _, there := known[featuregate.Feature(name)]; !there {
			return nil, fmt.Errorf("there is no feature gate %s", name)
		}
		is := utilfeature.DefaultMutableFeatureGate.Enabled(featuregate.Feature(name))
		switch {
		case is == wanted[name]:
		case gates.running > 0:
			return nil, fmt.Errorf("the feature gate %s is %t for the servers that run in this process, which share their gates", name, is)
		default:
			changed[name] = is
		}
	}
	if len(changed) > 0 {
		if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(wanted); err != nil {
			return nil, err
		}
		gates.before = changed
	}
	gates.running++
	return sync.OnceFunc(endGates), nil
}

// endGates restores the gates when the last server has stopped.
func endGates() {
	gates.mu.Lock()
	defer gates.mu.Unlock()
	if gates.running--; gates.running == 0 && len(gates.before) > 0 {
		_ = utilfeature.DefaultMutableFeatureGate.SetFromMap(gates.before) // never fails: the gates had these values before
		gates.before = nil
	}
}
