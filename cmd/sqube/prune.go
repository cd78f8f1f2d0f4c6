package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/kubectl/pkg/util/prune"

	"github.com/sqube/sqube/cmd/sqube/internal/manifests"
	"github.com/sqube/sqube/cmd/sqube/internal/terminal"
	"github.com/sqube/sqube/server/transaction"
)

// pruneOptions are the flags of sqube apply that say what to delete.
type pruneOptions struct {
	on, all bool
	kinds   []string
}

func (p *pruneOptions) addFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&p.on, "prune", false, "Delete what --field-manager has applied and is not in the files, in the same transaction. Needs --selector or --all.")
	fs.BoolVar(&p.all, "all", false, "With --prune, delete whatever labels it has.")
	fs.StringArrayVar(&p.kinds, "prune-allowlist", nil, "Kind to delete with --prune, such as apps/v1/Deployment or core/v1/ConfigMap; can be repeated. If unset, kubectl's list.")
}

func (p *pruneOptions) check(selector string) error {
	switch {
	case !p.on && (p.all || len(p.kinds) > 0):
		return errors.New("--all and --prune-allowlist are for --prune")
	case p.on && p.all == (selector != ""):
		return errors.New("--prune needs either --selector or --all")
	}
	return nil
}

// add adds the deletions to a transaction: of objects in the namespaces of those that are applied, and in none.
func (p *pruneOptions) add(ctx context.Context, o *wholeOptions, w *wholeWriter, t *transaction.Transaction, applied []manifests.Object, manager string) error {
	kinds, err := prune.ParseResources(o.mapper, p.kinds)
	if err != nil {
		return fmt.Errorf("--prune-allowlist: %w", terminal.OneLine(err))
	}
	namespaced, cluster, err := prune.GetRESTMappings(o.mapper, kinds, o.namespace != "")
	if err != nil {
		return terminal.OneLine(err)
	}
	client, err := dynamic.NewForConfig(o.config)
	if err != nil {
		return err
	}
	kept, namespaces := map[string]bool{}, map[string]bool{}
	for _, object := range applied {
		kept[manifests.Key(object.Unstructured)] = true
		if object.GetNamespace() != "" {
			namespaces[object.GetNamespace()] = true
		}
	}
	find := func(mapping *meta.RESTMapping, namespace string) error {
		found, err := client.Resource(mapping.Resource).Namespace(namespace).List(ctx, metav1.ListOptions{LabelSelector: o.files.Selector})
		if err != nil {
			return fmt.Errorf("looking for %s to prune: %w; nothing was written", mapping.Resource.GroupResource(), terminal.OneLine(err))
		}
		for i := range found.Items {
			object := &found.Items[i]
			if kept[manifests.Key(object)] || object.GetDeletionTimestamp() != nil || !appliedBy(object, manager) {
				continue
			}
			uid := object.GetUID()
			t.Delete(object, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}, PropagationPolicy: new(metav1.DeletePropagationBackground)})
			w.add(manifests.Object{Unstructured: object, Source: "--prune"})
		}
		return nil
	}
	for _, mapping := range slices.Backward(namespaced) {
		for _, namespace := range slices.Sorted(maps.Keys(namespaces)) {
			if err := find(mapping, namespace); err != nil {
				return err
			}
		}
	}
	if o.namespace != "" && len(p.kinds) == 0 {
		return nil
	}
	for _, mapping := range cluster {
		if err := find(mapping, ""); err != nil {
			return err
		}
	}
	return nil
}

// appliedBy reports whether a field manager has applied an object.
func appliedBy(object *unstructured.Unstructured, manager string) bool {
	return slices.ContainsFunc(object.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == manager && f.Operation == metav1.ManagedFieldsOperationApply
	})
}
