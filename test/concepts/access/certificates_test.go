package access

import (
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/apis/asn1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/test/concepts/kit"
	"github.com/sqube/sqube/test/harness"
)

func (a *authenticators) certificates() []kit.Promise {
	return []kit.Promise{
		{Statement: "a client certificate names a user by its common name and groups by its organizations", Proof: func(t *testing.T, c *kit.Cluster) {
			certificate := a.clients.Issue(t, x509.Certificate{Subject: pkix.Name{CommonName: "ann", Organization: []string{"dev", "ops"}}})
			user := c.Certified(t, certificate).Is(t, "ann", "dev", "ops", authenticated)
			block, _ := pem.Decode(certificate.Certificate)
			fingerprint := fmt.Sprintf("X509SHA256=%x", sha256.Sum256(block.Bytes))
			if id := user.Extra[credentialID]; !slices.Equal(id, []string{fingerprint}) {
				t.Errorf("the credential id is %q", id)
			}
		}},
		{Statement: "a client certificate may contain the user's uid", Proof: func(t *testing.T, c *kit.Cluster) {
			names := func(uids ...string) pkix.Name {
				name := pkix.Name{CommonName: "ann"}
				for _, uid := range uids {
					name.ExtraNames = append(name.ExtraNames, pkix.AttributeTypeAndValue{Type: asn1.X509UID(), Value: uid})
				}
				return name
			}
			user := c.Certified(t, a.clients.Issue(t, x509.Certificate{Subject: names("u-1")})).Is(t, "ann", authenticated)
			kit.Equal(t, user.UID, "u-1")
			c.Certified(t, a.clients.Issue(t, x509.Certificate{Subject: names("u-1", "u-2")})).IsUnauthenticated(t)
		}},
		{Statement: "a certificate that is expired, not yet valid, not for clients or of another authority is rejected", Proof: func(t *testing.T, c *kit.Cluster) {
			ann := pkix.Name{CommonName: "ann", Organization: []string{"system:masters"}}
			c.Certified(t, a.clients.Issue(t, x509.Certificate{Subject: ann, NotAfter: time.Now().Add(-time.Minute)})).IsUnauthenticated(t)
			c.Certified(t, a.clients.Issue(t, x509.Certificate{Subject: ann, NotBefore: time.Now().Add(time.Minute)})).IsUnauthenticated(t)
			c.Certified(t, a.clients.Issue(t, x509.Certificate{Subject: ann, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})).IsUnauthenticated(t)
			c.Certified(t, kit.NewAuthority(t, "clients").Issue(t, x509.Certificate{Subject: ann})).IsUnauthenticated(t)
		}},
		{Statement: "an authority is trusted as soon as its certificate is in --client-ca-file", Proof: func(t *testing.T, c *kit.Cluster) {
			next := kit.NewAuthority(t, "next")
			ann := c.Certified(t, next.Issue(t, x509.Certificate{Subject: pkix.Name{CommonName: "ann"}}))
			ann.IsUnauthenticated(t)
			before := kit.Must(os.ReadFile(a.clients.File))(t)
			defer replaceFile(t, a.clients.File, before) // for the next engine
			replaceFile(t, a.clients.File, append(before, kit.EncodeCertificate(next.Certificate.Raw)...))
			harness.Eventually(t, "the certificate is accepted", func() bool { return ann.IsAuthenticated(t) })
			ann.Is(t, "ann", authenticated)
		}},
		{Statement: "a certificate may come with the intermediates between its authority and a trusted one", Proof: func(t *testing.T, c *kit.Cluster) {
			between := kit.NewAuthority(t, "between")
			link := a.clients.Sign(t, x509.Certificate{Subject: between.Certificate.Subject, IsCA: true,
				BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, between.Key.Public())
			leaf := between.Issue(t, x509.Certificate{Subject: pkix.Name{CommonName: "ann"}})
			c.Certified(t, leaf).IsUnauthenticated(t)
			leaf.Certificate = append(leaf.Certificate, link...)
			c.Certified(t, leaf).Is(t, "ann", authenticated)
		}},
		{Statement: "a certificate without a common name identifies no user", Proof: func(t *testing.T, c *kit.Cluster) {
			c.Certified(t, a.clients.Issue(t, x509.Certificate{Subject: pkix.Name{Organization: []string{"system:masters"}}})).IsUnauthenticated(t)
		}},
		// Specific to sqube: kube-apiserver has no built-in authority.
		{Statement: "the server's own authority is accepted in addition to that of --client-ca-file", Proof: func(t *testing.T, c *kit.Cluster) {
			c.Is(t, "kubernetes-admin", "system:masters", authenticated)
		}},
	}
}

// frontProxy are the promises about proxies that pass the user of a request in headers.
func (a *authenticators) frontProxy() []kit.Promise {
	certificate := func(t *testing.T, by *kit.Authority, name string) kit.KeyPair {
		return by.Issue(t, x509.Certificate{Subject: pkix.Name{CommonName: name}})
	}
	ask := func(t *testing.T, c *kit.Client, headers ...string) kit.Answer {
		return c.Send(t, http.MethodPost, kit.SelfReviews, kit.Header(headers), kit.SelfSubjectReview)
	}
	return []kit.Promise{
		{Statement: "a front proxy names the user, the uid, the groups and more in headers", Proof: func(t *testing.T, c *kit.Cluster) {
			user := kit.SelfReview(t, ask(t, c.Certified(t, certificate(t, a.proxies, "front-proxy-client")),
				"X-Remote-User", "ann", "X-Remote-Uid", "u-1", "X-Remote-Group", "dev",
				"X-Remote-Extra-Scopes", "read", "X-Remote-Extra-Example.com%2fTeam", "blue").Created(t))
			want := authenticationv1.UserInfo{Username: "ann", UID: "u-1", Groups: []string{"dev", authenticated},
				Extra: map[string]authenticationv1.ExtraValue{"scopes": {"read"}, "example.com/team": {"blue"}}}
			if !reflect.DeepEqual(user, want) {
				t.Errorf("the user is %+v", user)
			}
		}},
		{Statement: "headers of a front proxy without a user are not enough", Proof: func(t *testing.T, c *kit.Cluster) {
			proxy := c.Certified(t, certificate(t, a.proxies, "front-proxy-client"))
			ask(t, proxy, "X-Remote-Group", "system:masters").Refused(t, http.StatusUnauthorized, "Unauthorized")
		}},
		{Statement: "a front proxy with a name that is not allowed, or of another authority, is rejected", Proof: func(t *testing.T, c *kit.Cluster) {
			for _, pair := range []kit.KeyPair{certificate(t, a.proxies, "somebody"), certificate(t, kit.NewAuthority(t, "proxies"), "front-proxy-client")} {
				ask(t, c.Certified(t, pair), "X-Remote-User", "ann").Refused(t, http.StatusUnauthorized, "Unauthorized")
			}
		}},
		{Statement: "the headers of a front proxy are ignored in other clients' requests", Proof: func(t *testing.T, c *kit.Cluster) {
			client := c.Certified(t, certificate(t, a.clients, "front-proxy-client"))
			for range 2 { // the second time, the certificate is cached
				user := kit.SelfReview(t, ask(t, client, "X-Remote-User", "root", "X-Remote-Group", "system:masters").Created(t))
				if user.Username != "front-proxy-client" || slices.Contains(user.Groups, "system:masters") {
					t.Errorf("the server identifies it as %+v", user)
				}
			}
			c.Anonymous(t).Send(t, http.MethodGet, "/api", kit.Header{"X-Remote-User", "root", "X-Remote-Group", "system:masters"}, nil).
				Forbidden(t, `User "system:anonymous"`)
		}},
		{Statement: "the front proxy that extension servers may trust is published in a ConfigMap", Proof: func(t *testing.T, c *kit.Cluster) {
			data := map[string]string{}
			harness.Eventually(t, "extension-apiserver-authentication exists", func() bool {
				published, err := c.Kube.CoreV1().ConfigMaps("kube-system").Get(t.Context(), "extension-apiserver-authentication", metav1.GetOptions{})
				data = published.Data
				return err == nil
			})
			for key, want := range map[string]string{
				"client-ca-file":                     string(kit.EncodeCertificate(a.clients.Certificate.Raw)),
				"requestheader-client-ca-file":       string(kit.EncodeCertificate(a.proxies.Certificate.Raw)),
				"requestheader-allowed-names":        `["front-proxy-client"]`,
				"requestheader-username-headers":     `["X-Remote-User"]`,
				"requestheader-uid-headers":          `["X-Remote-Uid"]`,
				"requestheader-group-headers":        `["X-Remote-Group"]`,
				"requestheader-extra-headers-prefix": `["X-Remote-Extra-"]`,
			} {
				if !strings.Contains(data[key], want) {
					t.Errorf("%s is %q", key, data[key])
				}
			}
		}},
	}
}
