package serve

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sqube/sqube/test/concepts/kit"
	"github.com/sqube/sqube/test/harness"
)

// documents compares what OpenAPI says can be done with the resources of the group with what discovery says.
func (f *history) documents(t *testing.T) {
	const group = "/apis/history.sqube.io/v1alpha1"
	served := map[string][]string{}
	discovered, err := f.admin.Discovery().ServerResourcesForGroupVersion(strings.TrimPrefix(group, "/apis/"))
	harness.Must(t, err)
	for _, r := range discovered.APIResources {
		if r.Name == "transactions/confirm" {
			continue // its documents are those of a definition, which has no such subresource
		}
		for _, verb := range r.Verbs {
			if verb != "watch" { // a list with a parameter
				served[r.Name] = append(served[r.Name], verb)
			}
		}
		slices.Sort(served[r.Name])
	}
	verbs := map[string]string{"post": "create", "put": "update"} // others have the same names
	for _, path := range []string{"/openapi/v2", "/openapi/v3" + group} {
		var document struct {
			Paths map[string]map[string]json.RawMessage
		}
		harness.Must(t, json.Unmarshal([]byte(kubectlPrints(t, f.kubeconfig, "get", "--raw", path)), &document))
		described, where := map[string][]string{}, map[string]bool{}
		for path, methods := range document.Paths {
			if path, found := strings.CutPrefix(path, group+"/"); found {
				parts := strings.Split(strings.TrimPrefix(path, "namespaces/{namespace}/"), "/")
				for _, text := range methods {
					var operation struct {
						Action string `json:"x-kubernetes-action"`
					}
					if json.Unmarshal(text, &operation) != nil || operation.Action == "" {
						continue // parameters
					}
					verb := operation.Action
					if other, ok := verbs[verb]; ok {
						verb = other
					}
					described[parts[0]] = append(described[parts[0]], verb)
					where[path+" "+verb] = true
				}
			}
		}
		for resource, list := range described {
			slices.Sort(list)
			described[resource] = slices.Compact(list)
		}
		if !maps.EqualFunc(described, served, slices.Equal) {
			t.Errorf("%s has %v, discovery %v", path, described, served)
		}
		want := []string{
			"changes deletecollection", "changes list", "namespaces/{namespace}/changes deletecollection", "namespaces/{namespace}/changes list", "namespaces/{namespace}/changes/{name} get",
			"namespaces/{namespace}/transactions create", "namespaces/{namespace}/undos create", "queries create", "transactions create", "transactions list", "transactions/{name} get", "undos create",
		}
		if got := slices.Sorted(maps.Keys(where)); !slices.Equal(got, want) {
			t.Errorf("%s has %q, want %q", path, got, want)
		}
	}
}

// inCBOR compares what the resources of the group send and are sent as CBOR with JSON.
func (f *history) inCBOR(t *testing.T) {
	const changes = "/apis/history.sqube.io/v1alpha1/namespaces/shop/changes"
	client := kit.NewClient(t, f.config)
	revisions, _ := f.list(t, "", "shop", metav1.ListOptions{FieldSelector: "name=settings"})
	paths := []string{changes + "/" + revisions[1], changes + "?fieldSelector=name=settings&resourceVersionMatch=Exact&resourceVersion=" + revisions[1]}
	for _, path := range paths {
		kit.Equal(t, client.GetAs(t, kit.CBOR, path).OK(t).DecodeAs(t, kit.CBOR), client.Get(t, path).OK(t).Object(t))
	}
	watch := client.WatchAs(t, 1, kit.Header{"Accept", kit.CBOR}, changes+"?watch=true&fieldSelector=name=settings&resourceVersion="+revisions[0])
	kit.Equal(t, watch.Header.Get("Content-Type"), runtime.ContentTypeCBORSequence)
	kit.Equal(t, watch.Events(t)[0].Object["changed"], client.Get(t, paths[0]).OK(t).Object(t)["changed"])

	settings := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "namespace": "shop", "name": "settings"}
	for resource, spec := range map[string]map[string]any{
		"undos":   {"object": settings, "to": map[string]any{"revision": number(t, revisions[0])}},
		"queries": {"sql": "SELECT 1 AS n, 'text' AS t, NULL AS z"},
	} {
		kinds := map[string]string{"undos": "Undo", "queries": "Query"}
		question := map[string]any{"apiVersion": changesResource.GroupVersion().String(), "kind": kinds[resource], "spec": spec}
		var answers []any
		for _, mediaType := range []string{runtime.ContentTypeJSON, kit.CBOR} {
			headers := kit.Header{"Content-Type", mediaType, "Accept", mediaType}
			answer := client.Send(t, http.MethodPost, "/apis/history.sqube.io/v1alpha1/"+resource, headers, kit.EncodeAs(t, mediaType, question))
			status := answer.Created(t).DecodeAs(t, mediaType)["status"].(map[string]any)
			delete(status, "milliseconds")
			answers = append(answers, status)
		}
		kit.Equal(t, answers[1], answers[0])
	}
}
