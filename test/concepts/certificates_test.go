package concepts

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
)

func (a *authenticators) certificates() []promise {
	return []promise{
		{"a client certificate names a user, by its common name, and groups, by its organizations", func(t *testing.T, c *cluster) {
			certificate := a.clients.issue(t, x509.Certificate{Subject: pkix.Name{CommonName: "ann", Organization: []string{"dev", "ops"}}})
			user := c.certified(t, certificate).is(t, "ann", "dev", "ops", authenticated)
			block, _ := pem.Decode(certificate.certificate)
			fingerprint := fmt.Sprintf("X509SHA256=%x", sha256.Sum256(block.Bytes))
			if id := user.Extra[credentialID]; !slices.Equal(id, []string{fingerprint}) {
				t.Errorf("the certificate is known as %q", id)
			}
		}},
		{"a client certificate may hold the user's uid", func(t *testing.T, c *cluster) {
			names := func(uids ...string) pkix.Name {
				name := pkix.Name{CommonName: "ann"}
				for _, uid := range uids {
					name.ExtraNames = append(name.ExtraNames, pkix.AttributeTypeAndValue{Type: asn1.X509UID(), Value: uid})
				}
				return name
			}
			user := c.certified(t, a.clients.issue(t, x509.Certificate{Subject: names("u-1")})).is(t, "ann", authenticated)
			if user.UID != "u-1" {
				t.Errorf("the uid is %q", user.UID)
			}
			c.certified(t, a.clients.issue(t, x509.Certificate{Subject: names("u-1", "u-2")})).isNobody(t)
		}},
		{"a certificate that is expired, not yet valid, not for clients or of another authority is refused", func(t *testing.T, c *cluster) {
			ann := pkix.Name{CommonName: "ann", Organization: []string{"system:masters"}}
			c.certified(t, a.clients.issue(t, x509.Certificate{Subject: ann, NotAfter: time.Now().Add(-time.Minute)})).isNobody(t)
			c.certified(t, a.clients.issue(t, x509.Certificate{Subject: ann, NotBefore: time.Now().Add(time.Minute)})).isNobody(t)
			c.certified(t, a.clients.issue(t, x509.Certificate{Subject: ann, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})).isNobody(t)
			c.certified(t, newAuthority(t, "clients").issue(t, x509.Certificate{Subject: ann})).isNobody(t)
		}},
		{"an authority is trusted as soon as its certificate is in --client-ca-file", func(t *testing.T, c *cluster) {
			next := newAuthority(t, "next")
			ann := c.certified(t, next.issue(t, x509.Certificate{Subject: pkix.Name{CommonName: "ann"}}))
			ann.isNobody(t)
			before, err := os.ReadFile(a.clients.file)
			if err != nil {
				t.Fatal(err)
			}
			defer replaceFile(t, a.clients.file, before) // for the next engine
			replaceFile(t, a.clients.file, append(before, encodeCertificate(next.certificate.Raw)...))
			eventually(t, "the certificate is accepted", func() bool { return ann.known(t) })
			ann.is(t, "ann", authenticated)
		}},
		{"a certificate may bring the intermediate authorities between its own and one that is trusted", func(t *testing.T, c *cluster) {
			between := newAuthority(t, "between")
			link := a.clients.sign(t, x509.Certificate{Subject: between.certificate.Subject, IsCA: true,
				BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, between.key.Public())
			leaf := between.issue(t, x509.Certificate{Subject: pkix.Name{CommonName: "ann"}})
			c.certified(t, leaf).isNobody(t)
			leaf.certificate = append(leaf.certificate, link...)
			c.certified(t, leaf).is(t, "ann", authenticated)
		}},
		{"a certificate without a common name names nobody", func(t *testing.T, c *cluster) {
			c.certified(t, a.clients.issue(t, x509.Certificate{Subject: pkix.Name{Organization: []string{"system:masters"}}})).isNobody(t)
		}},
		// sqube's own promise: kube-apiserver has no authority of its own.
		{"the server's own authority is accepted beside that of --client-ca-file", func(t *testing.T, c *cluster) {
			c.is(t, "kubernetes-admin", "system:masters", authenticated)
		}},
	}
}

// frontProxy are the promises on proxies that tell, in headers, whom a request is from.
func (a *authenticators) frontProxy() []promise {
	certificate := func(t *testing.T, by *authority, name string) keyPair {
		return by.issue(t, x509.Certificate{Subject: pkix.Name{CommonName: name}})
	}
	ask := func(t *testing.T, c *client, headers ...string) answer {
		return c.send(t, http.MethodPost, selfReviews, header(headers), selfSubjectReview)
	}
	return []promise{
		{"a front proxy names the user, the uid, the groups and more in headers", func(t *testing.T, c *cluster) {
			user := selfReview(t, ask(t, c.certified(t, certificate(t, a.proxies, "front-proxy-client")),
				"X-Remote-User", "ann", "X-Remote-Uid", "u-1", "X-Remote-Group", "dev",
				"X-Remote-Extra-Scopes", "read", "X-Remote-Extra-Example.com%2fTeam", "blue").want(t, http.StatusCreated))
			want := authenticationv1.UserInfo{Username: "ann", UID: "u-1", Groups: []string{"dev", authenticated},
				Extra: map[string]authenticationv1.ExtraValue{"scopes": {"read"}, "example.com/team": {"blue"}}}
			if !reflect.DeepEqual(user, want) {
				t.Errorf("the user is %+v", user)
			}
		}},
		{"the headers of a front proxy that names nobody are not enough", func(t *testing.T, c *cluster) {
			proxy := c.certified(t, certificate(t, a.proxies, "front-proxy-client"))
			ask(t, proxy, "X-Remote-Group", "system:masters").refused(t, http.StatusUnauthorized, "Unauthorized")
		}},
		{"a front proxy with a name that is not allowed, or of another authority, is refused", func(t *testing.T, c *cluster) {
			for _, pair := range []keyPair{certificate(t, a.proxies, "somebody"), certificate(t, newAuthority(t, "proxies"), "front-proxy-client")} {
				ask(t, c.certified(t, pair), "X-Remote-User", "ann").refused(t, http.StatusUnauthorized, "Unauthorized")
			}
		}},
		{"nobody else is believed the headers of a front proxy", func(t *testing.T, c *cluster) {
			client := c.certified(t, certificate(t, a.clients, "front-proxy-client"))
			for range 2 { // the certificate is known by then
				user := selfReview(t, ask(t, client, "X-Remote-User", "root", "X-Remote-Group", "system:masters").want(t, http.StatusCreated))
				if user.Username != "front-proxy-client" || slices.Contains(user.Groups, "system:masters") {
					t.Errorf("the server takes it for %+v", user)
				}
			}
			c.anonymous(t).send(t, http.MethodGet, "/api", header{"X-Remote-User", "root", "X-Remote-Group", "system:masters"}, nil).
				refused(t, http.StatusForbidden, "Forbidden", `User "system:anonymous"`)
		}},
		{"whom extension servers may believe is published in a ConfigMap", func(t *testing.T, c *cluster) {
			data := map[string]string{}
			eventually(t, "there is extension-apiserver-authentication", func() bool {
				published, err := c.kube.CoreV1().ConfigMaps("kube-system").Get(t.Context(), "extension-apiserver-authentication", metav1.GetOptions{})
				data = published.Data
				return err == nil
			})
			for key, want := range map[string]string{
				"client-ca-file":                     string(encodeCertificate(a.clients.certificate.Raw)),
				"requestheader-client-ca-file":       string(encodeCertificate(a.proxies.certificate.Raw)),
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
