package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/server/fleet/v1alpha1"
	"github.com/sqube/sqube/server/undo"
)

// hostedSpec are the flags for a new cluster.
type hostedSpec struct {
	from, backup, at string
	ttl              time.Duration
	sleepAfter       time.Duration
	controllers      string
	administrators   []string
	outbound         []string
	wait             bool
}

func (o *hostedSpec) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.at, "at", "", "With a cluster or a backup to begin with, its state at this moment: a revision, a time such as 2026-11-21T10:00:00Z, or how long ago, such as 10m. If unset, now.")
	fs.DurationVar(&o.ttl, "ttl", 0, "How long the cluster lives, such as 8h; then it is deleted. If unset, until somebody deletes it.")
	fs.DurationVar(&o.sleepAfter, "sleep-after", 0, "After how much time without a request the cluster falls asleep. If unset, the default of the API.")
	fs.StringVar(&o.controllers, "controllers", "", "Controllers that run in the cluster: 'API' for those that the API itself needs, 'All' for those of kube-controller-manager too, or 'None'. If unset, 'API', or as in the cluster that is forked.")
	fs.StringArrayVar(&o.administrators, "administrator", nil, "User of the host who may do everything in the cluster; group:NAME for a group. May be repeated.")
	fs.StringSliceVar(&o.outbound, "outbound", nil, "Addresses that a fork may connect to: HOST, HOST:PORT, or * for all. If unset, none.")
	fs.BoolVar(&o.wait, "wait", true, "Wait until the cluster can be used.")
}

func hostedCreateCommand() *cobra.Command {
	var h host
	var o hostedSpec
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a cluster: an empty one, or one that begins with another cluster or a backup",
		Example: `  sqube cluster create dev --ttl 8h
  sqube cluster create dev --from prod --at 10m
  sqube cluster create dev --from shared/prod
  sqube cluster create dev --from-backup s3://backups/prod`,
		Args: oneArgument("one NAME"),
		RunE: func(cmd *cobra.Command, args []string) error { return h.create(cmd, args[0], &o) },
	}
	h.addFlags(cmd, objectForms...)
	fs := cmd.Flags()
	fs.StringVar(&o.from, "from", "", "Cluster to fork: NAME, or NAMESPACE/NAME. The new one has its objects and history, and keys of its own.")
	fs.StringVar(&o.backup, "from-backup", "", "Backup to begin with: a file or a folder of sqube backup on the host, or s3://BUCKET/PREFIX. Only for those who may restore clusters.")
	o.addFlags(fs)
	return cmd
}

func hostedForkCommand() *cobra.Command {
	var h host
	var o hostedSpec
	cmd := &cobra.Command{
		Use:   "fork CLUSTER [NAME]",
		Short: "Make a copy of a cluster, now or at a moment of its history",
		Long: `Make a copy of a cluster, now or at a moment of its history. CLUSTER is NAME, or
NAMESPACE/NAME. The copy has the objects and the history, and keys of its own, so what
is a credential for one is worth nothing in the other. Those who work in the original
do not notice. The copy calls no node, webhook or aggregated API server, unless
--outbound lists it. Without a name, it gets a random one.`,
		Example: `  sqube cluster fork prod try-it --ttl 1h
  sqube cluster fork prod --at 2026-11-21T10:00:00Z -o name`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 && len(args) != 2 {
				return fmt.Errorf("want a CLUSTER, and perhaps a NAME (see %s --help)", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.from = args[0]
			name := ""
			if len(args) == 2 {
				name = args[1]
			}
			return h.create(cmd, name, &o)
		},
	}
	h.addFlags(cmd, objectForms...)
	o.addFlags(cmd.Flags())
	return cmd
}

// create makes a cluster, with a random name if that is "".
func (h *host) create(cmd *cobra.Command, name string, o *hostedSpec) error {
	if err := h.load(); err != nil {
		return err
	}
	made, err := h.described(cmd.Context(), name, o)
	if err != nil {
		return err
	}
	if err := h.in(h.fleet.Post(), "").Body(made).Do(cmd.Context()).Into(made); err != nil {
		return h.explain(err)
	}
	if o.wait {
		if made, err = h.await(cmd, made.Name); err != nil {
			return err
		}
	}
	done := "created"
	if made.Status.URL != "" {
		done += ": " + made.Status.URL
	}
	return h.print(cmd.OutOrStdout(), made, done)
}

// described returns the object that flags describe. A fork that the flags say nothing else of is like the original.
func (h *host) described(ctx context.Context, name string, o *hostedSpec) (*v1alpha1.Cluster, error) {
	made := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: h.namespace}}
	made.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Cluster"}
	spec := &made.Spec
	switch {
	case o.from != "" && o.backup != "":
		return nil, errors.New("--from and --from-backup must not be given together")
	case o.backup != "":
		spec.From = &v1alpha1.Origin{Backup: o.backup}
	case o.from != "":
		namespace, original, found := strings.Cut(o.from, "/")
		if !found {
			namespace, original = "", o.from
		}
		if name == "" {
			made.GenerateName = original + "-"
		}
		spec.From = &v1alpha1.Origin{Cluster: &v1alpha1.ForkedCluster{Namespace: namespace, Name: original}}
		other := host{cluster: h.cluster, fleet: h.fleet, namespace: namespace}
		if namespace == "" {
			other.namespace = h.namespace
		}
		if like, err := other.get(ctx, original); err == nil { // else the server says what is wrong
			spec.Controllers, spec.Scheduler, spec.SimulatedNodes = like.Spec.Controllers, like.Spec.Scheduler, like.Spec.SimulatedNodes
		}
	case o.at != "":
		return nil, errors.New("--at needs --from or --from-backup")
	}
	if err := o.moment(spec.From); err != nil {
		return nil, err
	}
	if o.ttl != 0 {
		spec.TTL = &metav1.Duration{Duration: o.ttl}
	}
	if o.sleepAfter != 0 {
		spec.Sleep.After = &metav1.Duration{Duration: o.sleepAfter}
	}
	if o.controllers != "" {
		spec.Controllers = v1alpha1.Controllers(o.controllers)
	}
	spec.Outbound = o.outbound
	for _, who := range o.administrators {
		subject := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: who}
		if group, is := strings.CutPrefix(who, "group:"); is {
			subject.Kind, subject.Name = rbacv1.GroupKind, group
		}
		spec.Administrators = append(spec.Administrators, subject)
	}
	return made, nil
}

// moment sets the moment of a fork.
func (o *hostedSpec) moment(from *v1alpha1.Origin) error {
	if o.at == "" || o.at == "now" {
		return nil
	}
	if revision, err := strconv.ParseInt(o.at, 10, 64); err == nil && revision > 0 {
		from.ResourceVersion = o.at
		return nil
	}
	at, err := ago("--at", o.at, time.Now())
	from.Time = &metav1.Time{Time: at}
	return err
}

func hostedDeleteCommand() *cobra.Command {
	var h host
	cmd := &cobra.Command{
		Use:   "delete NAME...",
		Short: "Delete clusters",
		Long: `Delete clusters with everything in them. For the time in spec.keepDeleted, a day unless
it says otherwise, sqube cluster undelete brings them back.`,
		Args: clusterNames,
		RunE: func(cmd *cobra.Command, names []string) error {
			if err := h.load(); err != nil {
				return err
			}
			return each(names, func(name string) error {
				if err := h.in(h.fleet.Delete(), name).Do(cmd.Context()).Error(); err != nil {
					return h.explain(err)
				}
				return h.print(cmd.OutOrStdout(), &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: h.namespace}}, "deleted")
			})
		},
	}
	h.addFlags(cmd, "name")
	return cmd
}

func hostedUndeleteCommand() *cobra.Command {
	var h host
	cmd := &cobra.Command{
		Use:   "undelete NAME...",
		Short: "Bring deleted clusters back, with everything that was in them",
		Long: `Bring deleted clusters back, with everything that was in them and their keys. It is what
sqube undo cluster NAME --apply does, and works for the time in spec.keepDeleted.`,
		Args: clusterNames,
		RunE: func(cmd *cobra.Command, names []string) error {
			if err := h.load(); err != nil {
				return err
			}
			return each(names, func(name string) error {
				u := undoOptions{cluster: h.cluster, namespace: h.namespace}
				object := &undo.ObjectReference{Group: v1alpha1.GroupVersion.Group, Resource: clustersResource, Namespace: h.namespace, Name: name}
				answer, err := u.post(cmd.Context(), &undo.Undo{Spec: undo.Spec{Object: object, Apply: true}})
				if err != nil {
					return h.explain(err)
				}
				if err := unfinished(answer); err != nil {
					return fmt.Errorf("cluster %s: %w", name, err)
				}
				o, err := h.await(cmd, name)
				if err != nil {
					return err
				}
				return h.print(cmd.OutOrStdout(), o, "is back")
			})
		},
	}
	h.addFlags(cmd, objectForms...)
	return cmd
}
