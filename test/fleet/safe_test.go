package fleet

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// hosting is a server with --clusters, as its administrator.
type hosting struct {
	*sqube.Server
	config *rest.Config
	kube   kubernetes.Interface
}

// team is the namespace of the clusters.
const team = "team"

func startHosting(t *testing.T, args ...string) *hosting {
	t.Helper()
	s := sqube.Start(t, sqube.Options{Args: append([]string{"--clusters"}, args...)})
	h := &hosting{Server: s, config: s.Config(t)}
	h.config.QPS = -1
	h.kube = newKube(t, h.config)
	_, err := h.kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: team}}, metav1.CreateOptions{})
	harness.Must(t, err)
	harness.Eventually(t, "Clusters are served", func() bool {
		_, err := h.kube.Discovery().RESTClient().Get().AbsPath(clusters).DoRaw(t.Context())
		return err == nil
	})
	return h
}

const clusters = "/apis/fleet.sqube.io/v1alpha1/namespaces/" + team + "/clusters"

func newKube(t testing.TB, config *rest.Config) kubernetes.Interface {
	t.Helper()
	kube, err := kubernetes.NewForConfig(config)
	harness.Must(t, err)
	return kube
}

// create makes a cluster with a spec in JSON, and returns when it can be used.
func (h *hosting) create(t *testing.T, name, spec string) {
	t.Helper()
	body := fmt.Sprintf(`{"apiVersion": "fleet.sqube.io/v1alpha1", "kind": "Cluster", "metadata": {"name": %q}, "spec": %s}`, name, spec)
	_, err := h.kube.Discovery().RESTClient().Post().AbsPath(clusters).Body([]byte(body)).DoRaw(t.Context())
	harness.Must(t, err)
	harness.Eventually(t, "cluster "+name+" is made", func() bool { return h.status(t, name)["database"] != nil })
}

// status returns the status of a cluster.
func (h *hosting) status(t *testing.T, name string) map[string]any {
	t.Helper()
	text, err := h.kube.Discovery().RESTClient().Get().AbsPath(clusters, name).DoRaw(t.Context())
	harness.Must(t, err)
	o := struct{ Status map[string]any }{}
	harness.Must(t, json.Unmarshal(text, &o))
	return o.Status
}

// credentials asks for those of a cluster, as somebody.
func credentials(t *testing.T, as kubernetes.Interface, name, spec string) (*rest.Config, error) {
	t.Helper()
	text, err := as.Discovery().RESTClient().Post().AbsPath(clusters, name, "kubeconfig").Body([]byte(`{"spec": ` + spec + `}`)).DoRaw(t.Context())
	if err != nil {
		return nil, err
	}
	o := struct{ Status struct{ Kubeconfig string } }{}
	harness.Must(t, json.Unmarshal(text, &o))
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(o.Status.Kubeconfig))
	harness.Must(t, err)
	config.QPS = -1
	return config, nil
}

// admin returns the configuration of an administrator of a cluster.
func (h *hosting) admin(t *testing.T, name string) *rest.Config {
	t.Helper()
	config, err := credentials(t, h.kube, name, "{}")
	harness.Must(t, err)
	return config
}

// user returns the configuration of a user of the host, with a certificate.
func (h *hosting) user(t *testing.T, name string, groups ...string) *rest.Config {
	t.Helper()
	args := []string{"kubeconfig", "--data-dir", h.DataDir, "--user", name}
	for _, group := range groups {
		args = append(args, "--group", group)
	}
	text, log, code := sqube.Run(t, args)
	if code != 0 {
		t.Fatal(log)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(text))
	harness.Must(t, err)
	config.QPS = -1
	return config
}

// serviceAccount makes one that may do everything, and returns a token of it.
func serviceAccount(t *testing.T, kube kubernetes.Interface, name string) string {
	t.Helper()
	accounts := kube.CoreV1().ServiceAccounts("default")
	_, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	harness.Must(t, err)
	grant(t, kube, "cluster-admin", rbacv1.Subject{Kind: "ServiceAccount", Namespace: "default", Name: name})
	token, err := accounts.CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	harness.Must(t, err)
	return token.Status.Token
}

// grant binds a cluster role to somebody.
func grant(t *testing.T, kube kubernetes.Interface, role string, who rbacv1.Subject) {
	t.Helper()
	_, err := kube.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}, Subjects: []rbacv1.Subject{who},
	}, metav1.CreateOptions{})
	harness.Must(t, err)
}

// somebody sends requests with credentials of any kind.
type somebody struct {
	name   string
	client *http.Client
	token  string
}

// with returns one with the credentials in a configuration.
func with(t *testing.T, name string, config *rest.Config) *somebody {
	t.Helper()
	if len(config.CertData) == 0 {
		return bearer(name, config.BearerToken)
	}
	pair, err := tls.X509KeyPair(config.CertData, config.KeyData)
	harness.Must(t, err)
	return &somebody{name: name, client: newClient(pair)}
}

func bearer(name, token string) *somebody {
	return &somebody{name: name, client: newClient(), token: token}
}

func newClient(certificates ...tls.Certificate) *http.Client {
	return &http.Client{
		Transport:     &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: certificates}, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 8},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// request returns what a request is answered with. change can change it before.
func (s *somebody) request(t *testing.T, method, url string, body []byte, change ...func(*http.Request)) (code int, text string, header http.Header) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(body))
	harness.Must(t, err)
	if s.token != "" {
		r.Header.Set("Authorization", "Bearer "+s.token)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, one := range change {
		one(r)
	}
	response, err := s.client.Do(r)
	harness.Must(t, err)
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	harness.Must(t, err)
	return response.StatusCode, string(content), response.Header
}

// at is the URL of a cluster.
func (h *hosting) at(name string) string { return h.URL + filepath.Join("/clusters", team, name) }
