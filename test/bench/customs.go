package main

import (
	"context"
	_ "embed"
	"fmt"
)

// certificateCRD defines Certificates with a schema typical of operators: nested objects, lists with keys, enumerations,
// patterns, defaults, an int-or-string, a free-form part, a status subresource and printer columns.
//
//go:embed certificate.crd.json
var certificateCRD []byte

// certificates are custom resources, which take 1.1 KB in a server with their defaults and managed fields.
var certificates = kind{collection("bench.example.com/v1", "certificates"), "frontend", func(name string, revision int) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"bench.example.com/v1","kind":"Certificate","metadata":{"name":%q},`+
		`"spec":{"secretName":%[1]q,"dnsNames":["frontend.example.com"],"revisionHistoryLimit":%d,`+
		`"issuerRef":{"name":"production","kind":"ClusterIssuer"},"privateKey":{"algorithm":"ECDSA"},`+
		`"solvers":[{"name":"http","type":"HTTP01","port":"http"}]}}`, name, revision+1)
}}

// createCertificates creates them after their definition, whose cost is not measured.
func createCertificates(clients int) operation {
	return func(s *session, ctx context.Context) (result, error) {
		if err := s.define(ctx); err != nil {
			return result{}, err
		}
		return create(certificates, clients, s.sizes.Customs)(s, ctx)
	}
}

// define creates the definition and waits until the server serves its objects.
func (s *session) define(ctx context.Context) error {
	c, err := s.dialer.dial(ctx)
	if err != nil {
		return err
	}
	defer clients{c}.close()
	if err := c.do(ctx, post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", certificateCRD)); err != nil {
		return err
	}
	return whenServed(ctx, retryAfter, func() error { return c.do(ctx, get(certificates.collection)) })
}
