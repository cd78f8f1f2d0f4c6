// Package verbs tests sqube against the documentation of verbs, paths, names, subresources and virtual resources.
package verbs

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
)

func TestMain(m *testing.M) { kit.Main(m) }

// Sections "Kubernetes API terminology", "Object names", "API verbs" and "Resource URIs".
func TestVerbs(t *testing.T) {
	kit.Prove(t, nil, slices.Concat(verbs, objectNames, refusedPaths, subresources, podConnections, virtualResources)...)
}

// examples returns objects named a of each kind of resource, by the path of their collection: core and in a group, namespaced
// and cluster-scoped, built-in and custom. Cluster-scoped ones are named after the promise.
func examples(t *testing.T, c *kit.Cluster) map[string]map[string]any {
	t.Helper()
	version := c.DefineWidgets(t, kit.AnySchema)
	return map[string]map[string]any{
		c.Path("v1", "configmaps"):                               kit.ConfigMap("a", nil),
		c.Path("apps/v1", "deployments"):                         kit.Deployment("a"),
		c.Path(version, "widgets"):                               kit.Widget(version, "a"),
		c.ClusterPath("v1", "nodes"):                             kit.Manifest("{metadata: {name: %s}}", c.Namespace),
		c.ClusterPath("storage.k8s.io/v1", "storageclasses"):     kit.Manifest("{metadata: {name: %s}, provisioner: example.com/p}", c.Namespace),
		c.Path("rbac.authorization.k8s.io/v1", "roles"):          kit.Manifest("{metadata: {name: a}}"),
		c.Path("coordination.k8s.io/v1", "leases"):               kit.Manifest("{metadata: {name: a}}"),
		c.Path("discovery.k8s.io/v1", "endpointslices"):          kit.Manifest("{metadata: {name: a}, addressType: IPv4, endpoints: []}"),
		c.ClusterPath("scheduling.k8s.io/v1", "priorityclasses"): kit.Manifest("{metadata: {name: %s}, value: 7}", c.Namespace),
	}
}

func nameOf(object map[string]any) string { return kit.Event{Object: object}.Name() }

var verbs = []kit.Promise{
	{Statement: "almost every resource has the verbs create, get, list, watch, update, patch, delete and deletecollection, at these paths", Proof: func(t *testing.T, c *kit.Cluster) {
		for collection, object := range examples(t, c) {
			item := collection + "/" + nameOf(object)
			created := c.Post(t, collection, object).Created(t)
			got := c.Get(t, item).OK(t)
			kit.Equal(t, got.Text(t, "metadata", "uid"), created.Text(t, "metadata", "uid"))
			if !slices.Contains(c.Get(t, collection).OK(t).Names(t), nameOf(object)) {
				t.Errorf("%s is not in the list", item)
			}
			watch := c.Watch(t, collection+"?watch=1&resourceVersion=0&fieldSelector=metadata.name%3D"+nameOf(object))
			kit.Equal(t, watch.Next(t).Name(), nameOf(object))
			c.Put(t, item, kit.With(got.Object(t), "yes", "metadata", "annotations", "put")).OK(t)
			kit.Equal(t, watch.Next(t).Type, "MODIFIED")
			patched := c.Patch(t, kit.MergePatch, item, `{"metadata":{"annotations":{"patched":"yes"}}}`).OK(t)
			annotations := patched.Value(t, "metadata", "annotations").(map[string]any)
			kit.Equal(t, []any{annotations["put"], annotations["patched"]}, []any{"yes", "yes"})
			c.Delete(t, item).OK(t)
			c.WaitGone(t, item)
			c.Delete(t, collection+"?fieldSelector=metadata.name%3Dnone").OK(t)
		}
	}},
	{Statement: "a namespaced resource has a collection of all namespaces, which can only be listed and watched", Proof: func(t *testing.T, c *kit.Cluster) {
		for collection, object := range examples(t, c) {
			everywhere := strings.Replace(collection, "/namespaces/"+c.Namespace, "", 1)
			if everywhere == collection {
				continue
			}
			list := c.Get(t, everywhere).OK(t)
			if !strings.HasSuffix(list.Text(t, "kind"), "List") {
				t.Errorf("%s is a %s", everywhere, list.Text(t, "kind"))
			}
			c.Get(t, everywhere+"?watch=true&timeoutSeconds=1&resourceVersion="+list.ResourceVersion(t)).OK(t)
			refusal := http.StatusMethodNotAllowed
			if strings.HasSuffix(collection, "/widgets") {
				refusal = http.StatusNotFound
			}
			c.Post(t, everywhere, object).Want(t, refusal)
			c.Delete(t, everywhere).Want(t, refusal)
			c.Get(t, everywhere+"/a").Want(t, http.StatusNotFound)
		}
	}},
	{Statement: "cluster-scoped resources have no path in a namespace", Proof: func(t *testing.T, c *kit.Cluster) {
		for _, path := range []string{c.Path("v1", "nodes"), c.Path("v1", "nodes", "a"), c.Path("storage.k8s.io/v1", "storageclasses"), c.Path("v1", "namespaces"), c.Path("v1", "namespaces", "a")} {
			c.Get(t, path).NotFound(t, "the server could not find the requested resource")
		}
	}},
	{Statement: "a namespace is an object and part of the paths of others", Proof: func(t *testing.T, c *kit.Cluster) {
		a := c.Get(t, c.ClusterPath("v1", "namespaces", c.Namespace)).OK(t)
		kit.Equal(t, []string{a.Text(t, "kind"), a.Text(t, "metadata", "name"), a.Text(t, "status", "phase")}, []string{"Namespace", c.Namespace, "Active"})
		kit.Equal(t, c.Get(t, c.ClusterPath("v1", "namespaces")).OK(t).Text(t, "kind"), "NamespaceList")
	}},
	{Statement: "GET with watch is a watch, with any value except false", Proof: func(t *testing.T, c *kit.Cluster) {
		c.Post(t, c.Path("v1", "secrets"), kit.Secret("a")).Created(t)
		path := c.Path("v1", "secrets") + "?resourceVersion=0&watch="
		for _, value := range []string{"1", "true", "yes", ""} {
			kit.Equal(t, c.WatchAs(t, 1, nil, path+value).Text(t, "type"), "ADDED")
		}
		for _, value := range []string{"0", "false"} {
			kit.Equal(t, c.Get(t, path+value).OK(t).Text(t, "kind"), "SecretList")
		}
	}},
	{Statement: "PUT creates a missing object if the resource allows it", Proof: func(t *testing.T, c *kit.Cluster) {
		for collection, object := range examples(t, c) {
			item := collection + "/" + nameOf(object)
			creates := slices.ContainsFunc([]string{"roles", "leases"}, func(resource string) bool { return strings.HasSuffix(collection, "/"+resource) })
			a := c.Put(t, item, object)
			if !creates {
				a.NotFound(t, fmt.Sprintf("%q not found", nameOf(object)))
				c.Get(t, item).Want(t, http.StatusNotFound)
				continue
			}
			again := c.Put(t, item, kit.With(a.Created(t).Object(t), "v", "metadata", "annotations", "k")).OK(t)
			kit.Equal(t, again.Text(t, "metadata", "uid"), a.Text(t, "metadata", "uid"))
			c.Put(t, item+"-other", object).BadRequest(t, "the name of the object (a) does not match the name on the URL (a-other)")
		}
	}},
	{Statement: "slashes at the end of a path do not matter", Proof: func(t *testing.T, c *kit.Cluster) {
		c.Post(t, c.Path("v1", "secrets")+"/", kit.Secret("a")).Created(t)
		kit.Equal(t, c.Get(t, c.Path("v1", "secrets")+"/").OK(t).Names(t), []string{"a"})
		kit.Equal(t, c.Get(t, c.Path("v1", "secrets", "a")+"/").OK(t).Text(t, "metadata", "name"), "a")
		for _, path := range []string{"/api/", "/apis/", "/api/v1/", "/apis/apps/", "/apis/apps/v1/", c.ClusterPath("v1", "namespaces", c.Namespace) + "/"} {
			c.Get(t, path).OK(t)
		}
	}},
}

// With --cors-allowed-origins, pages of other origins may use the API.
func TestCORS(t *testing.T) {
	kit.Prove(t, []string{`--cors-allowed-origins=^https://app\.example\.com$`},
		kit.Promise{Statement: "a page of an allowed origin may send requests, and receives which ones", Proof: func(t *testing.T, c *kit.Cluster) {
			path := c.Path("v1", "secrets")
			preflight := c.Send(t, http.MethodOptions, path, kit.Header{"Origin", "https://app.example.com", "Access-Control-Request-Method", "POST"}, nil).Want(t, http.StatusNoContent)
			kit.Equal(t, preflight.Header.Get("Access-Control-Allow-Methods"), "POST, GET, OPTIONS, PUT, DELETE, PATCH")
			kit.Equal(t, preflight.Header.Get("Access-Control-Allow-Headers"), "Content-Type, Content-Length, Accept-Encoding, X-CSRF-Token, Authorization, X-Requested-With, If-Modified-Since")
			get := c.Send(t, http.MethodGet, path, kit.Header{"Origin", "https://app.example.com"}, nil).OK(t)
			for _, a := range []kit.Answer{preflight, get} {
				kit.Equal(t, a.Header.Get("Access-Control-Allow-Origin"), "https://app.example.com")
				kit.Equal(t, a.Header.Get("Access-Control-Allow-Credentials"), "true")
				kit.Equal(t, a.Header.Get("Access-Control-Expose-Headers"), "Date")
			}
		}},
		kit.Promise{Statement: "other origins, and requests without one, get no such headers", Proof: func(t *testing.T, c *kit.Cluster) {
			for _, origin := range []string{"https://app.example.com.evil.example", "http://app.example.com", "null", ""} {
				a := c.Send(t, http.MethodGet, c.Path("v1", "secrets"), kit.Header{"Origin", origin}, nil).OK(t)
				kit.Equal(t, a.Header.Get("Access-Control-Allow-Origin"), "")
				c.Send(t, http.MethodOptions, c.Path("v1", "secrets"), kit.Header{"Origin", origin}, nil).Want(t, http.StatusMethodNotAllowed)
			}
		}},
	)
}
