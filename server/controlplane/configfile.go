package controlplane

import (
	"fmt"
	"os"
	"reflect"
	"slices"

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

// readManagerConfig reads a KubeControllerManagerConfiguration. Missing fields get the values of defaults, which include those of
// flags. Unknown fields are errors.
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

// apply copies the controllers' settings into the options, which have a field for each section, with the section embedded.
func apply(config *managerconfig.KubeControllerManagerConfiguration, o *options.KubeControllerManagerOptions) {
	to := reflect.ValueOf(o).Elem()
	others := []string{"Generic", "ServiceController"} // of the program, and of cloud providers
	for section, settings := range reflect.ValueOf(config).Elem().Fields() {
		if option := to.FieldByName(section.Name); option.IsValid() && !slices.Contains(others, section.Name) {
			option.Elem().FieldByName(section.Type.Name()).Elem().Set(settings)
		}
	}
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
