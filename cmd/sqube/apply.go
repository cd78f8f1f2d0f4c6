package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/sqube/sqube/cmd/sqube/internal/manifests"
	"github.com/sqube/sqube/cmd/sqube/internal/terminal"
	"github.com/sqube/sqube/server/transaction"
)

// applyOptions are the flags of sqube apply.
type applyOptions struct {
	wholeOptions
	manager    string
	force      bool
	validation string
	prune      pruneOptions
}

func applyCommand() *cobra.Command {
	var o applyOptions
	cmd := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Apply the objects in files together or not at all",
		Long: `Apply the objects in files (server-side apply), as one transaction: all of them are
written at once, or nothing is. Nobody sees a part of it.

What others need is applied first, as Helm does it: namespaces, then service accounts,
configuration, roles, and so on. If there are CustomResourceDefinitions and objects of
theirs, the definitions are a transaction of their own, before the rest.

With --prune, what was applied before and is not in the files any more is deleted in the
same transaction: objects that have the labels of --selector (or all, with --all) and
that --field-manager has applied.`,
		Example: `  sqube apply -f shop/
  sqube apply -k overlays/prod --dry-run
  sqube apply -f shop/ --prune -l app=shop`,
		Args: noArguments,
		RunE: o.run,
	}
	o.addFlags(cmd.Flags())
	return cmd
}

func (o *applyOptions) addFlags(fs *pflag.FlagSet) {
	o.wholeOptions.addFlags(fs, "apply")
	fs.StringVar(&o.manager, "field-manager", "kubectl", "Who owns the fields. The default is that of kubectl apply --server-side, so that both can be used for the same objects.")
	fs.BoolVar(&o.force, "force-conflicts", false, "Take fields over from other field managers.")
	fs.StringVar(&o.validation, "validate", "Strict", "What to do about unknown and duplicate fields: Strict refuses them, Warn warns, Ignore does nothing.")
	o.prune.addFlags(fs)
}

func (o *applyOptions) run(cmd *cobra.Command, _ []string) error {
	if err := o.check(); err != nil {
		return err
	}
	if err := o.prune.check(o.files.Selector); err != nil {
		return err
	}
	objects, err := o.read(cmd)
	if err != nil {
		return err
	}
	return o.write(cmd, objects, func(*transaction.Transaction, []manifests.Object) {})
}

// write applies sorted objects. It calls require with each transaction and what is applied in it.
func (o *applyOptions) write(cmd *cobra.Command, objects []manifests.Object, require func(*transaction.Transaction, []manifests.Object)) error {
	definitions, rest := manifests.Defined(objects)
	w, err := o.writer(cmd, "serverside-applied")
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	if len(definitions) > 0 {
		if rest, err = o.applyDefinitions(ctx, w, definitions, rest, require); err != nil {
			return err
		}
	}
	if err := o.inNamespace(rest); err != nil {
		return err
	}
	t := w.begin(o.name)
	require(t, rest)
	o.applyAll(w, t, rest)
	if o.prune.on {
		if err := o.prune.add(ctx, &o.wholeOptions, w, t, objects, o.manager); err != nil {
			return err
		}
	}
	if err := w.commit(ctx, t); err != nil {
		if len(definitions) > 0 && !o.dryRun {
			return errors.Join(err, errors.New("the definitions stay as they were applied before"))
		}
		return err
	}
	return w.end(ctx)
}

// applyAll adds objects to a transaction.
func (o *applyOptions) applyAll(w *wholeWriter, t *transaction.Transaction, objects []manifests.Object) {
	t.FieldManager, t.FieldValidation = o.manager, o.validation
	for _, object := range objects {
		t.Apply(object.Unstructured, o.force)
		w.add(object)
	}
}

// applyDefinitions applies definitions and waits until their objects are served. It returns the objects of rest that can be written then: after
// a dry run, those of new definitions can't, which it says.
func (o *applyOptions) applyDefinitions(ctx context.Context, w *wholeWriter, definitions, rest []manifests.Object, require func(*transaction.Transaction, []manifests.Object)) ([]manifests.Object, error) {
	name := o.name
	if name != "" {
		name += "-definitions"
	}
	t := w.begin(name)
	require(t, definitions)
	o.applyAll(w, t, definitions)
	if err := w.commit(ctx, t); err != nil {
		return nil, err
	}
	if !o.dryRun {
		fmt.Fprintf(w.notes, "The definitions were applied first, as transaction %s, since objects of theirs need them.\n", t.Name())
		for _, d := range definitions {
			if err := o.established(ctx, d); err != nil {
				return nil, fmt.Errorf("%w; the definitions were applied, and nothing else was written", err)
			}
		}
		meta.MaybeResetRESTMapper(o.mapper)
		return rest, nil
	}
	known := rest[:0:0]
	for _, object := range rest {
		kind := object.GroupVersionKind()
		if _, err := o.mapper.RESTMapping(kind.GroupKind(), kind.Version); meta.IsNoMatchError(err) {
			fmt.Fprintf(w.notes, "%s would be applied when its definition is established, which the server can't try before\n", terminal.Printable(object.String()))
			continue
		}
		known = append(known, object)
	}
	return known, nil
}

// establishedWithin is how long a server may take to serve the objects of a definition.
const establishedWithin = 30 * time.Second

// established waits until the objects of a definition are served.
func (o *applyOptions) established(ctx context.Context, d manifests.Object) error {
	var why string
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, establishedWithin, true, func(ctx context.Context) (bool, error) {
		found, err := o.get(ctx, schema.GroupResource{Group: definitions.Group, Resource: definitions.Name}, "", "", d.GetName(), 0)
		if err != nil || found == nil {
			return false, err
		}
		conditions, _, _ := unstructured.NestedSlice(found, "status", "conditions")
		for _, c := range conditions {
			condition, _ := c.(map[string]any)
			if condition["type"] == "Established" && condition["status"] == "True" {
				return true, nil
			}
			if condition["type"] == "NamesAccepted" && condition["status"] == "False" {
				why = fmt.Sprintf(": %v", condition["message"])
			}
		}
		return false, nil
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return fmt.Errorf("%s was not established within %s%s", d, establishedWithin, why)
	}
	return err
}
