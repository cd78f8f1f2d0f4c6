package concepts

import (
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

// What is asked for by parameters of the media types in Accept.

func asTable(mediaType, version string) string {
	return mediaType + ";as=Table;v=" + version + ";g=meta.k8s.io"
}

func asMetadata(mediaType, version string) string {
	return mediaType + ";as=PartialObjectMetadata;v=" + version + ";g=meta.k8s.io"
}

func asMetadataList(mediaType, version string) string {
	return mediaType + ";as=PartialObjectMetadataList;v=" + version + ";g=meta.k8s.io"
}

var transformed = []promise{
	{"Tables come in JSON and YAML, and in no other type", func(t *testing.T, c *cluster) {
		groupVersion := c.widgets(t, anySchema)
		c.post(t, c.path("v1", "configmaps"), configMap("a", map[string]string{"k": "v"})).want(t, http.StatusCreated)
		c.post(t, c.path(groupVersion, "widgets"), widget(groupVersion, "a")).want(t, http.StatusCreated)
		for _, path := range []string{c.path("v1", "configmaps"), c.path(groupVersion, "widgets")} {
			for _, mediaType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeYAML} {
				for _, version := range []string{"v1", "v1beta1"} {
					for _, path := range []string{path + "?fieldSelector=metadata.name=a", path + "/a"} {
						table := c.getAs(t, asTable(mediaType, version), path).want(t, http.StatusOK).in(t, mediaType)
						equal(t, []any{table["kind"], table["apiVersion"]}, []any{"Table", "meta.k8s.io/" + version})
						row := table["rows"].([]any)[0].(map[string]any)
						equal(t, row["cells"].([]any)[0], any("a"))
						equal(t, field(t, row, "object", "kind"), any("PartialObjectMetadata"))
						if len(table["columnDefinitions"].([]any)) != len(row["cells"].([]any)) {
							t.Errorf("the row has other columns than %v: %v", table["columnDefinitions"], row)
						}
					}
				}
			}
			for _, mediaType := range []string{protobufType, cborType} {
				c.getAs(t, asTable(mediaType, "v1"), path).want(t, http.StatusNotAcceptable)
				// What follows is taken instead.
				table := c.getAs(t, asTable(mediaType, "v1")+","+asTable(runtime.ContentTypeJSON, "v1"), path).
					want(t, http.StatusOK).in(t, runtime.ContentTypeJSON)
				equal(t, table["kind"], any("Table"))
				list := c.getAs(t, asTable(mediaType, "v1")+","+runtime.ContentTypeJSON, path).want(t, http.StatusOK).
					in(t, runtime.ContentTypeJSON)
				if kind := list["kind"].(string); !strings.HasSuffix(kind, "List") {
					t.Errorf("the fallback is a %s", kind)
				}
			}
		}
	}},
	{"PartialObjectMetadata comes in every media type, of custom resources in protobuf, too", func(t *testing.T, c *cluster) {
		groupVersion := c.widgets(t, anySchema)
		c.post(t, c.path("v1", "configmaps"), configMap("a", map[string]string{"k": "v"})).want(t, http.StatusCreated)
		c.post(t, c.path(groupVersion, "widgets"), with(widget(groupVersion, "a"), "red", "spec", "colour")).
			want(t, http.StatusCreated)
		for _, path := range []string{c.path("v1", "configmaps"), c.path(groupVersion, "widgets")} {
			for _, mediaType := range builtInTypes {
				for _, version := range []string{"v1", "v1beta1"} {
					object := c.getAs(t, asMetadata(mediaType, version), path+"/a").want(t, http.StatusOK).in(t, mediaType)
					equal(t, []any{object["kind"], object["apiVersion"]},
						[]any{"PartialObjectMetadata", "meta.k8s.io/" + version})
					equal(t, field(t, object, "metadata", "name"), any("a"))
					if len(object) != 3 {
						t.Errorf("it has more than metadata: %v", object)
					}
					list := c.getAs(t, asMetadataList(mediaType, version), path+"?fieldSelector=metadata.name=a").
						want(t, http.StatusOK).in(t, mediaType)
					equal(t, []any{list["kind"], list["apiVersion"]},
						[]any{"PartialObjectMetadataList", "meta.k8s.io/" + version})
					item := list["items"].([]any)[0].(map[string]any)
					equal(t, field(t, item, "metadata", "name"), any("a"))
					if item["data"] != nil || item["spec"] != nil {
						t.Errorf("an item has more than metadata: %v", item)
					}
				}
			}
		}
	}},
	{"writes are answered in the form that was asked for, too", func(t *testing.T, c *cluster) {
		a := c.send(t, http.MethodPost, c.path("v1", "configmaps"), header{"Accept", asMetadata(cborType, "v1")},
			configMap("a", map[string]string{"k": "v"}))
		equal(t, a.want(t, http.StatusCreated).in(t, cborType)["kind"], any("PartialObjectMetadata"))
		a = c.send(t, http.MethodPatch, c.path("v1", "configmaps", "a"),
			header{"Content-Type", mergePatch, "Accept", asTable(runtime.ContentTypeYAML, "v1")}, `{"data":{"x":"y"}}`)
		equal(t, a.want(t, http.StatusOK).in(t, runtime.ContentTypeYAML)["kind"], any("Table"))
	}},
	{"one object is no list of metadata, nor a list one object's", func(t *testing.T, c *cluster) {
		c.post(t, c.path("v1", "configmaps"), configMap("a", nil)).want(t, http.StatusCreated)
		c.getAs(t, asMetadata(runtime.ContentTypeJSON, "v1"), c.path("v1", "configmaps")).
			refused(t, http.StatusNotAcceptable, "NotAcceptable", "you requested PartialObjectMetadata, but the requested object is a list")
		c.getAs(t, asMetadataList(runtime.ContentTypeJSON, "v1"), c.path("v1", "configmaps", "a")).
			refused(t, http.StatusNotAcceptable, "NotAcceptable", "you requested PartialObjectMetadataList, but the requested object is not a list")
	}},
	{"forms that do not exist are refused with 406, unless Accept goes on", func(t *testing.T, c *cluster) {
		for _, accept := range []string{
			asTable(runtime.ContentTypeJSON, "v2"), "application/json;as=Table;v=v1", "application/json;as=Pod;v=v1;g=",
			asTable(protobufType, "v1"),
		} {
			c.getAs(t, accept, c.path("v1", "configmaps")).want(t, http.StatusNotAcceptable)
			c.getAs(t, accept+", application/json", c.path("v1", "configmaps")).want(t, http.StatusOK).
				in(t, runtime.ContentTypeJSON)
		}
	}},
	{"what old and new clients send in Accept is understood", func(t *testing.T, c *cluster) {
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
			a := c.getAs(t, accept, c.path("v1", "configmaps")).want(t, http.StatusOK)
			mediaType := runtime.ContentTypeJSON
			if strings.Contains(accept, protobufType) {
				mediaType = protobufType
			}
			equal(t, a.in(t, mediaType)["apiVersion"], any(want))
		}
	}},
}
