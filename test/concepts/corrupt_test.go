package concepts

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// Objects that can't be read, and "Deleting resources" of the API concepts, "Force deletion" (KEP-3926). Rows are spoilt
// while no server runs; then one runs without the gate AllowUnsafeMalformedObjectDeletion, and one with it.
//
// Lists and watches are answered as kube-apiserver does without its watch cache: with it they are told to come again, with 429,
// for as long as there is a corrupt object.
func TestCorrupt(t *testing.T) {
	engines(t, func(t *testing.T, engine harness.Engine) {
		options := sqube.Options{Datastore: engine.Datastore, DataDir: t.TempDir()}
		server := sqube.Start(t, options)
		c := &corrupted{newCluster(t, server.Config(t), server, 0), rows{harness.OpenDatabase(t, engine)}}
		t.Run("no API for migrations is served by default", func(t *testing.T) { // kube-apiserver v1.36 has it off, too
			c.get(t, c.global("storagemigration.k8s.io/v1beta1", "storageversionmigrations")).want(t, http.StatusNotFound)
		})
		c.make(t)
		t.Run("a custom resource may have a field that is called as what is around ciphertext in the database", func(t *testing.T) {
			path := c.path(c.group()+"/v1", "widgets")
			c.post(t, path, with(widget(c.group()+"/v1", "boxed"), "eyJhIjoiYiJ9", "$encrypted")).want(t, http.StatusCreated)
			got := c.get(t, path+"/boxed").want(t, http.StatusOK)
			equal(t, []string{got.text(t, "$encrypted"), got.text(t, "metadata", "name")}, []string{"eyJhIjoiYiJ9", "boxed"})
			equal(t, c.get(t, path+"?labelSelector=!l").want(t, http.StatusOK).names(t), []string{"boxed", "garbage"})
			c.delete(t, path+"/boxed").want(t, http.StatusOK)
		})
		server.Stop(t)
		c.spoil(t)

		server.Start(t)
		c.isTold(t)
		server.Stop(t)

		options.Args = []string{"--feature-gates=AllowUnsafeMalformedObjectDeletion=true"}
		server = sqube.Start(t, options)
		gated := &corrupted{newCluster(t, server.Config(t), server, 1), c.rows}
		gated.namespace = c.namespace
		gated.isListed(t)
		gated.isGuarded(t)
		gated.isDeleted(t)
	})
}

// corrupted is a server on whose rows somebody has been.
type corrupted struct {
	*cluster
	rows rows
}

// spoilt are the ConfigMaps that can't be read, and what their rows hold.
var spoilt = map[string]string{
	"encrypted": `{"$encrypted":"azhzOmVuYzphZXNjYmM6djE6a2V5Og=="}`,
	"garbage":   "\U0001F9A0 no JSON",
	"unknown":   `{"kind":"ConfigMap","apiVersion":"v9","metadata":{"name":"unknown"}}`,
	"mistyped":  `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"mistyped"},"data":"a text"}`,
}

const (
	storeReadError = "StorageReadError" // the reason

	unsafe = "ignoreStoreReadErrorWithClusterBreakingPotential"
	// moreThanTold is how many objects of another resource are corrupt: one more than a list tells.
	moreThanTold = 101
)

func (c *corrupted) configMap(name string) string { return c.path("v1", "configmaps", name) }

// key is how errors name a ConfigMap.
func (c *corrupted) key(name string) string { return "/core/configmaps/" + c.namespace + "/" + name }

func (c *corrupted) group() string { return c.namespace + ".example.com" }

func (c *corrupted) make(t *testing.T) {
	for name := range spoilt {
		object := with(configMap(name, nil), []any{"example.com/keep"}, "metadata", "finalizers")
		c.post(t, c.path("v1", "configmaps"), object).want(t, http.StatusCreated)
	}
	c.post(t, c.path("v1", "configmaps"), configMap("sound", nil)).want(t, http.StatusCreated)
	definitions := c.global("apiextensions.k8s.io/v1", "customresourcedefinitions")
	c.post(t, definitions, widgetDefinition(c.group(), anySchema)).want(t, http.StatusCreated)
	eventually(t, "the custom resource is served", func() bool { return c.get(t, c.path(c.group()+"/v1", "widgets")).Code == http.StatusOK })
	c.post(t, c.path(c.group()+"/v1", "widgets"), widget(c.group()+"/v1", "garbage")).want(t, http.StatusCreated)
	for i := range moreThanTold {
		c.post(t, c.path("v1", "podtemplates"), inert(fmt.Sprintf("p%d", i))).want(t, http.StatusCreated)
	}
}

// inert is an object that no controller and no other part of a server is interested in.
func inert(name string) map[string]any {
	return manifest("{apiVersion: v1, kind: PodTemplate, metadata: {name: %s}, template: {spec: {containers: [{name: c, image: i}]}}}", name)
}

func (c *corrupted) spoil(t *testing.T) {
	for name, value := range spoilt {
		c.rows.edit(t, "configmaps", c.namespace, name, value)
	}
	c.rows.edit(t, "widgets", c.namespace, "garbage", "no JSON")
	for i := range moreThanTold {
		c.rows.edit(t, "podtemplates", c.namespace, fmt.Sprintf("p%d", i), "no JSON")
	}
}

// isTold looks at a server without the gate.
func (c *corrupted) isTold(t *testing.T) {
	for name := range spoilt {
		t.Run("an object that can't be read is answered with 500 that names it: "+name, func(t *testing.T) {
			forms := []string{"application/vnd.kubernetes.protobuf", "application/yaml", "application/json;pretty=1", tableOf}
			if name != "mistyped" { // JSON is sent as it was stored; kube-apiserver decodes it first
				forms = append(forms, "application/json")
			}
			for _, accept := range forms {
				got := c.send(t, http.MethodGet, c.configMap(name), header{"Accept", accept}, nil).want(t, http.StatusInternalServerError)
				if !bytes.Contains(got.Body, []byte(c.key(name))) {
					t.Errorf("%s: the answer does not name it: %s", accept, got.Body)
				}
			}
		})
		t.Run("an object that can't be read is neither changed nor deleted: "+name, func(t *testing.T) {
			for _, got := range []answer{
				c.put(t, c.configMap(name), configMap(name, nil)),
				c.patch(t, mergePatch, c.configMap(name), `{"data":{"a":"b"}}`),
				c.delete(t, c.configMap(name)),
				c.delete(t, c.configMap(name)+"?"+unsafe+"=true"),
			} {
				got.refused(t, http.StatusInternalServerError, "InternalError", c.key(name))
			}
			c.post(t, c.path("v1", "configmaps"), configMap(name, nil)).refused(t, http.StatusConflict, "AlreadyExists")
			equal(t, c.rows.live(t, "configmaps", c.namespace, name).value, spoilt[name])
		})
	}
	t.Run("a list with an object that can't be read is answered with 500 that names one", func(t *testing.T) {
		for _, accept := range []string{"application/json", "application/vnd.kubernetes.protobuf", tableOf} {
			got := c.send(t, http.MethodGet, c.path("v1", "configmaps"), header{"Accept", accept}, nil).want(t, http.StatusInternalServerError)
			if !bytes.Contains(got.Body, []byte(c.key(""))) {
				t.Errorf("%s: the answer names none: %s", accept, got.Body)
			}
		}
		c.get(t, c.path(c.group()+"/v1", "widgets")).refused(t, http.StatusInternalServerError, "InternalError", "/widgets/"+c.namespace+"/garbage")
	})
	t.Run("objects beside one that can't be read are read, listed by selectors, and watched", func(t *testing.T) {
		sound := c.get(t, c.configMap("sound")).want(t, http.StatusOK)
		list := c.get(t, c.path("v1", "configmaps")+"?fieldSelector=metadata.name=sound").want(t, http.StatusOK)
		equal(t, list.names(t), []string{"sound"})
		watch := c.watch(t, c.path("v1", "configmaps")+"?watch=true&resourceVersion="+list.version(t))
		defer watch.stop()
		c.put(t, c.configMap("sound"), with(sound.object(t), "a", "data", "k")).want(t, http.StatusOK)
		if event := watch.next(t); event.Type != "MODIFIED" || event.name() != "sound" {
			t.Errorf("the event is %v", event)
		}
	})
	t.Run("a watch that begins with an object that can't be read is told by an event of type ERROR", func(t *testing.T) {
		watch := c.watch(t, c.path("v1", "configmaps")+"?watch=true")
		if event := watch.next(t); event.Type != "ERROR" || event.Object["kind"] != "Status" || event.Object["code"] != 500.0 {
			t.Errorf("the event is %v", event)
		}
		watch.end(t)
	})
}

// isListed looks at the reads of a server with the gate.
func (c *corrupted) isListed(t *testing.T) {
	t.Run("with the gate a list tells all objects that can't be read", func(t *testing.T) {
		for _, query := range []string{"", "?limit=500", "?resourceVersion=0"} {
			list := c.get(t, c.path("v1", "configmaps")+query).refused(t, http.StatusInternalServerError, storeReadError, "failed to read one or more configmaps from the storage")
			var told []string
			for _, cause := range list.value(t, "details", "causes").([]any) {
				told = append(told, cause.(map[string]any)["field"].(string))
				equal(t, cause.(map[string]any)["reason"], any("UnexpectedServerResponse"))
			}
			slices.Sort(told)
			equal(t, told, []string{c.key("encrypted"), c.key("garbage"), c.key("mistyped"), c.key("unknown")})
		}
		c.get(t, c.path(c.group()+"/v1", "widgets")).refused(t, http.StatusInternalServerError, storeReadError, "widgets."+c.group())
	})
	t.Run("with the gate a list tells a hundred such objects at most, and that there are more", func(t *testing.T) {
		list := c.get(t, c.path("v1", "podtemplates")).refused(t, http.StatusInternalServerError, storeReadError)
		causes := list.value(t, "details", "causes").([]any)
		equal(t, len(causes), moreThanTold)
		equal(t, causes[moreThanTold-1], any(map[string]any{"reason": "FieldValueTooMany", "message": "too many errors, the list is truncated"}))
	})
	t.Run("with the gate an object that can't be read is told as corrupt", func(t *testing.T) {
		for name := range spoilt {
			c.get(t, c.configMap(name)).refused(t, http.StatusInternalServerError, "InternalError", "corrupt object", c.key(name))
		}
	})
	t.Run("with the gate such an object is still not deleted without the option", func(t *testing.T) {
		c.delete(t, c.configMap("garbage")).refused(t, http.StatusInternalServerError, "InternalError", "corrupt object")
		c.delete(t, c.path("v1", "configmaps")).refused(t, http.StatusInternalServerError, storeReadError)
	})
}

// isGuarded looks at what stands before a deletion with the option.
func (c *corrupted) isGuarded(t *testing.T) {
	t.Run("the option is refused beside others", func(t *testing.T) {
		for field, value := range map[string]any{
			"dryRun": []any{"All"}, "propagationPolicy": "Background", "orphanDependents": true, "gracePeriodSeconds": 0,
			"preconditions": map[string]any{"uid": "a"},
		} {
			options := map[string]any{"apiVersion": "v1", "kind": "DeleteOptions", unsafe: true, field: value}
			c.send(t, http.MethodDelete, c.configMap("garbage"), nil, options).refused(t, http.StatusUnprocessableEntity, "Invalid", unsafe, "cannot be set together with ."+field)
		}
	})
	t.Run("the option is refused for an object that can be read, or is not there", func(t *testing.T) {
		for _, name := range []string{"sound", "absent"} {
			c.delete(t, c.configMap(name)+"?"+unsafe+"=true").refused(t, http.StatusUnprocessableEntity, "Invalid", unsafe, "exclusively used to delete corrupt object(s)")
		}
		c.get(t, c.configMap("sound")).want(t, http.StatusOK)
	})
	t.Run("the option is refused for a collection", func(t *testing.T) {
		c.delete(t, c.path("v1", "configmaps")+"?"+unsafe+"=true").refused(t, http.StatusUnprocessableEntity, "Invalid", unsafe, "is not allowed with DELETECOLLECTION")
	})
	t.Run("who may delete also needs the verb unsafe-delete-ignore-read-errors for the option", func(t *testing.T) {
		jane := c.as(t, "jane")
		c.allow(t, "jane", rule("delete", "configmaps"))
		jane.delete(t, c.configMap("garbage")+"?"+unsafe+"=true").refused(t, http.StatusForbidden, "Forbidden", "unsafe-delete-ignore-read-errors")
		c.allow(t, "jane", rule("unsafe-delete-ignore-read-errors", "configmaps", "unknown"))
		jane.delete(t, c.configMap("garbage")+"?"+unsafe+"=true").refused(t, http.StatusForbidden, "Forbidden")
		jane.delete(t, c.configMap("unknown")+"?"+unsafe+"=true").want(t, http.StatusOK)
	})
}

// isDeleted deletes.
func (c *corrupted) isDeleted(t *testing.T) {
	at := c.get(t, c.path("v1", "configmaps")+"?fieldSelector=metadata.name=sound").version(t)
	watch := c.watch(t, c.path("v1", "configmaps")+"?watch=true&resourceVersion="+at)
	one := c.watch(t, c.path("v1", "configmaps")+"?watch=true&fieldSelector=metadata.name=sound&resourceVersion="+at)
	defer one.stop()
	t.Run("an object that can't be read is deleted with the option, finalizers and all", func(t *testing.T) {
		options := map[string]any{"apiVersion": "v1", "kind": "DeleteOptions", unsafe: true}
		done := c.send(t, http.MethodDelete, c.configMap("garbage"), nil, options).want(t, http.StatusOK)
		equal(t, []any{done.text(t, "kind"), done.text(t, "status"), done.text(t, "details", "name")}, []any{"Status", "Success", "garbage"})
		c.get(t, c.configMap("garbage")).refused(t, http.StatusNotFound, "NotFound")
		if c.rows.exists(t, "configmaps", c.namespace, "garbage") {
			t.Error("the database still has it")
		}
	})
	t.Run("a watch is told of the deletion by an event of type ERROR, since there is no object to send, and ends", func(t *testing.T) {
		event := watch.next(t)
		equal(t, []any{event.Type, event.Object["reason"], event.Object["code"]}, []any{"ERROR", storeReadError, 500.0})
		if message := fmt.Sprint(event.Object["message"]); !strings.Contains(message, "saw a DELETED event, but object data is corrupt") || !strings.Contains(message, c.key("garbage")) {
			t.Errorf("the message is %s", message)
		}
		watch.end(t)
	})
	t.Run("the name is free again", func(t *testing.T) {
		c.post(t, c.path("v1", "configmaps"), configMap("garbage", nil)).want(t, http.StatusCreated)
		c.delete(t, c.configMap("garbage")).want(t, http.StatusOK)
	})
	t.Run("once all such objects are deleted lists and watches work again", func(t *testing.T) {
		for _, name := range []string{"encrypted", "mistyped"} {
			c.delete(t, c.configMap(name)+"?"+unsafe+"=true").want(t, http.StatusOK)
		}
		if names := c.get(t, c.path("v1", "configmaps")).want(t, http.StatusOK).names(t); !slices.Contains(names, "sound") {
			t.Errorf("the list has %v", names)
		}
		if event := c.watch(t, c.path("v1", "configmaps")+"?watch=true").next(t); event.Type != "ADDED" {
			t.Errorf("the event is %v", event)
		}
	})
	// kube-apiserver has to read an object to know that, and ends this watch too.
	t.Run("a watch whose selector the object never matched is not disturbed", func(t *testing.T) {
		c.delete(t, c.configMap("sound")).want(t, http.StatusOK)
		if event := one.next(t); event.Type != "DELETED" || event.name() != "sound" {
			t.Errorf("the event is %v", event)
		}
	})
	t.Run("a custom resource that can't be read is deleted in the same way", func(t *testing.T) {
		widgets := c.path(c.group()+"/v1", "widgets")
		c.delete(t, widgets+"/garbage").want(t, http.StatusInternalServerError)
		c.delete(t, widgets+"/garbage?"+unsafe+"=true").want(t, http.StatusOK)
		equal(t, c.get(t, widgets).want(t, http.StatusOK).names(t), []string{})
	})
}
