package customresources

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

	"github.com/sqube/sqube/test/concepts/kit"
	"github.com/sqube/sqube/test/harness"
)

var customVersions = []kit.Promise{
	{Statement: "without conversion, an object is the same in every version, except for fields unknown to a version's schema", Proof: func(t *testing.T, c *kit.Cluster) {
		w := c.DefineVersions(t, kit.CRDVersion("v1", kit.AnySpec), kit.CRDVersion("v2", "spec: {type: object, properties: {a: {type: string}}}"))
		w.Create(t, "a", "spec: {a: x, b: z}").Created(t).HasField(t, `"`+w.Group+`/v1"`, "apiVersion")
		c.Get(t, w.At("v2", "a")).OK(t).HasField(t, `"`+w.Group+`/v2"`, "apiVersion").HasField(t, `{"a":"x"}`, "spec")
		c.Patch(t, kit.MergePatch, w.At("v2", "a"), `{"metadata":{"labels":{"l":"v"}}}`).OK(t).
			HasField(t, `"`+w.Group+`/v2"`, "apiVersion")
		list := c.Get(t, w.At("v2")+"?labelSelector=l%3Dv").OK(t).HasField(t, `"`+w.Group+`/v2"`, "apiVersion")
		kit.Equal(t, list.Names(t), []string{"a"})
		if e := c.Watch(t, w.At("v2")+"?watch=true&resourceVersion=0").Next(t); e.Object["apiVersion"] != w.Group+"/v2" {
			t.Errorf("the watch has %v", e)
		}
	}},
	{Statement: "a version that is not served is not found, although it is stored", Proof: func(t *testing.T, c *kit.Cluster) {
		w := c.DefineVersions(t, kit.CRDVersion("v1", kit.AnySpec), kit.CRDVersion("v2", kit.AnySpec, "{served: false, storage: true}"))
		w.Create(t, "a", "spec: {a: x}").Created(t)
		c.Get(t, w.At("v2", "a")).Want(t, http.StatusNotFound)
		c.Get(t, "/apis/"+w.Group+"/v2").Want(t, http.StatusNotFound)
		c.Get(t, w.At("v1", "a")).OK(t).HasField(t, `{"a":"x"}`, "spec")
		w.Redefine(t, func(spec map[string]any) { spec["versions"].([]any)[1].(map[string]any)["served"] = true }).OK(t)
		harness.Eventually(t, "the version is served", func() bool { return c.Get(t, w.At("v2", "a")).Code == http.StatusOK })
	}},
	{Statement: "a deprecated version warns, with a custom message if it has one", Proof: func(t *testing.T, c *kit.Cluster) {
		w := c.DefineVersions(t, kit.CRDVersion("v1", kit.AnySpec), kit.CRDVersion("v1beta1", kit.AnySpec, "deprecated: true"),
			kit.CRDVersion("v1alpha1", kit.AnySpec, "{deprecated: true, deprecationWarning: gone soon}"))
		w.Create(t, "a", "{}").Created(t).Warns(t)
		c.Get(t, w.At("v1beta1", "a")).OK(t).
			Warns(t, w.Group+"/v1beta1 Widget is deprecated; use "+w.Group+"/v1 Widget")
		c.Get(t, w.At("v1alpha1")).OK(t).Warns(t, "gone soon")
	}},
	{Statement: "versions are ordered by stability and age", Proof: func(t *testing.T, c *kit.Cluster) {
		var versions []map[string]any
		for _, name := range []string{"v1alpha1", "foo1", "v2", "v1beta1", "v10", "v2beta1", "v1"} {
			versions = append(versions, kit.CRDVersion(name, kit.AnySpec))
		}
		w := c.DefineVersions(t, versions...)
		var names []string
		harness.Eventually(t, "the group has all versions", func() bool {
			names = nil
			list, _ := c.Get(t, "/apis/"+w.Group).Want(t, http.StatusOK, http.StatusNotFound).Object(t)["versions"].([]any)
			for _, v := range list {
				names = append(names, v.(map[string]any)["version"].(string))
			}
			return len(names) == len(versions)
		})
		kit.Equal(t, names, []string{"v10", "v2", "v1", "v2beta1", "v1beta1", "v1alpha1", "foo1"})
	}},
	{Statement: "a version with stored objects stays in storedVersions and in the definition until it is removed from the status", Proof: func(t *testing.T, c *kit.Cluster) {
		w := c.DefineVersions(t, kit.CRDVersion("v1", kit.AnySpec), kit.CRDVersion("v2", kit.AnySpec))
		w.Create(t, "old", "spec: {a: x}").Created(t)
		stored := func() any {
			resources := c.Get(t, "/apis/"+w.Group+"/v2").OK(t).Object(t)["resources"].([]any)
			return resources[0].(map[string]any)["storageVersionHash"]
		}
		before := stored()
		w.Redefine(t, func(spec map[string]any) {
			spec["versions"] = []any{kit.CRDVersion("v1", kit.AnySpec, "storage: false"), kit.CRDVersion("v2", kit.AnySpec, "storage: true")}
		}).OK(t).HasField(t, `["v1","v2"]`, "status", "storedVersions")
		harness.Eventually(t, "the server has seen the new storage version", func() bool { return stored() != before })
		w.Create(t, "new", "spec: {a: z}").Created(t)
		for _, v := range []string{"v1", "v2"} {
			kit.Equal(t, c.Get(t, w.At(v)).OK(t).Names(t), []string{"new", "old"})
		}
		earlier := "?resourceVersionMatch=Exact&resourceVersion=" + c.Get(t, w.At("v2")).ResourceVersion(t)
		drop := func(spec map[string]any) {
			spec["versions"] = []any{kit.CRDVersion("v2", kit.AnySpec, "storage: true")}
		}
		w.Redefine(t, drop).Invalid(t, "status.storedVersions[0]: Invalid value: \"v1\": missing from spec.versions; v1 was previously a storage version")
		c.Patch(t, kit.MergePatch, w.At("v2", "old"), `{"spec":{"a":"w"}}`).OK(t)
		c.Patch(t, kit.MergePatch, kit.Definitions+"/"+w.Name()+"/status", `{"status":{"storedVersions":["v2"]}}`).OK(t)
		w.Redefine(t, drop).OK(t)
		harness.Eventually(t, "the version is removed", func() bool { return c.Get(t, w.At("v1")).Code == http.StatusNotFound })
		for _, name := range []string{"new", "old"} { // discovery may have known the storage version before the handlers did, which stored them
			c.Patch(t, kit.MergePatch, w.At("v2", name), `{"metadata":{"labels":{"stored":"v2"}}}`).OK(t)
		}
		c.Get(t, w.At("v2", "old")).OK(t).HasField(t, `{"a":"w"}`, "spec")
		c.Get(t, w.At("v2", "old")+earlier).OK(t).HasField(t, `{"a":"x"}`, "spec").HasField(t, `"`+w.Group+`/v2"`, "apiVersion")
		kit.Equal(t, c.Get(t, w.At("v2")+earlier).OK(t).Names(t), []string{"new", "old"})
		w.Redefine(t, func(spec map[string]any) {
			spec["conversion"] = kit.Manifest("{strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {url: 'https://127.0.0.1:1'}}}")
		}).OK(t)
		missing := "it is stored as " + w.Group + "/v1, which its CustomResourceDefinition no longer has"
		for _, path := range []string{w.At("v2", "old"), w.At("v2")} {
			harness.Eventually(t, "the answer names the version", func() bool {
				answer := c.Get(t, path+earlier)
				return answer.Code == http.StatusInternalServerError && strings.Contains(string(answer.Body), missing)
			})
		}
		c.Get(t, w.At("v2")).OK(t)
	}},
	{Statement: "informers miss nothing while the definition changes", Proof: func(t *testing.T, c *kit.Cluster) {
		w := c.DefineVersions(t, kit.CRDVersion("v1", kit.AnySpec))
		client := kit.Must(dynamic.NewForConfig(c.Config))(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		resource := schema.GroupVersionResource{Group: w.Group, Version: "v1", Resource: "widgets"}
		var stores []cache.Store
		for range 5 {
			informer := dynamicinformer.NewFilteredDynamicInformer(client, resource, c.Namespace, 0, nil, nil).Informer()
			go informer.RunWithContext(ctx)
			stores = append(stores, informer.GetStore())
		}
		for i := range 3 {
			for j := range 5 {
				w.Create(t, fmt.Sprintf("w%d-%d", i, j), "{}").Created(t)
			}
			w.Redefine(t, func(spec map[string]any) {
				spec["versions"] = append(spec["versions"].([]any), kit.CRDVersion(fmt.Sprint("v", i+2), kit.AnySpec, "storage: false"))
			}).OK(t)
		}
		harness.Eventually(t, "all informers have all objects", func() bool {
			return !slices.ContainsFunc(stores, func(s cache.Store) bool { return len(s.ListKeys()) != 15 })
		})
	}},
}

// addresses converts between v1, which has host and port, and other versions, which have an address.
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
