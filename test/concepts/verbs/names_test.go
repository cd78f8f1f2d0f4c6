package verbs

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
)

var objectNames = []kit.Promise{
	{Statement: "a name is unique among the objects of a resource in a namespace", Proof: func(t *testing.T, c *kit.Cluster) {
		c.Post(t, c.Path("v1", "secrets"), kit.Secret("a")).Created(t)
		second := c.Post(t, c.Path("v1", "secrets"), kit.Secret("a")).Refused(t, http.StatusConflict, "AlreadyExists", `secrets "a" already exists`)
		kit.Equal(t, second.Value(t, "details"), any(map[string]any{"name": "a", "kind": "secrets"}))
		c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("a", nil)).Created(t)
		other := c.Namespace + "-other"
		c.Post(t, c.ClusterPath("v1", "namespaces"), kit.Namespace(other)).Created(t)
		c.Post(t, c.ClusterPath("v1", "namespaces", other, "secrets"), kit.Secret("a")).Created(t)
	}},
	{Statement: "a name of a cluster-scoped object is unique in the cluster", Proof: func(t *testing.T, c *kit.Cluster) {
		node := kit.Manifest("{metadata: {name: %s}}", c.Namespace)
		c.Post(t, c.ClusterPath("v1", "nodes"), node).Created(t)
		c.Post(t, c.ClusterPath("v1", "nodes"), node).Refused(t, http.StatusConflict, "AlreadyExists", `nodes "`+c.Namespace+`" already exists`)
		c.Post(t, c.ClusterPath("v1", "namespaces"), kit.Namespace(c.Namespace)).Refused(t, http.StatusConflict, "AlreadyExists")
	}},
	{Statement: "an object needs a name, or a prefix for a generated one", Proof: func(t *testing.T, c *kit.Cluster) {
		c.Post(t, c.Path("v1", "secrets"), `{"metadata":{}}`).Invalid(t, "name or generateName is required")
		version := c.DefineWidgets(t, kit.AnySchema)
		c.Post(t, c.Path(version, "widgets"), `{"apiVersion":"`+version+`","kind":"Widget"}`).Invalid(t, "name or generateName is required")
	}},
	{Statement: "invalid names are rejected, and the message says what is allowed", Proof: func(t *testing.T, c *kit.Cluster) {
		subdomain := "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.'"
		version := c.DefineWidgets(t, kit.AnySchema)
		for _, name := range []string{"A", "a_b", "-a", "a-", "a..b", "a b", "ü", "a/b", ".", "..", "a%b", strings.Repeat("a", 254)} {
			part := subdomain
			if len(name) > 253 {
				part = "must be no more than 253"
			}
			for path, object := range map[string]map[string]any{c.Path("v1", "secrets"): kit.Secret(name), c.Path(version, "widgets"): kit.With(kit.Widget(version, "x"), name, "metadata", "name")} {
				c.Post(t, path, object).Invalid(t, "metadata.name: Invalid value: ", part)
			}
		}
		c.Post(t, c.Path("v1", "secrets"), kit.Secret("a.b-c.0")).Created(t)
		c.Post(t, c.Path("v1", "secrets"), kit.Secret(strings.Repeat("a", 253))).Created(t)
		c.Post(t, c.ClusterPath("v1", "namespaces"), kit.Namespace("a.b")).Invalid(t, "must not contain dots")
	}},
	{Statement: "roles may have any name that is possible in a path", Proof: func(t *testing.T, c *kit.Cluster) {
		roles := c.Path("rbac.authorization.k8s.io/v1", "roles")
		for name, path := range map[string]string{"system:a": "system:a", "A b": "A%20b", "ü": "%C3%BC", "a%": "a%25"} {
			object := kit.With(kit.Manifest("{metadata: {}}"), name, "metadata", "name")
			if strings.Contains(name, "%") {
				c.Post(t, roles, object).Invalid(t, "may not contain '%'")
				continue
			}
			c.Post(t, roles, object).Created(t)
			kit.Equal(t, c.Get(t, roles+"/"+path).OK(t).Text(t, "metadata", "name"), name)
			c.Delete(t, roles+"/"+path).OK(t)
		}
		c.Post(t, roles, kit.Manifest("{metadata: {name: ..}}")).Invalid(t, "may not be '..'")
		c.Post(t, roles, kit.Manifest("{metadata: {name: a/b}}")).Invalid(t, "may not contain '/'")
	}},
	{Statement: "the namespace of an object is that of the path, and may be omitted", Proof: func(t *testing.T, c *kit.Cluster) {
		a := c.Post(t, c.Path("v1", "secrets"), kit.Secret("a")).Created(t)
		kit.Equal(t, a.Text(t, "metadata", "namespace"), c.Namespace)
		c.Post(t, c.Path("v1", "secrets"), kit.With(kit.Secret("b"), "default", "metadata", "namespace")).
			BadRequest(t, "the namespace of the provided object does not match the namespace sent on the request")
		c.Post(t, c.ClusterPath("v1", "namespaces", c.Namespace+"-none", "secrets"), kit.Secret("a")).NotFound(t, `namespaces "`+c.Namespace+`-none" not found`)
	}},
	{Statement: "generateName is a prefix to which the server appends five random characters", Proof: func(t *testing.T, c *kit.Cluster) {
		form := regexp.MustCompile(`^web-[bcdfghjklmnpqrstvwxz2456789]{5}$`)
		seen := map[string]bool{}
		for range 50 {
			a := c.Post(t, c.Path("v1", "secrets"), `{"metadata":{"generateName":"web-"}}`).Created(t)
			name := a.Text(t, "metadata", "name")
			if !form.MatchString(name) || seen[name] || a.Text(t, "metadata", "generateName") != "web-" {
				t.Errorf("the name is %q", name)
			}
			seen[name] = true
			c.Get(t, c.Path("v1", "secrets", name)).OK(t)
		}
	}},
	{Statement: "a generated name has at most 63 characters, and a given name takes precedence", Proof: func(t *testing.T, c *kit.Cluster) {
		a := c.Post(t, c.Path("v1", "secrets"), `{"metadata":{"generateName":"`+strings.Repeat("a", 100)+`"}}`).Created(t)
		if name := a.Text(t, "metadata", "name"); len(name) != 63 || !strings.HasPrefix(name, strings.Repeat("a", 58)) {
			t.Errorf("the name is %q", name)
		}
		given := c.Post(t, c.Path("v1", "secrets"), `{"metadata":{"generateName":"x-","name":"given"}}`).Created(t)
		kit.Equal(t, given.Text(t, "metadata", "name"), "given")
		c.Post(t, c.Path("v1", "secrets"), `{"metadata":{"generateName":"A_"}}`).Invalid(t, `metadata.generateName: Invalid value: "A_"`)
		c.Post(t, c.Path("v1", "secrets"), `{"metadata":{"generateName":"`+strings.Repeat("x", 253)+`"}}`).Created(t)
		c.Post(t, c.Path("v1", "secrets"), `{"metadata":{"generateName":"`+strings.Repeat("x", 254)+`"}}`).Invalid(t, "metadata.generateName")
	}},
}
