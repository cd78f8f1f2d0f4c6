package badinput

import (
	"fmt"
	"strings"
)

// validationCases are objects that fail validation.
func validationCases() []badCase {
	podSpec := func(spec string) string {
		return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x"},"spec":` + spec + `}`
	}
	return []badCase{
		post("valid: pod without containers", pods, podSpec(`{"containers":[]}`)),
		post("valid: pod without a spec", pods, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x"}}`),
		post("valid: two containers of one name", pods, podSpec(`{"containers":[{"name":"c","image":"i"},{"name":"c","image":"i"}]}`)),
		post("valid: container without an image", pods, podSpec(`{"containers":[{"name":"c"}]}`)),
		post("valid: unknown restart policy", pods, podSpec(`{"restartPolicy":"Sometimes","containers":[{"name":"c","image":"i"}]}`)),
		post("valid: volume that is not there", pods, podSpec(`{"containers":[{"name":"c","image":"i","volumeMounts":[{"name":"v","mountPath":"/v"}]}]}`)),
		post("valid: request over limit", pods, podSpec(`{"containers":[{"name":"c","image":"i","resources":{"limits":{"cpu":"1"},"requests":{"cpu":"2"}}}]}`)),
		post("valid: negative grace period", pods, podSpec(`{"terminationGracePeriodSeconds":-5,"activeDeadlineSeconds":-1,"containers":[{"name":"c","image":"i"}]}`)),
		post("valid: service account that is not there", pods, podSpec(`{"serviceAccountName":"nobody","containers":[{"name":"c","image":"i"}]}`)),
		post("valid: priority class that is not there", pods, podSpec(`{"priorityClassName":"nothing","containers":[{"name":"c","image":"i"}]}`)),
		post("valid: service port", services, `{"apiVersion":"v1","kind":"Service","metadata":{"name":"x"},"spec":{"ports":[{"port":99999}]}}`),
		post("valid: service without ports", services, `{"apiVersion":"v1","kind":"Service","metadata":{"name":"x"},"spec":{"selector":{"a":"b"}}}`),
		post("valid: cluster IP outside the range", services, `{"apiVersion":"v1","kind":"Service","metadata":{"name":"x"},"spec":{"clusterIP":"192.0.2.1","ports":[{"port":80}]}}`),
		post("valid: cluster IP is none", services, `{"apiVersion":"v1","kind":"Service","metadata":{"name":"x"},"spec":{"clusterIP":"not-an-ip","ports":[{"port":80}]}}`),
		post("valid: node port outside the range", services, `{"apiVersion":"v1","kind":"Service","metadata":{"name":"x"},"spec":{"type":"NodePort","ports":[{"port":80,"nodePort":80}]}}`),
		post("valid: deployment whose selector does not fit", deployments, strings.Replace(deployment, `"matchLabels":{"app":"web"}`, `"matchLabels":{"app":"other"}`, 1)),
		post("valid: deployment without anything", deployments, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"x"},"spec":{}}`),
		post("valid: negative replicas", deployments, strings.Replace(deployment, `"replicas":1`, `"replicas":-1`, 1)),
		post("valid: cron schedule", "/apis/batch/v1/namespaces/"+namespace+"/cronjobs", `{"apiVersion":"batch/v1","kind":"CronJob","metadata":{"name":"x"},"spec":{"schedule":"every day","jobTemplate":{"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}}}`),
		post("valid: ingress path", "/apis/networking.k8s.io/v1/namespaces/"+namespace+"/ingresses", `{"apiVersion":"networking.k8s.io/v1","kind":"Ingress","metadata":{"name":"x"},"spec":{"rules":[{"http":{"paths":[{"path":"no-slash","pathType":"Prefix","backend":{"service":{"name":"s","port":{"number":80}}}}]}}]}}`),
		post("valid: role without an API group", "/apis/rbac.authorization.k8s.io/v1/namespaces/"+namespace+"/roles", `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":"x"},"rules":[{"verbs":["get"],"resources":["pods"]}]}`),
		post("valid: binding to a role that is not there", "/apis/rbac.authorization.k8s.io/v1/namespaces/"+namespace+"/rolebindings", `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{"name":"x"},"roleRef":{"apiGroup":"x","kind":"Nothing","name":"a"},"subjects":[{"kind":"Robot","name":"r"}]}`),
		post("valid: policy whose CEL does not compile", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies", `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":"x"},"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["pods"]}]},"validations":[{"expression":"object.spec.("}]}}`),
		post("valid: webhook without a client", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":"x"},"webhooks":[{"name":"a"}]}`),
		post("valid: quota", core+"/resourcequotas", `{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":"x"},"spec":{"hard":{"pods":"-1"}}}`),
		post("valid: owner without a uid", configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p"}]}}`),
		post("valid: two controllers", configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"a","controller":true},{"apiVersion":"v1","kind":"Pod","name":"q","uid":"b","controller":true}]}}`),
		post("valid: resourceVersion in a create", configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"versioned","resourceVersion":"5"}}`),
		post("valid: malformed resourceVersion in a create", configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"versioned","resourceVersion":"x"}}`),
		post("valid: event of another namespace", core+"/events", `{"apiVersion":"v1","kind":"Event","metadata":{"name":"x"},"involvedObject":{"namespace":"other"}}`),
		post("valid: config map key", configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"..":"a"}}`),
		post("valid: key in data and in binary data", configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"a":"b"},"binaryData":{"a":"YQ=="}}`),
		post("valid: secret type", core+"/secrets", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"x"},"type":"kubernetes.io/tls"}`),
		post("valid: token secret of no account", core+"/secrets", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"x"},"type":"kubernetes.io/service-account-token"}`),
		post("valid: certificate request", "/apis/certificates.k8s.io/v1/certificatesigningrequests", `{"apiVersion":"certificates.k8s.io/v1","kind":"CertificateSigningRequest","metadata":{"name":"x"},"spec":{"request":"YQ==","signerName":"nothing","usages":["fly"]}}`),
	}
}

// updateCases are updates that are rejected.
func updateCases() []badCase {
	return []badCase{
		put("update: conflict", configMaps+"/cm", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"cm","resourceVersion":"1"}}`),
		put("update: malformed resourceVersion", configMaps+"/cm", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"cm","resourceVersion":"abc"}}`),
		put("update: negative resourceVersion", configMaps+"/cm", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"cm","resourceVersion":"-1"}}`),
		put("update: resourceVersion overflows", configMaps+"/cm", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"cm","resourceVersion":"99999999999999999999999"}}`),
		put("update: resourceVersion to come", configMaps+"/cm", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"cm","resourceVersion":"9223372036854775807"}}`),
		put("update: resourceVersion with SQL", configMaps+"/cm", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"cm","resourceVersion":"1 OR 1=1"}}`),
		put("update: other uid", configMaps+"/cm", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"cm","uid":"11111111-1111-1111-1111-111111111111"}}`),
		put("update: not there", configMaps+"/nothing", named("nothing")),
		put("update: not there, with resourceVersion", configMaps+"/nothing", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"nothing","resourceVersion":"1"}}`),
		put("update: immutable", configMaps+"/fixed", strings.Replace(immutable, `"a":"1"`, `"a":"2"`, 1)),
		put("update: immutable made mutable", configMaps+"/fixed", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"fixed"},"data":{"a":"1"}}`),
		put("update: pod's image and command", pods+"/pod", strings.Replace(pod, `"image":"i:1"`, `"image":"i:1","command":["x"]`, 1)),
		put("update: deployment's selector", deployments+"/web", strings.ReplaceAll(deployment, `"app":"web"`, `"app":"other"`)),
		put("update: namespace phase", "/api/v1/namespaces/"+namespace+"/finalize", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"other"}}`),
		put("update: service without its cluster IP", services+"/svc", `{"apiVersion":"v1","kind":"Service","metadata":{"name":"svc"},"spec":{"clusterIP":"192.0.2.7","ports":[{"port":80}]}}`),
		put("update: creates a lease", "/apis/coordination.k8s.io/v1/namespaces/"+namespace+"/leases/Bad_Name", `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"Bad_Name"}}`),
	}
}

// patchCases are patches that can't be parsed, can't be applied, or result in an invalid object.
func patchCases() []badCase {
	cm, web := configMaps+"/cm", deployments+"/web"
	apply := func(path string, more ...string) string {
		return query(path, append([]string{"fieldManager", "tester"}, more...)...)
	}
	var all []badCase
	for name, body := range map[string]string{
		"not JSON": `{`, "an object": `{}`, "a string": `"x"`, "empty": ``, "null": `null`, "no operations": `[]`,
		"unknown operation":        `[{"op":"burn","path":"/data"}]`,
		"no path":                  `[{"op":"add","value":1}]`,
		"path without slash":       `[{"op":"add","path":"data","value":{}}]`,
		"path that is not there":   `[{"op":"replace","path":"/data/b/c","value":"x"}]`,
		"remove what is not there": `[{"op":"remove","path":"/data/zzz"}]`,
		"test fails":               `[{"op":"test","path":"/data/a","value":"nope"}]`,
		"copy from nowhere":        `[{"op":"copy","from":"/nowhere","path":"/data/b"}]`,
		"move from nowhere":        `[{"op":"move","from":"/nowhere","path":"/data/b"}]`,
		"replaces everything":      `[{"op":"replace","path":"","value":{}}]`,
		"array index":              `[{"op":"add","path":"/metadata/ownerReferences/9","value":{}}]`,
		"wrong type":               `[{"op":"replace","path":"/data/a","value":1}]`,
		"removes the name":         `[{"op":"remove","path":"/metadata/name"}]`,
		"changes the kind":         `[{"op":"replace","path":"/kind","value":"Secret"}]`,
		"operation is a number":    `[7]`,
		"SQL":                      `[{"op":"replace","path":"/data/'; DROP TABLE log; --","value":"x"}]`,
	} {
		all = append(all, patch("patch: JSON patch: "+name, jsonPatchType, cm, body))
	}
	for name, body := range map[string]string{
		"not JSON": `{`, "an array": `[]`, "a string": `"x"`, "a number": `1`, "null": `null`, "empty": ``,
		"wrong type":            `{"data":"x"}`,
		"changes the name":      `{"metadata":{"name":"other"}}`,
		"changes the namespace": `{"metadata":{"namespace":"other"}}`,
		"changes the uid":       `{"metadata":{"uid":"11111111-1111-1111-1111-111111111111"}}`,
		"changes the kind":      `{"kind":"Secret"}`,
		"changes the version":   `{"apiVersion":"v9"}`,
		"old resourceVersion":   `{"metadata":{"resourceVersion":"1"}}`,
		"bad resourceVersion":   `{"metadata":{"resourceVersion":"x"}}`,
		"removes the name":      `{"metadata":{"name":null}}`,
		"removes metadata":      `{"metadata":null}`,
		"bad label":             `{"metadata":{"labels":{"a":"b c"}}}`,
		"bad managedFields":     `{"metadata":{"managedFields":[{"manager":"x","operation":"Fly"}]}}`,
		"YAML":                  "data:\n  a: b\n",
		"deep":                  repeat(`{"a":`, 20_000) + `1` + repeat(`}`, 20_000),
	} {
		all = append(all, patch("patch: merge patch: "+name, mergeType, cm, body))
	}
	for name, body := range map[string]string{
		"not JSON": `{`, "an array": `[]`, "null": `null`, "empty": ``,
		"unknown directive":         `{"spec":{"template":{"spec":{"containers":[{"name":"c","$patch":"burn"}]}}}}`,
		"directive is a number":     `{"spec":{"$patch":1}}`,
		"element without merge key": `{"spec":{"template":{"spec":{"containers":[{"image":"x"}]}}}}`,
		"list is an object":         `{"spec":{"template":{"spec":{"containers":{"name":"c"}}}}}`,
		"retainKeys of nothing":     `{"spec":{"strategy":{"$retainKeys":["x"],"type":"Recreate"}}}`,
		"bad order":                 `{"spec":{"template":{"spec":{"$setElementOrder/containers":[{"name":"a"}],"containers":[{"name":"b"}]}}}}`,
		"deletes from primitives":   `{"metadata":{"$deleteFromPrimitiveList/finalizers":"x"}}`,
		"wrong type":                `{"spec":{"replicas":"x"}}`,
		"negative replicas":         `{"spec":{"replicas":-1}}`,
	} {
		all = append(all, patch("patch: strategic: "+name, strategicType, web, body))
	}
	for name, body := range map[string]string{
		"broken YAML": `a: [`, "empty": ``, "null": `null`, "an array": `[]`, "a string": `x`,
		"no kind":             `{"metadata":{"name":"cm"}}`,
		"other kind":          `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"cm"}}`,
		"other version":       `{"apiVersion":"v9","kind":"ConfigMap","metadata":{"name":"cm"}}`,
		"other name":          `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"other"}}`,
		"other namespace":     `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"cm","namespace":"other"}}`,
		"managedFields":       `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"cm","managedFields":[{"manager":"m"}]}}`,
		"wrong type":          `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"cm"},"data":"x"}`,
		"wrong type deep":     `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"cm"},"data":{"a":1}}`,
		"conflict":            `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"cm"},"data":{"a":"mine"}}`,
		"old resourceVersion": `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"cm","resourceVersion":"1"},"data":{"b":"x"}}`,
	} {
		all = append(all, patch("patch: apply: "+name, applyType, apply(cm), body))
	}
	all = append(all,
		patch("patch: apply: bomb", applyType, apply(cm), bomb(9)).expect(413), // as in syntax: YAML
		patch("patch: apply: no field manager", applyType, cm, configMap),
		patch("patch: apply: two elements of one key", applyType, apply(web), `{"apiVersion":"apps/v1","kind":"Deployment","spec":{"template":{"spec":{"containers":[{"name":"c","image":"a"},{"name":"c","image":"b"}]}}}}`),
		patch("patch: apply: bad force", applyType, apply(cm, "force", "perhaps"), configMap),
		patch("patch: force without apply", mergeType, query(cm, "force", "true"), `{}`),
		patch("patch: apply: creates what is invalid", applyType, apply(pods+"/applied"), `{"apiVersion":"v1","kind":"Pod","spec":{"containers":[{"name":"c"}]}}`),
		patch("patch: apply: CBOR", "application/apply-patch+cbor", apply(cm), "\xd9\xd9\xf7\xa0"),
		patch("patch: no content type", "", cm, `{}`).with("Content-Type", ""),
		patch("patch: unknown content type", "application/json", cm, `{}`),
		patch("patch: content type with a parameter", mergeType+"; charset=utf-8", query(cm, "dryRun", "All"), `{"data":{"z":"z"}}`),
		patch("patch: strategic on a custom resource", strategicType, widgets+"/one", `{"spec":{"size":4}}`),
		patch("patch: not there", mergeType, configMaps+"/nothing", `{}`),
		patch("patch: JSON patch not there", jsonPatchType, configMaps+"/nothing", `[]`),
		patch("patch: collection", mergeType, configMaps, `{}`),
	)
	sortByName(all)
	return all
}

// deleteCases are deletions with invalid options.
func deleteCases() []badCase {
	cm := configMaps + "/cm"
	options := func(more string) string { return `{"apiVersion":"v1","kind":"DeleteOptions",` + more + `}` }
	all := []badCase{
		del("delete: not there", configMaps+"/nothing", ""),
		del("delete: broken options", cm, `{`),
		del("delete: options are an array", cm, `[]`),
		del("delete: options of another kind", cm, pod),
		del("delete: unknown propagation policy", cm, options(`"propagationPolicy":"Sideways"`)),
		del("delete: propagation policy and orphans", cm, options(`"propagationPolicy":"Orphan","orphanDependents":true`)),
		del("delete: unknown propagation policy in the query", query(cm, "propagationPolicy", "Sideways"), ""),
		del("delete: other uid", cm, options(`"preconditions":{"uid":"11111111-1111-1111-1111-111111111111"}`)),
		del("delete: other resourceVersion", cm, options(`"preconditions":{"resourceVersion":"1"}`)),
		del("delete: malformed resourceVersion", cm, options(`"preconditions":{"resourceVersion":"'; --"}`)),
		del("delete: unknown dry run", cm, options(`"dryRun":["Some"]`)),
		del("delete: dry run is a string", cm, options(`"dryRun":"All"`)),
		del("delete: grace period is a string", cm, options(`"gracePeriodSeconds":"soon"`)),
		del("delete: grace period in the query", query(cm, "gracePeriodSeconds", "soon"), ""),
		del("delete: ignore errors without confirmation", configMaps+"/nothing", options(`"ignoreStoreReadErrorWithClusterBreakingPotential":true`)),
		del("delete: garbage as protobuf", cm, "k8s\x00").typed(protobufType),
		del("delete: text", cm, "now").typed("text/plain"),
		del("delete: collection with a bad selector", query(configMaps, "labelSelector", "a in b"), ""),
		del("delete: collection with a bad field", query(configMaps, "fieldSelector", "data.a=1"), ""),
		del("delete: collection of all pods in no namespace", "/api/v1/pods", ""),
		del("delete: protected namespace", "/api/v1/namespaces/default", ""),
		del("delete: protected namespace kube-system", "/api/v1/namespaces/kube-system", ""),
	}
	return all
}

// optionCases are invalid query parameters of writes.
func optionCases() []badCase {
	var all []badCase
	for label, pair := range map[string][2]string{
		"unknown dry run":                {"dryRun", "Some"},
		"empty dry run":                  {"dryRun", ""},
		"field manager is too long":      {"fieldManager", repeat("m", 129)},
		"field manager is not printable": {"fieldManager", "a\tb"},
		"field manager with SQL":         {"fieldManager", "'; DROP TABLE log; --"},
		"unknown field validation":       {"fieldValidation", "Sometimes"},
		"unknown parameter":              {"colour", "red"},
		"pretty":                         {"pretty", "perhaps"},
		"timeout":                        {"timeout", "soon"},
		"negative timeout":               {"timeout", "-5s"},
		"huge timeout":                   {"timeout", "10000h"},
	} {
		path := query(configMaps, pair[0], pair[1])
		if pair[0] != "dryRun" {
			path += "&dryRun=All"
		}
		all = append(all,
			post(fmt.Sprintf("option: create: %s", label), path, named("option")),
			put(fmt.Sprintf("option: update: %s", label), strings.Replace(path, "?", "/cm?", 1), configMap),
		)
	}
	sortByName(all)
	return all
}
