package writes

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/test/concepts/kit"
	"github.com/sqube/sqube/test/harness"
)

// asWritten is JSON that encoders would write differently: it has spaces, a tab, line ends, unescaped and escaped characters, numbers
// with different digits, and a name twice.
const asWritten = "{ \"b\" : [1, 2.50, 1E2,\tnull],\r\n \"a\":\"<&>\u2028 é \\u003C\\ufffd\", \"b\" : { } }"

// withRaw are the kinds with a RawExtension. Their manifests are JSON with %[1]s for each.
var withRaw = map[schema.GroupKind]struct {
	path, object, status string
	immutable            string // what an update with other bytes is told, if it is refused
}{
	{Group: "apps", Kind: "ControllerRevision"}: {
		path: "/apis/apps/v1/namespaces/%s/controllerrevisions", object: `"revision": 1, "data": %[1]s`, immutable: "data: Invalid value",
	},
	{Group: "resource.k8s.io", Kind: "DeviceClass"}: {
		path: "/apis/resource.k8s.io/v1/deviceclasses", object: `"spec": {"config": [` + opaque + `]}`,
	},
	{Group: "resource.k8s.io", Kind: "ResourceClaim"}: {
		path: "/apis/resource.k8s.io/v1/namespaces/%s/resourceclaims", immutable: "spec: Invalid value", object: `"spec": {` + devices + `}`,
		status: `"status": {"allocation": {"devices": {
			"results": [{"request": "r", "driver": "d.example.com", "pool": "p", "device": "d"}],
			"config": [{"source": "FromClass", "opaque": {"driver": "d.example.com", "parameters": %[1]s}}]}},
			"devices": [{"driver": "d.example.com", "pool": "p", "device": "d", "data": %[1]s}]}`,
	},
	{Group: "resource.k8s.io", Kind: "ResourceClaimTemplate"}: {
		path: "/apis/resource.k8s.io/v1/namespaces/%s/resourceclaimtemplates", immutable: "spec: Invalid value",
		object: `"spec": {"spec": {` + devices + `}}`,
	},
}

const (
	opaque  = `{"opaque": {"driver": "d.example.com", "parameters": %[1]s}}`
	devices = `"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}], "config": [` + opaque + `]}`
)

// rawPaths returns where a type has RawExtensions.
func rawPaths(at reflect.Type, path string) (paths []string) {
	switch {
	case at == reflect.TypeFor[runtime.RawExtension]():
		return []string{path}
	case at.Kind() == reflect.Pointer || at.Kind() == reflect.Slice || at.Kind() == reflect.Map:
		return rawPaths(at.Elem(), path)
	case at.Kind() == reflect.Struct && strings.Count(path, ".") < 12: // types may contain themselves
		for i := range at.NumField() {
			paths = append(paths, rawPaths(at.Field(i).Type, path+"."+at.Field(i).Name)...)
		}
	}
	return paths
}

// raws returns the JSON in the RawExtensions of a value, by path.
func raws(v reflect.Value, path string) map[string]string {
	found := map[string]string{}
	switch {
	case v.Type() == reflect.TypeFor[runtime.RawExtension]():
		found[path] = string(v.Interface().(runtime.RawExtension).Raw)
	case v.Kind() == reflect.Pointer && !v.IsNil():
		return raws(v.Elem(), path)
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			for at, raw := range raws(v.Index(i), path) {
				found[at] = raw
			}
		}
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			for at, raw := range raws(v.Field(i), path+"."+v.Type().Field(i).Name) {
				found[at] = raw
			}
		}
	}
	return found
}

// decoded returns a protobuf response as an object.
func decoded(t *testing.T, a kit.Answer) runtime.Object {
	t.Helper()
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(a.Body, nil, nil)
	if err != nil {
		t.Fatalf("%s: %v\n%q", a.Request, err, a.Body)
	}
	return object
}

// protobufOf encodes an object.
func protobufOf(t *testing.T, object runtime.Object) []byte {
	t.Helper()
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), kit.Protobuf)
	data := kit.Must(runtime.Encode(info.Serializer, object))(t)
	return data
}

// inProtobuf fails the test unless every way to read the object as protobuf returns the JSON as it was written.
func inProtobuf(t *testing.T, c *kit.Cluster, collection, name, version, want string, paths []string) {
	t.Helper()
	check := func(how string, object any) {
		t.Helper()
		got := raws(reflect.ValueOf(object), "")
		for _, path := range paths {
			if got[path] != want {
				t.Errorf("%s: %s has %q instead of %q", how, path, got[path], want)
			}
		}
	}
	check("get", decoded(t, c.GetAs(t, kit.Protobuf, collection+"/"+name).OK(t)))
	for _, query := range []string{"", "&resourceVersionMatch=Exact&resourceVersion=" + version} {
		list := decoded(t, c.GetAs(t, kit.Protobuf, collection+"?fieldSelector=metadata.name="+name+query).OK(t))
		items := reflect.ValueOf(list).Elem().FieldByName("Items")
		if items.Len() != 1 {
			t.Fatalf("%s has %d items", collection, items.Len())
		}
		check("list", items.Index(0).Addr().Interface())
	}
	watching := rest.CopyConfig(c.Config)
	watching.ContentType, watching.NegotiatedSerializer = kit.Protobuf, scheme.Codecs.WithoutConversion()
	watching.GroupVersion, watching.APIPath = &schema.GroupVersion{Version: "v1"}, "/api"
	client := kit.Must(rest.RESTClientFor(watching))(t)
	events := kit.Must(client.Get().AbsPath(collection).Param("watch", "true").Param("fieldSelector", "metadata.name="+name).Watch(t.Context()))(t)
	defer events.Stop()
	event := <-events.ResultChan()
	if event.Type != watch.Added {
		t.Fatalf("the first event is %+v", event)
	}
	check("watch", event.Object)
}

// inText fails the test unless the other media types contain the same JSON as encoders write it.
func inText(t *testing.T, c *kit.Cluster, collection, name string) {
	t.Helper()
	path := collection + "/" + name
	compact := kit.Must(json.Marshal(json.RawMessage(asWritten)))(t)
	plain := c.Get(t, path).OK(t)
	for _, a := range []kit.Answer{
		plain, c.Get(t, collection+"?fieldSelector=metadata.name="+name), c.WatchAs(t, 1, nil, collection+"?watch=true&fieldSelector=metadata.name="+name),
	} {
		if !strings.Contains(string(a.Body), string(compact)) || strings.Contains(string(a.Body), `: `) {
			t.Errorf("%s returns\n%q, want the JSON\n%q", a.Request, a.Body, compact)
		}
	}
	var indented strings.Builder
	encoder := json.NewEncoder(&indented)
	if err := encoder.Encode(json.RawMessage(c.Get(t, path+"?pretty=true").OK(t).Body)); err != nil || indented.String() != string(plain.Body) {
		t.Errorf("indented it is\n%s instead of\n%s, %v", indented.String(), plain.Body, err)
	}
	for _, mediaType := range []string{runtime.ContentTypeYAML, kit.CBOR} {
		if diff := cmp.Diff(plain.Object(t), c.GetAs(t, mediaType, path).OK(t).DecodeAs(t, mediaType)); diff != "" {
			t.Errorf("%s differs: %s", mediaType, diff)
		}
	}
	for _, accept := range []string{kit.TableJSON, kit.AsMetadata(runtime.ContentTypeJSON, "v1")} {
		if got := c.GetAs(t, accept, path).OK(t).Object(t); got["kind"] == "Table" && len(got["rows"].([]any)) != 1 {
			t.Errorf("as %s it is %v", accept, got)
		}
	}
}

// Fields of the types runtime.RawExtension and metav1.FieldsV1: JSON that is kept as the client wrote it.
var rawJSON = []kit.Promise{
	{Statement: "every kind with a RawExtension is tested", Proof: func(t *testing.T, _ *kit.Cluster) {
		found := map[schema.GroupKind]bool{}
		for kind, of := range scheme.Scheme.AllKnownTypes() {
			if _, ok := reflect.New(of).Interface().(metav1.ObjectMetaAccessor); ok && rawPaths(of, "") != nil {
				found[kind.GroupKind()] = true
			}
		}
		for kind := range found {
			if _, ok := withRaw[kind]; !ok {
				t.Errorf("%s is not", kind)
			}
		}
		if len(found) < 4 {
			t.Errorf("there are only %v", found)
		}
	}},
	{Statement: "a RawExtension is stored as it was sent", Proof: func(t *testing.T, c *kit.Cluster) {
		for kind, of := range withRaw {
			t.Run(kind.Kind, func(t *testing.T) { testRaw(t, c, kind.Kind, of.path, of.object, of.status, of.immutable) })
		}
	}},
	{Statement: "managed fields are in protobuf as the server wrote them", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.ClusterPath("storage.k8s.io/v1", "storageclasses")
		class := kit.Manifest(`{metadata: {name: %s}, provisioner: x, parameters: {"a<b": "&"}}`, c.Namespace)
		created := c.Post(t, path, class).Created(t)
		kit.Equal(t, c.Put(t, path+"/"+c.Namespace, class).OK(t).ResourceVersion(t), created.ResourceVersion(t))
		got := decoded(t, c.GetAs(t, kit.Protobuf, path+"/"+c.Namespace).OK(t)).(*storagev1.StorageClass)
		if fields := got.ManagedFields[0].FieldsV1.GetRawString(); !strings.Contains(fields, `"f:a<b"`) {
			t.Errorf("the managed fields are %s", fields)
		}
		if a := c.Get(t, path+"/"+c.Namespace).OK(t); !strings.Contains(string(a.Body), `"f:a\u003cb":{}`) {
			t.Errorf("in JSON: %s", a.Body)
		}
	}},
	{Statement: "JSON in definitions and annotations is no change if it is sent again", Proof: func(t *testing.T, c *kit.Cluster) {
		w := c.CustomResource()
		path := kit.Definitions + "/" + w.Name()
		definition := func(version string) string {
			return fmt.Sprintf(`{ "metadata": {"name": %q, "annotations": {"last": %q}, "resourceVersion": %q}, "spec": {"group": %q, "scope": "Namespaced",
				"names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"}, "versions": [{"name": "v1", "served": true,
				"storage": true, "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object",
				"x-kubernetes-preserve-unknown-fields": true, "default": %[5]s, "example": %[5]s}, "kept": {"type": "string", "enum": [ "<", "a b" ]}}}}}]} }`,
				w.Name(), asWritten, version, w.Group, `{ "a": "<", "b": [1, 2.50] }`)
		}
		c.Post(t, kit.Definitions, definition("")).Created(t)
		w.Established(t)
		before := c.Get(t, path)
		again := c.Put(t, path, definition(before.ResourceVersion(t))).OK(t)
		kit.Equal(t, again.ResourceVersion(t), before.ResourceVersion(t))
		kit.Equal(t, again.Text(t, "metadata", "annotations", "last"), asWritten)
	}},
}

func testRaw(t *testing.T, c *kit.Cluster, kind, path, object, status, immutable string) {
	if strings.Contains(path, "%s") {
		path = fmt.Sprintf(path, c.Namespace)
	}
	body := func(name, fields, raw string) string {
		return fmt.Sprintf(`{"metadata": {"name": %q}, `+strings.ReplaceAll(fields, "%[1]s", "%[2]s")+`}`, name, raw)
	}
	name, other := c.Namespace, c.Namespace+"-binary"
	at := path + "/" + name
	created := c.Post(t, path, body(name, object, asWritten)).Created(t)
	if status != "" {
		all := body(name, object+`, `+status, asWritten)
		created = c.Put(t, at+"/status", all).OK(t)
		kit.Equal(t, c.Put(t, at+"/status", all).OK(t).ResourceVersion(t), created.ResourceVersion(t))
	}
	kit.Equal(t, c.Put(t, at, body(name, object, asWritten)).OK(t).Object(t), created.Object(t))
	got := decoded(t, c.GetAs(t, kit.Protobuf, at).OK(t))
	paths := rawPaths(reflect.TypeOf(got), "")
	again := c.Send(t, http.MethodPut, at, kit.Header{"Accept", kit.Protobuf}, body(name, object, asWritten)).OK(t)
	kit.Equal(t, string(again.Body), string(c.GetAs(t, kit.Protobuf, at).Body))
	inProtobuf(t, c, path, name, created.ResourceVersion(t), asWritten, paths)
	inText(t, c, path, name)

	// In protobuf spaces may follow the JSON. (Upstream's field manager panics if they precede it.)
	const spaced = "{\"a\" : 1}\n "
	typed := reflect.New(reflect.TypeOf(got).Elem()).Interface().(runtime.Object)
	harness.Must(t, json.Unmarshal([]byte(body(other, object, "{}")), typed))
	around(reflect.ValueOf(typed), spaced)
	typed.GetObjectKind().SetGroupVersionKind(got.GetObjectKind().GroupVersionKind())
	binary := kit.Header{"Content-Type", kit.Protobuf}
	made := c.Send(t, http.MethodPost, path, binary, protobufOf(t, typed)).Created(t)
	kit.Equal(t, c.Send(t, http.MethodPut, path+"/"+other, binary, protobufOf(t, typed)).OK(t).Object(t), made.Object(t))
	inProtobuf(t, c, path, other, made.ResourceVersion(t), spaced, slices.Collect(maps.Keys(raws(reflect.ValueOf(typed), ""))))

	// A patch is applied to the JSON of a response, which has other bytes.
	patched := c.Patch(t, kit.MergePatch, at, `{"metadata":{"labels":{"a":"b"}}}`)
	if immutable != "" {
		patched.Invalid(t, immutable)
		c.Put(t, at, body(name, object, `{"a":1}`)).Invalid(t, immutable)
		kit.Equal(t, c.Get(t, at).Object(t), created.Object(t))
		return
	}
	kit.Equal(t, patched.OK(t).Value(t, "metadata", "generation"), created.Value(t, "metadata", "generation").(float64)+1)
}

// around sets the RawExtensions in a value.
func around(v reflect.Value, raw string) {
	switch {
	case v.Type() == reflect.TypeFor[runtime.RawExtension]():
		if v.Addr().Interface().(*runtime.RawExtension).Raw != nil {
			v.Addr().Interface().(*runtime.RawExtension).Raw = []byte(raw)
		}
	case v.Kind() == reflect.Pointer && !v.IsNil():
		around(v.Elem(), raw)
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			around(v.Index(i), raw)
		}
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				around(v.Field(i), raw)
			}
		}
	}
}
