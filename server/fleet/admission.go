package fleet

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/sqube/sqube/server/fleet/v1alpha1"
)

// fleetUser is who makes and changes Clusters for the fleet.
const fleetUser = "system:sqube:fleet"

// admitter checks writes of Clusters and ClusterPools, and has next check all writes.
type admitter struct {
	*Fleet
	next       admission.Interface
	authorizer authorizer.Authorizer
}

// Admission implements server.Fleet.
func (f *Fleet) Admission(next admission.Interface, authorizer authorizer.Authorizer) admission.Interface {
	return &admitter{f, next, authorizer}
}

// Handles implements admission.Interface.
func (a *admitter) Handles(operation admission.Operation) bool {
	return operation == admission.Create || operation == admission.Update || a.next.Handles(operation)
}

// Admit implements admission.MutationInterface.
func (a *admitter) Admit(ctx context.Context, to admission.Attributes, o admission.ObjectInterfaces) error {
	if object, ok := written(to, resource); ok && to.GetSubresource() == "" {
		if err := a.mark(ctx, to, object); err != nil {
			return err
		}
	}
	if next, ok := a.next.(admission.MutationInterface); ok && a.next.Handles(to.GetOperation()) {
		return next.Admit(ctx, to, o)
	}
	return nil
}

// written returns the object of a write of a resource of the fleet.
func written(to admission.Attributes, of string) (*unstructured.Unstructured, bool) {
	if r := to.GetResource(); r.Group != v1alpha1.GroupVersion.Group || r.Resource != of {
		return nil, false
	}
	object, ok := to.GetObject().(*unstructured.Unstructured)
	return object, ok && (to.GetOperation() == admission.Create || to.GetOperation() == admission.Update)
}

// mark sets what the server itself sets in the metadata of a Cluster.
func (a *admitter) mark(ctx context.Context, to admission.Attributes, object *unstructured.Unstructured) error {
	kept := map[string]string{}
	before, _ := to.GetOldObject().(*unstructured.Unstructured)
	switch {
	case to.GetOperation() == admission.Update && before != nil:
		for _, key := range []string{v1alpha1.DatabaseAnnotation, v1alpha1.TemplateAnnotation} {
			kept[key] = before.GetAnnotations()[key]
		}
		kept[v1alpha1.PoolLabel] = before.GetLabels()[v1alpha1.PoolLabel]
	default:
		id := object.GetAnnotations()[v1alpha1.DatabaseAnnotation]
		if id != "" {
			adopted, err := a.adoptable(ctx, id, nameOf(object))
			if err != nil {
				return apierrors.NewServiceUnavailable(err.Error())
			}
			if !adopted {
				id = ""
			}
		}
		if id == "" {
			id = strings.ToLower(rand.Text()[:20])
		}
		kept[v1alpha1.DatabaseAnnotation] = id
		kept[v1alpha1.TemplateAnnotation], kept[v1alpha1.PoolLabel] = "", ""
		if to.GetUserInfo().GetName() == fleetUser { // for a pool
			kept[v1alpha1.TemplateAnnotation] = object.GetAnnotations()[v1alpha1.TemplateAnnotation]
			kept[v1alpha1.PoolLabel] = object.GetLabels()[v1alpha1.PoolLabel]
		}
	}
	object.SetAnnotations(with(object.GetAnnotations(), kept, v1alpha1.DatabaseAnnotation, v1alpha1.TemplateAnnotation))
	object.SetLabels(with(object.GetLabels(), kept, v1alpha1.PoolLabel))
	if finalizers := object.GetFinalizers(); object.GetDeletionTimestamp() == nil && !slices.Contains(finalizers, v1alpha1.Finalizer) {
		object.SetFinalizers(append(finalizers, v1alpha1.Finalizer))
	}
	return nil
}

// with returns a map with the values of keys that kept has; an empty value is none.
func with(all, kept map[string]string, keys ...string) map[string]string {
	for _, key := range keys {
		switch value := kept[key]; {
		case value == "":
			delete(all, key)
		case all == nil:
			all = map[string]string{key: value}
		default:
			all[key] = value
		}
	}
	return all
}

// Validate implements admission.ValidationInterface.
func (a *admitter) Validate(ctx context.Context, to admission.Attributes, o admission.ObjectInterfaces) error {
	for of, path := range map[string][]string{resource: {"spec", "from"}, pools: {"spec", "template", "spec", "from"}} {
		if object, ok := written(to, of); ok && to.GetSubresource() == "" {
			if err := a.mayCopy(ctx, to, object, path...); err != nil {
				return err
			}
		}
	}
	if next, ok := a.next.(admission.ValidationInterface); ok && a.next.Handles(to.GetOperation()) {
		return next.Validate(ctx, to, o)
	}
	return nil
}

// mayCopy returns an error unless the user can read what a cluster begins with: a copy shows all of it.
func (a *admitter) mayCopy(ctx context.Context, to admission.Attributes, object *unstructured.Unstructured, path ...string) error {
	from, found, err := unstructured.NestedMap(object.Object, path...)
	if err != nil || !found { // the schema refuses what is no object
		return nil
	}
	if before, ok := to.GetOldObject().(*unstructured.Unstructured); ok && to.GetOperation() == admission.Update {
		if same, _, _ := unstructured.NestedMap(before.Object, path...); apiequality.Semantic.DeepEqual(same, from) {
			return nil
		}
	}
	need := authorizer.AttributesRecord{
		User: to.GetUserInfo(), APIGroup: v1alpha1.GroupVersion.Group, APIVersion: v1alpha1.GroupVersion.Version,
		Resource: resource, Namespace: to.GetNamespace(), ResourceRequest: true, Verb: "restore",
	}
	if name, isFork, _ := unstructured.NestedString(from, "cluster", "name"); isFork {
		need.Verb, need.Name = "fork", name
		if namespace, _, _ := unstructured.NestedString(from, "cluster", "namespace"); namespace != "" {
			need.Namespace = namespace
		}
	} else { // a backup is of everything, and its place is one of the server's machine
		need.Namespace = ""
	}
	decision, reason, err := a.authorizer.Authorize(ctx, need)
	if err != nil || decision != authorizer.DecisionAllow {
		what := "restore clusters from backups in the cluster scope"
		if need.Verb == "fork" {
			what = fmt.Sprintf("fork the cluster %q in the namespace %q", need.Name, need.Namespace)
		}
		return admission.NewForbidden(to, fmt.Errorf("user %q cannot %s, which needs the verb %q of the resource %q in the API group %q: %s",
			to.GetUserInfo().GetName(), what, need.Verb, resource, v1alpha1.GroupVersion.Group, reason))
	}
	return nil
}
