package servertest

import (
	"context"
	"testing"

	"github.com/sqube/sqube/server/simnodes"
)

// Nodes adds simulated nodes, which run Pods as the options' scripts say, until the test ends.
func (s *Server) Nodes(t testing.TB, o simnodes.Options) *simnodes.Nodes {
	t.Helper()
	if o.Failed == nil {
		o.Failed = func(err error) { t.Log(err) }
	}
	nodes, err := simnodes.Join(context.Background(), s.Config, o)
	if err != nil {
		t.Fatalf("simulate nodes: %v", err)
	}
	t.Cleanup(nodes.Stop)
	return nodes
}
