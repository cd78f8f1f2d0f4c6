package apiservices

import "k8s.io/apimachinery/pkg/runtime/schema"

// Priority says where a group version stands among all: groups with a higher Group come first, and in a group the
// versions with a higher Version.
type Priority struct {
	Group, Version int32
}

// groupPriority is the priority of a built-in group with those of its versions.
type groupPriority struct {
	group    int32
	versions map[string]int32
}

// builtIn are kube-apiserver's priorities of v1.36 (pkg/controlplane/apiserver/aggregator.go and
// cmd/kube-apiserver/app/aggregator.go), of the versions that release can serve. Where a group stands decides what
// `kubectl get` takes a short name for when several groups have it.
var builtIn = map[string]groupPriority{
	"":                             {18000, map[string]int32{"v1": 1}},
	"apps":                         {17800, map[string]int32{"v1": 15}},
	"events.k8s.io":                {17750, map[string]int32{"v1": 15}},
	"authentication.k8s.io":        {17700, map[string]int32{"v1": 15}},
	"authorization.k8s.io":         {17600, map[string]int32{"v1": 15}},
	"autoscaling":                  {17500, map[string]int32{"v2": 30, "v1": 15}},
	"batch":                        {17400, map[string]int32{"v1": 15}},
	"certificates.k8s.io":          {17300, map[string]int32{"v1": 15, "v1beta1": 9, "v1alpha1": 1}},
	"networking.k8s.io":            {17200, map[string]int32{"v1": 15, "v1beta1": 9}},
	"policy":                       {17100, map[string]int32{"v1": 15}},
	"rbac.authorization.k8s.io":    {17000, map[string]int32{"v1": 15}},
	"storage.k8s.io":               {16800, map[string]int32{"v1": 15, "v1beta1": 9}},
	"apiextensions.k8s.io":         {16700, map[string]int32{"v1": 15}},
	"admissionregistration.k8s.io": {16700, map[string]int32{"v1": 15, "v1beta1": 12, "v1alpha1": 9}},
	"scheduling.k8s.io":            {16600, map[string]int32{"v1": 15, "v1alpha2": 2}},
	"coordination.k8s.io":          {16500, map[string]int32{"v1": 15, "v1beta1": 13, "v1alpha2": 12}},
	"node.k8s.io":                  {16300, map[string]int32{"v1": 15}},
	"discovery.k8s.io":             {16200, map[string]int32{"v1": 15}},
	"resource.k8s.io":              {16200, map[string]int32{"v1": 21, "v1beta2": 15, "v1beta1": 9, "v1alpha3": 1}},
	"flowcontrol.apiserver.k8s.io": {16100, map[string]int32{"v1": 21}},
	"internal.apiserver.k8s.io":    {16000, map[string]int32{"v1alpha1": 9}},
	"storagemigration.k8s.io":      {15800, map[string]int32{"v1beta1": 9}},
}

// PriorityOf returns the priority of a built-in group version; ok is false if it is not one that has an APIService.
// (apiregistration.k8s.io has none: it stands before all others.)
func PriorityOf(gv schema.GroupVersion) (p Priority, ok bool) {
	g := builtIn[gv.Group]
	version, ok := g.versions[gv.Version]
	return Priority{Group: g.group, Version: version}, ok
}
