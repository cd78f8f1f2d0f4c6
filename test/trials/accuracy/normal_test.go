package accuracy

import (
	"cmp"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// The alphabet of generated names.
const letter = "[bcdfghjklmnpqrstvwxz2456789]"

type replacement struct {
	form *regexp.Regexp
	name string
}

// replacements are the forms of what is generated or measured, in strings.
var replacements = []replacement{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "{uid}"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "{time}"},
	{regexp.MustCompile(`\b\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}\b`), "{address}"},
	{regexp.MustCompile(`-----BEGIN CERTIFICATE-----[^"]*-----END CERTIFICATE-----\n?`), "{certificate}"},
	{regexp.MustCompile(`-` + letter + `{5}\b`), "-{random}"},
	{regexp.MustCompile(`(-\d{8})\b`), "-{minute}"},                 // of a CronJob's Job
	{regexp.MustCompile(`^\(combined from similar events\): `), ""}, // it depends on how many there have been
	{regexp.MustCompile(`\bkube-api-access-[a-z0-9]{5}\b`), "kube-api-access-{random}"},
}

// plain returns a string with names in place of what is generated.
func plain(text string) string {
	for _, r := range slices.Concat(replacements, elsewhere) {
		text = r.form.ReplaceAllString(text, r.name)
	}
	return text
}

// elsewhere are the parts of the scheduler's messages that count nodes of other scenarios, whose changes come at other times.
var elsewhere = []replacement{
	{regexp.MustCompile(`\d+ node\(s\) (were unschedulable|didn't match Pod's node affinity/selector|had untolerated taint\(s\))(, )?`), ""},
	{regexp.MustCompile(`0/\d+ nodes`), "0/{n} nodes"},
	{regexp.MustCompile(`\d+ Preemption is not helpful`), "{n} Preemption is not helpful"},
	{regexp.MustCompile(`, \. `), ". "},
}

// generated are the fields that differ in any case.
var generated = map[string]bool{"uid": true, "resourceVersion": true, "creationTimestamp": true, "managedFields": true, "kubeletEndpoint": true}

// unordered are lists whose order has no meaning.
var unordered = map[string]bool{"conditions": true, "endpoints": true, "taints": true}

// normal returns the value of a field without what is generated.
func normal(field string, value any) any {
	switch v := value.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, inner := range v {
			if !generated[key] {
				out[plain(key)] = normal(key, inner)
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = normal("", v[i])
		}
		if unordered[field] {
			slices.SortFunc(out, func(x, y any) int { return cmp.Compare(sorting(x), sorting(y)) })
		}
		return out
	case string:
		return plain(v)
	}
	return value
}

// sorting returns what elements of a list without order are sorted by.
func sorting(element any) string {
	fields, _ := element.(map[string]any)
	kind, _ := fields["type"].(string)
	return kind + text(element)
}

// differing returns the paths of the fields that differ, where those of lists are those of their elements.
func differing(x, y any) []string {
	paths := map[string]bool{}
	walk("", x, y, paths)
	return slices.Sorted(maps.Keys(paths))
}

func walk(path string, x, y any, paths map[string]bool) {
	if a, ok := x.(map[string]any); ok {
		if b, ok := y.(map[string]any); ok {
			keys := maps.Clone(a)
			maps.Copy(keys, b)
			for key := range keys {
				walk(strings.TrimPrefix(path+"."+key, "."), a[key], b[key], paths)
			}
			return
		}
	}
	if a, ok := x.([]any); ok {
		if b, ok := y.([]any); ok && len(a) == len(b) {
			for i := range a {
				walk(path, a[i], b[i], paths)
			}
			return
		}
	}
	if text(x) != text(y) {
		paths[path] = true
	}
}

// at returns what is at a path, for people: the values of all elements of lists on the way.
func at(value any, path string) string {
	if path == "" {
		return text(value)
	}
	switch v := value.(type) {
	case map[string]any:
		// Keys of labels and annotations have dots too.
		for key := range v {
			if rest, ok := strings.CutPrefix(path, key); ok && (rest == "" || rest[0] == '.') {
				return at(v[key], strings.TrimPrefix(rest, "."))
			}
		}
		return ""
	case []any:
		var all []string
		for _, element := range v {
			all = append(all, at(element, path))
		}
		return strings.Join(all, " | ")
	}
	return ""
}

func text(value any) string {
	if value == nil {
		return ""
	}
	out, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(out)
}
