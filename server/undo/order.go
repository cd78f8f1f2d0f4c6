package undo

import (
	"cmp"
	"slices"
)

// ranks are the groups of resources that others need, in the order in which they are created. Custom resources come behind all
// that are named, except the last.
var ranks = [][]string{
	{"namespaces"},
	{"customresourcedefinitions.apiextensions.k8s.io"},
	{"priorityclasses.scheduling.k8s.io", "runtimeclasses.node.k8s.io", "storageclasses.storage.k8s.io", "csidrivers.storage.k8s.io", "ingressclasses.networking.k8s.io", "volumeattributesclasses.storage.k8s.io"},
	{"serviceaccounts"},
	{"clusterroles.rbac.authorization.k8s.io", "roles.rbac.authorization.k8s.io"},
	{"clusterrolebindings.rbac.authorization.k8s.io", "rolebindings.rbac.authorization.k8s.io"},
	{"resourcequotas", "limitranges"},
	{"secrets", "configmaps"},
	{"persistentvolumes"},
	{"persistentvolumeclaims"},
	{"services"},
	{"networkpolicies.networking.k8s.io", "poddisruptionbudgets.policy"},
	{"pods", "replicationcontrollers", "replicasets.apps", "deployments.apps", "statefulsets.apps", "daemonsets.apps", "jobs.batch", "cronjobs.batch"},
	{}, // all others
	{"horizontalpodautoscalers.autoscaling", "ingresses.networking.k8s.io"},
	{"apiservices.apiregistration.k8s.io"},
	{"validatingadmissionpolicies.admissionregistration.k8s.io", "mutatingadmissionpolicies.admissionregistration.k8s.io"},
	{"validatingadmissionpolicybindings.admissionregistration.k8s.io", "mutatingadmissionpolicybindings.admissionregistration.k8s.io",
		"validatingwebhookconfigurations.admissionregistration.k8s.io", "mutatingwebhookconfigurations.admissionregistration.k8s.io"},
}

func (k key) rank() int {
	if i := slices.IndexFunc(ranks, func(resources []string) bool { return slices.Contains(resources, k.full()) }); i >= 0 {
		return i
	}
	return slices.IndexFunc(ranks, func(resources []string) bool { return len(resources) == 0 })
}

// order sorts steps: what is created before what needs it, owners before what they own; then what is put back; then what is deleted, in
// the opposite order of creation; then what is left.
func order(steps []Step) []Step {
	stage := map[Action]int{Create: 0, Update: 1, Delete: 2, Leave: 3}
	slices.SortStableFunc(steps, func(a, b Step) int {
		x, y := a.work.key, b.work.key
		ranks := cmp.Compare(x.rank(), y.rank())
		if a.Action == Delete {
			ranks = -ranks
		}
		return cmp.Or(cmp.Compare(stage[a.Action], stage[b.Action]), ranks,
			cmp.Compare(x.namespace, y.namespace), cmp.Compare(x.group, y.group), cmp.Compare(x.resource, y.resource), cmp.Compare(x.name, y.name))
	})
	byUID := map[string]int{}
	for i, s := range steps {
		if s.Action == Create {
			byUID[s.work.uid] = i
		}
	}
	ordered := make([]Step, 0, len(steps))
	placed := make([]bool, len(steps))
	var place func(int)
	place = func(i int) {
		if placed[i] {
			return
		}
		placed[i] = true
		if steps[i].Action == Create {
			for _, owner := range steps[i].work.owners {
				if at, ok := byUID[string(owner.UID)]; ok {
					place(at)
				}
			}
		}
		ordered = append(ordered, steps[i])
	}
	for i := range steps {
		place(i)
	}
	return ordered
}
