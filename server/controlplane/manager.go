package controlplane

import (
	"context"
	"maps"
	"os"
	"slices"

	controllersmetrics "k8s.io/component-base/metrics/prometheus/controllers"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"

	"github.com/sqube/sqube/server/controllers"
)

// Controllers returns kube-controller-manager's controllers except those of package controllers. They work once Complete has returned
// nil.
func (o *Options) Controllers() []controllers.Controller {
	descriptors := app.NewControllerDescriptors()
	for _, name := range controllers.Names() {
		delete(descriptors, name)
	}
	var others []controllers.Controller
	for _, name := range slices.Sorted(maps.Keys(descriptors)) {
		descriptor := descriptors[name]
		// On with kubeadm: without these two, nodes can't join with a token.
		joins := name == names.BootstrapSignerController || name == names.TokenCleanerController
		others = append(others, controllers.Controller{
			Name: name, Aliases: descriptor.GetAliases(), Off: descriptor.IsDisabledByDefault() && !joins,
			Build: func(ctx context.Context, shared controllers.Shared) (func(context.Context), error) {
				if joins {
					shared.Informers = newJoining(shared)
				}
				controller, err := descriptor.BuildController(ctx, o.controllerContext(shared))
				if err != nil || controller == nil {
					return nil, err
				}
				return controller.Run, nil
			},
		})
	}
	return append(others, servingApprover())
}

// controllerContext returns the argument of upstream's constructors.
func (o *Options) controllerContext(shared controllers.Shared) app.ControllerContext {
	settings := *o.manager
	if signing := &settings.CSRSigningController; signing.ClusterSigningCertFile == "" && signing.ClusterSigningKeyFile == "" &&
		signing.KubeletServingSignerConfiguration.CertFile == "" && signing.KubeletClientSignerConfiguration.CertFile == "" &&
		signing.KubeAPIServerClientSignerConfiguration.CertFile == "" && signing.LegacyUnknownSignerConfiguration.CertFile == "" {
		if _, err := os.Stat(shared.Cluster.CAKeyFile); err == nil { // if the key is kept elsewhere, nothing is signed here
			signing.ClusterSigningCertFile, signing.ClusterSigningKeyFile = shared.Cluster.CACertFile, shared.Cluster.CAKeyFile
		}
	}
	settings.SAController.RootCAFile = shared.Cluster.CACertFile
	return app.ControllerContext{
		ClientBuilder:                   accounts(shared.As),
		InformerFactory:                 shared.Informers,
		ObjectOrMetadataInformerFactory: shared.Metadata,
		ComponentConfig:                 settings,
		RESTMapper:                      shared.Kinds,
		InformersStarted:                shared.Started,
		ResyncPeriod:                    controllers.ResyncPeriod,
		ControllerManagerMetrics:        controllersmetrics.NewControllerManagerMetrics("kube-controller-manager"),
	}
}
