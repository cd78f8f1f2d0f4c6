package controlplane

import (
	"fmt"
	"os"

	"k8s.io/klog/v2"
	managerv1alpha1 "k8s.io/kube-controller-manager/config/v1alpha1"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	scheduleroptions "k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	managerconfig "k8s.io/kubernetes/pkg/controller/apis/config"
	managerscheme "k8s.io/kubernetes/pkg/controller/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/validation"
	"sigs.k8s.io/yaml"
)

// readManagerConfig reads a KubeControllerManagerConfiguration. Missing fields are as in defaults, which include those of flags. Unknown
// fields are errors.
func readManagerConfig(path string, defaults *managerconfig.KubeControllerManagerConfiguration) (*managerconfig.KubeControllerManagerConfiguration, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	versioned := &managerv1alpha1.KubeControllerManagerConfiguration{}
	if err := managerscheme.Scheme.Convert(defaults, versioned, nil); err != nil {
		return nil, err
	}
	if err := yaml.UnmarshalStrict(data, versioned); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	const kind = "KubeControllerManagerConfiguration"
	if versioned.Kind != kind || versioned.APIVersion != managerv1alpha1.SchemeGroupVersion.String() {
		return nil, fmt.Errorf("%s: must be a %s of %s", path, kind, managerv1alpha1.SchemeGroupVersion)
	}
	config := &managerconfig.KubeControllerManagerConfiguration{}
	if err := managerscheme.Scheme.Convert(versioned, config, nil); err != nil {
		return nil, err
	}
	return config, nil
}

// apply puts what the file says of the controllers that run here into the options.
func apply(config *managerconfig.KubeControllerManagerConfiguration, o *options.KubeControllerManagerOptions) {
	*o.KubeCloudShared.KubeCloudSharedConfiguration = config.KubeCloudShared
	*o.AttachDetachController.AttachDetachControllerConfiguration = config.AttachDetachController
	*o.CSRSigningController.CSRSigningControllerConfiguration = config.CSRSigningController
	*o.CronJobController.CronJobControllerConfiguration = config.CronJobController
	*o.DaemonSetController.DaemonSetControllerConfiguration = config.DaemonSetController
	*o.DeploymentController.DeploymentControllerConfiguration = config.DeploymentController
	*o.DeviceTaintEvictionController.DeviceTaintEvictionControllerConfiguration = config.DeviceTaintEvictionController
	*o.EndpointController.EndpointControllerConfiguration = config.EndpointController
	*o.EndpointSliceController.EndpointSliceControllerConfiguration = config.EndpointSliceController
	*o.EndpointSliceMirroringController.EndpointSliceMirroringControllerConfiguration = config.EndpointSliceMirroringController
	*o.EphemeralVolumeController.EphemeralVolumeControllerConfiguration = config.EphemeralVolumeController
	*o.GarbageCollectorController.GarbageCollectorControllerConfiguration = config.GarbageCollectorController
	*o.HPAController.HPAControllerConfiguration = config.HPAController
	*o.JobController.JobControllerConfiguration = config.JobController
	*o.LegacySATokenCleaner.LegacySATokenCleanerConfiguration = config.LegacySATokenCleaner
	*o.NamespaceController.NamespaceControllerConfiguration = config.NamespaceController
	*o.NodeIPAMController.NodeIPAMControllerConfiguration = config.NodeIPAMController
	*o.NodeLifecycleController.NodeLifecycleControllerConfiguration = config.NodeLifecycleController
	*o.PersistentVolumeBinderController.PersistentVolumeBinderControllerConfiguration = config.PersistentVolumeBinderController
	*o.PodGCController.PodGCControllerConfiguration = config.PodGCController
	*o.ReplicaSetController.ReplicaSetControllerConfiguration = config.ReplicaSetController
	*o.ReplicationController.ReplicationControllerConfiguration = config.ReplicationController
	*o.ResourceClaimController.ResourceClaimControllerConfiguration = config.ResourceClaimController
	*o.ResourceQuotaController.ResourceQuotaControllerConfiguration = config.ResourceQuotaController
	*o.SAController.SAControllerConfiguration = config.SAController
	*o.StatefulSetController.StatefulSetControllerConfiguration = config.StatefulSetController
	*o.TTLAfterFinishedController.TTLAfterFinishedControllerConfiguration = config.TTLAfterFinishedController
	*o.ValidatingAdmissionPolicyStatusController.ValidatingAdmissionPolicyStatusControllerConfiguration = config.ValidatingAdmissionPolicyStatusController
}

// completeScheduler reads the scheduler's configuration, or takes upstream's default.
func (o *Options) completeScheduler() (err error) {
	if o.schedulerFile == "" {
		o.scheduler, err = latest.Default()
		return err
	}
	if o.scheduler, err = scheduleroptions.LoadConfigFromFile(klog.Background(), o.schedulerFile); err != nil {
		return fmt.Errorf("--scheduler-config: %w", err)
	}
	if err := validation.ValidateKubeSchedulerConfiguration(o.scheduler); err != nil {
		return fmt.Errorf("--scheduler-config: %s: %w", o.schedulerFile, err)
	}
	return nil
}
