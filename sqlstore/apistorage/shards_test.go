package apistorage_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"

	"github.com/sqube/sqube/sqlstore/apistorage"
	"github.com/sqube/sqube/test/engines"
	"github.com/sqube/sqube/test/harness"
)

// TestListsNameTheirShard lists a shard as objects and as bytes.
func TestListsNameTheirShard(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ShardedListAndWatch, true)
	f := newFixture(t, engines.SQLite)
	pod := &example.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "u"}}
	harness.Must(t, f.Create(t.Context(), "/pods/ns/a", pod, nil, 0))
	opts := storage.ListOptions{Recursive: true, Predicate: storage.Everything}
	opts.Predicate.ShardSelector = sharding.NewSelector(sharding.ShardRangeRequirement{
		Key: "object.metadata.uid", Start: "0x0000000000000000", End: "0x10000000000000000",
	})
	kind := metav1.TypeMeta{Kind: "Pod", APIVersion: "example.apiserver.k8s.io/v1"}
	objects, raw := &example.PodList{}, &apistorage.RawList{TypeMeta: kind, Item: kind}
	harness.Must(t, f.GetList(t.Context(), "/pods", opts, objects))
	harness.Must(t, f.GetList(t.Context(), "/pods", opts, raw))
	var text bytes.Buffer
	encode := func(obj runtime.Object, w io.Writer) error { return json.NewEncoder(w).Encode(obj) }
	harness.Must(t, raw.CacheEncode("", encode, &text))
	var read metav1.PartialObjectMetadataList
	harness.Must(t, json.Unmarshal(text.Bytes(), &read))
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

// TestShardsDivideObjects checks that each object, and each change of it, is in one of two shards.
func TestShardsDivideObjects(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ShardedListAndWatch, true)
	f := newFixture(t, engines.SQLite)
	const middle = "0x8000000000000000"
	for _, key := range []string{"object.metadata.uid", "object.metadata.namespace"} {
		prefix := key[len("object.metadata."):]
		shards := []storage.ListOptions{
			{Recursive: true, Predicate: storage.Everything, ResourceVersion: "0"}, {Recursive: true, Predicate: storage.Everything, ResourceVersion: "0"},
		}
		shards[0].Predicate.ShardSelector = sharding.NewSelector(sharding.ShardRangeRequirement{Key: key, Start: "0x0000000000000000", End: middle})
		shards[1].Predicate.ShardSelector = sharding.NewSelector(sharding.ShardRangeRequirement{Key: key, Start: middle, End: "0x10000000000000000"})
		want := []map[string]bool{{}, {}}
		for i := range 20 {
			name := fmt.Sprintf("n%d-with-its-own-%s", i, prefix) // the hash spreads what follows a difference
			pod := &example.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name, UID: types.UID(name)}}
			harness.Must(t, f.Create(t.Context(), "/pods/"+name+"/"+name, pod, nil, 0))
		}
		var all example.PodList
		harness.Must(t, f.GetList(t.Context(), "/pods", storage.ListOptions{Recursive: true, Predicate: storage.Everything}, &all))
		for _, pod := range all.Items {
			matches, err := shards[1].Predicate.Matches(&pod)
			harness.Must(t, err)
			want[map[bool]int{true: 1}[matches]][pod.Name] = true
		}
		for i, opts := range shards {
			var list example.PodList
			harness.Must(t, f.GetList(t.Context(), "/pods", opts, &list))
			got := map[string]bool{}
			for _, pod := range list.Items {
				got[pod.Name] = true
			}
			if len(want[i]) < 2 || !maps.Equal(got, want[i]) {
				t.Errorf("by %s, shard %d lists %v, want %v", key, i, got, want[i])
			}
			events, err := f.Watch(t.Context(), "/pods", opts)
			harness.Must(t, err)
			clear(got)
			for range want[i] {
				got[(<-events.ResultChan()).Object.(interface{ GetObject() runtime.Object }).GetObject().(*example.Pod).Name] = true
			}
			if !maps.Equal(got, want[i]) {
				t.Errorf("by %s, shard %d watches %v, want %v", key, i, got, want[i])
			}
			events.Stop()
		}
	}
}
