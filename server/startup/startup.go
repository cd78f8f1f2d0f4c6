// Package startup has the health checks of what a server does when it starts.
package startup

import (
	"errors"
	"net/http"

	"k8s.io/apiserver/pkg/server/healthz"
)

// Check returns a check that passes once done is closed. Until then its error is the reason.
func Check(name string, done <-chan struct{}, reason string) healthz.HealthChecker {
	return healthz.NamedCheck(name, func(*http.Request) error {
		select {
		case <-done:
			return nil
		default:
			return errors.New(reason)
		}
	})
}
