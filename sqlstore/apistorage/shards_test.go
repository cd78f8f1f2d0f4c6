package apistorage_test

import (
	"bytes"
	"encoding/json"
	"io"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"

	"github.com/sqube/sqube/sqlstore/apistorage"
	"github.com/sqube/sqube/test/engines"
)

// TestListsNameTheirShard lists a shard as objects and as bytes.
func TestListsNameTheirShard(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ShardedListAndWatch, true)
	f := newFixture(t, engines.SQLite)
	pod := &example.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "u"}}
	if err := f.Create(t.Context(), "/pods/ns/a", pod, nil, 0); err != nil {
		t.Fatal(err)
	}
	opts := storage.ListOptions{Recursive: true, Predicate: storage.Everything}
	opts.Predicate.ShardSelector = sharding.NewSelector(sharding.ShardRangeRequirement{
		Key: "object.metadata.uid", Start: "0x0000000000000000", End: "0x10000000000000000",
	})
	kind := metav1.TypeMeta{Kind: "Pod", APIVersion: "example.apiserver.k8s.io/v1"}
	objects, raw := &example.PodList{}, &apistorage.RawList{TypeMeta: kind, Item: kind}
	if err := f.GetList(t.Context(), "/pods", opts, objects); err != nil {
		t.Fatal(err)
	}
	if err := f.GetList(t.Context(), "/pods", opts, raw); err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	encode := func(obj runtime.Object, w io.Writer) error { return json.NewEncoder(w).Encode(obj) }
	if err := raw.CacheEncode("", encode, &text); err != nil {
		t.Fatal(err)
	}
	var read metav1.PartialObjectMetadataList
	if err := json.Unmarshal(text.Bytes(), &read); err != nil {
		t.Fatal(err)
	}
	want := opts.Predicate.ShardSelector.String()
	for of, list := range map[string]metav1.ListMeta{"objects": objects.ListMeta, "bytes": read.ListMeta} {
		if list.ShardInfo == nil || list.ShardInfo.Selector != want {
			t.Errorf("the list of %s has the shard %v, want %q", of, list.ShardInfo, want)
		}
	}
	if len(objects.Items) != 1 || len(read.Items) != 1 {
		t.Errorf("the lists have %d and %d items, want 1", len(objects.Items), len(read.Items))
	}
}
