package imports

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// serves starts sqube on an imported database, with the old cluster's service account key, and tests it.
func serves(t *testing.T, engine harness.Engine, name string) {
	t.Helper()
	var revision int64
	harness.Must(t, harness.OpenDatabase(t, engine).QueryRow("SELECT revision FROM counter").Scan(&revision))
	dir := t.TempDir()
	harness.Must(t, os.Mkdir(filepath.Join(dir, "pki"), 0o700))
	harness.Must(t, os.WriteFile(filepath.Join(dir, "pki", "sa.key"), recorded(t, name+".sa.key"), 0o600))
	// As with kubeadm's keys, and with those of k3s, where clients have a separate authority.
	servers, clients := newAuthority(t), newAuthority(t)
	servers.write(t, filepath.Join(dir, "pki", "ca.crt"), filepath.Join(dir, "pki", "ca.key"))
	clients.write(t, filepath.Join(dir, "client-ca.crt"), filepath.Join(dir, "client-ca.key"))
	s := sqube.Start(t, sqube.Options{Datastore: engine.Datastore, DataDir: dir, Args: append([]string{
		"--service-cluster-ip-range", "10.0.0.0/16", "--service-account-issuer", "https://kubernetes.default.svc",
		"--client-ca-file", filepath.Join(dir, "client-ca.crt"),
	}, encryption...)})
	config := s.Config(t)
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	harness.Must(t, err)
	a := recordedAnswers(t, name)
	for path, want := range a.Lists {
		got, err := client.RESTClient().Get().AbsPath(path).Param("resourceVersion", fmt.Sprint(revision)).Param("resourceVersionMatch", "Exact").DoRaw(t.Context())
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if diff := cmp.Diff(items(t, want), items(t, got)); diff != "" {
			t.Errorf("%s: kube-apiserver's response (-) and sqube's (+) differ:\n%s", path, diff)
		}
	}
	token := &rest.Config{Host: s.URL, BearerToken: a.Token, TLSClientConfig: rest.TLSClientConfig{CAData: servers.pem()}}
	for config, want := range map[*rest.Config]string{
		token: "system:serviceaccount:prod:robot",
		servers.client(t, s.URL, servers, "jane"): "jane",
		clients.client(t, s.URL, servers, "joe"):  "joe",
	} {
		if got := user(t, config); got != want {
			t.Errorf("the credentials of %s are those of %q", want, got)
		}
	}
	writes(t, client, revision)
}

// items returns the items of a list by namespace and name, except for those not imported.
func items(t *testing.T, list []byte) map[string]any {
	t.Helper()
	var parsed unstructured.UnstructuredList
	var raw struct{ Items []map[string]any }
	harness.Must(t, json.Unmarshal(list, &raw))
	for _, item := range raw.Items {
		parsed.Items = append(parsed.Items, unstructured.Unstructured{Object: item})
	}
	byName := map[string]any{}
	for _, item := range parsed.Items {
		if item.GetLabels()["apiserver.kubernetes.io/identity"] == "kube-apiserver" {
			continue
		}
		// On etcd, these have one revision.
		if strings.HasPrefix(item.GetName(), "json-") {
			item.SetResourceVersion("")
		}
		byName[item.GetNamespace()+"/"+item.GetName()] = item.Object
	}
	return byName
}

// writes continues where the old cluster stopped.
func writes(t *testing.T, client kubernetes.Interface, revision int64) {
	t.Helper()
	maps := client.CoreV1().ConfigMaps("prod")
	made, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "made"}}, metav1.CreateOptions{})
	harness.Must(t, err)
	if version, err := strconv.ParseInt(made.ResourceVersion, 10, 64); err != nil || version <= revision {
		t.Errorf("a new object has resourceVersion %s, after an import that ended at %d", made.ResourceVersion, revision)
	}
	// The pending deletion ends with its finalizer.
	if _, err := maps.Patch(t.Context(), "going", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := maps.Get(t.Context(), "going", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the object whose last finalizer is gone: %v", err)
	}
	// Addresses and ports of Services are in use.
	services := client.CoreV1().Services("prod")
	web, err := services.Get(t.Context(), "web", metav1.GetOptions{})
	harness.Must(t, err)
	for _, spec := range []corev1.ServiceSpec{
		{ClusterIP: web.Spec.ClusterIP, Ports: []corev1.ServicePort{{Port: 80}}},
		{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: 80, NodePort: 30080}}},
	} {
		_, err := services.Create(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{GenerateName: "other-"}, Spec: spec}, metav1.CreateOptions{})
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "already allocated") {
			t.Errorf("a second Service with %v: %v", spec, err)
		}
	}
	// Selectable fields were extracted.
	for selector, want := range map[string]string{"spec.color=blue": "newer", "metadata.name=older": "older"} {
		list, err := client.Discovery().RESTClient().Get().AbsPath("/apis/example.com/v1/widgets").Param("fieldSelector", selector).DoRaw(t.Context())
		if err != nil || len(items(t, list)) != 1 || items(t, list)["prod/"+want] == nil {
			t.Errorf("widgets with %s: %s %v", selector, list, err)
		}
	}
}
