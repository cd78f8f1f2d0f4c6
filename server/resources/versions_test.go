package resources

import (
	"testing"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kubernetes/pkg/controlplane"
)

// TestDefaultVersionsAreUpstreams checks that the versions that are enabled by default are those in kube-apiserver's list.
func TestDefaultVersionsAreUpstreams(t *testing.T) {
	ours := DefaultVersions()
	for version, enabled := range controlplane.DefaultAPIResourceConfigSource().GroupVersionConfigs {
		if got := ours.GroupVersionConfigs[version]; got != enabled {
			t.Errorf("%s: enabled %t, upstream %t", version, got, enabled)
		}
	}
	for _, version := range []schema.GroupVersion{apiregistration.SchemeGroupVersion, apiextensions.SchemeGroupVersion} {
		if !ours.GroupVersionConfigs[version] {
			t.Errorf("%s is not enabled", version)
		}
	}
}
