package outage

import (
	"net/http"
	"regexp"
	"testing"

	"github.com/sqube/sqube/test/harness"
)

// form is a kind of request.
type form struct {
	method, path, body string
	headers            map[string]string
	// stored is set if its response needs the database.
	stored bool
	// hide matches what looks like a mention of the database but is not. It may be nil.
	hide *regexp.Regexp
}

// visible returns the response without what hide matches.
func (f form) visible(answer string) string {
	if f.hide == nil {
		return answer
	}
	return f.hide.ReplaceAllString(answer, "")
}

const (
	maps    = "/api/v1/namespaces/default/configmaps"
	pods    = "/api/v1/namespaces/default/pods"
	customs = "/apis/outage.example.com/v1/namespaces/default/things"
	podBody = `{"metadata":{"name":"new"},"spec":{"containers":[{"name":"c","image":"i"}]}}`
)

func accept(types string) map[string]string { return map[string]string{"Accept": types} }

func content(mediaType string) map[string]string {
	return map[string]string{"Content-Type": mediaType}
}

// forms are requests of every kind. prepareForms creates their objects.
var forms = []form{
	// Reads.
	{method: http.MethodGet, path: maps + "/there", stored: true},
	{method: http.MethodGet, path: maps + "/there", headers: accept("application/yaml"), stored: true},
	{method: http.MethodGet, path: maps + "/there", headers: accept("application/vnd.kubernetes.protobuf"), stored: true},
	{method: http.MethodGet, path: maps + "/there", headers: accept("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"), stored: true},
	{method: http.MethodGet, path: maps, stored: true},
	{method: http.MethodGet, path: maps + "?resourceVersion=0", stored: true},
	{method: http.MethodGet, path: maps + "?resourceVersion=1&resourceVersionMatch=Exact", stored: true},
	{method: http.MethodGet, path: maps + "?limit=1", stored: true},
	{method: http.MethodGet, path: maps + "?fieldSelector=metadata.name%3Dthere", stored: true},
	{method: http.MethodGet, path: maps, headers: accept("application/json;as=Table;g=meta.k8s.io;v=v1"), stored: true},
	{method: http.MethodGet, path: "/api/v1/configmaps", headers: accept("application/vnd.kubernetes.protobuf"), stored: true},
	{method: http.MethodGet, path: customs, stored: true},
	{method: http.MethodGet, path: customs + "/there", stored: true},
	{method: http.MethodGet, path: pods + "/there/log", stored: true},
	// Watches.
	{method: http.MethodGet, path: maps + "?watch=true&timeoutSeconds=1"},
	{method: http.MethodGet, path: maps + "?watch=true&timeoutSeconds=1&resourceVersion=1"},
	{method: http.MethodGet, path: maps + "?watch=true&timeoutSeconds=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"},
	{method: http.MethodGet, path: "/api/v1/watch/namespaces/default/configmaps/there?timeoutSeconds=1"},
	{method: http.MethodGet, path: customs + "?watch=true&timeoutSeconds=1"},
	// Writes.
	{method: http.MethodPost, path: maps, body: `{"metadata":{"name":"new"}}`, stored: true},
	{method: http.MethodPost, path: maps + "?dryRun=All", body: `{"metadata":{"name":"there"}}`},
	{method: http.MethodPost, path: maps, body: `{"metadata":{"generateName":"new-"}}`, stored: true},
	{method: http.MethodPost, path: customs, body: `{"apiVersion":"outage.example.com/v1","kind":"Thing","metadata":{"name":"new"}}`, stored: true},
	{method: http.MethodPost, path: pods, body: podBody, stored: true},
	{method: http.MethodPost, path: "/api/v1/namespaces/default/services", body: `{"metadata":{"name":"new"},"spec":{"type":"NodePort","ports":[{"port":80}]}}`, stored: true},
	{method: http.MethodPost, path: "/api/v1/namespaces", body: `{"metadata":{"name":"new"}}`, stored: true},
	{method: http.MethodPut, path: maps + "/there", body: `{"metadata":{"name":"there"},"data":{"a":"b"}}`, stored: true},
	{method: http.MethodPut, path: "/api/v1/namespaces/default/finalize", body: `{"metadata":{"name":"default"}}`},
	{method: http.MethodPatch, path: maps + "/there", body: `{"data":{"a":"b"}}`, headers: content("application/merge-patch+json"), stored: true},
	{method: http.MethodPatch, path: maps + "/there", body: `{"data":{"a":"b"}}`, headers: content("application/strategic-merge-patch+json"), stored: true},
	{method: http.MethodPatch, path: maps + "/there", body: `[{"op":"add","path":"/data","value":{}}]`, headers: content("application/json-patch+json"), stored: true},
	{method: http.MethodPatch, path: maps + "/there?fieldManager=me", body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"there"}}`, headers: content("application/apply-patch+yaml"), stored: true},
	{method: http.MethodPatch, path: maps + "/applied?fieldManager=me", body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"applied"}}`, headers: content("application/apply-patch+yaml"), stored: true},
	{method: http.MethodPatch, path: customs + "/there?fieldManager=me", body: `{"apiVersion":"outage.example.com/v1","kind":"Thing","metadata":{"name":"there"}}`, headers: content("application/apply-patch+yaml"), stored: true},
	{method: http.MethodDelete, path: maps + "/there", stored: true},
	{method: http.MethodDelete, path: maps, stored: true},
	{method: http.MethodDelete, path: customs + "/there", stored: true},
	// Subresources.
	{method: http.MethodPost, path: pods + "/there/exec?command=ls&stdout=true"},
	{method: http.MethodPost, path: pods + "/there/attach?stdout=true"},
	{method: http.MethodGet, path: pods + "/there/proxy/"},
	{method: http.MethodGet, path: "/api/v1/namespaces/default/services/kubernetes/proxy/"},
	{method: http.MethodPost, path: pods + "/there/binding", body: `{"metadata":{"name":"there"},"target":{"name":"n"}}`, stored: true},
	{method: http.MethodPost, path: pods + "/there/eviction", body: `{"metadata":{"name":"there"}}`, stored: true},
	{method: http.MethodGet, path: "/apis/apps/v1/namespaces/default/deployments/there/scale", stored: true},
	{method: http.MethodPost, path: "/api/v1/namespaces/default/serviceaccounts/default/token", body: `{}`, stored: true},
	// Reviews, most of which the server decides from memory.
	{method: http.MethodPost, path: "/apis/authentication.k8s.io/v1/tokenreviews", body: `{"spec":{"token":"nonsense"}}`},
	{method: http.MethodPost, path: "/apis/authentication.k8s.io/v1/selfsubjectreviews", body: `{}`},
	{method: http.MethodPost, path: "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body: `{"spec":{"nonResourceAttributes":{"path":"/","verb":"get"}}}`},
	{method: http.MethodPost, path: "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", body: `{"spec":{"namespace":"default"}}`},
	{method: http.MethodGet, path: "/api/v1/componentstatuses", hide: regexp.MustCompile(`dial tcp.*?connection refused`)},
	// Non-resource requests.
	{method: http.MethodGet, path: "/healthz?verbose"},
	{method: http.MethodGet, path: "/livez?verbose"},
	{method: http.MethodGet, path: "/readyz?verbose"},
	{method: http.MethodGet, path: "/readyz/datastore"},
	{method: http.MethodGet, path: "/healthz/datastore"},
	{method: http.MethodGet, path: "/readyz/etcd"},
	{method: http.MethodGet, path: "/readyz/etcd-readiness"},
	{method: http.MethodGet, path: "/livez/etcd"},
	{method: http.MethodGet, path: "/statusz"},
	{method: http.MethodGet, path: "/metrics", hide: regexp.MustCompile(`(?m)^#.*|apiserver_request_body.*|.*priority_and_fairness.*|file="[^"]*"`)},
	{method: http.MethodGet, path: "/metrics/slis"},
	{method: http.MethodGet, path: "/version"},
	{method: http.MethodGet, path: "/"},
	{method: http.MethodGet, path: "/api"},
	{method: http.MethodGet, path: "/apis"},
	{method: http.MethodGet, path: "/apis/outage.example.com/v1"},
	{method: http.MethodGet, path: "/openapi/v2", hide: regexp.MustCompile(`(?i)localhost`)},
	{method: http.MethodGet, path: "/openapi/v3/api/v1", hide: regexp.MustCompile(`(?i)localhost`)},
	{method: http.MethodGet, path: "/.well-known/openid-configuration"},
	{method: http.MethodGet, path: "/debug/api_priority_and_fairness/dump_priority_levels"},
	{method: http.MethodGet, path: "/no/such/path"},
}

// prepareForms creates the objects of the forms.
func prepareForms(t *testing.T, c *cluster) {
	t.Helper()
	for _, object := range []struct{ path, body string }{
		{maps, `{"metadata":{"name":"there"}}`},
		{pods, `{"metadata":{"name":"there"},"spec":{"nodeName":"n","containers":[{"name":"c","image":"i"}]}}`},
		{"/api/v1/nodes", `{"metadata":{"name":"n"},"status":{"addresses":[{"type":"InternalIP","address":"127.0.0.9"}]}}`},
		{"/apis/apps/v1/namespaces/default/deployments", `{"metadata":{"name":"there"},"spec":{"selector":{"matchLabels":{"a":"b"}},
			"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`},
		{"/apis/apiextensions.k8s.io/v1/customresourcedefinitions", `{"metadata":{"name":"things.outage.example.com"},
			"spec":{"group":"outage.example.com","scope":"Namespaced","names":{"plural":"things","kind":"Thing"},
			"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`},
		{customs, `{"apiVersion":"outage.example.com/v1","kind":"Thing","metadata":{"name":"there"}}`},
	} {
		harness.Eventually(t, "a resource exists in "+object.path, func() bool {
			response, body, err := c.do(t, request{method: http.MethodPost, path: object.path, body: object.body})
			harness.Must(t, err)
			if response.StatusCode >= 400 && response.StatusCode != http.StatusNotFound {
				t.Fatalf("creating in %s: %s", object.path, body)
			}
			return response.StatusCode == http.StatusCreated
		})
	}
}
