package surface

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Gate returns a feature gate with its default and its stage: ALPHA, BETA, DEPRECATED, or "" if it is generally available.
func Gate(name string, on bool, stage string) Item {
	if stage == "" {
		stage = "GA"
	}
	return Item{"gate", name, map[string]string{"default": strconv.FormatBool(on), "stage": stage}}
}

// Plugins returns admission plugins, each with the one that runs before it.
func Plugins(inOrder []string, on func(string) bool) []Item {
	var items []Item
	before := "none"
	for _, name := range inOrder {
		items = append(items, Item{"plugin", name, map[string]string{"after": before, "default": onOff(on(name))}})
		before = name
	}
	return items
}

// Controller returns a controller of kube-controller-manager.
func Controller(name string, on bool) Item {
	return Item{"controller", name, map[string]string{"default": onOff(on)}}
}

var check = regexp.MustCompile(`(?m)^\[[+-]\](\S+) `)

// Checks returns the checks in the answer of /healthz, /livez or /readyz to ?verbose.
func Checks(path, answer string) []Item {
	var items []Item
	for _, line := range check.FindAllStringSubmatch(answer, -1) {
		items = append(items, Item{Kind: "health", Name: path + "/" + line[1]})
	}
	return items
}

// Priority returns a group version with its priorities in discovery.
func Priority(group, version string, ofGroup, ofVersion int32) Item {
	return Item{"priority", strings.TrimPrefix(group+"/"+version, "/"), map[string]string{
		"group": strconv.Itoa(int(ofGroup)), "version": strconv.Itoa(int(ofVersion)),
	}}
}

// ClusterRole returns a role, and an item for each right it grants. Those of an aggregated role are the other roles'.
func ClusterRole(role rbacv1.ClusterRole) []Item {
	if role.AggregationRule == nil {
		return rights("", role.ObjectMeta, nil, role.Rules)
	}
	var selectors []string
	for _, selector := range role.AggregationRule.ClusterRoleSelectors {
		selectors = append(selectors, metav1.FormatLabelSelector(&selector))
	}
	return rights("", role.ObjectMeta, map[string]string{"aggregates": list(selectors)}, nil)
}

// Role is ClusterRole for a role in a namespace.
func Role(role rbacv1.Role) []Item { return rights(role.Namespace, role.ObjectMeta, nil, role.Rules) }

func rights(namespace string, role metav1.ObjectMeta, fields map[string]string, rules []rbacv1.PolicyRule) []Item {
	name := strings.TrimPrefix(namespace+"/"+role.Name, "/")
	fields = described(fields, role)
	verbs := map[string][]string{}
	for _, rule := range rules {
		what := slices.Clone(rule.NonResourceURLs)
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				resource = strings.TrimPrefix(group+"/"+resource, "/")
				for _, object := range rule.ResourceNames {
					what = append(what, resource+":"+object)
				}
				if len(rule.ResourceNames) == 0 {
					what = append(what, resource)
				}
			}
		}
		for _, on := range what {
			verbs[on] = append(verbs[on], rule.Verbs...)
		}
	}
	items := []Item{{"role", name, fields}}
	for _, on := range slices.Sorted(maps.Keys(verbs)) {
		slices.Sort(verbs[on])
		items = append(items, Item{"right", name + " " + on, map[string]string{"verbs": list(slices.Compact(verbs[on]))}})
	}
	return items
}

// Binding returns a binding of a role, of the cluster if namespace is "".
func Binding(namespace string, binding metav1.ObjectMeta, role rbacv1.RoleRef, subjects []rbacv1.Subject) Item {
	var names []string
	for _, s := range subjects {
		names = append(names, strings.TrimPrefix(s.Kind+" "+strings.TrimPrefix(s.Namespace+"/"+s.Name, "/"), " "))
	}
	fields := described(map[string]string{"role": role.Kind + " " + role.Name, "subjects": list(names)}, binding)
	return Item{"binding", strings.TrimPrefix(namespace+"/"+binding.Name, "/"), fields}
}

// described adds the labels and annotations of an object, if there are any.
func described(fields map[string]string, object metav1.ObjectMeta) map[string]string {
	if fields == nil {
		fields = map[string]string{}
	}
	for name, values := range map[string]map[string]string{"labels": object.Labels, "annotations": object.Annotations} {
		var pairs []string
		for key, value := range values {
			pairs = append(pairs, key+"="+value)
		}
		if len(pairs) > 0 {
			fields[name] = list(pairs)
		}
	}
	return fields
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// OnRequest returns what is there only with everything turned on, or differs then, as items of another kind.
func OnRequest(byDefault, all []Item) []Item {
	known := Index(byDefault)
	var items []Item
	for _, i := range all {
		if usual, found := known[i.Title()]; !found || len(Differing(usual, i)) > 0 {
			i.Kind += "-on-request"
			items = append(items, i)
		}
	}
	return items
}
