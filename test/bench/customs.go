package main

import (
	"context"
	_ "embed"
	"fmt"
	"net/http"
	"time"
)

// certificateCRD defines Certificates with a schema as operators have it: nested objects, lists with keys, enumerations,
// patterns, defaults, an int-or-string, a free-form part, a status subresource and printer columns.
//
//go:embed certificate.crd.json
var certificateCRD []byte

// certificates are custom resources of 1.1 KB.
var certificates = kind{collection("bench.example.com/v1", "certificates"), "shop-frontend-tls", func(name string, revision int) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"bench.example.com/v1","kind":"Certificate","metadata":{"name":%q,"labels":{"app.kubernetes.io/name":"shop","app.kubernetes.io/component":"frontend"}},`+
		`"spec":{"secretName":%[1]q,"commonName":"frontend.shop.example.com","dnsNames":["frontend.shop.example.com","www.shop.example.com","shop.example.com"],`+
		`"duration":"2160h","renewBefore":"360h","revisionHistoryLimit":%d,"isCA":false,"usages":["digital signature","key encipherment","server auth"],`+
		`"privateKey":{"algorithm":"ECDSA","encoding":"PKCS8","size":256,"rotationPolicy":"Always"},`+
		`"issuerRef":{"name":"production","kind":"ClusterIssuer","group":"bench.example.com"},`+
		`"secretTemplate":{"annotations":{"reflector/allowed":"true","reflector/namespaces":"shop,staging"},"labels":{"app":"frontend"}},`+
		`"solvers":[{"name":"dns","type":"DNS01","port":53,"config":{"provider":"internal","zone":"example.com","ttl":60}},`+
		`{"name":"http","type":"HTTP01","port":"http","config":{"ingressClass":"nginx"}}],`+
		`"keystores":{"pkcs12":{"create":true,"passwordSecretRef":{"name":"keystore","key":"password"}}}}}`, name, revision+1)
}}

// createCertificates creates so many after their definition, whose own cost is not measured.
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
	for {
		err := c.do(ctx, get(certificates.collection))
		if !isStatus(err, http.StatusNotFound) && !isStatus(err, http.StatusTooManyRequests) { // 429: its storage is being made
			return err
		}
		if err := wait(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}
