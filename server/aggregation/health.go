package aggregation

import (
	"errors"
	"net/http"

	"k8s.io/apiserver/pkg/server/healthz"
)

// hooks are kube-apiserver's post-start hooks that only start something.
var hooks = []string{
	"aggregator-reload-proxy-client-cert",
	"start-kube-aggregator-informers",
	"apiservice-status-local-available-controller",
	"apiservice-status-remote-available-controller",
	"kube-apiserver-autoregistration",
	"apiservice-openapi-controller",
	"apiservice-openapiv3-controller",
}

// Checks are kube-apiserver's health checks of the aggregation layer, with its names. They pass once the start is complete.
func (a *Aggregator) Checks() []healthz.HealthChecker {
	checks := []healthz.HealthChecker{
		healthz.NamedCheck("autoregister-completion", func(*http.Request) error { return a.registrar.registered() }),
		after("poststarthook/apiservice-registration-controller", a.installed, "APIServices are still being read"),
		after("poststarthook/apiservice-discovery-controller", a.discovered, "aggregated API servers are still being asked what they serve"),
	}
	for _, hook := range hooks {
		checks = append(checks, after("poststarthook/"+hook, a.started, "not finished"))
	}
	return checks
}

// after makes a check that passes once done is closed.
func after(name string, done <-chan struct{}, before string) healthz.HealthChecker {
	return healthz.NamedCheck(name, func(*http.Request) error {
		if !isClosed(done) {
			return errors.New(before)
		}
		return nil
	})
}
