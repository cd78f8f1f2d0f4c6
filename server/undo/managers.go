package undo

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// managers are the field managers of an object, with the fields that each has.
//
// An undo gives fields back to the managers that had them: otherwise it would have them itself, and the next server-side apply of such a
// manager, such as Helm, that changes one of them would be a conflict.
type managers map[manager]held

type manager struct {
	name, subresource, apiVersion string
	operation                     metav1.ManagedFieldsOperationType
}

type held struct {
	fields *fieldpath.Set
	time   *metav1.Time
}

// managersOf reads managed fields. What can't be read has no manager.
func managersOf(entries []metav1.ManagedFieldsEntry) managers {
	m := managers{}
	for _, e := range entries {
		fields := &fieldpath.Set{}
		if e.FieldsV1 != nil && fields.FromJSON(e.FieldsV1.GetRawReader()) == nil {
			m[manager{e.Manager, e.Subresource, e.APIVersion, e.Operation}] = held{fields, e.Time}
		}
	}
	return m
}

// add gives fields to a manager besides those that it has.
func (m managers) add(who manager, more held) {
	if more.fields.Empty() {
		return
	}
	if own, has := m[who]; has {
		more.fields = own.fields.Union(more.fields)
	}
	m[who] = more
}

// goBack gives fields to those who had them before, if they have other values in an object after an undo than in it before that.
func (m managers) goBack(before managers, was, becomes map[string]any) {
	all := &fieldpath.Set{}
	for _, managers := range []managers{m, before} {
		for _, h := range managers {
			all = all.Union(h.fields)
		}
	}
	changed := differing(all, was, becomes)
	for who, h := range m {
		m[who] = held{h.fields.Difference(changed), h.time}
	}
	for who, h := range before {
		m.add(who, held{h.fields.Intersection(changed), h.time})
	}
}

// takeFrom returns managed fields in which m has the fields of the manager of undos, as far as m has them; nil if that manager, or m, has none.
func (m managers) takeFrom(entries []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	now := managersOf(entries)
	ours := manager{name: Manager, operation: metav1.ManagedFieldsOperationUpdate}
	for who := range now {
		if who.name == ours.name && who.operation == ours.operation && who.subresource == "" {
			ours = who
		}
	}
	undone, ok := now[ours]
	delete(now, ours)
	for who, h := range m {
		if ok && who.name != Manager {
			now.add(who, held{h.fields.Intersection(undone.fields), h.time})
		}
	}
	if !ok || len(now) == 0 {
		return nil
	}
	return now.entries()
}

// entries returns managed fields in the form of the API.
func (m managers) entries() []metav1.ManagedFieldsEntry {
	var entries []metav1.ManagedFieldsEntry
	for who, h := range m {
		if text, err := h.fields.ToJSON(); err == nil && !h.fields.Empty() {
			entries = append(entries, metav1.ManagedFieldsEntry{
				Manager: who.name, Subresource: who.subresource, APIVersion: who.apiVersion, Operation: who.operation, Time: h.time,
				FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(string(text)),
			})
		}
	}
	return entries
}

// differing returns those of the fields that are different in two values, or are only in one. Of a field with fields in it, it matters only
// whether it is there.
func differing(fields *fieldpath.Set, a, b any) *fieldpath.Set {
	found := &fieldpath.Set{}
	for at := range fields.Members.All() {
		x, inA := child(a, at)
		y, inB := child(b, at)
		if _, has := fields.Children.Get(at); inA != inB || !has && !reflect.DeepEqual(x, y) {
			found.Members.Insert(at)
		}
	}
	for at := range fields.Children.All() {
		below, _ := fields.Children.Get(at)
		x, _ := child(a, at)
		y, _ := child(b, at)
		if inner := differing(below, x, y); !inner.Empty() {
			*found.Children.Descend(at) = *inner
		}
	}
	return found
}

// child returns a field of a map, or an item of a list.
func child(in any, at fieldpath.PathElement) (any, bool) {
	if at.FieldName != nil {
		fields, _ := in.(map[string]any)
		found, ok := fields[*at.FieldName]
		return found, ok
	}
	items, _ := in.([]any)
	i := slices.IndexFunc(items, func(item any) bool {
		switch {
		case at.Value != nil:
			return value.Equals(value.NewValueInterface(item), *at.Value)
		case at.Key != nil:
			fields, _ := item.(map[string]any)
			return !slices.ContainsFunc(*at.Key, func(f value.Field) bool {
				return !value.Equals(value.NewValueInterface(fields[f.Name]), f.Value)
			})
		}
		return false
	})
	if at.Index != nil && *at.Index >= 0 && *at.Index < len(items) {
		i = *at.Index
	}
	if i < 0 {
		return nil, false
	}
	return items[i], true
}

// giveBack gives the fields of an object that an undo has just written to those who had them before.
func (p *planner) giveBack(ctx context.Context, resource schema.GroupVersionResource, w *work, written *unstructured.Unstructured) (err error) {
	for range attempts {
		entries := managersOf(w.managed).takeFrom(written.GetManagedFields())
		if entries == nil {
			return nil
		}
		var patch []byte
		if patch, err = json.Marshal(map[string]any{"metadata": map[string]any{"managedFields": entries}}); err != nil {
			return err
		}
		if _, err = p.cluster.patch(ctx, resource, written, patch); !apierrors.IsConflict(err) {
			return err
		}
		if written, err = p.cluster.get(ctx, resource, w.namespace, w.name); err != nil {
			return err
		}
	}
	return err
}
