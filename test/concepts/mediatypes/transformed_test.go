package mediatypes

import (
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sqube/sqube/test/concepts/kit"
)

// What parameters of the media types in Accept request.

var transformed = []kit.Promise{
	{Statement: "Tables are served in JSON and YAML, and in no other type", Proof: func(t *testing.T, c *kit.Cluster) {
		groupVersion := c.DefineWidgets(t, kit.AnySchema)
		c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("a", map[string]string{"k": "v"})).Created(t)
		c.Post(t, c.Path(groupVersion, "widgets"), kit.Widget(groupVersion, "a")).Created(t)
		for _, path := range []string{c.Path("v1", "configmaps"), c.Path(groupVersion, "widgets")} {
			for _, mediaType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeYAML} {
				for _, version := range []string{"v1", "v1beta1"} {
					for _, path := range []string{path + "?fieldSelector=metadata.name=a", path + "/a"} {
						table := c.GetAs(t, kit.AsTable(mediaType, version), path).OK(t).DecodeAs(t, mediaType)
						kit.Equal(t, []any{table["kind"], table["apiVersion"]}, []any{"Table", "meta.k8s.io/" + version})
						row := table["rows"].([]any)[0].(map[string]any)
						kit.Equal(t, row["cells"].([]any)[0], any("a"))
						kit.Equal(t, kit.FieldOf(t, row, "object", "kind"), any("PartialObjectMetadata"))
						if len(table["columnDefinitions"].([]any)) != len(row["cells"].([]any)) {
							t.Errorf("the row does not have the columns %v: %v", table["columnDefinitions"], row)
						}
					}
				}
			}
			for _, mediaType := range []string{kit.Protobuf, kit.CBOR} {
				c.GetAs(t, kit.AsTable(mediaType, "v1"), path).Want(t, http.StatusNotAcceptable)
				// The next type in Accept is used instead.
				table := c.GetAs(t, kit.AsTable(mediaType, "v1")+","+kit.AsTable(runtime.ContentTypeJSON, "v1"), path).
					OK(t).DecodeAs(t, runtime.ContentTypeJSON)
				kit.Equal(t, table["kind"], any("Table"))
				list := c.GetAs(t, kit.AsTable(mediaType, "v1")+","+runtime.ContentTypeJSON, path).OK(t).
					DecodeAs(t, runtime.ContentTypeJSON)
				if kind := list["kind"].(string); !strings.HasSuffix(kind, "List") {
					t.Errorf("the fallback is a %s", kind)
				}
			}
		}
	}},
	{Statement: "PartialObjectMetadata is served in every media type, for custom resources also in protobuf", Proof: func(t *testing.T, c *kit.Cluster) {
		groupVersion := c.DefineWidgets(t, kit.AnySchema)
		c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("a", map[string]string{"k": "v"})).Created(t)
		c.Post(t, c.Path(groupVersion, "widgets"), kit.With(kit.Widget(groupVersion, "a"), "red", "spec", "colour")).Created(t)
		for _, path := range []string{c.Path("v1", "configmaps"), c.Path(groupVersion, "widgets")} {
			for _, mediaType := range kit.BuiltInTypes {
				for _, version := range []string{"v1", "v1beta1"} {
					object := c.GetAs(t, kit.AsMetadata(mediaType, version), path+"/a").OK(t).DecodeAs(t, mediaType)
					kit.Equal(t, []any{object["kind"], object["apiVersion"]},
						[]any{"PartialObjectMetadata", "meta.k8s.io/" + version})
					kit.Equal(t, kit.FieldOf(t, object, "metadata", "name"), any("a"))
					if len(object) != 3 {
						t.Errorf("it has more than metadata: %v", object)
					}
					list := c.GetAs(t, kit.AsMetadataList(mediaType, version), path+"?fieldSelector=metadata.name=a").OK(t).DecodeAs(t, mediaType)
					kit.Equal(t, []any{list["kind"], list["apiVersion"]},
						[]any{"PartialObjectMetadataList", "meta.k8s.io/" + version})
					item := list["items"].([]any)[0].(map[string]any)
					kit.Equal(t, kit.FieldOf(t, item, "metadata", "name"), any("a"))
					if item["data"] != nil || item["spec"] != nil {
						t.Errorf("an item has more than metadata: %v", item)
					}
				}
			}
		}
	}},
	{Statement: "responses to writes have the requested form, too", Proof: func(t *testing.T, c *kit.Cluster) {
		a := c.Send(t, http.MethodPost, c.Path("v1", "configmaps"), kit.Header{"Accept", kit.AsMetadata(kit.CBOR, "v1")},
			kit.ConfigMap("a", map[string]string{"k": "v"}))
		kit.Equal(t, a.Created(t).DecodeAs(t, kit.CBOR)["kind"], any("PartialObjectMetadata"))
		a = c.Send(t, http.MethodPatch, c.Path("v1", "configmaps", "a"),
			kit.Header{"Content-Type", kit.MergePatch, "Accept", kit.AsTable(runtime.ContentTypeYAML, "v1")}, `{"data":{"x":"y"}}`)
		kit.Equal(t, a.OK(t).DecodeAs(t, runtime.ContentTypeYAML)["kind"], any("Table"))
	}},
	{Statement: "a single object can't be requested as a list of metadata, or vice versa", Proof: func(t *testing.T, c *kit.Cluster) {
		c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("a", nil)).Created(t)
		c.GetAs(t, kit.AsMetadata(runtime.ContentTypeJSON, "v1"), c.Path("v1", "configmaps")).
			Refused(t, http.StatusNotAcceptable, "NotAcceptable", "you requested PartialObjectMetadata, but the requested object is a list")
		c.GetAs(t, kit.AsMetadataList(runtime.ContentTypeJSON, "v1"), c.Path("v1", "configmaps", "a")).
			Refused(t, http.StatusNotAcceptable, "NotAcceptable", "you requested PartialObjectMetadataList, but the requested object is not a list")
	}},
	{Statement: "unknown forms get 406, unless Accept has a fallback", Proof: func(t *testing.T, c *kit.Cluster) {
		for _, accept := range []string{
			kit.AsTable(runtime.ContentTypeJSON, "v2"), "application/json;as=Table;v=v1", "application/json;as=Pod;v=v1;g=",
			kit.AsTable(kit.Protobuf, "v1"),
		} {
			c.GetAs(t, accept, c.Path("v1", "configmaps")).Want(t, http.StatusNotAcceptable)
			c.GetAs(t, accept+", application/json", c.Path("v1", "configmaps")).OK(t).
				DecodeAs(t, runtime.ContentTypeJSON)
		}
	}},
	{Statement: "Accept headers of old and new clients are supported", Proof: func(t *testing.T, c *kit.Cluster) {
		for accept, want := range map[string]string{
			// kubectl get
			"application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json": "meta.k8s.io/v1",
			// kubectl before 1.15
			"application/json;as=Table;v=v1beta1;g=meta.k8s.io, application/json": "meta.k8s.io/v1beta1",
			// client-go's metadata client
			"application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json": "meta.k8s.io/v1",
			// client-go for built-in resources, and its stream parameter outside of a watch
			"application/vnd.kubernetes.protobuf,application/json":            "v1",
			"application/vnd.kubernetes.protobuf;stream=watch":                "v1",
			"application/json;stream=watch":                                   "v1",
			"application/json, text/javascript, */*; q=0.01":                  "v1",
			"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8": "v1",
		} {
			a := c.GetAs(t, accept, c.Path("v1", "configmaps")).OK(t)
			mediaType := runtime.ContentTypeJSON
			if strings.Contains(accept, kit.Protobuf) {
				mediaType = kit.Protobuf
			}
			kit.Equal(t, a.DecodeAs(t, mediaType)["apiVersion"], any(want))
		}
	}},
}
