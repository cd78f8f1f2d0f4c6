package controlplane

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
)

// notHere are flags in the sections of managerFlags that have no effect here: they configure the server or cloud providers, or turn on
// something that the server's informers do not do.
var notHere = []string{
	"allow-untagged-cloud", "cloud-config", "cloud-provider", "cluster-name", "concurrent-service-syncs", "configure-cloud-routes",
	"enable-garbage-collector", "external-cloud-volume-plugin", "namespace-sync-period", "node-sync-period", "root-ca-file",
	"route-reconciliation-period", "service-account-private-key-file", "service-cluster-ip-range",
}

// usedBy has the controllers of flags that differ from those of the rest of their section. An empty list means all controllers.
var usedBy = map[string][]string{
	"flex-volume-plugin-dir": {
		names.PersistentVolumeBinderController, names.PersistentVolumeAttachDetachController, names.PersistentVolumeExpanderController,
	},
	"node-monitor-period":                   {names.NodeLifecycleController},
	"concurrent-serviceaccount-token-syncs": {names.ServiceAccountTokenController},
	"use-service-account-credentials":       nil,
}

// managerFlags returns the flags of kube-controller-manager that have an effect here, bound to the options, and the controllers of each.
func managerFlags(o *options.KubeControllerManagerOptions) (flags *pflag.FlagSet, users map[string][]string) {
	flags, users = pflag.NewFlagSet("", pflag.ContinueOnError), map[string][]string{}
	flags.SetNormalizeFunc(cliflag.WordSepNormalizeFunc) // upstream has a concurrent_rc_syncs
	known, registry := app.KnownControllers(), o.ComponentGlobalsRegistry
	o.ComponentGlobalsRegistry = basecompatibility.NewComponentGlobalsRegistry() // the process has flags for the other one
	sections := o.Flags(known, nil, nil)
	o.ComponentGlobalsRegistry = registry
	// Upstream has these in a section with flags of the program.
	shared := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.KubeCloudShared.AddFlags(shared)
	sections.FlagSets[names.NodeIpamController].AddFlagSet(shared)
	for _, name := range sections.Order {
		if !slices.Contains(known, name) {
			continue
		}
		sections.FlagSets[name].VisitAll(func(f *pflag.Flag) {
			if f.Deprecated != "" || slices.Contains(notHere, f.Name) {
				return
			}
			flags.AddFlag(f)
			users[f.Name] = []string{name}
			if others, ok := usedBy[f.Name]; ok {
				users[f.Name] = others
			}
		})
	}
	return flags, users
}

// unused returns the error for a flag if none of its controllers runs.
func unused(flag string, controllers []string) error {
	needed := "a controller that uses it"
	if len(controllers) > 0 {
		needed = strings.Join(controllers, " or ")
	}
	return fmt.Errorf("--%s has no effect without %s: see --control-plane and --controllers", flag, needed)
}
