package bootstrap

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

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
	changed := make(notice, 1)
	keep := upkeep{
		revision: configMapRevision(client, "extension-apiserver-authentication"), interval: cmp.Or(c.Seldom, authenticationInterval), wake: changed,
		run: func(ctx context.Context) {
			clusterauthenticationtrust.NewClusterAuthenticationTrustController(info, client).Run(ctx, 1)
			<-ctx.Done()
		},
	}
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
				ca.AddListener(changed)
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
			keep.until(ctx)
			return nil
		},
	}
}

// legacyTokenHook records when the tracking of legacy service account tokens began (KEP-2799), which the cleaner of unused
// tokens needs.
func legacyTokenHook(client kubernetes.Interface, interval time.Duration, after ...*hook) *hook {
	keep := upkeep{
		revision: configMapRevision(client, legacytokentracking.ConfigMapName), interval: interval,
		run: func(ctx context.Context) { legacytokentracking.NewController(client).RunWithContext(ctx) },
	}
	return &hook{
		name:  "start-legacy-token-tracking-controller",
		after: after,
		serve: readyAtOnce(keep.until),
	}
}

// How often the hooks look whether the ConfigMaps are still there: like upstream, and as often as upstream creates one.
const authenticationInterval, legacyTokenInterval = time.Minute, 30 * time.Minute

// notice implements dynamiccertificates.Listener. It holds one value if content has changed since the last one was taken.
type notice chan struct{}

// Enqueue implements dynamiccertificates.Listener.
func (n notice) Enqueue() {
	select {
	case n <- struct{}{}:
	default:
	}
}
