package concepts

import (
	"net/http"
	"testing"
)

// "The API Object Lifecycle": the states in which an object can be and how it comes from one to another. The machine is the
// same for a kind that is built in, for one that has grace periods, and for a custom resource.
var lifecycle = []promise{
	{"an object that does not exist is in no list and in no watch, and can't be read, updated or deleted", func(t *testing.T, c *cluster) {
		c.kinds(t, func(path string, _ map[string]any) {
			c.get(t, path).notFound(t)
			c.delete(t, path).notFound(t)
			c.patch(t, mergePatch, path, `{}`).notFound(t)
			c.patch(t, jsonPatch, path, `[]`).notFound(t)
		})
	}},
	{"an object that is created is active", func(t *testing.T, c *cluster) {
		c.kinds(t, func(path string, object map[string]any) {
			c.create(t, path, object)
			if at := c.get(t, path).ok(t).value(t, "metadata", "deletionTimestamp"); at != nil {
				t.Errorf("%s: it is being deleted since %v", path, at)
			}
		})
	}},
	{"an active object stays so with every kind of update", func(t *testing.T, c *cluster) {
		c.kinds(t, func(path string, object map[string]any) {
			c.create(t, path, object)
			for how, update := range c.updates(path, object) {
				a := update(t, map[string]any{"labels": map[string]any{"by": how}}).ok(t)
				equal(t, a.value(t, "metadata", "deletionTimestamp"), nil)
				equal(t, a.text(t, "metadata", "labels", "by"), how)
			}
		})
	}},
	{"an active object that is deleted without finalizers or grace period does not exist any more", func(t *testing.T, c *cluster) {
		c.kinds(t, func(path string, object map[string]any) {
			c.create(t, path, object)
			c.delete(t, path+"?gracePeriodSeconds=0").ok(t)
			c.get(t, path).notFound(t)
		})
	}},
	{"an active object that is deleted with finalizers is being deleted, and can still be read and updated", func(t *testing.T, c *cluster) {
		c.kinds(t, func(path string, object map[string]any) {
			c.deleting(t, path, object)
			c.get(t, path).ok(t)
			for how, update := range c.updates(path, object) {
				a := update(t, map[string]any{"labels": map[string]any{"by": how}, "finalizers": []string{"example.com/one"}}).ok(t)
				equal(t, a.text(t, "metadata", "labels", "by"), how)
				if a.value(t, "metadata", "deletionTimestamp") == nil {
					t.Errorf("%s: it is active after %s", path, how)
				}
			}
		})
	}},
	{"the name of what is being deleted is not free", func(t *testing.T, c *cluster) {
		c.kinds(t, func(path string, object map[string]any) {
			c.deleting(t, path, object)
			c.post(t, collection(path), object).refused(t, http.StatusConflict, "AlreadyExists",
				`object is being deleted: `, ` "a" already exists`)
		})
	}},
	{"an object that is being deleted is gone with any update that takes its last finalizer", func(t *testing.T, c *cluster) {
		c.kinds(t, func(path string, object map[string]any) {
			for how := range c.updates(path, object) {
				c.deleting(t, path, object)
				a := c.updates(path, object)[how](t, map[string]any{"finalizers": []string{}}).ok(t)
				if a.value(t, "metadata", "deletionTimestamp") == nil {
					t.Errorf("%s: the answer to %s is not the object as it was last: %s", path, how, a.Body)
				}
				c.get(t, path).notFound(t)
			}
		})
	}},
	{"an object that takes the name of a deleted one is another, which updates of that don't reach", func(t *testing.T, c *cluster) {
		c.kinds(t, func(path string, object map[string]any) {
			old := c.create(t, path, object)
			c.delete(t, path+"?gracePeriodSeconds=0").ok(t)
			if fresh := c.create(t, path, object); fresh.text(t, "metadata", "uid") == old.text(t, "metadata", "uid") {
				t.Errorf("%s: the uid is the same", path)
			}
			stale := with(object, old.text(t, "metadata", "uid"), "metadata", "uid")
			stale = with(stale, old.version(t), "metadata", "resourceVersion")
			c.put(t, path, stale).conflict(t)
			stale = map[string]any{"metadata": map[string]any{"uid": old.text(t, "metadata", "uid")}}
			c.patch(t, mergePatch, path, stale).invalid(t, "metadata.uid")
		})
	}},
	{"to a watcher the states are ADDED, MODIFIED, MODIFIED with a deletionTimestamp, and DELETED", func(t *testing.T, c *cluster) {
		c.kinds(t, func(path string, object map[string]any) {
			from := c.get(t, collection(path)).ok(t).version(t)
			watch := c.watch(t, collection(path)+"?watch=true&fieldSelector=metadata.name=a&resourceVersion="+from)
			c.create(t, path, with(object, []string{"example.com/one"}, "metadata", "finalizers"))
			c.patch(t, mergePatch, path, `{"metadata":{"labels":{"a":"b"}}}`).ok(t)
			c.delete(t, path+"?gracePeriodSeconds=0").ok(t)
			c.setFinalizers(t, path).ok(t)
			for i, want := range []string{"ADDED", "MODIFIED", "MODIFIED", "DELETED"} {
				got := watch.next(t)
				_, deleting := got.Object["metadata"].(map[string]any)["deletionTimestamp"]
				if got.Type != want || deleting != (i > 1) {
					t.Errorf("%s: event %d is %s, being deleted: %t", path, i, got.Type, deleting)
				}
			}
		})
	}},
}

// kinds calls show with an object of each kind of lifecycle, called a, and its path.
func (c *cluster) kinds(t *testing.T, show func(path string, object map[string]any)) {
	c.serviceAccount(t)
	groupVersion := c.widgets(t, anySchema)
	show(c.path("v1", "configmaps", "a"), with(configMap("a", nil), "v1", "apiVersion"))
	show(c.path("v1", "pods", "a"), pod("a"))
	show(c.path(groupVersion, "widgets", "a"), widget(groupVersion, "a"))
}

// collection is the path of the list that the object of a path is in.
func collection(path string) string { return path[:len(path)-len("/a")] }

func (c *cluster) create(t *testing.T, path string, object map[string]any) answer {
	t.Helper()
	c.delete(t, path+"?gracePeriodSeconds=0")
	return c.post(t, collection(path), object).created(t)
}

// deleting makes an object that is being deleted and has one finalizer left.
func (c *cluster) deleting(t *testing.T, path string, object map[string]any) {
	t.Helper()
	object = with(object, []string{"example.com/one"}, "metadata", "finalizers")
	c.patch(t, applyPatch, path+"?fieldManager=a", object).created(t)
	a := c.delete(t, path+"?gracePeriodSeconds=0").ok(t)
	if a.value(t, "metadata", "deletionTimestamp") == nil {
		t.Fatalf("%s: it is not being deleted: %s", path, a.Body)
	}
}

// updates are the ways to change fields of the metadata of the object at a path.
func (c *cluster) updates(path string, object map[string]any) map[string]func(t testing.TB, metadata map[string]any) answer {
	metadata := func(fields map[string]any) map[string]any { return map[string]any{"metadata": fields} }
	changed := func(object, fields map[string]any) map[string]any {
		for name, value := range fields {
			object = with(object, value, "metadata", name)
		}
		return object
	}
	return map[string]func(t testing.TB, metadata map[string]any) answer{
		"PUT": func(t testing.TB, fields map[string]any) answer {
			return c.put(t, path, changed(c.get(t, path).ok(t).object(t), fields))
		},
		"merge": func(t testing.TB, fields map[string]any) answer {
			return c.patch(t, mergePatch, path, metadata(fields))
		},
		"json": func(t testing.TB, fields map[string]any) answer {
			var operations []any
			for name, value := range fields {
				operations = append(operations, map[string]any{"op": "add", "path": "/metadata/" + name, "value": value})
			}
			return c.patch(t, jsonPatch, path, operations)
		},
		"apply": func(t testing.TB, fields map[string]any) answer {
			return c.patch(t, applyPatch, path+"?fieldManager=a&force=true", changed(object, fields))
		},
	}
}
