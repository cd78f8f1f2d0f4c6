package surface

import (
	"slices"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Resources returns the resources and subresources in aggregated discovery.
func Resources(groups []apidiscoveryv2.APIGroupDiscovery) []Item {
	var items []Item
	for _, group := range groups {
		for _, version := range group.Versions {
			gv := strings.TrimPrefix(group.Name+"/"+version.Version, "/")
			for _, r := range version.Resources {
				items = append(items, resource(gv, r.Resource, r.ResponseKind, r.Verbs, map[string]string{
					"scope": string(r.Scope), "short": list(r.ShortNames), "categories": list(r.Categories), "singular": r.SingularResource,
				}))
				for _, s := range r.Subresources {
					items = append(items, resource(gv, r.Resource+"/"+s.Subresource, s.ResponseKind, s.Verbs, nil))
				}
			}
		}
	}
	return items
}

func resource(gv, name string, kind *metav1.GroupVersionKind, verbs []string, more map[string]string) Item {
	fields := map[string]string{"verbs": list(verbs)}
	if kind != nil {
		fields["kind"] = strings.TrimPrefix(kind.Group+"/"+kind.Version+" "+kind.Kind, "/ ")
	}
	for field, value := range more {
		if value != "" {
			fields[field] = value
		}
	}
	return Item{"resource", gv + " " + name, fields}
}

// list returns a value that is a set.
func list(values []string) string { return strings.Join(slices.Sorted(slices.Values(values)), ",") }
