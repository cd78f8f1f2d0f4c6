package access

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	names "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/sqube/sqube/test/concepts/kit"
	"github.com/sqube/sqube/test/harness"
)

// tokenWebhook handles tokens of the form hook-KIND-ANYTHING. Its response depends on the kind.
type tokenWebhook struct {
	*httptest.Server
	mu    sync.Mutex
	calls map[string]int // by token
}

func newTokenWebhook(t testing.TB) *tokenWebhook {
	t.Helper()
	w := &tokenWebhook{calls: map[string]int{}}
	w.Server = httptest.NewTLSServer(http.HandlerFunc(w.review))
	t.Cleanup(w.Close)
	return w
}

func (w *tokenWebhook) review(response http.ResponseWriter, request *http.Request) {
	var review authenticationv1.TokenReview
	if err := json.NewDecoder(request.Body).Decode(&review); err != nil {
		http.Error(response, err.Error(), http.StatusBadRequest)
		return
	}
	w.mu.Lock()
	w.calls[review.Spec.Token]++
	w.mu.Unlock()
	kind, _, _ := strings.Cut(strings.TrimPrefix(review.Spec.Token, "hook-"), "-")
	switch kind {
	case "broken":
		http.Error(response, "out of order", http.StatusForbidden)
		return
	case "elsewhere":
		review.Status.Audiences = []string{"elsewhere"}
		fallthrough
	case "ann":
		review.Status.Authenticated = true
		review.Status.User = authenticationv1.UserInfo{Username: "ann", UID: "u-1", Groups: []string{"dev"},
			Extra: map[string]authenticationv1.ExtraValue{"example.com/team": {"blue"}}}
	}
	writeJSON(response, review)
}

func (w *tokenWebhook) asked(token string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calls[token]
}

// kubeconfigOf writes the kubeconfig of a webhook.
func kubeconfigOf(t testing.TB, webhook *httptest.Server) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["webhook"] = &clientcmdapi.Cluster{Server: webhook.URL, CertificateAuthorityData: kit.EncodeCertificate(webhook.Certificate().Raw)}
	config.AuthInfos["server"] = &clientcmdapi.AuthInfo{}
	config.Contexts["webhook"] = &clientcmdapi.Context{Cluster: "webhook", AuthInfo: "server"}
	config.CurrentContext = "webhook"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	harness.Must(t, clientcmd.WriteToFile(*config, path))
	return path
}

// tokenWebhook are the promises about tokens that only a webhook can authenticate.
func (a *authenticators) tokenWebhook() []kit.Promise {
	return []kit.Promise{
		{Statement: "a webhook returns the user, the uid, the groups and extra of a token", Proof: func(t *testing.T, c *kit.Cluster) {
			user := c.Bearer(t, "hook-ann-"+names.String(8)).Is(t, "ann", "dev", authenticated)
			if want := map[string]authenticationv1.ExtraValue{"example.com/team": {"blue"}}; user.UID != "u-1" || !reflect.DeepEqual(user.Extra, want) {
				t.Errorf("the user is %+v", user)
			}
		}},
		{Statement: "the webhook's responses are cached", Proof: func(t *testing.T, c *kit.Cluster) {
			good, bad := "hook-ann-"+names.String(8), "hook-nobody-"+names.String(8)
			for range 2 {
				c.Bearer(t, good).Is(t, "ann", "dev", authenticated)
				c.Bearer(t, bad).IsUnauthenticated(t)
			}
			if a.webhook.asked(good) != 1 || a.webhook.asked(bad) != 1 {
				t.Errorf("the webhook was called %d and %d times", a.webhook.asked(good), a.webhook.asked(bad))
			}
		}},
		{Statement: "a token is rejected if the webhook fails, or if it is for another audience", Proof: func(t *testing.T, c *kit.Cluster) {
			c.Bearer(t, "hook-broken-"+names.String(8)).IsUnauthenticated(t)
			c.Bearer(t, "hook-elsewhere-"+names.String(8)).IsUnauthenticated(t)
		}},
		{Statement: "the webhook is called only for tokens that the server can't authenticate itself", Proof: func(t *testing.T, c *kit.Cluster) {
			c.Bearer(t, "static-joe").Is(t, "joe", authenticated)
			kit.Equal(t, a.webhook.asked("static-joe"), 0)
		}},
	}
}
