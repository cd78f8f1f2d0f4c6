package admission

import (
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	mutatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
)

// TestLatePlugin checks that the plugin of webhooks is built with the first configuration, and then calls it: here a webhook that can't
// be reached.
func TestLatePlugin(t *testing.T) {
	o := NewOptions()
	for _, name := range o.Names() {
		if name != mutatingwebhook.PluginName {
			o.Disable(name)
		}
	}
	c := config(t, o)
	chain := run(t, c)
	if err := create(t, chain, pod("ns")); err != nil {
		t.Errorf("without a configuration: %v", err)
	}
	url, none, one := "https://127.0.0.1:1/", admissionregistrationv1.SideEffectClassNone, int32(1)
	hook := &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "hook"},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "hook.example.com", ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url}, SideEffects: &none,
			AdmissionReviewVersions: []string{"v1"}, TimeoutSeconds: &one,
			NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}},
		}},
	}
	if _, err := c.Client.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(t.Context(), hook, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); create(t, chain, pod("ns")) == nil; {
		if time.Now().After(deadline) {
			t.Fatal("the webhook is not called")
		}
	}
}

// TestLatePluginsAreUpstreams checks that late plugins handle the operations that upstream's handle.
func TestLatePluginsAreUpstreams(t *testing.T) {
	for name, kind := range kinds {
		upstream, err := kind.build(nil)
		if err != nil {
			t.Fatal(err)
		}
		late := admission.NewHandler(kind.operations...)
		for _, operation := range []admission.Operation{admission.Connect, admission.Create, admission.Delete, admission.Update} {
			if late.Handles(operation) != upstream.Handles(operation) {
				t.Errorf("%s: upstream handles %s: %t", name, operation, upstream.Handles(operation))
			}
		}
	}
}
