package admission

import (
	"maps"
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/sqube/sqube/test/concepts/kit"
	"github.com/sqube/sqube/test/harness"
)

// policy creates a policy, kind Validating or Mutating, for ConfigMaps unless spec says otherwise, and a binding for the
// promise's namespace, both with additional fields in YAML. They take effect after a moment. They are not deleted, since
// kube-apiserver no longer notices changes of parameters of a built-in kind once a policy with such parameters has been
// deleted.
func policy(t testing.TB, c *kit.Cluster, kind, spec, binding string) {
	t.Helper()
	resource, policy := strings.ToLower(kind)+"admissionpolic", kit.Manifest(`{apiVersion: admissionregistration.k8s.io/v1, kind: %sAdmissionPolicy, metadata: {name: %s},
		spec: {matchConstraints: {resourceRules: [{operations: [CREATE, UPDATE], apiGroups: [""], apiVersions: [v1], resources: [configmaps]}]}}}`, kind, c.Namespace)
	maps.Copy(policy["spec"].(map[string]any), kit.Manifest("%s", spec))
	// Also in the policy, which denies everything it matches until its parameters' kind is known.
	kit.SetField(policy, kit.Manifest("{matchLabels: {kubernetes.io/metadata.name: %s}}", c.Namespace), "spec", "matchConstraints",
		"namespaceSelector")
	bound := kit.Manifest(`{apiVersion: admissionregistration.k8s.io/v1, kind: %sAdmissionPolicyBinding, metadata: {name: %s},
		spec: {policyName: %[2]s, matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[2]s}}}}}`, kind, c.Namespace)
	if kind == "Validating" {
		kit.SetField(bound, []any{"Deny"}, "spec", "validationActions")
	}
	maps.Copy(bound["spec"].(map[string]any), kit.Manifest("%s", binding))
	c.Post(t, kit.AdmissionRegistration+resource+"ies", policy).Created(t)
	c.Post(t, kit.AdmissionRegistration+resource+"ybindings", bound).Created(t)
}

// try creates a ConfigMap in a dry run, so that it can be repeated.
func try(t testing.TB, c *kit.Cluster, name string, data map[string]string) kit.Answer {
	t.Helper()
	return c.Post(t, c.Path("v1", "configmaps")+"?dryRun=All", kit.ConfigMap(name, data))
}

// refuses waits until a try is denied with a message that contains message.
func refuses(t testing.TB, c *kit.Cluster, name string, data map[string]string, message string) {
	t.Helper()
	harness.Eventually(t, "the policy denies "+name+": "+message, func() bool {
		a := try(t, c, name, data)
		return a.Code == http.StatusUnprocessableEntity && a.Text(t, "reason") == "Invalid" && strings.Contains(a.Text(t, "message"), message)
	})
}

// allows waits until a try is allowed.
func allows(t testing.TB, c *kit.Cluster, name string, data map[string]string) {
	t.Helper()
	harness.Eventually(t, "the policy allows "+name, func() bool { return try(t, c, name, data).Code == http.StatusCreated })
}

var validatingPolicies = []kit.Promise{
	{Statement: "a policy's denial contains the policy, the binding, and the message and reason of its validation", Proof: func(t *testing.T, c *kit.Cluster) {
		policy(t, c, "Validating", `validations:
- {expression: "object.metadata.name != 'plain'"}
- {expression: "object.metadata.name != 'message'", message: not so}
- {expression: "object.metadata.name != 'expression'", message: unused, messageExpression: "'not ' + object.metadata.name"}
- {expression: "object.metadata.name != 'failing'", message: instead, messageExpression: "string(object.data.none)"}
- {expression: "object.metadata.name != 'forbidden'", reason: Forbidden}
- {expression: "object.metadata.name != 'invalid'", reason: Invalid}
- {expression: "object.metadata.name != 'large'", reason: RequestEntityTooLarge}`, "")
		denied := "ValidatingAdmissionPolicy '" + c.Namespace + "' with binding '" + c.Namespace + "' denied request: "
		refuses(t, c, "plain", nil, `configmaps "plain" is forbidden: `+denied+"failed expression: object.metadata.name != 'plain'")
		for name, want := range map[string]struct {
			code            int
			reason, message string
		}{
			"message": {422, "Invalid", "not so"}, "expression": {422, "Invalid", "not expression"},
			"failing":   {422, "Invalid", "instead"},
			"forbidden": {403, "Forbidden", ""}, "invalid": {422, "Invalid", ""},
			"large": {413, "RequestEntityTooLarge", ""},
		} {
			try(t, c, name, nil).Refused(t, want.code, want.reason, denied+want.message)
		}
		try(t, c, "fine", nil).Created(t)
	}},
	{Statement: "expressions have access to the object, the old object, the request, the namespace, variables and the user's permissions", Proof: func(t *testing.T, c *kit.Cluster) {
		policy(t, c, "Validating", `variables:
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
		refuses(t, c, "my", map[string]string{"a": "", "b": ""}, "large")
		try(t, c, "other", map[string]string{"a": "", "b": ""}).Created(t)
		try(t, c, c.Namespace, nil).Invalid(t, "named as its namespace")
		try(t, c, "admin", nil).Invalid(t, "no admins")
		try(t, c, "options", nil).Want(t, http.StatusUnprocessableEntity)
		c.Post(t, c.Path("v1", "configmaps")+"?dryRun=All&fieldManager=me", kit.ConfigMap("options", nil)).Created(t)
		c.Send(t, http.MethodPost, c.Path("v1", "configmaps"),
			kit.Header{"Impersonate-User", "jane", "Impersonate-Group", "system:masters"}, kit.ConfigMap("a", nil)).Invalid(t, "not jane")
		c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("wet", nil)).Created(t)
		c.Patch(t, kit.MergePatch, c.Path("v1", "configmaps", "wet"), `{"data":{"a":"b"}}`).Invalid(t, "fixed")
		c.Patch(t, kit.MergePatch, c.Path("v1", "configmaps", "wet"), `{"metadata":{"labels":{"a":"b"}}}`).OK(t)
	}},
	{Statement: "validationActions define whether a failure denies, warns, or is only audited", Proof: func(t *testing.T, c *kit.Cluster) {
		policy(t, c, "Validating", `validations: [{expression: "object.metadata.name != 'bad'", message: careful}]`,
			"validationActions: [Warn, Audit]")
		harness.Eventually(t, "the policy warns", func() bool { return try(t, c, "bad", nil).Header.Get("Warning") != "" })
		c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("bad", nil)).Created(t).
			Warns(t, "Validation failed for ValidatingAdmissionPolicy '"+c.Namespace+"' with binding '"+c.Namespace+"': careful")
		binding := kit.AdmissionRegistration + "validatingadmissionpolicybindings/" + c.Namespace
		c.Patch(t, kit.MergePatch, binding, `{"spec":{"validationActions":["Audit"]}}`).OK(t)
		harness.Eventually(t, "the policy no longer warns", func() bool { return try(t, c, "bad", nil).Header.Get("Warning") == "" })
		c.Patch(t, kit.MergePatch, binding, `{"spec":{"validationActions":["Deny","Audit"]}}`).OK(t)
		refuses(t, c, "bad", nil, "careful")
		c.Patch(t, kit.MergePatch, binding, `{"spec":{"validationActions":["Deny","Warn"]}}`).Invalid(t, "must not contain both Deny and Warn")
	}},
	{Statement: "a binding gives a policy its parameters, and their changes take effect at once", Proof: func(t *testing.T, c *kit.Cluster) {
		c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("params", map[string]string{"forbidden": "bad"})).Created(t)
		policy(t, c, "Validating", `{paramKind: {apiVersion: v1, kind: ConfigMap}, validations: [{expression: "object.metadata.name != params.data.forbidden", messageExpression: "'not ' + params.data.forbidden"}]}`,
			"paramRef: {name: params, namespace: "+c.Namespace+", parameterNotFoundAction: Deny}")
		refuses(t, c, "bad", nil, "not bad")
		try(t, c, "worse", nil).Created(t)
		c.Patch(t, kit.MergePatch, c.Path("v1", "configmaps", "params"), `{"data":{"forbidden":"worse"}}`).OK(t)
		refuses(t, c, "worse", nil, "not worse")
		allows(t, c, "bad", nil)
		c.Delete(t, c.Path("v1", "configmaps", "params")).OK(t)
		refuses(t, c, "any", nil, "no params found for policy binding with `Deny` parameterNotFoundAction")
		c.Patch(t, kit.MergePatch, kit.AdmissionRegistration+"validatingadmissionpolicybindings/"+c.Namespace,
			`{"spec":{"paramRef":{"parameterNotFoundAction":"Allow"}}}`).OK(t)
		allows(t, c, "any", nil)
	}},
	{Statement: "parameters can be custom resources, several by their labels, in the namespace of the request", Proof: func(t *testing.T, c *kit.Cluster) {
		w := c.DefineVersions(t, kit.CRDVersion("v1", "spec: {type: object, properties: {limit: {type: integer}}}"))
		w.Create(t, "one", "{metadata: {labels: {for: this}}, spec: {limit: 3}}").Created(t)
		w.Create(t, "two", "{metadata: {labels: {for: this}}, spec: {limit: 2}}").Created(t)
		w.Create(t, "other", "{spec: {limit: 0}}").Created(t)
		policy(t, c, "Validating", `{paramKind: {apiVersion: `+w.Group+`/v1, kind: Widget}, validations: [{expression: "!has(object.data) || size(object.data) <= params.spec.limit", messageExpression: "'at most ' + string(params.spec.limit)"}]}`,
			"paramRef: {selector: {matchLabels: {for: this}}, parameterNotFoundAction: Deny}")
		refuses(t, c, "a", map[string]string{"a": "", "b": "", "c": ""}, "at most 2")
		try(t, c, "a", map[string]string{"a": "", "b": "", "c": "", "d": ""}).Invalid(t, "at most ")
		allows(t, c, "a", map[string]string{"a": "", "b": ""})
	}},
	{Statement: "parameters can be Pods, and all their fields can be read", Proof: func(t *testing.T, c *kit.Cluster) {
		c.MakeDefaultServiceAccount(t)
		c.Post(t, c.Path("v1", "pods"), kit.With(kit.Pod("params"), map[string]any{"limit": "few"}, "metadata", "labels")).Created(t)
		policy(t, c, "Validating", `{paramKind: {apiVersion: v1, kind: Pod}, validations: [{expression: "object.metadata.name != params.spec.containers[0].image", messageExpression: "string(params.metadata.labels.limit)"}]}`,
			"paramRef: {name: params, namespace: "+c.Namespace+", parameterNotFoundAction: Deny}")
		refuses(t, c, "i", nil, "few")
		allows(t, c, "other", nil)
	}},
	{Statement: "an expression that fails denies the request, unless failurePolicy is Ignore", Proof: func(t *testing.T, c *kit.Cluster) {
		policy(t, c, "Validating", `validations: [{expression: "object.data.size != 'x'"}, {expression: "object.metadata.name != 'never'"}]`, "")
		refuses(t, c, "a", nil, "expression 'object.data.size != 'x'' resulted in error: no such key: data")
		c.Patch(t, kit.MergePatch, kit.AdmissionRegistration+"validatingadmissionpolicies/"+c.Namespace,
			`{"spec":{"failurePolicy":"Ignore"}}`).OK(t)
		allows(t, c, "a", nil)
		refuses(t, c, "never", nil, "object.metadata.name != 'never'")
	}},
	{Statement: "matchConditions and matchConstraints narrow a policy, and matchResources a binding", Proof: func(t *testing.T, c *kit.Cluster) {
		policy(t, c, "Validating", `matchConditions: [{name: a, expression: "request.name != 'skipped'"}, {name: b, expression: "!object.metadata.name.endsWith('y')"}]
matchConstraints:
  resourceRules: [{operations: [CREATE], apiGroups: [""], apiVersions: ["*"], resources: ["*"]}]
  excludeResourceRules: [{operations: ["*"], apiGroups: [""], apiVersions: ["*"], resources: [secrets]}]
  objectSelector: {matchExpressions: [{key: free, operator: DoesNotExist}]}
validations: [{expression: "false", message: nothing}]`, `matchResources:
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: `+c.Namespace+`}}
  resourceRules: [{operations: ["*"], apiGroups: [""], apiVersions: ["*"], resources: [configmaps, secrets]}, {operations: ["*"], apiGroups: [""], apiVersions: ["*"], resources: [services], resourceNames: [named]}]`)
		refuses(t, c, "bad", nil, "nothing")
		try(t, c, "skipped", nil).Created(t)
		try(t, c, "many", nil).Created(t)
		c.Post(t, c.Path("v1", "configmaps"), kit.With(kit.ConfigMap("bad", nil), "x", "metadata", "labels", "free")).Created(t)
		c.Patch(t, kit.MergePatch, c.Path("v1", "configmaps", "bad"), `{"data":{"a":"b"}}`).OK(t)
		c.Post(t, c.Path("v1", "secrets"), kit.Manifest("{apiVersion: v1, kind: Secret, metadata: {name: s}}")).Created(t)
		c.Post(t, c.Path("v1", "services"), kit.Service("unnamed")).Created(t)
		c.Post(t, c.Path("v1", "services"), kit.Service("named")).Invalid(t, "nothing")
		c.Post(t, "/api/v1/namespaces/default/configmaps?dryRun=All", kit.ConfigMap("bad", nil)).Created(t)
	}},
	{Statement: "a policy also applies to other versions of its resources, to subresources, and to custom resources", Proof: func(t *testing.T, c *kit.Cluster) {
		w := c.DefineVersions(t, kit.CRDVersion("v1", kit.AnySpec))
		policy(t, c, "Validating", `matchConstraints: {matchPolicy: Equivalent, resourceRules: [
  {operations: [CREATE], apiGroups: [autoscaling], apiVersions: [v1], resources: [horizontalpodautoscalers]},
  {operations: [UPDATE], apiGroups: [apps], apiVersions: [v1], resources: [deployments/scale]},
  {operations: [CREATE], apiGroups: [`+w.Group+`], apiVersions: [v1], resources: [widgets]}]}
validations: [{expression: "!has(object.spec.maxReplicas) || object.spec.maxReplicas < 5", message: at most 5}, {expression: "!has(object.spec.replicas) || object.spec.replicas < 7", message: at most 7},
  {expression: "!has(object.spec.color) || object.spec.color != 'red'", message: no red}]`, "")
		harness.Eventually(t, "the policy is in effect", func() bool { return strings.Contains(string(w.Create(t, "a", "spec: {color: red}").Body), "no red") })
		c.Post(t, c.Path("autoscaling/v2", "horizontalpodautoscalers"),
			kit.Manifest(`{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: a},
			spec: {maxReplicas: 9, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: d}}}`)).Invalid(t, "at most 5")
		c.Post(t, c.Path("apps/v1", "deployments"), kit.Deployment("d")).Created(t)
		c.Patch(t, kit.MergePatch, c.Path("apps/v1", "deployments", "d", "scale"), `{"spec":{"replicas":9}}`).Invalid(t, "at most 7")
	}},
	{Statement: "the status of a policy has the type errors of its expressions", Proof: func(t *testing.T, c *kit.Cluster) {
		policy(t, c, "Validating", `matchConstraints: {resourceRules: [{operations: [CREATE], apiGroups: [apps], apiVersions: [v1], resources: [deployments]}]}
validations: [{expression: "object.spec.replicas > '1'"}, {expression: "object.spec.replicazz > 1"}, {expression: "object.spec.replicas > 1"}]`, "validationActions: [Audit]")
		path := kit.AdmissionRegistration + "validatingadmissionpolicies/" + c.Namespace
		// By a controller in sqube, and in kube-controller-manager elsewhere.
		harness.Eventually(t, "the policy is checked", func() bool { return c.Get(t, path).FieldJSON(t, "status", "observedGeneration") == "1" })
		warnings, _ := c.Get(t, path).Value(t, "status", "typeChecking", "expressionWarnings").([]any)
		var fields []string
		for _, w := range warnings {
			fields = append(fields, w.(map[string]any)["fieldRef"].(string))
			if text := w.(map[string]any)["warning"].(string); !strings.Contains(text, "apps/v1, Kind=Deployment: ERROR") {
				t.Errorf("the warning is %s", text)
			}
		}
		kit.Equal(t, fields, []string{"spec.validations[0].expression", "spec.validations[1].expression"})
	}},
	{Statement: "changed policies soon take effect, and deleted ones no longer have any", Proof: func(t *testing.T, c *kit.Cluster) {
		policy(t, c, "Validating", `validations: [{expression: "object.metadata.name != 'a'", message: not a}]`, "")
		refuses(t, c, "a", nil, "not a")
		path := kit.AdmissionRegistration + "validatingadmissionpolicies/" + c.Namespace
		c.Patch(t, kit.MergePatch, path, `{"spec":{"validations":[{"expression":"object.metadata.name != 'b'","message":"not b"}]}}`).OK(t)
		refuses(t, c, "b", nil, "not b")
		allows(t, c, "a", nil)
		c.Delete(t, path).OK(t)
		allows(t, c, "b", nil)
	}},
	{Statement: "an invalid policy is rejected with the field", Proof: func(t *testing.T, c *kit.Cluster) {
		policy := kit.Manifest(`{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: %s},
			spec: {matchConstraints: {resourceRules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [configmaps]}]}}}`, c.Namespace)
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
			bad := kit.With(policy, policy["spec"], "spec")
			maps.Copy(bad["spec"].(map[string]any), kit.Manifest("%s", spec))
			c.Post(t, kit.AdmissionRegistration+"validatingadmissionpolicies", bad).Invalid(t, part)
		}
	}},
}

var mutatingPolicies = []kit.Promise{
	{Statement: "a mutating policy applies a configuration to an object", Proof: func(t *testing.T, c *kit.Cluster) {
		policy(t, c, "Mutating", `{reinvocationPolicy: Never, variables: [{name: by, expression: "object.metadata.name + '-by'"}],
			matchConditions: [{name: a, expression: "object.metadata.name != 'skipped'"}], mutations: [{patchType: ApplyConfiguration,
			applyConfiguration: {expression: "Object{metadata: Object.metadata{labels: {'by': variables.by}}, data: {'added': request.userInfo.username}}"}}]}`, "")
		harness.Eventually(t, "the policy changes objects", func() bool { return try(t, c, "a", nil).FieldJSON(t, "metadata", "labels") == `{"by":"a-by"}` })
		made := kit.With(kit.ConfigMap("a", map[string]string{"k": "v"}), map[string]any{"mine": "x"}, "metadata", "labels")
		a := c.Post(t, c.Path("v1", "configmaps"), made).Created(t).
			HasField(t, `{"by":"a-by","mine":"x"}`, "metadata", "labels").HasField(t, `"v"`, "data", "k")
		if a.Text(t, "data", "added") == "" {
			t.Errorf("the data lacks the user: %s", a.Body)
		}
		try(t, c, "skipped", nil).HasField(t, "", "metadata", "labels")
	}},
	{Statement: "lists of objects are merged by their keys", Proof: func(t *testing.T, c *kit.Cluster) {
		c.MakeDefaultServiceAccount(t)
		policy(t, c, "Mutating", `{reinvocationPolicy: Never, matchConstraints: {resourceRules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods]}]}, mutations: [
			{patchType: ApplyConfiguration, applyConfiguration: {expression: "Object{spec: Object.spec{containers: object.spec.containers.map(c, Object.spec.containers{name: c.name, image: 'mirror/' + c.image}), initContainers: [Object.spec.initContainers{name: 'init', image: 'i'}]}}"}}]}`, "")
		harness.Eventually(t, "the policy changes pods", func() bool {
			a := c.Post(t, c.Path("v1", "pods")+"?dryRun=All", kit.Pod("p")).Created(t)
			return strings.Contains(a.FieldJSON(t, "spec", "containers"), `"image":"mirror/i"`) && strings.Contains(a.FieldJSON(t, "spec", "initContainers"), `"name":"init"`)
		})
	}},
	{Statement: "a mutating policy patches an object with JSONPatch", Proof: func(t *testing.T, c *kit.Cluster) {
		policy(t, c, "Mutating", `{reinvocationPolicy: Never, mutations: [
			{patchType: JSONPatch, jsonPatch: {expression: "[JSONPatch{op: 'test', path: '/metadata/name', value: 'a'}, JSONPatch{op: 'add', path: '/metadata/labels', value: {'x/y': 'z'}}]"}},
			{patchType: JSONPatch, jsonPatch: {expression: "[JSONPatch{op: 'copy', from: '/metadata/labels/' + jsonpatch.escapeKey('x/y'), path: '/metadata/labels/copied'}]"}}]}`, "")
		harness.Eventually(t, "the policy patches objects", func() bool {
			return try(t, c, "a", nil).FieldJSON(t, "metadata", "labels") == `{"copied":"z","x/y":"z"}`
		})
	}},
	{Statement: "a mutating policy may have parameters, and failurePolicy applies to it", Proof: func(t *testing.T, c *kit.Cluster) {
		c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("params", map[string]string{"label": "x"})).Created(t)
		policy(t, c, "Mutating", `{reinvocationPolicy: Never, paramKind: {apiVersion: v1, kind: ConfigMap}, mutations: [{patchType: ApplyConfiguration,
			applyConfiguration: {expression: "Object{metadata: Object.metadata{labels: {'set': params.data.label}}}"}}]}`, "paramRef: {name: params, parameterNotFoundAction: Deny}")
		harness.Eventually(t, "the policy sets the label", func() bool { return try(t, c, "a", nil).FieldJSON(t, "metadata", "labels") == `{"set":"x"}` })
		policy := kit.AdmissionRegistration + "mutatingadmissionpolicies/" + c.Namespace
		fail := `{"spec":{"failurePolicy":%q,"mutations":[{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":"Object{data: {'k': object.data.none}}"}}]}}`
		c.Patch(t, kit.MergePatch, policy, strings.Replace(fail, "%q", `"Fail"`, 1)).OK(t)
		harness.Eventually(t, "the policy fails", func() bool { return strings.Contains(string(try(t, c, "a", nil).Body), "no such key: data") })
		c.Patch(t, kit.MergePatch, policy, strings.Replace(fail, "%q", `"Ignore"`, 1)).OK(t)
		harness.Eventually(t, "its failure is ignored", func() bool { return try(t, c, "a", nil).Code == http.StatusCreated })
	}},
	{Statement: "validating policies and webhooks receive the result of mutating policies, which precede mutating webhooks", Proof: func(t *testing.T, c *kit.Cluster) {
		policy(t, c, "Mutating", `{reinvocationPolicy: Never, mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: "Object{data: {'policy': 'was here'}}"}}]}`, "")
		policy(t, c, "Validating", `validations: [{expression: "object.metadata.name != 'bad' || !has(object.data.policy)", message: seen}]`, "")
		refuses(t, c, "bad", nil, "seen")
		h := kit.ServeReviews(t, kit.AllowRequest)
		c.ActivateWebhooks(t, "Mutating", "", c.WebhookEntry("a.example.com", h, ""))
		c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("a", nil)).Created(t)
		if object := string(h.OnlyRequest(t).Object.Raw); !strings.Contains(object, "was here") {
			t.Errorf("the webhook received %s", object)
		}
	}},
	{Statement: "a mutating policy with reinvocationPolicy IfNeeded is applied again after others", Proof: func(t *testing.T, c *kit.Cluster) {
		policy(t, c, "Mutating", `{reinvocationPolicy: IfNeeded, mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: "has(object.data) && 'hook' in object.data ? Object{data: {'again': 'yes'}} : Object{data: {'first': 'yes'}}"}}]}`, "")
		harness.Eventually(t, "the policy changes objects", func() bool { return try(t, c, "a", nil).FieldJSON(t, "data") == `{"first":"yes"}` })
		h := kit.ServeReviews(t, func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			return kit.PatchRequest(`[{"op":"add","path":"/data/hook","value":"yes"}]`)(r)
		})
		c.ActivateWebhooks(t, "Mutating", "", c.WebhookEntry("a.example.com", h, ""))
		c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("a", nil)).Created(t).
			HasField(t, `{"again":"yes","first":"yes","hook":"yes"}`, "data")
	}},
	{Statement: "a mutating policy changes custom resources by their schema", Proof: func(t *testing.T, c *kit.Cluster) {
		w := c.DefineVersions(t, kit.CRDVersion("v1", `
spec:
  type: object
  properties:
    color: {type: string}
    parts: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [name], items: {type: object, required: [name], properties: {name: {type: string}, size: {type: integer}}}}`))
		policy(t, c, "Mutating", `{reinvocationPolicy: Never, matchConstraints: {resourceRules: [{operations: [CREATE], apiGroups: [`+w.Group+`], apiVersions: [v1], resources: [widgets]}]}, mutations: [{patchType: ApplyConfiguration,
			applyConfiguration: {expression: "Object{spec: Object.spec{color: 'red', parts: [Object.spec.parts{name: 'a', size: 5}]}}"}}]}`, "")
		const want = `{"color":"red","parts":[{"name":"b"},{"name":"a","size":5}]}`
		name := "n"
		harness.Eventually(t, "the policy changes widgets", func() bool {
			name += "n"
			return w.Create(t, name, "spec: {parts: [{name: b}, {name: a, size: 1}]}").FieldJSON(t, "spec") == want // 503 until the policy has the schema
		})
	}},
}
