package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json" // keeps all digits of integers
	"k8s.io/client-go/dynamic"

	"github.com/sqube/sqube/cmd/sqube/internal/datastore"
	"github.com/sqube/sqube/cmd/sqube/internal/manifests"
	"github.com/sqube/sqube/cmd/sqube/internal/terminal"
	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/server/transaction"
	"github.com/sqube/sqube/server/trial"
)

// applyAlways is the value of --apply with which the verdict does not matter.
const applyAlways = "always"

// errNotApplied ends a trial after which nothing was applied.
func errNotApplied(format string, args ...any) error {
	return &exitError{fmt.Errorf(format+": nothing was applied", args...), 1}
}

// forReal makes the change in the cluster, if what it stands on is as it was copied.
func (o *tryOptions) forReal(cmd *cobra.Command, args []string, result *trial.Result, made *trial.Options) (err error) {
	switch {
	case len(result.Refused) > 0:
		return errNotApplied("--apply: the change was refused")
	case result.Verdict != trial.AtRest && o.doIt != applyAlways:
		return errNotApplied("--apply: the copy was not at rest; --apply=%s applies nevertheless", applyAlways)
	}
	o.overrides.AuthInfo.Impersonate, o.overrides.AuthInfo.ImpersonateGroups = o.as, o.asGroups
	if err := o.load(); err != nil {
		return err
	}
	live, err := dynamic.NewForConfig(o.config)
	if err != nil {
		return err
	}
	reader, err := datastore.Datastore{Path: made.From}.OpenReader(cmd.Context())
	if err != nil {
		return err
	}
	defer closing(&err, reader.Close)
	s := &stand{copied: reader, mapper: o.mapper, live: live}
	if len(args) > 0 {
		if err := s.check(cmd.Context(), result.Touched); err != nil {
			return err
		}
		return o.commandForReal(cmd, made)
	}
	const tries = 5 // the status of an object can change between the check and the change
	for range tries {
		if err = s.check(cmd.Context(), result.Touched); err != nil {
			return err
		}
		if err = o.filesForReal(cmd, s); !apierrors.IsConflict(err) {
			return err
		}
	}
	return err
}

// commandForReal runs the command as in the trial.
func (o *tryOptions) commandForReal(cmd *cobra.Command, made *trial.Options) error {
	answers := &trial.Answers{}
	if err := made.Command(cmd.Context(), o.config, answers); err != nil {
		return err
	}
	if failed := answers.Failures(); len(failed) > 0 {
		return &exitError{errors.New(strings.Join(failed, " ")), 1}
	}
	return nil
}

// filesForReal applies the objects: on a server of sqube in transactions, which require that nothing has changed, elsewhere one by one.
func (o *tryOptions) filesForReal(cmd *cobra.Command, s *stand) error {
	a := o.apply
	a.cluster = o.cluster
	if _, err := o.mapper.KindFor(schema.GroupVersionResource{Group: "history.sqube.io", Resource: "transactions"}); err == nil {
		return a.write(cmd, o.objects, func(t *transaction.Transaction, objects []manifests.Object) {
			for _, object := range objects {
				if now := s.now[s.key(object.Unstructured)]; now != nil {
					t.RequireVersion(now)
				} else {
					t.RequireAbsent(object.Unstructured)
				}
			}
		})
	}
	definitions, rest := manifests.Defined(o.objects)
	for i, objects := range [][]manifests.Object{definitions, rest} {
		for _, object := range objects {
			if now := s.now[s.key(object.Unstructured)]; now != nil {
				object = manifests.Object{Unstructured: object.DeepCopy(), Source: object.Source}
				object.SetResourceVersion(now.GetResourceVersion())
			}
			if err := a.applyOne(cmd.Context(), s.live, object, o.namespace()); err != nil {
				return fmt.Errorf("%s: %w", object, terminal.OneLine(err))
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "%s serverside-applied\n", terminal.Printable(manifests.Name(object.Unstructured)))
		}
		for _, d := range objects {
			if i > 0 {
				break
			}
			if err := a.established(cmd.Context(), d); err != nil {
				return err
			}
		}
		meta.MaybeResetRESTMapper(o.mapper)
	}
	return nil
}

// stand is what a change stands on: in the copy, and now in the cluster.
type stand struct {
	copied dialect.Reader
	mapper meta.RESTMapper
	live   dynamic.Interface

	now map[named]*unstructured.Unstructured // what check has found
}

// key returns how check names an object; that of an object whose kind the cluster does not have is empty.
func (s *stand) key(object *unstructured.Unstructured) named {
	kind := object.GroupVersionKind()
	mapping, err := s.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return named{}
	}
	return named{mapping.Resource.GroupResource(), object.GetNamespace(), object.GetName()}
}

// rules are resources whose objects decide what happens to others: in the namespaces of these, and in the cluster.
var (
	rulesOfNamespaces = []schema.GroupResource{{Resource: "resourcequotas"}, {Resource: "limitranges"}}
	rulesOfCluster    = []schema.GroupResource{
		{Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicies"}, {Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicybindings"},
		{Group: "admissionregistration.k8s.io", Resource: "mutatingadmissionpolicies"}, {Group: "admissionregistration.k8s.io", Resource: "mutatingadmissionpolicybindings"},
		{Group: "admissionregistration.k8s.io", Resource: "validatingwebhookconfigurations"}, {Group: "admissionregistration.k8s.io", Resource: "mutatingwebhookconfigurations"},
	}
)

// check returns an error if an object that the change touches, or one that decides what becomes of it, is not as it was copied.
func (s *stand) check(ctx context.Context, touched []trial.Reference) error {
	s.now = map[named]*unstructured.Unstructured{}
	var look []named // without a name, all of a resource
	for _, t := range touched {
		group, _ := schema.ParseGroupVersion(t.APIVersion)
		look = append(look, named{schema.GroupResource{Group: group.Group, Resource: t.Resource}, t.Namespace, t.Name})
		if t.Namespace == "" {
			continue
		}
		look = append(look, named{schema.GroupResource{Resource: "namespaces"}, "", t.Namespace})
		for _, rule := range rulesOfNamespaces {
			look = append(look, named{rule, t.Namespace, ""})
		}
	}
	for _, rule := range rulesOfCluster {
		look = append(look, named{rule, "", ""})
	}
	seen := map[named]bool{}
	var changed []string
	for _, k := range look {
		if seen[k] {
			continue
		}
		seen[k] = true
		different, err := s.differs(ctx, k)
		if err != nil {
			return terminal.OneLine(fmt.Errorf("comparing %s with the copy: %w", k, err))
		}
		changed = append(changed, different...)
	}
	if len(changed) > 0 {
		slices.Sort(changed)
		return errNotApplied("since it was copied, this has changed: %s; try again", strings.Join(changed, ", "))
	}
	return nil
}

// differs returns which of the objects that k names are not as they were copied.
func (s *stand) differs(ctx context.Context, k named) (names []string, err error) {
	before, err := s.before(ctx, k)
	if err != nil {
		return nil, err
	}
	now, err := s.current(ctx, k, before)
	if apierrors.IsForbidden(err) && len(before) == 0 { // it was not copied, either
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for key, object := range now {
		s.now[key] = object
		if !unchanged(before[key], object) {
			names = append(names, key.String())
		}
	}
	for key := range before {
		if now[key] == nil {
			names = append(names, key.String()+" (deleted)")
		}
	}
	return names, nil
}

// before returns objects as they were copied.
func (s *stand) before(ctx context.Context, k named) (map[named]*unstructured.Unstructured, error) {
	all := map[named]*unstructured.Unstructured{}
	const live = "SELECT id, namespace, name, value FROM log WHERE api_group = ? AND resource = ? AND replaced_by IS NULL AND (namespace = ? OR ? = '') AND (name = ? OR ? = '')"
	err := s.copied.Query(ctx, live, []any{k.resource.Group, k.resource.Resource, k.namespace, k.namespace, k.name, k.name}, func(row dialect.Row) error {
		var id int64
		var key named
		var value []byte
		if err := row.Scan(&id, &key.namespace, &key.name, &value); err != nil {
			return err
		}
		object := &unstructured.Unstructured{}
		if err := json.Unmarshal(value, &object.Object); err != nil {
			return err
		}
		object.SetResourceVersion(strconv.FormatInt(id, 10))
		key.resource = k.resource
		all[key] = object
		return nil
	})
	return all, err
}

// current returns objects as they are, in the version in which they were copied.
func (s *stand) current(ctx context.Context, k named, before map[named]*unstructured.Unstructured) (map[named]*unstructured.Unstructured, error) {
	version := ""
	for _, object := range before {
		version = object.GroupVersionKind().Version
	}
	served, err := servedIn(s.mapper, k.resource, version)
	if meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	all := map[named]*unstructured.Unstructured{}
	client := s.live.Resource(served).Namespace(k.namespace)
	if k.name != "" {
		object, err := client.Get(ctx, k.name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		all[k] = object
		return all, err
	}
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		o := &list.Items[i]
		all[named{k.resource, o.GetNamespace(), o.GetName()}] = o
	}
	return all, nil
}

// unchanged reports whether two states of an object are the same but for its status.
func unchanged(before, now *unstructured.Unstructured) bool {
	if before == nil {
		return false
	}
	if before.GetResourceVersion() == now.GetResourceVersion() {
		return true
	}
	if before.GetUID() != now.GetUID() || now.GetDeletionTimestamp() != nil || now.GetKind() == "Secret" { // values of Secrets are not copied
		return false
	}
	own := func(o *unstructured.Unstructured) map[string]any {
		o = o.DeepCopy()
		unstructured.RemoveNestedField(o.Object, "status")
		for _, field := range []string{"resourceVersion", "managedFields", "creationTimestamp"} {
			unstructured.RemoveNestedField(o.Object, "metadata", field)
		}
		if o.GetGeneration() > 0 { // it counts changes of the spec, which other versions of Kubernetes default in other ways
			unstructured.RemoveNestedField(o.Object, "spec")
		}
		return o.Object
	}
	return reflect.DeepEqual(own(before), own(now))
}
