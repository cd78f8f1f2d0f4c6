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
)

// planner plans an undo and applies it, for one request.
type planner struct {
	past    *past
	cluster *cluster // as the caller
	account *account

	spec      *Spec
	selection *selection
	root      *key              // the object of spec
	uids      map[string]string // of former objects: those of their successors
	planned   map[string]bool   // the uids of the objects that are created
	defined   map[string]bool   // the names of the definitions that are created
	volumes   map[string]bool   // the PersistentVolumes that are created
	deleted   map[key]string    // the objects that are deleted, with their resourceVersions
	living    *living           // what deletions may destroy with them
	began     int64             // the revision before the first write
	spans     []Span            // what a Taker takes back, instead of what spec says
	// withoutSecrets is set if history does not have the values of Secrets.
	withoutSecrets bool
	most           int // how many objects there can be
}

// work is what a step needs to be applied. A plan can have thousands, so it has only what is needed, as text.
type work struct {
	key
	uid    string                     // of the former object that comes back
	object []byte                     // what is created
	owners []metav1.OwnerReference    // of that
	patch  []byte                     // what makes of live what it becomes, if it is changed
	live   *unstructured.Unstructured // what it is, without all but a part of its metadata; nil if it does not exist
	// managed are the former managers of the fields that are changed or created.
	managed []metav1.ManagedFieldsEntry
}

// shown is the number of changes that a step names.
const shown = 3

// plan returns the steps of an undo. It returns an API error if spec is invalid, or nothing can be undone.
func (p *planner) plan(ctx context.Context, spec *Spec) ([]Step, error) {
	if p.spans == nil {
		if err := spec.validate(); err != nil {
			return nil, err
		}
	}
	p.spec, p.selection = spec, &selection{past: p.past, most: p.most, undone: map[key]map[int64]bool{}, wholly: map[key]bool{}, left: map[string]int{}, account: p.account}
	p.uids, p.planned, p.defined, p.volumes = map[string]string{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
	if err := p.choose(ctx); err != nil {
		return nil, err
	}
	subjects, err := p.selection.load(ctx, slices.Collect(maps.Keys(p.selection.undone))...)
	if err != nil {
		return nil, err
	}
	if spec.Object == nil || spec.To == nil { // else all that followed is selected
		more, err := p.selection.follow(ctx)
		if err != nil {
			return nil, err
		}
		followed, err := p.selection.load(ctx, more...)
		if err != nil {
			return nil, err
		}
		maps.Copy(subjects, followed)
	}
	var steps []Step
	for _, k := range slices.SortedFunc(maps.Keys(subjects), func(a, b key) int { return strings.Compare(a.String(), b.String()) }) {
		subjects[k].close()
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
	p.selection.notes = append(p.selection.notes, p.selection.leftNotes()...)
	if slices.ContainsFunc(steps, func(s Step) bool { return s.Action == Create }) {
		p.selection.notes = append(p.selection.notes, fmt.Sprintf("admission sees %s as the author of what is created, not who made it before", p.past.user.GetName()))
	}
	return steps, nil
}

// choose selects the changes to take back.
func (p *planner) choose(ctx context.Context) error {
	if p.spans != nil {
		return p.inSpans(ctx)
	}
	if p.spec.Object == nil {
		return p.selection.changes(ctx, p.spec.Changes)
	}
	k, err := p.named(p.spec.Object)
	if err != nil {
		return err
	}
	p.root = &k
	return p.selection.object(ctx, k, p.spec.To)
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
		return refuse("spec.changes must have a user, an impersonatedUser, a fieldManager, an auditID, a transaction, since or afterRevision: it would be everything otherwise")
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
	kind, err := p.kind(ctx, sub)
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
	r, err := sub.revert(ctx, live, p.spec.Force)
	if err != nil || !r.touched {
		return nil, err
	}
	undoes, err := sub.references(ctx)
	if err != nil {
		return nil, err
	}
	step := &Step{
		Object: StepReference{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Resource: k.resource, Namespace: k.namespace, Name: k.name},
		Undoes: undoes, Conflicts: r.conflicts, Reason: r.reason, work: &work{key: k, uid: r.uid},
	}
	if err := p.decide(ctx, step, sub, r, live); err != nil {
		return nil, err
	}
	return step, step.work.set(p.account, step, r, live)
}

// set sets what the step needs of what the object becomes and is.
func (w *work) set(account *account, step *Step, r *reverted, live *unstructured.Unstructured) (err error) {
	switch step.Action {
	case Create:
		o := &unstructured.Unstructured{Object: r.object}
		w.owners = o.GetOwnerReferences()
		w.object, err = json.Marshal(r.object)
	case Update:
		w.patch, err = json.Marshal(mergePatch(r.now, r.object))
	}
	if err != nil {
		return err
	}
	if live != nil {
		w.live = &unstructured.Unstructured{Object: map[string]any{}}
		w.live.SetNamespace(live.GetNamespace())
		w.live.SetName(live.GetName())
		w.live.SetUID(live.GetUID())
		w.live.SetResourceVersion(live.GetResourceVersion())
	}
	size := stepBytes + len(w.object) + len(w.patch)
	if w.managed = r.managers.entries(); step.Action == Leave || step.Action == Delete {
		w.managed = nil
	}
	for _, e := range w.managed {
		size += len(e.FieldsV1.GetRawString())
	}
	for _, d := range step.Diff {
		size += len(d.Path) + len(d.From) + len(d.To)
	}
	return account.add(size)
}

// decide sets the action of a step.
func (p *planner) decide(ctx context.Context, step *Step, sub *subject, r *reverted, live *unstructured.Unstructured) error {
	w, current := step.work, r.now
	if live != nil {
		for _, c := range sub.changes {
			if c.Operation == deletion && c.UID != string(live.GetUID()) {
				p.uids[c.UID] = string(live.GetUID())
			}
		}
	}
	switch {
	case r.reason != "":
		step.Action = Leave
		if live != nil && Remade(w.groupResource(), live) != "" {
			step.Reason, step.Conflicts = Remade(w.groupResource(), live), nil
		}
	case reflect.DeepEqual(current, r.object):
		step.Action, step.Reason = Leave, nothingToDo
		if len(r.conflicts) > 0 {
			step.Reason = changedSince
		}
	case live != nil && live.GetDeletionTimestamp() != nil:
		step.Action, step.Reason = Leave, ending
	case current == nil:
		step.Action = Create
		if err := p.leaveOut(ctx, step, sub, r.object); err != nil {
			return err
		}
	case r.object == nil:
		step.Action = Delete
		if p.selection.wholly[w.key] {
			step.Warnings = append(step.Warnings, "it did not exist then")
			p.leaveOwned(step, live)
		}
	default:
		step.Action = Update
		if p.selection.wholly[w.key] {
			p.leaveOwned(step, live)
		}
		step.Diff = changes.FieldChanges(p.past.log.Served.Hidden(ctx, w.groupResource()), fieldpath.DifferencesOf(current, r.object))
	}
	if step.Action == Create || step.Action == Update {
		reason := keptOut(w.key, current, r.object)
		if p.withoutSecrets && w.group == "" && w.resource == "secrets" {
			reason = "the mirror does not have the values of Secrets"
		}
		if reason != "" {
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
	return nil
}

// leaveOut leaves an object out that comes back by itself, or must not come back.
func (p *planner) leaveOut(ctx context.Context, step *Step, sub *subject, object map[string]any) error {
	if p.root != nil && *p.root == step.work.key {
		return nil // it was asked for by its name
	}
	former := &unstructured.Unstructured{Object: object}
	for _, c := range sub.changes { // with its status
		if c.UID != step.work.uid {
			continue
		}
		e, err := c.read(ctx)
		if err != nil {
			return err
		}
		if before, err := decode(e.Before); err == nil && before != nil {
			former = &unstructured.Unstructured{Object: before}
		}
		break
	}
	if reason := Remade(step.work.groupResource(), former); reason != "" {
		step.Action, step.Reason = Leave, reason
		if step.Object.Resource == "serviceaccounts" && former.Object["imagePullSecrets"] != nil {
			step.Warnings = append(step.Warnings, "its imagePullSecrets are not brought back")
		}
	} else if reason := finished(former); reason != "" {
		step.Action, step.Reason = Leave, reason
	}
	return nil
}

// leaveOwned leaves what a controller keeps as its owner says.
func (p *planner) leaveOwned(step *Step, o *unstructured.Unstructured) {
	if reason := Remade(step.work.groupResource(), o); reason != "" && *p.root != step.work.key {
		step.Action, step.Reason = Leave, reason
	}
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
	object, err := decode(w.object)
	if err != nil {
		return err
	}
	target := &unstructured.Unstructured{Object: object}
	step.Warnings = append(step.Warnings, fresh(w.key, target)...)
	if w.group == "" && w.resource == "persistentvolumeclaims" {
		p.claim(ctx, step, target)
	}
	var kept []metav1.OwnerReference
	for _, owner := range w.owners {
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
	target.SetOwnerReferences(kept)
	w.owners = kept
	w.object, err = json.Marshal(target.Object)
	return err
}

// claim says of a PersistentVolumeClaim what becomes of its volume.
func (p *planner) claim(ctx context.Context, step *Step, target *unstructured.Unstructured) {
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

// looked is how many changes are read to show what a step is about.
const looked = 10

// kind returns the kind of an object, as it is stored.
func (p *planner) kind(ctx context.Context, s *subject) (schema.GroupVersionKind, error) {
	for _, c := range s.changes[:min(looked, len(s.changes))] {
		e, err := c.read(ctx)
		if err != nil {
			return schema.GroupVersionKind{}, err
		}
		for _, value := range [][]byte{e.After, e.Before} {
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
	if kind, served := p.past.log.Served.KindOf(s.groupResource()); served {
		return kind, nil
	}
	return schema.GroupVersionKind{Group: s.group, Version: "v1"}, nil // of its versions, nothing is kept
}

// references returns changes that are taken back, and did more than change the status, as far as a look at a few shows.
func (s *subject) references(ctx context.Context) (all []ChangeReference, err error) {
	left := looked
	for _, c := range s.changes {
		if !s.undone[c.ID] || len(all) == shown || left == 0 {
			continue
		}
		left--
		touches, err := c.touches(ctx, "")
		if err != nil {
			return nil, err
		}
		if touches {
			all = append(all, c.reference())
		}
	}
	return all, nil
}
