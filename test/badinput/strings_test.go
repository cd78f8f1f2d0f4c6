package badinput

import (
	"encoding/base64"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

const (
	rbac         = "/apis/rbac.authorization.k8s.io/v1"
	clusterRoles = rbac + "/clusterroles"
	roles        = rbac + "/namespaces/" + namespace + "/roles"
	notUTF8      = "a\xff\xfeb"
)

// protobufOf encodes an object with any bytes in its strings, as clients in other languages may.
func protobufOf(t *testing.T, object runtime.Object) string {
	t.Helper()
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), protobufType)
	kinds, _, err := scheme.Scheme.ObjectKinds(object)
	harness.Must(t, err)
	text, err := runtime.Encode(scheme.Codecs.EncoderForVersion(info.Serializer, kinds[0].GroupVersion()), object)
	harness.Must(t, err)
	return string(text)
}

// TestStrings sends NUL, invalid UTF-8 and very long strings to every place of a database that a client's string can reach. On
// both engines, a string is either stored unchanged or rejected as the client's mistake.
func TestStrings(t *testing.T) {
	role := func(name string) string {
		return fmt.Sprintf(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"%s"}}`, name)
	}
	binding := func(name string) string {
		return fmt.Sprintf(`{"metadata":{"name":"%s"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"view"}}`, name)
	}
	event := func(name, field string) string {
		return fmt.Sprintf(`{"metadata":{"name":"%s"},"involvedObject":{"namespace":"%s","name":"%s","uid":"%[3]s"},"reason":"%[3]s","source":{"component":"%[3]s"},"type":"Normal"}`,
			name, namespace, field)
	}
	as := func(c badCase, name, value string) badCase {
		c.header = map[string]string{name: value}
		if name == "Impersonate-User" {
			c.header["Impersonate-Group"] = "system:masters"
		}
		return c
	}
	token := func(start string) string {
		return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"v":"meta.k8s.io/v1","rv":1,"start":"%s"}`, start))
	}
	events := core + "/events"
	all := []struct {
		want int
		badCase
	}{
		// Names that need not be DNS names: not every engine can store NUL.
		{400, post("clusterrole", clusterRoles, role(`a\u0000b`))},
		{400, post("role", roles, `{"metadata":{"name":"a\u0000b"}}`)},
		{400, post("rolebinding", rbac+"/namespaces/"+namespace+"/rolebindings", binding(`a\u0000b`))},
		{400, post("clusterrolebinding", rbac+"/clusterrolebindings", binding(`\u0000`))},
		{400, post("generated name", clusterRoles, `{"metadata":{"generateName":"a\u0000"}}`)},
		{400, put("PUT", clusterRoles+"/a%00b", role(`a\u0000b`))},
		{400, patch("apply", applyType, clusterRoles+"/a%00b?fieldManager=m", `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole"}`)},
		{404, patch("patch", mergeType, clusterRoles+"/a%00b", `{"metadata":{"labels":{"a":"b"}}}`)},
		{404, get("get", clusterRoles+"/a%00b")},
		{404, del("delete", clusterRoles+"/a%00b", "")},
		{201, post("surrogate", clusterRoles, role(`a\ud800b`))}, // read by JSON as U+FFFD
		{201, post("not UTF-8 in JSON", clusterRoles, role("not-"+notUTF8))},
		{400, post("not UTF-8", clusterRoles, protobufOf(t, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: notUTF8}})).typed(protobufType)},
		{201, post("long", clusterRoles, role(repeat("a", 2048)))},
		{400, post("longer", clusterRoles, role(repeat("a", 2049)))},
		{400, post("much longer", clusterRoles, role(repeat("a", 1<<20)))},

		// Other content of objects.
		{201, post("annotation", configMaps, `{"metadata":{"name":"annotation","annotations":{"a":"x\u0000y"}},"data":{"a":"\u0000"}}`)},
		{400, post("annotation not UTF-8", configMaps, protobufOf(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x", Annotations: map[string]string{"a": notUTF8}}})).typed(protobufType)},
		{400, post("data not UTF-8", configMaps, protobufOf(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Data: map[string]string{"a": notUTF8}})).typed(protobufType)},
		{201, post("bytes", configMaps, protobufOf(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "bytes"}, BinaryData: map[string][]byte{"a": []byte(notUTF8)}})).typed(protobufType)},
		{201, post("U+FFFD", configMaps, protobufOf(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "fffd"}, Data: map[string]string{"a": `� \ufffd \\ufffd`}})).typed(protobufType)},
		{422, post("label", configMaps, `{"metadata":{"name":"x","labels":{"a":"\u0000"}}}`)},
		{201, post("secret's type", core+"/secrets", `{"metadata":{"name":"typed"},"type":"a\u0000b"}`)},
		{200, get("secrets by type", core+"/secrets?fieldSelector=type%3Da%00b")},
		{201, post("event's fields", events, event("nul", `a\u0000b`))},
		{200, get("events by NUL", events+"?fieldSelector=involvedObject.name%3Da%00b")},
		{200, get("events by what is not UTF-8", events+"?fieldSelector=reason%3D%ff,involvedObject.name%3D%ff")},
		{200, get("events by something long", events+"?fieldSelector=reason%3D"+repeat("x", 100_000))},
		{201, post("event's long fields", events, event("long", repeat("x", 100_000)))},
		{409, del("precondition", configMaps+"/cm", `{"preconditions":{"uid":"\u0000"}}`)},

		// The parameters of reads.
		{200, get("metadata.name", configMaps+"?fieldSelector=metadata.name%3D%00")},
		{200, get("metadata.name not UTF-8", configMaps+"?fieldSelector=metadata.name%3D%ff")},
		{200, get("label selector", configMaps+"?labelSelector=a%3D%00")},
		{200, get("namespace", "/api/v1/namespaces/%00/configmaps")},
		{200, get("namespace not UTF-8", "/api/v1/namespaces/%ff/configmaps")},
		{400, get("continue token", configMaps+"?limit=1&continue="+token(`a\u0000b`))},
		{400, get("continue token of NULs", configMaps+"?limit=1&continue="+token(`\u0000\u0000`))},
		{200, get("watch", configMaps+"?watch=true&timeoutSeconds=1&resourceVersion=0&fieldSelector=metadata.name%3D%00")},
		{200, del("collection of nothing", configMaps+"?fieldSelector=metadata.name%3D%00", "")},

		// The user and the manager.
		{201, as(post("user", configMaps, `{"metadata":{"generateName":"user-"}}`), "Impersonate-User", notUTF8)},
		{201, as(post("long user", configMaps, `{"metadata":{"generateName":"user-"}}`), "Impersonate-User", repeat("u", 100_000))},
		{201, as(post("user agent", configMaps, `{"metadata":{"generateName":"user-"}}`), "User-Agent", notUTF8)},
		{201, as(post("user agent of escapes", configMaps, `{"metadata":{"generateName":"user-"}}`), "User-Agent", "\u009b31m")},
		{201, as(post("long user agent", configMaps, `{"metadata":{"generateName":"user-"}}`), "User-Agent", repeat("m", 100_000))},
		{422, post("field manager", configMaps+"?fieldManager=%00", `{"metadata":{"generateName":"user-"}}`)},
		{201, post("to be deleted", configMaps, `{"metadata":{"name":"managed"}}`)},
		{200, del("long field manager of a deletion", configMaps+"/managed?fieldManager="+repeat("m", 129), "")}, // upstream ignores it
		{404, del("field manager of a deletion", configMaps+"/none?fieldManager=%1b%5b2J", "")},
		{404, del("field manager not UTF-8", configMaps+"/none?fieldManager=%ff%1b", "")},
		{200, del("field manager of a collection", configMaps+"?fieldSelector=metadata.name%3Dnone&fieldManager=%1b", "")},
		{404, del("field manager of a custom resource", widgets+"/none?fieldManager=%1b", "")},
		{422, put("field manager of a PUT", configMaps+"/cm?fieldManager=%1b", configMap)},
		{422, patch("field manager of a custom resource's PATCH", mergeType, widgets+"/one?fieldManager=%1b", `{}`)},
		{422, post("field manager of an eviction", pods+"/pod/eviction?fieldManager=%1b", `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"pod"}}`)},
		{422, post("field manager of a binding", pods+"/pod/binding?fieldManager=%1b", `{"metadata":{"name":"pod"},"target":{"kind":"Node","name":"n"}}`)},
		{422, put("field manager of a finalization", "/api/v1/namespaces/"+namespace+"/finalize?fieldManager=%1b", `{"metadata":{"name":"bad-input"}}`)},
	}
	harness.Engines(t, func(t *testing.T, engine harness.Engine) {
		server := sqube.Start(t, sqube.Options{Datastore: engine.Datastore})
		s := newSender(t, server.Config(t))
		s.prepare(t)
		for _, c := range all {
			if got := s.send(t, c.badCase); got.Code != c.want {
				t.Errorf("%s: %s %s returned %d instead of %d: %v", c.name, c.method, short(c.path), got.Code, c.want, got)
			}
		}
		// What was stored is read back completely.
		for name, want := range map[string]map[string]any{
			"annotation": {"a": "\x00"},
			"fffd":       {"a": "� \\ufffd \\\\ufffd"},
		} {
			got := s.send(t, get("", configMaps+"/"+name))
			if diff := cmp.Diff(want, got.JSON.(map[string]any)["data"]); diff != "" {
				t.Errorf("%s has (-want +got):\n%s", name, diff)
			}
		}
		for query, want := range map[string]int{"involvedObject.name%3Da%00b": 1, "reason%3D" + repeat("x", 100_000): 1, "reason!%3Da%00b": 1} {
			got := s.send(t, get("", events+"?fieldSelector="+query))
			if items, _ := got.JSON.(map[string]any)["items"].([]any); len(items) != want {
				t.Errorf("%d events with %s instead of %d", len(items), short(query), want)
			}
		}
	})
}
