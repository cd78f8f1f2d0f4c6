package kubecopy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// TestListThatExpires reads a cluster that loses the moment of the copy between two pages of a list. The list is read as it is then, no object
// comes twice, and the resource is named.
func TestListThatExpires(t *testing.T) {
	answer := func(w http.ResponseWriter, code int, format string, args ...any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		fmt.Fprintf(w, format, args...)
	}
	item := func(name string) string {
		return fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"default","resourceVersion":"%d"},"data":{"a":"b"}}`, name, len(name))
	}
	list := func(next string, items ...string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMapList","metadata":{"resourceVersion":"7","continue":%q},"items":[%s]}`, next, strings.Join(items, ","))
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		switch path := r.URL.Path; {
		case path == "/api":
			answer(w, 200, `{"kind":"APIVersions","versions":["v1"]}`)
		case path == "/apis":
			answer(w, 200, `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`)
		case path == "/api/v1":
			answer(w, 200, `{"kind":"APIResourceList","groupVersion":"v1","resources":[
				{"name":"configmaps","kind":"ConfigMap","namespaced":true,"verbs":["list"]},
				{"name":"others","kind":"Other","namespaced":true,"verbs":["list"]}]}`)
		case path == "/api/v1/namespaces":
			answer(w, 200, `{"kind":"NamespaceList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}`)
		case query.Get("continue") == "more":
			answer(w, 410, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","message":"it is too old","code":410}`)
		case query.Get("resourceVersionMatch") == string(metav1.ResourceVersionMatchExact) && query.Get("resourceVersion") == "7":
			answer(w, 200, "%s", list("more", item("one"), item("two")))
		case query.Get("resourceVersion") == "":
			answer(w, 200, "%s", list("", item("one"), item("three"), item("two")))
		default:
			answer(w, 500, `{}`)
		}
	}))
	defer server.Close()

	c, err := Open(t.Context(), &rest.Config{Host: server.URL}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	err = c.Each(t.Context(), func(r *Row) error {
		names = append(names, r.Object)
		if want := map[string]int64{"default/one": 3, "default/two": 8, "default/three": 5}[r.Object]; r.Write == nil || r.Revision != want || !json.Valid(r.Write.Value) {
			t.Errorf("%s: %+v", r.Object, r)
		}
		return nil
	})
	if want := []string{"default/one", "default/two", "default/three"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("it reads %v, %v", names, err)
	}
	if len(c.Unaligned) != 1 || c.Unaligned[0].Resource != "configmaps" || len(c.Unread) != 1 || c.Unread[0].Resource != "others" {
		t.Errorf("unaligned %v, unread %v", c.Unaligned, c.Unread)
	}
}
