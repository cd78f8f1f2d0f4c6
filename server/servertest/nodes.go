package servertest

import (
	"context"
	"testing"
	"time"

	"github.com/sqube/sqube/server/simnodes"
)

// virtualLease is how often nodes in a bubble renew their Leases: as rarely as kube-controller-manager allows, which wants to see that every
// 50 s and looks every 5 s. There is no machine that may be busy.
const virtualLease = 40 * time.Second

// Nodes adds simulated nodes, which run Pods as the options' scripts say, until the test ends. Without Options.ControlPlane, only Pods with
// a spec.nodeName run.
func (s *Server) Nodes(t testing.TB, o simnodes.Options) *simnodes.Nodes {
	t.Helper()
	if o.Failed == nil {
		o.Failed = func(err error) { t.Log(err) }
	}
	if o.Listen == nil {
		o.Listen = s.Listen
	}
	if o.LeaseInterval == 0 && s.network != nil {
		o.LeaseInterval = virtualLease
	}
	nodes, err := simnodes.Join(context.Background(), s.Config, o)
	if err != nil {
		t.Fatalf("simulate nodes: %v", err)
	}
	t.Cleanup(nodes.Stop)
	return nodes
}
