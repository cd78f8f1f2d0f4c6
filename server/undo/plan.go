package undo

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sqube/sqube/server/changes"
	"github.com/sqube/sqube/sqlstore/fieldpath"
	"github.com/sqube/sqube/sqlstore/history"
)

// planner plans an undo and applies it, for one request.
type planner struct {
	past    *past
	cluster *cluster // as the caller

	spec      *Spec
	selection *selection
	root      *key              // the object of spec
	uids      map[string]string // of former objects: those of their successors
	planned   map[string]bool   // the uids of the objects that are created
	defined   map[string]bool   // the names of the definitions that are created
	volumes   map[string]bool   // the PersistentVolumes that are created
	began     int64             // the revision before the first write
}

// work is what a step needs to be applied.
type work struct {
	key
	uid    string                     // of the former object that comes back
	target *unstructured.Unstructured // what it becomes, nil if it is deleted
	live   *unstructured.Unstructured // what it is, nil if it does not exist
}

const (
	// shown is the number of changes that a step names.
	shown = 3
	// maxValue is how many bytes of a value a step shows.
	maxValue = 1024
)

// plan returns the steps of an undo. It returns an API error if spec is invalid, or nothing can be undone.
func (p *planner) plan(ctx context.Context, spec *Spec) ([]Step, error) {
	if err := spec.validate(); err != nil {
		return nil, err
	}
	p.spec, p.selection = spec, &selection{past: p.past, undone: map[key]map[int64]bool{}, wholly: map[key]bool{}}
	p.uids, p.planned, p.defined, p.volumes = map[string]string{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
	if err := p.choose(ctx); err != nil {
		return nil, err
	}
	keys := slices.SortedFunc(maps.Keys(p.selection.undone), func(a, b key) int { return strings.Compare(a.String(), b.String()) })
	subjects, err := p.selection.load(ctx, keys...)
	if err != nil {
		return nil, err
	}
	var steps []Step
	for _, k := range keys {
		step, err := p.step(ctx, subjects[k])
		if err != nil {
			return nil, err
		}
		if step != nil {
			steps = append(steps, *step)
		}
	}
	if err := p.spare(ctx, steps); err != nil {
		return nil, err
	}
	steps = order(steps)
	for i := range steps {
		if err := p.complete(ctx, &steps[i]); err != nil {
			return nil, err
		}
	}
	return steps, nil
}

// choose selects the changes to take back.
func (p *planner) choose(ctx context.Context) error {
	if p.spec.Object == nil {
		if err := p.selection.changes(ctx, p.spec.Changes); err != nil {
			return err
		}
		return p.selection.follow(ctx)
	}
	k, err := p.named(p.spec.Object)
	if err != nil {
		return err
	}
	p.root = &k
	if err := p.selection.object(ctx, k, p.spec.To); err != nil || p.spec.To != nil {
		return err
	}
	return p.selection.follow(ctx)
}

func (s *Spec) validate() error {
	switch {
	case (s.Object == nil) == (s.Changes == nil):
		return refuse("spec must have either object or changes")
	case s.Changes != nil && s.To != nil:
		return refuse("spec.to is only for spec.object: use since or afterRevision in spec.changes")
	}
	if o := s.Object; o != nil {
		if o.Name == "" || o.Kind == "" && o.Resource == "" {
			return refuse("spec.object must have a name, and a kind or a resource")
		}
	}
	if c := s.Changes; c != nil && !c.ByWhom() && c.Since == nil && c.AfterRevision == 0 {
		return refuse("spec.changes must have a user, an impersonatedUser, a fieldManager, an auditID, since or afterRevision: it would be everything otherwise")
	}
	if to := s.To; to != nil {
		given := 0
		for _, is := range []bool{to.Revision != 0, to.Before != 0, to.Time != nil} {
			if is {
				given++
			}
		}
		if given != 1 || to.Revision < 0 || to.Before < 0 {
			return refuse("spec.to must have one of revision, before and time")
		}
	}
	return nil
}

// limit limits what to undo to the namespace of the request, unless that is "".
func (s *Spec) limit(namespace string) error {
	if namespace == "" {
		return nil
	}
	if c := s.Changes; c != nil {
		if c.Namespace != "" && c.Namespace != namespace {
			return refuse("spec.changes.namespace is not %s, the namespace of the request", namespace)
		}
		c.Namespace = namespace
	}
	if o := s.Object; o != nil && o.Namespace != namespace {
		itself := o.Group == "" && (o.APIVersion == "" || o.APIVersion == "v1") && (o.Resource == "namespaces" || o.Kind == "Namespace") && o.Name == namespace
		if !itself {
			return refuse("spec.object is not in %s, the namespace of the request", namespace)
		}
	}
	return nil
}

func (p *planner) named(o *ObjectReference) (key, error) {
	k := key{group: o.Group, resource: o.Resource, namespace: o.Namespace, name: o.Name}
	version, err := schema.ParseGroupVersion(o.APIVersion)
	if err != nil {
		return k, refuse("spec.object.apiVersion: %v", err)
	}
	if k.group == "" {
		k.group = version.Group
	}
	if k.resource == "" {
		resource, _ := p.cluster.resource(version.WithKind(o.Kind))
		k.resource = resource.Name
	}
	return k, nil
}

// step returns what to do with an object, nil if nothing was done to it but to its status.
func (p *planner) step(ctx context.Context, sub *subject) (*Step, error) {
	if len(sub.changes) == 0 {
		return nil, nil
	}
	k := sub.key
	kind, err := sub.kind()
	if err != nil {
		return nil, err
	}
	resource := kind.GroupVersion().WithResource(k.resource)
	live, err := p.cluster.get(ctx, resource, k.namespace, k.name)
	if apierrors.IsForbidden(err) {
		return nil, nil
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("read %s: %w", k, err)
	}
	r, err := sub.revert(live, p.spec.Force)
	if err != nil || !r.touched {
		return nil, err
	}
	step := &Step{
		Object: StepReference{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Resource: k.resource, Namespace: k.namespace, Name: k.name},
		Undoes: sub.references(), Conflicts: r.conflicts, Reason: r.reason, work: &work{key: k, uid: r.uid, live: live},
	}
	if r.object != nil {
		step.work.target = &unstructured.Unstructured{Object: r.object}
	}
	p.decide(ctx, step, sub, r)
	return step, nil
}

// decide sets the action of a step.
func (p *planner) decide(ctx context.Context, step *Step, sub *subject, r *reverted) {
	w := step.work
	if w.live != nil {
		for _, c := range sub.changes {
			if c.Operation == deletion && c.UID != string(w.live.GetUID()) {
				p.uids[c.UID] = string(w.live.GetUID())
			}
		}
	}
	var current map[string]any
	if w.live != nil {
		current = strip(w.live.DeepCopy().Object)
	}
	switch {
	case r.reason != "":
		step.Action = Leave
		if w.live != nil && remade(w.key, w.live) != "" {
			step.Reason, step.Conflicts = remade(w.key, w.live), nil
		}
	case reflect.DeepEqual(current, r.object):
		step.Action, step.Reason = Leave, "nothing to do: it is as it was"
		if len(r.conflicts) > 0 {
			step.Reason = "others have changed the same fields since"
		}
	case w.live != nil && w.live.GetDeletionTimestamp() != nil:
		step.Action, step.Reason = Leave, ending
	case current == nil:
		step.Action = Create
		p.leaveOut(step, sub)
	case r.object == nil:
		step.Action = Delete
		if p.selection.wholly[w.key] {
			step.Warnings = append(step.Warnings, "it did not exist then")
			p.leaveOwned(step, w.live)
		}
	default:
		step.Action = Update
		if p.selection.wholly[w.key] {
			p.leaveOwned(step, w.live)
		}
		step.Diff = fieldChanges(p.past.log.Served.Hidden(ctx, schema.GroupResource{Group: w.group, Resource: w.resource}), fieldpath.DifferencesOf(current, r.object))
	}
	if step.Action == Create || step.Action == Update {
		if reason := keptOut(w.key, current, r.object); reason != "" {
			step.Action, step.Reason, step.Diff, step.Conflicts = Leave, reason, nil, nil
		}
	}
	if step.Action == Create {
		p.planned[w.uid] = true
		switch {
		case w.of(definitions):
			p.defined[w.name] = true
		case w.group == "" && w.resource == "persistentvolumes":
			p.volumes[w.name] = true
		}
	}
}

// leaveOut leaves an object out that comes back by itself, or must not come back.
func (p *planner) leaveOut(step *Step, sub *subject) {
	former := step.work.target
	for _, c := range sub.changes { // with its status
		if c.UID != step.work.uid || c.Before == nil {
			continue
		}
		if object, err := decode(c.Before); err == nil {
			former = &unstructured.Unstructured{Object: object}
			break
		}
	}
	if p.root != nil && *p.root == step.work.key {
		return // it was asked for by its name
	}
	if reason := remade(step.work.key, former); reason != "" {
		step.Action, step.Reason = Leave, reason
		if step.Object.Resource == "serviceaccounts" && former.Object["imagePullSecrets"] != nil {
			step.Warnings = append(step.Warnings, "its imagePullSecrets are not brought back")
		}
	} else if reason := finished(former); reason != "" {
		step.Action, step.Reason = Leave, reason
	}
}

// leaveOwned leaves what a controller keeps as its owner says.
func (p *planner) leaveOwned(step *Step, o *unstructured.Unstructured) {
	if reason := remade(step.work.key, o); reason != "" && *p.root != step.work.key {
		step.Action, step.Reason = Leave, reason
	}
}

// spare leaves namespaces and definitions that would be deleted, but have what the plan leaves: others have made or changed it since.
func (p *planner) spare(ctx context.Context, steps []Step) error {
	deleted := map[key]bool{}
	for _, s := range steps {
		deleted[s.work.key] = s.Action == Delete
	}
	for i := range steps {
		step := &steps[i]
		q, holds := step.work.content()
		if step.Action != Delete || !holds {
			continue
		}
		q.After = p.selection.first(step.work.key) - 1
		seen := map[key]bool{}
		newest := func(c *history.Change) bool {
			k := keyOf(c)
			before := seen[k]
			seen[k] = true
			return !before && c.Operation != deletion && !deleted[k] && !transient(k)
		}
		if err := p.past.walk(ctx, q, newest, func(c *change) error {
			object, err := decode(c.After)
			if err != nil || c.marked || remade(c.key(), &unstructured.Unstructured{Object: object}) != "" {
				return err
			}
			step.Conflicts = append(step.Conflicts, Conflict{Change: c.reference(), Forced: p.spec.Force})
			if !p.spec.Force {
				step.Action, step.Reason = Leave, fmt.Sprintf("it has %s, which would be deleted with it", c.key())
			}
			return errEnough
		}); err != nil {
			return err
		}
	}
	return nil
}

// complete adds what depends on other steps.
func (p *planner) complete(ctx context.Context, step *Step) error {
	if step.Action != Create {
		return nil
	}
	w := step.work
	version, err := schema.ParseGroupVersion(step.Object.APIVersion)
	if err != nil {
		return err
	}
	if _, served := p.cluster.resource(version.WithKind(step.Object.Kind)); !served && !p.defined[w.full()] {
		step.Action, step.Reason = Leave, fmt.Sprintf("%s is not served: bring back its CustomResourceDefinition first", w.full())
		delete(p.planned, w.uid)
		return nil
	}
	step.Warnings = append(step.Warnings, fresh(w.key, w.target)...)
	if w.group == "" && w.resource == "persistentvolumeclaims" {
		p.claim(ctx, step)
	}
	var kept []metav1.OwnerReference
	for _, owner := range w.target.GetOwnerReferences() {
		if p.planned[string(owner.UID)] || p.uids[string(owner.UID)] != "" {
			kept = append(kept, owner)
			continue
		}
		uid, err := p.cluster.uidOf(ctx, owner.APIVersion, owner.Kind, w.namespace, owner.Name)
		switch {
		case err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err):
			return err
		case err != nil: // the garbage collector would delete it at once
			step.Warnings = append(step.Warnings, fmt.Sprintf("it comes back without its owner %s %s, which does not exist", owner.Kind, owner.Name))
		default:
			p.uids[string(owner.UID)] = uid
			kept = append(kept, owner)
		}
	}
	w.target.SetOwnerReferences(kept)
	return nil
}

// claim says of a PersistentVolumeClaim what becomes of its volume.
func (p *planner) claim(ctx context.Context, step *Step) {
	target := step.work.target
	volume, _, _ := unstructured.NestedString(target.Object, "spec", "volumeName")
	switch {
	case volume == "":
		return
	case p.volumes[volume]:
		step.Warnings = append(step.Warnings, fmt.Sprintf("its data is there only if the volume behind %s is", volume))
		return
	}
	pv, err := p.cluster.get(ctx, schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumes"}, "", volume)
	switch {
	case apierrors.IsNotFound(err):
		unstructured.RemoveNestedField(target.Object, "spec", "volumeName")
		step.Warnings = append(step.Warnings, fmt.Sprintf("its volume %s is gone, and the data with it: it comes back empty", volume))
	case err != nil:
		step.Warnings = append(step.Warnings, fmt.Sprintf("its volume %s may be gone", volume))
	default:
		policy, _, _ := unstructured.NestedString(pv.Object, "spec", "persistentVolumeReclaimPolicy")
		step.Warnings = append(step.Warnings, fmt.Sprintf("its volume %s (%s) binds again once its spec.claimRef.uid is removed", volume, policy))
	}
}

// kind returns the kind of an object, as it is stored.
func (s *subject) kind() (schema.GroupVersionKind, error) {
	for _, c := range s.changes {
		for _, value := range [][]byte{c.After, c.Before} {
			if len(value) == 0 {
				continue
			}
			var meta metav1.TypeMeta
			if err := json.Unmarshal(value, &meta); err != nil {
				return schema.GroupVersionKind{}, fmt.Errorf("%s in history: %w", s.key, err)
			}
			return meta.GroupVersionKind(), nil
		}
	}
	return schema.GroupVersionKind{Group: s.group, Version: "v1"}, nil // of its last version, nothing is kept
}

func (s *subject) references() (all []ChangeReference) {
	for _, c := range s.changes {
		if s.undone[c.ID] && len(all) < shown && s.touches(c, "") {
			all = append(all, c.reference())
		}
	}
	return all
}

// fieldChanges are differences as they are shown: of secret values, only sizes.
func fieldChanges(hidden *changes.Hidden, all []fieldpath.Difference) []FieldChange {
	shown := make([]FieldChange, 0, len(all))
	for _, d := range all {
		of := hidden.Of(d.Path)
		secret := of.Hides(d.Old) || of.Hides(d.New)
		text := func(value any) string {
			if value == nil {
				return ""
			}
			if secret {
				return changes.Sized(of.Size(value))
			}
			encoded, err := json.Marshal(value)
			if err != nil {
				return err.Error()
			}
			if len(encoded) > maxValue {
				return fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(string(encoded[:maxValue]), ""), len(encoded))
			}
			return string(encoded)
		}
		shown = append(shown, FieldChange{Path: d.Path, From: text(d.Old), To: text(d.New)})
	}
	return shown
}
