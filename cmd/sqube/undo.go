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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/cmd/sqube/internal/terminal"
	"github.com/sqube/sqube/server/changes"
	"github.com/sqube/sqube/server/undo"
)

// undoOptions are the flags of sqube undo.
type undoOptions struct {
	cluster
	namespace string

	to           string
	before       int64
	since, until string
	changes      undo.ChangeSelector
	force, apply bool
	partial      bool
	output       string

	mirror          string // a URL, or a context of the kubeconfig
	mirrorAuthority string
}

func undoCommand() *cobra.Command {
	var o undoOptions
	cmd := &cobra.Command{
		Use:   "undo [RESOURCE NAME]",
		Short: "Bring back what was: an object, a deleted namespace, what somebody did",
		Long: `Bring back what was: an object as it was at a moment (--to, --before), a deleted object,
a deleted namespace or CustomResourceDefinition with everything in it, or take back what
a user, a field manager, a transaction or everyone did (--user, --manager, --transaction,
--since).

The plan is printed, and with --apply also applied, by the server with your rights: all of
it in one transaction, or nothing. Later changes by others stay, unless --force is given.
A plan that one transaction has no room for is applied step by step. So it is with
--partial, and goes on after a step that fails. If it is interrupted, it goes on if the
command is run again.`,
		Example: `  sqube undo deploy/web -n shop --to 10m
  sqube undo deploy/web -n shop --to 10m --context prod --mirror https://mirror.example.com:6443
  sqube undo namespace shop --apply
  sqube undo --user jane --since 1h -n shop`,
		RunE: o.run,
	}
	o.addFlags(cmd.Flags())
	return cmd
}

func (o *undoOptions) addFlags(fs *pflag.FlagSet) {
	o.cluster.addFlags(fs)
	fs.StringVarP(&o.namespace, "namespace", "n", "", "Namespace of the object, or of the changes. If unset, the context's for an object, and all for changes.")
	fs.StringVar(&o.to, "to", "", "Bring the object back to this moment: a revision, a time such as 2026-11-21T10:00:00Z, or how long ago, such as 10m.")
	fs.Int64Var(&o.before, "before", 0, "Bring the object back to what it was before the change with this revision.")
	fs.StringVar(&o.changes.User, "user", "", "Take back what this user did, or others in the name of this user.")
	fs.StringVar(&o.changes.ImpersonatedUser, "impersonated-user", "", "Take back what others did in the name of this user, by impersonation.")
	fs.StringVar(&o.changes.FieldManager, "manager", "", "Take back what was done with this field manager, such as kubectl-edit.")
	fs.StringVar(&o.changes.AuditID, "audit-id", "", "Take back what the request with this id in the audit log did, or an undo, as it says at its end. If the client chose the id, write client: before it.")
	fs.StringVar(&o.changes.Transaction, "transaction", "", "Take back what this transaction did, as one, such as what sqube apply or an undo names at its end.")
	fs.StringVar(&o.since, "since", "", "Take back only what was done since then: a time such as 2026-11-21T10:00:00Z, or how long ago, such as 2h.")
	fs.StringVar(&o.until, "until", "", "Take back only what was done before then: a time, or how long ago.")
	fs.Int64Var(&o.changes.AfterRevision, "after-revision", 0, "Take back only what was done after this revision.")
	fs.Int64Var(&o.changes.BeforeRevision, "before-revision", 0, "Take back only what was done before this revision.")
	fs.StringSliceVar(&o.changes.Resources, "resources", nil, "Take back only changes of these resources, such as configmaps,deployments.apps.")
	fs.BoolVar(&o.force, "force", false, "Overwrite later changes by others.")
	fs.BoolVar(&o.apply, "apply", false, "Apply the plan: all of it or nothing, unless it is too large for that.")
	fs.BoolVar(&o.partial, "partial", false, "With --apply, apply the plan step by step, and go on after a step that fails.")
	fs.StringVar(&o.mirror, "mirror", "", "Plan from the history of this mirror of the cluster (sqube mirror), and apply the plan in the cluster, step by step: a URL, to which your credentials for the cluster are sent, or a context of the kubeconfig. Revisions are the mirror's.")
	fs.StringVar(&o.mirrorAuthority, "mirror-certificate-authority", "", "File with the certificates of the mirror's authority, if --mirror is a URL: ca.crt in the folder pki of its --data-dir.")
	fs.StringVarP(&o.output, "output", "o", "", "Print the plan as 'json'.")
}

func (o *undoOptions) run(cmd *cobra.Command, args []string) error {
	if o.output != "" && o.output != "json" {
		return fmt.Errorf("--output must be json, not %q", o.output)
	}
	out := cmd.OutOrStdout()
	if err := o.load(); err != nil {
		return err
	}
	spec := undo.Spec{Force: o.force, Apply: o.apply, Partial: o.partial}
	if o.mirror != "" {
		if err := o.ask(o.mirror); err != nil {
			return err
		}
		spec.Apply, spec.Partial, spec.Operations = false, false, o.apply
	}
	var err error
	if len(args) == 0 {
		spec.Changes, err = o.selected(time.Now())
	} else {
		spec.To, err = o.moment(time.Now())
		if err == nil {
			spec.Object, err = o.named(args)
		}
	}
	if err != nil {
		return err
	}
	answer, err := o.post(cmd.Context(), &undo.Undo{Spec: spec})
	if err == nil && spec.Operations {
		err = undo.ApplyElsewhere(cmd.Context(), o.config, answer, func(ctx context.Context) (*undo.Undo, error) {
			return o.post(ctx, &undo.Undo{Spec: spec})
		})
	}
	if err != nil {
		return terminal.OneLine(err)
	}
	if o.output == "json" {
		text, err := terminal.JSON(answer)
		if err == nil {
			_, err = out.Write(text)
		}
		return errors.Join(err, unfinished(answer))
	}
	command := cmd.CommandPath()
	if o.mirror != "" {
		command += " --mirror " + shell(o.mirror)
	}
	return errors.Join(printUndo(out, command, answer), unfinished(answer))
}

// selected returns the changes that the flags select.
func (o *undoOptions) selected(now time.Time) (*undo.ChangeSelector, error) {
	if o.to != "" || o.before != 0 {
		return nil, errors.New("--to and --before are for one object: want a resource and a name, such as deployments.apps web")
	}
	c := o.changes
	if !c.ByWhom() && o.since == "" && c.AfterRevision == 0 {
		return nil, errors.New("want a resource and a name, or at least one of --user, --impersonated-user, --manager, --audit-id, --transaction, --since and --after-revision")
	}
	c.Namespace = o.namespace
	for flag, text := range map[string]struct {
		given string
		at    **metav1.Time
	}{"--since": {o.since, &c.Since}, "--until": {o.until, &c.Until}} {
		if text.given == "" {
			continue
		}
		moment, err := ago(flag, text.given, now)
		if err != nil {
			return nil, err
		}
		*text.at = &metav1.Time{Time: moment}
	}
	return &c, nil
}

// moment returns the moment to which an object goes back, nil if there is none.
func (o *undoOptions) moment(now time.Time) (*undo.Moment, error) {
	c := o.changes
	if c.ByWhom() || o.since != "" || o.until != "" || c.AfterRevision != 0 || c.BeforeRevision != 0 || len(c.Resources) > 0 {
		return nil, errors.New("an object goes back with --to or --before; the other flags select changes without a resource and a name")
	}
	switch {
	case o.to != "" && o.before != 0:
		return nil, errors.New("--to and --before must not be given together")
	case o.before != 0:
		return &undo.Moment{Before: o.before}, nil
	case o.to == "":
		return nil, nil
	}
	if revision, err := strconv.ParseInt(o.to, 10, 64); err == nil {
		return &undo.Moment{Revision: revision}, nil
	}
	moment, err := ago("--to", o.to, now)
	return &undo.Moment{Time: &metav1.Time{Time: moment}}, err
}

// named returns the object that the arguments name.
func (o *undoOptions) named(args []string) (*undo.ObjectReference, error) {
	resource, namespace, name, err := o.object(args, o.namespace)
	return &undo.ObjectReference{Group: resource.Group, Resource: resource.Resource, Namespace: namespace, Name: name}, err
}

// post sends an undo and returns the answer. A user who may not undo in the whole cluster may still do so in the namespace.
func (o *undoOptions) post(ctx context.Context, sent *undo.Undo) (*undo.Undo, error) {
	answer := &undo.Undo{}
	err := o.client.Post().Resource(undo.Resource).Body(sent).Do(ctx).Into(answer)
	namespace := o.namespace
	if object := sent.Spec.Object; object != nil {
		namespace = object.Namespace
		if object.Group == "" && object.Resource == "namespaces" {
			namespace = object.Name
		}
	}
	if apierrors.IsForbidden(err) && namespace != "" {
		err = o.client.Post().Namespace(namespace).Resource(undo.Resource).Body(sent).Do(ctx).Into(answer)
	}
	return answer, err
}

// ask has the plan made by a mirror: at a URL, with the credentials for the cluster, or in a context of the kubeconfig.
func (o *undoOptions) ask(mirror string) error {
	to := rest.CopyConfig(o.config)
	if strings.Contains(mirror, "://") {
		to.Host, to.APIPath = mirror, ""
		to.TLSClientConfig.CAData, to.TLSClientConfig.CAFile, to.TLSClientConfig.ServerName = nil, o.mirrorAuthority, ""
		to.Insecure = to.Insecure && o.mirrorAuthority == ""
	} else {
		other := cluster{kubeconfig: o.kubeconfig}
		other.overrides.CurrentContext = mirror
		if err := other.load(); err != nil {
			return err
		}
		to = other.config
	}
	to.GroupVersion, to.APIPath = &changes.GroupVersion, "/apis"
	to.NegotiatedSerializer = serializer.NewCodecFactory(changes.Scheme).WithoutConversion()
	client, err := rest.RESTClientFor(to)
	o.client = client
	return err
}
