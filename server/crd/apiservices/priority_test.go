package apiservices

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/controlplane/apiserver"
)

// TestPrioritiesAreUpstreams compares with the part of kube-apiserver's table that it exports.
func TestPrioritiesAreUpstreams(t *testing.T) {
	upstream := apiserver.DefaultGenericAPIServicePriorities()
	compared := 0
	for group, priorities := range builtIn {
		for version, priority := range priorities.versions {
			gv := schema.GroupVersion{Group: group, Version: version}
			want, ok := upstream[gv]
			if !ok || group == "resource.k8s.io" { // whose exported priority kube-apiserver overrides
				continue
			}
			compared++
			if want.Group != priorities.group || want.Version != priority {
				t.Errorf("%s: %d, %d; upstream has %+v", gv, priorities.group, priority, want)
			}
		}
	}
	if compared < 15 {
		t.Errorf("compared only %d priorities", compared)
	}
}

func TestWhatHasNoPriority(t *testing.T) {
	for _, gv := range []schema.GroupVersion{{Group: "example.com", Version: "v1"}, {Group: "apps", Version: "v9"}, {Group: "apiregistration.k8s.io", Version: "v1"}} {
		if p, ok := PriorityOf(gv); ok {
			t.Errorf("%s has %+v", gv, p)
		}
	}
}
