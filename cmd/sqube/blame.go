package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sqube/sqube/cmd/sqube/internal/terminal"
	"github.com/sqube/sqube/server/changes"
	"github.com/sqube/sqube/sqlstore/fieldpath"
)

// blameOptions are the flags of sqube blame.
type blameOptions struct {
	cluster
	namespace, at string
}

func blameCommand() *cobra.Command {
	var o blameOptions
	cmd := &cobra.Command{
		Use:   "blame RESOURCE NAME",
		Short: "Print an object with who set each field, and when",
		Long: `Print an object as YAML, each line with the change that set its field: its revision, when
it was, by whom, with which field manager, and in which transaction, if in one. Of a
deleted object, it prints the last version. It asks the server, through the API, so it
shows what you may get. Fields that were set before the server's history begins have no
change. Of secret values, it shows sizes.`,
		Example: `  sqube blame deploy/web -n shop
  sqube blame deploy/web -n shop --at 2h`,
		RunE: o.run,
	}
	o.addFlags(cmd.Flags())
	cmd.Flags().StringVarP(&o.namespace, "namespace", "n", "", "Namespace of the object. If unset, the context's.")
	cmd.Flags().StringVar(&o.at, "at", "", "Revision, time such as 2026-11-21T10:00:00Z, or how long ago, such as 10m, at which to show the object. If unset, now.")
	return cmd
}

func (o *blameOptions) run(cmd *cobra.Command, args []string) error {
	if err := o.load(); err != nil {
		return err
	}
	return o.write(cmd.Context(), args, cmd.OutOrStdout(), cmd.ErrOrStderr(), widthOf(cmd.OutOrStdout()))
}

// widthOf returns the width of the terminal that is written to; 0 if it is none.
func widthOf(out io.Writer) int {
	if file, ok := out.(*os.File); ok {
		if columns, _, err := term.GetSize(int(file.Fd())); err == nil {
			return columns
		}
	}
	return 0
}

// write writes the object, in lines of a width, 0 for any.
func (o *blameOptions) write(ctx context.Context, args []string, out, notes io.Writer, width int) error {
	resource, namespace, name, err := o.object(args, o.namespace)
	if err != nil {
		return err
	}
	at, err := o.revisionAt(ctx, "--at", o.at, namespace)
	if err != nil {
		return err
	}
	b := &blame{cluster: &o.cluster, resource: resource, namespace: namespace, name: name, at: at}
	log := &changeLog{cluster: &o.cluster, namespace: o.namespace}
	if err := log.of(args); err != nil {
		return err
	}
	log.terms = append(log.terms, equals("order", "newest"))
	if at != 0 {
		log.terms = append(log.terms, equals("beforeRevision", fmt.Sprint(at+1)))
	}
	if err := log.each(ctx, func(c *changes.Change) error { return b.add(ctx, c) }); err != nil {
		return err
	}
	if b.text == nil { // it has not changed for as long as history goes back
		if err := b.load(ctx, "", at); err != nil {
			return err
		}
	}
	if b.deleted != nil {
		d := b.deleted
		fmt.Fprintf(notes, "%s %s was deleted at %s by %s (revision %s). This is its last version.\n", resource, terminal.Printable(name),
			d.CreationTimestamp.UTC().Format(timeFormat), terminal.Printable(changes.Author(d.User, d.ImpersonatedUser)), d.Name)
	}
	return b.print(out, width)
}

// blame finds the changes that set the lines of an object.
type blame struct {
	*cluster
	resource        schema.GroupResource
	namespace, name string
	at              int64

	deleted *changes.Change // the deletion of the object
	text    []string        // its YAML, line by line
	by      []*changes.Change
	left    int // of the lines, those without a change
	root    *span
}

// add adds a change of the object, the newest first. It returns errEnough if no other can matter.
func (b *blame) add(ctx context.Context, c *changes.Change) error {
	revision, err := strconv.ParseInt(c.Name, 10, 64)
	if err != nil {
		return err
	}
	version, err := schema.ParseGroupVersion(c.Object.APIVersion)
	if err != nil {
		return err
	}
	switch {
	case b.text != nil:
	case c.Operation == "delete" && b.at == 0 && b.deleted == nil:
		b.deleted = c
		return b.load(ctx, version.Version, revision-1)
	case c.Operation == "delete":
		return fmt.Errorf("%s %s did not exist then: it was deleted with revision %d", b.resource, b.name, revision)
	default:
		if err := b.load(ctx, version.Version, revision); err != nil {
			return err
		}
	}
	switch c.Operation {
	case "create":
		b.credit(c, b.root)
		return errEnough
	case "update":
	default: // another object, of the same name
		return errEnough
	}
	paths, err := b.changed(ctx, c, version.Version, revision)
	if err != nil {
		return err
	}
	for _, path := range paths {
		b.credit(c, b.root.find(path))
	}
	if b.left == 0 {
		return errEnough
	}
	return nil
}

// changed returns the paths of the fields that an update changed. If the change does not have all of them, they are those in which
// its versions differ.
func (b *blame) changed(ctx context.Context, c *changes.Change, version string, revision int64) (paths []string, err error) {
	if c.MoreChanged == 0 {
		for _, f := range c.Changed {
			paths = append(paths, f.Path)
		}
		return paths, nil
	}
	after, err := b.get(ctx, b.resource, version, b.namespace, b.name, revision)
	if err != nil {
		return nil, err
	}
	before, err := b.get(ctx, b.resource, version, b.namespace, b.name, revision-1)
	if err != nil {
		return nil, err
	}
	for _, d := range fieldpath.DifferencesOf(withoutNoise(before), withoutNoise(after)) {
		paths = append(paths, d.Path)
	}
	return paths, nil
}

// load reads the object as it was at a revision.
func (b *blame) load(ctx context.Context, version string, revision int64) error {
	object, err := b.get(ctx, b.resource, version, b.namespace, b.name, revision)
	if err != nil {
		return err
	}
	if object == nil {
		return fmt.Errorf("there is no %s %s, as far as you may know", b.resource, b.name)
	}
	if err := b.hide(ctx, b.resource, object); err != nil {
		return err
	}
	b.text, b.root, err = linesOf(withoutNoise(object))
	b.by, b.left = make([]*changes.Change, len(b.text)), len(b.text)
	return err
}

// credit sets the change of lines that have none.
func (b *blame) credit(c *changes.Change, l *span) {
	if l == nil {
		return
	}
	for i := l.from; i < l.to; i++ {
		if b.by[i] == nil {
			b.by[i] = c
			b.left--
		}
	}
}

// withoutNoise removes what every write changes.
func withoutNoise(object map[string]any) map[string]any {
	if metadata, ok := object["metadata"].(map[string]any); ok {
		delete(metadata, "managedFields")
		delete(metadata, "resourceVersion")
	}
	return object
}
