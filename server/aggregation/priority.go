package aggregation

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/kubernetes/pkg/controlplane/apiserver"
)

// builtIn has the priorities of the built-in group versions in discovery, from kube-apiserver v1.36: those that it exports and those
// that it does not (cmd/kube-apiserver/app/aggregator.go). If several groups have a resource name, `kubectl get` uses the group
// with the highest priority. (apiregistration.k8s.io has no APIService: it comes before all others.)
var builtIn = func() map[schema.GroupVersion]apiserver.APIServicePriority {
	all := apiserver.DefaultGenericAPIServicePriorities()
	for group, p := range map[string]struct {
		group    int32
		versions map[string]int32
	}{
		"apps":              {17800, map[string]int32{"v1": 15}},
		"autoscaling":       {17500, map[string]int32{"v2": 30, "v1": 15}},
		"batch":             {17400, map[string]int32{"v1": 15}},
		"networking.k8s.io": {17200, map[string]int32{"v1": 15, "v1beta1": 9}},
		"policy":            {17100, map[string]int32{"v1": 15}},
		"storage.k8s.io":    {16800, map[string]int32{"v1": 15, "v1beta1": 9}},
		"scheduling.k8s.io": {16600, map[string]int32{"v1": 15, "v1alpha2": 2}},
		"node.k8s.io":       {16300, map[string]int32{"v1": 15}},
		"resource.k8s.io":   {16200, map[string]int32{"v1": 21, "v1beta2": 15, "v1beta1": 9, "v1alpha3": 1}},
	} {
		for version, priority := range p.versions {
			all[schema.GroupVersion{Group: group, Version: version}] = apiserver.APIServicePriority{Group: p.group, Version: priority}
		}
	}
	return all
}()

// prioritize sets the priorities of the built-in group versions.
func prioritize(discovery aggregated.ResourceManager) {
	for gv, p := range builtIn {
		discovery.SetGroupVersionPriority(metav1.GroupVersion(gv), int(p.Group), int(p.Version))
	}
}
