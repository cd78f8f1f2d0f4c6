package servertest_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	"k8s.io/utils/ptr"

	"github.com/sqube/sqube/server/servertest"
	"github.com/sqube/sqube/test/harness"
)

// backup makes a backup of a new cluster with what fill puts in it.
func backup(t testing.TB, fill func(*servertest.Server)) (file string) {
	t.Helper()
	s := servertest.Run(t, servertest.Options{CRDs: []string{"testdata/crds"}})
	fill(s)
	file = filepath.Join(t.TempDir(), "backup.db")
	harness.Must(t, errors.Join(s.Save(file), s.Stop()))
	return file
}

// dependent makes a cluster depend on servers that are gone: webhooks that must allow each write, and an aggregated API.
func dependent(t *testing.T, s *servertest.Server) {
	t.Helper()
	api := &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: "v1.gone.example.com"},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: "gone.example.com", Version: "v1", GroupPriorityMinimum: 100, VersionPriority: 100,
			Service: &apiregistrationv1.ServiceReference{Namespace: "default", Name: "gone"},
		},
	}
	if _, err := clientset.NewForConfigOrDie(s.Config).ApiregistrationV1().APIServices().Create(t.Context(), api, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	all := admissionv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*"}}
	ofService := admissionv1.ValidatingWebhook{
		Name: "service.example.com", SideEffects: ptr.To(admissionv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		Rules:         []admissionv1.RuleWithOperations{{Operations: []admissionv1.OperationType{admissionv1.OperationAll}, Rule: all}},
		FailurePolicy: ptr.To(admissionv1.Fail),
		ClientConfig:  admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: "default", Name: "gone"}},
	}
	ofURL := *ofService.DeepCopy()
	ofURL.Name, ofURL.ClientConfig = "url.example.com", admissionv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:1/")}
	configuration := &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "gone"}, Webhooks: []admissionv1.ValidatingWebhook{ofService, ofURL},
	}
	if _, err := client(t, s).AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(), configuration, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestFrom starts on copies of a cluster that depends on servers which are gone.
func TestFrom(t *testing.T) {
	var revision string
	var before time.Time
	file := backup(t, func(s *servertest.Server) {
		first, err := client(t, s).CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "first"}}, metav1.CreateOptions{})
		harness.Must(t, err)
		for _, namespace := range []string{"first", "kube-node-lease"} {
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "held"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("somebody")}}
			if _, err := client(t, s).CoordinationV1().Leases(namespace).Create(t.Context(), lease, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		revision, before = first.ResourceVersion, time.Now()
		time.Sleep(2 * time.Millisecond) // times in the database are in milliseconds
		if _, err := dynamic.NewForConfigOrDie(s.Config).Resource(boats).Namespace("first").Create(t.Context(), boat("sloop", 9), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		dependent(t, s)
	})
	content := read(t, file)

	s := servertest.Run(t, servertest.Options{From: file, CRDs: []string{"testdata/crds"}, Webhooks: []string{"testdata/webhooks/manifests.yaml"}})
	serveWebhooks(t, s.Webhook)
	ships := dynamic.NewForConfigOrDie(s.Config).Resource(boats)
	if _, err := ships.Namespace("first").Get(t.Context(), "sloop", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := ships.Namespace("first").Create(t.Context(), boat("cutter", 9), metav1.CreateOptions{}); err != nil {
		t.Errorf("webhooks that are gone prevent a write: %v", err)
	}
	harness.Eventually(t, "the test's webhook is called", func() bool {
		_, err := ships.Namespace("first").Create(t.Context(), boat("forbidden", 9), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil && strings.Contains(err.Error(), "no boat of that name")
	})
	err := client(t, s).Discovery().RESTClient().Get().AbsPath("/apis/gone.example.com/v1/things").Do(t.Context()).Error()
	if !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "--from-outbound") {
		t.Errorf("the aggregated API: %v", err)
	}
	if _, err := client(t, s).CoordinationV1().Leases("first").Get(t.Context(), "held", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a Lease whose holder is gone: %v", err)
	}
	if _, err := client(t, s).CoordinationV1().Leases("kube-node-lease").Get(t.Context(), "held", metav1.GetOptions{}); err != nil {
		t.Errorf("the Lease of a Node: %v", err)
	}
	if _, err := client(t, s).Discovery().ServerPreferredResources(); err != nil { // or no namespace could be deleted
		t.Errorf("discovery: %v", err)
	}
	if _, err := client(t, s).CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "second"}}, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	harness.Eventually(t, "controllers run", func() bool {
		_, err := client(t, s).CoreV1().ServiceAccounts("second").Get(t.Context(), "default", metav1.GetOptions{})
		return err == nil
	})

	at, err := strconv.ParseInt(revision, 10, 64)
	harness.Must(t, err)
	for name, o := range map[string]servertest.Options{"time": {From: file, At: before}, "revision": {From: file, AtRevision: at}} {
		s := servertest.Run(t, o)
		list, err := dynamic.NewForConfigOrDie(s.Config).Resource(boats).List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) > 0 {
			t.Errorf("at a %s without boats there are %v, %v", name, list, err)
		}
		if _, err := client(t, s).CoreV1().Namespaces().Get(t.Context(), "first", metav1.GetOptions{}); err != nil {
			t.Errorf("at a %s: %v", name, err)
		}
	}
	if !bytes.Equal(read(t, file), content) {
		t.Error("the backup has changed")
	}
	if left, err := os.ReadDir(filepath.Dir(file)); err != nil || len(left) != 1 {
		t.Errorf("beside the backup there are %v, %v", left, err)
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	content, err := os.ReadFile(file)
	harness.Must(t, err)
	return content
}

// TestFromCluster starts on a copy of a running cluster, read through its API.
func TestFromCluster(t *testing.T) {
	original := servertest.Run(t, servertest.Options{CRDs: []string{"testdata/crds"}})
	c := client(t, original)
	_, err := c.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "door"}, StringData: map[string]string{"code": "1234"}}, metav1.CreateOptions{})
	harness.Must(t, err)
	_, err = dynamic.NewForConfigOrDie(original.Config).Resource(boats).Namespace("default").Create(t.Context(), boat("sloop", 9), metav1.CreateOptions{})
	harness.Must(t, err)
	t.Setenv("KUBECONFIG", original.Kubeconfig)

	s := servertest.Run(t, servertest.Options{From: "kube:"})
	if _, err := dynamic.NewForConfigOrDie(s.Config).Resource(boats).Namespace("default").Get(t.Context(), "sloop", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	if door, err := client(t, s).CoreV1().Secrets("default").Get(t.Context(), "door", metav1.GetOptions{}); err != nil || string(door.Data["code"]) != "xxxx" {
		t.Errorf("the Secret is %v, %v", door, err)
	}
	if _, err := servertest.Start(servertest.Options{From: "kube:none"}); err == nil || !strings.Contains(err.Error(), `context "none" does not exist`) {
		t.Errorf("a copy of an unknown cluster: %v", err)
	}
}
