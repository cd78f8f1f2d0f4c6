package badinput

import "strings"

// customCases are invalid definitions, and custom resources that violate their schema.
func customCases() []badCase {
	widgetWith := func(spec string) string {
		return `{"apiVersion":"bad.example.com/v1","kind":"Widget","metadata":{"name":"bad"},"spec":` + spec + `}`
	}
	// define returns the definition of another resource with one replacement.
	define := func(old, new string) string {
		other := strings.NewReplacer("widgets", "gizmos", "widget", "gizmo", "Widget", "Gizmo").Replace(definition)
		return strings.Replace(other, old, new, 1)
	}
	all := []badCase{
		post("custom: size is a string", widgets, widgetWith(`{"size":"3"}`)),
		post("custom: size is a fraction", widgets, widgetWith(`{"size":3.5}`)),
		post("custom: size is too small", widgets, widgetWith(`{"size":0}`)),
		post("custom: size is too large", widgets, widgetWith(`{"size":11}`)),
		post("custom: size is null", widgets, widgetWith(`{"size":null,"color":"blue"}`)),
		post("custom: unknown value of an enum", widgets, widgetWith(`{"color":"blue"}`)),
		post("custom: pattern", widgets, widgetWith(`{"name":"ABC"}`)),
		post("custom: too long", widgets, widgetWith(`{"name":"abcdef"}`)),
		post("custom: too many items", widgets, widgetWith(`{"list":["a","b","c"]}`)),
		post("custom: items of another type", widgets, widgetWith(`{"list":[1,{}]}`)),
		post("custom: CEL rule", widgets, widgetWith(`{"color":"green","size":2}`)),
		post("custom: spec is a string", widgets, widgetWith(`"x"`)),
		post("custom: spec is an array", widgets, widgetWith(`[]`)),
		post("custom: metadata is a string", widgets, `{"apiVersion":"bad.example.com/v1","kind":"Widget","metadata":"x"}`),
		post("custom: labels are numbers", widgets, `{"apiVersion":"bad.example.com/v1","kind":"Widget","metadata":{"name":"bad","labels":{"a":1}}}`),
		post("custom: bad label", widgets, `{"apiVersion":"bad.example.com/v1","kind":"Widget","metadata":{"name":"bad","labels":{"a":"b c"}}}`),
		post("custom: bad name", widgets, `{"apiVersion":"bad.example.com/v1","kind":"Widget","metadata":{"name":"Bad_Name"}}`),
		post("custom: other kind", widgets, `{"apiVersion":"bad.example.com/v1","kind":"Gadget","metadata":{"name":"bad"}}`),
		post("custom: other version", widgets, `{"apiVersion":"bad.example.com/v2","kind":"Widget","metadata":{"name":"bad"}}`),
		post("custom: exists", widgets, widget),
		post("custom: SQL in a value", widgets, widgetWith(`{"name":"'; --"}`)),
		put("custom: update without resourceVersion", widgets+"/one", widget),
		put("custom: update conflict", widgets+"/one", strings.Replace(widget, `"name":"one"`, `"name":"one","resourceVersion":"1"`, 1)),
		put("custom: update not there", widgets+"/nothing", strings.Replace(widget, `"one"`, `"nothing"`, 1)),
		patch("custom: merge patch out of range", mergeType, widgets+"/one", `{"spec":{"size":77}}`),
		patch("custom: JSON patch of nothing", jsonPatchType, widgets+"/one", `[{"op":"replace","path":"/spec/nothing/deep","value":1}]`),
		patch("custom: apply of another type", applyType, query(widgets+"/one", "fieldManager", "m"), `{"apiVersion":"bad.example.com/v1","kind":"Widget","spec":{"size":"x"}}`),
		put("custom: scale of another kind", widgets+"/one/scale", widget),
		put("custom: scale below the schema", widgets+"/one/scale", `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"one","namespace":"bad-input"},"spec":{"replicas":-3}}`),
		post("custom: status by POST", widgets+"/one/status", widget),
		post("custom: definition with another name", definitions, define(`gizmos.bad.example.com`, `other.bad.example.com`)),
		post("custom: definition without a schema", definitions, `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"gizmos.bad.example.com"},"spec":{"group":"bad.example.com","scope":"Namespaced","names":{"plural":"gizmos","kind":"Gizmo"},"versions":[{"name":"v1","served":true,"storage":true}]}}`),
		post("custom: definition without storage", definitions, define(`"storage":true`, `"storage":false`)),
		post("custom: definition of an unknown scope", definitions, define(`"Namespaced"`, `"Galactic"`)),
		post("custom: definition that is not structural", definitions, define(`"type":"integer","minimum"`, `"minimum"`)),
		post("custom: definition with a bad pattern", definitions, define(`^[a-z]+$`, `[`)),
		post("custom: definition with bad CEL", definitions, define(`self.size > 5`, `self.nothing > 5`)),
		post("custom: definition with a bad version", definitions, define(`"name":"v1"`, `"name":"V_1"`)),
		post("custom: definition in a protected group", definitions, strings.ReplaceAll(define("", ""), "bad.example.com", "bad.k8s.io")),
		post("custom: definition without a group", definitions, strings.ReplaceAll(define("", ""), `"bad.example.com"`, `""`)),
		post("custom: definition with a bad conversion", definitions, define(`"scope"`, `"conversion":{"strategy":"Webhook"},"scope"`)),
		post("custom: definition with an unknown type", definitions, define(`"type":"integer"`, `"type":"complex"`)),
		post("custom: definition with a reference", definitions, define(`{"type":"integer"`, `{"$ref":"#/a","type":"integer"`)),
		post("custom: definition with a bad scale path", definitions, define(`".spec.size"`, `"spec[0]"`)),
	}
	return all
}

// subresourceCases are subresources and virtual resources with invalid bodies.
func subresourceCases() []badCase {
	accounts := core + "/serviceaccounts/default/token"
	return []badCase{
		put("subresource: scale of another kind", deployments+"/web/scale", deployment),
		put("subresource: negative scale", deployments+"/web/scale", `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"web","namespace":"bad-input"},"spec":{"replicas":-1}}`),
		put("subresource: scale of another name", deployments+"/web/scale", `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"other"},"spec":{"replicas":1}}`),
		patch("subresource: scale patched to a word", mergeType, deployments+"/web/scale", `{"spec":{"replicas":"x"}}`),
		post("subresource: binding without a target", pods+"/pod/binding", `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"pod"}}`),
		post("subresource: binding to a pod", pods+"/pod/binding", `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"pod"},"target":{"kind":"Pod","name":"x"}}`),
		post("subresource: binding of another name", pods+"/pod/binding", `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"other"},"target":{"kind":"Node","name":"x"}}`),
		post("subresource: binding of no pod", pods+"/nothing/binding", `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"nothing"},"target":{"kind":"Node","name":"x"}}`),
		post("subresource: eviction of no pod", pods+"/nothing/eviction", `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"nothing"}}`),
		post("subresource: eviction of another name", pods+"/pod/eviction", `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"other"}}`),
		post("subresource: token that ends too soon", accounts, `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"expirationSeconds":1}}`),
		post("subresource: token that never ends", accounts, `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"expirationSeconds":99999999999}}`),
		post("subresource: token for no account", core+"/serviceaccounts/nobody/token", `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}`),
		post("subresource: token bound to nothing", accounts, `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"boundObjectRef":{"kind":"Pod","apiVersion":"v1","name":"nothing"}}}`),
		post("subresource: token bound to a planet", accounts, `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"boundObjectRef":{"kind":"Planet","apiVersion":"v1","name":"mars"}}}`),
		get("subresource: log of a pod that runs nowhere", pods+"/pod/log"),
		get("subresource: log of no container", query(pods+"/pod/log", "container", "other")),
		get("subresource: log of no pod", pods+"/nothing/log"),
		get("subresource: log with bad options", query(pods+"/pod/log", "tailLines", "-1", "sinceSeconds", "0")),
		get("subresource: exec without an upgrade", query(pods+"/pod/exec", "command", "ls")),
		get("subresource: exec without a command", pods+"/pod/exec"),
		get("subresource: attach to no pod", pods+"/nothing/attach"),
		get("subresource: proxy to a node that is not there", "/api/v1/nodes/nothing/proxy/"),
		get("subresource: proxy to a service that is not there", services+"/nothing/proxy/"),
		get("subresource: proxy to a service's bad port", services+"/svc:x:y:z/proxy/"),
		put("subresource: ephemeral containers replaced", pods+"/pod/ephemeralcontainers", strings.Replace(pod, `"containers"`, `"ephemeralContainers":[{"name":"c","image":"i"}],"containers"`, 1)),
		put("subresource: status of another name", pods+"/pod/status", strings.Replace(pod, `"name":"pod"`, `"name":"other"`, 1)),
		post("review: access without attributes", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{}}`),
		post("review: access with both attributes", "/apis/authorization.k8s.io/v1/subjectaccessreviews", `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"a","resourceAttributes":{"verb":"get"},"nonResourceAttributes":{"verb":"get"}}}`),
		post("review: access of nobody", "/apis/authorization.k8s.io/v1/subjectaccessreviews", `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"resourceAttributes":{"verb":"get"}}}`),
		post("review: access with SQL", "/apis/authorization.k8s.io/v1/subjectaccessreviews", `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"'; DROP TABLE log; --","resourceAttributes":{"verb":"' OR 1=1","resource":"pods"}}}`),
		post("review: rules without a namespace", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectRulesReview","spec":{}}`),
		post("review: empty token", "/apis/authentication.k8s.io/v1/tokenreviews", `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{}}`),
		post("review: garbage token", "/apis/authentication.k8s.io/v1/tokenreviews", `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":"a.b.c"}}`),
	}
}

// identityCases are requests by users without the permission.
func identityCases() []badCase {
	impersonate := func(name, path string, header, value string) badCase { return get(name, path).with(header, value) }
	return []badCase{
		get("identity: anonymous list", configMaps).by(anonymous),
		post("identity: anonymous create", configMaps, named("x")).by(anonymous),
		post("identity: anonymous with a broken body", configMaps, "{").by(anonymous),
		post("identity: anonymous with a large body", configMaps, repeat("x", 4<<20)).by(anonymous),
		get("identity: anonymous custom resource", widgets).by(anonymous),
		get("identity: anonymous path", "/nonsense").by(anonymous),
		get("identity: anonymous API", "/api").by(anonymous),
		get("identity: wrong token", configMaps).by(wrongToken),
		get("identity: wrong token on health", "/healthz").by(wrongToken),
		get("identity: basic credentials", configMaps).by(anonymous).with("Authorization", "Basic YTpi"),
		get("identity: SQL as a token", configMaps).by(anonymous).with("Authorization", "Bearer '; DROP TABLE log; --"),
		get("identity: malformed JWT", configMaps).by(anonymous).with("Authorization", "Bearer e30.e30.e30"),
		get("identity: JWT without an algorithm", configMaps).by(anonymous).with("Authorization", "Bearer eyJhbGciOiJub25lIn0.eyJpc3MiOiJodHRwczovL2t1YmVybmV0ZXMuZGVmYXVsdC5zdmMifQ."),
		impersonate("identity: as a user without rights", configMaps, "Impersonate-User", "nobody"),
		impersonate("identity: as SQL", configMaps, "Impersonate-User", "'; DROP TABLE log; --"),
		impersonate("identity: group without a user", configMaps, "Impersonate-Group", "system:masters"),
		impersonate("identity: uid without a user", configMaps, "Impersonate-Uid", "1"),
		impersonate("identity: as a service account without a name", configMaps, "Impersonate-User", "system:serviceaccount::"),
		post("identity: as a user without rights, create", configMaps, named("x")).with("Impersonate-User", "nobody"),
		del("identity: as a user without rights, delete all", configMaps, "").with("Impersonate-User", "nobody"),
		get("identity: as a user without rights, nothing there", "/apis/nonsense.example.com/v1/things").with("Impersonate-User", "nobody"),
		get("identity: as a user without rights, one by name", core+"/secrets/x").with("Impersonate-User", "nobody"),
	}
}
