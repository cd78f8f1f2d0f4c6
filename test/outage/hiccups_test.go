package outage

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sqube/sqube/server/simnodes"
	"github.com/sqube/sqube/test/faults"
	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/fakenode"
	"github.com/sqube/sqube/test/harness/sqube"
)

// TestSlowSyncs makes every tenth sync of the disk take 1.5 s, as memory cards do. Clients see slow writes and nothing else: no request
// fails, the server stays ready, its node, too, and the controllers keep their Lease.
func TestSlowSyncs(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{"sqlite", "postgres"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			disk := faults.NewDisk(t)
			options := sqube.Options{Args: []string{"--control-plane"}, Prepare: disk.Run}
			if engine == "postgres" {
				options.Datastore, options.Prepare = harness.NewFaultyPostgresServer(t, disk.Run).Database(t), nil
			}
			c := started(t, options)
			fakenode.Join(t, c.Config(t), simnodes.Options{Names: []string{"board"}})
			controllersRun(t, c)
			leader, ready := c.leader(t), c.readiness(t) // on SQLite, there is no leader

			disk.SlowSyncs(10, 1500*time.Millisecond)
			var asking sync.WaitGroup
			for i := range 4 {
				asking.Go(func() {
					for n := 0; disk.Delayed() < 8 && !t.Failed(); n++ {
						c.answers(t, i, n)
					}
				})
			}
			asking.Wait()
			disk.SlowSync(0)

			if now := c.leader(t); now != leader {
				t.Errorf("the controllers' Lease went from %q to %q", leader, now)
			}
			if was := ready.all("board"); len(was) != 1 || was[0] != corev1.ConditionTrue {
				t.Errorf("the node had the conditions %v", was)
			}
			for _, line := range []string{"level=ERROR", "lost its Lease"} {
				if strings.Contains(c.Log(t), line) {
					t.Errorf("%q is in the log", line)
				}
			}
			c.Stop(t)
		})
	}
}

// answers sends a write, reads, and asks whether the server is ready.
func (c *cluster) answers(t *testing.T, client, n int) {
	const configMaps = "/api/v1/namespaces/default/configmaps"
	name := fmt.Sprintf("written-%d-%d", client, n)
	for _, r := range []request{
		{method: http.MethodPost, path: configMaps, body: fmt.Sprintf(`{"metadata":{"name":%q}}`, name)},
		{method: http.MethodGet, path: configMaps + "/" + name},
		{method: http.MethodGet, path: configMaps + "?limit=10"},
		{method: http.MethodGet, path: "/readyz"},
	} {
		if response, body, err := c.do(t, r); err != nil || response.StatusCode >= 300 {
			t.Errorf("%s %s: %v, %v\n%s", r.method, r.path, response, err, body)
		}
	}
}
