package controllers

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	managerv1alpha1 "k8s.io/kube-controller-manager/config/v1alpha1"
	managerconfig "k8s.io/kubernetes/pkg/controller/apis/config"
	managerscheme "k8s.io/kubernetes/pkg/controller/apis/config/scheme"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
)

// Settings are kube-controller-manager's settings, from flags or its configuration file.
type Settings = managerconfig.KubeControllerManagerConfiguration

// DefaultSettings returns kube-controller-manager's defaults, with a service account for each controller as in a kubeadm cluster.
func DefaultSettings() (*Settings, error) {
	versioned, settings := &managerv1alpha1.KubeControllerManagerConfiguration{}, &Settings{}
	managerscheme.Scheme.Default(versioned)
	for resource := range garbagecollector.DefaultIgnoredResources() {
		collector := &versioned.GarbageCollectorController
		collector.GCIgnoredResources = append(collector.GCIgnoredResources,
			managerv1alpha1.GroupResource{Group: resource.Group, Resource: resource.Resource})
	}
	if err := managerscheme.Scheme.Convert(versioned, settings, nil); err != nil {
		return nil, err
	}
	settings.KubeCloudShared.UseServiceAccountCredentials = true
	return settings, nil
}

// ignoredResources are the resources whose objects the garbage collector ignores.
func (c Config) ignoredResources() map[schema.GroupResource]struct{} {
	ignored := map[schema.GroupResource]struct{}{}
	for _, resource := range c.Settings.GarbageCollectorController.GCIgnoredResources {
		ignored[schema.GroupResource{Group: resource.Group, Resource: resource.Resource}] = struct{}{}
	}
	return ignored
}
