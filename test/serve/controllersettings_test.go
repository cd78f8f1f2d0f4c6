package serve

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sqube/sqube/test/harness"
)

// TestControllerSettings checks that the default controllers follow kube-controller-manager's flags and configuration file. The
// goroutine profile shows how many workers they have.
func TestControllerSettings(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "controllers.yaml")
	harness.Must(t, os.WriteFile(file, []byte(`apiVersion: kubecontrollermanager.config.k8s.io/v1alpha1
kind: KubeControllerManagerConfiguration
GarbageCollectorController: {ConcurrentGCSyncs: 2, GCIgnoredResources: [{Group: "", Resource: configmaps}]}
NamespaceController: {ConcurrentNamespaceSyncs: 3}
ResourceQuotaController: {ConcurrentResourceQuotaSyncs: 4}
`), 0o600))
	s := serve(t, []string{
		"--controller-manager-config=" + file, "--concurrent-namespace-syncs=6", "--concurrent-serviceaccount-token-syncs=7",
		"--concurrent-validating-admission-policy-status-syncs=8", "--resource-quota-sync-period=100ms", "--legacy-service-account-token-clean-up-period=1h",
	})
	c := client(t, s.Kubeconfig)
	startControllers(t, c)
	for worker, want := range map[string]int{
		"garbagecollector.(*GarbageCollector).runAttemptToDeleteWorker(": 2,
		"namespace.(*NamespaceController).worker(":                       6,
		"serviceaccount.(*TokensController).syncSecret(":                 7,
		"validatingadmissionpolicystatus.(*Controller).runWorker(":       8,
		"resourcequota.(*Controller).Run.func3(":                         4,
	} {
		harness.Eventually(t, fmt.Sprintf("%d goroutines are at %s", want, worker), func() bool {
			return strings.Count(goroutines(t, c), worker) == want
		})
	}

	owned := metav1.ObjectMeta{Name: "orphan", OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "nobody", UID: "gone"}}}
	_, err := c.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: owned}, metav1.CreateOptions{})
	harness.Must(t, err)
	_, err = c.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: owned}, metav1.CreateOptions{})
	harness.Must(t, err)
	harness.Eventually(t, "what the file does not exclude is collected", func() bool {
		_, err := c.CoreV1().Secrets("default").Get(t.Context(), "orphan", metav1.GetOptions{})
		return err != nil
	})
	if _, err := c.CoreV1().ConfigMaps("default").Get(t.Context(), "orphan", metav1.GetOptions{}); err != nil {
		t.Errorf("what the file excludes: %v", err)
	}
	quotaIsCountedAgain(t, c)
	s.Stop(t)
}

// startControllers creates the objects that controllers wait for.
func startControllers(t *testing.T, c kubernetes.Interface) {
	t.Helper()
	first := metav1.ObjectMeta{Name: "first"}
	_, err := c.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: first}, metav1.CreateOptions{})
	harness.Must(t, err)
	_, err = c.CoreV1().ResourceQuotas("kube-public").Create(t.Context(), &corev1.ResourceQuota{ObjectMeta: first}, metav1.CreateOptions{})
	harness.Must(t, err)
	policy := admissionregistrationv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
			RuleWithOperations: admissionregistrationv1.RuleWithOperations{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"daemonsets"}},
			},
		}}},
		Validations: []admissionregistrationv1.Validation{{Expression: "true"}},
	}
	_, err = c.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(t.Context(),
		&admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: first, Spec: policy}, metav1.CreateOptions{})
	harness.Must(t, err)
}

// goroutines returns the stacks of all goroutines of the server.
func goroutines(t *testing.T, c kubernetes.Interface) string {
	t.Helper()
	text, err := c.CoreV1().RESTClient().Get().AbsPath("/debug/pprof/goroutine").Param("debug", "2").DoRaw(t.Context())
	harness.Must(t, err)
	return string(text)
}

// quotaIsCountedAgain writes a wrong usage, which the controller notices only at its next sync.
func quotaIsCountedAgain(t *testing.T, c kubernetes.Interface) {
	t.Helper()
	quotas := c.CoreV1().ResourceQuotas("default")
	hard := corev1.ResourceList{corev1.ResourceServices: resource.MustParse("5")}
	quota, err := quotas.Create(t.Context(), &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}, metav1.CreateOptions{})
	harness.Must(t, err)
	counted := func() bool {
		quota, err = quotas.Get(t.Context(), "q", metav1.GetOptions{})
		harness.Must(t, err)
		used, ok := quota.Status.Used[corev1.ResourceServices]
		return ok && used.Value() == 1 // the Service kubernetes
	}
	harness.Eventually(t, "usage is counted", counted)
	wrong := quota.DeepCopy()
	wrong.Status.Used = corev1.ResourceList{corev1.ResourceServices: resource.MustParse("4")}
	_, err = quotas.UpdateStatus(t.Context(), wrong, metav1.UpdateOptions{})
	harness.Must(t, err)
	harness.Eventually(t, "usage is counted again after --resource-quota-sync-period", counted)
}
