package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/server/healthz"
	utilfeature "k8s.io/apiserver/pkg/util/feature"

	"github.com/sqube/sqube/server/startup"
	"github.com/sqube/sqube/sqlstore"
)

// datastoreTimeout is how long a health check waits for the database.
const datastoreTimeout = 2 * time.Second

// health adds /healthz, /livez and /readyz, each with a path per check. Checks that kube-apiserver has too have the same names,
// since monitoring relies on them. Other checks are in the Checks methods of the parts.
//
// The server is alive if it answers and, once --livez-grace-period is over, has finished starting. It is ready if the
// database answers too and the server is not stopping.
func (s *Server) health(paths *paths) {
	answers := []healthz.HealthChecker{healthz.PingHealthz, healthz.LogHealthz}
	if s.options.Virtual { // that of the log runs a goroutine for the whole process, in its time
		answers[1] = passes("log")
	}
	outside := append([]healthz.HealthChecker{
		// ?exclude with one of the two excludes both.
		healthz.NamedGroupedCheck("etcd", "datastore", s.answers),
		healthz.NamedGroupedCheck("datastore", "etcd", s.answers),
	}, s.encryption.HealthChecks()...)
	started := slices.Concat(s.startChecks(), s.crd.Checks(), s.aggregation.Checks(), s.bootstrap.Checks())
	ready := []healthz.HealthChecker{
		healthz.NamedGroupedCheck("etcd-readiness", "datastore", s.answers),
		once(healthz.NewInformerSyncHealthz(s.informers)),
		healthz.NewShutdownHealthz(s.phase.stopping),
	}
	// A restart of the server does not repair the database, so this check always passes. It has kube-apiserver's name.
	alive := []healthz.HealthChecker{passes("etcd")}
	// kube-apiserver restarts when the certificate of its own clients expires. sqube's renew theirs.
	loopback := []healthz.HealthChecker{passes("loopback-serving-certificate")}

	mux := oncePerRequest{paths, s.notes}
	healthz.InstallHandler(mux, slices.Concat(answers, outside, started, loopback)...)
	healthz.InstallLivezHandler(mux, slices.Concat(answers, alive, loopback, from(time.Now().Add(s.options.LivezGracePeriod), started))...)
	healthz.InstallReadyzHandler(mux, slices.Concat(answers, outside, started, ready)...)
}

func passes(name string) healthz.HealthChecker {
	return healthz.NamedCheck(name, func(*http.Request) error { return nil })
}

// answerKey is the context key of a request's *databaseAnswer.
type answerKey struct{}

// databaseAnswer is the database's answer within one request, shared by all of the request's checks.
type databaseAnswer struct {
	query sync.Once
	err   error
}

// oncePerRequest adds handlers that query the database at most once per request. Those that list all checks end with notes if the
// client wants to know more.
type oncePerRequest struct {
	*paths
	notes func(http.ResponseWriter)
}

// Handle implements the mux of package healthz.
func (a oncePerRequest) Handle(path string, handler http.Handler) {
	a.paths.Handle(path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), answerKey{}, new(databaseAnswer))))
		if _, verbose := r.URL.Query()["verbose"]; verbose && path == "/readyz" {
			a.notes(w)
		}
	}))
}

// notes writes what a person should know though the server is ready.
func (s *Server) notes(w http.ResponseWriter) {
	for _, setting := range s.store.Stats().UnsafeSettings {
		fmt.Fprintf(w, "[!]acknowledged writes may not survive: %s\n", setting)
	}
}

// answers returns an error if the database does not answer. The request must have passed oncePerRequest.
func (s *Server) answers(r *http.Request) error {
	answer := r.Context().Value(answerKey{}).(*databaseAnswer)
	answer.query.Do(func() {
		ctx, cancel := context.WithTimeout(r.Context(), datastoreTimeout)
		defer cancel()
		// The store has logged why.
		if err := s.store.Ready(ctx); errors.Is(err, sqlstore.ErrMoved) {
			answer.err = errors.New("a file of the datastore was deleted, moved or replaced")
		} else if err != nil {
			answer.err = errors.New("the datastore does not answer")
		}
	})
	return answer.err
}

// startChecks are the checks of kube-apiserver's post-start hooks that only start something, and of its storage.
func (s *Server) startChecks() []healthz.HealthChecker {
	hooks := []string{"generic-apiserver-start-informers", "start-apiserver-admission-initializer"}
	if s.fairness != nil {
		hooks = append(hooks, "priority-and-fairness-config-consumer", "priority-and-fairness-filter", "storage-object-count-tracker-hook")
	} else {
		hooks = append(hooks, "max-in-flight-filter")
	}
	if utilfeature.DefaultFeatureGate.Enabled(features.UnknownVersionInteroperabilityProxy) {
		hooks = append(hooks, "peer-endpoint-reconciler-controller")
	}
	if coordinated() {
		hooks = append(hooks, "start-kube-apiserver-coordinated-leader-election-controller")
	}
	checks := []healthz.HealthChecker{once(healthz.NamedCheck("poststarthook/storage-readiness", s.answers))}
	for _, hook := range hooks {
		checks = append(checks, startup.Check("poststarthook/"+hook, s.phase.started, "not finished"))
	}
	return checks
}

// once returns a check that keeps passing once it has passed. Controllers add informers after the start; these must not make
// the server unready again, since everything that requests need was synced before.
func once(check healthz.HealthChecker) healthz.HealthChecker {
	var passed atomic.Bool
	return healthz.NamedCheck(check.Name(), func(r *http.Request) error {
		if passed.Load() {
			return nil
		}
		err := check.Check(r)
		if err == nil {
			passed.Store(true)
		}
		return err
	})
}

// from returns checks that pass until start, and then behave like the given ones.
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
