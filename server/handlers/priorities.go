package handlers

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

// A group that upstream gives no priority, such as one of custom resources, has the priority that APIServices of custom
// resources get.
const defaultGroupPriority = 1000

// groupPriorities order the built-in groups in discovery, highest first. kubectl resolves a resource name that several
// groups have ("events") to the first of them. The numbers are those of kube-apiserver's APIServices
// (cmd/kube-apiserver/app/aggregator.go).
var groupPriorities = map[string]int{
	"apiregistration.k8s.io":       20000,
	"":                             18000,
	"apps":                         17800,
	"events.k8s.io":                17750,
	"authentication.k8s.io":        17700,
	"authorization.k8s.io":         17600,
	"autoscaling":                  17500,
	"batch":                        17400,
	"certificates.k8s.io":          17300,
	"networking.k8s.io":            17200,
	"policy":                       17100,
	"rbac.authorization.k8s.io":    17000,
	"storage.k8s.io":               16800,
	"admissionregistration.k8s.io": 16700,
	"apiextensions.k8s.io":         16700,
	"scheduling.k8s.io":            16600,
	"coordination.k8s.io":          16500,
	"node.k8s.io":                  16300,
	"discovery.k8s.io":             16200,
	"resource.k8s.io":              16200,
	"flowcontrol.apiserver.k8s.io": 16100,
	"internal.apiserver.k8s.io":    16000,
	"storagemigration.k8s.io":      15800,
}

// groupPriority returns the priority of a group in discovery.
func groupPriority(group string) int {
	if priority, ok := groupPriorities[group]; ok {
		return priority
	}
	return defaultGroupPriority
}

// groupBefore orders groups by priority, then by name.
func groupBefore(a, b metav1.APIGroup) bool {
	if groupPriority(a.Name) != groupPriority(b.Name) {
		return groupPriority(a.Name) > groupPriority(b.Name)
	}
	return a.Name < b.Name
}

// versionBefore orders the versions of a group: stable before beta before alpha, newer before older.
func versionBefore(a, b schema.GroupVersion) bool {
	return version.CompareKubeAwareVersionStrings(a.Version, b.Version) > 0
}
