package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json" // keeps all digits of integers
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/sqube/sqube/server/changes"
	"github.com/sqube/sqube/server/fleet/v1alpha1"
	"github.com/sqube/sqube/server/undo"
	"github.com/sqube/sqube/sqlstore/apistorage"
	"github.com/sqube/sqube/sqlstore/fieldpath"
)

// differ compares two states of a cluster.
type differ struct {
	stateQuery
	log    *changes.Log
	mayGet func(ctx context.Context, resource schema.GroupResource, namespace, name string) (bool, error)
}

// begin sets which states are compared, and returns an API error unless both are kept.
func (d *differ) begin(ctx context.Context) error {
	at, err := d.log.Store.Position(ctx)
	if err != nil {
		return apistorage.ClientError(err)
	}
	if d.until == 0 {
		d.until = at.Revision
	}
	if err := d.log.Store.Await(ctx, min(d.until, at.Revision)); err != nil { // what is in memory can be a moment behind the database
		return apistorage.ClientError(err)
	}
	switch {
	case d.since > d.until:
		return apierrors.NewBadRequest(fmt.Sprintf("since=%d is later than the newest resourceVersion, %d", d.since, d.until))
	case d.since == 0:
		return nil
	}
	from, _, err := d.log.Store.HistoryFrom(ctx, d.since)
	if err == nil && d.since+1 < from {
		return apierrors.NewResourceExpired(fmt.Sprintf("the state at resourceVersion %d is no longer kept: the changes since %d are", d.since, from))
	}
	return apistorage.ClientError(err)
}

// skips leaves out objects that say nothing about what users did.
func (d *differ) skips(t *changes.Touched) bool {
	return !d.owned && (t.Resource.Resource == "events" && (t.Resource.Group == "" || t.Resource.Group == "events.k8s.io") ||
		t.Resource == schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"})
}

// compare returns how an object differs, nil if it does not, or if a controller or the server makes it.
func (d *differ) compare(ctx context.Context, t *changes.Touched) (*v1alpha1.ObjectDifference, error) {
	var before, after map[string]any
	var err error
	if d.since != 0 {
		if before, _, err = d.at(ctx, t, d.since); err != nil {
			return nil, err
		}
	}
	after, version, err := d.at(ctx, t, d.until)
	if err != nil {
		return nil, err
	}
	found := &v1alpha1.ObjectDifference{Operation: v1alpha1.Updated, Resource: t.Resource.Resource, Namespace: t.Namespace, Name: t.Name}
	shown := &unstructured.Unstructured{Object: after}
	switch {
	case before == nil && after == nil:
		return nil, nil
	case before == nil:
		found.Operation = v1alpha1.Created
	case after == nil:
		found.Operation, shown.Object = v1alpha1.Deleted, before
	}
	if !d.owned && made(t.Resource, shown) {
		return nil, nil
	}
	found.APIVersion, found.Kind, found.UID = shown.GetAPIVersion(), shown.GetKind(), shown.GetUID()
	if after != nil {
		found.ResourceVersion = fmt.Sprint(version)
	}
	found.Recreated = before != nil && after != nil && (&unstructured.Unstructured{Object: before}).GetUID() != found.UID
	before, after = d.strip(t.Resource, before), d.strip(t.Resource, after)
	if !found.Recreated && reflect.DeepEqual(before, after) {
		return nil, nil
	}
	if err := d.addAuthor(ctx, t, found); err != nil {
		return nil, err
	}
	if !d.owned && ownAuthor(found.User) {
		return nil, nil
	}
	return found, d.addFields(ctx, t, found, before, after)
}

// at returns an object as it was at a revision.
func (d *differ) at(ctx context.Context, t *changes.Touched, revision int64) (object map[string]any, version int64, err error) {
	text, version, err := d.log.At(ctx, t.Resource, t.Namespace, t.Name, revision)
	if err != nil || text == nil {
		return nil, 0, err
	}
	return object, version, utiljson.Unmarshal(text, &object)
}

// made reports whether a controller or the server makes an object, which says nothing that others do not.
func made(resource schema.GroupResource, o *unstructured.Unstructured) bool {
	serviceRange := resource == schema.GroupResource{Group: "networking.k8s.io", Resource: "servicecidrs"} && o.GetName() == "kubernetes"
	return serviceRange || metav1.GetControllerOf(o) != nil || undo.Remade(resource, o) != ""
}

// ownAuthor reports whether a user is the server itself.
func ownAuthor(name string) bool {
	return name == user.APIServerUser || strings.HasPrefix(name, "system:sqube:")
}

// strip removes from an object what is not compared.
func (d *differ) strip(resource schema.GroupResource, object map[string]any) map[string]any {
	switch {
	case object == nil:
		return nil
	case d.status:
		return undo.StripMetadata(object, true)
	}
	return undo.Strip(d.log.Served, resource, object)
}

// addAuthor says who made the last change that can be seen in the difference. That may not be the last one: controllers write statuses, and the
// one who deletes an object is not always the one who removes its last finalizer.
func (d *differ) addAuthor(ctx context.Context, t *changes.Touched, found *v1alpha1.ObjectDifference) error {
	by := t.Last
	if t.Several {
		const most = 200 // changes that are looked at
		looked := 0
		err := d.log.Back(ctx, t, d.since, d.until, func(e *changes.Entry) (enough bool) {
			looked++
			if enough = d.visible(t.Resource, e, found.Operation == v1alpha1.Deleted); enough {
				by = e.Change
			}
			return enough || looked == most
		})
		if err != nil {
			return err
		}
	}
	found.User, found.ImpersonatedUser, found.Time = by.User, by.ImpersonatedUser, metav1.NewTime(time.UnixMilli(by.WrittenAt))
	return nil
}

// visible reports whether a change did something that is compared, or asked for the deletion if the object was deleted.
func (d *differ) visible(resource schema.GroupResource, e *changes.Entry, deleted bool) bool {
	var before, after map[string]any
	if e.Before == nil && e.After == nil || json.Unmarshal(orNull(e.Before), &before) != nil || json.Unmarshal(orNull(e.After), &after) != nil {
		return true // it is not known
	}
	was := before != nil && (&unstructured.Unstructured{Object: before}).GetDeletionTimestamp() != nil
	if deleted {
		is := after != nil && (&unstructured.Unstructured{Object: after}).GetDeletionTimestamp() != nil
		return !was && (is || after == nil)
	}
	return !reflect.DeepEqual(d.strip(resource, before), d.strip(resource, after))
}

func orNull(text []byte) []byte {
	if text == nil {
		return []byte("null")
	}
	return text
}

// addFields says which fields differ, with secret values only if the user may get the object.
func (d *differ) addFields(ctx context.Context, t *changes.Touched, found *v1alpha1.ObjectDifference, before, after map[string]any) error {
	hidden := d.log.Served.Hidden(ctx, t.Resource)
	if hidden.Hides(before) || hidden.Hides(after) {
		allowed, err := d.mayGet(ctx, t.Resource, t.Namespace, t.Name)
		if err != nil {
			return err
		}
		if allowed {
			hidden = nil
		}
	}
	if found.Operation == v1alpha1.Updated {
		for _, c := range changes.FieldChanges(hidden, fieldpath.DifferencesOf(before, after)) {
			found.Changed = append(found.Changed, v1alpha1.FieldDifference(c))
		}
	}
	if after == nil {
		return nil
	}
	versions := []map[string]any{runtime.DeepCopyJSON(before), runtime.DeepCopyJSON(after)}
	changes.HideIn([]*changes.Hidden{hidden, hidden}, versions)
	patch, err := json.Marshal(mergePatch(versions[0], versions[1]))
	found.Patch = patch
	return err
}

// mergePatch returns the JSON merge patch that makes after of before.
func mergePatch(before, after map[string]any) map[string]any {
	patch := map[string]any{}
	for name, value := range after {
		old, had := before[name]
		if had && reflect.DeepEqual(old, value) {
			continue
		}
		was, wasMap := old.(map[string]any)
		is, isMap := value.(map[string]any)
		if wasMap && isMap {
			patch[name] = mergePatch(was, is)
		} else {
			patch[name] = value
		}
	}
	for name := range before {
		if _, has := after[name]; !has {
			patch[name] = nil
		}
	}
	return patch
}
