package fleet

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/keyutil"

	"github.com/sqube/sqube/test/harness"
)

// TestAccess tries all verbs of all resources of a cluster with credentials of all kinds: of the host, of another cluster, of a fork of it, and of
// a former cluster of the same name.
func TestAccess(t *testing.T) {
	h := startHosting(t)
	h.create(t, "a", `{"controllers": "All"}`)
	h.create(t, "b", `{}`)
	admin := h.admin(t, "b")
	inside := newKube(t, admin)
	own := ownCredentials(t, h, "a")
	h.create(t, "fork", `{"from": {"cluster": {"name": "a"}}}`)
	h.create(t, "c", `{}`)
	former := []*somebody{with(t, "a pass of a former cluster of the name", h.admin(t, "c")), bearer("a token of a former cluster of the name", serviceAccount(t, newKube(t, h.admin(t, "c")), "robot"))}
	_, err := h.kube.Discovery().RESTClient().Delete().AbsPath(clusters, "c").DoRaw(t.Context())
	harness.Must(t, err)
	harness.Eventually(t, "the cluster is deleted", func() bool {
		_, err := h.kube.Discovery().RESTClient().Get().AbsPath(clusters, "c").DoRaw(t.Context())
		return err != nil
	})
	h.create(t, "c", `{}`)

	alice := h.user(t, "alice", "developers")
	visitors := []*somebody{
		with(t, "an administrator of the host", h.config), with(t, "a user of the host", alice),
		bearer("a service account of the host", serviceAccount(t, h.kube, "robot")),
	}
	all := everything(t, inside)
	var some []request // to save time: whoever is refused is so before it matters what is requested
	for i := 0; i < len(all); i += 29 {
		some = append(some, all[i])
	}
	for _, one := range slices.Concat(own, former) {
		wants(t, one, h.at("b"), all, http.StatusUnauthorized)
		for _, target := range []string{h.at("fork"), h.at("c"), h.URL} {
			if target != h.URL || one.name != "a token" && !strings.HasPrefix(one.name, "a token of") { // which lead to their own cluster
				wants(t, one, target, some, http.StatusUnauthorized)
			}
		}
	}
	h.inPod(t, own[2])
	for _, one := range []*somebody{bearer("nobody", ""), bearer("somebody with a wrong token", "wrong"), stranger(t)} {
		wants(t, one, h.at("b"), all, http.StatusUnauthorized)
		wants(t, one, h.at("missing"), some, http.StatusUnauthorized)
	}
	for _, one := range visitors {
		wants(t, one, h.at("b"), all, http.StatusForbidden)
	}

	grant(t, inside, "view", rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "User", Name: "alice"})
	harness.Eventually(t, "the cluster's RBAC lets alice in", func() bool {
		code, _, _ := visitors[1].request(t, http.MethodGet, h.at("b")+"/api/v1/pods", nil)
		return code == http.StatusOK
	})
	for path, want := range map[string]int{"/api/v1/secrets": http.StatusForbidden, "/api/v1/nodes": http.StatusForbidden, "/api/v1/configmaps": http.StatusOK} {
		if code, text, _ := visitors[1].request(t, http.MethodGet, h.at("b")+path, nil); code != want {
			t.Errorf("alice gets %d for %s: %s", code, path, text)
		}
	}
	// In a group of the host with the name of one that means something in each cluster, she is in another one.
	code, text, _ := with(t, "", h.user(t, "system:kube-scheduler", "system:nodes")).request(t, http.MethodPost, h.at("b")+"/apis/authentication.k8s.io/v1/selfsubjectreviews",
		[]byte(`{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}`))
	if code != http.StatusCreated || !strings.Contains(text, `"host:system:kube-scheduler"`) || !strings.Contains(text, `"host:system:nodes"`) {
		t.Errorf("a user of the host in a system: group is %d %s", code, text)
	}
}

// inPod sends a request as a pod does, which knows no path of its cluster.
func (h *hosting) inPod(t *testing.T, account *somebody) {
	t.Helper()
	const path = "/api/v1/namespaces/kube-system"
	_, want, _ := account.request(t, http.MethodGet, h.at("a")+path, nil)
	if code, got, _ := account.request(t, http.MethodGet, h.URL+path, nil); code != http.StatusOK || got != want {
		t.Errorf("a service account gets from the host's address %d %s, not its own cluster's %s", code, got, want)
	}
}

// ownCredentials returns credentials of all kinds of a cluster's own, whose users may do everything there.
func ownCredentials(t *testing.T, h *hosting, name string) []*somebody {
	t.Helper()
	admin := h.admin(t, name)
	kube := newKube(t, admin)
	all := []*somebody{
		with(t, "a pass", admin), with(t, "a certificate", certificate(t, kube, admin)), bearer("a token", serviceAccount(t, kube, "robot")),
	}
	secret, err := kube.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "robot", Annotations: map[string]string{corev1.ServiceAccountNameKey: "robot"}}, Type: corev1.SecretTypeServiceAccountToken,
	}, metav1.CreateOptions{})
	harness.Must(t, err)
	harness.Eventually(t, "the Secret has a token", func() bool {
		secret, err = kube.CoreV1().Secrets("default").Get(t.Context(), "robot", metav1.GetOptions{})
		return err == nil && len(secret.Data["token"]) > 0
	})
	_, err = kube.CoreV1().Secrets("kube-system").Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-abcdef"}, Type: corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{"token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true"},
	}, metav1.CreateOptions{})
	harness.Must(t, err)
	grant(t, kube, "cluster-admin", rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "system:bootstrappers"})
	all = append(all, bearer("a token in a Secret", string(secret.Data["token"])), bearer("a bootstrap token", "abcdef.0123456789abcdef"))
	for _, one := range all {
		harness.Eventually(t, one.name+" is accepted in its own cluster", func() bool {
			code, _, _ := one.request(t, http.MethodGet, h.at(name)+"/api/v1/secrets", nil)
			return code == http.StatusOK
		})
	}
	return all
}

// certificate has a cluster sign one for a user who may do everything.
func certificate(t *testing.T, kube kubernetes.Interface, like *rest.Config) *rest.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	harness.Must(t, err)
	text, err := keyutil.MarshalPrivateKeyToPEM(key)
	harness.Must(t, err)
	asked, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "bob"}}, key)
	harness.Must(t, err)
	grant(t, kube, "cluster-admin", rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "User", Name: "bob"})
	requests := kube.CertificatesV1().CertificateSigningRequests()
	o, err := requests.Create(t.Context(), &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "bob"}, Spec: certificatesv1.CertificateSigningRequestSpec{
		Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: asked}), SignerName: certificatesv1.KubeAPIServerClientSignerName, Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
	}}, metav1.CreateOptions{})
	harness.Must(t, err)
	o.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test"}}
	_, err = requests.UpdateApproval(t.Context(), "bob", o, metav1.UpdateOptions{})
	harness.Must(t, err)
	harness.Eventually(t, "the cluster signs a certificate", func() bool {
		o, err = requests.Get(t.Context(), "bob", metav1.GetOptions{})
		return err == nil && len(o.Status.Certificate) > 0
	})
	config := rest.AnonymousClientConfig(like)
	config.CertData, config.KeyData = o.Status.Certificate, text
	return config
}

// stranger has a certificate that he has signed himself.
func stranger(t *testing.T) *somebody {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	harness.Must(t, err)
	text, err := keyutil.MarshalPrivateKeyToPEM(key)
	harness.Must(t, err)
	is := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "sqube-ca", Organization: []string{"system:masters"}}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	made, err := x509.CreateCertificate(rand.Reader, is, is, key.Public(), key)
	harness.Must(t, err)
	return with(t, "somebody with a certificate of his own", &rest.Config{TLSClientConfig: rest.TLSClientConfig{CertData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: made}), KeyData: text}})
}

// request is a method and a path in a cluster.
type request struct{ method, path string }

// everything returns requests with all verbs of all resources, except those that every user may ask something about themselves with.
func everything(t *testing.T, kube kubernetes.Interface) (all []request) {
	t.Helper()
	_, lists, err := kube.Discovery().ServerGroupsAndResources()
	harness.Must(t, err)
	methods := map[string]string{"get": "GET", "list": "GET", "watch": "GET", "create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE", "deletecollection": "DELETE"}
	for _, list := range lists {
		prefix := "/apis/" + list.GroupVersion
		if !strings.Contains(list.GroupVersion, "/") {
			prefix = "/api/" + list.GroupVersion
		}
		for _, resource := range list.APIResources {
			if strings.HasPrefix(resource.Name, "selfsubject") {
				continue
			}
			name, subresource, _ := strings.Cut(resource.Name, "/")
			path := prefix
			if resource.Namespaced {
				path += "/namespaces/default"
			}
			path += "/" + name
			for _, verb := range resource.Verbs {
				at := path
				if subresource != "" {
					at += "/x/" + subresource
				} else if slices.Contains([]string{"get", "update", "patch", "delete"}, verb) {
					at += "/x"
				}
				if verb == "watch" {
					at += "?watch=true"
				}
				all = append(all, request{methods[verb], at})
			}
		}
	}
	if len(all) < 300 {
		t.Fatalf("only %d requests", len(all))
	}
	return all
}

// wants sends requests to a server as somebody, and expects that all are answered with a code.
func wants(t *testing.T, who *somebody, server string, all []request, want int) {
	t.Helper()
	var wg sync.WaitGroup
	each := make(chan request)
	for range 4 {
		wg.Go(func() {
			for one := range each {
				code, text, _ := who.request(t, one.method, server+one.path, nil)
				if code != want {
					t.Errorf("%s gets %d, not %d, for %s %s%s: %.300s", who.name, code, want, one.method, server, one.path, text)
				}
			}
		})
	}
	for _, one := range all {
		each <- one
	}
	close(each)
	wg.Wait()
}
