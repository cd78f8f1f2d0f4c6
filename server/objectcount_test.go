package server

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/component-base/metrics"
)

// TestForgottenWhileCounting deletes the definition of a resource while its objects are counted: the metric must not come back.
func TestForgottenWhileCounting(t *testing.T) {
	registry := metrics.NewKubeRegistry()
	registry.MustRegister(objectCountMetric)
	c := newObjectCounter()
	resource := schema.GroupResource{Group: "example.com", Resource: "widgets"}
	made := struct{ storage.Interface }{}
	c.storages[resource] = made
	for _, test := range []struct {
		step    func()
		metrics int
	}{
		{func() { c.report(resource, made, 3) }, 1},
		{func() { c.forget(resource, made); c.report(resource, made, 3) }, 0},
	} {
		test.step()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		if len(families) != test.metrics {
			t.Errorf("%d metrics, want %d: %v", len(families), test.metrics, families)
		}
	}
}
