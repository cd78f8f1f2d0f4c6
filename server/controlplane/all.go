package controlplane

import (
	"context"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"

	"github.com/sqube/sqube/server"
	"github.com/sqube/sqube/server/controllers"
)

// All makes a server run the whole control plane, like sqube serve --control-plane. Call it before o.Complete.
func All(o *server.Options) error { return With()(o) }

// With is All with flags of kube-controller-manager, such as --controllers and --node-monitor-grace-period=20s, and with
// --scheduler-config. In a bubble of testing/synctest, what wakes up every few seconds does so less often.
func With(flags ...string) func(*server.Options) error { return Simulation{}.With(flags...) }

// With is the function With for a simulated cluster.
func (s Simulation) With(flags ...string) func(*server.Options) error {
	return func(o *server.Options) error {
		plane := &Options{virtual: o.Virtual, simulation: s}
		o.OtherControllers = plane.Controllers()
		set := pflag.NewFlagSet("control plane", pflag.ContinueOnError)
		plane.AddFlags(set)
		plane.All = true // adding the flags has set their defaults
		set.StringSliceVar(&o.Controllers, "controllers", []string{controllers.All}, "")
		if err := set.Parse(flags); err != nil {
			return err
		}
		if o.Virtual {
			o.OtherControllers = plane.virtualControllers(o.OtherControllers)
			for name, value := range virtualFlags {
				if set.Changed(name) || !controllers.Runs(o.Controllers, o.OtherControllers, plane.users[name]...) {
					continue
				}
				if err := set.Set(name, value); err != nil {
					return err
				}
			}
		}
		o.Access.Authentication.BootstrapToken.Enable = true
		if err := plane.Complete(o.Controllers, o.ServiceClusterIPRange); err != nil {
			return err
		}
		o.ControllerSettings, o.Scheduler = plane.Settings(), plane.SchedulerController()
		return nil
	}
}

// virtualFlags are defaults in a bubble. Each look at the nodes' Leases holds up the clock, and a folder of plugins would be watched if it
// could be made.
var virtualFlags = map[string]string{"node-monitor-period": "20s", "flex-volume-plugin-dir": "/proc/none"}

// virtualControllers adapts controllers to a bubble, whose clock stands still while one of them waits for a file to change, and is held up
// by one that looks for work every second.
func (o *Options) virtualControllers(others []controllers.Controller) []controllers.Controller {
	for i, other := range others {
		switch other.Name {
		case names.CertificateSigningRequestSigningController: // watches the files of its authority
			others[i].Build, others[i].Awaits = o.buildVirtualSigner, awaited[names.CertificateSigningRequestCleanerController]
		case names.PersistentVolumeAttachDetachController: // looks every second
			others[i].Awaits = volumesAndClaims
		case names.NodeLifecycleController: // looks ten times a second
			others[i].Awaits = []schema.GroupVersionResource{corev1.SchemeGroupVersion.WithResource("nodes")}
			if alive := o.simulation.Alive; alive != nil {
				others[i].Build = func(ctx context.Context, shared controllers.Shared) (func(context.Context), error) {
					shared.Informers = heartbeats{shared.Informers, alive}
					return other.Build(ctx, shared)
				}
			}
		case names.HorizontalPodAutoscalerController:
			if o.simulation.Metrics != nil {
				others[i].Build = o.buildAutoscaler
			}
		}
	}
	return others
}
