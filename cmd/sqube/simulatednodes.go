package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sqube/sqube/server"
	"github.com/sqube/sqube/server/simnodes"
)

func (o *serveOptions) addSimulatedNodesFlag(fs *pflag.FlagSet) {
	fs.IntVar(&o.simulatedNodes, "simulated-nodes", 0, "Simulate that many nodes, for tests: with --in-memory or in envtest. Pods on them run, become ready and end, but nothing is executed; annotations such as "+simnodes.RunAnnotation+"='wait 5s; log no database; exit 1' say what their containers do.")
}

func (o *serveOptions) completeSimulatedNodes() error {
	switch {
	case o.simulatedNodes < 0:
		return fmt.Errorf("--simulated-nodes %d must not be negative", o.simulatedNodes)
	case o.simulatedNodes > 0 && !o.server.InMemory && !o.envtest:
		return errors.New("--simulated-nodes needs --in-memory: it is for tests")
	}
	return nil
}

// simulateNodes adds the simulated nodes to a server that is ready. They end with ctx.
func (o *serveOptions) simulateNodes(ctx context.Context, s *server.Server) error {
	if o.simulatedNodes == 0 { // there need not be such a file
		return nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", s.AdminKubeconfig())
	if err != nil {
		return err
	}
	return simulate(ctx, o.simulatedNodes, o.server, config)
}

// simulate adds simulated nodes to a cluster. They end with ctx.
func simulate(ctx context.Context, count int, o *server.Options, config *rest.Config) error {
	if count == 0 {
		return nil
	}
	_, err := simnodes.Join(ctx, config, simnodes.Options{
		Count: count,
		Listen: func(network, address string) (net.Listener, error) {
			listener, err := net.Listen(network, address)
			if err == nil {
				o.Allow(listener.Addr().String())
			}
			return listener, err
		},
		Failed: func(err error) { slog.Warn("simulating a node fails", "error", err) },
	})
	return err
}
