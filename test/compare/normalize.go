package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// String is the response in the form that is compared: with names in place of generated values.
func (a answer) String() string {
	var out strings.Builder
	fmt.Fprintf(&out, "HTTP %d\n", a.code)
	for _, h := range a.headers {
		fmt.Fprintln(&out, h)
	}
	for _, document := range a.documents {
		text, err := json.MarshalIndent(a.normal("", document), "", "  ")
		if err != nil {
			fmt.Fprintln(&out, err)
		}
		fmt.Fprintf(&out, "%s\n", text)
	}
	out.WriteString(a.text)
	return out.String()
}

// generated are the fields that a server generates.
var generated = map[string]string{
	"uid":                 "{uid}",
	"resourceVersion":     "{resourceVersion}",
	"continue":            "{continue}",
	"token":               "{token}",
	"ca.crt":              "{ca}",
	"nodePort":            "{port}",
	"healthCheckNodePort": "{port}",
	"clusterIP":           "{address}",
	"serverAddress":       "{address}",
}

// ownGroup is the group that kube-apiserver does not have, and ownKinds precedes the names of its kinds: they are left out of discovery and
// OpenAPI documents. test/surface compares these.
const (
	ownGroup = "history.sqube.io"
	ownKinds = "io.sqube.history."
)

// isOwnGroup reports whether an element of a list of groups is ownGroup.
func isOwnGroup(element any) bool {
	group, _ := element.(map[string]any)
	metadata, _ := group["metadata"].(map[string]any)
	return group["name"] == ownGroup || metadata["name"] == ownGroup
}

// normal returns a value with names in place of generated values. key is the field that it is in.
func (a answer) normal(key string, value any) any {
	switch v := value.(type) {
	case map[string]any:
		if metadata, ok := v["metadata"].(map[string]any); ok && metadata["name"] == bundle {
			return "{" + bundle + "}"
		}
		out := maps.Clone(v)
		for k := range out {
			if strings.Contains(k, ownGroup) || strings.HasPrefix(k, ownKinds) { // paths and kinds in OpenAPI documents
				delete(out, k)
				continue
			}
			out[k] = a.normal(k, v[k])
		}
		if v["title"] == "Kubernetes" { // the head of OpenAPI documents, with the server's build information
			out["version"] = "{release}"
		}
		if prefix, ok := v["generateName"].(string); ok && prefix != "" {
			if name, ok := v["name"].(string); ok && strings.HasPrefix(name, prefix) && name != prefix {
				out["name"] = prefix + "{random}"
			}
		}
		return out
	case []any:
		out := slices.DeleteFunc(slices.Clone(v), isOwnGroup)
		for i := range out {
			out[i] = a.normal(strings.TrimSuffix(key, "s"), out[i])
		}
		if key == "managedFields" { // ordered by time, in seconds
			slices.SortFunc(out, func(x, y any) int { return strings.Compare(fmt.Sprint(x), fmt.Sprint(y)) })
		}
		return out
	case string:
		if name := generated[key]; name != "" && v != "" && v != "0" && v != "None" {
			return name
		}
		return a.plain(v)
	case float64, int64:
		if name := generated[key]; name != "" && fmt.Sprint(v) != "0" {
			return name
		}
	}
	return value
}

// replacements are the forms of generated values in strings.
var replacements = []struct {
	form *regexp.Regexp
	name string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "{uid}"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "{time}"},
	{regexp.MustCompile(`\beyJ[\w-]+\.[\w-]+\.[\w-]+`), "{token}"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "{server}"},
	{regexp.MustCompile(`\b10\.0\.\d+\.\d+(/\d+)?\b`), "{address}"},
	{regexp.MustCompile(`(?i)(resource ?version: |current: |\(current: |resourceVersion: |ResourceVersion in record \(|resourceVersion\\*":\\*")\d+`), "$1{resourceVersion}"},
	{regexp.MustCompile(`^((\d+[smh]){1,2}|<invalid>)$`), "{age}"},
	{regexp.MustCompile(`\bkube-api-access-[a-z0-9]{5}\b`), "kube-api-access-{random}"},
}

// plain returns a string with names in place of generated values.
func (a answer) plain(text string) string {
	for _, r := range replacements {
		text = r.form.ReplaceAllString(text, r.name)
	}
	// What a script has captured was generated. The longest first, since one may contain another.
	names := slices.SortedFunc(maps.Keys(a.vars), func(x, y string) int { return len(a.vars[y]) - len(a.vars[x]) })
	for _, name := range names {
		if value := a.vars[name]; len(value) > 3 { // shorter ones may occur in other words by chance
			text = strings.ReplaceAll(text, value, "{{"+name+"}}")
		}
	}
	return text
}
