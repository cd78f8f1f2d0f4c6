package server

import (
	"context"
	"crypto/tls"
	"log/slog"

	"github.com/sqube/sqube/server/access"
	"github.com/sqube/sqube/server/audit"
	"github.com/sqube/sqube/server/pki"
	"github.com/sqube/sqube/server/writelimits"
)

// security authenticates, authorizes and audits requests.
type security struct {
	accounts       *access.ServiceAccounts
	authentication *access.Authentication
	authorization  *access.Authorization
	limiter        *writelimits.Limiter // nil without RBAC, whose bindings it follows
	audit          *audit.Log
	serving        *pki.Serving
}

func newSecurity(ctx context.Context, b *base) (_ *security, err error) {
	o, s := b.options, &security{}
	files := access.Files{ClientCA: b.pki.CA.CertFile, FrontProxyCA: b.pki.FrontProxyCA.CertFile, ServiceAccountKey: b.pki.ServiceAccountKey}
	if err := o.Access.Complete(files); err != nil {
		return nil, err
	}
	if err := o.Access.Validate(); err != nil {
		return nil, err
	}
	if o.Hosted != nil {
		s.audit = o.Hosted.Audit
	} else if s.audit, err = audit.New(o.Audit, b.outbound.egress); err != nil {
		return nil, err
	}
	b.ends("audit log", func() error { s.audit.Close(); return nil })
	// ctx ends when the server begins to stop, while it still serves. Authenticators are used for longer.
	running := b.phase.running
	if s.accounts, err = access.NewServiceAccounts(ctx, running, o.Access); err != nil {
		return nil, err
	}
	cluster := access.Cluster{Client: b.client, Informers: b.informers, ServerID: b.id, Egress: b.outbound.egress}
	if o.Mirror != nil {
		s.authentication, s.authorization, err = access.NewDelegated(running, o.Access, o.Mirror.Config)
	} else {
		s.authentication, s.authorization, err = newAccess(running, o.Access, s.accounts, cluster)
	}
	if err != nil {
		return nil, err
	}
	if o.Hosted != nil {
		s.authentication.Authenticator = visitors{s.authentication.Authenticator}
	}
	if s.authorization.RBAC {
		if s.limiter, err = writelimits.New(b.store, b.informers.Rbac().V1()); err != nil {
			return nil, err
		}
	}
	pair := b.pki.Serving
	if given := o.Serving.ServerCert.CertKey; given.CertFile != "" {
		pair = pki.Pair{CertFile: given.CertFile, KeyFile: given.KeyFile}
	}
	serving := pki.ServingConfig{Pair: pair, Named: o.sni(), ClientCA: s.authentication.ClientCA, TLS: o.tls, InMemory: o.filesInMemory(), AnyClientCA: o.Fleet != nil}
	if o.Fleet != nil {
		serving.Issue = issuing(o.Fleet, b.pki.NamedIssuer())
	}
	s.serving, err = pki.NewServing(serving)
	return s, err
}

// issuing returns a function that issues certificates for the names of hosted clusters.
func issuing(fleet Fleet, issuer *pki.NamedIssuer) func(string) *tls.Certificate {
	return func(name string) *tls.Certificate {
		if !fleet.Named(name) {
			return nil
		}
		issued, err := issuer.Certificate(name)
		if err != nil {
			slog.Debug("no certificate for the host name of a cluster", "name", name, "error", err)
		}
		return issued
	}
}

// newAccess returns what the server's own flags say.
func newAccess(ctx context.Context, o *access.Options, accounts *access.ServiceAccounts, c access.Cluster) (*access.Authentication, *access.Authorization, error) {
	authentication, err := access.NewAuthentication(ctx, o, accounts, c)
	if err != nil {
		return nil, nil, err
	}
	authorization, err := access.NewAuthorization(ctx, o, c)
	return authentication, authorization, err
}
