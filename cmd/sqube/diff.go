package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sqube/sqube/cmd/sqube/internal/report"
	"github.com/sqube/sqube/cmd/sqube/internal/terminal"
	"github.com/sqube/sqube/server/changes"
)

// diffName is the name of the command whose exit codes are those of diff.
const diffName = "diff"

// errDifferent is returned if there are differences.
var errDifferent = errors.New("there are differences")

// diffOptions are the flags of sqube diff.
type diffOptions struct {
	cluster
	namespace     string
	all           bool
	from, to      string
	resources     []string
	status, whole bool
}

func diffCommand() *cobra.Command {
	var o diffOptions
	cmd := &cobra.Command{
		Use:   diffName + " [RESOURCE NAME] --from MOMENT",
		Short: "Print how an object, a namespace or the cluster differs between two moments",
		Long: `Print how an object, a namespace or the cluster differs between two moments, as kubectl
diff does: a unified diff of the YAML of each object that is not the same. It asks the
server, through the API, so it shows what you may get. Of secret values, it shows sizes.
Events and Leases are left out unless you ask for them by name or with --resources.

The exit code is 0 if there are no differences, 1 if there are, and 2 after an error.`,
		Example: `  sqube diff -n shop --from 10m
  sqube diff deploy/web -n shop --from 218 --to 224
  sqube diff -A --from 2026-11-21T10:00:00Z --to 2026-11-21T11:00:00Z`,
		RunE: o.run,
	}
	o.addFlags(cmd.Flags())
	fs := cmd.Flags()
	const moment = "a revision, a time such as 2026-11-21T10:00:00Z, or how long ago, such as 10m"
	fs.StringVarP(&o.namespace, "namespace", "n", "", "Namespace to compare, or of the object. If unset, the context's.")
	fs.BoolVarP(&o.all, "all-namespaces", "A", false, "Compare all namespaces, and what is in none.")
	fs.StringVar(&o.from, "from", "", "The first moment: "+moment+".")
	fs.StringVar(&o.to, "to", "now", "The second moment: "+moment+".")
	fs.StringSliceVar(&o.resources, "resources", nil, "Compare only objects of these resources, such as configmaps,deployments.apps.")
	fs.BoolVar(&o.status, "status", false, "Compare the status, too.")
	fs.BoolVar(&o.whole, "whole", false, "Compare all fields: also status, managedFields, resourceVersion and generation.")
	return cmd
}

func (o *diffOptions) run(cmd *cobra.Command, args []string) error {
	if o.from == "" {
		return errors.New("--from must be given")
	}
	if err := o.load(); err != nil {
		return err
	}
	return o.write(cmd.Context(), args, cmd.OutOrStdout(), cmd.ErrOrStderr())
}

// write writes the differences, and returns errDifferent if there are any.
func (o *diffOptions) write(ctx context.Context, args []string, out, notes io.Writer) error {
	d := &differ{diffOptions: o, out: out, notes: notes, missing: map[schema.GroupResource]bool{}}
	objects, namespace, err := o.scope(args)
	if err != nil {
		return err
	}
	if d.from, err = o.revisionAt(ctx, "--from", o.from, namespace); err != nil {
		return err
	}
	if d.to, err = o.revisionAt(ctx, "--to", o.to, namespace); err != nil {
		return err
	}
	if d.to != 0 && d.from > d.to || d.from == 0 {
		return errors.New("--from must be before --to")
	}
	if d.one = objects != nil; !d.one {
		if objects, err = d.touched(ctx, namespace); err != nil {
			return err
		}
	}
	for _, object := range objects {
		if err := d.compare(ctx, object); err != nil {
			return fmt.Errorf("%s: %w", object, err)
		}
	}
	switch {
	case len(d.missing) > 0:
		return errors.New("the objects of resources that are not served any more could not be compared")
	case d.different:
		return errDifferent
	}
	return nil
}

// scope returns the object that the arguments name, or nil, and the namespace to compare, "" for all.
func (o *diffOptions) scope(args []string) (objects []named, namespace string, err error) {
	if len(args) > 0 {
		if o.all || len(o.resources) > 0 {
			return nil, "", errors.New("--all-namespaces and --resources are not for one object")
		}
		var one named
		one.resource, one.namespace, one.name, err = o.object(args, o.namespace)
		return []named{one}, one.namespace, err
	}
	switch {
	case o.all:
		return nil, "", nil
	case o.namespace != "":
		return nil, o.namespace, nil
	}
	namespace, _, err = o.loader.Namespace()
	return nil, namespace, err
}

// named is an object.
type named struct {
	resource        schema.GroupResource
	namespace, name string
}

func (n named) String() string {
	return report.Name(n.resource, n.namespace, n.name)
}

// differ compares objects. One after the other, so that it does not take memory for all.
type differ struct {
	*diffOptions
	out, notes io.Writer
	from, to   int64 // 0 for now
	one        bool  // whether the object was named
	different  bool
	missing    map[schema.GroupResource]bool // resources that are not served any more
}

// touched returns the objects that have changed between the moments.
func (d *differ) touched(ctx context.Context, namespace string) ([]named, error) {
	log := &changeLog{cluster: &d.cluster, namespace: namespace, terms: []fields.Selector{equals("afterRevision", fmt.Sprint(d.from))}}
	if d.to != 0 {
		log.terms = append(log.terms, equals("beforeRevision", fmt.Sprint(d.to+1)))
	}
	if len(d.resources) == 1 {
		log.terms = append(log.terms, equals("resource", d.resources[0]))
	} else if len(d.resources) == 0 {
		for _, resource := range []string{"events", "leases"} {
			log.terms = append(log.terms, fields.OneTermNotEqualSelector("resource", resource))
		}
	}
	seen := map[named]bool{}
	err := log.each(ctx, func(c *changes.Change) error {
		if c.Gap != nil {
			return nil
		}
		version, err := schema.ParseGroupVersion(c.Object.APIVersion)
		resource := schema.GroupResource{Group: version.Group, Resource: c.Object.Resource}
		wanted := len(d.resources) == 0 || slices.Contains(d.resources, resource.String()) || slices.Contains(d.resources, resource.Resource)
		if wanted && c.Operation != "purge" {
			seen[named{resource, c.Object.Namespace, c.Object.Name}] = true
		}
		return err
	})
	objects := make([]named, 0, len(seen))
	for object := range seen {
		objects = append(objects, object)
	}
	slices.SortFunc(objects, func(a, b named) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.resource.String(), b.resource.String()), cmp.Compare(a.name, b.name))
	})
	return objects, err
}

// compare prints how an object differs.
func (d *differ) compare(ctx context.Context, o named) error {
	if d.missing[o.resource] {
		return nil
	}
	before, err := d.get(ctx, o.resource, "", o.namespace, o.name, d.from)
	if meta.IsNoMatchError(err) {
		d.missing[o.resource] = true
		fmt.Fprintf(d.notes, "%s is not served any more\n", o.resource)
		return nil
	}
	if err != nil {
		return err
	}
	after, err := d.get(ctx, o.resource, "", o.namespace, o.name, d.to)
	if err != nil {
		return err
	}
	if before == nil && after == nil && d.one {
		return errors.New("there was none at either moment, as far as you may know")
	}
	return d.print(ctx, o, [2]string{folder(d.from), folder(d.to)}, before, after)
}

// folder returns what the folder of a moment's files is called.
func folder(revision int64) string {
	if revision == 0 {
		return "now"
	}
	return fmt.Sprint(revision)
}

// print prints how two versions of an object differ, of which the first or the second can be nil. It changes them.
func (d *differ) print(ctx context.Context, o named, folders [2]string, before, after map[string]any) error {
	if err := d.hide(ctx, o.resource, before, after); err != nil {
		return err
	}
	texts, err := d.texts(before, after)
	if err != nil || texts[0] == texts[1] {
		return err
	}
	d.different = true
	kind := &unstructured.Unstructured{Object: after}
	if after == nil {
		kind.Object = before
	}
	files := [2]string{file(o, kind.GroupVersionKind(), folders[0]), file(o, kind.GroupVersionKind(), folders[1])}
	fmt.Fprintf(d.out, "diff -u -N %s %s\n", files[0], files[1])
	return difflib.WriteUnifiedDiff(d.out, difflib.UnifiedDiff{
		A: slices.Collect(strings.Lines(texts[0])), B: slices.Collect(strings.Lines(texts[1])), FromFile: files[0], ToFile: files[1], Context: 3,
	})
}

// file returns what kubectl diff would call the object's file in a folder.
func file(o named, kind schema.GroupVersionKind, folder string) string {
	parts := []string{kind.Group, kind.Version, kind.Kind, o.namespace, o.name}
	return folder + "/" + terminal.Printable(strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "."))
}

// texts returns the versions of an object as YAML.
func (d *differ) texts(versions ...map[string]any) (texts [2]string, err error) {
	for i, version := range versions {
		if version == nil {
			continue
		}
		if !d.whole {
			withoutNoise(version)
			if metadata, ok := version["metadata"].(map[string]any); ok {
				delete(metadata, "generation")
			}
			if !d.status {
				delete(version, "status")
			}
		}
		text, err := terminal.YAML(version)
		if err != nil {
			return texts, err
		}
		texts[i] = string(text)
	}
	return texts, nil
}
