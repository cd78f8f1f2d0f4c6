package crd

import (
	"errors"
	"net/http"

	"k8s.io/apiserver/pkg/server/healthz"
)

// Checks are kube-apiserver's health checks of custom resources, under its names. They pass once the start is complete.
func (s *Server) Checks() []healthz.HealthChecker {
	started := func(*http.Request) error {
		if !closed(s.started) {
			return errors.New("not finished")
		}
		return nil
	}
	return []healthz.HealthChecker{
		healthz.NamedCheck("poststarthook/start-apiextensions-informers", started),
		healthz.NamedCheck("poststarthook/start-apiextensions-controllers", started),
		healthz.NamedCheck("poststarthook/crd-informer-synced", func(*http.Request) error {
			if !s.HasSynced() {
				return errors.New("custom resource definitions are still being read")
			}
			return nil
		}),
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
