package badinput

import (
	"net/http"
	"testing"
	"time"

	"github.com/sqube/sqube/test/harness"
)

// The objects that exist before the cases.
const (
	namespace   = "bad-input"
	core        = "/api/v1/namespaces/" + namespace
	configMaps  = core + "/configmaps"
	pods        = core + "/pods"
	services    = core + "/services"
	apps        = "/apis/apps/v1/namespaces/" + namespace
	deployments = apps + "/deployments"
	definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	widgets     = "/apis/bad.example.com/v1/namespaces/" + namespace + "/widgets"
	deployment  = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"},"spec":{"replicas":1,"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"c","image":"i:1"}]}}}}`
	pod         = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"pod","labels":{"app":"x"}},"spec":{"automountServiceAccountToken":false,"containers":[{"name":"c","image":"i:1"}]}}`
	service     = `{"apiVersion":"v1","kind":"Service","metadata":{"name":"svc"},"spec":{"clusterIP":"None","ports":[{"port":80}]}}`
	configMap   = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"cm"},"data":{"a":"1"}}`
	widget      = `{"apiVersion":"bad.example.com/v1","kind":"Widget","metadata":{"name":"one"},"spec":{"size":3}}`
	immutable   = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"fixed"},"immutable":true,"data":{"a":"1"}}`
	definition  = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"widgets.bad.example.com"},"spec":{"group":"bad.example.com","scope":"Namespaced","names":{"plural":"widgets","singular":"widget","kind":"Widget"},"versions":[{"name":"v1","served":true,"storage":true,"subresources":{"status":{},"scale":{"specReplicasPath":".spec.size","statusReplicasPath":".status.size"}},"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"size":{"type":"integer","minimum":1,"maximum":10},"color":{"type":"string","enum":["red","green"]},"name":{"type":"string","pattern":"^[a-z]+$","maxLength":5},"list":{"type":"array","maxItems":2,"items":{"type":"string"}}},"x-kubernetes-validations":[{"rule":"!has(self.color) || self.color != 'green' || self.size > 5","message":"green widgets are large"}]},"status":{"type":"object","properties":{"size":{"type":"integer"}}}}}}}]}}`
)

// prepare creates the objects. It returns once the custom resource is served.
func (s *sender) prepare(t *testing.T) {
	t.Helper()
	for _, object := range []struct{ path, body string }{
		{"/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"` + namespace + `"}}`},
		{core + "/serviceaccounts", `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default"}}`},
		{definitions, definition},
		{configMaps, configMap},
		{configMaps, immutable},
		{pods, pod},
		{services, service},
		{deployments, deployment},
	} {
		// A controller may have created the service account.
		if a := s.send(t, badCase{method: http.MethodPost, path: object.path, body: object.body}); a.Code != 201 && a.Code != 409 {
			t.Fatalf("create %s: %+v", object.path, a)
		}
	}
	deadline := time.After(harness.Patience)
	for s.send(t, badCase{method: http.MethodPost, path: widgets, body: widget}).Code != 201 {
		select {
		case <-deadline:
			t.Fatal("the custom resource is not served")
		case <-time.After(20 * time.Millisecond):
		}
	}
}
