package concepts

import (
	"maps"
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
)

// policy creates a policy, kind Validating or Mutating, for ConfigMaps unless spec says else, and a binding that is for the
// promise's namespace, both with further fields in YAML. Until they are in effect takes a moment. They stay, since
// kube-apiserver (v1.36) hears no more of parameters of a built-in kind once a policy that had such has been deleted.
func (c *cluster) policy(t testing.TB, kind, spec, binding string) {
	t.Helper()
	resource, policy := strings.ToLower(kind)+"admissionpolic", manifest(`{apiVersion: admissionregistration.k8s.io/v1, kind: %sAdmissionPolicy, metadata: {name: %s},
		spec: {matchConstraints: {resourceRules: [{operations: [CREATE, UPDATE], apiGroups: [""], apiVersions: [v1], resources: [configmaps]}]}}}`, kind, c.namespace)
	maps.Copy(policy["spec"].(map[string]any), manifest("%s", spec))
	// Also in the policy, which refuses everything it matches while its parameters' kind is not known.
	set(policy, manifest("{matchLabels: {kubernetes.io/metadata.name: %s}}", c.namespace), "spec", "matchConstraints",
		"namespaceSelector")
	bound := manifest(`{apiVersion: admissionregistration.k8s.io/v1, kind: %sAdmissionPolicyBinding, metadata: {name: %s},
		spec: {policyName: %[2]s, matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[2]s}}}}}`, kind, c.namespace)
	if kind == "Validating" {
		set(bound, []any{"Deny"}, "spec", "validationActions")
	}
	maps.Copy(bound["spec"].(map[string]any), manifest("%s", binding))
	c.post(t, admissionRegistration+resource+"ies", policy).want(t, http.StatusCreated)
	c.post(t, admissionRegistration+resource+"ybindings", bound).want(t, http.StatusCreated)
}

// try creates a ConfigMap in a dry run, so that it can be tried again.
func (c *cluster) try(t testing.TB, name string, data map[string]string) answer {
	t.Helper()
	return c.post(t, c.path("v1", "configmaps")+"?dryRun=All", configMap(name, data))
}

// refuses waits until a try is refused with a message that has this part.
func (c *cluster) refuses(t testing.TB, name string, data map[string]string, message string) {
	t.Helper()
	eventually(t, "the policy refuses "+name+": "+message, func() bool {
		a := c.try(t, name, data)
		return a.Code == http.StatusUnprocessableEntity && a.text(t, "reason") == "Invalid" && strings.Contains(a.text(t, "message"), message)
	})
}

// allows waits until a try is allowed.
func (c *cluster) allows(t testing.TB, name string, data map[string]string) {
	t.Helper()
	eventually(t, "the policy allows "+name, func() bool { return c.try(t, name, data).Code == http.StatusCreated })
}

var validatingPolicies = []promise{
	{"what a policy refuses is told with the policy, the binding, and the message and reason of its validation", func(t *testing.T, c *cluster) {
		c.policy(t, "Validating", `validations:
- {expression: "object.metadata.name != 'plain'"}
- {expression: "object.metadata.name != 'message'", message: not so}
- {expression: "object.metadata.name != 'expression'", message: unused, messageExpression: "'not ' + object.metadata.name"}
- {expression: "object.metadata.name != 'failing'", message: instead, messageExpression: "string(object.data.none)"}
- {expression: "object.metadata.name != 'forbidden'", reason: Forbidden}
- {expression: "object.metadata.name != 'invalid'", reason: Invalid}
- {expression: "object.metadata.name != 'large'", reason: RequestEntityTooLarge}`, "")
		denied := "ValidatingAdmissionPolicy '" + c.namespace + "' with binding '" + c.namespace + "' denied request: "
		c.refuses(t, "plain", nil, `configmaps "plain" is forbidden: `+denied+"failed expression: object.metadata.name != 'plain'")
		for name, want := range map[string]struct {
			code            int
			reason, message string
		}{
			"message": {422, "Invalid", "not so"}, "expression": {422, "Invalid", "not expression"},
			"failing":   {422, "Invalid", "instead"},
			"forbidden": {403, "Forbidden", ""}, "invalid": {422, "Invalid", ""},
			"large": {413, "RequestEntityTooLarge", ""},
		} {
			c.try(t, name, nil).refused(t, want.code, want.reason, denied+want.message)
		}
		c.try(t, "fine", nil).want(t, http.StatusCreated)
	}},
	{"expressions see the object, the old one, the request, the namespace, variables and what the user may do", func(t *testing.T, c *cluster) {
		c.policy(t, "Validating", `variables:
- {name: mine, expression: "object.metadata.name.startsWith('my')"}
- {name: size, expression: "variables.mine ? size(object.data) : 0"}
validations:
- {expression: "variables.size < 2", message: large}
- {expression: "request.operation == 'CREATE' || has(oldObject.data) == has(object.data)", message: fixed}
- {expression: "request.userInfo.username != 'jane'", message: not jane}
- {expression: "object.metadata.name != namespaceObject.metadata.name", message: named as its namespace}
- {expression: "object.metadata.name != 'admin' || !authorizer.group('').resource('secrets').namespace('default').check('delete').allowed()", message: no admins}
- {expression: "object.metadata.name != 'options' || request.options.fieldManager == 'me'", message: not me}
- {expression: "request.dryRun != (object.metadata.name == 'wet')", message: wet}`, "")
		c.refuses(t, "my", map[string]string{"a": "", "b": ""}, "large")
		c.try(t, "other", map[string]string{"a": "", "b": ""}).want(t, http.StatusCreated)
		c.try(t, c.namespace, nil).invalid(t, "named as its namespace")
		c.try(t, "admin", nil).invalid(t, "no admins")
		c.try(t, "options", nil).want(t, http.StatusUnprocessableEntity)
		c.post(t, c.path("v1", "configmaps")+"?dryRun=All&fieldManager=me", configMap("options", nil)).
			want(t, http.StatusCreated)
		c.send(t, http.MethodPost, c.path("v1", "configmaps"),
			header{"Impersonate-User", "jane", "Impersonate-Group", "system:masters"}, configMap("a", nil)).
			invalid(t, "not jane")
		c.post(t, c.path("v1", "configmaps"), configMap("wet", nil)).want(t, http.StatusCreated)
		c.patch(t, mergePatch, c.path("v1", "configmaps", "wet"), `{"data":{"a":"b"}}`).
			invalid(t, "fixed")
		c.patch(t, mergePatch, c.path("v1", "configmaps", "wet"), `{"metadata":{"labels":{"a":"b"}}}`).want(t, http.StatusOK)
	}},
	{"validationActions say whether a failure denies, warns, or is only noted", func(t *testing.T, c *cluster) {
		c.policy(t, "Validating", `validations: [{expression: "object.metadata.name != 'bad'", message: careful}]`,
			"validationActions: [Warn, Audit]")
		eventually(t, "the policy warns", func() bool { return c.try(t, "bad", nil).Header.Get("Warning") != "" })
		c.post(t, c.path("v1", "configmaps"), configMap("bad", nil)).want(t, http.StatusCreated).
			warns(t, "Validation failed for ValidatingAdmissionPolicy '"+c.namespace+"' with binding '"+c.namespace+"': careful")
		binding := admissionRegistration + "validatingadmissionpolicybindings/" + c.namespace
		c.patch(t, mergePatch, binding, `{"spec":{"validationActions":["Audit"]}}`).want(t, http.StatusOK)
		eventually(t, "the policy warns no longer", func() bool { return c.try(t, "bad", nil).Header.Get("Warning") == "" })
		c.patch(t, mergePatch, binding, `{"spec":{"validationActions":["Deny","Audit"]}}`).want(t, http.StatusOK)
		c.refuses(t, "bad", nil, "careful")
		c.patch(t, mergePatch, binding, `{"spec":{"validationActions":["Deny","Warn"]}}`).
			invalid(t, "must not contain both Deny and Warn")
	}},
	{"a binding gives a policy its parameters, and changes of them count at once", func(t *testing.T, c *cluster) {
		c.post(t, c.path("v1", "configmaps"), configMap("params", map[string]string{"forbidden": "bad"})).
			want(t, http.StatusCreated)
		c.policy(t, "Validating", `{paramKind: {apiVersion: v1, kind: ConfigMap}, validations: [{expression: "object.metadata.name != params.data.forbidden", messageExpression: "'not ' + params.data.forbidden"}]}`,
			"paramRef: {name: params, namespace: "+c.namespace+", parameterNotFoundAction: Deny}")
		c.refuses(t, "bad", nil, "not bad")
		c.try(t, "worse", nil).want(t, http.StatusCreated)
		c.patch(t, mergePatch, c.path("v1", "configmaps", "params"), `{"data":{"forbidden":"worse"}}`).want(t, http.StatusOK)
		c.refuses(t, "worse", nil, "not worse")
		c.allows(t, "bad", nil)
		c.delete(t, c.path("v1", "configmaps", "params")).want(t, http.StatusOK)
		c.refuses(t, "any", nil, "no params found for policy binding with `Deny` parameterNotFoundAction")
		c.patch(t, mergePatch, admissionRegistration+"validatingadmissionpolicybindings/"+c.namespace,
			`{"spec":{"paramRef":{"parameterNotFoundAction":"Allow"}}}`).want(t, http.StatusOK)
		c.allows(t, "any", nil)
	}},
	{"parameters can be custom resources, several by their labels, in the namespace of the request", func(t *testing.T, c *cluster) {
		w := c.define(t, version("v1", "spec: {type: object, properties: {limit: {type: integer}}}"))
		w.create(t, "one", "{metadata: {labels: {for: this}}, spec: {limit: 3}}").want(t, http.StatusCreated)
		w.create(t, "two", "{metadata: {labels: {for: this}}, spec: {limit: 2}}").want(t, http.StatusCreated)
		w.create(t, "other", "{spec: {limit: 0}}").want(t, http.StatusCreated)
		c.policy(t, "Validating", `{paramKind: {apiVersion: `+w.group+`/v1, kind: Widget}, validations: [{expression: "!has(object.data) || size(object.data) <= params.spec.limit", messageExpression: "'at most ' + string(params.spec.limit)"}]}`,
			"paramRef: {selector: {matchLabels: {for: this}}, parameterNotFoundAction: Deny}")
		c.refuses(t, "a", map[string]string{"a": "", "b": "", "c": ""}, "at most 2")
		c.try(t, "a", map[string]string{"a": "", "b": "", "c": "", "d": ""}).
			invalid(t, "at most ")
		c.allows(t, "a", map[string]string{"a": "", "b": ""})
	}},
	{"parameters can be pods, of which all can be read", func(t *testing.T, c *cluster) {
		c.post(t, c.path("v1", "pods"), with(pod("params"), map[string]any{"limit": "few"}, "metadata", "labels")).want(t, http.StatusCreated)
		c.policy(t, "Validating", `{paramKind: {apiVersion: v1, kind: Pod}, validations: [{expression: "object.metadata.name != params.spec.containers[0].image", messageExpression: "string(params.metadata.labels.limit)"}]}`,
			"paramRef: {name: params, namespace: "+c.namespace+", parameterNotFoundAction: Deny}")
		c.refuses(t, "i", nil, "few")
		c.allows(t, "other", nil)
	}},
	{"an expression that fails refuses the request, unless failurePolicy is Ignore", func(t *testing.T, c *cluster) {
		c.policy(t, "Validating", `validations: [{expression: "object.data.size != 'x'"}, {expression: "object.metadata.name != 'never'"}]`, "")
		c.refuses(t, "a", nil, "expression 'object.data.size != 'x'' resulted in error: no such key: data")
		c.patch(t, mergePatch, admissionRegistration+"validatingadmissionpolicies/"+c.namespace,
			`{"spec":{"failurePolicy":"Ignore"}}`).want(t, http.StatusOK)
		c.allows(t, "a", nil)
		c.refuses(t, "never", nil, "object.metadata.name != 'never'")
	}},
	{"matchConditions and matchConstraints narrow a policy, and matchResources a binding", func(t *testing.T, c *cluster) {
		c.policy(t, "Validating", `matchConditions: [{name: a, expression: "request.name != 'skipped'"}, {name: b, expression: "!object.metadata.name.endsWith('y')"}]
matchConstraints:
  resourceRules: [{operations: [CREATE], apiGroups: [""], apiVersions: ["*"], resources: ["*"]}]
  excludeResourceRules: [{operations: ["*"], apiGroups: [""], apiVersions: ["*"], resources: [secrets]}]
  objectSelector: {matchExpressions: [{key: free, operator: DoesNotExist}]}
validations: [{expression: "false", message: nothing}]`, `matchResources:
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: `+c.namespace+`}}
  resourceRules: [{operations: ["*"], apiGroups: [""], apiVersions: ["*"], resources: [configmaps, secrets]}, {operations: ["*"], apiGroups: [""], apiVersions: ["*"], resources: [services], resourceNames: [named]}]`)
		c.refuses(t, "bad", nil, "nothing")
		c.try(t, "skipped", nil).want(t, http.StatusCreated)
		c.try(t, "many", nil).want(t, http.StatusCreated)
		c.post(t, c.path("v1", "configmaps"), with(configMap("bad", nil), "x", "metadata", "labels", "free")).
			want(t, http.StatusCreated)
		c.patch(t, mergePatch, c.path("v1", "configmaps", "bad"), `{"data":{"a":"b"}}`).want(t, http.StatusOK)
		c.post(t, c.path("v1", "secrets"), manifest("{apiVersion: v1, kind: Secret, metadata: {name: s}}")).
			want(t, http.StatusCreated)
		c.post(t, c.path("v1", "services"), service("unnamed")).want(t, http.StatusCreated)
		c.post(t, c.path("v1", "services"), service("named")).
			invalid(t, "nothing")
		c.post(t, "/api/v1/namespaces/default/configmaps?dryRun=All", configMap("bad", nil)).want(t, http.StatusCreated)
	}},
	{"a policy holds for other versions of the resources it names, for subresources, and for custom resources", func(t *testing.T, c *cluster) {
		w := c.define(t, version("v1", anySpec))
		c.policy(t, "Validating", `matchConstraints: {matchPolicy: Equivalent, resourceRules: [
  {operations: [CREATE], apiGroups: [autoscaling], apiVersions: [v1], resources: [horizontalpodautoscalers]},
  {operations: [UPDATE], apiGroups: [apps], apiVersions: [v1], resources: [deployments/scale]},
  {operations: [CREATE], apiGroups: [`+w.group+`], apiVersions: [v1], resources: [widgets]}]}
validations: [{expression: "!has(object.spec.maxReplicas) || object.spec.maxReplicas < 5", message: at most 5}, {expression: "!has(object.spec.replicas) || object.spec.replicas < 7", message: at most 7},
  {expression: "!has(object.spec.color) || object.spec.color != 'red'", message: no red}]`, "")
		eventually(t, "the policy holds", func() bool { return strings.Contains(string(w.create(t, "a", "spec: {color: red}").Body), "no red") })
		c.post(t, c.path("autoscaling/v2", "horizontalpodautoscalers"),
			manifest(`{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: a},
			spec: {maxReplicas: 9, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: d}}}`)).invalid(t, "at most 5")
		c.post(t, c.path("apps/v1", "deployments"), deployment("d")).want(t, http.StatusCreated)
		c.patch(t, mergePatch, c.path("apps/v1", "deployments", "d", "scale"), `{"spec":{"replicas":9}}`).
			invalid(t, "at most 7")
	}},
	{"the status of a policy has what the types of its resources say against its expressions", func(t *testing.T, c *cluster) {
		c.policy(t, "Validating", `matchConstraints: {resourceRules: [{operations: [CREATE], apiGroups: [apps], apiVersions: [v1], resources: [deployments]}]}
validations: [{expression: "object.spec.replicas > '1'"}, {expression: "object.spec.replicazz > 1"}, {expression: "object.spec.replicas > 1"}]`, "validationActions: [Audit]")
		path := admissionRegistration + "validatingadmissionpolicies/" + c.namespace
		// By a controller that is sqube's own, and kube-controller-manager's elsewhere.
		eventually(t, "the policy is checked", func() bool { return c.get(t, path).field(t, "status", "observedGeneration") == "1" })
		warnings, _ := c.get(t, path).value(t, "status", "typeChecking", "expressionWarnings").([]any)
		var fields []string
		for _, w := range warnings {
			fields = append(fields, w.(map[string]any)["fieldRef"].(string))
			if text := w.(map[string]any)["warning"].(string); !strings.Contains(text, "apps/v1, Kind=Deployment: ERROR") {
				t.Errorf("the warning is %s", text)
			}
		}
		equal(t, fields, []string{"spec.validations[0].expression", "spec.validations[1].expression"})
	}},
	{"a changed policy is in effect soon, a deleted one no longer", func(t *testing.T, c *cluster) {
		c.policy(t, "Validating", `validations: [{expression: "object.metadata.name != 'a'", message: not a}]`, "")
		c.refuses(t, "a", nil, "not a")
		path := admissionRegistration + "validatingadmissionpolicies/" + c.namespace
		c.patch(t, mergePatch, path, `{"spec":{"validations":[{"expression":"object.metadata.name != 'b'","message":"not b"}]}}`).want(t, http.StatusOK)
		c.refuses(t, "b", nil, "not b")
		c.allows(t, "a", nil)
		c.delete(t, path).want(t, http.StatusOK)
		c.allows(t, "b", nil)
	}},
	{"a policy that can not be is refused with the field", func(t *testing.T, c *cluster) {
		policy := manifest(`{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: %s},
			spec: {matchConstraints: {resourceRules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [configmaps]}]}}}`, c.namespace)
		for spec, part := range map[string]string{
			`validations: [{expression: "object."}]`:                      "spec.validations[0].expression: Invalid value: ",
			`validations: [{expression: "'text'"}]`:                       "spec.validations[0].expression: Invalid value: ",
			`validations: [{expression: ""}]`:                             "spec.validations[0].expression: Required value: expression is not specified",
			`validations: [{expression: "params.a == 1"}]`:                "undeclared reference to 'params'",
			`validations: [{expression: "variables.a == 1"}]`:             "undeclared reference to 'variables'",
			`validations: [{expression: "true", reason: Whim}]`:           `spec.validations[0].reason: Unsupported value: "Whim"`,
			`validations: [{expression: "true", messageExpression: "5"}]`: "spec.validations[0].messageExpression: Invalid value: ",
			`{}`: "spec.validations: Required value: validations or auditAnnotations must contain at least one item",
			`{failurePolicy: Maybe, validations: [{expression: "true"}]}`:                          `spec.failurePolicy: Unsupported value: "Maybe"`,
			`{paramKind: {kind: X}, validations: [{expression: "true"}]}`:                          "spec.paramKind.apiVersion: Required value",
			`{variables: [{name: "1", expression: "1"}], validations: [{expression: "true"}]}`:     "spec.variables[0].name: Invalid value: ",
			`{matchConditions: [{name: a, expression: "5"}], validations: [{expression: "true"}]}`: "spec.matchConditions[0].expression: Invalid value: ",
			`{matchConstraints: {}, validations: [{expression: "true"}]}`:                          "spec.matchConstraints.resourceRules: Required value",
		} {
			bad := with(policy, policy["spec"], "spec")
			maps.Copy(bad["spec"].(map[string]any), manifest("%s", spec))
			c.post(t, admissionRegistration+"validatingadmissionpolicies", bad).
				invalid(t, part)
		}
	}},
}

var mutatingPolicies = []promise{
	{"a mutating policy applies a configuration to an object", func(t *testing.T, c *cluster) {
		c.policy(t, "Mutating", `{reinvocationPolicy: Never, variables: [{name: by, expression: "object.metadata.name + '-by'"}],
			matchConditions: [{name: a, expression: "object.metadata.name != 'skipped'"}], mutations: [{patchType: ApplyConfiguration,
			applyConfiguration: {expression: "Object{metadata: Object.metadata{labels: {'by': variables.by}}, data: {'added': request.userInfo.username}}"}}]}`, "")
		eventually(t, "the policy changes objects", func() bool { return c.try(t, "a", nil).field(t, "metadata", "labels") == `{"by":"a-by"}` })
		made := with(configMap("a", map[string]string{"k": "v"}), map[string]any{"mine": "x"}, "metadata", "labels")
		a := c.post(t, c.path("v1", "configmaps"), made).want(t, http.StatusCreated).
			has(t, `{"by":"a-by","mine":"x"}`, "metadata", "labels").has(t, `"v"`, "data", "k")
		if a.text(t, "data", "added") == "" {
			t.Errorf("the data lacks the user: %s", a.Body)
		}
		c.try(t, "skipped", nil).has(t, "", "metadata", "labels")
	}},
	{"lists of objects are merged by their keys", func(t *testing.T, c *cluster) {
		c.serviceAccount(t)
		c.policy(t, "Mutating", `{reinvocationPolicy: Never, matchConstraints: {resourceRules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods]}]}, mutations: [
			{patchType: ApplyConfiguration, applyConfiguration: {expression: "Object{spec: Object.spec{containers: object.spec.containers.map(c, Object.spec.containers{name: c.name, image: 'mirror/' + c.image}), initContainers: [Object.spec.initContainers{name: 'init', image: 'i'}]}}"}}]}`, "")
		eventually(t, "the policy changes pods", func() bool {
			a := c.post(t, c.path("v1", "pods")+"?dryRun=All", pod("p")).want(t, http.StatusCreated)
			return strings.Contains(a.field(t, "spec", "containers"), `"image":"mirror/i"`) && strings.Contains(a.field(t, "spec", "initContainers"), `"name":"init"`)
		})
	}},
	{"a mutating policy patches an object with JSONPatch", func(t *testing.T, c *cluster) {
		c.policy(t, "Mutating", `{reinvocationPolicy: Never, mutations: [
			{patchType: JSONPatch, jsonPatch: {expression: "[JSONPatch{op: 'test', path: '/metadata/name', value: 'a'}, JSONPatch{op: 'add', path: '/metadata/labels', value: {'x/y': 'z'}}]"}},
			{patchType: JSONPatch, jsonPatch: {expression: "[JSONPatch{op: 'copy', from: '/metadata/labels/' + jsonpatch.escapeKey('x/y'), path: '/metadata/labels/copied'}]"}}]}`, "")
		eventually(t, "the policy patches objects", func() bool { return c.try(t, "a", nil).field(t, "metadata", "labels") == `{"copied":"z","x/y":"z"}` })
	}},
	{"a mutating policy has parameters, and fails as failurePolicy says", func(t *testing.T, c *cluster) {
		c.post(t, c.path("v1", "configmaps"), configMap("params", map[string]string{"label": "x"})).
			want(t, http.StatusCreated)
		c.policy(t, "Mutating", `{reinvocationPolicy: Never, paramKind: {apiVersion: v1, kind: ConfigMap}, mutations: [{patchType: ApplyConfiguration,
			applyConfiguration: {expression: "Object{metadata: Object.metadata{labels: {'set': params.data.label}}}"}}]}`, "paramRef: {name: params, parameterNotFoundAction: Deny}")
		eventually(t, "the policy sets the label", func() bool { return c.try(t, "a", nil).field(t, "metadata", "labels") == `{"set":"x"}` })
		policy := admissionRegistration + "mutatingadmissionpolicies/" + c.namespace
		fail := `{"spec":{"failurePolicy":%q,"mutations":[{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":"Object{data: {'k': object.data.none}}"}}]}}`
		c.patch(t, mergePatch, policy, strings.Replace(fail, "%q", `"Fail"`, 1)).want(t, http.StatusOK)
		eventually(t, "the policy fails", func() bool { return strings.Contains(string(c.try(t, "a", nil).Body), "no such key: data") })
		c.patch(t, mergePatch, policy, strings.Replace(fail, "%q", `"Ignore"`, 1)).want(t, http.StatusOK)
		eventually(t, "its failure is ignored", func() bool { return c.try(t, "a", nil).Code == http.StatusCreated })
	}},
	{"validating policies and webhooks see what mutating policies have made, and those come before mutating webhooks", func(t *testing.T, c *cluster) {
		c.policy(t, "Mutating", `{reinvocationPolicy: Never, mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: "Object{data: {'policy': 'was here'}}"}}]}`, "")
		c.policy(t, "Validating", `validations: [{expression: "object.metadata.name != 'bad' || !has(object.data.policy)", message: seen}]`, "")
		c.refuses(t, "bad", nil, "seen")
		h := reviews(t, allow)
		c.activate(t, "Mutating", "", c.webhook("a.example.com", h, ""))
		c.post(t, c.path("v1", "configmaps"), configMap("a", nil)).want(t, http.StatusCreated)
		if object := string(h.one(t).Object.Raw); !strings.Contains(object, "was here") {
			t.Errorf("the webhook got %s", object)
		}
	}},
	{"a mutating policy with reinvocationPolicy IfNeeded is applied again after others", func(t *testing.T, c *cluster) {
		c.policy(t, "Mutating", `{reinvocationPolicy: IfNeeded, mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: "has(object.data) && 'hook' in object.data ? Object{data: {'again': 'yes'}} : Object{data: {'first': 'yes'}}"}}]}`, "")
		eventually(t, "the policy changes objects", func() bool { return c.try(t, "a", nil).field(t, "data") == `{"first":"yes"}` })
		h := reviews(t, func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			return change(`[{"op":"add","path":"/data/hook","value":"yes"}]`)(r)
		})
		c.activate(t, "Mutating", "", c.webhook("a.example.com", h, ""))
		c.post(t, c.path("v1", "configmaps"), configMap("a", nil)).want(t, http.StatusCreated).
			has(t, `{"again":"yes","first":"yes","hook":"yes"}`, "data")
	}},
	{"a mutating policy changes custom resources by their schema", func(t *testing.T, c *cluster) {
		w := c.define(t, version("v1", `
spec:
  type: object
  properties:
    color: {type: string}
    parts: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [name], items: {type: object, required: [name], properties: {name: {type: string}, size: {type: integer}}}}`))
		c.policy(t, "Mutating", `{reinvocationPolicy: Never, matchConstraints: {resourceRules: [{operations: [CREATE], apiGroups: [`+w.group+`], apiVersions: [v1], resources: [widgets]}]}, mutations: [{patchType: ApplyConfiguration,
			applyConfiguration: {expression: "Object{spec: Object.spec{color: 'red', parts: [Object.spec.parts{name: 'a', size: 5}]}}"}}]}`, "")
		const want = `{"color":"red","parts":[{"name":"b"},{"name":"a","size":5}]}`
		name := "n"
		eventually(t, "the policy changes widgets", func() bool {
			name += "n"
			return w.create(t, name, "spec: {parts: [{name: b}, {name: a, size: 1}]}").field(t, "spec") == want // 503 until the policy knows the schema
		})
	}},
}
