package concepts

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
)

var customVersions = []promise{
	{"without conversion an object is the same in every version, apart from what a version's schema does not know", func(t *testing.T, c *cluster) {
		w := c.define(t, version("v1", anySpec), version("v2", "spec: {type: object, properties: {a: {type: string}}}"))
		w.create(t, "a", "spec: {a: x, b: z}").want(t, http.StatusCreated).has(t, `"`+w.group+`/v1"`, "apiVersion")
		c.get(t, w.at("v2", "a")).want(t, http.StatusOK).has(t, `"`+w.group+`/v2"`, "apiVersion").has(t, `{"a":"x"}`, "spec")
		c.patch(t, mergePatch, w.at("v2", "a"), `{"metadata":{"labels":{"l":"v"}}}`).want(t, http.StatusOK).
			has(t, `"`+w.group+`/v2"`, "apiVersion")
		list := c.get(t, w.at("v2")+"?labelSelector=l%3Dv").want(t, http.StatusOK).has(t, `"`+w.group+`/v2"`, "apiVersion")
		equal(t, list.names(t), []string{"a"})
		if e := c.watch(t, w.at("v2")+"?watch=true&resourceVersion=0").next(t); e.Object["apiVersion"] != w.group+"/v2" {
			t.Errorf("the watch has %v", e)
		}
	}},
	{"a version that is not served is not found, though it is stored", func(t *testing.T, c *cluster) {
		w := c.define(t, version("v1", anySpec), version("v2", anySpec, "{served: false, storage: true}"))
		w.create(t, "a", "spec: {a: x}").want(t, http.StatusCreated)
		c.get(t, w.at("v2", "a")).want(t, http.StatusNotFound)
		c.get(t, "/apis/"+w.group+"/v2").want(t, http.StatusNotFound)
		c.get(t, w.at("v1", "a")).want(t, http.StatusOK).has(t, `{"a":"x"}`, "spec")
		w.redefine(t, func(spec map[string]any) { spec["versions"].([]any)[1].(map[string]any)["served"] = true }).want(t, http.StatusOK)
		eventually(t, "the version is served", func() bool { return c.get(t, w.at("v2", "a")).Code == http.StatusOK })
	}},
	{"a deprecated version warns, in its own words if it has any", func(t *testing.T, c *cluster) {
		w := c.define(t, version("v1", anySpec), version("v1beta1", anySpec, "deprecated: true"),
			version("v1alpha1", anySpec, "{deprecated: true, deprecationWarning: gone soon}"))
		w.create(t, "a", "{}").want(t, http.StatusCreated).warns(t)
		c.get(t, w.at("v1beta1", "a")).want(t, http.StatusOK).
			warns(t, w.group+"/v1beta1 Widget is deprecated; use "+w.group+"/v1 Widget")
		c.get(t, w.at("v1alpha1")).want(t, http.StatusOK).warns(t, "gone soon")
	}},
	{"versions are listed by how stable and how new they are", func(t *testing.T, c *cluster) {
		var versions []map[string]any
		for _, name := range []string{"v1alpha1", "foo1", "v2", "v1beta1", "v10", "v2beta1", "v1"} {
			versions = append(versions, version(name, anySpec))
		}
		w := c.define(t, versions...)
		var names []string
		eventually(t, "the group has all versions", func() bool {
			names = nil
			list, _ := c.get(t, "/apis/"+w.group).want(t, http.StatusOK, http.StatusNotFound).object(t)["versions"].([]any)
			for _, v := range list {
				names = append(names, v.(map[string]any)["version"].(string))
			}
			return len(names) == len(versions)
		})
		equal(t, names, []string{"v10", "v2", "v1", "v2beta1", "v1beta1", "v1alpha1", "foo1"})
	}},
	{"what has been stored in a version keeps it in storedVersions, and in the definition, until the status says that none is left", func(t *testing.T, c *cluster) {
		w := c.define(t, version("v1", anySpec), version("v2", anySpec))
		w.create(t, "old", "spec: {a: x}").want(t, http.StatusCreated)
		w.redefine(t, func(spec map[string]any) {
			spec["versions"] = []any{version("v1", anySpec, "storage: false"), version("v2", anySpec, "storage: true")}
		}).want(t, http.StatusOK).has(t, `["v1","v2"]`, "status", "storedVersions")
		w.create(t, "new", "spec: {a: z}").want(t, http.StatusCreated)
		for _, v := range []string{"v1", "v2"} {
			equal(t, c.get(t, w.at(v)).want(t, http.StatusOK).names(t), []string{"new", "old"})
		}
		drop := func(spec map[string]any) { spec["versions"] = []any{version("v2", anySpec, "storage: true")} }
		w.redefine(t, drop).invalid(t, "status.storedVersions[0]: Invalid value: \"v1\": missing from spec.versions; v1 was previously a storage version")
		c.patch(t, mergePatch, w.at("v2", "old"), `{"spec":{"a":"w"}}`).want(t, http.StatusOK)
		c.patch(t, mergePatch, definitions+"/"+w.name()+"/status", `{"status":{"storedVersions":["v2"]}}`).
			want(t, http.StatusOK)
		w.redefine(t, drop).want(t, http.StatusOK)
		eventually(t, "the version is gone", func() bool { return c.get(t, w.at("v1")).Code == http.StatusNotFound })
		c.get(t, w.at("v2", "old")).want(t, http.StatusOK).has(t, `{"a":"w"}`, "spec")
	}},
	{"informers miss nothing while the definition changes", func(t *testing.T, c *cluster) {
		w := c.define(t, version("v1", anySpec))
		client, err := dynamic.NewForConfig(c.config)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		resource := schema.GroupVersionResource{Group: w.group, Version: "v1", Resource: "widgets"}
		var stores []cache.Store
		for range 5 {
			informer := dynamicinformer.NewFilteredDynamicInformer(client, resource, c.namespace, 0, nil, nil).Informer()
			go informer.RunWithContext(ctx)
			stores = append(stores, informer.GetStore())
		}
		for i := range 3 {
			for j := range 5 {
				w.create(t, fmt.Sprintf("w%d-%d", i, j), "{}").want(t, http.StatusCreated)
			}
			w.redefine(t, func(spec map[string]any) {
				spec["versions"] = append(spec["versions"].([]any), version(fmt.Sprint("v", i+2), anySpec, "storage: false"))
			}).want(t, http.StatusOK)
		}
		eventually(t, "all informers have all objects", func() bool {
			return !slices.ContainsFunc(stores, func(s cache.Store) bool { return len(s.ListKeys()) != 15 })
		})
	}},
	{"a watch sees the objects of a definition that is deleted go, and ends", func(t *testing.T, c *cluster) {
		w := c.define(t, version("v1", anySpec))
		made := w.create(t, "a", "{}").want(t, http.StatusCreated)
		watch := c.watch(t, w.at("v1")+"?watch=true&resourceVersion="+made.version(t))
		c.delete(t, definitions+"/"+w.name()).want(t, http.StatusOK)
		if e := watch.next(t); e.Type != "DELETED" || e.name() != "a" {
			t.Errorf("the watch has %v", e)
		}
		watch.end(t)
	}},
	{"a watch ends when the definition has changed, so that its client comes to know the new one", func(t *testing.T, c *cluster) {
		w := c.define(t, version("v1", "spec: {type: object, properties: {a: {type: string}}}"))
		eventually(t, "the resource is served", func() bool { return c.get(t, w.at("v1")).Code == http.StatusOK })
		watch := c.watch(t, w.at("v1")+"?watch=true")
		w.redefine(t, func(spec map[string]any) {
			spec["versions"] = []any{version("v1", anySpec, "storage: true")}
		}).want(t, http.StatusOK)
		eventually(t, "the new schema holds", func() bool {
			return c.post(t, w.at("v1")+"?dryRun=All", w.widget("a", "spec: {b: x}")).field(t, "spec", "b") != ""
		})
		watch.end(t)
	}},
}

// addresses converts between v1, with host and port, and other versions, with an address.
func addresses(object map[string]any, to string) map[string]any {
	spec, _ := object["spec"].(map[string]any)
	if strings.HasSuffix(to, "/v1") {
		if address, ok := spec["address"].(string); ok {
			spec["host"], spec["port"], _ = strings.Cut(address, ":")
			delete(spec, "address")
		}
	} else if host, ok := spec["host"].(string); ok {
		spec["address"] = host + ":" + spec["port"].(string)
		delete(spec, "host")
		delete(spec, "port")
	}
	object["apiVersion"] = to
	return object
}

var (
	oldAddress = "spec: {type: object, properties: {host: {type: string}, port: {type: string}, other: {type: string}}}"
	newAddress = "spec: {type: object, properties: {address: {type: string}, other: {type: string}}}"
)
