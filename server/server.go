// Package server assembles a Kubernetes API server from its parts.
//
//	client ──TLS──► filters ──► aggregation ──► routes ──┬─► handlers ──► resources ──┐
//	                   ▲             │                   ├─► crd ─────────────────────┼─► sqlstore
//	                loopback         ▼                   └─► openapi, health, …       │
//	                   ▲        other servers                                         │
//	                   └── bootstrap, controllers, admission ◄────────────────────────┘
//
// New builds everything without sending requests; Run serves until its context ends. In-process clients go through the same
// filters and handlers as others, over an in-memory transport.
package server

import (
	"context"
	"net/http"

	"github.com/sqube/sqube/sqlstore"
)

// Server is an API server on one store.
type Server struct {
	*base
	*security
	*apis
	*background

	handler  http.Handler
	inFlight *inFlight // requests to handler
}

// New builds a server on store. It creates missing keys under o.DataDir. o must be complete. Errors name the file or the flag
// that has to change.
//
// Each step builds on the results of earlier ones. Only the loopback is used before it works: requests over it wait for the
// handler, which is built last.
func New(ctx context.Context, o *Options, store *sqlstore.Store) (*Server, error) {
	if err := setProcessGlobals(o); err != nil {
		return nil, err
	}
	base, err := newBase(ctx, o, store)
	if err != nil {
		return nil, err
	}
	security, err := newSecurity(ctx, base)
	if err != nil {
		return nil, err
	}
	apis, err := newAPIs(base, security)
	if err != nil {
		return nil, err
	}
	background, err := newBackground(ctx, base, security, apis)
	if err != nil {
		return nil, err
	}
	s := &Server{base: base, security: security, apis: apis, background: background, inFlight: newInFlight(o, base.phase.serving.Done())}
	handler, err := s.newHandler()
	if err != nil {
		return nil, err
	}
	if err := s.startInformers(); err != nil {
		return nil, err
	}
	s.loopback.SetHandler(handler)
	s.handler = s.inFlight.count(handler)
	return s, nil
}
