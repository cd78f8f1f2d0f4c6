package concepts

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"
)

// hook is a webhook server of the test, for one promise.
type hook struct {
	*httptest.Server
	ca []byte

	mu   sync.Mutex
	seen []*admissionv1.AdmissionRequest
}

// serveHook starts a server with a certificate for 127.0.0.1 and the name.
func serveHook(t testing.TB, name string, serve http.Handler) *hook {
	t.Helper()
	certificate, key, err := cert.GenerateSelfSignedCertKey(name, []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	h := &hook{Server: httptest.NewUnstartedServer(serve), ca: certificate}
	h.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	h.Config.ErrorLog = log.New(io.Discard, "", 0) // of handshakes that are meant to fail
	h.StartTLS()
	t.Cleanup(h.Close)
	return h
}

// response is what an admission webhook says to a request; the uid is filled in.
type response func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse

// reviews starts a server that answers with the response, and remembers the requests.
func reviews(t testing.TB, respond response) *hook {
	t.Helper()
	var h *hook
	h = serveHook(t, "hook", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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

// requests are those seen so far.
func (h *hook) requests() []*admissionv1.AdmissionRequest {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.seen)
}

// one is the only request that it has seen.
func (h *hook) one(t testing.TB) *admissionv1.AdmissionRequest {
	t.Helper()
	all := h.requests()
	if len(all) != 1 {
		t.Fatalf("the webhook got %d requests instead of one", len(all))
	}
	return all[0]
}

// called says for what it was called, as "OPERATION resource/subresource name".
func (h *hook) called() []string {
	calls := []string{}
	for _, r := range h.requests() {
		calls = append(calls, strings.TrimSpace(string(r.Operation)+" "+strings.TrimSuffix(r.Resource.Resource+"/"+r.SubResource, "/")+" "+r.Name))
	}
	return calls
}

func allow(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Allowed: true}
}

func deny(message string) response {
	return func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return &admissionv1.AdmissionResponse{Result: &metav1.Status{Message: message}}
	}
}

// change answers with a JSON patch.
func change(patch string) response {
	return func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return &admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(patch), PatchType: ptr.To(admissionv1.PatchTypeJSONPatch)}
	}
}

// webhook is one of a configuration: for all that is done to ConfigMaps of the promise's namespace, unless fields, in YAML, say else.
func (c *cluster) webhook(name string, h *hook, fields string) map[string]any {
	w := manifest(`{name: %s, admissionReviewVersions: [v1], sideEffects: None,
		rules: [{operations: ["*"], apiGroups: ["*"], apiVersions: ["*"], resources: [configmaps]}],
		namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %s}}}`, name, c.namespace)
	w["clientConfig"] = map[string]any{"url": h.URL, "caBundle": h.ca}
	maps.Copy(w, manifest("%s", fields))
	return w
}

const admissionRegistration = "/apis/admissionregistration.k8s.io/v1/"

// activate creates a configuration, kind Mutating or Validating, and waits until it is in effect, which one more webhook in
// it shows; the others do not see that, except those with an empty objectSelector. It goes with the test.
func (c *cluster) activate(t testing.TB, kind, name string, webhooks ...map[string]any) {
	t.Helper()
	name = c.namespace + name
	path := admissionRegistration + strings.ToLower(kind) + "webhookconfigurations"
	beacon := c.webhook("beacon.example.com", reviews(t, deny("in effect: "+name)),
		"objectSelector: {matchLabels: {beacon: "+name+"}}")
	list := []any{beacon}
	for _, w := range webhooks {
		if selector, given := w["objectSelector"].(map[string]any); !given || len(selector) > 0 {
			w["objectSelector"] = without(selector, "beacon")
		}
		list = append(list, w)
	}
	configuration := manifest("{apiVersion: admissionregistration.k8s.io/v1, kind: %sWebhookConfiguration, metadata: {name: %s}}", kind, name)
	configuration["webhooks"] = list
	c.post(t, path, configuration).want(t, http.StatusCreated)
	c.deleteLater(t, path+"/"+name)
	probe := manifest("{apiVersion: v1, kind: ConfigMap, metadata: {name: beacon, labels: {beacon: %s}}}", name)
	eventually(t, name+" is in effect", func() bool {
		return strings.Contains(string(c.post(t, c.path("v1", "configmaps")+"?dryRun=All", probe).Body), "in effect: "+name)
	})
}

// without is a label selector that also demands that there be no such label.
func without(selector map[string]any, label string) map[string]any {
	expressions, _ := selector["matchExpressions"].([]any)
	changed := map[string]any{"matchExpressions": append(expressions,
		map[string]any{"key": label, "operator": "DoesNotExist"})}
	if labels, ok := selector["matchLabels"]; ok {
		changed["matchLabels"] = labels
	}
	return changed
}
