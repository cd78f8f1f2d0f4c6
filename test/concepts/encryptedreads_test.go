package concepts

import (
	"bytes"
	"net/http"
	"net/url"
	"slices"
	"testing"
)

// tableOf asks for a Table.
const tableOf = "application/json;as=Table;v=v1;g=meta.k8s.io"

// isRead reads the secrets in every way there is. They are encrypted by aesgcm, which authenticates where an object is stored:
// every way has to know that.
func (e *encrypted) isRead(t *testing.T) {
	secrets := e.path("v1", "secrets")
	from := e.get(t, secrets).version(t)
	for _, name := range []string{"b", "c"} {
		e.post(t, secrets, manifest("{apiVersion: v1, kind: Secret, type: other/type, metadata: {name: %s, labels: {l: other}}, stringData: {k: %s}}", name, never)).want(t, http.StatusCreated)
	}

	t.Run("an encrypted object is served in every media type", func(t *testing.T) {
		encoded := []byte("bmV2ZXItaW4tdGhlLWNsZWFy") // never, as data of a Secret
		for accept, want := range map[string][]byte{
			"application/json": encoded, "application/yaml": encoded, "application/json;pretty=1": encoded,
			"application/vnd.kubernetes.protobuf": []byte(never), "application/cbor": []byte(never), tableOf: []byte(never + "/type"),
		} {
			for _, path := range []string{secrets + "/a", secrets, secrets + "?limit=1", secrets + "?resourceVersion=0"} {
				got := e.send(t, http.MethodGet, path, header{"Accept", accept}, nil).want(t, http.StatusOK)
				if !bytes.Contains(got.Body, want) || bytes.Contains(got.Body, []byte("$encrypted")) {
					t.Errorf("%s as %s is %s", path, accept, got.Body)
				}
			}
		}
	})
	t.Run("selectors of labels and fields select encrypted objects", func(t *testing.T) {
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
			list := e.get(t, secrets+"?"+selector).want(t, http.StatusOK)
			if names := ownNames(t, list); !slices.Equal(names, want) {
				t.Errorf("%s selects %v", selector, names)
			}
			protobuf := e.send(t, http.MethodGet, secrets+"?"+selector, header{"Accept", "application/vnd.kubernetes.protobuf"}, nil).want(t, http.StatusOK)
			if bytes.Contains(protobuf.Body, []byte(never)) != (len(want) > 0) {
				t.Errorf("%s in protobuf: %q", selector, protobuf.Body)
			}
		}
	})
	t.Run("pages of a list with a selector go on behind what it left out", func(t *testing.T) {
		path := secrets + "?limit=1&labelSelector=l=other"
		first := e.get(t, path).want(t, http.StatusOK)
		second := e.get(t, path+"&continue="+url.QueryEscape(first.text(t, "metadata", "continue"))).want(t, http.StatusOK)
		if names := append(first.names(t), second.names(t)...); !slices.Equal(names, []string{"b", "c"}) || second.text(t, "metadata", "continue") != "" {
			t.Errorf("the pages have %v; the second is %s", names, second.Body)
		}
	})
	t.Run("a list at an exact revision has encrypted objects as they were", func(t *testing.T) {
		list := e.get(t, secrets+"?labelSelector=l&resourceVersionMatch=Exact&resourceVersion="+from).want(t, http.StatusOK)
		if names := list.names(t); !slices.Equal(names, []string{"a"}) {
			t.Errorf("there were %v", names)
		}
	})
	t.Run("watches bring encrypted objects: the state, the past, what comes, what selectors say", func(t *testing.T) {
		state := e.watch(t, secrets+"?watch=true&labelSelector=l="+never)
		past := e.watch(t, secrets+"?watch=true&fieldSelector=type=other/type&resourceVersion="+from)
		defer state.stop()
		defer past.stop()
		if first := state.next(t); first.Type != "ADDED" || first.name() != "a" {
			t.Errorf("the state begins with %v", first)
		}
		for _, name := range []string{"b", "c"} {
			if next := past.next(t); next.Type != "ADDED" || next.name() != name {
				t.Errorf("the past has %v", next)
			}
		}
		e.patch(t, mergePatch, secrets+"/b", `{"metadata":{"labels":{"l":"`+never+`"}}}`).want(t, http.StatusOK)
		if next := state.next(t); next.Type != "ADDED" || next.name() != "b" {
			t.Errorf("an object that begins to match is %v", next)
		}
		if next := past.next(t); next.Type != "MODIFIED" || next.name() != "b" {
			t.Errorf("an object that changes is %v", next)
		}
		e.delete(t, secrets+"/b").want(t, http.StatusOK)
		for _, watch := range []*stream{state, past} {
			if next := watch.next(t); next.Type != "DELETED" || next.name() != "b" || next.Object["data"] == nil {
				t.Errorf("a deletion is %v", next)
			}
		}
	})
	t.Run("a collection is deleted by selectors of encrypted objects", func(t *testing.T) {
		e.delete(t, secrets+"?labelSelector=l=other").want(t, http.StatusOK)
		e.get(t, secrets+"/c").want(t, http.StatusNotFound)
		e.get(t, secrets+"/a").want(t, http.StatusOK)
	})
}
