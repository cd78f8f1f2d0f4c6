package serve

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/sqube/sqube/test/harness"
)

// documents compares what OpenAPI says can be done with the resources of the group with what discovery says.
func (f *history) documents(t *testing.T) {
	const group = "/apis/history.sqube.io/v1alpha1"
	served := map[string][]string{}
	discovered, err := f.admin.Discovery().ServerResourcesForGroupVersion(strings.TrimPrefix(group, "/apis/"))
	harness.Must(t, err)
	for _, r := range discovered.APIResources {
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
			"namespaces/{namespace}/undos create", "queries create", "undos create",
		}
		if got := slices.Sorted(maps.Keys(where)); !slices.Equal(got, want) {
			t.Errorf("%s has %q, want %q", path, got, want)
		}
	}
}
