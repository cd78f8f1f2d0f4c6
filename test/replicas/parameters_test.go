package replicas

import (
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/test/harness"
)

// parameterElsewhere changes the parameter of a policy on each server in turn. The others have to decide by it at once.
func parameterElsewhere(t *testing.T, replicas []replica) {
	deny := admissionregistrationv1.DenyAction
	labels := map[string]string{"parameter": "of-policy"}
	parameter := configMap("of-policy")
	parameter.Data = map[string]string{"value": "first"}
	parameter, err := replicas[0].CoreV1().ConfigMaps("default").Create(t.Context(), parameter, metav1.CreateOptions{})
	harness.Must(t, err)
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "by-parameter"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			ParamKind:   &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"},
			Validations: []admissionregistrationv1.Validation{{Expression: "object.data.value == params.data.value"}},
			MatchConstraints: &admissionregistrationv1.MatchResources{
				ObjectSelector: &metav1.LabelSelector{MatchLabels: labels},
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
				}}},
			},
		},
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: policy.Name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: policy.Name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
			ParamRef: &admissionregistrationv1.ParamRef{Name: parameter.Name, ParameterNotFoundAction: &deny},
		},
	}
	_, err = replicas[0].AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(t.Context(), policy, metav1.CreateOptions{})
	harness.Must(t, err)
	_, err = replicas[0].AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(t.Context(), binding, metav1.CreateOptions{})
	harness.Must(t, err)
	try := func(r replica, value string) error {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "tried-", Labels: labels}, Data: map[string]string{"value": value}}
		_, err := r.CoreV1().ConfigMaps("default").Create(t.Context(), object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	denied := func(r replica, value string) bool {
		err := try(r, value)
		return err != nil && strings.Contains(err.Error(), "failed expression: object.data.value == params.data.value")
	}
	for _, r := range replicas {
		harness.Eventually(t, "the policy is enforced", func() bool { return denied(r, "none") })
	}
	for i := range 30 {
		former, value := parameter.Data["value"], fmt.Sprint("value-", i)
		parameter.Data["value"] = value
		parameter, err = replicas[i%3].CoreV1().ConfigMaps("default").Update(t.Context(), parameter, metav1.UpdateOptions{})
		harness.Must(t, err)
		for n, r := range replicas {
			if err := try(r, value); err != nil || !denied(r, former) {
				t.Errorf("server %d after a change on server %d: %v; it denies the former value: %t", n, i%3, err, denied(r, former))
			}
		}
	}
}
