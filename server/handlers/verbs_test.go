package handlers_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/registry/rest"
	configmapstore "k8s.io/kubernetes/pkg/registry/core/configmap/storage"

	"github.com/sqube/sqube/server/handlers"
	"github.com/sqube/sqube/test/harness"
)

// client sends requests to an API.
type client struct {
	t    *testing.T
	base string
}

// newStoredAPI serves every built-in group from a SQLite database.
func newStoredAPI(t *testing.T, change func(*handlers.Config)) client {
	server := httptest.NewServer(newAPI(t, options{storage: newStore(t), change: change}))
	t.Cleanup(server.Close)
	return client{t, server.URL}
}

// send sends a request and decodes the response, which must have the given code.
func (c client) send(method, path, contentType, body string, code int, into any) {
	c.t.Helper()
	r, err := http.NewRequest(method, c.base+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Content-Type", contentType)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	if answer.StatusCode != code {
		c.t.Fatalf("%s %s: %d, want %d: %s", method, path, answer.StatusCode, code, content)
	}
	if into != nil {
		if err := json.Unmarshal(content, into); err != nil {
			c.t.Fatalf("%s %s: %v: %s", method, path, err, content)
		}
	}
}

const (
	asJSON     = "application/json"
	configMaps = "/api/v1/namespaces/default/configmaps"
	oneMap     = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"1"}}`
)

// noTables fails to make Tables.
type noTables struct{ rest.TableConvertor }

func (noTables) ConvertToTable(context.Context, runtime.Object, runtime.Object) (*metav1.Table, error) {
	return nil, errors.New("no table")
}

// TestErrorAfterCommit checks that a patch whose response can't be encoded is stored, and that the response is a 500.
func TestErrorAfterCommit(t *testing.T) {
	c := newStoredAPI(t, func(config *handlers.Config) {
		config.Groups[0].VersionedResourcesStorageMap["v1"]["configmaps"].(*configmapstore.REST).TableConvertor = noTables{}
	})
	c.send("POST", configMaps, asJSON, oneMap, http.StatusCreated, nil)
	r, err := http.NewRequest("PATCH", c.base+configMaps+"/a", strings.NewReader(`{"data":{"k":"2"}}`))
	harness.Must(t, err)
	r.Header.Set("Content-Type", "application/merge-patch+json")
	r.Header.Set("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1")
	answer, err := http.DefaultClient.Do(r)
	harness.Must(t, err)
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusInternalServerError {
		t.Errorf("got %s", answer.Status)
	}
	var got corev1.ConfigMap
	if c.send("GET", configMaps+"/a", "", "", http.StatusOK, &got); got.Data["k"] != "2" {
		t.Errorf("stored %v", got.Data)
	}
}

func TestVerbs(t *testing.T) {
	c := newStoredAPI(t, nil)
	var created, got corev1.ConfigMap
	c.send("POST", configMaps+"?fieldManager=test", asJSON, oneMap, http.StatusCreated, &created)
	if created.UID == "" || created.ResourceVersion == "" || created.Namespace != "default" {
		t.Errorf("created %+v", created)
	}
	if len(created.ManagedFields) != 1 || created.ManagedFields[0].Manager != "test" {
		t.Errorf("its fields are owned by %+v", created.ManagedFields)
	}
	c.send("POST", configMaps, asJSON, oneMap, http.StatusConflict, nil)
	c.send("GET", configMaps+"/a/", asJSON, "", http.StatusOK, &got)
	if got.Data["k"] != "1" {
		t.Errorf("got %+v", got)
	}

	for _, patch := range []struct{ contentType, body, want string }{
		{"application/json-patch+json", `[{"op":"replace","path":"/data/k","value":"2"}]`, "2"},
		{"application/merge-patch+json", `{"data":{"k":"3"}}`, "3"},
		{"application/strategic-merge-patch+json", `{"data":{"k":"4"}}`, "4"},
	} {
		c.send("PATCH", configMaps+"/a", patch.contentType, patch.body, http.StatusOK, &got)
		if got.Data["k"] != patch.want {
			t.Errorf("after %s it holds %v", patch.contentType, got.Data)
		}
	}

	got.Data["k"] = "5"
	replacement, err := json.Marshal(&got)
	harness.Must(t, err)
	c.send("PUT", configMaps+"/a", asJSON, string(replacement), http.StatusOK, &got)
	c.send("PUT", configMaps+"/a", asJSON, string(replacement), http.StatusConflict, nil) // its resourceVersion is stale

	var list corev1.ConfigMapList
	for _, path := range []string{configMaps, "/api/v1/configmaps", "/api/v1/namespaces//configmaps", configMaps + "?fieldSelector=metadata.name%3Da"} {
		list = corev1.ConfigMapList{}
		c.send("GET", path, asJSON, "", http.StatusOK, &list)
		if len(list.Items) != 1 || list.Items[0].Data["k"] != "5" {
			t.Errorf("%s lists %+v", path, list.Items)
		}
	}

	c.send("DELETE", configMaps+"/a", asJSON, "", http.StatusOK, nil)
	c.send("GET", configMaps+"/a", asJSON, "", http.StatusNotFound, nil)
	c.send("POST", configMaps, asJSON, oneMap, http.StatusCreated, nil)
	c.send("DELETE", configMaps+"?labelSelector=nothing%3Dhere", asJSON, "", http.StatusOK, nil)
	c.send("GET", configMaps+"/a", asJSON, "", http.StatusOK, nil)
	c.send("DELETE", configMaps, asJSON, "", http.StatusOK, nil)
	c.send("GET", configMaps+"/a", asJSON, "", http.StatusNotFound, nil)
}

// TestServerSideApply checks that the type converter merges lists by their keys, in several groups.
func TestServerSideApply(t *testing.T) {
	c := newStoredAPI(t, nil)
	const path = "/apis/apps/v1/namespaces/default/deployments/d?fieldManager="
	apply := func(manager, container, image string, code int) {
		t.Helper()
		c.send("PATCH", path+manager, "application/apply-patch+yaml", fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},
			"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":%q,"image":%q}]}}}}`,
			container, image), code, nil)
	}
	apply("one", "first", "image:1", http.StatusCreated)
	apply("two", "second", "image:1", http.StatusOK)
	apply("two", "second", "image:2", http.StatusOK)
	c.send("PATCH", path+"two", "application/apply-patch+yaml", `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},
		"spec":{"template":{"spec":{"containers":[{"name":"first","image":"image:3"}]}}}}`, http.StatusConflict, nil)

	var scale struct {
		APIVersion string
		Spec       struct{ Replicas int }
	}
	c.send("GET", "/apis/apps/v1/namespaces/default/deployments/d/scale", asJSON, "", http.StatusOK, &scale)
	if scale.APIVersion != "autoscaling/v1" || scale.Spec.Replicas != 1 {
		t.Errorf("its scale is %+v", scale)
	}
}

// TestNamespaceSubresources checks that the paths of a Namespace are distinguished from those of the objects in it.
func TestNamespaceSubresources(t *testing.T) {
	c := newStoredAPI(t, nil)
	var ns corev1.Namespace
	c.send("POST", "/api/v1/namespaces", asJSON, `{"metadata":{"name":"n"}}`, http.StatusCreated, nil)
	c.send("GET", "/api/v1/namespaces/n/status", asJSON, "", http.StatusOK, &ns)
	if ns.Name != "n" || ns.Status.Phase != corev1.NamespaceActive {
		t.Errorf("got %+v", ns)
	}
	c.send("DELETE", "/api/v1/namespaces/n", asJSON, "", http.StatusOK, nil) // 200 with the Namespace, which is terminating
	c.send("GET", "/api/v1/namespaces/n", asJSON, "", http.StatusOK, &ns)
	ns.Spec.Finalizers = nil
	body, err := json.Marshal(&ns)
	harness.Must(t, err)
	c.send("PUT", "/api/v1/namespaces/n/finalize", asJSON, string(body), http.StatusOK, nil)
	c.send("GET", "/api/v1/namespaces/n", asJSON, "", http.StatusNotFound, nil)
}

// TestDeprecatedKindsWarn checks that responses with deprecated kinds have a warning.
func TestDeprecatedKindsWarn(t *testing.T) {
	c := newStoredAPI(t, nil)
	answer, err := http.Get(c.base + "/api/v1/componentstatuses/nosuch")
	harness.Must(t, err)
	answer.Body.Close()
	if got := answer.Header.Get("Warning"); got != `299 - "v1 ComponentStatus is deprecated in v1.19+"` {
		t.Errorf("the warning is %q", got)
	}
}

// TestWatchPaths checks that ?watch=1 and the deprecated paths both return events.
func TestWatchPaths(t *testing.T) {
	c := newStoredAPI(t, nil)
	c.send("POST", configMaps, asJSON, oneMap, http.StatusCreated, nil)
	for _, path := range []string{
		configMaps + "?watch=1",
		"/api/v1/configmaps?watch=true",
		"/api/v1/watch/configmaps",
		"/api/v1/watch/namespaces/default/configmaps",
		"/api/v1/watch/namespaces/default/configmaps/a",
	} {
		ctx, cancel := context.WithCancel(context.Background())
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, nil)
		harness.Must(t, err)
		answer, err := http.DefaultClient.Do(r)
		harness.Must(t, err)
		line, err := bufio.NewReader(answer.Body).ReadBytes('\n')
		cancel()
		answer.Body.Close()
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		var event struct {
			Type   string
			Object metav1.PartialObjectMetadata
		}
		if err := json.Unmarshal(line, &event); err != nil || event.Type != "ADDED" || event.Object.Name != "a" {
			t.Errorf("%s: %v %s", path, err, line)
		}
	}
}

// countingAdmission counts its calls.
type countingAdmission struct{ calls atomic.Int32 }

func (a *countingAdmission) Handles(admission.Operation) bool { return true }

func (a *countingAdmission) Admit(context.Context, admission.Attributes, admission.ObjectInterfaces) error {
	a.calls.Add(1)
	return nil
}

// TestAdmissionRunsOncePerRequest checks that earlier requests don't add admission calls to later ones.
func TestAdmissionRunsOncePerRequest(t *testing.T) {
	counter := &countingAdmission{}
	c := newStoredAPI(t, func(config *handlers.Config) { config.Admission = counter })
	for i := range 5 {
		c.send("POST", configMaps, asJSON, fmt.Sprintf(`{"metadata":{"name":"m%d"}}`, i), http.StatusCreated, nil)
	}
	if calls := counter.calls.Load(); calls != 5 {
		t.Errorf("admission was called %d times for 5 requests", calls)
	}
}
