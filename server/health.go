package server

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/server/healthz"
)

// datastoreTimeout is how long a health check waits for the database.
const datastoreTimeout = 2 * time.Second

// health adds /healthz, /livez and /readyz, each with a path per check.
//
// The server is alive while it answers and, once --livez-grace-period is over, has done what a start does; it is ready
// when the database answers too and it is not stopping.
func (s *Server) health(paths *paths) {
	datastore := healthz.NamedCheck("datastore", func(r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), datastoreTimeout)
		defer cancel()
		if _, err := s.store.Revision(ctx); err != nil {
			return errDatastore // the store has logged why
		}
		return nil
	})
	definitions := healthz.NamedCheck("poststarthook/crd-informer-synced", func(*http.Request) error {
		if !s.crd.HasSynced() {
			return fmt.Errorf("custom resource definitions are still being read")
		}
		return nil
	})
	answers := []healthz.HealthChecker{healthz.PingHealthz, healthz.LogHealthz}
	outside := append([]healthz.HealthChecker{datastore}, s.encryption.HealthChecks()...)
	started := slices.Concat([]healthz.HealthChecker{definitions}, s.aggregation.Checks(), s.bootstrap.Checks())
	ready := []healthz.HealthChecker{once(healthz.NewInformerSyncHealthz(s.informers)), healthz.NewShutdownHealthz(s.phase.stopping)}

	healthz.InstallHandler(paths, slices.Concat(answers, outside, started)...)
	healthz.InstallLivezHandler(paths, slices.Concat(answers, from(time.Now().Add(s.options.LivezGracePeriod), started))...)
	healthz.InstallReadyzHandler(paths, slices.Concat(answers, outside, started, ready)...)
}

// once is a check that stays passed. Controllers add informers after the start, which must not take the server back to not
// being ready; what requests need was synced before.
func once(check healthz.HealthChecker) healthz.HealthChecker {
	var passed atomic.Bool
	return healthz.NamedCheck(check.Name(), func(r *http.Request) error {
		if passed.Load() {
			return nil
		}
		err := check.Check(r)
		passed.CompareAndSwap(false, err == nil)
		return err
	})
}

// from makes checks that pass until the given time, and are the given ones then.
func from(start time.Time, checks []healthz.HealthChecker) []healthz.HealthChecker {
	later := make([]healthz.HealthChecker, 0, len(checks))
	for _, check := range checks {
		later = append(later, healthz.NamedCheck(check.Name(), func(r *http.Request) error {
			if time.Now().Before(start) {
				return nil
			}
			return check.Check(r)
		}))
	}
	return later
}
