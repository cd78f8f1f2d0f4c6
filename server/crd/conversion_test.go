package crd_test

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
)

// colours converts between v1, which has spec.color, and any other version, which has spec.colour.
func colours(w http.ResponseWriter, r *http.Request) {
	review := &apiextensionsv1.ConversionReview{}
	if err := json.NewDecoder(r.Body).Decode(review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	review.Response = &apiextensionsv1.ConversionResponse{UID: review.Request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
	for _, raw := range review.Request.Objects {
		o := &unstructured.Unstructured{}
		if err := o.UnmarshalJSON(raw.Raw); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		from, to := "colour", "color"
		if review.Request.DesiredAPIVersion != "example.com/v1" {
			from, to = to, from
		}
		spec := o.Object["spec"].(map[string]any)
		spec[to] = spec[from]
		delete(spec, from)
		o.SetAPIVersion(review.Request.DesiredAPIVersion)
		review.Response.ConvertedObjects = append(review.Response.ConvertedObjects, runtime.RawExtension{Object: o})
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(review); err != nil {
		panic(http.ErrAbortHandler)
	}
}

func TestConversionByWebhook(t *testing.T) {
	converter := httptest.NewTLSServer(http.HandlerFunc(colours))
	defer converter.Close()
	s := start(t)
	d := parse[apiextensionsv1.CustomResourceDefinition](t, widgets)
	d.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ConversionReviewVersions: []string{"v1"},
			ClientConfig: &apiextensionsv1.WebhookClientConfig{
				URL:      ptr.To(converter.URL),
				CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: converter.Certificate().Raw}),
			},
		},
	}
	s.define(t, d)
	_, err := s.objects.Resource(widgetsV1).Namespace("default").Create(t.Context(), widget("one", map[string]any{"color": "green"}), metav1.CreateOptions{})
	must(t, err)
	older := s.objects.Resource(widgetsV1.GroupResource().WithVersion("v1beta1")).Namespace("default")
	list, err := older.List(t.Context(), metav1.ListOptions{})
	must(t, err)
	if colour, _, _ := unstructured.NestedString(list.Items[0].Object, "spec", "colour"); colour != "green" {
		t.Errorf("converted to %v", list.Items[0].Object)
	}
	events, err := older.Watch(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
	must(t, err)
	defer events.Stop()
	event := <-events.ResultChan()
	if o, ok := event.Object.(*unstructured.Unstructured); !ok || o.GetAPIVersion() != "example.com/v1beta1" {
		t.Errorf("watch got %v", event)
	}
}
