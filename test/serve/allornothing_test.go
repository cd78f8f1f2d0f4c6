package serve

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/test/harness"
)

// allOrNothing deletes collections with the parameter allOrNothing: all of them, or, if one can't be deleted or they are too many, none.
func (f *history) allOrNothing(t *testing.T) {
	ctx, maps := t.Context(), f.admin.CoreV1().ConfigMaps("all")
	makeNamespace(t, f.admin, "all")
	remove := func(resource string, parameters ...string) (metav1.Status, error) {
		t.Helper()
		r := f.admin.CoreV1().RESTClient().Delete().AbsPath("/api/v1/namespaces/all/" + resource)
		for _, p := range parameters {
			name, value, _ := strings.Cut(p, "=")
			r.Param(name, value)
		}
		var status metav1.Status
		result := r.Do(ctx)
		if err := result.Error(); err != nil {
			return status, err
		}
		text, err := result.Raw()
		harness.Must(t, err)
		return status, json.Unmarshal(text, &status)
	}
	left := func(selector string, want int) {
		t.Helper()
		list, err := maps.List(ctx, metav1.ListOptions{LabelSelector: selector})
		harness.Must(t, err)
		if len(list.Items) != want {
			t.Errorf("there are %d objects with %s, want %d", len(list.Items), selector, want)
		}
	}
	for i := range 20 {
		_, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("c", i), Labels: map[string]string{"part": "some"}}}, metav1.CreateOptions{})
		harness.Must(t, err)
	}
	f.forbidDeletion(t, "c7")
	if _, err := remove("configmaps", "allOrNothing=true", "labelSelector=part=some"); !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "nothing was deleted: ") || !strings.Contains(err.Error(), "c7 stays") {
		t.Errorf("with one that can't be deleted: %v", err)
	}
	left("part=some", 20)
	harness.Must(t, f.admin.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Delete(ctx, "stays", metav1.DeleteOptions{}))
	harness.Retry(t, "the policy is gone", func() error {
		return maps.Delete(ctx, "c7", metav1.DeleteOptions{DryRun: []string{"All"}})
	})
	status, err := remove("configmaps", "allOrNothing=true", "labelSelector=part=some", "dryRun=All")
	if err != nil || status.Message != "20 configmaps would be deleted" {
		t.Errorf("a dry run: %v, %+v", err, status)
	}
	left("part=some", 20)
	status, err = remove("configmaps", "allOrNothing=true", "labelSelector=part=some")
	if err != nil || !strings.HasPrefix(status.Message, "20 configmaps are deleted by the transaction deletecollection-") || len(status.Details.Causes) != 1 {
		t.Fatalf("%v, %+v", err, status)
	}
	left("part=some", 0)
	name := status.Details.Causes[0].Message
	if got := f.names(t, "", "all", "operation=delete,transaction="+name); len(got) != 20 {
		t.Errorf("its transaction has deleted %q", got)
	}
	list, err := maps.List(ctx, metav1.ListOptions{ResourceVersion: status.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchExact, LabelSelector: "part"})
	if err != nil || len(list.Items) != 0 {
		t.Errorf("at its resourceVersion there are %v, %v", list, err)
	}
	succeeds(t, []string{"undo", "--kubeconfig", f.kubeconfig, "--transaction", name, "--apply"})
	left("part=some", 20)

	many := make([]string, 1000)
	for i := range many {
		many[i] = created("all", fmt.Sprint("m", i), "0")
	}
	harness.Must(t, transact(ctx, f.admin, "many", many...))
	for _, dryRun := range []string{"dryRun=All", "propagationPolicy=Background"} {
		if _, err := remove("configmaps", "allOrNothing=true", dryRun); !apierrors.IsRequestEntityTooLargeError(err) || !strings.Contains(err.Error(), "nothing was deleted") || !strings.Contains(err.Error(), "1000 objects") {
			t.Errorf("too many, with %s: %v", dryRun, err)
		}
	}
	left("part!=none", 1021) // with kube-root-ca.crt
	for _, wrong := range []string{"/api/v1/namespaces/all/configmaps?allOrNothing=perhaps", "/apis/history.sqube.io/v1alpha1/namespaces/all/changes?allOrNothing=true&fieldSelector=name=c1"} {
		if err := f.admin.CoreV1().RESTClient().Delete().RequestURI(wrong).Do(ctx).Error(); !apierrors.IsBadRequest(err) {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}

// forbidDeletion forbids by a policy to delete a ConfigMap in the namespace all.
func (f *history) forbidDeletion(t *testing.T, name string) {
	t.Helper()
	ctx, api := t.Context(), f.admin.AdmissionregistrationV1()
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "stays"}}
	policy.Spec.MatchConstraints = &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Delete}, Rule: admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
	}}}}
	policy.Spec.Validations = []admissionv1.Validation{{Expression: fmt.Sprintf("oldObject == null || oldObject.metadata.namespace != 'all' || oldObject.metadata.name != %q", name), Message: name + " stays"}}
	_, err := api.ValidatingAdmissionPolicies().Create(ctx, policy, metav1.CreateOptions{})
	harness.Must(t, err)
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: policy.ObjectMeta}
	binding.Spec.PolicyName, binding.Spec.ValidationActions = "stays", []admissionv1.ValidationAction{admissionv1.Deny}
	_, err = api.ValidatingAdmissionPolicyBindings().Create(ctx, binding, metav1.CreateOptions{})
	harness.Must(t, err)
	harness.Retry(t, "the policy is known", func() error {
		if err := f.admin.CoreV1().ConfigMaps("all").Delete(ctx, name, metav1.DeleteOptions{DryRun: []string{"All"}}); !apierrors.IsInvalid(err) {
			return fmt.Errorf("%s can be deleted: %v", name, err)
		}
		return nil
	})
}
