package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json" // keeps all digits of integers

	"github.com/sqube/sqube/cmd/sqube/internal/manifests"
	"github.com/sqube/sqube/cmd/sqube/internal/terminal"
	"github.com/sqube/sqube/server/transaction"
)

// wholeOptions are the flags of commands that write the objects in files as one transaction.
type wholeOptions struct {
	cluster
	files     manifests.Files
	namespace string
	name      string
	dryRun    bool
	confirm   confirmFlags
	output    string
}

func (o *wholeOptions) addFlags(fs *pflag.FlagSet, verb string) {
	o.cluster.addFlags(fs)
	o.files.AddFlags(fs, verb)
	fs.StringVarP(&o.namespace, "namespace", "n", "", "Namespace of objects that name none. If unset, the context's. Objects with another one are refused.")
	fs.BoolVar(&o.dryRun, "dry-run", false, "Print what would change, as sqube diff does, and change nothing. The server tries all of it.")
	o.confirm.addFlags(fs)
	fs.StringVar(&o.name, "name", "", "Name of the transaction, which can be used once in a day. If unset, one is made up.")
	fs.StringVarP(&o.output, "output", "o", "", "Print the objects as 'json' or 'yaml', or only their names: 'name'.")
}

func (o *wholeOptions) check() error {
	switch o.output {
	case "", "json", "yaml", "name":
	default:
		return fmt.Errorf("--output must be json, yaml or name, not %q", o.output)
	}
	if o.dryRun && o.output != "" {
		return errors.New("--dry-run prints differences, so --output must not be given with it")
	}
	return o.confirm.check()
}

// read reads the objects in the order in which they can be written, and the kubeconfig.
func (o *wholeOptions) read(cmd *cobra.Command) ([]manifests.Object, error) {
	objects, err := o.files.Read(cmd.InOrStdin())
	if err != nil {
		return nil, terminal.OneLine(err)
	}
	manifests.Sort(objects)
	return objects, o.load()
}

// inNamespace gives objects without a namespace theirs, and refuses those in another one than --namespace.
func (o *wholeOptions) inNamespace(objects []manifests.Object) error {
	own, err := o.ownNamespace()
	if err != nil {
		return err
	}
	for _, object := range objects {
		if _, err := o.place(object, own); err != nil {
			return fmt.Errorf("%w; nothing was written", err)
		}
	}
	return nil
}

// place gives an object without a namespace its own, and refuses one in another namespace than --namespace. It returns its resource.
func (o *wholeOptions) place(object manifests.Object, own string) (*meta.RESTMapping, error) {
	kind := object.GroupVersionKind()
	mapping, err := o.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", object, terminal.OneLine(err))
	case mapping.Scope.Name() == meta.RESTScopeNameRoot:
		object.SetNamespace("")
	case object.GetNamespace() == "":
		object.SetNamespace(own)
	case o.namespace != "" && object.GetNamespace() != o.namespace:
		return nil, fmt.Errorf("%s is not in the namespace %s of --namespace", object, o.namespace)
	}
	return mapping, nil
}

// ownNamespace returns --namespace, or the context's.
func (o *wholeOptions) ownNamespace() (string, error) {
	if o.namespace != "" {
		return o.namespace, nil
	}
	own, _, err := o.loader.Namespace()
	return own, terminal.OneLine(err)
}

// writer returns what writes transactions and says so with the word done.
func (o *wholeOptions) writer(cmd *cobra.Command, done string) (*wholeWriter, error) {
	client, err := transaction.NewClient(o.config, nil)
	if err != nil {
		return nil, err
	}
	w := &wholeWriter{o: o, client: client, done: done, in: cmd.InOrStdin(), out: cmd.OutOrStdout(), notes: cmd.ErrOrStderr(), command: cmd.Root().CommandPath()}
	w.differ = &differ{diffOptions: &diffOptions{cluster: o.cluster}, out: w.out, notes: w.notes}
	return w, nil
}

// refused returns the error of a transaction with the file and the object that it is about.
func (w *wholeWriter) refused(err error) error {
	if unknown := unknownOutcome(err); unknown != nil {
		return unknown
	}
	i, message, ok := transaction.OperationOf(err)
	if !ok || i >= len(w.objects) {
		if apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("%w: it was committed before; nothing was written now", terminal.OneLine(err))
		}
		return fmt.Errorf("%w; nothing was written", terminal.OneLine(err))
	}
	return fmt.Errorf("%s: %s; nothing was written", w.objects[i], strings.Join(strings.Fields(message), " "))
}

// unknownOutcome returns the error of a transaction of which it is not known what became of it, nil for other errors.
func unknownOutcome(err error) error {
	unknown, ok := errors.AsType[*transaction.UnknownError](err)
	if !ok {
		return nil
	}
	return fmt.Errorf("%w; ask with: kubectl get --raw /apis/history.sqube.io/v1alpha1/transactions/%s", terminal.OneLine(err), unknown.Name)
}

// wholeWriter commits transactions and prints what they do.
type wholeWriter struct {
	o          *wholeOptions
	client     *transaction.Client
	differ     *differ
	done       string
	in         io.Reader
	out, notes io.Writer
	command    string

	objects []manifests.Object // of the transaction
	written []transaction.OperationResult
	results []*transaction.Result // of committed transactions that have written something
}

// begin begins a transaction.
func (w *wholeWriter) begin(name string) *transaction.Transaction {
	w.objects = nil
	t := w.client.New(name)
	t.DryRun = w.o.dryRun
	w.o.confirm.set(t)
	return t
}

// add notes what the next operation of the transaction is about.
func (w *wholeWriter) add(object manifests.Object) { w.objects = append(w.objects, object) }

// commit commits a transaction, or tries it, and prints what it does.
func (w *wholeWriter) commit(ctx context.Context, t *transaction.Transaction) error {
	if len(w.objects) == 0 {
		return nil
	}
	result, err := t.Commit(ctx)
	if _, _, known := transaction.OperationOf(err); apierrors.IsForbidden(err) && !known { // who may not in the whole cluster may still in the namespace
		if t.Namespace, err = w.o.ownNamespace(); err == nil {
			result, err = t.Commit(ctx)
		}
	}
	if err != nil {
		return w.refused(err)
	}
	for i := range result.Operations {
		for _, warning := range result.Operations[i].Warnings {
			fmt.Fprintf(w.notes, "Warning: %s\n", terminal.Printable(warning))
		}
	}
	if w.o.dryRun {
		return w.differences(ctx, result)
	}
	w.written = append(w.written, result.Operations...)
	if slices.ContainsFunc(result.Operations, func(r transaction.OperationResult) bool { return !r.Unchanged }) {
		w.results = append(w.results, result)
	}
	if w.o.output == "" || w.o.output == "name" {
		for i := range result.Operations {
			w.line(&result.Operations[i])
		}
	}
	return nil
}

// line prints what was done to an object, as kubectl does.
func (w *wholeWriter) line(r *transaction.OperationResult) {
	name := nameOf(r)
	if w.o.output == "name" {
		fmt.Fprintln(w.out, name)
		return
	}
	done := w.done
	switch {
	case r.Unchanged:
		done = "unchanged"
	case r.Verb == "delete" && w.done != deleted:
		done = "pruned"
	}
	fmt.Fprintln(w.out, name, done)
}

// nameOf names an object as kubectl does.
func nameOf(r *transaction.OperationResult) string {
	kind := schema.FromAPIVersionAndKind(r.APIVersion, strings.ToLower(r.Kind))
	return terminal.Printable(kind.GroupKind().String() + "/" + r.Name)
}

// deleted is the word of sqube delete.
const deleted = "deleted"

// differences prints what a transaction would change.
func (w *wholeWriter) differences(ctx context.Context, result *transaction.Result) error {
	for i := range result.Operations {
		r := &result.Operations[i]
		kind := schema.FromAPIVersionAndKind(r.APIVersion, r.Kind)
		mapping, err := w.o.mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			return terminal.OneLine(err)
		}
		resource := mapping.Resource.GroupResource()
		before, err := w.o.get(ctx, resource, kind.Version, r.Namespace, r.Name, 0)
		if err != nil {
			return err
		}
		var after map[string]any
		if r.Verb != "delete" {
			if err := json.Unmarshal(r.Object, &after); err != nil {
				return err
			}
			if metadata, ok := after["metadata"].(map[string]any); ok && before == nil { // of a trial
				delete(metadata, "uid")
				delete(metadata, "creationTimestamp")
			}
		}
		if err := w.differ.print(ctx, named{resource, r.Namespace, r.Name}, [2]string{"now", "then"}, before, after); err != nil {
			return err
		}
	}
	return nil
}

// end prints the objects, if that was asked, and how to take back what was done.
func (w *wholeWriter) end(ctx context.Context) error {
	if w.o.dryRun {
		if !w.differ.different {
			fmt.Fprintln(w.notes, "There is nothing to change.")
		}
		return nil
	}
	if err := w.list(); err != nil {
		return err
	}
	if len(w.results) == 0 {
		fmt.Fprintln(w.notes, "Everything was so already: nothing was written.")
	}
	for _, r := range w.results {
		confirmHint(w.notes, w.command, r)
	}
	for _, r := range slices.Backward(w.results) { // the last one first
		undoHint(w.notes, w.command, r)
	}
	return confirmByKey(ctx, w.client, w.in, w.notes, w.results...)
}

// list prints the written objects, as kubectl does: one alone, several as a List.
func (w *wholeWriter) list() error {
	if w.o.output != "json" && w.o.output != "yaml" {
		return nil
	}
	items := make([]any, len(w.written))
	for i := range w.written {
		var object map[string]any
		if err := json.Unmarshal(w.written[i].Object, &object); err != nil {
			return err
		}
		items[i] = object
	}
	printed := map[string]any{"apiVersion": "v1", "kind": "List", "metadata": map[string]any{"resourceVersion": ""}, "items": items}
	if one, ok := items[0].(map[string]any); ok && len(items) == 1 {
		printed = one
	}
	encode := terminal.YAML
	if w.o.output == "json" {
		encode = func(object map[string]any) ([]byte, error) { return terminal.JSON(object) }
	}
	text, err := encode(printed)
	if err == nil {
		_, err = w.out.Write(text)
	}
	return err
}
