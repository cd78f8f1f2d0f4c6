package badinput

import (
	"fmt"
	"slices"
	"strings"
)

func sortByName(all []badCase) {
	slices.SortFunc(all, func(a, b badCase) int { return strings.Compare(a.name, b.name) })
}

// typeCases are fields with values of the wrong type.
func typeCases() []badCase {
	deploymentWith := func(spec string) string {
		return `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"typed"},"spec":` + spec + `}`
	}
	podWith := func(container string) string {
		return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"typed"},"spec":{"containers":[` + container + `]}}`
	}
	all := []badCase{
		post("type: metadata is a string", configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":"x"}`),
		post("type: metadata is an array", configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":[]}`),
		post("type: kind is a number", configMaps, `{"apiVersion":"v1","kind":1}`),
		post("type: apiVersion is an object", configMaps, `{"apiVersion":{},"kind":"ConfigMap"}`),
		post("type: name is a number", configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":1}}`),
		post("type: labels are an array", configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","labels":["a"]}}`),
		post("type: label is a number", configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","labels":{"a":1}}}`),
		post("type: data value is a number", configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"a":1}}`),
		post("type: data value is an object", configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"a":{"b":1}}}`),
		post("type: binary data is not base64", configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"binaryData":{"a":"***"}}`),
		post("type: secret is not base64", core+"/secrets", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"x"},"data":{"a":"***"}}`),
		post("type: creationTimestamp", configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","creationTimestamp":"yesterday"}}`),
		post("type: generation", configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","generation":"1"}}`),
		post("type: ownerReferences", configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","ownerReferences":{"a":1}}}`),
		post("type: finalizers", configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","finalizers":"a/b"}}`),
		post("type: managedFields", configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"managed","managedFields":[{"manager":"m","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":"x"}]}}`),
		post("type: spec is a string", deployments, deploymentWith(`"x"`)),
		post("type: spec is null", deployments, deploymentWith(`null`)),
		post("type: replicas is a string", deployments, deploymentWith(`{"replicas":"three"}`)),
		post("type: replicas is a fraction", deployments, deploymentWith(`{"replicas":1.5}`)),
		post("type: replicas overflows", deployments, deploymentWith(`{"replicas":2147483648}`)),
		post("type: replicas is a boolean", deployments, deploymentWith(`{"replicas":true}`)),
		post("type: selector is a string", deployments, deploymentWith(`{"selector":"app=web"}`)),
		post("type: maxSurge is an object", deployments, deploymentWith(`{"strategy":{"rollingUpdate":{"maxSurge":{}}}}`)),
		post("type: containers are an object", pods, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x"},"spec":{"containers":{"name":"c"}}}`),
		post("type: container is a string", pods, podWith(`"c"`)),
		post("type: container is null", pods, podWith(`null`)),
		post("type: quantity", pods, podWith(`{"name":"c","image":"i","resources":{"limits":{"cpu":"lots"}}}`)),
		post("type: quantity is an object", pods, podWith(`{"name":"c","image":"i","resources":{"limits":{"cpu":{}}}}`)),
		post("type: quantity overflows", pods, podWith(`{"name":"c","image":"i","resources":{"limits":{"memory":"1e400"}}}`)),
		post("type: port is a string", pods, podWith(`{"name":"c","image":"i","ports":[{"containerPort":"80"}]}`)),
		post("type: duration", "/apis/coordination.k8s.io/v1/namespaces/"+namespace+"/leases", `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"x"},"spec":{"leaseDurationSeconds":"1m"}}`),
		post("type: micro time", "/apis/coordination.k8s.io/v1/namespaces/"+namespace+"/leases", `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"x"},"spec":{"renewTime":"soon"}}`),
		put("type: PUT of another kind", configMaps+"/cm", pod),
		put("type: PUT of null", configMaps+"/cm", `null`),
		put("type: PUT of an array", configMaps+"/cm", `[]`),
		put("type: PUT without a body", configMaps+"/cm", ``),
	}
	return all
}

// fieldValidationCases are unknown and duplicate fields, with each value of fieldValidation.
func fieldValidationCases() []badCase {
	var all []badCase
	for _, mode := range []string{"", "Ignore", "Warn", "Strict", "strict", "Bogus"} {
		label := mode
		path := func(path string) string { return query(path, "fieldValidation", mode, "dryRun", "All") }
		if mode == "" {
			label = "default"
			path = func(path string) string { return query(path, "dryRun", "All") }
		}
		name := func(what string) string { return fmt.Sprintf("fields: %s: %s", label, what) }
		all = append(all,
			post(name("unknown in JSON"), path(configMaps), `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"unknown","colour":"red"},"dta":{"a":"b"}}`),
			post(name("unknown in YAML"), path(configMaps), "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: unknown-yaml}\ndta: {a: b}\n").typed(yamlType),
			post(name("twice in JSON"), path(configMaps), `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"twice"},"data":{"a":"1","a":"2"},"data":{"b":"1"}}`),
			post(name("twice in YAML"), path(configMaps), "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: twice-yaml}\ndata: {a: b, a: c}\n").typed(yamlType),
			post(name("wrong case"), path(configMaps), `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"case"},"Data":{"a":"b"}}`),
			post(name("unknown deep in a pod"), path(pods), strings.Replace(pod, `"image"`, `"imagePullPolcy":"Always","image"`, 1)),
			post(name("unknown many"), path(configMaps), `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"many"},`+manyFields(40)+`}`),
			put(name("PUT unknown"), path(configMaps+"/cm"), `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"cm"},"dta":{"a":"b"}}`),
			patch(name("merge patch unknown"), mergeType, path(configMaps+"/cm"), `{"dta":{"a":"b"}}`),
			patch(name("merge patch twice"), mergeType, path(configMaps+"/cm"), `{"data":{"a":"1","a":"2"}}`),
			patch(name("strategic patch unknown"), strategicType, path(deployments+"/web"), `{"spec":{"replicaz":3}}`),
			patch(name("JSON patch unknown"), jsonPatchType, path(configMaps+"/cm"), `[{"op":"add","path":"/dta","value":{"a":"b"}}]`),
			patch(name("apply unknown"), applyType, path(configMaps+"/cm")+"&fieldManager=m", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"cm"},"dta":{"a":"b"}}`),
			patch(name("apply twice"), applyType, path(configMaps+"/cm")+"&fieldManager=m", "apiVersion: v1\nkind: ConfigMap\ndata: {x: b, x: c}\n"),
			post(name("custom resource unknown"), path(widgets), `{"apiVersion":"bad.example.com/v1","kind":"Widget","metadata":{"name":"unknown","colour":"x"},"spec":{"size":3,"weight":1},"other":1}`),
			post(name("custom resource twice"), path(widgets), `{"apiVersion":"bad.example.com/v1","kind":"Widget","metadata":{"name":"twice"},"spec":{"size":3,"size":4}}`),
			post(name("custom resource in YAML unknown"), path(widgets), "apiVersion: bad.example.com/v1\nkind: Widget\nmetadata: {name: unknown-yaml}\nspec: {size: 3, weight: 1}\n").typed(yamlType),
			patch(name("custom resource merge patch unknown"), mergeType, path(widgets+"/one"), `{"spec":{"weight":1}}`),
			patch(name("custom resource apply unknown"), applyType, path(widgets+"/one")+"&fieldManager=m", `{"apiVersion":"bad.example.com/v1","kind":"Widget","spec":{"weight":1}}`),
		)
	}
	return all
}

func manyFields(n int) string {
	var fields []string
	for i := range n {
		fields = append(fields, fmt.Sprintf(`"field%02d":1`, i))
	}
	return strings.Join(fields, ",")
}
