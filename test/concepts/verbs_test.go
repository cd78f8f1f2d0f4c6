package concepts

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// Sections "Kubernetes API terminology", "Object names", "API verbs" and "Resource URIs".
func TestVerbs(t *testing.T) {
	prove(t, nil, slices.Concat(verbs, objectNames, refusedPaths, subresources, podConnections, virtualResources)...)
}

// examples are objects named a of each sort of resource, by the path of their collection: core and of a group, namespaced and
// not, built in and custom. What is not namespaced is named after the promise.
func (c *cluster) examples(t *testing.T) map[string]map[string]any {
	t.Helper()
	version := c.widgets(t, anySchema)
	return map[string]map[string]any{
		c.path("v1", "configmaps"):                          configMap("a", nil),
		c.path("apps/v1", "deployments"):                    deployment("a"),
		c.path(version, "widgets"):                          widget(version, "a"),
		c.global("v1", "nodes"):                             manifest("{metadata: {name: %s}}", c.namespace),
		c.global("storage.k8s.io/v1", "storageclasses"):     manifest("{metadata: {name: %s}, provisioner: example.com/p}", c.namespace),
		c.path("rbac.authorization.k8s.io/v1", "roles"):     manifest("{metadata: {name: a}}"),
		c.path("coordination.k8s.io/v1", "leases"):          manifest("{metadata: {name: a}}"),
		c.path("discovery.k8s.io/v1", "endpointslices"):     manifest("{metadata: {name: a}, addressType: IPv4, endpoints: []}"),
		c.global("scheduling.k8s.io/v1", "priorityclasses"): manifest("{metadata: {name: %s}, value: 7}", c.namespace),
	}
}

func nameOf(object map[string]any) string { return event{Object: object}.name() }

var verbs = []promise{
	{"almost every resource has the verbs create, get, list, watch, update, patch, delete and deletecollection, at these paths", func(t *testing.T, c *cluster) {
		for collection, object := range c.examples(t) {
			item := collection + "/" + nameOf(object)
			created := c.post(t, collection, object).want(t, http.StatusCreated)
			got := c.get(t, item).want(t, http.StatusOK)
			equal(t, got.text(t, "metadata", "uid"), created.text(t, "metadata", "uid"))
			if !slices.Contains(c.get(t, collection).want(t, http.StatusOK).names(t), nameOf(object)) {
				t.Errorf("%s is not in the list", item)
			}
			watch := c.watch(t, collection+"?watch=1&resourceVersion=0&fieldSelector=metadata.name%3D"+nameOf(object))
			equal(t, watch.next(t).name(), nameOf(object))
			c.put(t, item, with(got.object(t), "yes", "metadata", "annotations", "put")).want(t, http.StatusOK)
			equal(t, watch.next(t).Type, "MODIFIED")
			patched := c.patch(t, mergePatch, item, `{"metadata":{"annotations":{"patched":"yes"}}}`).want(t, http.StatusOK)
			annotations := patched.value(t, "metadata", "annotations").(map[string]any)
			equal(t, []any{annotations["put"], annotations["patched"]}, []any{"yes", "yes"})
			c.delete(t, item).want(t, http.StatusOK)
			c.gone(t, item)
			c.delete(t, collection+"?fieldSelector=metadata.name%3Dnone").want(t, http.StatusOK)
		}
	}},
	{"a namespaced resource has a collection of all namespaces, which can be listed and watched and nothing else", func(t *testing.T, c *cluster) {
		for collection, object := range c.examples(t) {
			everywhere := strings.Replace(collection, "/namespaces/"+c.namespace, "", 1)
			if everywhere == collection {
				continue
			}
			list := c.get(t, everywhere).want(t, http.StatusOK)
			if !strings.HasSuffix(list.text(t, "kind"), "List") {
				t.Errorf("%s is a %s", everywhere, list.text(t, "kind"))
			}
			c.get(t, everywhere+"?watch=true&timeoutSeconds=1&resourceVersion="+list.version(t)).want(t, http.StatusOK)
			refusal := http.StatusMethodNotAllowed
			if strings.HasSuffix(collection, "/widgets") {
				refusal = http.StatusNotFound
			}
			c.post(t, everywhere, object).want(t, refusal)
			c.delete(t, everywhere).want(t, refusal)
			c.get(t, everywhere+"/a").want(t, http.StatusNotFound)
		}
	}},
	{"what is not namespaced has no path in a namespace", func(t *testing.T, c *cluster) {
		for _, path := range []string{c.path("v1", "nodes"), c.path("v1", "nodes", "a"), c.path("storage.k8s.io/v1", "storageclasses"), c.path("v1", "namespaces"), c.path("v1", "namespaces", "a")} {
			c.get(t, path).refused(t, http.StatusNotFound, "NotFound", "the server could not find the requested resource")
		}
	}},
	{"a namespace is an object and part of the paths of others", func(t *testing.T, c *cluster) {
		a := c.get(t, c.global("v1", "namespaces", c.namespace)).want(t, http.StatusOK)
		equal(t, []string{a.text(t, "kind"), a.text(t, "metadata", "name"), a.text(t, "status", "phase")}, []string{"Namespace", c.namespace, "Active"})
		equal(t, c.get(t, c.global("v1", "namespaces")).want(t, http.StatusOK).text(t, "kind"), "NamespaceList")
	}},
	{"GET with watch is a watch, whatever its value is but false", func(t *testing.T, c *cluster) {
		c.post(t, c.path("v1", "secrets"), secret("a")).want(t, http.StatusCreated)
		for value, kind := range map[string]string{"1": "ADDED", "true": "ADDED", "yes": "ADDED", "": "ADDED", "0": "SecretList", "false": "SecretList"} {
			a := c.get(t, c.path("v1", "secrets")+"?timeoutSeconds=3&resourceVersion=0&watch="+value).want(t, http.StatusOK)
			if !strings.Contains(string(a.Body), kind) {
				t.Errorf("watch=%s: %s", value, a.Body)
			}
		}
	}},
	{"PUT creates what does not exist, where the resource allows it", func(t *testing.T, c *cluster) {
		for collection, object := range c.examples(t) {
			item := collection + "/" + nameOf(object)
			creates := slices.ContainsFunc([]string{"roles", "leases"}, func(resource string) bool { return strings.HasSuffix(collection, "/"+resource) })
			a := c.put(t, item, object)
			if !creates {
				a.refused(t, http.StatusNotFound, "NotFound", fmt.Sprintf("%q not found", nameOf(object)))
				c.get(t, item).want(t, http.StatusNotFound)
				continue
			}
			again := c.put(t, item, with(a.want(t, http.StatusCreated).object(t), "v", "metadata", "annotations", "k")).want(t, http.StatusOK)
			equal(t, again.text(t, "metadata", "uid"), a.text(t, "metadata", "uid"))
			c.put(t, item+"-other", object).refused(t, http.StatusBadRequest, "BadRequest", "the name of the object (a) does not match the name on the URL (a-other)")
		}
	}},
	{"slashes at the end of a path do not matter", func(t *testing.T, c *cluster) {
		c.post(t, c.path("v1", "secrets")+"/", secret("a")).want(t, http.StatusCreated)
		equal(t, c.get(t, c.path("v1", "secrets")+"/").want(t, http.StatusOK).names(t), []string{"a"})
		equal(t, c.get(t, c.path("v1", "secrets", "a")+"/").want(t, http.StatusOK).text(t, "metadata", "name"), "a")
		for _, path := range []string{"/api/", "/apis/", "/api/v1/", "/apis/apps/", "/apis/apps/v1/", c.global("v1", "namespaces", c.namespace) + "/"} {
			c.get(t, path).want(t, http.StatusOK)
		}
	}},
	{"pretty indents JSON, and says no more than the answer without it", func(t *testing.T, c *cluster) {
		c.post(t, c.path("v1", "secrets"), secret("a")).want(t, http.StatusCreated)
		for _, path := range []string{c.path("v1", "secrets", "a"), c.path("v1", "secrets", "none"), "/api/v1"} {
			plain := c.get(t, path)
			for value, indented := range map[string]bool{"true": true, "1": true, "false": false, "0": false, "": false} {
				a := c.get(t, path+"?pretty="+value)
				equal(t, a.object(t), plain.object(t))
				if strings.Contains(string(a.Body), "\n  \"") != indented {
					t.Errorf("%s: %.40q", a.request, a.Body)
				}
			}
		}
		// Browsers and curl are taken for people.
		if a := c.send(t, http.MethodGet, c.path("v1", "secrets", "a"), header{"User-Agent", "curl/8"}, nil); !strings.Contains(string(a.Body), "\n  \"") {
			t.Errorf("curl gets %.40q", a.Body)
		}
	}},
	{"the old paths under watch still are watches", func(t *testing.T, c *cluster) {
		c.post(t, c.path("v1", "secrets"), secret("a")).want(t, http.StatusCreated)
		version := c.widgets(t, anySchema)
		for _, path := range []string{
			"/api/v1/watch/namespaces/" + c.namespace + "/secrets?", "/api/v1/watch/namespaces/" + c.namespace + "/secrets/a?", "/api/v1/watch/secrets?fieldSelector=metadata.namespace%3D" + c.namespace,
		} {
			a := c.watchAs(t, 1, nil, path+"&resourceVersion=0")
			equal(t, []any{a.text(t, "type"), a.value(t, "object", "metadata", "name")}, []any{"ADDED", "a"})
		}
		c.get(t, "/api/v1/watch/namespaces?resourceVersion=0&timeoutSeconds=1").want(t, http.StatusOK)
		c.get(t, "/api/v1/watch/nodes/none?timeoutSeconds=1").want(t, http.StatusOK)
		c.get(t, "/apis/"+version+"/watch/widgets?timeoutSeconds=1").want(t, http.StatusOK)
		c.post(t, "/api/v1/watch/namespaces/"+c.namespace+"/secrets", secret("b")).want(t, http.StatusMethodNotAllowed)
	}},
}

// With --cors-allowed-origins, pages of other origins may use the API.
func TestCORS(t *testing.T) {
	prove(t, []string{`--cors-allowed-origins=^https://app\.example\.com$`},
		promise{"a page of an allowed origin may send requests, and is told which", func(t *testing.T, c *cluster) {
			path := c.path("v1", "secrets")
			preflight := c.send(t, http.MethodOptions, path, header{"Origin", "https://app.example.com", "Access-Control-Request-Method", "POST"}, nil).want(t, http.StatusNoContent)
			equal(t, preflight.Header.Get("Access-Control-Allow-Methods"), "POST, GET, OPTIONS, PUT, DELETE, PATCH")
			equal(t, preflight.Header.Get("Access-Control-Allow-Headers"), "Content-Type, Content-Length, Accept-Encoding, X-CSRF-Token, Authorization, X-Requested-With, If-Modified-Since")
			get := c.send(t, http.MethodGet, path, header{"Origin", "https://app.example.com"}, nil).want(t, http.StatusOK)
			for _, a := range []answer{preflight, get} {
				equal(t, a.Header.Get("Access-Control-Allow-Origin"), "https://app.example.com")
				equal(t, a.Header.Get("Access-Control-Allow-Credentials"), "true")
				equal(t, a.Header.Get("Access-Control-Expose-Headers"), "Date")
			}
		}},
		promise{"other origins, and requests without one, get no such headers", func(t *testing.T, c *cluster) {
			for _, origin := range []string{"https://app.example.com.evil.example", "http://app.example.com", "null", ""} {
				a := c.send(t, http.MethodGet, c.path("v1", "secrets"), header{"Origin", origin}, nil).want(t, http.StatusOK)
				equal(t, a.Header.Get("Access-Control-Allow-Origin"), "")
				c.send(t, http.MethodOptions, c.path("v1", "secrets"), header{"Origin", origin}, nil).want(t, http.StatusMethodNotAllowed)
			}
		}},
	)
}
