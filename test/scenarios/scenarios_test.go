package scenarios

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sqube/sqube/server/simnodes"
	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/fakenode"
)

// scenario is one thing that users do with a cluster.
type scenario struct {
	name  string // the subtest
	shows string // what it tests, for the table
	run   func(*user)
}

// all is the scenarios, grouped by subject.
var all = slices.Concat(deployments, workloads, nodes, policies, lifecycles)

// TestScenarios runs every scenario and logs a table of them: beside upstream's programs on each engine, or else every other one on Postgres,
// since what controllers do does not depend on the engine.
func TestScenarios(t *testing.T) {
	var results results
	for _, plane := range planes() {
		t.Run(plane.name, func(t *testing.T) {
			harness.Engines(t, func(t *testing.T, engine harness.Engine) {
				t.Parallel()
				s := plane.start(t, engine.Datastore)
				t.Cleanup(func() { s.Stop(t) }) // after the nodes have stopped
				c := newCluster(t, s)
				prepare(c.user(t, "prepare"))
				t.Run("scenarios", func(t *testing.T) {
					for i, scenario := range all {
						if *upstream == "" && (i%2 == 0) != (engine.Name == "sqlite") {
							continue
						}
						t.Run(scenario.name, func(t *testing.T) {
							t.Parallel()
							t.Cleanup(func() { results.add(scenario.name, plane.name, engine.Name, !t.Failed()) })
							scenario.run(c.user(t, scenario.name))
						})
					}
				})
			})
		})
	}
	t.Logf("what was tested:\n%s", results.table())
}

// prepare joins the nodes that all scenarios share, and creates a policy that matches all their writes.
func prepare(u *user) {
	fakenode.Join(u.T, u.config, simnodes.Options{
		Names:    []string{"shared-0", "shared-1", "shared-2"},
		Capacity: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("16")},
		Scripts: []simnodes.Script{
			{Namespace: "indexed-job", Labels: "job-name=some," + batchv1.JobCompletionIndexAnnotation + "=2", Runs: []simnodes.Run{{simnodes.Exit(1)}}},
		},
	})
	u.apply(everywhere)
	u.until("the policy is in effect", func() (string, bool) {
		out, err := u.try("{apiVersion: v1, kind: ConfigMap, metadata: {name: refused-everywhere}}", "create", "--dry-run=server", "-f", "-")
		return out, err != nil && strings.Contains(out, "this name is reserved")
	})
}

// results are the results of the scenarios.
type results struct {
	mu     sync.Mutex
	passed map[[3]string]bool // by scenario, plane and engine
}

func (r *results) add(scenario, plane, engine string, passed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.passed == nil {
		r.passed = map[[3]string]bool{}
	}
	r.passed[[3]string{scenario, plane, engine}] = passed
}

// table returns a table with a line for each scenario.
func (r *results) table() string {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	cells := []string{"scenario"}
	for _, plane := range planes() {
		cells = append(cells, "sqlite, "+plane.name, "postgres, "+plane.name)
	}
	fmt.Fprintln(table, strings.Join(append(cells, "what it tests"), "\t"))
	for _, scenario := range all {
		cells = []string{scenario.name}
		for _, plane := range planes() {
			cells = append(cells, r.word(scenario.name, plane.name, "sqlite"), r.word(scenario.name, plane.name, "postgres"))
		}
		fmt.Fprintln(table, strings.Join(append(cells, scenario.shows), "\t"))
	}
	if err := table.Flush(); err != nil {
		return err.Error()
	}
	return text.String()
}

func (r *results) word(scenario, plane, engine string) string {
	switch passed, ran := r.passed[[3]string{scenario, plane, engine}]; {
	case passed:
		return "passed"
	case ran:
		return "FAILED"
	default:
		return "not run"
	}
}
