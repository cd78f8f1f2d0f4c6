package serve

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	admissionreview "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	undos "github.com/sqube/sqube/server/undo"
	"github.com/sqube/sqube/test/harness"
)

// slow undoes with less time than it takes, for a webhook does not answer. The answer comes in time and says what was done, and the same
// undo goes on.
func (f *undone) slow(t *testing.T) {
	ctx := t.Context()
	_, c := f.administrator(t, "sue")
	_, maker := f.administrator(t, "sam")
	makeNamespace(t, c, "slow")
	maps := c.CoreV1().ConfigMaps("slow")
	for _, name := range []string{"a", "stuck", "z"} {
		_, err := maker.CoreV1().ConfigMaps("slow").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		harness.Must(t, err)
		harness.Must(t, maps.Delete(ctx, name, metav1.DeleteOptions{}))
	}
	free := waitsForStuck(t, c)
	body, err := json.Marshal(undos.Undo{
		TypeMeta: metav1.TypeMeta{APIVersion: "history.sqube.io/v1alpha1", Kind: "Undo"},
		Spec:     undos.Spec{Apply: true, Changes: &undos.ChangeSelector{User: "sue", Namespace: "slow", Resources: []string{"configmaps"}, AfterRevision: 1}},
	})
	harness.Must(t, err)
	post := func(timeout string) (status undos.Status) {
		t.Helper()
		answer, err := c.CoreV1().RESTClient().Post().AbsPath("/apis/history.sqube.io/v1alpha1/undos").Param("timeout", timeout).
			SetHeader("Content-Type", "application/json").Body(body).MaxRetries(0).DoRaw(ctx)
		if err != nil {
			t.Fatalf("%v: %s", err, answer)
		}
		var u undos.Undo
		harness.Must(t, json.Unmarshal(answer, &u))
		return u.Status
	}
	status := post("6s")
	for _, step := range status.Plan {
		_, err := maps.Get(ctx, step.Object.Name, metav1.GetOptions{})
		if (step.Result == undos.Done) != (err == nil) || step.Result == undos.Done && step.Object.Name != "a" {
			t.Errorf("%s: %s %s, and it is: %v", step.Object.Name, step.Result, step.Message, err)
		}
	}
	if status.Complete || len(status.Plan) != 3 {
		t.Errorf("with too little time: %+v", status)
	}
	free()
	if status = post("30s"); !status.Complete {
		t.Errorf("with time: %+v", status)
	}
	for _, name := range []string{"a", "stuck", "z"} {
		_, err := maps.Get(ctx, name, metav1.GetOptions{})
		harness.Must(t, err)
	}
}

// waitsForStuck makes a webhook that does not answer when a ConfigMap named stuck is created, until it is freed.
func waitsForStuck(t *testing.T, c kubernetes.Interface) (free func()) {
	t.Helper()
	var known, freed atomic.Bool
	hook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionreview.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		known.Store(true)
		if review.Request.Name == "stuck" && !freed.Load() {
			<-r.Context().Done()
		}
		review.Response = &admissionreview.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		if err := json.NewEncoder(w).Encode(review); err != nil && r.Context().Err() == nil {
			t.Error(err)
		}
	}))
	t.Cleanup(hook.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw})
	none, seconds := admissionv1.SideEffectClassNone, int32(30)
	_, err := c.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(), &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "slow"},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "slow.example.com", ClientConfig: admissionv1.WebhookClientConfig{URL: &hook.URL, CABundle: ca}, SideEffects: &none, TimeoutSeconds: &seconds,
			AdmissionReviewVersions: []string{"v1"}, NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: "slow"}},
			Rules: []admissionv1.RuleWithOperations{{Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule: admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}}}},
		}},
	}, metav1.CreateOptions{})
	harness.Must(t, err)
	harness.Retry(t, "the webhook is asked", func() error {
		_, err := c.CoreV1().ConfigMaps("slow").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "probe"}}, metav1.CreateOptions{DryRun: []string{"All"}})
		if err == nil && !known.Load() {
			err = errors.New("it is not")
		}
		return err
	})
	return func() { freed.Store(true) }
}
