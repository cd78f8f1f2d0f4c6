package badinput

import (
	"encoding/base64"
	"net/http"
)

// listCases are lists with invalid parameters and continue tokens.
func listCases() []badCase {
	var all []badCase
	for name, pairs := range map[string][]string{
		"limit is a word":                     {"limit", "many"},
		"limit is negative":                   {"limit", "-1"},
		"limit overflows":                     {"limit", "99999999999999999999"},
		"limit is a fraction":                 {"limit", "1.5"},
		"resourceVersion is a word":           {"resourceVersion", "latest"},
		"resourceVersion is negative":         {"resourceVersion", "-1"},
		"resourceVersion overflows":           {"resourceVersion", "99999999999999999999"},
		"resourceVersion with SQL":            {"resourceVersion", "1 OR 1=1"},
		"match without resourceVersion":       {"resourceVersionMatch", "Exact"},
		"unknown match":                       {"resourceVersion", "5", "resourceVersionMatch", "About"},
		"exact zero":                          {"resourceVersion", "0", "resourceVersionMatch", "Exact"},
		"match of a continuation":             {"continue", "x", "resourceVersionMatch", "Exact"},
		"exact of a word":                     {"resourceVersion", "x", "resourceVersionMatch", "Exact"},
		"initial events of a list":            {"sendInitialEvents", "true"},
		"timeout is a word":                   {"timeoutSeconds", "soon"},
		"continue with resourceVersion":       {"continue", "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJhIn0", "resourceVersion", "5"},
		"continue is not base64":              {"limit", "1", "continue", "***"},
		"continue is not JSON":                {"limit", "1", "continue", token(`hello`)},
		"continue is an array":                {"limit", "1", "continue", token(`[]`)},
		"continue is empty JSON":              {"limit", "1", "continue", token(`{}`)},
		"continue of another version":         {"limit", "1", "continue", token(`{"v":"meta.k8s.io/v9","rv":1,"start":"a"}`)},
		"continue without a start":            {"limit", "1", "continue", token(`{"v":"meta.k8s.io/v1","rv":1}`)},
		"continue without a revision":         {"limit", "1", "continue", token(`{"v":"meta.k8s.io/v1","start":"a/b"}`)},
		"continue whose revision is a string": {"limit", "1", "continue", token(`{"v":"meta.k8s.io/v1","rv":"1","start":"a/b"}`)},
		"continue out of the resource":        {"limit", "1", "continue", token(`{"v":"meta.k8s.io/v1","rv":1,"start":"../secrets/a"}`)},
		"continue from a slash":               {"limit", "1", "continue", token(`{"v":"meta.k8s.io/v1","rv":1,"start":"/a"}`)},
		"continue from dots":                  {"limit", "1", "continue", token(`{"v":"meta.k8s.io/v1","rv":1,"start":".."}`)},
		"continue very long":                  {"limit", "1", "continue", repeat("A", 5_000)},
	} {
		all = append(all,
			get("list: "+name, query(configMaps, pairs...)),
			get("list: custom resources: "+name, query(widgets, pairs...)),
		)
	}
	all = append(all,
		get("list: get with a resourceVersion that is a word", query(configMaps+"/cm", "resourceVersion", "x")),
		waiting(get("list: get with a resourceVersion to come", query(configMaps+"/cm", "resourceVersion", "9000000000000"))),
		waiting(get("list: not older than one to come", query(configMaps, "resourceVersion", "9000000000000"))),
		waiting(get("list: exactly one to come", query(configMaps, "resourceVersion", "9000000000000", "resourceVersionMatch", "Exact"))),
		waiting(get("list: continue from one to come", query(configMaps, "limit", "1", "continue", token(`{"v":"meta.k8s.io/v1","rv":9000000000000,"start":"cm"}`)))),
		get("list: unknown parameter", query(configMaps+"/cm", "colour", "red")),
	)
	sortByName(all)
	return all
}

// token encodes the content of a continue token.
func token(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

// selectorCases are selectors that can't be parsed, name unsupported fields, or contain SQL. The latter are valid and match
// nothing.
func selectorCases() []badCase {
	var all []badCase
	for name, selector := range map[string]string{
		"comma": ",", "operator only": "=", "no value in a set": "a in ()", "open set": "a in (b", "set without parentheses": "a in b",
		"unknown operator": "a ~ b", "two operators": "a==b==c", "greater than a word": "a>b", "bad key": "-a=b", "bad value": "a=b c",
		"key too long": repeat("a", 64) + "=b", "value too long": "a=" + repeat("b", 64), "negated value": "!a=b", "bang only": "!",
		"prefix too long": repeat("a", 254) + "/b=c", "very long": repeat("a=b,", 20_000) + "a=b", "nested": "a in (b,(c))",
	} {
		all = append(all, get("selector: label: "+name, query(configMaps, "labelSelector", selector)))
	}
	for name, selector := range map[string]string{
		"unknown field": "data.a=1", "status of a config map": "status.phase=Running", "no operator": "metadata.name", "set": "metadata.name in (a)",
		"comma": ",", "operator only": "=", "bad escape": `metadata.name=a\`, "twice": "metadata.name=a,metadata.name=b", "not equal": "metadata.name!=cm,metadata.name!=fixed,metadata.name=nothing",
		"other namespace": "metadata.namespace=other", "upper case": "METADATA.NAME=cm",
	} {
		all = append(all, get("selector: field: "+name, query(configMaps, "fieldSelector", selector)))
	}
	for _, name := range metaNames() {
		text := metaCharacters[name]
		all = append(all,
			get("selector: label value SQL "+name, query(pods, "labelSelector", "app="+text)),
			get("selector: label key SQL "+name, query(pods, "labelSelector", text)),
			get("selector: label set SQL "+name, query(pods, "labelSelector", "app in (x,"+text+")")),
			get("selector: field name SQL "+name, query(pods, "fieldSelector", "metadata.name="+text)),
			get("selector: field value SQL "+name, query(pods, "fieldSelector", "spec.nodeName="+text)),
			get("selector: field SQL "+name, query(pods, "fieldSelector", text+"=x")),
			get("selector: continue SQL "+name, query(configMaps, "limit", "1", "continue", token(`{"v":"meta.k8s.io/v1","rv":1,"start":"`+text+`"}`))),
		)
	}
	all = append(all,
		get("selector: pod fields that are not there", query(pods, "fieldSelector", "spec.containers=x")),
		get("selector: custom resource field", query(widgets, "fieldSelector", "spec.size=3")),
		get("selector: of all namespaces", query("/api/v1/configmaps", "fieldSelector", "metadata.namespace=bad-input,metadata.name='")),
		get("selector: event fields", query(core+"/events", "fieldSelector", "involvedObject.colour=red")),
	)
	sortByName(all)
	return all
}

// watchCases are watches that fail to start.
func watchCases() []badCase {
	var all []badCase
	for name, pairs := range map[string][]string{
		"resourceVersion is a word":      {"resourceVersion", "x"},
		"resourceVersion is negative":    {"resourceVersion", "-1"},
		"watch is a word":                {"watch", "perhaps", "limit", "1", "labelSelector", "none=none"},
		"initial events without match":   {"sendInitialEvents", "true"},
		"initial events is a word":       {"sendInitialEvents", "perhaps"},
		"initial events of exact":        {"sendInitialEvents", "true", "resourceVersionMatch", "Exact", "resourceVersion", "1"},
		"match without initial events":   {"resourceVersionMatch", "NotOlderThan", "resourceVersion", "1"},
		"bad label selector":             {"labelSelector", "a in b"},
		"bad field selector":             {"fieldSelector", "data.a=1"},
		"continue":                       {"continue", "x"},
		"bookmarks is a word":            {"allowWatchBookmarks", "perhaps", "labelSelector", "none=none"},
		"initial events of no bookmarks": {"sendInitialEvents", "true", "resourceVersionMatch", "NotOlderThan", "labelSelector", "none=none"},
	} {
		pairs = append([]string{"timeoutSeconds", "1"}, pairs...)
		if pairs[2] != "watch" {
			pairs = append(pairs, "watch", "true")
		}
		all = append(all, waiting(get("watch: "+name, query(configMaps, pairs...))))
	}
	all = append(all,
		get("watch: old path with a bad resourceVersion", query("/api/v1/watch/namespaces/"+namespace+"/configmaps", "resourceVersion", "x")),
		get("watch: one object with another name", query(configMaps+"/cm", "watch", "true", "fieldSelector", "metadata.name=other", "timeoutSeconds", "1")),
		get("watch: Accept nothing served", query(configMaps, "watch", "true", "timeoutSeconds", "1")).with("Accept", "image/png"),
		post("watch: by POST", query(configMaps, "watch", "true"), ``),
	)
	sortByName(all)
	return all
}

// pathCases are paths and verbs that are not served.
func pathCases() []badCase {
	do := func(method, path string) badCase {
		return badCase{name: "path: " + method + " " + path, method: method, path: path}
	}
	return []badCase{
		do("GET", "/api/v1/nonsense"),
		do("GET", "/api/v1/namespaces/"+namespace+"/nonsense"),
		do("GET", "/api/v1/namespaces/"+namespace+"/nonsense/x"),
		do("GET", "/api/v9/pods"),
		do("GET", "/api/v1/namespaces/"+namespace+"/pods/pod/nonsense"),
		do("GET", "/api/v1/namespaces/"+namespace+"/pods/pod/status/deeper"),
		do("GET", "/api/v1/namespaces/"+namespace+"/nodes"),
		do("GET", "/api/v1/pods/pod"),
		do("GET", "/apis/nonsense.example.com"),
		do("GET", "/apis/nonsense.example.com/v1/things"),
		do("GET", "/apis/apps/v9/deployments"),
		do("GET", "/apis/apps/v1/nonsense"),
		do("GET", "/apis/bad.example.com/v9/widgets"),
		do("GET", "/apis/bad.example.com/v1/gizmos"),
		do("GET", "/apis/bad.example.com/v1/namespaces/"+namespace+"/widgets/one/nonsense"),
		do("GET", "/nonsense"),
		do("GET", "/api/v2"),
		do("GET", "/apis//v1"),
		do("GET", "/api/v1/namespaces//pods"),
		do("GET", "/api/v1/namespaces/"+namespace+"//pods"),
		do("GET", "//api/v1/pods"),
		do("GET", "/api/v1/../v1/pods"),
		do("GET", "/api/v1/namespaces/"+namespace+"/configmaps/cm/"),
		do("GET", "/openapi/v3/nonsense"),
		do("GET", "/healthz/nonsense"),
		do("GET", "/readyz/nonsense"),
		do("POST", configMaps+"/cm"),
		do("PUT", configMaps),
		do("DELETE", "/version"),
		do("POST", "/version"),
		do("POST", "/healthz"),
		do("POST", "/api"),
		do("POST", "/apis/apps/v1"),
		do("PUT", "/api/v1/namespaces"),
		do("POST", "/api/v1/pods"),
		do("POST", "/api/v1/componentstatuses"),
		do("DELETE", "/api/v1/componentstatuses/x"),
		do("FOO", configMaps),
		do("HEAD", configMaps+"/cm"),
		do("OPTIONS", configMaps),
		do("TRACE", configMaps),
		do("GET", core+"/bindings"),
		do("GET", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
		do("DELETE", "/apis/authentication.k8s.io/v1/tokenreviews/x"),
		do("GET", "/api/v1/namespaces/"+namespace+"/pods/pod/log?tailLines=x"),
		do("GET", "/api/v1/proxy/namespaces/x"),
		do(http.MethodGet, "/api/v1/namespaces/"+namespace+"/pods/"+repeat("a", 8_000)),
	}
}
