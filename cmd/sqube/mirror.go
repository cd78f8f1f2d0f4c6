package main

import (
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/klog/v2"

	"github.com/sqube/sqube/cmd/sqube/internal/terminal"
	"github.com/sqube/sqube/migrations"
	"github.com/sqube/sqube/server"
	"github.com/sqube/sqube/server/controllers"
	"github.com/sqube/sqube/server/mirror"
)

// mirrorOptions are those of a server that follows another cluster.
type mirrorOptions struct {
	serveOptions
	source clusterCopy
	follow mirror.Options
}

func mirrorCommand() *cobra.Command {
	o := &mirrorOptions{serveOptions: serveOptions{server: server.NewOptions()}}
	cmd := &cobra.Command{
		Use:   "mirror",
		Short: "Follow another cluster, and serve its history",
		Long: `Follow a cluster, of any Kubernetes from 1.25 on, into a database, and serve that
over HTTPS: the console with its time slider, and what sqube changes, blame, diff
and history show. The cluster is only read. Nothing can be changed in the mirror.

It needs a kubeconfig of a user, or in a Pod the service account, that may get, list
and watch what is followed, and create TokenReviews and SubjectAccessReviews: the
cluster decides who the mirror's users are, and what they may see. The mirror's own
administrator has admin.kubeconfig under --data-dir.

The values of Secrets are not stored: each is replaced by as many letters x, unless
--secrets is given. What was not seen as it happened is marked in history.`,
		Example: `  sqube mirror --context prod --data-dir /var/lib/prod-mirror
  sqube changes --kubeconfig /var/lib/prod-mirror/admin.kubeconfig`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := applySettings(cmd, os.Environ()); err != nil {
				return flagErrors(cmd, err)
			}
			if err := o.log.start(); err != nil {
				return flagErrors(cmd, err)
			}
			defer klog.Flush()
			warnDeprecated(cmd.Flags())
			if err := o.complete(); err != nil {
				return o.log.logged(flagErrors(cmd, err))
			}
			return o.log.logged(o.run(cmd.Context()))
		},
	}
	o.server.Flags = o.sections()
	useSections(cmd, o.server.Flags)
	return cmd
}

// mirrorSections are the sections of serve's flags that a mirror has, and notMirrored what it does not have of them.
var (
	mirrorSections = []string{"Configuration", server.StateFlags, server.ServingFlags, server.LimitFlags, server.AuditFlags, server.MetricsFlags, server.DebugFlags, "Log", "Features"}
	notMirrored    = []string{
		"in-memory", "simulated-nodes", "from", "at", "from-outbound", "replace-cluster-keys", "endpoint-reconciler-type", "node-heartbeat-interval", "enable-priority-and-fairness",
	}
)

// mirrorCache is the default of --cache-size: few clients read a mirror.
const mirrorCache = "32Mi"

// setDefault changes the default of a flag.
func setDefault(fs *pflag.FlagSet, name, value string) {
	flag := fs.Lookup(name)
	if err := flag.Value.Set(value); err == nil {
		flag.DefValue = flag.Value.String()
	}
}

// sections returns the flags of a mirror.
func (o *mirrorOptions) sections() *cliflag.NamedFlagSets {
	all, own := o.serveOptions.flags(), &cliflag.NamedFlagSets{}
	setDefault(all.FlagSet(server.StateFlags), "cache-size", mirrorCache)
	o.ignored.silent = true // there are none
	fs := own.FlagSet("Cluster")
	fs.StringVar(&o.source.kubeconfig, "kubeconfig", "", "Kubeconfig file that reaches the cluster. If unset, that of kubectl: $KUBECONFIG or ~/.kube/config, or else the service account of the Pod.")
	fs.StringVar(&o.source.overrides.CurrentContext, "context", "", "Context of the kubeconfig.")
	o.source.addFlags(fs)
	fs.Lookup("secrets").Usage = "Store the values of Secrets."
	fs.Lookup("namespace").Usage = "Namespaces whose objects are followed; can be repeated. If unset, all."
	fs.Lookup("without").Usage = "Resources that are not followed, such as events or leases.coordination.k8s.io."
	fs.StringVar(&o.follow.AuditLog, "cluster-audit-log", "", "File that the cluster's API server writes its audit log to, as JSON, from which history knows who made a change. It is followed when it is rotated.")
	fs.BoolVar(&o.follow.AuditWebhook, "cluster-audit-webhook", false, "Take audit events that the cluster's API server sends to "+mirror.AuditPath+" (--audit-webhook-config-file there), as a user who may post to that path.")
	for _, name := range mirrorSections {
		section := own.FlagSet(name)
		all.FlagSet(name).VisitAll(func(f *pflag.Flag) {
			if !slices.Contains(notMirrored, f.Name) {
				section.AddFlag(f)
			}
		})
	}
	return own
}

// complete checks all flags before anything is created.
func (o *mirrorOptions) complete() error {
	if err := o.source.load(); err != nil {
		return err
	}
	s := o.server
	o.follow.Config, o.follow.Copy = o.source.config, o.source.options
	o.follow.Copy.UserAgent = "sqube/" + migrations.Release + " (mirror)"
	s.Mirror = &o.follow
	s.ReadOnly = fmt.Sprintf("this is a mirror of %s, in which nothing can be changed: change it there", o.source.config.Host)
	s.KeysVary = true // the cluster's keys are not the mirror's
	s.Controllers = []string{"-" + controllers.All}
	s.Features.EnablePriorityAndFairness = false // it writes its state
	s.Admission.TurnOff()
	if err := o.serveOptions.complete(); err != nil {
		return terminal.OneLine(err)
	}
	o.store.HistoryThin = mirror.Thin(o.store.HistoryThin)
	return nil
}
