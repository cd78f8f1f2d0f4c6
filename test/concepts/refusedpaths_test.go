package concepts

import (
	"net/http"
	"testing"
)

var refusedPaths = []promise{
	{"a group, version, resource or subresource that there is not is answered with 404", func(t *testing.T, c *cluster) {
		version := c.widgets(t, anySchema)
		c.post(t, c.path(version, "widgets"), widget(version, "a")).want(t, http.StatusCreated)
		for _, path := range []string{
			"/api/v1/nonsense", "/api/v9/pods", "/api/v9", c.path("v1", "nonsense"), c.path("v1", "nonsense", "a"), "/apis/apps/v9/deployments", "/apis/apps/v9", "/apis/apps/v1/nonsense",
			c.path("v1", "pods", "a", "nonsense"), c.path("v1", "configmaps", "a", "status"), c.path("v1", "pods", "a", "status", "deeper"), "/api/v1/pods/a",
			"/api/v1/proxy/namespaces/default/pods/a", "/api/v1/redirect/nodes/a", c.path("v1", "", "configmaps"),
		} {
			c.get(t, path).refused(t, http.StatusNotFound, "NotFound", "the server could not find the requested resource")
		}
		// kube-apiserver does not say which of the two there is not.
		c.get(t, c.path(version, "widgets", "a", "nonsense")).refused(t, http.StatusNotFound, "NotFound", `"a" not found`)
		// Where no group answers, nor does a Status.
		for _, path := range []string{
			"/nonsense", "/apis/nonsense.example.com", "/apis/nonsense.example.com/v1", "/apis/nonsense.example.com/v1/things", "//api/v1/pods", "/apis//v1/deployments",
			c.path(c.namespace+".example.com/v2", "widgets"), c.path(version, "nonsense"),
		} {
			a := c.get(t, path).want(t, http.StatusNotFound)
			equal(t, []string{string(a.Body), a.Header.Get("Content-Type")}, []string{"404 page not found\n", "text/plain; charset=utf-8"})
		}
	}},
	{"a namespace's name may be empty in a path: then it is all of them", func(t *testing.T, c *cluster) {
		equal(t, c.get(t, "/api/v1/namespaces//secrets").want(t, http.StatusOK).text(t, "kind"), "SecretList")
	}},
	{"an object that there is not is answered with 404, and named", func(t *testing.T, c *cluster) {
		version := c.widgets(t, anySchema)
		for path, resource := range map[string]string{
			c.path("v1", "secrets", "a"): "secrets", c.path("apps/v1", "deployments", "a"): "deployments.apps", c.path("apps/v1", "deployments", "a", "status"): "deployments.apps",
			c.path("apps/v1", "deployments", "a", "scale"): "deployments.apps", c.global("v1", "nodes", "a"): "nodes", c.path(version, "widgets", "a"): "widgets." + c.namespace + ".example.com",
		} {
			c.get(t, path).refused(t, http.StatusNotFound, "NotFound", resource+` "a" not found`)
			c.patch(t, mergePatch, path, `{"metadata":{"labels":{"a":"b"}}}`).refused(t, http.StatusNotFound, "NotFound", ` "a" not found`)
		}
		c.delete(t, c.path("v1", "secrets", "a")).refused(t, http.StatusNotFound, "NotFound", `secrets "a" not found`)
	}},
	{"a method that a path does not have is answered with 405", func(t *testing.T, c *cluster) {
		c.post(t, c.path("v1", "secrets"), secret("a")).want(t, http.StatusCreated)
		for _, method := range []string{http.MethodPut, http.MethodPatch, http.MethodHead, http.MethodOptions, http.MethodTrace, "FOO"} {
			c.send(t, method, c.path("v1", "secrets"), nil, nil).want(t, http.StatusMethodNotAllowed)
		}
		for _, method := range []string{http.MethodPost, http.MethodHead, http.MethodOptions, "FOO"} {
			c.send(t, method, c.path("v1", "secrets", "a"), nil, nil).want(t, http.StatusMethodNotAllowed)
		}
		for _, path := range []string{"/version", "/api", "/api/v1", "/apis/apps/v1"} {
			c.post(t, path, "{}").want(t, http.StatusMethodNotAllowed)
		}
		for method, path := range map[string]string{
			http.MethodPost: c.path("v1", "configmaps", "a"), http.MethodPut: c.global("v1", "namespaces"), http.MethodDelete: c.global("v1", "namespaces"), http.MethodPatch: c.path("v1", "pods"),
		} {
			a := c.send(t, method, path, nil, nil).refused(t, http.StatusMethodNotAllowed, "MethodNotAllowed", "the server does not allow this method on the requested resource")
			equal(t, a.Header.Get("Allow"), "") // kube-apiserver sends none either
		}
	}},
	{"a name in a path is one object's, whatever characters it has", func(t *testing.T, c *cluster) {
		for _, name := range []string{"%27%20OR%201=1--", "a%00", "a%3Bb", "%E2%80%A8", "..%5C", "*", "_"} {
			c.get(t, c.path("v1", "secrets", name)).refused(t, http.StatusNotFound, "NotFound", "not found")
			c.delete(t, c.path("v1", "secrets", name)).refused(t, http.StatusNotFound, "NotFound", "not found")
		}
	}},
	{"a name that no object can have is refused", func(t *testing.T, c *cluster) {
		c.get(t, c.path("v1", "secrets", "a%25")).refused(t, http.StatusBadRequest, "BadRequest", `Name parameter invalid: "a%": may not contain '%'`)
		c.get(t, c.path("v1", "secrets", "a%2Fb")).refused(t, http.StatusNotFound, "NotFound") // a subresource
	}},
	{"a query that can't be read is taken as far as it can", func(t *testing.T, c *cluster) {
		c.post(t, c.path("v1", "secrets"), secret("a")).want(t, http.StatusCreated)
		for _, query := range []string{"?x=%zz", "?;", "?&&&", "?=", "?limit=5;continue=x", "?pretty"} {
			equal(t, c.get(t, c.path("v1", "secrets")+query).want(t, http.StatusOK).names(t), []string{"a"})
		}
	}},
}
