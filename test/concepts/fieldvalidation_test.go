package concepts

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// Section "Field validation".
func TestFieldValidation(t *testing.T) {
	prove(t, nil, slices.Concat(levels, anomalies(), kubectlValidates)...)
}

// warnings are the texts of an answer's Warning headers, sorted. All must have the code 299 and no agent.
func warnings(t testing.TB, a answer) []string {
	t.Helper()
	parsed, errs := utilnet.ParseWarningHeaders(a.Header.Values("Warning"))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	texts := []string{}
	for _, w := range parsed {
		if w.Code != 299 || w.Agent != "-" {
			t.Errorf("%s: the warning is %v", a.request, w)
		}
		texts = append(texts, w.Text)
	}
	slices.Sort(texts)
	return texts
}

// odd is a ConfigMap with an unknown field at the top, one in a struct, and a duplicate one.
const odd = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","colour":"red"},"data":{"k":"1","k":"2"},"extra":{"deep":1}}`

var levels = []promise{
	{"a field of the wrong type is refused at every level, and no unknown or duplicate field is mentioned", func(t *testing.T, c *cluster) {
		for _, level := range []string{"", "Ignore", "Warn", "Strict"} {
			body := strings.Replace(odd, `"colour"`, `"generation":"x","colour"`, 1)
			a := c.post(t, c.path("v1", "configmaps")+"?fieldValidation="+level, body).badRequest(t,
				"ConfigMap in version \"v1\" cannot be handled as a ConfigMap: json: cannot unmarshal string into Go struct field ObjectMeta.metadata.generation of type int64")
			if strings.Contains(a.text(t, "message"), "extra") || len(warnings(t, a)) > 0 {
				t.Errorf("%s: %v\n%s", level, warnings(t, a), a.Body)
			}
		}
	}},
	{"Strict tells of unknown and duplicate fields before what is invalid, Warn beside it", func(t *testing.T, c *cluster) {
		body := strings.Replace(odd, `"a"`, `"A B"`, 1)
		a := c.post(t, c.path("v1", "configmaps")+"?fieldValidation=Strict", body).badRequest(t, `unknown field "extra"`)
		if strings.Contains(a.text(t, "message"), "metadata.name") {
			t.Errorf("the message is %s", a.text(t, "message"))
		}
		a = c.post(t, c.path("v1", "configmaps"), body).invalid(t, "metadata.name")
		equal(t, warnings(t, a), []string{`duplicate field "data.k"`, `unknown field "extra"`, `unknown field "metadata.colour"`})
	}},
	{"the level is Ignore, Warn or Strict, in this spelling, for every verb that takes one", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps")
		c.post(t, path, configMap("a", nil)).created(t)
		for options, a := range map[string]answer{
			"CreateOptions": c.post(t, path+"?fieldValidation=strict", configMap("b", nil)),
			"UpdateOptions": c.put(t, path+"/a?fieldValidation=Error", configMap("a", nil)),
			"PatchOptions":  c.patch(t, mergePatch, path+"/a?fieldValidation=true", `{}`),
		} {
			a.invalid(t, options+".meta.k8s.io \"\" is invalid: fieldValidation: Unsupported value: ",
				`supported values: "", "Ignore", "Strict", "Warn"`)
		}
	}},
	{"the names of fields are case-sensitive", func(t *testing.T, c *cluster) {
		c.post(t, c.path("v1", "configmaps")+"?fieldValidation=Strict", `{"metadata":{"name":"a"},"Data":{"a":"b"}}`).
			refused(t, http.StatusBadRequest, "BadRequest", `strict decoding error: unknown field "Data"`)
		a := c.post(t, c.path("v1", "configmaps"), `{"metadata":{"name":"a"},"Data":{"a":"b"}}`).created(t)
		equal(t, a.value(t, "data"), nil)
		equal(t, warnings(t, a), []string{`unknown field "Data"`})
	}},
	{"where a schema keeps unknown fields none is unknown, except in the object's metadata", func(t *testing.T, c *cluster) {
		groupVersion := c.widgets(t, anySchema)
		path := c.path(groupVersion, "widgets")
		any := with(widget(groupVersion, "a"), "red", "anything", "colour")
		equal(t, c.post(t, path+"?fieldValidation=Strict", any).created(t).text(t, "anything", "colour"), "red")
		c.post(t, path+"?fieldValidation=Strict", with(any, "red", "metadata", "colour")).
			badRequest(t, `strict decoding error: unknown field "metadata.colour"`)
	}},
	{"an object without unknown or duplicate fields passes Strict, in every encoding", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps") + "?fieldValidation=Strict"
		c.post(t, path, configMap("a", map[string]string{"a": "b"})).created(t)
		c.send(t, http.MethodPost, path, header{"Content-Type", "application/yaml"}, "metadata: {name: b}").created(t)
		// In protobuf fields have numbers, and those that nobody knows are dropped without a word.
		c.send(t, http.MethodPost, path, header{"Content-Type", "application/vnd.kubernetes.protobuf"}, protobufConfigMap).created(t)
	}},
	{"of very many unknown fields each is told, up to a limit of bytes", func(t *testing.T, c *cluster) {
		few := c.post(t, c.path("v1", "configmaps")+"?dryRun=All", many(50)).created(t)
		if n := len(warnings(t, few)); n != 50 {
			t.Errorf("%d warnings", n)
		}
		all := c.post(t, c.path("v1", "configmaps")+"?dryRun=All", many(1000)).created(t)
		if n := len(warnings(t, all)); n < 100 || n >= 1000 {
			t.Errorf("%d warnings", n)
		}
	}},
}

// protobufConfigMap is the ConfigMap {"metadata":{"name":"p"}} with a field of number 15 that does not exist.
const protobufConfigMap = "k8s\x00" + "\x0a\x0f\x0a\x02v1\x12\x09ConfigMap" + "\x12\x07" + "\x0a\x03\x0a\x01p" + "\x78\x01"

// many is a ConfigMap with n unknown fields.
func many(n int) string {
	body := `{"metadata":{"name":"many"}`
	for i := range n {
		body += fmt.Sprintf(`,"unknown%d":1`, i)
	}
	return body + "}"
}

// anomaly is a request with unknown and duplicate fields. In its body GROUP is the custom resource's group,
// NAME any name, and VERSION the object's resourceVersion.
type anomaly struct {
	what        string
	method      string
	contentType string
	on          func(c *cluster, groupVersion string) string
	body        string
	// warnings is what is warned of. With Strict the message tells all of it.
	warnings []string
	// strict is the code of the refusal. It is 400, as documented, but 422 for patches: to kube-apiserver it is what they make of
	// the object that is wrong.
	strict int
	// reads says whether the answer, if it is an object, has no trace of the odd fields but the last value of the duplicate one.
	reads func(t *testing.T, a answer) bool
}

func configMaps(c *cluster, _ string) string { return c.path("v1", "configmaps") }

func oneDeployment(c *cluster, _ string) string { return c.path("apps/v1", "deployments", "web") }

func oneScale(c *cluster, _ string) string { return c.path("apps/v1", "deployments", "web", "scale") }

func widgets(c *cluster, groupVersion string) string { return c.path(groupVersion, "widgets") }

func oneWidget(c *cluster, groupVersion string) string { return c.path(groupVersion, "widgets", "w") }

func replicas(t *testing.T, a answer) bool { return a.value(t, "spec", "replicas") == 5.0 }

// structural is a schema with fields that are known, one in which all is kept, and one that is an object with metadata.
const structural = `{type: object, properties: {status: {type: object, properties: {replicas: {type: integer}}}, spec: {type: object, properties: {
	replicas: {type: integer}, free: {type: object, x-kubernetes-preserve-unknown-fields: true},
	template: {type: object, x-kubernetes-embedded-resource: true, properties: {spec: {type: object, properties: {a: {type: string}}}}}}}}}`

func anomalies() []promise {
	deploymentText := strings.Replace(string(asYAML(deployment("web"))), `"replicas":3`, `"replicas":4,"replicas":5,"replicaz":1`, 1)
	widgetText := `{"apiVersion":"GROUP/v1","kind":"Widget","metadata":{"name":"NAME","colour":"red"},"spec":{"replicas":4,"replicas":5,"extra":1,
		"free":{"any":{"thing":1}},"template":{"apiVersion":"v1","kind":"X","metadata":{"name":"x","colour":"red"},"spec":{"a":"b","z":1}}},"other":1}`
	widgetYAML := "apiVersion: GROUP/v1\nkind: Widget\nmetadata: {name: NAME}\nspec:\n  replicas: 4\n  replicas: 5\n  extra: 1\n"
	widgetWarnings := []string{`duplicate field "spec.replicas"`, `unknown field "metadata.colour"`,
		`unknown field "other"`, `unknown field "spec.extra"`,
		`unknown field "spec.template.metadata.colour"`, `unknown field "spec.template.spec.z"`}
	patched := []string{`duplicate field "spec.replicas"`, `unknown field "spec.replicaz"`}
	const bad, invalid = http.StatusBadRequest, http.StatusUnprocessableEntity
	var promises []promise
	for _, a := range []anomaly{
		{"a create in JSON", "POST", "application/json", configMaps, strings.Replace(odd, `"a"`, `"NAME"`, 1),
			[]string{`duplicate field "data.k"`, `unknown field "extra"`, `unknown field "metadata.colour"`}, bad,
			func(t *testing.T, a answer) bool { return a.text(t, "data", "k") == "2" && a.value(t, "extra") == nil }},
		{"a create in YAML", "POST", "application/yaml", configMaps,
			"metadata:\n  name: NAME\n  colour: red\ndata: {k: '1', k: '2'}\nextra: 1\n",
			[]string{`line 4: key "k" already set in map`, `unknown field "extra"`, `unknown field "metadata.colour"`}, bad,
			func(t *testing.T, a answer) bool { return a.text(t, "data", "k") == "2" && a.value(t, "extra") == nil }},
		{"an update", "PUT", "application/json", oneDeployment, deploymentText, patched, bad, replicas},
		{"a merge patch", "PATCH", mergePatch, oneDeployment, `{"spec":{"replicas":4,"replicas":5,"replicaz":1}}`,
			patched, invalid, replicas},
		{"a strategic merge patch", "PATCH", strategicPatch, oneDeployment,
			`{"spec":{"replicas":4,"replicas":5,"replicaz":1,"template":{"spec":{"containers":[{"name":"c","imagee":"i"}]}}}}`,
			append(slices.Clone(patched), `unknown field "spec.template.spec.containers[0].imagee"`), invalid, replicas},
		{"a JSON patch", "PATCH", jsonPatch, oneDeployment,
			`[{"op":"add","path":"/spec/replicaz","value":1},{"op":"test","op":"add","path":"/spec/replicas","value":5,"colour":"red"}]`,
			[]string{`json patch duplicate field "[1].op"`, `json patch unknown field "[1].colour"`,
				`unknown field "spec.replicaz"`}, invalid, replicas},
		{"an apply, of duplicate fields", "PATCH", applyPatch, oneDeployment,
			"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  replicas: 4\n  replicas: 5\n",
			[]string{`line 6: key "replicas" already set in map`}, bad, replicas},
		{"a patch of a subresource", "PATCH", mergePatch, oneScale,
			`{"spec":{"replicas":4,"replicas":5,"replicaz":1}}`, patched, invalid, replicas},
		{"a create of a custom resource in JSON", "POST", "application/json", widgets, widgetText, widgetWarnings, bad,
			func(t *testing.T, a answer) bool {
				return replicas(t, a) && a.value(t, "other") == nil && a.value(t, "spec", "free", "any", "thing") == 1.0 &&
					a.value(t, "spec", "template", "metadata", "colour") == nil && a.value(t, "spec", "template", "spec", "z") == nil
			}},
		{"a create of a custom resource in YAML", "POST", "application/yaml", widgets, widgetYAML,
			[]string{`line 6: key "replicas" already set in map`, `unknown field "spec.extra"`}, bad, replicas},
		{"an update of a custom resource", "PUT", "application/json", oneWidget, strings.Replace(widgetText, `"NAME"`,
			`"w","resourceVersion":"VERSION"`, 1), widgetWarnings, bad, replicas},
		{"a merge patch of a custom resource", "PATCH", mergePatch, oneWidget, `{"spec":{"replicas":4,"replicas":5,"extra":1}}`,
			[]string{`duplicate field "spec.replicas"`, `unknown field "spec.extra"`}, invalid, replicas},
		{"a JSON patch of a custom resource", "PATCH", jsonPatch, oneWidget,
			`[{"op":"add","op":"add","path":"/spec/replicas","value":5},{"op":"add","path":"/extra","value":1}]`,
			[]string{`json patch duplicate field "[0].op"`, `unknown field "extra"`}, invalid, replicas},
		{"an apply of a custom resource, of duplicate fields", "PATCH", applyPatch, oneWidget,
			"apiVersion: GROUP/v1\nkind: Widget\nmetadata: {name: w}\nspec:\n  replicas: 4\n  replicas: 5\n",
			[]string{`line 6: key "replicas" already set in map`}, bad, replicas},
	} {
		promises = append(promises,
			promise{a.what + " with odd fields drops them with Ignore, warns with Warn and by default, and fails with Strict",
				func(t *testing.T, c *cluster) { a.prove(t, c) }})
	}
	return promises
}

func (o anomaly) prove(t *testing.T, c *cluster) {
	groupVersion := c.namespace + ".example.com/v1"
	if strings.Contains(o.what, "custom") {
		c.widgets(t, structural)
		c.post(t, c.path(groupVersion, "widgets"), with(widget(groupVersion, "w"), 1, "spec", "replicas")).created(t)
	}
	c.post(t, c.path("apps/v1", "deployments"), deployment("web")).created(t)
	send := func(name, level string) answer {
		query := "?fieldValidation=" + level
		if level == "" {
			query = "?"
		}
		if o.contentType == applyPatch {
			query += "&force=true&fieldManager=a"
		}
		body := strings.NewReplacer("GROUP/v1", groupVersion, "NAME", name).Replace(o.body)
		if before, after, named := strings.Cut(body, "VERSION"); named {
			body = before + c.get(t, o.on(c, groupVersion)).ok(t).version(t) + after
		}
		return c.send(t, o.method, o.on(c, groupVersion)+query, header{"Content-Type", o.contentType}, body)
	}
	for name, level := range map[string]string{"default": "", "warn": "Warn", "ignore": "Ignore"} {
		a := send(name, level).want(t, http.StatusOK, http.StatusCreated)
		if !o.reads(t, a) {
			t.Errorf("%s: the answer is %s", name, a.Body)
		}
		if level == "Ignore" {
			equal(t, warnings(t, a), []string{})
		} else {
			equal(t, warnings(t, a), slices.Sorted(slices.Values(o.warnings)))
		}
	}
	reason := "BadRequest"
	if o.strict == http.StatusUnprocessableEntity {
		reason = "Invalid"
	}
	a := send("strict", "Strict").refused(t, o.strict, reason, "strict decoding")
	for _, warning := range o.warnings {
		if !strings.Contains(a.text(t, "message"), warning) {
			t.Errorf("the message lacks %s:\n%s", warning, a.text(t, "message"))
		}
	}
	equal(t, warnings(t, a), []string{})
}

var kubectlValidates = []promise{
	{"kubectl --validate is strict (true, the default), warn or ignore (false)", func(t *testing.T, c *cluster) {
		for _, validate := range []string{"", "--validate", "--validate=strict", "--validate=true"} {
			output, ok := c.kubectl(t, odd, strings.Fields("apply -f - "+validate)...)
			if ok || !strings.Contains(output,
				`Error from server (BadRequest): error when creating "STDIN": ConfigMap in version "v1" cannot be handled as a ConfigMap: `+
					`strict decoding error: `) || !strings.Contains(output, `unknown field "extra"`) {
				t.Errorf("%s: %s", validate, output)
			}
		}
		c.get(t, c.path("v1", "configmaps", "a")).notFound(t)
		for _, verb := range []string{"create", "replace"} {
			output, ok := c.kubectl(t, odd, verb, "-f", "-", "--validate=warn")
			if !ok || !strings.Contains(output, `Warning: unknown field "extra"`) || !strings.Contains(output,
				`Warning: unknown field "metadata.colour"`) {
				t.Errorf("%s: %s", verb, output)
			}
		}
		for _, validate := range []string{"--validate=ignore", "--validate=false"} {
			output, ok := c.kubectl(t, odd, "apply", "-f", "-", validate)
			if !ok || strings.Contains(output, "unknown field") {
				t.Errorf("%s: %s", validate, output)
			}
		}
	}},
}
