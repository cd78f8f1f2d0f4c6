package deletion

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// Objects that can't be read, and "Deleting resources" of the API concepts, "Force deletion" (KEP-3926). Rows are corrupted
// while no server runs; then one runs without the gate AllowUnsafeMalformedObjectDeletion, and one with it.
//
// Lists and watches behave like kube-apiserver's without its watch cache: with the cache, they get 429 as long as there is a
// corrupt object.
func TestCorrupt(t *testing.T) {
	kit.OnEngines(t, func(t *testing.T, engine harness.Engine) {
		options := sqube.Options{Datastore: engine.Datastore, DataDir: t.TempDir(), Args: []string{"--feature-gates=AllowUnsafeMalformedObjectDeletion=false"}}
		server := sqube.Start(t, options)
		c := &corrupted{kit.NewCluster(t, server.Config(t), server, 0), kit.Rows{DB: harness.OpenDatabase(t, engine)}}
		c.make(t)
		t.Run("a custom resource may have a field with the name used for ciphertext in the database", func(t *testing.T) {
			path := c.Path(c.group()+"/v1", "widgets")
			c.Post(t, path, kit.With(kit.Widget(c.group()+"/v1", "boxed"), "eyJhIjoiYiJ9", "$encrypted")).Created(t)
			got := c.Get(t, path+"/boxed").OK(t)
			kit.Equal(t, []string{got.Text(t, "$encrypted"), got.Text(t, "metadata", "name")}, []string{"eyJhIjoiYiJ9", "boxed"})
			kit.Equal(t, c.Get(t, path+"?labelSelector=!l").OK(t).Names(t), []string{"boxed", "garbage"})
			c.Delete(t, path+"/boxed").OK(t)
		})
		server.Stop(t)
		c.spoil(t)

		server.Start(t)
		c.isReported(t)
		server.Stop(t)

		options.Args = nil
		server = sqube.Start(t, options)
		gated := &corrupted{kit.NewCluster(t, server.Config(t), server, 1), c.rows}
		gated.Namespace = c.Namespace
		gated.isListed(t)
		gated.isGuarded(t)
		gated.isDeleted(t)
		unconverted(t, kit.NewCluster(t, server.Config(t), server, 2))
	})
}

// corrupted is a server with corrupted rows.
type corrupted struct {
	*kit.Cluster
	rows kit.Rows
}

// corruptValues are the ConfigMaps that can't be read, and the values of their rows.
var corruptValues = map[string]string{
	"encrypted": `{"$encrypted":"azhzOmVuYzphZXNjYmM6djE6a2V5Og=="}`,
	"garbage":   "\U0001F9A0 not JSON",
	"unknown":   `{"kind":"ConfigMap","apiVersion":"v9","metadata":{"name":"unknown"}}`,
	"mistyped":  `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"mistyped"},"data":"a text"}`,
}

const (
	storeReadError = "StorageReadError" // the reason

	unsafe = "ignoreStoreReadErrorWithClusterBreakingPotential"
	// mostListed is how many objects of another resource are corrupt: as many as a list reports.
	mostListed = 100
)

func (c *corrupted) configMap(name string) string { return c.Path("v1", "configmaps", name) }

// key is the name of a ConfigMap in errors.
func (c *corrupted) key(name string) string { return "/core/configmaps/" + c.Namespace + "/" + name }

func (c *corrupted) group() string { return c.Namespace + ".example.com" }

func (c *corrupted) make(t *testing.T) {
	for name := range corruptValues {
		object := kit.With(kit.ConfigMap(name, nil), []any{"example.com/keep"}, "metadata", "finalizers")
		c.Post(t, c.Path("v1", "configmaps"), object).Created(t)
	}
	c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("sound", nil)).Created(t)
	definitions := c.ClusterPath("apiextensions.k8s.io/v1", "customresourcedefinitions")
	c.Post(t, definitions, kit.WidgetDefinition(c.group(), kit.AnySchema)).Created(t)
	harness.Eventually(t, "the custom resource is served", func() bool { return c.Get(t, c.Path(c.group()+"/v1", "widgets")).Code == http.StatusOK })
	c.Post(t, c.Path(c.group()+"/v1", "widgets"), kit.Widget(c.group()+"/v1", "garbage")).Created(t)
	for i := range mostListed {
		c.Post(t, c.Path("v1", "podtemplates"), kit.PodTemplate(fmt.Sprintf("p%d", i))).Created(t)
	}
}

func (c *corrupted) spoil(t *testing.T) {
	for name, value := range corruptValues {
		c.rows.Edit(t, "configmaps", c.Namespace, name, value)
	}
	c.rows.Edit(t, "widgets", c.Namespace, "garbage", "not JSON")
	for i := range mostListed {
		c.rows.Edit(t, "podtemplates", c.Namespace, fmt.Sprintf("p%d", i), "not JSON")
	}
}

// isReported tests a server without the gate.
func (c *corrupted) isReported(t *testing.T) {
	for name := range corruptValues {
		t.Run("reading an object that can't be read returns 500 with its name: "+name, func(t *testing.T) {
			forms := []string{"application/vnd.kubernetes.protobuf", "application/yaml", "application/json;pretty=1", kit.TableJSON}
			if name != "mistyped" { // JSON is sent as it was stored; kube-apiserver decodes it first
				forms = append(forms, "application/json")
			}
			for _, accept := range forms {
				got := c.Send(t, http.MethodGet, c.configMap(name), kit.Header{"Accept", accept}, nil).Want(t, http.StatusInternalServerError)
				if !bytes.Contains(got.Body, []byte(c.key(name))) {
					t.Errorf("%s: the response does not name it: %s", accept, got.Body)
				}
			}
		})
		t.Run("an object that can't be read can be neither changed nor deleted: "+name, func(t *testing.T) {
			for _, got := range []kit.Answer{
				c.Put(t, c.configMap(name), kit.ConfigMap(name, nil)),
				c.Patch(t, kit.MergePatch, c.configMap(name), `{"data":{"a":"b"}}`),
				c.Delete(t, c.configMap(name)),
				c.Delete(t, c.configMap(name)+"?"+unsafe+"=true"),
			} {
				got.Refused(t, http.StatusInternalServerError, "InternalError", c.key(name))
			}
			c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap(name, nil)).Refused(t, http.StatusConflict, "AlreadyExists")
			kit.Equal(t, c.rows.Live(t, "configmaps", c.Namespace, name).Value, corruptValues[name])
		})
	}
	t.Run("a list with an object that can't be read returns 500 that names one", func(t *testing.T) {
		for _, accept := range []string{"application/json", "application/vnd.kubernetes.protobuf", kit.TableJSON} {
			got := c.Send(t, http.MethodGet, c.Path("v1", "configmaps"), kit.Header{"Accept", accept}, nil).Want(t, http.StatusInternalServerError)
			if !bytes.Contains(got.Body, []byte(c.key(""))) {
				t.Errorf("%s: the response names none: %s", accept, got.Body)
			}
		}
		c.Get(t, c.Path(c.group()+"/v1", "widgets")).Refused(t, http.StatusInternalServerError, "InternalError", "/widgets/"+c.Namespace+"/garbage")
	})
	t.Run("other objects than the one that can't be read are read, listed by selectors, and watched", func(t *testing.T) {
		sound := c.Get(t, c.configMap("sound")).OK(t)
		list := c.Get(t, c.Path("v1", "configmaps")+"?fieldSelector=metadata.name=sound").OK(t)
		kit.Equal(t, list.Names(t), []string{"sound"})
		watch := c.Watch(t, c.Path("v1", "configmaps")+"?watch=true&resourceVersion="+list.ResourceVersion(t))
		defer watch.Stop()
		c.Put(t, c.configMap("sound"), kit.With(sound.Object(t), "a", "data", "k")).OK(t)
		if event := watch.Next(t); event.Type != "MODIFIED" || event.Name() != "sound" {
			t.Errorf("the event is %v", event)
		}
	})
	t.Run("a watch that begins with an object that can't be read receives an event of type ERROR", func(t *testing.T) {
		watch := c.Watch(t, c.Path("v1", "configmaps")+"?watch=true")
		if event := watch.Next(t); event.Type != "ERROR" || event.Object["kind"] != "Status" || event.Object["code"] != 500.0 {
			t.Errorf("the event is %v", event)
		}
		watch.End(t)
	})
}

// isListed tests reads of a server with the gate.
func (c *corrupted) isListed(t *testing.T) {
	t.Run("with the gate, a list reports all objects that can't be read", func(t *testing.T) {
		for _, query := range []string{"", "?limit=500", "?resourceVersion=0"} {
			list := c.Get(t, c.Path("v1", "configmaps")+query).Refused(t, http.StatusInternalServerError, storeReadError,
				"failed to read one or more configmaps from the storage: StorageError: corrupt object", "(and 3 more)")
			var told []string
			for _, cause := range list.Value(t, "details", "causes").([]any) {
				told = append(told, cause.(map[string]any)["field"].(string))
				kit.Equal(t, cause.(map[string]any)["reason"], any("UnexpectedServerResponse"))
			}
			slices.Sort(told)
			kit.Equal(t, told, []string{c.key("encrypted"), c.key("garbage"), c.key("mistyped"), c.key("unknown")})
		}
		c.Get(t, c.Path(c.group()+"/v1", "widgets")).Refused(t, http.StatusInternalServerError, storeReadError, "widgets."+c.group())
	})
	t.Run("with the gate, a list ends after a hundred such objects, and reports that", func(t *testing.T) {
		list := c.Get(t, c.Path("v1", "podtemplates")).Refused(t, http.StatusInternalServerError, storeReadError)
		causes := list.Value(t, "details", "causes").([]any)
		kit.Equal(t, len(causes), mostListed+1)
		kit.Equal(t, causes[mostListed], any(map[string]any{"reason": "FieldValueTooMany", "message": "too many errors, the list is truncated"}))
	})
	t.Run("with the gate, an object that can't be read is reported as corrupt", func(t *testing.T) {
		for name := range corruptValues {
			accept := kit.Header{"Accept", "application/json"}
			if name == "mistyped" { // JSON is sent as it was stored
				accept[1] = "application/yaml"
			}
			got := c.Send(t, http.MethodGet, c.configMap(name), accept, nil).Want(t, http.StatusInternalServerError)
			for _, part := range []string{"InternalError", "corrupt object", c.key(name)} {
				if !bytes.Contains(got.Body, []byte(part)) {
					t.Errorf("%s: the response has no %q: %s", name, part, got.Body)
				}
			}
		}
	})
	t.Run("with the gate, such an object still can't be deleted without the option", func(t *testing.T) {
		c.Delete(t, c.configMap("garbage")).Refused(t, http.StatusInternalServerError, "InternalError", "corrupt object")
		c.Delete(t, c.Path("v1", "configmaps")).Refused(t, http.StatusInternalServerError, storeReadError)
	})
}

// isGuarded tests the checks before a deletion with the option.
func (c *corrupted) isGuarded(t *testing.T) {
	t.Run("the option is rejected together with others", func(t *testing.T) {
		for field, value := range map[string]any{
			"propagationPolicy": "Background", "orphanDependents": true, "gracePeriodSeconds": 0,
			"preconditions": map[string]any{"uid": "a"},
		} {
			options := map[string]any{"apiVersion": "v1", "kind": "DeleteOptions", unsafe: true, field: value}
			c.Send(t, http.MethodDelete, c.configMap("garbage"), nil, options).Invalid(t, unsafe, "cannot be set together with ."+field)
		}
	})
	t.Run("the option is rejected for an object that can be read or does not exist, also in a dry run", func(t *testing.T) {
		for _, dry := range []string{"", "&dryRun=All"} {
			c.Delete(t, c.configMap("sound")+"?"+unsafe+"=true"+dry).Conflict(t, "unsafe deletion is not allowed because the object is decodable")
			c.Delete(t, c.configMap("absent")+"?"+unsafe+"=true"+dry).NotFound(t)
		}
		c.Get(t, c.configMap("sound")).OK(t)
	})
	t.Run("a dry run deletes nothing", func(t *testing.T) {
		c.Delete(t, c.configMap("garbage")+"?dryRun=All&"+unsafe+"=true").OK(t)
		kit.Equal(t, c.rows.Live(t, "configmaps", c.Namespace, "garbage").Value, corruptValues["garbage"])
	})
	t.Run("the option is rejected for a collection", func(t *testing.T) {
		c.Delete(t, c.Path("v1", "configmaps")+"?"+unsafe+"=true").Invalid(t, unsafe, "is not allowed with DELETECOLLECTION")
	})
	t.Run("the option needs the verb unsafe-delete-ignore-read-errors in addition to delete", func(t *testing.T) {
		jane := c.As(t, "jane")
		c.Grant(t, "jane", kit.Rule("delete", "configmaps"))
		jane.Delete(t, c.configMap("garbage")+"?"+unsafe+"=true").Forbidden(t, "unsafe-delete-ignore-read-errors")
		c.Grant(t, "jane", kit.Rule("unsafe-delete-ignore-read-errors", "configmaps", "unknown"))
		jane.Delete(t, c.configMap("garbage")+"?"+unsafe+"=true").Forbidden(t)
		jane.Delete(t, c.configMap("unknown")+"?"+unsafe+"=true").OK(t)
	})
}

// isDeleted tests deletion with the option.
func (c *corrupted) isDeleted(t *testing.T) {
	at := c.Get(t, c.Path("v1", "configmaps")+"?fieldSelector=metadata.name=sound").ResourceVersion(t)
	watch := c.Watch(t, c.Path("v1", "configmaps")+"?watch=true&resourceVersion="+at)
	one := c.Watch(t, c.Path("v1", "configmaps")+"?watch=true&fieldSelector=metadata.name=sound&resourceVersion="+at)
	defer one.Stop()
	t.Run("an object that can't be read is deleted with the option, despite finalizers", func(t *testing.T) {
		options := map[string]any{"apiVersion": "v1", "kind": "DeleteOptions", unsafe: true}
		done := c.Send(t, http.MethodDelete, c.configMap("garbage"), nil, options).OK(t)
		kit.Equal(t, []any{done.Text(t, "kind"), done.Text(t, "status"), done.Text(t, "details", "name")}, []any{"Status", "Success", "garbage"})
		c.Get(t, c.configMap("garbage")).NotFound(t)
		if c.rows.Exists(t, "configmaps", c.Namespace, "garbage") {
			t.Error("the database still has it")
		}
	})
	t.Run("a watch receives an event of type ERROR for the deletion, since there is no object to send, and ends", func(t *testing.T) {
		event := watch.Next(t)
		kit.Equal(t, []any{event.Type, event.Object["reason"], event.Object["code"]}, []any{"ERROR", storeReadError, 500.0})
		if message := fmt.Sprint(event.Object["message"]); !strings.Contains(message, "saw a DELETED event, but object data is corrupt") || !strings.Contains(message, c.key("garbage")) {
			t.Errorf("the message is %s", message)
		}
		watch.End(t)
	})
	t.Run("the name is free again", func(t *testing.T) {
		c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("garbage", nil)).Created(t)
		c.Delete(t, c.configMap("garbage")).OK(t)
	})
	t.Run("once all such objects are deleted, lists and watches work again", func(t *testing.T) {
		for _, name := range []string{"encrypted", "mistyped"} {
			c.Delete(t, c.configMap(name)+"?"+unsafe+"=true").OK(t)
		}
		if names := c.Get(t, c.Path("v1", "configmaps")).OK(t).Names(t); !slices.Contains(names, "sound") {
			t.Errorf("the list has %v", names)
		}
		if event := c.Watch(t, c.Path("v1", "configmaps")+"?watch=true").Next(t); event.Type != "ADDED" {
			t.Errorf("the event is %v", event)
		}
	})
	// kube-apiserver has to read the object to find out, and ends this watch too.
	t.Run("a watch whose selector the object never matched is not affected", func(t *testing.T) {
		c.Delete(t, c.configMap("sound")).OK(t)
		if event := one.Next(t); event.Type != "DELETED" || event.Name() != "sound" {
			t.Errorf("the event is %v", event)
		}
	})
	t.Run("a custom resource that can't be read is deleted in the same way", func(t *testing.T) {
		widgets := c.Path(c.group()+"/v1", "widgets")
		c.Delete(t, widgets+"/garbage").Want(t, http.StatusInternalServerError)
		c.Delete(t, widgets+"/garbage?"+unsafe+"=true").OK(t)
		kit.Equal(t, c.Get(t, widgets).OK(t).Names(t), []string{})
	})
}
