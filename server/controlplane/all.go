package controlplane

import (
	"slices"

	"github.com/spf13/pflag"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"

	"github.com/sqube/sqube/server"
	"github.com/sqube/sqube/server/controllers"
)

// All makes a server run the whole control plane, like sqube serve --control-plane. Call it before o.Complete.
func All(o *server.Options) error { return With()(o) }

// With is All with flags of kube-controller-manager, such as "--node-monitor-grace-period=20s", and --scheduler-config.
func With(flags ...string) func(*server.Options) error {
	return func(o *server.Options) error {
		plane := &Options{}
		o.OtherControllers = plane.Controllers()
		if o.Virtual {
			flags = append([]string{"--flex-volume-plugin-dir=/proc/none"}, flags...) // can't be made, or it would be watched
			o.OtherControllers = slices.DeleteFunc(o.OtherControllers, func(c controllers.Controller) bool {
				return c.Name == names.CertificateSigningRequestSigningController // watches files
			})
		}
		set := pflag.NewFlagSet("control plane", pflag.ContinueOnError)
		plane.AddFlags(set)
		if err := set.Parse(flags); err != nil {
			return err
		}
		plane.All = true // adding the flags has set their defaults
		o.Controllers = []string{controllers.All}
		o.Access.Authentication.BootstrapToken.Enable = true
		if err := plane.Complete(o.Controllers, o.ServiceClusterIPRange); err != nil {
			return err
		}
		o.ControllerSettings, o.Scheduler = plane.Settings(), plane.SchedulerController()
		return nil
	}
}
