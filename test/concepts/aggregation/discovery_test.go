package aggregation

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/test/concepts/kit"
	"github.com/sqube/sqube/test/harness"
)

// Sections "API Discovery", "API groups and versioning" and "OpenAPI interface definition". Their server is not that of
// TestAggregation, which takes a built-in group out of discovery.
func TestDiscovery(t *testing.T) {
	kit.Prove(t, nil, slices.Concat(discovery, openAPI)...)
}

var discovery = []kit.Promise{
	{Statement: "/ lists all paths, including the groups and versions of all servers", Proof: func(t *testing.T, c *kit.Cluster) {
		paths := func() []string { return decode[metav1.RootPaths](t, c.Get(t, "/").OK(t)).Paths }
		r := kit.StartAggregatedServer(t, c, "127.0.0.1")
		r.Register(t, c)
		custom := strings.Split(c.DefineWidgets(t, "{type: object}"), "/")[0]
		want := []string{"/api", "/api/v1", "/apis", "/apis/", "/apis/apps", "/apis/apps/v1", "/apis/apiregistration.k8s.io/v1", "/apis/apiextensions.k8s.io/v1",
			"/apis/" + r.Group, "/apis/" + r.Group + "/v1", "/apis/" + custom, "/flagz", "/healthz", "/healthz/etcd", "/livez", "/livez/ping", "/metrics",
			"/metrics/slis", "/openapi/v2", "/openapi/v3", "/openapi/v3/", "/openid/v1/jwks", "/.well-known/openid-configuration", "/readyz",
			"/readyz/informer-sync", "/statusz", "/version"}
		harness.Eventually(t, "they are listed", func() bool {
			listed := paths()
			return !slices.ContainsFunc(want, func(path string) bool { return !slices.Contains(listed, path) })
		})
		if listed := paths(); !slices.IsSorted(listed) || len(slices.Compact(slices.Clone(listed))) != len(listed) {
			t.Errorf("the paths are %q", listed)
		}
	}},
	{Statement: "/statusz and /flagz show the server's state to monitors, without the database's address", Proof: func(t *testing.T, c *kit.Cluster) {
		monitor := c.As(t, "prometheus", "system:monitoring")
		for path, part := range map[string]string{"/statusz": `"binaryVersion":"` + harness.KubernetesVersion(t)[1:] + `"`, "/flagz": `"datastore":"CLASSIFIED"`} {
			kind := strings.ToUpper(path[1:2]) + path[2:]
			a := monitor.Send(t, http.MethodGet, path, kit.Header{"Accept", "application/json;v=v1beta1;g=config.k8s.io;as=" + kind}, nil).OK(t)
			if a.Text(t, "kind") != kind || !strings.Contains(string(a.Body), part) {
				t.Errorf("%s responds without %s:\n%s", path, part, a.Body)
			}
			if text := monitor.Get(t, path).OK(t); strings.Contains(string(text.Body), "sqlite://") || strings.Contains(string(text.Body), "postgres://") {
				t.Errorf("%s returns\n%s", path, text.Body)
			}
			c.As(t, "jane").Get(t, path).Forbidden(t)
			c.Anonymous(t).Get(t, path).Forbidden(t)
		}
		status := monitor.GetAs(t, "application/json;v=v1beta1;g=config.k8s.io;as=Statusz", "/statusz")
		paths, _ := status.Value(t, "paths").([]any)
		for _, path := range []any{"/statusz", "/flagz", "/healthz", "/metrics", "/version"} {
			if !slices.Contains(paths, path) {
				t.Errorf("/statusz does not list %s: %s", path, status.Body)
			}
		}
	}},
	{Statement: "/api has the version of the core group, and the address of the server", Proof: func(t *testing.T, c *kit.Cluster) {
		versions := c.Get(t, "/api").OK(t)
		kit.Equal(t, versions.Value(t, "versions"), []any{"v1"})
		addresses, _ := versions.Value(t, "serverAddressByClientCIDRs").([]any)
		if versions.Text(t, "kind") != "APIVersions" || len(addresses) != 1 {
			t.Errorf("the document is %s", versions.Body)
		}
	}},
	{Statement: "/apis lists the groups, each with its versions and the preferred one, as does /apis/GROUP", Proof: func(t *testing.T, c *kit.Cluster) {
		list := decode[metav1.APIGroupList](t, c.Get(t, "/apis").OK(t))
		if list.Kind != "APIGroupList" || list.Groups[0].Name != "apiregistration.k8s.io" {
			t.Errorf("it is a %s that begins with %s", list.Kind, list.Groups[0].Name)
		}
		for _, group := range list.Groups {
			if group.PreferredVersion != group.Versions[0] {
				t.Errorf("%s prefers %s over its first version", group.Name, group.PreferredVersion.Version)
			}
			if strings.Contains(group.Name, "example.com") {
				continue // created and deleted by other tests
			}
			alone := decode[metav1.APIGroup](t, c.Get(t, "/apis/"+group.Name).OK(t))
			group.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
			kit.Equal(t, alone, group)
		}
	}},
	{Statement: "the document of a version has the names and the verbs of each resource", Proof: func(t *testing.T, c *kit.Cluster) {
		for path, want := range map[string]string{
			"/apis/apps/v1": `{name: deployments, singularName: deployment, namespaced: true, kind: Deployment, shortNames: [deploy], categories: [all],
				verbs: [create, delete, deletecollection, get, list, patch, update, watch], storageVersionHash: 8aSe+NMegvE=}`,
			"/api/v1": `{name: pods/eviction, singularName: "", namespaced: true, group: policy, version: v1, kind: Eviction, verbs: [create]}`,
		} {
			list := c.Get(t, path).OK(t)
			if list.Text(t, "kind") != "APIResourceList" || list.Text(t, "groupVersion") != strings.TrimPrefix(strings.TrimPrefix(path, "/apis/"), "/api/") {
				t.Errorf("%s begins with %.200s", path, list.Body)
			}
			wanted := kit.Manifest("%s", want)
			for _, resource := range list.Value(t, "resources").([]any) {
				if resource.(map[string]any)["name"] == wanted["name"] {
					kit.Equal(t, resource, any(wanted))
				}
			}
		}
	}},
	{Statement: "aggregated discovery, at /api and /apis, combines all other documents in two responses", Proof: func(t *testing.T, c *kit.Cluster) {
		list := decode[metav1.APIGroupList](t, c.Get(t, "/apis").OK(t))
		var groups []string
		for _, path := range []string{"/api", "/apis"} {
			for _, group := range aggregated(t, c, path).Items {
				if strings.Contains(group.Name, "example.com") {
					continue
				}
				for _, version := range group.Versions {
					groupVersion := "/api/" + version.Version
					if group.Name != "" {
						groupVersion = "/apis/" + group.Name + "/" + version.Version
					}
					sameResources(t, version, decode[metav1.APIResourceList](t, c.Get(t, groupVersion).OK(t)))
				}
				if group.Name != "" {
					groups = append(groups, group.Name)
				}
			}
		}
		var listed []string
		for _, group := range list.Groups {
			if !strings.Contains(group.Name, "example.com") {
				listed = append(listed, group.Name)
			}
		}
		kit.Equal(t, groups, listed)
	}},
	{Statement: "aggregated discovery is served as JSON, YAML and protobuf, according to Accept", Proof: func(t *testing.T, c *kit.Cluster) {
		const form = ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
		for accept, begins := range map[string]string{"application/json": "{", "application/yaml": "apiVersion: apidiscovery.k8s.io/v2", "application/vnd.kubernetes.protobuf": "k8s\x00"} {
			got := c.Send(t, http.MethodGet, "/apis", kit.Header{"Accept", accept + form}, nil).OK(t)
			if kind := got.Header.Get("Content-Type"); kind != accept+form || !strings.HasPrefix(string(got.Body), begins) {
				t.Errorf("%s is returned as %s: %.100q", accept, kind, got.Body)
			}
			kit.Equal(t, got.Header.Get("Vary"), "Accept")
		}
	}},
	{Statement: "the server sends a supported form from Accept, and supports aggregated discovery only for /api and /apis", Proof: func(t *testing.T, c *kit.Cluster) {
		for accept, want := range map[string]string{
			kit.AggregatedList + ",application/json": "APIGroupDiscoveryList",
			// v2beta1, which the documentation mentions, was removed in v1.35; clients that request it fall back as before
			// v1.26.
			"application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json": "APIGroupList",
			"*/*": "APIGroupList",
		} {
			if kind := c.Send(t, http.MethodGet, "/apis", kit.Header{"Accept", accept}, nil).OK(t).Text(t, "kind"); kind != want {
				t.Errorf("%s returns %s", accept, kind)
			}
		}
		for _, accept := range []string{"text/plain", "application/json;g=apidiscovery.k8s.io;v=v3;as=APIGroupDiscoveryList"} {
			c.Send(t, http.MethodGet, "/apis", kit.Header{"Accept", accept}, nil).Refused(t, http.StatusNotAcceptable, "NotAcceptable")
		}
		// The document of a version, unlike aggregated discovery, is served by a handler that supports no media type
		// parameters.
		c.Send(t, http.MethodGet, "/apis/apps/v1", kit.Header{"Accept", kit.AggregatedList}, nil).Refused(t, http.StatusNotAcceptable, "NotAcceptable")
	}},
	{Statement: "aggregated discovery has an ETag, and If-None-Match with it gets 304", Proof: func(t *testing.T, c *kit.Cluster) {
		for _, path := range []string{"/api", "/apis"} {
			harness.Eventually(t, path+" has not changed between two requests", func() bool { // other tests define resources
				first := c.Send(t, http.MethodGet, path, kit.Header{"Accept", kit.AggregatedList}, nil).OK(t)
				again := c.Send(t, http.MethodGet, path, kit.Header{"Accept", kit.AggregatedList, "If-None-Match", first.Header.Get("Etag")}, nil)
				return first.Header.Get("Etag") != "" && again.Code == http.StatusNotModified && len(again.Body) == 0
			})
			c.Send(t, http.MethodGet, path, kit.Header{"Accept", kit.AggregatedList, "If-None-Match", `"another"`}, nil).OK(t)
		}
	}},
	{Statement: "authenticated users may read discovery; anonymous users may read /version", Proof: func(t *testing.T, c *kit.Cluster) {
		nobody := kit.NewClient(t, rest.AnonymousClientConfig(c.Config))
		for _, path := range []string{"/api", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1", "/openapi/v2", "/openapi/v3", "/openapi/v3/api/v1", "/version"} {
			c.As(t, "jane").Get(t, path).OK(t)
			if path != "/version" {
				nobody.Get(t, path).Want(t, http.StatusForbidden, http.StatusUnauthorized)
			}
		}
		nobody.Get(t, "/version").OK(t)
	}},
	{Statement: "/version returns the Kubernetes version of the API", Proof: func(t *testing.T, c *kit.Cluster) {
		version := c.Get(t, "/version").OK(t)
		want := harness.KubernetesVersion(t)
		if version.Text(t, "gitVersion") != want || !strings.HasPrefix(want, "v"+version.Text(t, "major")+"."+version.Text(t, "minor")+".") {
			t.Errorf("it is %s", version.Body)
		}
		for _, field := range []string{"gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler", "platform"} {
			if version.Text(t, field) == "" {
				t.Errorf("%s is empty", field)
			}
		}
	}},
	{Statement: "slashes at the end of a document's path don't matter", Proof: func(t *testing.T, c *kit.Cluster) {
		group, _, _ := strings.Cut(c.DefineWidgets(t, "{type: object}"), "/")
		for _, path := range []string{
			"/api", "/apis", "/apis/apps", "/apis/apps/v1", "/apis/apiregistration.k8s.io", "/apis/" + group, "/apis/" + group + "/v1",
			"/version", "/openid/v1/jwks", "/.well-known/openid-configuration",
		} {
			for _, slashes := range []string{"/", "//"} {
				if slashes == "//" && (path == "/api" || path == "/apis") {
					continue
				}
				// Other tests define resources at the same time.
				harness.Eventually(t, path+slashes+" is the document at "+path, func() bool {
					want, got := c.Get(t, path).OK(t), c.Get(t, path+slashes).OK(t)
					return bytes.Equal(want.Body, got.Body)
				})
			}
			c.Get(t, path+"/nothing/at/all").Want(t, http.StatusNotFound)
		}
		for _, path := range []string{"/healthz/", "/metrics/", "/statusz/", "/flagz/", "/index.html/", "/openapi/v2/", "/openapi/v3/version/"} {
			c.Get(t, path).Want(t, http.StatusNotFound)
		}
	}},
	{Statement: "discovery of what is not served returns 404", Proof: func(t *testing.T, c *kit.Cluster) {
		for _, path := range []string{"/api/v2", "/apis/apps/v2", "/apis/nothing.example.com", "/apis/nothing.example.com/v1", "/apis/extensions/v1beta1"} {
			c.Get(t, path).Want(t, http.StatusNotFound)
		}
	}},
}

// TestRecordedDiscovery compares with the documents in the sources of Kubernetes, recorded from a kube-apiserver with
// everything enabled. With -against, everything must be enabled.
func TestRecordedDiscovery(t *testing.T) {
	kit.Prove(t, []string{"--runtime-config=api/all=true", "--feature-gates=AllAlpha=true,AllBeta=true"},
		kit.Promise{Statement: "every discovery document is the one that Kubernetes has recorded for its release", Proof: func(t *testing.T, c *kit.Cluster) {
			module, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes").Output()
			if err != nil {
				t.Fatalf("finding the sources of Kubernetes: %v", err)
			}
			documents, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(module)), "api", "discovery", "*.json"))
			if err != nil || len(documents) < 50 {
				t.Fatalf("the recorded documents are %v, %v", documents, err)
			}
			for _, document := range documents {
				text := kit.Must(os.ReadFile(document))(t)
				name := strings.TrimSuffix(filepath.Base(document), ".json")
				got := c.Get(t, "/"+strings.ReplaceAll(name, "__", "/"))
				if name == "aggregated_v2" {
					got = c.Send(t, http.MethodGet, "/apis", kit.Header{"Accept", kit.AggregatedList}, nil)
				}
				want := kit.Manifest("%s", text)
				served := got.OK(t).Object(t)
				withoutOwnGroup(served)
				for _, object := range []map[string]any{want, served} {
					delete(object, "serverAddressByClientCIDRs") // the server's address
					if name == "apis__apiextensions.k8s.io__v1" {
						// differs, since kube-apiserver stores definitions as v1beta1, which is shorter; sqube stores v1
						delete(object["resources"].([]any)[0].(map[string]any), "storageVersionHash")
					}
				}
				if diff := cmp.Diff(want, served); diff != "" {
					t.Errorf("%s (-recorded +served):\n%s", name, diff)
				}
			}
		}},
	)
}

// withoutOwnGroup takes the group that only sqube has out of a list of groups.
func withoutOwnGroup(list map[string]any) {
	for _, key := range []string{"groups", "items"} {
		if groups, ok := list[key].([]any); ok {
			list[key] = slices.DeleteFunc(groups, func(group any) bool {
				name, _, _ := unstructured.NestedString(group.(map[string]any), "metadata", "name")
				return name == "history.sqube.io" || group.(map[string]any)["name"] == "history.sqube.io"
			})
		}
	}
}

// aggregated reads aggregated discovery.
func aggregated(t testing.TB, c *kit.Cluster, path string) apidiscoveryv2.APIGroupDiscoveryList {
	t.Helper()
	return decode[apidiscoveryv2.APIGroupDiscoveryList](t, c.Send(t, http.MethodGet, path, kit.Header{"Accept", kit.AggregatedList}, nil).OK(t))
}

// decode decodes a JSON body, in which every field must be known.
func decode[T any](t testing.TB, a kit.Answer) T {
	t.Helper()
	var into T
	decoder := json.NewDecoder(strings.NewReader(string(a.Body)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&into); err != nil {
		t.Fatalf("%s: %v\n%s", a.Request, err, a.Body)
	}
	return into
}

// sameResources compares a version in aggregated discovery with its own document.
func sameResources(t testing.TB, version apidiscoveryv2.APIVersionDiscovery, document metav1.APIResourceList) {
	t.Helper()
	var got, want []string
	for _, r := range version.Resources {
		if len(r.Verbs) > 0 { // otherwise it only has subresources
			got = append(got, r.Resource+" "+r.ResponseKind.Kind+" "+strings.Join(r.Verbs, ",")+" "+strings.Join(r.ShortNames, ",")+" "+r.SingularResource)
		}
		for _, s := range r.Subresources {
			got = append(got, r.Resource+"/"+s.Subresource+" "+s.ResponseKind.Kind+" "+strings.Join(s.Verbs, ",")+"  ")
		}
	}
	for _, r := range document.APIResources {
		want = append(want, r.Name+" "+r.Kind+" "+strings.Join(r.Verbs, ",")+" "+strings.Join(r.ShortNames, ",")+" "+r.SingularName)
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-own document +aggregated):\n%s", document.GroupVersion, diff)
	}
}
