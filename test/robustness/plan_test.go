package robustness

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"
)

// configuration is a number of servers on an engine.
type configuration struct {
	name     string
	postgres bool
	servers  int
	// patroni means that Postgres is three nodes under Patroni, haproxy that the servers reach it through HAProxy.
	patroni, haproxy bool
	// skew means that the first server is the older sqube that -old names.
	skew bool
	// kills are the only faults if there are any, one after the other, and clients get writes acknowledged before each.
	kills []kind
}

var configurations = []configuration{
	{name: "sqlite", servers: 1},
	{name: "postgres-1", postgres: true, servers: 1},
	{name: "postgres-3", postgres: true, servers: 3},
	{name: "sqlite-kills", servers: 1, kills: []kind{killServer}},
	{name: "postgres-kills", postgres: true, servers: 1, kills: []kind{killServer, killPostgres}},
}

// skewConfigurations are those of -old.
var skewConfigurations = []configuration{{name: "postgres-skew", postgres: true, servers: 3, skew: true}}

// patroniConfigurations need Patroni, etcd and HAProxy, and a minute for each fault.
var patroniConfigurations = []configuration{
	{name: "patroni-haproxy", servers: 2, patroni: true, haproxy: true},
	{name: "patroni-hosts", servers: 2, patroni: true},
}

// fault is a planned fault: its kind, the server (if it affects one), its start and its duration.
type fault struct {
	At     time.Duration
	Kind   kind
	Server int
	For    time.Duration
	// Pick makes the choices when the fault occurs: which connection, how far and in which direction the clock steps.
	Pick uint32
}

func (f fault) String() string {
	return fmt.Sprintf("%s, %s, for %s (pick %d)", f.Kind, f.target(), f.For.Round(time.Millisecond), f.Pick)
}

// The pauses between the starts of two faults, and how long one lasts.
const (
	minPause, maxPause = 50 * time.Millisecond, 900 * time.Millisecond
	minFor, maxFor     = 20 * time.Millisecond, 2 * time.Second
)

// newPlan returns the faults of a run, sorted by time. They depend only on the seed; a longer run starts like a shorter one.
func newPlan(seed uint64, c configuration, duration time.Duration) []fault {
	random := newRandom(seed, c.name)
	between := func(a, b time.Duration) time.Duration { return a + time.Duration(random.Int64N(int64(b-a))) }
	kinds := kindsOf(c)
	var plan []fault
	busy := map[string]time.Duration{} // until when each target has another fault
	for at := between(minPause, maxPause); ; at += between(minPause, maxPause) {
		f := fault{At: at, Kind: kinds[random.IntN(len(kinds))], Server: random.IntN(c.servers), Pick: random.Uint32()}
		// The shorter of two: most are short, some are long.
		f.For = min(between(minFor, maxFor), between(minFor, maxFor))
		if at >= duration {
			return plan
		}
		if at < busy[f.target()] {
			continue
		}
		busy[f.target()] = at + f.For
		plan = append(plan, f)
	}
}

// newRandom returns a random source that depends on the seed and the purpose.
func newRandom(seed uint64, purpose string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(purpose)) // never fails
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

func TestPlan(t *testing.T) {
	for _, c := range configurations {
		plan := newPlan(1, c, time.Minute)
		if !reflect.DeepEqual(plan, newPlan(1, c, time.Minute)) {
			t.Errorf("%s: the same seed makes different plans", c.name)
		}
		if shorter := newPlan(1, c, 10*time.Second); !reflect.DeepEqual(shorter, plan[:len(shorter)]) {
			t.Errorf("%s: a shorter run has another plan", c.name)
		}
		if reflect.DeepEqual(plan, newPlan(2, c, time.Minute)) {
			t.Errorf("%s: another seed makes the same plan", c.name)
		}
		seen := map[kind]bool{}
		for _, f := range newPlan(1, c, time.Hour) {
			seen[f.Kind] = true
			if f.Server < 0 || f.Server >= c.servers || f.For < minFor || f.For > maxFor {
				t.Errorf("%s: %v", c.name, f)
			}
		}
		for _, k := range kindsOf(c) {
			if !seen[k] {
				t.Errorf("%s: %s never occurs", c.name, k)
			}
		}
		if !slices.IsSortedFunc(plan, func(a, b fault) int { return int(a.At - b.At) }) {
			t.Errorf("%s: the plan is out of order", c.name)
		}
	}
}
