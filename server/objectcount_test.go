package server

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
	etcd3metrics "k8s.io/apiserver/pkg/storage/etcd3/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

type counted struct {
	storage.Interface
	_ int // so that two are not at the same address
}

// TestForgottenWhileCounting deletes the definition of a resource while its objects are counted: the metric must not come back.
func TestForgottenWhileCounting(t *testing.T) {
	etcd3metrics.Register()
	c := newObjectCounter()
	resource := schema.GroupResource{Group: "example.com", Resource: "widgets"}
	made, other := &counted{}, &counted{}
	c.storages[resource] = []storage.Interface{made, other}
	for _, test := range []struct {
		step    func()
		metrics int
	}{
		{func() { c.report(resource, made, storage.Stats{ObjectCount: 3}, nil) }, 1},
		{func() { c.forget(resource, other) }, 1},
		{func() { c.forget(resource, made); c.report(resource, made, storage.Stats{ObjectCount: 3}, nil) }, 0},
	} {
		test.step()
		families, err := legacyregistry.DefaultGatherer.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"apiserver_resource_objects", "apiserver_storage_objects", "apiserver_resource_size_estimate_bytes"} {
			found := 0
			for _, family := range families {
				if family.GetName() == name {
					found = len(family.GetMetric())
				}
			}
			if found != test.metrics {
				t.Errorf("%s has %d values, want %d", name, found, test.metrics)
			}
		}
	}
}
