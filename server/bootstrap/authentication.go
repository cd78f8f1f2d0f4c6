package bootstrap

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/controlplane/controller/clusterauthenticationtrust"
	"k8s.io/kubernetes/pkg/controlplane/controller/legacytokentracking"

	"github.com/sqube/sqube/server/pki"
)

// authenticationHook publishes what extension API servers need to trust this server and its clients, and publishes it again when
// a CA file changes.
func authenticationHook(client kubernetes.Interface, c Config, after ...*hook) *hook {
	info := c.Authentication
	controller := clusterauthenticationtrust.NewClusterAuthenticationTrustController(info, client)
	return &hook{
		name:  "start-cluster-authentication-info-controller",
		after: after,
		serve: func(ctx context.Context, ready func()) error {
			var running sync.WaitGroup
			defer running.Wait()
			for _, ca := range []dynamiccertificates.CAContentProvider{info.ClientCA, info.RequestHeaderCA} {
				if ca == nil {
					continue
				}
				ca.AddListener(controller)
				watcher, ok := ca.(dynamiccertificates.ControllerRunner)
				if !ok {
					continue // content that never changes
				}
				if err := watcher.RunOnce(ctx); err != nil {
					return fmt.Errorf("read certificate authority %s: %w", ca.Name(), err)
				}
				running.Go(func() { pki.Follow(ctx, watcher, c.InMemory) })
			}
			ready()
			published, cancel := c.atFirst(ctx)
			defer cancel()
			controller.Run(published, 1)
			<-ctx.Done()
			return nil
		},
	}
}

// legacyTokenHook records when the tracking of legacy service account tokens began (KEP-2799), which the cleaner of unused
// tokens needs.
func legacyTokenHook(client kubernetes.Interface, after ...*hook) *hook {
	controller := legacytokentracking.NewController(client)
	return &hook{
		name:  "start-legacy-token-tracking-controller",
		after: after,
		serve: readyAtOnce(controller.RunWithContext),
	}
}
