package access

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"maps"
	"net/http"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	names "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/sqube/sqube/test/concepts/kit"
	"github.com/sqube/sqube/test/harness"
)

// staticTokens is the content of --token-auth-file: token, user, uid, groups.
const staticTokens = `static-jane,jane,u-jane,"dev,ops"
static-joe,joe,u-joe
`

var staticTokenFile = []kit.Promise{
	{Statement: "a token in --token-auth-file has the user, the uid and the groups of its line", Proof: func(t *testing.T, c *kit.Cluster) {
		if user := c.Bearer(t, "static-jane").Is(t, "jane", "dev", "ops", authenticated); user.UID != "u-jane" {
			t.Errorf("the uid is %q", user.UID)
		}
		c.Bearer(t, "static-joe").Is(t, "joe", authenticated)
		c.Bearer(t, "static-jan").IsUnauthenticated(t)
	}},
}

// bootstrapToken creates a bootstrap token. changes override keys of its Secret; an empty value removes a key.
func bootstrapToken(t *testing.T, c *kit.Cluster, changes map[string]string) (token string, secret *corev1.Secret) {
	t.Helper()
	id, key := names.String(6), names.String(16)
	data := map[string]string{"token-id": id, "token-secret": key, "usage-bootstrap-authentication": "true"}
	maps.Copy(data, changes)
	maps.DeleteFunc(data, func(_, value string) bool { return value == "" })
	secret = kit.Must(c.Kube.CoreV1().Secrets("kube-system").Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-" + id},
		Type:       "bootstrap.kubernetes.io/token", StringData: data,
	}, metav1.CreateOptions{}))(t)
	return id + "." + key, secret
}

func (a *authenticators) bootstrapTokens() []kit.Promise {
	return []kit.Promise{
		{Statement: "a Secret of type bootstrap.kubernetes.io/token is a bootstrap token", Proof: func(t *testing.T, c *kit.Cluster) {
			token, secret := bootstrapToken(t, c, map[string]string{
				"expiration": time.Now().Add(time.Hour).Format(time.RFC3339), "auth-extra-groups": "system:bootstrappers:" + c.Namespace,
			})
			client := c.Bearer(t, token)
			harness.Eventually(t, "the token is accepted", func() bool { return client.IsAuthenticated(t) })
			client.Is(t, "system:bootstrap:"+string(secret.Data["token-id"]), "system:bootstrappers", "system:bootstrappers:"+c.Namespace, authenticated)
			c.Bearer(t, token[:7]+"0000000000000000").IsUnauthenticated(t)

			harness.Must(t, c.Kube.CoreV1().Secrets("kube-system").Delete(t.Context(), secret.Name, metav1.DeleteOptions{}))
			harness.Eventually(t, "the deleted token is rejected", func() bool { return !client.IsAuthenticated(t) })
		}},
		{Statement: "a bootstrap token that is expired, or not for authentication, is rejected", Proof: func(t *testing.T, c *kit.Cluster) {
			var refused []string
			for _, changes := range []map[string]string{
				{"expiration": time.Now().Add(-time.Minute).Format(time.RFC3339)},
				{"expiration": "tomorrow"},
				{"usage-bootstrap-authentication": ""},
				{"usage-bootstrap-authentication": "false"},
				{"auth-extra-groups": "system:masters"}, // not a group for bootstrap tokens
			} {
				token, _ := bootstrapToken(t, c, changes)
				refused = append(refused, token)
			}
			last, _ := bootstrapToken(t, c, nil)
			harness.Eventually(t, "the server has seen the Secrets", func() bool { return c.Bearer(t, last).IsAuthenticated(t) })
			for _, token := range refused {
				c.Bearer(t, token).IsUnauthenticated(t)
			}
		}},
		{Statement: "with a bootstrap token a kubelet gets its certificate: it creates a request, an approver approves it, a signer signs it", Proof: a.proveBootstrap},
	}
}

// proveBootstrap walks through TLS bootstrapping. The server does not sign anything; here the test is the signer.
func (a *authenticators) proveBootstrap(t *testing.T, c *kit.Cluster) {
	token, _ := bootstrapToken(t, c, map[string]string{"auth-extra-groups": "system:bootstrappers:" + c.Namespace})
	c.BindEverywhere(t, "ClusterRole/system:node-bootstrapper", "Group/system:bootstrappers:"+c.Namespace)
	kubelet := c.Bearer(t, token)
	key := kit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	subject := pkix.Name{CommonName: "system:node:" + c.Namespace, Organization: []string{"system:nodes"}}
	request := kit.Must(cert.MakeCSR(key, &subject, nil, nil))(t)
	csr := certificatesv1.CertificateSigningRequest{
		TypeMeta:   metav1.TypeMeta{APIVersion: "certificates.k8s.io/v1", Kind: "CertificateSigningRequest"},
		ObjectMeta: metav1.ObjectMeta{Name: c.Namespace},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
			Request:    request,
			Username:   "somebody else", // the server overrides it
		},
	}
	requests := "/apis/certificates.k8s.io/v1/certificatesigningrequests"
	var created kit.Answer
	harness.Eventually(t, "the kubelet may request a certificate", func() bool {
		created = kubelet.Post(t, requests, csr)
		return created.Code != http.StatusUnauthorized && created.Code != http.StatusForbidden
	})
	created.Created(t)
	kit.Equal(t, created.Text(t, "spec", "username"), "system:bootstrap:"+token[:6])
	kubelet.Get(t, requests+"/"+c.Namespace).OK(t)

	// Besides writing the subresources, a user must be allowed to approve and sign for this signer.
	clerk := c.As(t, "clerk-"+c.Namespace)
	c.GrantEverywhere(t, "clerk-"+c.Namespace, kit.Rule("get,update", "certificatesigningrequests.certificates.k8s.io/approval,status"))
	approved := certificatesv1.CertificateSigningRequestCondition{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Known", Message: "known"}
	csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{approved}
	clerk.Put(t, requests+"/"+c.Namespace+"/approval", csr).Forbidden(t,
		`user not permitted to approve requests with signerName "kubernetes.io/kube-apiserver-client-kubelet"`)
	csr.Status.Certificate = []byte("nonsense") // ignored in approvals
	decided := c.Put(t, requests+"/"+c.Namespace+"/approval", csr).OK(t)
	kit.Equal(t, decided.Text(t, "status", "certificate"), "")
	csr.Status.Conditions = nil
	c.Put(t, requests+"/"+c.Namespace+"/approval", csr).Invalid(t, `updates may not remove a condition of type "Approved"`)

	csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{approved}
	c.Put(t, requests+"/"+c.Namespace+"/status", csr).Invalid(t, "status.certificate")
	csr.Status.Certificate = a.clients.Sign(t, x509.Certificate{Subject: subject}, &key.PublicKey)
	clerk.Put(t, requests+"/"+c.Namespace+"/status", csr).Forbidden(t,
		`user not permitted to sign requests with signerName "kubernetes.io/kube-apiserver-client-kubelet"`)
	c.Put(t, requests+"/"+c.Namespace+"/status", csr).OK(t)
	issued := kit.Must(base64.StdEncoding.DecodeString(kubelet.Get(t, requests+"/"+c.Namespace).Text(t, "status", "certificate")))(t)
	keyText := kit.Must(keyutil.MarshalPrivateKeyToPEM(key))(t)
	c.Certified(t, kit.KeyPair{Certificate: issued, Key: keyText}).Is(t, subject.CommonName, "system:nodes", authenticated)
}
