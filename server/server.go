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
// that has to change. With an error, the server, if there is one, has what was begun, and can only be ended.
//
// Each step builds on the results of earlier ones. Only the loopback is used before it works: requests over it wait for the
// handler, which is built last.
func New(ctx context.Context, o *Options, store *sqlstore.Store) (*Server, error) {
	if o.Hosted == nil { // otherwise they are as the host has set them
		if err := setProcessGlobals(o); err != nil {
			return nil, err
		}
	}
	s := &Server{}
	return s, s.build(ctx, o, store)
}

func (s *Server) build(ctx context.Context, o *Options, store *sqlstore.Store) (err error) {
	if s.base, err = newBase(ctx, o, store); err != nil {
		return err
	}
	if s.security, err = newSecurity(ctx, s.base); err != nil {
		return err
	}
	if s.apis, err = newAPIs(s.base, s.security); err != nil {
		return err
	}
	if s.background, err = newBackground(ctx, s.base, s.security, s.apis); err != nil {
		return err
	}
	s.inFlight = newInFlight(o, s.phase.serving.Done())
	handler, err := s.newHandler()
	if err != nil {
		return err
	}
	if err := s.startInformers(); err != nil {
		return err
	}
	s.loopback.SetHandler(handler)
	s.handler = s.inFlight.count(handler)
	if o.Fleet != nil {
		s.handler = o.Fleet.Door(s.handler)
	}
	return nil
}
