package controlplane

import (
	"context"
	"maps"
	"os"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	controllersmetrics "k8s.io/component-base/metrics/prometheus/controllers"
	"k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	"k8s.io/kubernetes/pkg/controller/volume/attachdetach"

	"github.com/sqube/sqube/server/controllers"
)

// awaited are the resources without whose objects a controller has nothing to do. Others look for something in objects that any cluster
// has, such as the Pods of a Job that is gone, or would fail with a wrong setting only when the first object is there.
var awaited = map[string][]schema.GroupVersionResource{
	names.CertificateSigningRequestApprovingController: {certificatesv1.SchemeGroupVersion.WithResource("certificatesigningrequests")},
	names.CertificateSigningRequestCleanerController:   {certificatesv1.SchemeGroupVersion.WithResource("certificatesigningrequests")},
	names.CronJobController:                            {batchv1.SchemeGroupVersion.WithResource("cronjobs")},
	names.DaemonSetController:                          {appsv1.SchemeGroupVersion.WithResource("daemonsets")},
	names.HorizontalPodAutoscalerController:            {autoscalingv2.SchemeGroupVersion.WithResource("horizontalpodautoscalers")},
	names.PersistentVolumeBinderController:             volumesAndClaims,
	names.PersistentVolumeExpanderController:           volumesAndClaims,
	names.ReplicationControllerController:              {corev1.SchemeGroupVersion.WithResource("replicationcontrollers")},
	names.StatefulSetController:                        {appsv1.SchemeGroupVersion.WithResource("statefulsets")},
	names.TTLAfterFinishedController:                   {batchv1.SchemeGroupVersion.WithResource("jobs")},
}

var volumesAndClaims = []schema.GroupVersionResource{
	corev1.SchemeGroupVersion.WithResource("persistentvolumes"), corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"),
}

// The controller that attaches volumes looks ten times a second whether it has something to do. That takes a fifth of the CPU of a cluster
// with nothing to do, and attaching a volume takes seconds.
func init() { attachdetach.DefaultTimerConfig.ReconcilerLoopPeriod = time.Second }

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
			Name: name, Aliases: descriptor.GetAliases(), Off: descriptor.IsDisabledByDefault() && !joins, Awaits: awaited[name],
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

// accounts makes the clients of upstream's controllers, which act as the service accounts of their names.
type accounts func(name string) *rest.Config

func (a accounts) of(name string) clientbuilder.SimpleControllerClientBuilder {
	return clientbuilder.SimpleControllerClientBuilder{ClientConfig: a(name)}
}

func (a accounts) Config(name string) (*rest.Config, error) { return a.of(name).Config(name) }

func (a accounts) ConfigOrDie(name string) *rest.Config { return a.of(name).ConfigOrDie(name) }

func (a accounts) Client(name string) (kubernetes.Interface, error) { return a.of(name).Client(name) }

func (a accounts) ClientOrDie(name string) kubernetes.Interface { return a.of(name).ClientOrDie(name) }

func (a accounts) DiscoveryClient(name string) (discovery.DiscoveryInterface, error) {
	return a.of(name).DiscoveryClient(name)
}

func (a accounts) DiscoveryClientOrDie(name string) discovery.DiscoveryInterface {
	return a.of(name).DiscoveryClientOrDie(name)
}
