package deletion

import (
	"net/http"
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
)

// "The API Object Lifecycle": the states of an object and its transitions. They are the same for a built-in kind, for one with
// grace periods, and for a custom resource.
var lifecycle = []kit.Promise{
	{Statement: "an object that does not exist is in no list or watch, and can't be read, updated or deleted", Proof: func(t *testing.T, c *kit.Cluster) {
		kinds(t, c, func(path string, _ map[string]any) {
			c.Get(t, path).NotFound(t)
			c.Delete(t, path).NotFound(t)
			c.Patch(t, kit.MergePatch, path, `{}`).NotFound(t)
			c.Patch(t, kit.JSONPatch, path, `[]`).NotFound(t)
		})
	}},
	{Statement: "a created object is active, and stays so through every kind of update", Proof: func(t *testing.T, c *kit.Cluster) {
		kinds(t, c, func(path string, object map[string]any) {
			kit.Equal(t, create(t, c, path, object).Value(t, "metadata", "deletionTimestamp"), nil)
			for how, update := range updates(c, path, object) {
				a := update(t, map[string]any{"labels": map[string]any{"by": how}}).OK(t)
				kit.Equal(t, a.Value(t, "metadata", "deletionTimestamp"), nil)
				kit.Equal(t, a.Text(t, "metadata", "labels", "by"), how)
			}
		})
	}},
	{Statement: "an active object deleted with finalizers is being deleted, and can still be read and updated", Proof: func(t *testing.T, c *kit.Cluster) {
		kinds(t, c, func(path string, object map[string]any) {
			deleting(t, c, path, object)
			c.Get(t, path).OK(t)
			for how, update := range updates(c, path, object) {
				a := update(t, map[string]any{"labels": map[string]any{"by": how}, "finalizers": []string{"example.com/one"}}).OK(t)
				kit.Equal(t, a.Text(t, "metadata", "labels", "by"), how)
				if a.Value(t, "metadata", "deletionTimestamp") == nil {
					t.Errorf("%s: it is active after %s", path, how)
				}
			}
		})
	}},
	{Statement: "the name of an object being deleted is not free", Proof: func(t *testing.T, c *kit.Cluster) {
		kinds(t, c, func(path string, object map[string]any) {
			deleting(t, c, path, object)
			c.Post(t, kit.CollectionOf(path), object).Refused(t, http.StatusConflict, "AlreadyExists",
				`object is being deleted: `, ` "a" already exists`)
		})
	}},
	{Statement: "an object being deleted is removed by any update that removes its last finalizer", Proof: func(t *testing.T, c *kit.Cluster) {
		kinds(t, c, func(path string, object map[string]any) {
			for how := range updates(c, path, object) {
				deleting(t, c, path, object)
				a := updates(c, path, object)[how](t, map[string]any{"finalizers": []string{}}).OK(t)
				if a.Value(t, "metadata", "deletionTimestamp") == nil {
					t.Errorf("%s: the response to %s is not the last state of the object: %s", path, how, a.Body)
				}
				c.Get(t, path).NotFound(t)
			}
		})
	}},
	{Statement: "an object with the name of a deleted one is a different object, not affected by updates of the old one", Proof: func(t *testing.T, c *kit.Cluster) {
		kinds(t, c, func(path string, object map[string]any) {
			old := create(t, c, path, object)
			c.Delete(t, path+"?gracePeriodSeconds=0").OK(t)
			if fresh := create(t, c, path, object); fresh.Text(t, "metadata", "uid") == old.Text(t, "metadata", "uid") {
				t.Errorf("%s: the uid is the same", path)
			}
			stale := kit.With(object, old.Text(t, "metadata", "uid"), "metadata", "uid")
			stale = kit.With(stale, old.ResourceVersion(t), "metadata", "resourceVersion")
			c.Put(t, path, stale).Conflict(t)
			stale = map[string]any{"metadata": map[string]any{"uid": old.Text(t, "metadata", "uid")}}
			c.Patch(t, kit.MergePatch, path, stale).Invalid(t, "metadata.uid")
		})
	}},
	{Statement: "a watcher receives ADDED, MODIFIED, MODIFIED with a deletionTimestamp, and DELETED", Proof: func(t *testing.T, c *kit.Cluster) {
		kinds(t, c, func(path string, object map[string]any) {
			from := c.Get(t, kit.CollectionOf(path)).OK(t).ResourceVersion(t)
			watch := c.Watch(t, kit.CollectionOf(path)+"?watch=true&fieldSelector=metadata.name=a&resourceVersion="+from)
			create(t, c, path, kit.With(object, []string{"example.com/one"}, "metadata", "finalizers"))
			c.Patch(t, kit.MergePatch, path, `{"metadata":{"labels":{"a":"b"}}}`).OK(t)
			c.Delete(t, path+"?gracePeriodSeconds=0").OK(t)
			c.SetFinalizers(t, path).OK(t)
			for i, want := range []string{"ADDED", "MODIFIED", "MODIFIED", "DELETED"} {
				got := watch.Next(t)
				_, deleting := got.Object["metadata"].(map[string]any)["deletionTimestamp"]
				if got.Type != want || deleting != (i > 1) {
					t.Errorf("%s: event %d is %s, being deleted: %t", path, i, got.Type, deleting)
				}
			}
		})
	}},
}

// kinds calls show with an object for each kind of lifecycle, named a, and its path.
func kinds(t *testing.T, c *kit.Cluster, show func(path string, object map[string]any)) {
	c.MakeDefaultServiceAccount(t)
	groupVersion := c.DefineWidgets(t, kit.AnySchema)
	show(c.Path("v1", "configmaps", "a"), kit.With(kit.ConfigMap("a", nil), "v1", "apiVersion"))
	show(c.Path("v1", "pods", "a"), kit.Pod("a"))
	show(c.Path(groupVersion, "widgets", "a"), kit.Widget(groupVersion, "a"))
}

func create(t *testing.T, c *kit.Cluster, path string, object map[string]any) kit.Answer {
	t.Helper()
	c.Delete(t, path+"?gracePeriodSeconds=0")
	return c.Post(t, kit.CollectionOf(path), object).Created(t)
}

// deleting creates an object that is being deleted and has one finalizer left.
func deleting(t *testing.T, c *kit.Cluster, path string, object map[string]any) {
	t.Helper()
	object = kit.With(object, []string{"example.com/one"}, "metadata", "finalizers")
	c.Patch(t, kit.ApplyPatch, path+"?fieldManager=a", object).Created(t)
	a := c.Delete(t, path+"?gracePeriodSeconds=0").OK(t)
	if a.Value(t, "metadata", "deletionTimestamp") == nil {
		t.Fatalf("%s: it is not being deleted: %s", path, a.Body)
	}
}

// updates returns the ways to change the metadata of the object at a path.
func updates(c *kit.Cluster, path string, object map[string]any) map[string]func(t testing.TB, metadata map[string]any) kit.Answer {
	metadata := func(fields map[string]any) map[string]any { return map[string]any{"metadata": fields} }
	changed := func(object, fields map[string]any) map[string]any {
		for name, value := range fields {
			object = kit.With(object, value, "metadata", name)
		}
		return object
	}
	return map[string]func(t testing.TB, metadata map[string]any) kit.Answer{
		"PUT": func(t testing.TB, fields map[string]any) kit.Answer {
			return c.Put(t, path, changed(c.Get(t, path).OK(t).Object(t), fields))
		},
		"merge": func(t testing.TB, fields map[string]any) kit.Answer {
			return c.Patch(t, kit.MergePatch, path, metadata(fields))
		},
		"json": func(t testing.TB, fields map[string]any) kit.Answer {
			var operations []any
			for name, value := range fields {
				operations = append(operations, map[string]any{"op": "add", "path": "/metadata/" + name, "value": value})
			}
			return c.Patch(t, kit.JSONPatch, path, operations)
		},
		"apply": func(t testing.TB, fields map[string]any) kit.Answer {
			return c.Patch(t, kit.ApplyPatch, path+"?fieldManager=a&force=true", changed(object, fields))
		},
	}
}
