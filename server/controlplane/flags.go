package controlplane

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
)

// notHere are flags in the sections of managerFlags without effect here: they configure the server or cloud providers, or switch on what
// the server's informers do not do.
var notHere = []string{
	"allow-untagged-cloud", "cloud-config", "cloud-provider", "cluster-name", "configure-cloud-routes", "enable-garbage-collector",
	"external-cloud-volume-plugin", "namespace-sync-period", "node-sync-period", "root-ca-file", "route-reconciliation-period",
	"service-account-private-key-file", "service-cluster-ip-range",
}

// usedBy has the controllers of flags that are for other controllers than the rest of their section. An empty list means all controllers
// except those of package controllers.
var usedBy = map[string][]string{
	"flex-volume-plugin-dir": {
		names.PersistentVolumeBinderController, names.PersistentVolumeAttachDetachController, names.PersistentVolumeExpanderController,
	},
	"node-monitor-period":             {names.NodeLifecycleController},
	"use-service-account-credentials": nil,
}

// managerFlags returns the flags of kube-controller-manager that have an effect here, bound to the options, and the controllers of each.
func managerFlags(o *options.KubeControllerManagerOptions) (flags *pflag.FlagSet, users map[string][]string) {
	flags, users = pflag.NewFlagSet("", pflag.ContinueOnError), map[string][]string{}
	flags.SetNormalizeFunc(cliflag.WordSepNormalizeFunc) // upstream has a concurrent_rc_syncs
	for _, section := range []struct {
		of         interface{ AddFlags(*pflag.FlagSet) }
		controller string
	}{
		{o.KubeCloudShared, names.NodeIpamController},
		{o.AttachDetachController, names.PersistentVolumeAttachDetachController},
		{o.CSRSigningController, names.CertificateSigningRequestSigningController},
		{o.CronJobController, names.CronJobController},
		{o.DaemonSetController, names.DaemonSetController},
		{o.DeploymentController, names.DeploymentController},
		{o.DeviceTaintEvictionController, names.DeviceTaintEvictionController},
		{o.EndpointController, names.EndpointsController},
		{o.EndpointSliceController, names.EndpointSliceController},
		{o.EndpointSliceMirroringController, names.EndpointSliceMirroringController},
		{o.EphemeralVolumeController, names.EphemeralVolumeController},
		{o.GarbageCollectorController, names.GarbageCollectorController},
		{o.HPAController, names.HorizontalPodAutoscalerController},
		{o.JobController, names.JobController},
		{o.LegacySATokenCleaner, names.LegacyServiceAccountTokenCleanerController},
		{o.NamespaceController, names.NamespaceController},
		{o.NodeIPAMController, names.NodeIpamController},
		{o.NodeLifecycleController, names.NodeLifecycleController},
		{o.PersistentVolumeBinderController, names.PersistentVolumeBinderController},
		{o.PodGCController, names.PodGarbageCollectorController},
		{o.ReplicaSetController, names.ReplicaSetController},
		{o.ReplicationController, names.ReplicationControllerController},
		{o.ResourceClaimController, names.ResourceClaimController},
		{o.ResourceQuotaController, names.ResourceQuotaController},
		{o.SAController, names.ServiceAccountTokenController},
		{o.StatefulSetController, names.StatefulSetController},
		{o.TTLAfterFinishedController, names.TTLAfterFinishedController},
		{o.ValidatingAdmissionPolicyStatusController, names.ValidatingAdmissionPolicyStatusController},
	} {
		all := pflag.NewFlagSet("", pflag.ContinueOnError)
		section.of.AddFlags(all)
		all.VisitAll(func(f *pflag.Flag) {
			if f.Deprecated != "" || slices.Contains(notHere, f.Name) {
				return
			}
			flags.AddFlag(f)
			users[f.Name] = []string{section.controller}
			if others, ok := usedBy[f.Name]; ok {
				users[f.Name] = others
			}
		})
	}
	return flags, users
}

// unused returns the error for a flag if none of its controllers runs.
func unused(flag string, controllers []string) error {
	needed := "a controller that it is for"
	if len(controllers) > 0 {
		needed = strings.Join(controllers, " or ")
	}
	return fmt.Errorf("--%s has no effect without %s: see --control-plane and --controllers", flag, needed)
}
