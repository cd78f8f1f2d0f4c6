package encryption

import (
	"bytes"
	"net/http"
	"net/url"
	"slices"
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
)

// isRead reads the secrets in every possible way. They are encrypted by aesgcm, which authenticates an object's key: every kind
// of read must pass that.
func (e *encrypted) isRead(t *testing.T) {
	secrets := e.Path("v1", "secrets")
	from := e.Get(t, secrets).ResourceVersion(t)
	for _, name := range []string{"b", "c"} {
		e.Post(t, secrets, kit.Manifest("{apiVersion: v1, kind: Secret, type: other/type, metadata: {name: %s, labels: {l: other}}, stringData: {k: %s}}", name, never)).Created(t)
	}

	t.Run("an encrypted object is served in every media type", func(t *testing.T) {
		encoded := []byte("bmV2ZXItaW4tdGhlLWNsZWFy") // never, as data of a Secret
		for accept, want := range map[string][]byte{
			"application/json": encoded, "application/yaml": encoded, "application/json;pretty=1": encoded,
			"application/vnd.kubernetes.protobuf": []byte(never), "application/cbor": []byte(never), kit.TableJSON: []byte(never + "/type"),
		} {
			for _, path := range []string{secrets + "/a", secrets, secrets + "?limit=1", secrets + "?resourceVersion=0"} {
				got := e.Send(t, http.MethodGet, path, kit.Header{"Accept", accept}, nil).OK(t)
				if !bytes.Contains(got.Body, want) || bytes.Contains(got.Body, []byte("$encrypted")) {
					t.Errorf("%s as %s is %s", path, accept, got.Body)
				}
			}
		}
	})
	t.Run("label and field selectors select encrypted objects", func(t *testing.T) {
		for selector, want := range map[string][]string{
			"labelSelector=l=other":                       {"b", "c"},
			"labelSelector=l%20in%20(" + never + ")":      {"a"},
			"labelSelector=l":                             {"a", "b", "c"},
			"labelSelector=!l":                            {},
			"labelSelector=l!=other":                      {"a"},
			"fieldSelector=type=other/type":               {"b", "c"},
			"fieldSelector=type!=other/type":              {"a"},
			"fieldSelector=metadata.name=b":               {"b"},
			"labelSelector=l&fieldSelector=type=none":     {},
			"labelSelector=l=other&fieldSelector=type!=a": {"b", "c"},
		} {
			list := e.Get(t, secrets+"?"+selector).OK(t)
			if names := ownNames(t, list); !slices.Equal(names, want) {
				t.Errorf("%s selects %v", selector, names)
			}
			protobuf := e.Send(t, http.MethodGet, secrets+"?"+selector, kit.Header{"Accept", "application/vnd.kubernetes.protobuf"}, nil).OK(t)
			if bytes.Contains(protobuf.Body, []byte(never)) != (len(want) > 0) {
				t.Errorf("%s in protobuf: %q", selector, protobuf.Body)
			}
		}
	})
	t.Run("pages of a list with a selector continue after objects that do not match", func(t *testing.T) {
		path := secrets + "?limit=1&labelSelector=l=other"
		first := e.Get(t, path).OK(t)
		second := e.Get(t, path+"&continue="+url.QueryEscape(first.Text(t, "metadata", "continue"))).OK(t)
		if names := append(first.Names(t), second.Names(t)...); !slices.Equal(names, []string{"b", "c"}) || second.Text(t, "metadata", "continue") != "" {
			t.Errorf("the pages have %v; the second is %s", names, second.Body)
		}
	})
	t.Run("a list at an exact revision has the past state of encrypted objects", func(t *testing.T) {
		list := e.Get(t, secrets+"?labelSelector=l&resourceVersionMatch=Exact&resourceVersion="+from).OK(t)
		if names := list.Names(t); !slices.Equal(names, []string{"a"}) {
			t.Errorf("the list has %v", names)
		}
	})
	t.Run("watches send encrypted objects: the initial state, past and new changes, with selectors", func(t *testing.T) {
		state := e.Watch(t, secrets+"?watch=true&labelSelector=l="+never)
		past := e.Watch(t, secrets+"?watch=true&fieldSelector=type=other/type&resourceVersion="+from)
		defer state.Stop()
		defer past.Stop()
		if first := state.Next(t); first.Type != "ADDED" || first.Name() != "a" {
			t.Errorf("the initial state begins with %v", first)
		}
		for _, name := range []string{"b", "c"} {
			if next := past.Next(t); next.Type != "ADDED" || next.Name() != name {
				t.Errorf("the past changes begin with %v", next)
			}
		}
		e.Patch(t, kit.MergePatch, secrets+"/b", `{"metadata":{"labels":{"l":"`+never+`"}}}`).OK(t)
		if next := state.Next(t); next.Type != "ADDED" || next.Name() != "b" {
			t.Errorf("the event of an object that begins to match is %v", next)
		}
		if next := past.Next(t); next.Type != "MODIFIED" || next.Name() != "b" {
			t.Errorf("the event of a changed object is %v", next)
		}
		e.Delete(t, secrets+"/b").OK(t)
		for _, watch := range []*kit.Stream{state, past} {
			if next := watch.Next(t); next.Type != "DELETED" || next.Name() != "b" || next.Object["data"] == nil {
				t.Errorf("the event of a deletion is %v", next)
			}
		}
	})
	t.Run("encrypted objects of a collection are deleted by selectors", func(t *testing.T) {
		e.Delete(t, secrets+"?labelSelector=l=other").OK(t)
		e.Get(t, secrets+"/c").Want(t, http.StatusNotFound)
		e.Get(t, secrets+"/a").OK(t)
	})
}
