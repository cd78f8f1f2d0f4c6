package handlers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"

	"github.com/sqube/sqube/server/handlers"
	"github.com/sqube/sqube/test/harness"
)

const (
	deployments   = "/apis/apps/v1/namespaces/default/deployments"
	oneDeployment = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":%q,"annotations":{"a":"1"}},"spec":{"selector":{"matchLabels":{"app":"a"}},` +
		`"template":{"metadata":{"labels":{"app":"a"}},"spec":{"containers":[{"name":"one","image":"i:1"},{"name":"two","image":"i:1"}]}}}}`
)

// TestPatchOfManagedFields checks that a strategic merge patch does the same to managed fields as a merge patch, which is made of the whole
// object, whether it names them or not.
func TestPatchOfManagedFields(t *testing.T) {
	c := newStoredAPI(t, nil)
	long := strings.Repeat("x", 505) // moves a name to where the body is read in two parts
	for i, patch := range []string{
		`{"metadata":{"annotations":{"a":"2","b":"1"}}}`,
		`{"metadata":{"annotations":{"a":null}}}`,
		`{"metadata":{"annotations":null}}`,
		`{"spec":{"replicas":2,"paused":true}}`,
		`{"metadata":{"managedFields":null}}`,
		`{"metadata":{"managedFields":[]}}`,
		`{"metadata":{"managedFields":[{}]}}`,
		`{"metadata":{"managedF\u0069elds":[{}],"annotations":{"a":"2"}}}`,
		`{"metadata":{"annotations":{"a":"` + long + `"},"managedFields":[{}]}}`,
		`{"metadata":{"managedFields":[{"manager":"m","operation":"Update","apiVersion":"apps/v1","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:replicas":{}}}}]}}`,
		`{"metadata":{"managedFields":[{"manager":"m","operation":"Unknown","apiVersion":"apps/v1","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{}}}]}}`,
		`{"metadata":{"managedFields":[{"manager":"m","operation":"Update","apiVersion":"apps/v1","fieldsType":"FieldsV1","fieldsV1":{"x":{}}}]}}`,
		`{}`,
	} {
		var managed []string
		for _, mediaType := range []types.PatchType{types.MergePatchType, types.StrategicMergePatchType} {
			name := fmt.Sprintf("d%d-%d", i, len(managed))
			c.send("POST", deployments+"?fieldManager=creator", asJSON, fmt.Sprintf(oneDeployment, name), http.StatusCreated, nil)
			c.send("PATCH", deployments+"/"+name+"?fieldManager=other", string(types.StrategicMergePatchType),
				`{"spec":{"template":{"spec":{"containers":[{"name":"two","image":"i:2"}]}}}}`, http.StatusOK, nil)
			var patched, got appsv1.Deployment
			c.send("PATCH", deployments+"/"+name+"?fieldManager=patcher", string(mediaType)+"; charset=utf-8", patch, http.StatusOK, &patched)
			c.send("GET", deployments+"/"+name, "", "", http.StatusOK, &got)
			managed = append(managed, owners(t, got.ManagedFields))
			if answered := owners(t, patched.ManagedFields); answered != managed[len(managed)-1] {
				t.Errorf("%s: answered %s, but stored %s", patch, answered, managed[len(managed)-1])
			}
		}
		if managed[0] != managed[1] {
			t.Errorf("%s: a merge patch leads to %s, a strategic one to %s", patch, managed[0], managed[1])
		}
	}
}

// owners returns managed fields without times.
func owners(t *testing.T, fields []metav1.ManagedFieldsEntry) string {
	t.Helper()
	for i := range fields {
		fields[i].Time = nil
	}
	text, err := json.Marshal(fields)
	harness.Must(t, err)
	return string(text)
}

// mutating is admission that changes objects.
type mutating func(metav1.Object)

func (mutating) Handles(o admission.Operation) bool { return o != admission.Delete }

func (m mutating) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	m(a.GetObject().(metav1.Object))
	return nil
}

// Validate implements admission.ValidationInterface.
func (mutating) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if len(a.GetObject().(metav1.Object).GetManagedFields()) == 0 {
		return admission.NewForbidden(a, fmt.Errorf("no managed fields"))
	}
	return nil
}

// TestManagedFieldsAfterAdmission checks that managed fields pass admission also when it changes them, unless it makes them invalid.
func TestManagedFieldsAfterAdmission(t *testing.T) {
	annotate := func(o metav1.Object) { o.SetAnnotations(map[string]string{"admitted": "yes"}) }
	rename := func(o metav1.Object) {
		fields := o.GetManagedFields()
		fields[0].Manager = "admission" // in place
	}
	spoil := func(o metav1.Object) {
		o.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "admission"}})
	}
	var mutate mutating
	c := newStoredAPI(t, func(config *handlers.Config) {
		config.Admission = mutating(func(o metav1.Object) { mutate(o) })
	})
	writes := []struct{ method, mediaType, body string }{
		{"POST", asJSON, oneMap},
		{"PUT", asJSON, strings.Replace(oneMap, `"1"`, `"2"`, 1)},
		{"PATCH", string(types.MergePatchType), `{"data":{"k":"3"}}`},
		{"PATCH", string(types.StrategicMergePatchType), `{"data":{"k":"4"}}`},
		{"PATCH", string(types.JSONPatchType), `[{"op":"replace","path":"/data/k","value":"5"}]`},
		{"PATCH", string(types.ApplyYAMLPatchType) + "; force", strings.Replace(oneMap, `"1"`, `"6"`, 1)},
	}
	for name, test := range map[string]struct {
		mutate  mutating
		manager string
	}{"unchanged": {annotate, "test"}, "changed": {rename, "admission"}, "invalid": {spoil, "test"}} {
		mutate = test.mutate
		for _, w := range writes {
			path := configMaps
			if w.method != "POST" {
				path += "/a"
			}
			code := http.StatusOK
			if w.method == "POST" {
				code = http.StatusCreated
			}
			query := "?fieldManager=test"
			if mediaType, force, _ := strings.Cut(w.mediaType, "; "); force != "" {
				w.mediaType, query = mediaType, query+"&force=true"
			}
			var answered, got metav1.PartialObjectMetadata
			c.send(w.method, path+query, w.mediaType, w.body, code, &answered)
			c.send("GET", configMaps+"/a", "", "", http.StatusOK, &got)
			if owners(t, answered.ManagedFields) != owners(t, got.ManagedFields) || !strings.Contains(owners(t, got.ManagedFields), fmt.Sprintf(`{"manager":%q`, test.manager)) {
				t.Errorf("%s, %s %s: answered %v, stored %v", name, w.method, w.mediaType, answered.ManagedFields, got.ManagedFields)
			}
			if _, ok := got.Annotations["admitted"]; ok != (name == "unchanged") {
				t.Errorf("%s, %s %s: annotations %v", name, w.method, w.mediaType, got.Annotations)
			}
		}
		c.send("DELETE", configMaps+"/a", "", "", http.StatusOK, nil)
	}
}
