package verbs

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
	"github.com/sqube/sqube/test/harness"
)

var refusedPaths = []kit.Promise{
	{Statement: "an unknown group, version, resource or subresource gets 404", Proof: func(t *testing.T, c *kit.Cluster) {
		version := c.DefineWidgets(t, kit.AnySchema)
		c.Post(t, c.Path(version, "widgets"), kit.Widget(version, "a")).Created(t)
		for _, path := range []string{
			"/api/v1/nonsense", "/api/v9/pods", "/api/v9", c.Path("v1", "nonsense"), c.Path("v1", "nonsense", "a"), "/apis/apps/v9/deployments", "/apis/apps/v9", "/apis/apps/v1/nonsense",
			c.Path("v1", "pods", "a", "nonsense"), c.Path("v1", "configmaps", "a", "status"), c.Path("v1", "pods", "a", "status", "deeper"), "/api/v1/pods/a",
			"/api/v1/proxy/namespaces/default/pods/a", "/api/v1/redirect/nodes/a", c.Path("v1", "", "configmaps"), "/api/v1//pods", "/api/v1/bindings", c.Path("v1", "pods", "a%2Fb"), c.Path("v1", "status", "x"),
			c.Path("apps/v1"), c.Path("apps/v1", "status"), "/apis/storage.k8s.io/v1alpha1", "/apis/apiregistration.k8s.io/v1/nonsense",
			"/api/v1/watch/nonsense", "/api/v1/watch/namespaces/default/status", "/api/v1/watch/namespaces/default/pods/a/status", "/api/v1/watch/namespaces/default/pods//a",
		} {
			c.Get(t, path).NotFound(t, "the server could not find the requested resource")
		}
		// kube-apiserver does not say which of the two does not exist.
		c.Get(t, c.Path(version, "widgets", "a", "nonsense")).NotFound(t, `"a" not found`)
		// Outside of any group, the response is not a Status.
		for _, path := range []string{
			"/nonsense", "/apisx", "/apis/nonsense.example.com", "/apis/nonsense.example.com/", "/apis/internal.apiserver.k8s.io", "/apis/nonsense.example.com/v1", "/apis/nonsense.example.com/v1/things", "//api/v1/pods", "/apis//v1/deployments",
			c.Path(c.Namespace+".example.com/v2", "widgets"), c.Path(version, "nonsense"),
		} {
			a := c.Get(t, path).Want(t, http.StatusNotFound)
			kit.Equal(t, []string{string(a.Body), a.Header.Get("Content-Type")}, []string{"404 page not found\n", "text/plain; charset=utf-8"})
		}
	}},
	{Statement: "an empty namespace in a path means all namespaces", Proof: func(t *testing.T, c *kit.Cluster) {
		kit.Equal(t, c.Get(t, "/api/v1/namespaces//secrets").OK(t).Text(t, "kind"), "SecretList")
	}},
	{Statement: "a missing object gets 404 with its name", Proof: func(t *testing.T, c *kit.Cluster) {
		version := c.DefineWidgets(t, kit.AnySchema)
		for path, resource := range map[string]string{
			c.Path("v1", "secrets", "a"): "secrets", c.Path("apps/v1", "deployments", "a"): "deployments.apps", c.Path("apps/v1", "deployments", "a", "status"): "deployments.apps",
			c.Path("apps/v1", "deployments", "a", "scale"): "deployments.apps", c.ClusterPath("v1", "nodes", "a"): "nodes", c.Path(version, "widgets", "a"): "widgets." + c.Namespace + ".example.com",
		} {
			c.Get(t, path).NotFound(t, resource+` "a" not found`)
			c.Patch(t, kit.MergePatch, path, `{"metadata":{"labels":{"a":"b"}}}`).NotFound(t, ` "a" not found`)
		}
		c.Delete(t, c.Path("v1", "secrets", "a")).NotFound(t, `secrets "a" not found`)
	}},
	{Statement: "a method that a path does not support gets 405", Proof: func(t *testing.T, c *kit.Cluster) {
		c.Post(t, c.Path("v1", "secrets"), kit.Secret("a")).Created(t)
		for _, method := range []string{http.MethodPut, http.MethodPatch, http.MethodHead, http.MethodOptions, http.MethodTrace, "FOO"} {
			c.Send(t, method, c.Path("v1", "secrets"), nil, nil).Want(t, http.StatusMethodNotAllowed)
		}
		for _, method := range []string{http.MethodPost, http.MethodHead, http.MethodOptions, "FOO"} {
			c.Send(t, method, c.Path("v1", "secrets", "a"), nil, nil).Want(t, http.StatusMethodNotAllowed)
		}
		for _, path := range []string{"/version", "/api", "/api/v1", "/apis/apps/v1", "/apis/apiregistration.k8s.io/v1/apiservices/x/status"} {
			c.Post(t, path, "{}").Want(t, http.StatusMethodNotAllowed)
		}
		for method, path := range map[string]string{
			http.MethodPost: c.Path("v1", "configmaps", "a"), http.MethodPut: c.ClusterPath("v1", "namespaces"), http.MethodDelete: c.ClusterPath("v1", "namespaces"), http.MethodPatch: c.Path("v1", "pods"),
		} {
			a := c.Send(t, method, path, nil, nil).Refused(t, http.StatusMethodNotAllowed, "MethodNotAllowed", "the server does not allow this method on the requested resource")
			kit.Equal(t, a.Header.Get("Allow"), "") // kube-apiserver sends none either
		}
	}},
	{Statement: "a HEAD of what can be read gets the headers of a GET", Proof: func(t *testing.T, c *kit.Cluster) {
		for _, path := range []string{"/openapi/v2", "/openapi/v3", "/console/", "/console/app.js", "/healthz"} {
			harness.Retry(t, "HEAD of "+path, func() error { // the documents of OpenAPI may change in between
				plain := kit.Header{"Accept-Encoding", "identity"}
				got, head := c.Send(t, http.MethodGet, path, plain, nil).OK(t), c.Send(t, http.MethodHead, path, plain, nil).OK(t)
				for _, name := range []string{"Content-Type", "Etag", "Vary", "Cache-Control", "Content-Security-Policy", "X-Content-Type-Options"} {
					if !slices.Equal(got.Header.Values(name), head.Header.Values(name)) || len(head.Body) > 0 {
						return fmt.Errorf("%s is %q, and with HEAD %q, with a body of %d bytes", name, got.Header.Values(name), head.Header.Values(name), len(head.Body))
					}
				}
				return nil
			})
		}
	}},
	{Statement: "an invalid query is read as far as possible", Proof: func(t *testing.T, c *kit.Cluster) {
		c.Post(t, c.Path("v1", "secrets"), kit.Secret("a")).Created(t)
		for _, query := range []string{"?x=%zz", "?;", "?&&&", "?=", "?limit=5;continue=x", "?pretty"} {
			kit.Equal(t, c.Get(t, c.Path("v1", "secrets")+query).OK(t).Names(t), []string{"a"})
		}
	}},
}
