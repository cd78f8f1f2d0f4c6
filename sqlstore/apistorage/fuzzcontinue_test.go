package apistorage_test

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/apitesting"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/apis/example"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
	"k8s.io/apiserver/pkg/storage"

	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/apistorage"
	"github.com/sqube/sqube/sqlstore/storetest"
	"github.com/sqube/sqube/test/engines"
)

// FuzzContinue compares lists continued from any token with upstream's decoder of that token: they have the keys from there on,
// in a finite number of pages.
func FuzzContinue(f *testing.F) {
	for _, start := range []string{"a", "b\x00", "/b", "/", "ns/b\x00", "..", "a/../b", "\x00", "b\x00\x00", "\xff", "é", "zz", "ns/", "a\x00b"} {
		text, err := json.Marshal(map[string]any{"v": "meta.k8s.io/v1", "rv": -1, "start": start})
		if err != nil {
			f.Fatal(err)
		}
		for _, limit := range []int64{0, 1, 2} {
			f.Add(base64.RawURLEncoding.EncodeToString(text), "/pods", limit)
			f.Add(base64.RawURLEncoding.EncodeToString(text), "/pods/ns", limit)
		}
	}
	f.Add("***", "/pods", int64(1))
	store := storetest.Open(f, engines.SQLite, sqlstore.Options{})
	s, err := apistorage.New(store, apistorage.Config{
		GroupResource: schema.GroupResource{Resource: "pods"}, Prefix: "/pods", Codec: apitesting.TestCodec(codecs, examplev1.SchemeGroupVersion),
		NewObject: func() runtime.Object { return &example.Pod{} }, NewList: func() runtime.Object { return &example.PodList{} },
	})
	if err != nil {
		f.Fatal(err)
	}
	var keys []string
	for _, key := range []string{"/pods/a", "/pods/ns/a", "/pods/ns/b", "/pods/ns/b-c", "/pods/ns/é", "/pods/ns2/b", "/pods/z"} {
		pod := &example.Pod{ObjectMeta: metav1.ObjectMeta{Name: key[strings.LastIndex(key, "/")+1:], Annotations: map[string]string{"key": key}}}
		if err := s.Create(f.Context(), key, pod, nil, 0); err != nil {
			f.Fatal(err)
		}
		keys = append(keys, key)
	}
	slices.Sort(keys)
	f.Fuzz(func(t *testing.T, token, under string, limit int64) {
		if under != "/pods" && under != "/pods/ns" || limit < 0 || token == "" {
			return // not a valid request
		}
		from, revision, err := storage.DecodeContinue(token, under+"/")
		if err == nil && revision > 0 {
			return // which revisions are kept is not tested here
		}
		var want, got []string
		for _, key := range keys {
			if strings.HasPrefix(key, under+"/") && key >= from {
				want = append(want, key)
			}
		}
		for pages := 0; token != ""; pages++ {
			list := &example.PodList{}
			predicate := storage.Everything
			predicate.Limit, predicate.Continue = limit, token
			failed := s.GetList(t.Context(), under, storage.ListOptions{Recursive: true, Predicate: predicate}, list)
			if failed != nil {
				if err == nil && !strings.Contains(from, "\x00") && strings.ToValidUTF8(from, "") == from || !apierrors.IsBadRequest(failed) {
					t.Errorf("%q from %q: %v", token, from, failed)
				}
				return
			}
			for _, item := range list.Items {
				got = append(got, item.Annotations["key"])
			}
			if token = list.Continue; pages > len(keys) {
				t.Fatalf("the pages do not end; so far they have %q", got)
			}
		}
		if err != nil {
			t.Errorf("%v, but the list returned %q", err, got)
		}
		if !slices.Equal(got, want) {
			t.Errorf("the list from %q has %q instead of %q", from, got, want)
		}
	})
}
