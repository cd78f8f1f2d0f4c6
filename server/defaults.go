package server

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	basecompatibility "k8s.io/component-base/compatibility"

	"github.com/sqube/sqube/server/bootstrap"
	"github.com/sqube/sqube/server/controllers"
	"github.com/sqube/sqube/sqlstore"
)

// storeDefaults stores the default objects in a new database, and reports whether it has stored all of them. Some 250 requests, which take
// more than the rest of a start, would store the same.
func storeDefaults(ctx context.Context, b *base, s *security) bool {
	if !b.fresh || !usual(b.options) || s.audit.Backend != nil {
		return false
	}
	writes := bootstrap.Defaults(time.Now(), func(resource string) bool {
		if resource == "flowschemas" {
			return b.options.fair()
		}
		return controllers.Runs(b.options.Controllers, b.options.OtherControllers, "clusterrole-aggregation-controller")
	})
	counted := map[sqlstore.Resource]bool{}
	for _, w := range writes {
		if counted[w.Resource] {
			continue
		}
		counted[w.Resource] = true
		// What is read before its first write is in memory from then on.
		if n, err := b.store.Count(ctx, sqlstore.Query{Resource: w.Resource, Limit: 1}); n > 0 || err != nil {
			return false
		}
	}
	var storing errgroup.Group // one group of writes
	for _, w := range writes {
		storing.Go(func() error {
			_, err := b.store.Write(ctx, w)
			return err
		})
	}
	return storing.Wait() == nil && len(writes) > 0 // after an error, requests will show it
}

// usual reports whether nothing makes the default objects differ from those of a server without flags, and nothing has to see them: these
// would be plugins of admission with a configuration, since a new database can't have webhooks and policies.
func usual(o *Options) bool {
	if len(o.RuntimeConfig) > 0 || o.Admission.Configured() || o.Encryption.ConfigFile != "" {
		return false
	}
	version := compatibility.DefaultComponentGlobalsRegistry.EffectiveVersionFor(basecompatibility.DefaultKubeComponent)
	if !version.EqualTo(compatibility.DefaultBuildEffectiveVersion()) {
		return false
	}
	for gate, spec := range utilfeature.DefaultMutableFeatureGate.GetAll() {
		if utilfeature.DefaultFeatureGate.Enabled(gate) != spec.Default {
			return false
		}
	}
	return true
}
