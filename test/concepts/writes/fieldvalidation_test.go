package writes

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
)

// odd is a ConfigMap with an unknown field at the top, another in a struct, and a duplicate one.
const odd = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","colour":"red"},"data":{"k":"1","k":"2"},"extra":{"deep":1}}`

var levels = []kit.Promise{
	{Statement: "a field of the wrong type is rejected at every level, without mentioning unknown or duplicate fields", Proof: func(t *testing.T, c *kit.Cluster) {
		for _, level := range []string{"", "Ignore", "Warn", "Strict"} {
			body := strings.Replace(odd, `"colour"`, `"generation":"x","colour"`, 1)
			a := c.Post(t, c.Path("v1", "configmaps")+"?fieldValidation="+level, body).BadRequest(t,
				"ConfigMap in version \"v1\" cannot be handled as a ConfigMap: json: cannot unmarshal string into Go struct field ObjectMeta.metadata.generation of type int64")
			if strings.Contains(a.Text(t, "message"), "extra") || len(kit.Warnings(t, a)) > 0 {
				t.Errorf("%s: %v\n%s", level, kit.Warnings(t, a), a.Body)
			}
		}
	}},
	{Statement: "Strict reports unknown and duplicate fields before invalid values, Warn in addition to them", Proof: func(t *testing.T, c *kit.Cluster) {
		body := strings.Replace(odd, `"a"`, `"A B"`, 1)
		a := c.Post(t, c.Path("v1", "configmaps")+"?fieldValidation=Strict", body).BadRequest(t, `unknown field "extra"`)
		if strings.Contains(a.Text(t, "message"), "metadata.name") {
			t.Errorf("the message is %s", a.Text(t, "message"))
		}
		a = c.Post(t, c.Path("v1", "configmaps"), body).Invalid(t, "metadata.name")
		kit.Equal(t, kit.Warnings(t, a), []string{`duplicate field "data.k"`, `unknown field "extra"`, `unknown field "metadata.colour"`})
	}},
	{Statement: "if a schema preserves unknown fields, none is reported, except in the object's metadata", Proof: func(t *testing.T, c *kit.Cluster) {
		groupVersion := c.DefineWidgets(t, kit.AnySchema)
		path := c.Path(groupVersion, "widgets")
		any := kit.With(kit.Widget(groupVersion, "a"), "red", "anything", "colour")
		kit.Equal(t, c.Post(t, path+"?fieldValidation=Strict", any).Created(t).Text(t, "anything", "colour"), "red")
		c.Post(t, path+"?fieldValidation=Strict", kit.With(any, "red", "metadata", "colour")).
			BadRequest(t, `strict decoding error: unknown field "metadata.colour"`)
	}},
	{Statement: "an object without unknown or duplicate fields passes Strict, in every encoding", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps") + "?fieldValidation=Strict"
		c.Post(t, path, kit.ConfigMap("a", map[string]string{"a": "b"})).Created(t)
		c.Send(t, http.MethodPost, path, kit.Header{"Content-Type", "application/yaml"}, "metadata: {name: b}").Created(t)
		// In protobuf, fields have numbers, and unknown ones are dropped silently.
		c.Send(t, http.MethodPost, path, kit.Header{"Content-Type", "application/vnd.kubernetes.protobuf"}, protobufConfigMap).Created(t)
	}},
}

// protobufConfigMap is the ConfigMap {"metadata":{"name":"p"}} with a field of number 15 that does not exist.
const protobufConfigMap = "k8s\x00" + "\x0a\x0f\x0a\x02v1\x12\x09ConfigMap" + "\x12\x07" + "\x0a\x03\x0a\x01p" + "\x78\x01"

// anomaly is a request with unknown and duplicate fields. In its body GROUP is the custom resource's group,
// NAME any name, and VERSION the object's resourceVersion.
type anomaly struct {
	what        string
	method      string
	contentType string
	on          func(c *kit.Cluster, groupVersion string) string
	body        string
	// warnings are the expected warnings. With Strict, the message contains all of them.
	warnings []string
	// strict is the status with Strict. It is 400, as documented, but 422 for patches: kube-apiserver attributes the error to
	// the patched object.
	strict int
	// reads reports whether the response, if it is an object, has none of the odd fields except the last value of the duplicate
	// one.
	reads func(t *testing.T, a kit.Answer) bool
}

func oneScale(c *kit.Cluster, _ string) string {
	return c.Path("apps/v1", "deployments", "web", "scale")
}

func widgets(c *kit.Cluster, groupVersion string) string { return c.Path(groupVersion, "widgets") }

func oneWidget(c *kit.Cluster, groupVersion string) string {
	return c.Path(groupVersion, "widgets", "w")
}

func replicas(t *testing.T, a kit.Answer) bool { return a.Value(t, "spec", "replicas") == 5.0 }

func anomalies() []kit.Promise {
	widgetText := `{"apiVersion":"GROUP/v1","kind":"Widget","metadata":{"name":"NAME","colour":"red"},"spec":{"replicas":4,"replicas":5,"extra":1,
		"free":{"any":{"thing":1}},"template":{"apiVersion":"v1","kind":"X","metadata":{"name":"x","colour":"red"},"spec":{"a":"b","z":1}}},"other":1}`
	widgetWarnings := []string{`duplicate field "spec.replicas"`, `unknown field "metadata.colour"`,
		`unknown field "other"`, `unknown field "spec.extra"`,
		`unknown field "spec.template.metadata.colour"`, `unknown field "spec.template.spec.z"`}
	const bad, invalid = http.StatusBadRequest, http.StatusUnprocessableEntity
	var promises []kit.Promise
	for _, a := range []anomaly{
		{"a patch of a subresource", "PATCH", kit.MergePatch, oneScale,
			`{"spec":{"replicas":4,"replicas":5,"replicaz":1}}`,
			[]string{`duplicate field "spec.replicas"`, `unknown field "spec.replicaz"`}, invalid, replicas},
		{"a create of a custom resource in JSON", "POST", "application/json", widgets, widgetText, widgetWarnings, bad,
			func(t *testing.T, a kit.Answer) bool {
				return replicas(t, a) && a.Value(t, "other") == nil && a.Value(t, "spec", "free", "any", "thing") == 1.0 &&
					a.Value(t, "spec", "template", "metadata", "colour") == nil && a.Value(t, "spec", "template", "spec", "z") == nil
			}},
		{"an update of a custom resource", "PUT", "application/json", oneWidget, strings.Replace(widgetText, `"NAME"`,
			`"w","resourceVersion":"VERSION"`, 1), widgetWarnings, bad, replicas},
		{"a JSON patch of a custom resource", "PATCH", kit.JSONPatch, oneWidget,
			`[{"op":"add","op":"add","path":"/spec/replicas","value":5},{"op":"add","path":"/extra","value":1}]`,
			[]string{`json patch duplicate field "[0].op"`, `unknown field "extra"`}, invalid, replicas},
	} {
		promises = append(promises,
			kit.Promise{Statement: a.what + " with odd fields drops them with Ignore, warns with Warn and by default, and fails with Strict",
				Proof: func(t *testing.T, c *kit.Cluster) { a.prove(t, c) }})
	}
	return promises
}

func (o anomaly) prove(t *testing.T, c *kit.Cluster) {
	groupVersion := c.Namespace + ".example.com/v1"
	if strings.Contains(o.what, "custom") {
		c.DefineWidgets(t, kit.StructuralSchema)
		c.Post(t, c.Path(groupVersion, "widgets"), kit.With(kit.Widget(groupVersion, "w"), 1, "spec", "replicas")).Created(t)
	}
	c.Post(t, c.Path("apps/v1", "deployments"), kit.Deployment("web")).Created(t)
	send := func(name, level string) kit.Answer {
		query := "?fieldValidation=" + level
		if level == "" {
			query = "?"
		}
		body := strings.NewReplacer("GROUP/v1", groupVersion, "NAME", name).Replace(o.body)
		if before, after, named := strings.Cut(body, "VERSION"); named {
			body = before + c.Get(t, o.on(c, groupVersion)).OK(t).ResourceVersion(t) + after
		}
		return c.Send(t, o.method, o.on(c, groupVersion)+query, kit.Header{"Content-Type", o.contentType}, body)
	}
	for name, level := range map[string]string{"default": "", "warn": "Warn", "ignore": "Ignore"} {
		a := send(name, level).Want(t, http.StatusOK, http.StatusCreated)
		if !o.reads(t, a) {
			t.Errorf("%s: the response is %s", name, a.Body)
		}
		if level == "Ignore" {
			kit.Equal(t, kit.Warnings(t, a), []string{})
		} else {
			kit.Equal(t, kit.Warnings(t, a), slices.Sorted(slices.Values(o.warnings)))
		}
	}
	reason := "BadRequest"
	if o.strict == http.StatusUnprocessableEntity {
		reason = "Invalid"
	}
	a := send("strict", "Strict").Refused(t, o.strict, reason, "strict decoding")
	for _, warning := range o.warnings {
		if !strings.Contains(a.Text(t, "message"), warning) {
			t.Errorf("the message lacks %s:\n%s", warning, a.Text(t, "message"))
		}
	}
	kit.Equal(t, kit.Warnings(t, a), []string{})
}
