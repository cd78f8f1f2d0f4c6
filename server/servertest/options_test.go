package servertest_test

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/featuregate"

	"github.com/sqube/sqube/server"
	"github.com/sqube/sqube/server/servertest"
	"github.com/sqube/sqube/test/harness"
)

var boats = schema.GroupVersionResource{Group: "demo.example.com", Version: "v1", Resource: "boats"}

func boat(name string, length int64) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "demo.example.com/v1", "kind": "Boat", "metadata": map[string]any{"name": name}, "spec": map[string]any{"length": length},
	}}
}

func TestOptions(t *testing.T) {
	s := servertest.Run(t, servertest.Options{
		CRDs: []string{"testdata/crds"}, Webhooks: []string{"testdata/webhooks/manifests.yaml"},
		NoControllers: true,
		Configure:     func(o *server.Options) { o.EventTTL, o.Console = time.Minute, false },
	})
	serveWebhooks(t, s.Webhook)
	objects, err := dynamic.NewForConfig(s.Config)
	harness.Must(t, err)
	ships := objects.Resource(boats).Namespace("default")

	t.Run("custom resources are served", func(t *testing.T) {
		if _, err := ships.Create(t.Context(), boat("sloop", 9), metav1.CreateOptions{}); err != nil {
			t.Error(err)
		}
		if _, err := ships.Create(t.Context(), boat("none", 0), metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
			t.Errorf("an object that violates the schema: %v", err)
		}
	})
	t.Run("there is no console", func(t *testing.T) {
		_, err := kubernetes.NewForConfigOrDie(s.Config).Discovery().RESTClient().Get().AbsPath("/console/").DoRaw(t.Context())
		if !apierrors.IsNotFound(err) {
			t.Errorf("/console/: %v, want 404", err)
		}
	})
	t.Run("the test's webhooks are called", func(t *testing.T) {
		// The server calls a webhook some time after its configuration was created.
		harness.Eventually(t, "the webhook is called", func() bool {
			_, err := ships.Create(t.Context(), boat("forbidden", 9), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err != nil
		})
		if _, err := ships.Create(t.Context(), boat("forbidden", 9), metav1.CreateOptions{}); err == nil || !strings.Contains(err.Error(), "no boat of that name") {
			t.Errorf("an object that the webhook denies: %v", err)
		}
	})
	t.Run("users have the permissions that RBAC grants them", func(t *testing.T) {
		config, err := s.User("jane", "developers")
		harness.Must(t, err)
		_, err = kubernetes.NewForConfigOrDie(config).CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{})
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `"jane"`) {
			t.Errorf("a user without permissions gets %v", err)
		}
	})
	t.Run("no controllers", func(t *testing.T) {
		admin := client(t, s)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "one"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		if _, err := admin.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Errorf("a Pod without a service account: %v", err)
		}
		if list, err := admin.CoreV1().ServiceAccounts("default").List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) > 0 {
			t.Errorf("there are %d service accounts: %v", len(list.Items), err)
		}
	})
}

// serveWebhooks denies boats with the name forbidden, until the test ends.
func serveWebhooks(t *testing.T, w servertest.WebhookServer) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/validate-boats", func(rw http.ResponseWriter, r *http.Request) {
		review := &admissionv1.AdmissionReview{}
		if err := json.NewDecoder(r.Body).Decode(review); err != nil {
			http.Error(rw, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: review.Request.Name != "forbidden", Result: &metav1.Status{Message: "no boat of that name"}}
		if err := json.NewEncoder(rw).Encode(review); err != nil {
			t.Error(err)
		}
	})
	listener, err := net.Listen("tcp", net.JoinHostPort(w.Host, strconv.Itoa(w.Port)))
	harness.Must(t, err)
	server := &http.Server{Handler: mux}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.ServeTLS(listener, filepath.Join(w.CertDir, "tls.crt"), filepath.Join(w.CertDir, "tls.key")) // it is closed below
	}()
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		<-ended
	})
}

// TestFeatureGates checks that a gate is set for the process while a server runs, and restored afterwards.
func TestFeatureGates(t *testing.T) {
	is := func() bool {
		return utilfeature.DefaultFeatureGate.Enabled(featuregate.Feature("APIServingWithRoutine"))
	}
	before := is()
	s, err := servertest.Start(servertest.Options{FeatureGates: map[string]bool{"APIServingWithRoutine": !before}})
	harness.Must(t, err)
	if is() == before {
		t.Error("the gate has not changed")
	}
	if _, err := servertest.Start(servertest.Options{FeatureGates: map[string]bool{"APIServingWithRoutine": before}}); err == nil || !strings.Contains(err.Error(), "APIServingWithRoutine") {
		t.Errorf("a second server with the other value: %v", err)
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
	if is() != before {
		t.Error("the gate is not restored")
	}
}

// TestWrongOptions checks that errors name the invalid option or file, and that no files remain.
func TestWrongOptions(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "broken.yaml")
	harness.Must(t, os.WriteFile(broken, []byte("kind: [\n"), 0o600))
	dump := filepath.Join(t.TempDir(), "cluster.dump")
	harness.Must(t, os.WriteFile(dump, []byte("PGDMP..."), 0o600))
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	for want, o := range map[string]servertest.Options{
		"nowhere":                  {CRDs: []string{"testdata/nowhere"}},
		broken:                     {Webhooks: []string{broken}},
		"Nonsense":                 {FeatureGates: map[string]bool{"Nonsense": true}},
		"--controllers":            {Configure: func(o *server.Options) { o.Controllers = []string{"nonsense"} }},
		"nothing.db: no such file": {From: "testdata/nothing.db"},
		"not an SQLite database":   {From: broken},
		"archive of pg_dump":       {From: dump},
		"holds no backup":          {From: t.TempDir()},
		"need Options.From":        {At: time.Now()},
		"give one of":              {From: broken, At: time.Now(), AtRevision: 5},
	} {
		if _, err := servertest.Start(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("%d files remain: %v", len(left), err)
	}
}
