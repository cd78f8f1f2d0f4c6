package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/sqube/sqube/cmd/sqube/internal/manifests"
	"github.com/sqube/sqube/cmd/sqube/internal/terminal"
	"github.com/sqube/sqube/server/transaction"
)

// deleteOptions are the flags of sqube delete.
type deleteOptions struct {
	wholeOptions
	cascade      string
	grace        int64
	ignoreAbsent bool
	wait         bool
}

// cascades are the propagation policies of kubectl delete --cascade.
var cascades = map[string]metav1.DeletionPropagation{
	"background": metav1.DeletePropagationBackground, "foreground": metav1.DeletePropagationForeground, "orphan": metav1.DeletePropagationOrphan,
}

func deleteCommand() *cobra.Command {
	var o deleteOptions
	cmd := &cobra.Command{
		Use:   "delete -f FILE",
		Short: "Delete the objects in files together or not at all",
		Long: `Delete the objects in files, as one transaction: all of them are deleted at once, or
none is. If one does not exist, nothing is deleted, unless --ignore-not-found is given.

What has finalizers, such as a namespace with objects in it, is gone once these are
removed, for which the command waits.`,
		Example: `  sqube delete -f shop/
  sqube delete -k overlays/prod --dry-run`,
		Args: noArguments,
		RunE: o.run,
	}
	fs := cmd.Flags()
	o.addFlags(fs, "delete")
	fs.StringVar(&o.cascade, "cascade", "background", "What becomes of what the objects own: it is deleted in the 'background', or before them ('foreground'), or stays ('orphan').")
	fs.Int64Var(&o.grace, "grace-period", -1, "Seconds that Pods get to end. If negative, their own.")
	fs.BoolVar(&o.ignoreAbsent, "ignore-not-found", false, "Delete those that exist.")
	fs.BoolVar(&o.wait, "wait", true, "Wait until the objects are gone.")
	return cmd
}

func (o *deleteOptions) run(cmd *cobra.Command, _ []string) error {
	if err := o.check(); err != nil {
		return err
	}
	policy, ok := cascades[o.cascade]
	if !ok {
		return fmt.Errorf("--cascade must be background, foreground or orphan, not %q", o.cascade)
	}
	objects, err := o.read(cmd)
	if err != nil {
		return err
	}
	slices.Reverse(objects)
	if err := o.inNamespace(objects); err != nil {
		return err
	}
	w, err := o.writer(cmd, deleted)
	if err != nil {
		return err
	}
	options := metav1.DeleteOptions{PropagationPolicy: &policy}
	if o.grace >= 0 {
		options.GracePeriodSeconds = &o.grace
	}
	t := w.begin(o.name)
	for _, object := range objects {
		if o.ignoreAbsent {
			if found, err := o.live(cmd.Context(), object); err != nil || found == nil {
				if err != nil {
					return err
				}
				continue
			}
		}
		t.Delete(object.Unstructured, options)
		w.add(object)
	}
	if err := w.commit(cmd.Context(), t); err != nil {
		return err
	}
	if o.wait && !o.dryRun {
		if err := o.awaitGone(cmd.Context(), w, objects); err != nil {
			return err
		}
	}
	return w.end(cmd.Context())
}

// live returns an object as it is, nil if there is none.
func (o *wholeOptions) live(ctx context.Context, object manifests.Object) (map[string]any, error) {
	kind := object.GroupVersionKind()
	mapping, err := o.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, terminal.OneLine(err)
	}
	return o.get(ctx, mapping.Resource.GroupResource(), kind.Version, object.GetNamespace(), object.GetName(), 0)
}

// awaitGone waits until the objects that were deleted are gone, or others have taken their names.
func (o *deleteOptions) awaitGone(ctx context.Context, w *wholeWriter, objects []manifests.Object) error {
	uids := map[string]string{}
	for _, r := range w.written {
		uids[keyOf(&r)] = r.UID
	}
	for _, object := range objects {
		version, kind := object.GetAPIVersion(), object.GetKind()
		uid := uids[keyOf(&transaction.OperationResult{APIVersion: version, Kind: kind, Namespace: object.GetNamespace(), Name: object.GetName()})]
		err := wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			found, err := o.live(ctx, object)
			return found == nil || string((&unstructured.Unstructured{Object: found}).GetUID()) != uid, err
		})
		if err != nil {
			return fmt.Errorf("waiting until %s is gone: %w; it was deleted with the others", object, err)
		}
	}
	return nil
}

// keyOf identifies the object of an operation among those of its transaction.
func keyOf(r *transaction.OperationResult) string {
	return r.APIVersion + " " + r.Kind + " " + r.Namespace + "/" + r.Name
}
