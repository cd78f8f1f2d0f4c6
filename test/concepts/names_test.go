package concepts

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
)

var objectNames = []promise{
	{"a name is given once in a namespace to an object of a resource, and can be given again to others", func(t *testing.T, c *cluster) {
		c.post(t, c.path("v1", "secrets"), secret("a")).want(t, http.StatusCreated)
		second := c.post(t, c.path("v1", "secrets"), secret("a")).refused(t, http.StatusConflict, "AlreadyExists", `secrets "a" already exists`)
		equal(t, second.value(t, "details"), any(map[string]any{"name": "a", "kind": "secrets"}))
		c.post(t, c.path("v1", "configmaps"), configMap("a", nil)).want(t, http.StatusCreated)
		other := c.namespace + "-other"
		c.post(t, c.global("v1", "namespaces"), namespaceObject(other)).want(t, http.StatusCreated)
		c.post(t, c.global("v1", "namespaces", other, "secrets"), secret("a")).want(t, http.StatusCreated)
	}},
	{"a name of what is not namespaced is given once in the cluster", func(t *testing.T, c *cluster) {
		node := manifest("{metadata: {name: %s}}", c.namespace)
		c.post(t, c.global("v1", "nodes"), node).want(t, http.StatusCreated)
		c.post(t, c.global("v1", "nodes"), node).refused(t, http.StatusConflict, "AlreadyExists", `nodes "`+c.namespace+`" already exists`)
		c.post(t, c.global("v1", "namespaces"), namespaceObject(c.namespace)).refused(t, http.StatusConflict, "AlreadyExists")
	}},
	{"the name of a deleted object is free, and its next bearer is another object", func(t *testing.T, c *cluster) {
		first := c.post(t, c.path("v1", "secrets"), secret("a")).want(t, http.StatusCreated)
		c.delete(t, c.path("v1", "secrets", "a")).want(t, http.StatusOK)
		second := c.post(t, c.path("v1", "secrets"), secret("a")).want(t, http.StatusCreated)
		if first.text(t, "metadata", "uid") == second.text(t, "metadata", "uid") || first.version(t) == second.version(t) {
			t.Error("both are one")
		}
	}},
	{"an object needs a name, or a prefix to make one of", func(t *testing.T, c *cluster) {
		c.post(t, c.path("v1", "secrets"), `{"metadata":{}}`).refused(t, http.StatusUnprocessableEntity, "Invalid", "name or generateName is required")
		version := c.widgets(t, anySchema)
		c.post(t, c.path(version, "widgets"), `{"apiVersion":"`+version+`","kind":"Widget"}`).refused(t, http.StatusUnprocessableEntity, "Invalid", "name or generateName is required")
	}},
	{"names that the resource does not allow are refused, and the message says what it allows", func(t *testing.T, c *cluster) {
		subdomain := "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.'"
		version := c.widgets(t, anySchema)
		for _, name := range []string{"A", "a_b", "-a", "a-", "a..b", "a b", "ü", "a/b", ".", "..", "a%b", strings.Repeat("a", 254)} {
			part := subdomain
			if len(name) > 253 {
				part = "must be no more than 253"
			}
			for path, object := range map[string]map[string]any{c.path("v1", "secrets"): secret(name), c.path(version, "widgets"): with(widget(version, "x"), name, "metadata", "name")} {
				c.post(t, path, object).refused(t, http.StatusUnprocessableEntity, "Invalid", "metadata.name: Invalid value: ", part)
			}
		}
		c.post(t, c.path("v1", "secrets"), secret("a.b-c.0")).want(t, http.StatusCreated)
		c.post(t, c.path("v1", "secrets"), secret(strings.Repeat("a", 253))).want(t, http.StatusCreated)
		c.post(t, c.global("v1", "namespaces"), namespaceObject("a.b")).refused(t, http.StatusUnprocessableEntity, "Invalid", "must not contain dots")
	}},
	{"roles have any name that a path can hold", func(t *testing.T, c *cluster) {
		roles := c.path("rbac.authorization.k8s.io/v1", "roles")
		for name, path := range map[string]string{"system:a": "system:a", "A b": "A%20b", "ü": "%C3%BC", "a%": "a%25"} {
			object := with(manifest("{metadata: {}}"), name, "metadata", "name")
			if strings.Contains(name, "%") {
				c.post(t, roles, object).refused(t, http.StatusUnprocessableEntity, "Invalid", "may not contain '%'")
				continue
			}
			c.post(t, roles, object).want(t, http.StatusCreated)
			equal(t, c.get(t, roles+"/"+path).want(t, http.StatusOK).text(t, "metadata", "name"), name)
			c.delete(t, roles+"/"+path).want(t, http.StatusOK)
		}
		c.post(t, roles, manifest("{metadata: {name: ..}}")).refused(t, http.StatusUnprocessableEntity, "Invalid", "may not be '..'")
		c.post(t, roles, manifest("{metadata: {name: a/b}}")).refused(t, http.StatusUnprocessableEntity, "Invalid", "may not contain '/'")
	}},
	{"the namespace of an object is that of the path, and may be left out", func(t *testing.T, c *cluster) {
		a := c.post(t, c.path("v1", "secrets"), secret("a")).want(t, http.StatusCreated)
		equal(t, a.text(t, "metadata", "namespace"), c.namespace)
		c.post(t, c.path("v1", "secrets"), with(secret("b"), "default", "metadata", "namespace")).
			refused(t, http.StatusBadRequest, "BadRequest", "the namespace of the provided object does not match the namespace sent on the request")
		c.post(t, c.global("v1", "namespaces", c.namespace+"-none", "secrets"), secret("a")).refused(t, http.StatusNotFound, "NotFound", `namespaces "`+c.namespace+`-none" not found`)
	}},
	{"generateName is the beginning of a name that the server completes with five characters, each time with others", func(t *testing.T, c *cluster) {
		form := regexp.MustCompile(`^web-[bcdfghjklmnpqrstvwxz2456789]{5}$`)
		seen := map[string]bool{}
		for range 50 {
			a := c.post(t, c.path("v1", "secrets"), `{"metadata":{"generateName":"web-"}}`).want(t, http.StatusCreated)
			name := a.text(t, "metadata", "name")
			if !form.MatchString(name) || seen[name] || a.text(t, "metadata", "generateName") != "web-" {
				t.Errorf("the name is %q", name)
			}
			seen[name] = true
			c.get(t, c.path("v1", "secrets", name)).want(t, http.StatusOK)
		}
	}},
	{"a generated name is not longer than 63 characters, and a given one wins", func(t *testing.T, c *cluster) {
		a := c.post(t, c.path("v1", "secrets"), `{"metadata":{"generateName":"`+strings.Repeat("a", 100)+`"}}`).want(t, http.StatusCreated)
		if name := a.text(t, "metadata", "name"); len(name) != 63 || !strings.HasPrefix(name, strings.Repeat("a", 58)) {
			t.Errorf("the name is %q", name)
		}
		given := c.post(t, c.path("v1", "secrets"), `{"metadata":{"generateName":"x-","name":"given"}}`).want(t, http.StatusCreated)
		equal(t, given.text(t, "metadata", "name"), "given")
		c.post(t, c.path("v1", "secrets"), `{"metadata":{"generateName":"A_"}}`).refused(t, http.StatusUnprocessableEntity, "Invalid", `metadata.generateName: Invalid value: "A_"`)
	}},
}
