package badinput

import (
	"fmt"
	"strings"
)

// syntaxCases are bodies that do not match their content type.
func syntaxCases() []badCase {
	var all []badCase
	for name, body := range map[string]string{
		"empty":               "",
		"space":               " ",
		"truncated":           `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"`,
		"trailing comma":      `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a",}}`,
		"trailing garbage":    named("trailing-garbage") + `garbage`,
		"two documents":       named("two-documents") + named("two-documents-b"),
		"single quotes":       `{'apiVersion':'v1'}`,
		"null":                `null`,
		"string":              `"ConfigMap"`,
		"number":              `17`,
		"array":               `[` + named("in-array") + `]`,
		"empty object":        `{}`,
		"no kind":             `{"apiVersion":"v1","metadata":{"name":"no-kind"}}`,
		"no apiVersion":       `{"kind":"ConfigMap","metadata":{"name":"no-version"}}`,
		"other kind":          `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"other-kind"}}`,
		"unknown kind":        `{"apiVersion":"v1","kind":"Nonsense","metadata":{"name":"x"}}`,
		"unknown group":       `{"apiVersion":"nonsense.example.com/v1","kind":"ConfigMap","metadata":{"name":"x"}}`,
		"malformed version":   `{"apiVersion":"a/b/c","kind":"ConfigMap","metadata":{"name":"x"}}`,
		"list kind":           `{"apiVersion":"v1","kind":"ConfigMapList","items":[]}`,
		"invalid escape":      `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"\q"}}`,
		"lone surrogate":      `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"lone-surrogate"},"data":{"a":"\ud800"}}`,
		"invalid utf8":        "{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"invalid-utf8\"},\"data\":{\"a\":\"\xff\xfe\"}}",
		"nul in data":         `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"nul-in-data"},"data":{"a":"x\u0000y"}}`,
		"byte order mark":     "\ufeff" + named("byte-order-mark"),
		"nul bytes":           "\x00\x00\x00\x00",
		"html":                `<html><body>hello</body></html>`,
		"infinity":            `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","generation":1e999}}`,
		"huge integer":        `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","generation":99999999999999999999}}`,
		"fraction":            `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","generation":1.5}}`,
		"upper-case fields":   `{"APIVERSION":"v1","KIND":"ConfigMap","METADATA":{"NAME":"x"}}`,
		"deep object":         `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":` + repeat(`{"a":`, 20_000) + `1` + repeat(`}`, 20_000) + `}`,
		"deep array":          repeat(`[`, 200_000),
		"deep unknown object": `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"deep-unknown"},"other":` + repeat(`{"a":`, 20_000) + `1` + repeat(`}`, 20_000) + `}`,
	} {
		all = append(all, post("syntax: JSON: "+name, configMaps, body))
	}
	for name, body := range map[string]string{
		"broken":           "a: [b",
		"tabs":             "apiVersion: v1\n\tkind: ConfigMap",
		"not an object":    "just text",
		"undefined alias":  "apiVersion: *nothing",
		"alias of itself":  "a: &a [*a]",
		"merge key":        "apiVersion: v1\nkind: ConfigMap\nmetadata: &m\n  name: merge-key\ndata:\n  <<: {a: b}\n",
		"two documents":    "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: yaml-one}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: yaml-two}\n",
		"number as string": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: yaml-number}\ndata: {a: 1}\n",
		"boolean key":      "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: yaml-key}\ndata: {true: x}\n",
		"binary tag":       "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: yaml-tag}\ndata: {a: !!python/object:os.system x}\n",
		"bomb":             bomb(9),
		"bomb in data":     "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: yaml-bomb}\ndata:\n" + indent(bomb(9)),
		"wide bomb":        "a: &a " + repeat("x", 100_000) + "\nb: [" + strings.TrimSuffix(repeat("*a,", 300), ",") + "]\n",
		"deep":             repeat("- ", 20_000) + "x",
		"deep braces":      repeat("{a: ", 20_000),
	} {
		c := post("syntax: YAML: "+name, configMaps, body).typed(yamlType)
		if strings.Contains(name, "bomb") || name == "alias of itself" {
			c = c.expect(413) // refused before it is decoded; kube-apiserver decodes it, and answers 400
		}
		all = append(all, c)
	}
	for name, body := range map[string]string{
		"empty":        "",
		"garbage":      "garbage",
		"prefix only":  "k8s\x00",
		"truncated":    "k8s\x00\x0a\x0f\x0a\x02v1\x12\x09Config",
		"long length":  "k8s\x00\x0a\xff\xff\xff\xff\x07",
		"other prefix": "abc\x00\x0a\x02",
	} {
		all = append(all, post("syntax: protobuf: "+name, configMaps, body).typed(protobufType))
	}
	all = append(all,
		post("syntax: protobuf for custom resource", widgets, "k8s\x00").typed(protobufType).expect(415), // kube-apiserver panics
		post("syntax: CBOR", configMaps, "\xd9\xd9\xf7\xa0").typed(cborType),
		post("syntax: JSON as YAML", configMaps, named("json-as-yaml")).typed(yamlType),
		post("syntax: YAML as JSON", configMaps, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: yaml-as-json}\n"),
		post("syntax: text/plain", configMaps, named("text-plain")).typed("text/plain"),
		post("syntax: form", configMaps, "a=b").typed("application/x-www-form-urlencoded"),
		post("syntax: malformed content type", configMaps, named("x")).typed(";;;"),
		post("syntax: charset", configMaps, named("charset-"+"utf16")).typed("application/json; charset=utf-16"),
		get("syntax: Accept: nothing served", configMaps+"/cm").with("Accept", "image/png"),
		get("syntax: Accept: malformed", configMaps+"/cm").with("Accept", ";q=;"),
		get("syntax: Accept: Table of unknown version", configMaps).with("Accept", "application/json;as=Table;g=meta.k8s.io;v=v9"),
		get("syntax: Accept: unknown transformation", configMaps).with("Accept", "application/json;as=Nonsense;g=meta.k8s.io;v=v1"),
		get("syntax: Accept: protobuf of custom resource", widgets).with("Accept", protobufType),
	)
	sortByName(all)
	return all
}

// bomb returns a YAML document of a few hundred bytes that would expand to 10^depth strings.
func bomb(depth int) string {
	text := `a0: &a0 ["x","x","x","x","x","x","x","x","x","x"]` + "\n"
	for i := 1; i < depth; i++ {
		text += fmt.Sprintf("a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(repeat(fmt.Sprintf("*a%d,", i-1), 10), ","))
	}
	return text
}

func indent(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n  ") + "\n"
}

// sizeCases are bodies that are too large, in total or in one part.
func sizeCases() []badCase {
	const limit = 3 << 20
	big := func(name string, size int) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"a":"%s"}}`, name, repeat("x", size))
	}
	annotated := func(size int) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"annotated","annotations":{"a":"%s"}}}`, repeat("x", size))
	}
	return []badCase{
		post("size: body over the limit", configMaps, big("over", limit)),
		post("size: body far over the limit", configMaps, big("far-over", 4*limit)),
		post("size: YAML over the limit", configMaps, "a: "+repeat("x", limit)).typed(yamlType),
		post("size: protobuf over the limit", configMaps, "k8s\x00"+repeat("x", limit)).typed(protobufType),
		post("size: data over 1 MiB", configMaps, big("data-over", 1<<20+1)),
		post("size: annotations over 256 KiB", configMaps, annotated(256<<10+1)),
		put("size: PUT over the limit", configMaps+"/cm", big("cm", limit)),
		patch("size: merge patch over the limit", mergeType, configMaps+"/cm", `{"data":{"a":"`+repeat("x", limit)+`"}}`),
		patch("size: apply over the limit", applyType, query(configMaps+"/cm", "fieldManager", "m"), "a: "+repeat("x", limit)),
		patch("size: patch that makes data over 1 MiB", mergeType, configMaps+"/cm", `{"data":{"big":"`+repeat("x", 1<<20+1)+`"}}`),
		del("size: delete options over the limit", configMaps+"/cm", `{"a":"`+repeat("x", limit)+`"}`),
		patch("size: JSON patch of too many operations", jsonPatchType, configMaps+"/cm", `[`+strings.TrimSuffix(repeat(`{"op":"add","path":"/data/a","value":"1"},`, 10_001), ",")+`]`),
		patch("size: JSON patch that copies itself large", jsonPatchType, configMaps+"/cm", doubling(40)),
		post("size: custom resource over the limit", widgets, `{"apiVersion":"bad.example.com/v1","kind":"Widget","metadata":{"name":"big"},"spec":{"name":"`+repeat("x", limit)+`"}}`),
	}
}

// doubling returns a JSON patch that copies data into itself: every operation doubles it.
func doubling(times int) string {
	operations := []string{}
	for i := range times {
		operations = append(operations, fmt.Sprintf(`{"op":"copy","from":"/data","path":"/data/copy%d"}`, i))
	}
	return "[" + strings.Join(operations, ",") + "]"
}
