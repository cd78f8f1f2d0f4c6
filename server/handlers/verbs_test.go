package handlers_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
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
	server := httptest.NewServer(newAPI(t, options{change: change}))
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
		core, err := config.Groups[0].Info()
		harness.Must(t, err)
		core.VersionedResourcesStorageMap["v1"]["configmaps"].(*configmapstore.REST).TableConvertor = noTables{}
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
