package everykind

import (
	"context"
	"regexp"
	"slices"

	"k8s.io/client-go/discovery"
)

// Offer is what a server offers.
type Offer struct {
	// Resources are those with their verbs, such as "apps/v1 deployments [create delete …]", sorted.
	Resources []string
	Gates     map[string]bool // whether each feature gate is on
}

var gate = regexp.MustCompile(`(?m)^kubernetes_feature_enabled\{name="(\w+)",.*\} ([01])$`)

// Offer returns what the server offers.
func (f *Filler) Offer(ctx context.Context) (o Offer, err error) {
	_, all, err := f.Client.Discovery().ServerGroupsAndResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return o, err
	}
	for _, version := range all {
		for _, resource := range version.APIResources {
			o.Resources = append(o.Resources, version.GroupVersion+" "+resource.Name+" "+resource.Verbs.String())
		}
	}
	slices.Sort(o.Resources)
	metrics, err := f.Client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return o, err
	}
	o.Gates = map[string]bool{}
	for _, found := range gate.FindAllSubmatch(metrics, -1) {
		o.Gates[string(found[1])] = string(found[2]) == "1"
	}
	return o, nil
}
