package kit

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sqube/sqube/test/harness"
)

// Webhook is a test's webhook server, for one promise.
type Webhook struct {
	*httptest.Server
	CA []byte

	mu   sync.Mutex
	seen []*admissionv1.AdmissionRequest
}

// ServeWebhook starts a server with a certificate for 127.0.0.1 and the name.
func ServeWebhook(t testing.TB, name string, serve http.Handler) *Webhook {
	t.Helper()
	serving := ServingCertificate(t, name)
	h := &Webhook{Server: httptest.NewUnstartedServer(serve), CA: serving.Certificate}
	h.TLS = &tls.Config{Certificates: serving.ForTLS(t)}
	h.Config.ErrorLog = log.New(io.Discard, "", 0) // of expected handshake failures
	h.StartTLS()
	t.Cleanup(h.Close)
	return h
}

// Vanish ends the server. Nothing will listen at its URL: its own port may be another test's by then.
func (h *Webhook) Vanish(t testing.TB) {
	t.Helper()
	h.Close()
	port := Must(harness.FreePort())(t)
	h.URL = fmt.Sprintf("https://127.0.0.1:%d", port)
}

// Responder returns an admission webhook's response to a request; the uid is filled in.
type Responder func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse

// ServeReviews starts a server that responds with respond, and records the requests.
func ServeReviews(t testing.TB, respond Responder) *Webhook {
	t.Helper()
	var h *Webhook
	h = ServeWebhook(t, "hook", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		review := &admissionv1.AdmissionReview{} // v1beta1 has the same fields
		if err := json.NewDecoder(r.Body).Decode(review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		h.mu.Lock()
		h.seen = append(h.seen, review.Request)
		h.mu.Unlock()
		review.Response = respond(review.Request)
		review.Response.UID = review.Request.UID
		review.Request = nil
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(review); err != nil {
			panic(http.ErrAbortHandler)
		}
	}))
	return h
}

// Requests returns the requests received so far.
func (h *Webhook) Requests() []*admissionv1.AdmissionRequest {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.seen)
}

// OnlyRequest returns the only request received.
func (h *Webhook) OnlyRequest(t testing.TB) *admissionv1.AdmissionRequest {
	t.Helper()
	all := h.Requests()
	if len(all) != 1 {
		t.Fatalf("the webhook got %d requests instead of one", len(all))
	}
	return all[0]
}

// Calls returns what it was called for, as "OPERATION resource/subresource name".
func (h *Webhook) Calls() []string {
	calls := []string{}
	for _, r := range h.Requests() {
		calls = append(calls, strings.TrimSpace(string(r.Operation)+" "+strings.TrimSuffix(r.Resource.Resource+"/"+r.SubResource, "/")+" "+r.Name))
	}
	return calls
}

// AllowRequest allows a request.
func AllowRequest(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Allowed: true}
}

// DenyRequest denies a request with a message.
func DenyRequest(message string) Responder {
	return func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return &admissionv1.AdmissionResponse{Result: &metav1.Status{Message: message}}
	}
}

// PatchRequest responds with a JSON patch.
func PatchRequest(patch string) Responder {
	return func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return &admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(patch), PatchType: ptr.To(admissionv1.PatchTypeJSONPatch)}
	}
}

// WebhookEntry returns a webhook of a configuration: for all operations on ConfigMaps in the promise's namespace, unless
// fields, in YAML, say otherwise.
func (c *Cluster) WebhookEntry(name string, h *Webhook, fields string) map[string]any {
	w := Manifest(`{name: %s, admissionReviewVersions: [v1], sideEffects: None,
		rules: [{operations: ["*"], apiGroups: ["*"], apiVersions: ["*"], resources: [configmaps]}],
		namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %s}}}`, name, c.Namespace)
	w["clientConfig"] = map[string]any{"url": h.URL, "caBundle": h.CA}
	maps.Copy(w, Manifest("%s", fields))
	return w
}

// AdmissionRegistration is the path of all configurations of webhooks and policies.
const AdmissionRegistration = "/apis/admissionregistration.k8s.io/v1/"

// ActivateWebhooks creates a configuration, kind Mutating or Validating, and waits until it is in effect, as shown by an
// additional webhook in it. The probing requests do not reach the others, except those with an empty objectSelector. Nor do those
// of the controllers that fill a new namespace. The configuration is deleted when the test ends.
func (c *Cluster) ActivateWebhooks(t testing.TB, kind, name string, webhooks ...map[string]any) {
	t.Helper()
	if *Against == "" { // it may have no controllers
		for _, path := range []string{c.Path("v1", "configmaps", "kube-root-ca.crt"), c.Path("v1", "serviceaccounts", "default")} {
			harness.Eventually(t, path+" exists", func() bool { return c.Get(t, path).Code == http.StatusOK })
		}
	}
	name = c.Namespace + name
	path := AdmissionRegistration + strings.ToLower(kind) + "webhookconfigurations"
	beacon := c.WebhookEntry("beacon.example.com", ServeReviews(t, DenyRequest("in effect: "+name)),
		"objectSelector: {matchLabels: {beacon: "+name+"}}")
	list := []any{beacon}
	for _, w := range webhooks {
		if selector, given := w["objectSelector"].(map[string]any); !given || len(selector) > 0 {
			w["objectSelector"] = without(selector, "beacon")
		}
		list = append(list, w)
	}
	configuration := Manifest("{apiVersion: admissionregistration.k8s.io/v1, kind: %sWebhookConfiguration, metadata: {name: %s}}", kind, name)
	configuration["webhooks"] = list
	c.Post(t, path, configuration).Created(t)
	c.DeleteAtEnd(t, path+"/"+name)
	probe := Manifest("{apiVersion: v1, kind: ConfigMap, metadata: {name: beacon, labels: {beacon: %s}}}", name)
	harness.Eventually(t, name+" is in effect", func() bool {
		return strings.Contains(string(c.Post(t, c.Path("v1", "configmaps")+"?dryRun=All", probe).Body), "in effect: "+name)
	})
}

// without returns a label selector that also requires the absence of a label.
func without(selector map[string]any, label string) map[string]any {
	expressions, _ := selector["matchExpressions"].([]any)
	changed := map[string]any{"matchExpressions": append(expressions,
		map[string]any{"key": label, "operator": "DoesNotExist"})}
	if labels, ok := selector["matchLabels"]; ok {
		changed["matchLabels"] = labels
	}
	return changed
}
