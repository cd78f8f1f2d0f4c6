package trials

import (
	"slices"
	"strings"
	"testing"

	"github.com/sqube/sqube/server/trial"
)

const scaler = `
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 2
  maxReplicas: 10
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}]
`

// triesAround tries what happens around a change, and without one: a node fails, and Pods get more to do.
func triesAround(t *testing.T, c *cluster) {
	r := c.try(t, "--lose", "node/n1")
	r.ends(t, trial.NotAtRest)
	if !r.changes("Node", "n1") || len(r.Evicted) == 0 || r.Tried.Change != "--lose node/n1" {
		t.Errorf("the loss of a node leads to %+v", r.Result)
	}
	r = c.try(t, "-n", "shop", "--load", "deployment/web=2", "-f", write(t, scaler))
	r.ends(t, trial.AtRest)
	if !slices.ContainsFunc(r.Timeline, func(m trial.Moment) bool {
		return m.Object.Kind == "Deployment" && strings.Contains(m.Text, "8 of 8 ready")
	}) {
		t.Errorf("with 2 CPUs to share and 250m for each Pod, the time line is %+v", r.Timeline)
	}
	for _, wrong := range [][]string{{"--lose", "pod/web"}, {"--lose", "node/absent"}, {"--load", "deployment/web"}, {"--load", "job/web=1"}} {
		if r := c.try(t, wrong...); r.code != 2 || !strings.Contains(r.stderr, wrong[1]) && !strings.Contains(r.stderr, "absent") {
			t.Errorf("%v ends with %d: %s", wrong, r.code, r.stderr)
		}
	}
}
