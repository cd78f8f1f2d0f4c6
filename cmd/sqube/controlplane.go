package main

import (
	"github.com/sqube/sqube/server"
	"github.com/sqube/sqube/server/controllers"
)

// selectControlPlane makes --control-plane select all controllers and accept bootstrap tokens, unless flags say otherwise. Call it
// before the server's own checks.
func (o *serveOptions) selectControlPlane() {
	given := func(section, flag string) bool { return o.server.Flags.FlagSet(section).Changed(flag) }
	if !o.controlPlane.All {
		return
	}
	if !given(server.ClusterFlags, "controllers") {
		o.server.Controllers = []string{controllers.All}
	}
	if !given(server.AccessFlags, "enable-bootstrap-token-auth") {
		o.server.Access.Authentication.BootstrapToken.Enable = true
	}
}

// completeControlPlane checks the flags of the control plane and applies them to the server's options.
func (o *serveOptions) completeControlPlane() error {
	err := o.controlPlane.Complete(o.server.Controllers, o.server.ServiceClusterIPRange)
	o.server.ControllerSettings = o.controlPlane.Settings()
	o.server.Scheduler = o.controlPlane.SchedulerController()
	return err
}
