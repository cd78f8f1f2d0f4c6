package badinput

import (
	"fmt"
	"net/url"
)

// inEveryVerb are the names used with every verb; the others are only read.
var inEveryVerb = map[string]bool{
	"upper case": true, "path": true, "space": true, "SQL drop": true, "SQL percent": true, "SQL underscore": true,
	"SQL backslash quote": true, "SQL nul": true, "SQL invalid utf8": true,
}

// nameCases are invalid names, namespaces, labels and keys, in bodies and in paths.
func nameCases() []badCase {
	var all []badCase
	bad := map[string]string{
		"upper case": "Upper", "leading dash": "-x", "trailing dot": "x.", "dot": ".", "dots": "..", "slash": "a/b",
		"space": "a b", "empty": "", "too long": repeat("a", 254), "far too long": repeat("a", 100_000), "tab": "a\tb",
		"path": "../../etc/passwd", "prefix of all": "/", "null byte escape": `a%00b`,
	}
	for label, text := range metaCharacters {
		bad["SQL "+label] = text
	}
	for label, text := range bad {
		escaped := url.PathEscape(text)
		body := named(text)
		if label == "SQL invalid utf8" || label == "SQL nul" {
			body = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + text + `"}}`
		}
		all = append(all, post("name: create "+label, configMaps, body))
		if label == "far too long" || label == "empty" || label == "dot" || label == "dots" {
			continue // not a path that names an object
		}
		all = append(all,
			get("name: get "+label, configMaps+"/"+escaped),
			get("name: list in namespace "+label, "/api/v1/namespaces/"+escaped+"/configmaps"),
			get("name: get custom resource "+label, widgets+"/"+escaped),
		)
		if label == "prefix of all" {
			continue // the path of the collection
		}
		all = append(all,
			del("name: delete "+label, configMaps+"/"+escaped, ""),
		)
		if !inEveryVerb[label] {
			continue
		}
		all = append(all,
			put("name: put "+label, configMaps+"/"+escaped, body),
			patch("name: patch "+label, mergeType, configMaps+"/"+escaped, `{"data":{"a":"b"}}`),
			patch("name: apply "+label, applyType, query(configMaps+"/"+escaped, "fieldManager", "m"), `{"apiVersion":"v1","kind":"ConfigMap"}`),
			post("name: create in namespace "+label, "/api/v1/namespaces/"+escaped+"/configmaps", named("x")),
		)
	}
	for _, label := range metaNames() {
		text := metaCharacters[label]
		if label == "invalid utf8" || label == "nul" {
			continue // JSON can represent them only as above
		}
		all = append(all,
			post("name: label value SQL "+label, configMaps, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","labels":{"a":%q}}}`, text)),
			post("name: label key SQL "+label, configMaps, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","labels":{%q:"a"}}}`, text)),
			post("name: annotation key SQL "+label, configMaps, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","annotations":{%q:"a"}}}`, text)),
			post("name: annotation value SQL "+label, query(configMaps, "dryRun", "All"), fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","annotations":{"a":%q}}}`, text)),
			post("name: data value SQL "+label, configMaps, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"data-","name":"data-%d"},"data":{"a":%q}}`, len(all), text)),
			post("name: data key SQL "+label, configMaps, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{%q:"a"}}`, text)),
			post("name: finalizer SQL "+label, configMaps, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","finalizers":[%q]}}`, text)),
			post("name: generateName SQL "+label, query(configMaps, "dryRun", "All"), fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","generateName":%q}}`, text)),
			post("name: namespace SQL "+label, "/api/v1/namespaces", fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, text)),
		)
	}
	all = append(all,
		post("name: neither name nor generateName", configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{}}`),
		post("name: exists", configMaps, configMap),
		post("name: other namespace in the body", configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","namespace":"other"}}`),
		post("name: namespace does not exist", "/api/v1/namespaces/nowhere/configmaps", named("x")),
		put("name: PUT with another name", configMaps+"/cm", named("other")),
		put("name: PUT with another namespace", configMaps+"/cm", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"cm","namespace":"other"}}`),
		put("name: PUT without a name", configMaps+"/cm", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{}}`),
		post("name: namespace too long", "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"`+repeat("a", 64)+`"}}`),
		post("name: label value too long", configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","labels":{"a":"`+repeat("a", 64)+`"}}}`),
		post("name: label key without name", configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","labels":{"a.b/":"c"}}}`),
		post("name: service", services, `{"apiVersion":"v1","kind":"Service","metadata":{"name":"1svc"},"spec":{"ports":[{"port":80}]}}`),
		post("name: role with a colon is fine, with a slash not", "/apis/rbac.authorization.k8s.io/v1/clusterroles", `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"a:b/c"}}`),
	)
	sortByName(all)
	return all
}
