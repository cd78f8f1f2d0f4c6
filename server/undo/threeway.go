package undo

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/sqube/sqube/sqlstore/fieldpath"
)

// absent is the value of a field that is not there, in contrast to null.
type absent struct{}

// identifying are the fields that identify an element of a list, in the order in which they are tried.
var identifying = [][]string{
	{"name"}, {"type"}, {"mountPath"}, {"containerPort"}, {"port"}, {"ip"}, {"uid"}, {"devicePath"},
	{"containerPort", "protocol"}, {"port", "protocol"}, {"key"}, {"topologyKey", "whenUnsatisfiable"},
}

// merge takes back a change from before to after, in an object that has since become now.
type merge struct {
	// force takes back fields that have changed since.
	force bool
	// conflicts are the paths of the fields that have changed since.
	conflicts []string
}

// value returns what a field becomes.
func (m *merge) value(path string, before, after, now any) any {
	switch {
	case reflect.DeepEqual(before, after), reflect.DeepEqual(now, before):
		return now // not changed, or already back
	case reflect.DeepEqual(now, after):
		return before
	}
	b, isMap := before.(map[string]any)
	a, isMapToo := after.(map[string]any)
	n, isMapStill := now.(map[string]any)
	if isMapStill && (isMap || before == absent{}) && (isMapToo || after == absent{}) {
		merged := m.fields(path, b, a, n)
		if len(merged) == 0 && before == (absent{}) {
			return absent{}
		}
		return merged
	}
	if merged, ok := m.list(path, before, after, now); ok {
		return merged
	}
	m.conflicts = append(m.conflicts, path)
	if m.force {
		return before
	}
	return now
}

func (m *merge) fields(path string, before, after, now map[string]any) map[string]any {
	merged := maps.Clone(now)
	keys := maps.Clone(before)
	if keys == nil {
		keys = map[string]any{}
	}
	maps.Copy(keys, after)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		set(merged, key, m.value(path+fieldpath.Field(key), field(before, key), field(after, key), field(now, key)))
	}
	return merged
}

// list merges lists whose elements have names or the like, as if they were maps. Elements stay in the order of now; those that come
// back are behind them.
func (m *merge) list(path string, before, after, now any) (any, bool) {
	by, ok := identity(before, after, now)
	if !ok {
		return nil, false
	}
	b, a, n := keyed(by, before), keyed(by, after), keyed(by, now)
	var merged []any
	for _, key := range slices.Concat(n.keys, without(b.keys, n.keys)) {
		value := m.value(path+"["+key+"]", b.element(key), a.element(key), n.element(key))
		if value != (absent{}) {
			merged = append(merged, value)
		}
	}
	if b.keys != nil && slices.Equal(slices.Sorted(slices.Values(b.keys)), slices.Sorted(slices.Values(keyed(by, merged).keys))) {
		back := keyed(by, merged)
		for i, key := range b.keys { // all elements of before and no others: also their order
			merged[i] = back.element(key)
		}
	}
	if len(merged) == 0 && before == (absent{}) {
		return absent{}, true
	}
	return merged, true
}

// identity returns the fields that identify the elements of all lists.
func identity(lists ...any) ([]string, bool) {
	for _, by := range identifying {
		if !slices.ContainsFunc(lists, func(list any) bool { return !identifies(by, list) }) {
			return by, true
		}
	}
	return nil, false
}

func identifies(by []string, list any) bool {
	if list == (absent{}) {
		return true
	}
	elements, ok := list.([]any)
	if !ok {
		return false
	}
	seen := map[string]bool{}
	for _, element := range elements {
		fields, ok := element.(map[string]any)
		if !ok || fields[by[0]] == nil {
			return false
		}
		key := elementKey(by, fields)
		if seen[key] {
			return false
		}
		seen[key] = true
	}
	return true
}

func elementKey(by []string, element map[string]any) string {
	parts := make([]string, 0, len(by))
	for _, name := range by {
		if value, ok := element[name]; ok {
			parts = append(parts, fmt.Sprintf("%s=%v", name, value))
		}
	}
	return strings.Join(parts, ",")
}

// elements are a list by key.
type elements struct {
	keys  []string
	byKey map[string]any
}

func keyed(by []string, list any) elements {
	e := elements{byKey: map[string]any{}}
	all, _ := list.([]any)
	for _, element := range all {
		key := elementKey(by, element.(map[string]any))
		e.keys = append(e.keys, key)
		e.byKey[key] = element
	}
	return e
}

func (e elements) element(key string) any {
	if value, ok := e.byKey[key]; ok {
		return value
	}
	return absent{}
}

func without(all, those []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(those, s) })
}

func field(fields map[string]any, key string) any {
	if value, ok := fields[key]; ok {
		return value
	}
	return absent{}
}

func set(fields map[string]any, key string, value any) {
	if value == (absent{}) {
		delete(fields, key)
	} else {
		fields[key] = value
	}
}

// mergePatch returns a JSON merge patch (RFC 7396) that makes from into to.
func mergePatch(from, to map[string]any) map[string]any {
	patch := map[string]any{}
	for key, value := range to {
		was, had := from[key]
		if had && reflect.DeepEqual(was, value) {
			continue
		}
		inner, isMap := value.(map[string]any)
		if before, wasMap := was.(map[string]any); isMap && wasMap {
			patch[key] = mergePatch(before, inner)
		} else {
			patch[key] = value
		}
	}
	for key := range from {
		if _, has := to[key]; !has {
			patch[key] = nil
		}
	}
	return patch
}
