package badinput

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// cases returns all cases in the order in which they are sent. Their side effects are the same on every server.
func cases() []badCase {
	return slices.Concat(
		syntaxCases(),
		sizeCases(),
		typeCases(),
		fieldValidationCases(),
		nameCases(),
		validationCases(),
		updateCases(),
		patchCases(),
		deleteCases(),
		listCases(),
		selectorCases(),
		watchCases(),
		pathCases(),
		optionCases(),
		customCases(),
		subresourceCases(),
		identityCases(),
		numberCases(),
	)
}

// The media types of bodies.
const (
	yamlType      = "application/yaml"
	protobufType  = "application/vnd.kubernetes.protobuf"
	cborType      = "application/cbor"
	mergeType     = "application/merge-patch+json"
	strategicType = "application/strategic-merge-patch+json"
	jsonPatchType = "application/json-patch+json"
	applyType     = "application/apply-patch+yaml"
)

func post(name, path, body string) badCase {
	return badCase{name: name, method: http.MethodPost, path: path, body: body}
}

func put(name, path, body string) badCase {
	return badCase{name: name, method: http.MethodPut, path: path, body: body}
}

func get(name, path string) badCase {
	return badCase{name: name, method: http.MethodGet, path: path}
}

func del(name, path, body string) badCase {
	return badCase{name: name, method: http.MethodDelete, path: path, body: body}
}

func patch(name, contentType, path, body string) badCase {
	return badCase{name: name, method: http.MethodPatch, path: path, body: body, contentType: contentType}
}

// typed returns the case with another content type.
func (c badCase) typed(contentType string) badCase {
	c.contentType = contentType
	return c
}

// waiting marks the case as one that takes seconds.
func waiting(c badCase) badCase {
	c.waits = true
	return c
}

// expect marks the case as one in which kube-apiserver itself fails, or decodes more than sqube does, and sets the code to expect instead.
func (c badCase) expect(code int) badCase {
	c.instead = code
	return c
}

// by returns the case as sent by another user.
func (c badCase) by(who identity) badCase {
	c.as = who
	return c
}

// with returns the case with an additional header.
func (c badCase) with(name, value string) badCase {
	header := map[string]string{name: value}
	for name, value := range c.header {
		header[name] = value
	}
	c.header = header
	return c
}

// query appends a query with encoded values to a path.
func query(path string, namesAndValues ...string) string {
	values := url.Values{}
	for i := 0; i < len(namesAndValues); i += 2 {
		values.Add(namesAndValues[i], namesAndValues[i+1])
	}
	return path + "?" + values.Encode()
}

// named returns the JSON of a ConfigMap with a name, which must be valid inside a JSON string.
func named(name string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q}}`, name)
}

// metaCharacters have a meaning in SQL or in LIKE patterns on at least one engine.
var metaCharacters = map[string]string{
	"quote":           `'`,
	"drop":            `'; DROP TABLE log; --`,
	"or":              `x' OR '1'='1`,
	"union":           `x' UNION SELECT name, value FROM log --`,
	"double quote":    `"`,
	"backslash":       `\`,
	"backslash quote": `\'`,
	"percent":         `%`,
	"underscore":      `_`,
	"star":            `*`,
	"comment":         `/*x*/`,
	"dollar":          `$1`,
	"dollar quoting":  `$$x$$`,
	"question":        `?1`,
	"colon":           `:name`,
	"escape string":   `E'\x00'`,
	"semicolon":       `a;b`,
	"newline":         "a\nb",
	"glob":            `[a-z]`,
	"unicode":         "naïve-☃",
	"invalid utf8":    "a\xff\xfeb",
	"nul":             "a\x00b",
}

// metaNames returns the names of the metaCharacters in a fixed order.
func metaNames() []string { return slices.Sorted(maps.Keys(metaCharacters)) }

// repeat is strings.Repeat, with a name short enough for tables.
func repeat(s string, n int) string { return strings.Repeat(s, n) }
