package serve

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/sqube/sqube/test/harness"
)

// deletesAtOnce deletes a collection of n objects. A webhook allows each only once it has been called for all of them.
func deletesAtOnce(t *testing.T, c kubernetes.Interface, n int) {
	t.Helper()
	var known atomic.Bool
	var asked atomic.Int32
	all := make(chan struct{})
	hook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if review.Request.Name == "first" {
			known.Store(true)
		} else {
			if int(asked.Add(1)) == n {
				close(all)
			}
			select {
			case <-all:
			case <-r.Context().Done():
			}
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		if err := json.NewEncoder(w).Encode(review); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(hook.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw})
	_, err := c.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "deletes.example.com"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "deletes.example.com", ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &hook.URL, CABundle: ca},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Delete},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: "kube-public"}},
			SideEffects:       ptr.To(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		}},
	}, metav1.CreateOptions{})
	harness.Must(t, err)
	maps := c.CoreV1().ConfigMaps("kube-public")
	create := func(name string) {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, GenerateName: "many-", Labels: map[string]string{"at": "once"}}}
		_, err := maps.Create(t.Context(), object, metav1.CreateOptions{})
		harness.Must(t, err)
	}
	harness.Retry(t, "the webhook is called", func() error {
		create("first")
		harness.Must(t, maps.Delete(t.Context(), "first", metav1.DeleteOptions{}))
		if !known.Load() {
			return errors.New("it is not called yet")
		}
		return nil
	})
	for range n {
		create("")
	}
	harness.Must(t, maps.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "at=once"}))
}
