package admission

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/test/concepts/kit"
)

// What webhooks may respond, and the consequences.
var webhookAnswers = []kit.Promise{
	{Statement: "a webhook's denial is returned with its code, reason and message", Proof: func(t *testing.T, c *kit.Cluster) {
		results := map[string]*metav1.Status{
			"none": nil, "message": {Message: "because"}, "reason": {Reason: metav1.StatusReasonForbidden, Code: 403},
			"teapot": {Code: 418, Reason: "Teapot", Message: "short and stout"}, "ok": {Code: 200,
				Status: metav1.StatusSuccess},
		}
		h := kit.ServeReviews(t, func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			return &admissionv1.AdmissionResponse{Result: results[r.Name]}
		})
		for _, kind := range []string{"Validating", "Mutating"} { // the latter is called first
			name := strings.ToLower(kind) + ".example.com"
			c.ActivateWebhooks(t, kind, "", c.WebhookEntry(name, h, ""))
			denied := `admission webhook "` + name + `" denied the request`
			for object, want := range map[string]struct {
				code            int
				reason, message string
			}{
				"none": {400, "", denied + " without explanation"}, "message": {400, "",
					denied + ": because"}, "reason": {403, "Forbidden", denied + ": Forbidden"},
				"teapot": {418, "Teapot", denied + ": short and stout"}, "ok": {400, "", denied + " without explanation"},
			} {
				a := c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap(object, nil)).Refused(t, want.code, want.reason)
				kit.Equal(t, []any{a.Text(t, "message"), a.Text(t, "status"), a.Value(t, "code")},
					[]any{want.message, "Failure", float64(want.code)})
			}
		}
		out, ok := c.Kubectl(t, "", "create", "configmap", "message")
		if want := `error: failed to create configmap: admission webhook "mutating.example.com" denied the request: because`; ok || strings.TrimSpace(out) != want {
			t.Errorf("kubectl prints %s", out)
		}
	}},
	{Statement: "warnings of webhooks reach the client, whether they allow or deny", Proof: func(t *testing.T, c *kit.Cluster) {
		h := kit.ServeReviews(t, func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			return &admissionv1.AdmissionResponse{Allowed: r.Name == "good", Warnings: []string{"one", `say "two"`}}
		})
		c.ActivateWebhooks(t, "Validating", "", c.WebhookEntry("a.example.com", h, ""))
		c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("good", nil)).Created(t).
			Warns(t, "one", `say "two"`)
		c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("bad", nil)).Want(t, http.StatusBadRequest).
			Warns(t, "one", `say "two"`)
	}},
	{Statement: "if a webhook can't be called, failurePolicy decides whether the request fails", Proof: func(t *testing.T, c *kit.Cluster) {
		dead := kit.ServeReviews(t, kit.AllowRequest)
		dead.Vanish(t)
		stranger := kit.ServeReviews(t, kit.AllowRequest)
		stranger.CA = kit.ServeReviews(t, kit.AllowRequest).CA
		done := make(chan struct{})
		hanging := kit.ServeWebhook(t, "hook", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-done }))
		t.Cleanup(func() { close(done) })
		rule := func(name, policy string) string {
			timeout := "30"
			if name == "hanging" {
				timeout = "1"
			}
			return "{failurePolicy: " + policy + ", timeoutSeconds: " + timeout + ", objectSelector: {matchLabels: {hook: " + name + policy + "}}}"
		}
		var all []map[string]any
		for name, h := range map[string]*kit.Webhook{"dead": dead, "stranger": stranger, "hanging": hanging} {
			for _, policy := range []string{"Fail", "Ignore"} {
				all = append(all, c.WebhookEntry(name+"."+strings.ToLower(policy)+".example.com", h, rule(name, policy)))
			}
		}
		c.ActivateWebhooks(t, "Validating", "", all...)
		c.ActivateWebhooks(t, "Mutating", "", all...)
		for name, part := range map[string]string{
			"dead": "connection refused", "stranger": "x509: certificate signed by unknown authority", "hanging": "context deadline exceeded",
		} {
			labelled := func(policy string) map[string]any {
				return kit.With(kit.ConfigMap(name, nil), name+policy, "metadata", "labels", "hook")
			}
			c.Post(t, c.Path("v1", "configmaps"), labelled("Fail")).
				Refused(t, http.StatusInternalServerError, "InternalError",
					`Internal error occurred: failed calling webhook "`+name+`.fail.example.com": failed to call webhook: Post "`, part)
			c.Post(t, c.Path("v1", "configmaps"), labelled("Ignore")).Created(t)
		}
	}},
	{Statement: "a request whose own time is up while a webhook is called fails with 504, and clients say that it may still be processed", Proof: func(t *testing.T, c *kit.Cluster) {
		done := make(chan struct{})
		hanging := kit.ServeWebhook(t, "hook", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-done }))
		t.Cleanup(func() { close(done) })
		c.ActivateWebhooks(t, "Mutating", "", c.WebhookEntry("a.example.com", hanging, "{failurePolicy: Ignore, timeoutSeconds: 30, objectSelector: {matchLabels: {hook: slow}}}"))
		slow := kit.With(kit.ConfigMap("slow", nil), "slow", "metadata", "labels", "hook")
		err := c.Kube.CoreV1().RESTClient().Post().AbsPath(c.Path("v1", "configmaps")).Param("timeout", "1s").Body(kit.JSON(slow)).Do(t.Context()).Error()
		// kube-apiserver may instead have begun to respond, and break that off.
		if text := fmt.Sprint(err); !strings.Contains(text, "the server was unable to return a response in the time allotted") && !strings.Contains(text, "stream error") {
			t.Errorf("the request fails with %v", err)
		}
	}},
	{Statement: "an invalid response fails the request", Proof: func(t *testing.T, c *kit.Cluster) {
		h := kit.ServeWebhook(t, "hook", nil)
		h.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			review := &admissionv1.AdmissionReview{}
			if err := json.NewDecoder(r.Body).Decode(review); err != nil {
				panic(err)
			}
			w.Header().Set("Content-Type", "application/json")
			text := map[string]string{
				"empty": `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`,
				"uid":   `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"other","allowed":true}}`,
				"kind":  `{"response":{"uid":"UID","allowed":true}}`,
				"type":  `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"UID","allowed":true,"patch":"W10="}}`,
				"patch": `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"UID","allowed":true,"patchType":"JSONPatch","patch":"e30="}}`,
				"path":  `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"UID","allowed":true,"patchType":"JSONPatch","patch":"W3sib3AiOiJyZW1vdmUiLCJwYXRoIjoiL25vbmUifV0="}}`,
				"text":  "hello",
			}[review.Request.Name]
			if text == "" {
				http.Error(w, "broken", http.StatusBadGateway)
				return
			}
			w.Write([]byte(strings.ReplaceAll(text, "UID", string(review.Request.UID))))
		})
		c.ActivateWebhooks(t, "Mutating", "", c.WebhookEntry("a.example.com", h, "objectSelector: {matchLabels: {for: mutating}}"))
		c.ActivateWebhooks(t, "Validating", "", c.WebhookEntry("a.example.com", h, "objectSelector: {matchLabels: {for: validating}}"))
		const calling, invalid = `failed calling webhook "a.example.com": `, `failed calling webhook "a.example.com": received invalid webhook response: `
		for _, want := range []struct{ kind, name, message string }{
			{"mutating", "empty", invalid + "webhook response was absent"}, {"validating", "empty",
				invalid + "webhook response was absent"},
			{"mutating", "uid", invalid + `expected response.uid="`}, {"mutating", "kind",
				invalid + "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind="},
			{"mutating", "type", invalid + "webhook returned response.patch but not response.patchType"},
			{"validating", "type", invalid + "validating webhook may not return response.patch"},
			{"mutating", "patch", calling + "received undecodable patch in webhook response: "},
			{"mutating", "path", "Unable to remove nonexistent key: none"},
			{"mutating", "text", calling + "failed to call webhook: "}, {"validating", "code",
				calling + "failed to call webhook: an error on the server (\"broken\")"},
		} {
			c.Post(t, c.Path("v1", "configmaps"), kit.With(kit.ConfigMap(want.name, nil), want.kind, "metadata", "labels", "for")).
				Refused(t, http.StatusInternalServerError, "InternalError", want.message)
		}
	}},
	{Statement: "objects changed by a webhook are validated like those from clients", Proof: func(t *testing.T, c *kit.Cluster) {
		h := kit.ServeReviews(t, func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			return kit.PatchRequest(map[string]string{
				"key":       `[{"op":"add","path":"/data","value":{"a b":"c"}}]`,
				"namespace": `[{"op":"replace","path":"/metadata/namespace","value":"default"}]`,
				"kind":      `[{"op":"add","path":"/data","value":5}]`,
			}[r.Name])(r)
		})
		c.ActivateWebhooks(t, "Mutating", "", c.WebhookEntry("a.example.com", h, ""))
		c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("key", nil)).Invalid(t, `data[a b]: Invalid value: "a b"`)
		c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("kind", nil)).
			Refused(t, http.StatusInternalServerError, "InternalError", "cannot unmarshal number")
		c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("namespace", nil)).Want(t, http.StatusBadRequest)
	}},
}
