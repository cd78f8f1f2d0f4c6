package main

import (
	"context"
	"path/filepath"

	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/sqube/sqube/cmd/sqube/internal/datastore"
	"github.com/sqube/sqube/server"
	"github.com/sqube/sqube/server/controllers"
	"github.com/sqube/sqube/server/controlplane"
	"github.com/sqube/sqube/server/fleet"
	"github.com/sqube/sqube/server/fleet/v1alpha1"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/apistorage"
)

// fleetOptions are the flags for clusters that the server hosts.
type fleetOptions struct {
	enabled bool
	domain  string
}

func (o *fleetOptions) addFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.enabled, "clusters", false, "Host clusters: each object of the kind Cluster (fleet.sqube.io) is a cluster with a database of its own, at /clusters/NAMESPACE/NAME of this server.")
	fs.StringVar(&o.domain, "cluster-domain", "", "Domain under which each hosted cluster also has a host name: NAME.NAMESPACE.DOMAIN. The names must lead to this server.")
}

// completeFleet has the server host clusters with --clusters.
func (o *serveOptions) completeFleet() {
	if !o.fleet.enabled {
		return
	}
	var databases fleet.Databases = datastore.NewFiles(datastore.ClustersFolder(o.server.DataDir))
	switch {
	case o.server.InMemory:
		databases = datastore.NewMemory()
	case o.datastore.Shared():
		databases = datastore.NewSchemas(&o.datastore)
	}
	o.server.Fleet = fleet.New(fleet.Config{Databases: databases, Options: o.hostedOptions, Ready: joinSimulatedNodes, Domain: o.fleet.domain})
}

// hostedOptions returns the options of the server of a cluster.
func (o *serveOptions) hostedOptions(c *v1alpha1.Cluster) (*server.Options, sqlstore.Options, error) {
	made, host := server.NewOptions(), o.server
	made.DataDir = filepath.Join(datastore.ClustersFolder(host.DataDir), c.Status.Database)
	made.Serving.BindAddress, made.Serving.BindPort = host.Serving.BindAddress, host.Serving.BindPort
	made.AdvertiseAddress, made.ExternalHost = host.AdvertiseAddress, host.ExternalHost
	made.ServiceClusterIPRange = host.ServiceClusterIPRange
	made.ConsoleTry, made.CORSAllowedOrigins, made.HSTS = false, host.CORSAllowedOrigins, host.HSTS
	made.RequestTimeout, made.MaxRequestBodyBytes = host.RequestTimeout, host.MaxRequestBodyBytes
	all := c.Spec.Controllers == v1alpha1.ControllersAll
	if all || c.Spec.Scheduler {
		own := made.Controllers
		if err := controlplane.All(made); err != nil {
			return nil, sqlstore.Options{}, err
		}
		if !all {
			made.Controllers, made.OtherControllers = own, nil
		}
		if !c.Spec.Scheduler {
			made.Scheduler = nil
		}
	}
	if c.Spec.Controllers == v1alpha1.ControllersNone {
		made.Controllers = []string{"-" + controllers.All}
		made.Admission.Disable("ServiceAccount")
	}
	stored := o.store
	stored.HeartbeatResource = apistorage.HeartbeatResource
	return made, stored, made.Complete()
}

// joinSimulatedNodes adds the simulated nodes of a cluster.
func joinSimulatedNodes(ctx context.Context, c *v1alpha1.Cluster, o *server.Options, s *server.Server) error {
	return simulate(ctx, int(c.Spec.SimulatedNodes), o, s.Loopback(user.APIServerUser, user.SystemPrivilegedGroup))
}
