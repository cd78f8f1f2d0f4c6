package handlers_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	goruntime "runtime"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/registry/rest"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"

	"github.com/sqube/sqube/server/handlers"
)

// TestEveryKindHasADefinition checks that server-side apply works with every kind that can be enabled: without a definition
// of the kind, field owners could not be recorded.
func TestEveryKindHasADefinition(t *testing.T) {
	featuregatetesting.SetFeatureGatesDuringTest(t, utilfeature.DefaultFeatureGate, featuregatetesting.FeatureOverrides{
		"AllAlpha": true,
		"AllBeta":  true,
	})
	var config handlers.Config
	newAPI(t, options{runtimeConfig: map[string]string{"api/all": "true"}, change: func(c *handlers.Config) { config = *c }})
	seen := 0
	for _, each := range config.Groups {
		group, err := each.Info()
		if err != nil {
			t.Fatal(err)
		}
		for _, version := range group.PrioritizedVersions {
			for path, storage := range group.VersionedResourcesStorageMap[version.Version] {
				if _, connects := storage.(rest.Connecter); connects {
					continue // its kind is made of query parameters
				}
				kind, err := endpoints.GetResourceKind(version, storage, group.Scheme)
				if err != nil {
					t.Fatalf("%s %s: %v", version, path, err)
				}
				if err := convert(config, group.Scheme, kind); err != nil {
					t.Errorf("%s %s: %v", version, path, err)
				}
				seen++
			}
		}
	}
	if seen < 100 {
		t.Errorf("only %d resources were checked", seen)
	}
}

func convert(config handlers.Config, scheme *runtime.Scheme, kind schema.GroupVersionKind) error {
	object, err := scheme.New(kind)
	if err != nil {
		return err
	}
	object.GetObjectKind().SetGroupVersionKind(kind)
	_, err = config.TypeConverter.ObjectToTyped(object)
	return err
}

// TestReadsDecodeNothing counts the allocations of lists and watches. Decoding one of the objects makes over 100; one that stays bytes makes
// a few.
func TestReadsDecodeNothing(t *testing.T) {
	const objects, fields, most = 200, 60, 50
	c := newStoredAPI(t, nil)
	data := make([]string, fields)
	for i := range data {
		data[i] = fmt.Sprintf(`"key-%d":"value-%d"`, i, i)
	}
	for i := range objects {
		c.send("POST", configMaps, asJSON, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m%d"},"data":{%s}}`,
			i, strings.Join(data, ",")), http.StatusCreated, nil)
	}
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ShardedListAndWatch, true)
	shard := "shardSelector=" + url.QueryEscape("shardRange(object.metadata.uid, '0x0000000000000000', '0x10000000000000000')")
	const stream = "?watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
	for _, read := range []struct{ query, accept string }{
		{"", asJSON},
		{"", "application/vnd.kubernetes.protobuf"},
		{"?" + shard, asJSON},
		{stream + "&" + shard, asJSON},
		{stream, asJSON},
		{stream, "application/vnd.kubernetes.protobuf;stream=watch"},
	} {
		var before, after goruntime.MemStats
		c.readTo(read.query, read.accept, "m99") // messages are made once, and kept if the cache has room
		goruntime.ReadMemStats(&before)
		c.readTo(read.query, read.accept, "m99")
		goruntime.ReadMemStats(&after)
		if each := (after.Mallocs - before.Mallocs) / objects; each > most {
			t.Errorf("configmaps%s as %s: %d allocations per object, want at most %d", read.query, read.accept, each, most)
		}
	}
}

// readTo reads config maps until text has arrived.
func (c client) readTo(query, accept, text string) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "GET", c.base+configMaps+query, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Accept", accept)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer answer.Body.Close()
	read, buffer := []byte(nil), make([]byte, 64<<10)
	for !bytes.Contains(read, []byte(text)) {
		n, err := answer.Body.Read(buffer)
		if read = append(read, buffer[:n]...); err != nil && err != io.EOF {
			c.t.Fatal(err)
		} else if err == io.EOF && !bytes.Contains(read, []byte(text)) {
			c.t.Fatalf("%s is not in %.200s", text, read)
		}
	}
}
