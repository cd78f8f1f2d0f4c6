// Package fieldpath names the fields in which two stored objects differ: .spec.template.spec.containers[name=web].image.
package fieldpath

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/json" // keeps all digits of integers
)

// Difference is a field in which two stored objects differ.
type Difference struct {
	// Path is such as .spec.template.spec.containers[name=web].image.
	Path     string
	Old, New any // decoded JSON; nil if there is no such field
}

// Changed returns the paths of the [Differences].
func Changed(before, after []byte) ([]string, error) {
	differences, err := Differences(before, after)
	var paths []string
	for _, d := range differences {
		paths = append(paths, d.Path)
	}
	return paths, err
}

// Differences returns the fields in which two stored objects differ, sorted by path. A field that only one of them has is one
// difference. Objects in a list are told apart by a field that differs in each, such as their names, if they have one. It ignores
// managedFields, which every write changes. Nil stands for an object without fields.
func Differences(before, after []byte) ([]Difference, error) {
	old, err := decode(before)
	if err != nil {
		return nil, err
	}
	now, err := decode(after)
	if err != nil {
		return nil, err
	}
	return DifferencesOf(old, now), nil
}

// DifferencesOf is Differences of decoded objects, with all of their fields.
func DifferencesOf(before, after map[string]any) []Difference {
	var found differences
	found.of("", before, after)
	slices.SortFunc(found, func(a, b Difference) int { return strings.Compare(a.Path, b.Path) })
	return found
}

func decode(text []byte) (map[string]any, error) {
	var object map[string]any
	if len(text) == 0 {
		return nil, nil
	}
	if err := json.Unmarshal(text, &object); err != nil {
		return nil, fmt.Errorf("a stored object is not JSON: %w", err)
	}
	if metadata, ok := object["metadata"].(map[string]any); ok {
		delete(metadata, "managedFields")
	}
	return object, nil
}

type differences []Difference

// of adds the differences of two values of a field.
func (d *differences) of(path string, before, after any) {
	if reflect.DeepEqual(before, after) {
		return
	}
	switch b := before.(type) {
	case map[string]any:
		if a, ok := after.(map[string]any); ok {
			d.ofMaps(b, a, func(key string) string { return path + Field(key) })
			return
		}
	case []any:
		if a, ok := after.([]any); ok && d.ofLists(path, b, a) {
			return
		}
	}
	*d = append(*d, Difference{path, before, after})
}

func (d *differences) ofMaps(before, after map[string]any, path func(key string) string) {
	for key, old := range before {
		if now, both := after[key]; both {
			d.of(path(key), old, now)
		} else {
			*d = append(*d, Difference{path(key), old, nil})
		}
	}
	for key, now := range after {
		if _, both := before[key]; !both {
			*d = append(*d, Difference{path(key), nil, now})
		}
	}
}

// ofLists returns false if the lists differ as a whole: their items can't be told apart, or only their order differs.
func (d *differences) ofLists(path string, before, after []any) bool {
	count := len(*d)
	for _, key := range itemKeys {
		b, isKey := byKey(before, key)
		if !isKey {
			continue
		}
		if a, isKey := byKey(after, key); isKey {
			d.ofMaps(b, a, func(value string) string { return fmt.Sprintf("%s[%s=%s]", path, key, value) })
			return len(*d) > count
		}
	}
	if len(before) != len(after) {
		return false
	}
	for i := range before {
		d.of(fmt.Sprintf("%s[%d]", path, i), before[i], after[i])
	}
	return true
}

// itemKeys are the fields by which most lists of objects are maps: containers, volumes and variables have names, conditions have types,
// mounts have paths, and ports have numbers.
var itemKeys = []string{"name", "type", "mountPath", "containerPort", "port", "ip"}

// byKey returns the items of a list by one of their fields, or false if that field does not tell them apart.
func byKey(list []any, key string) (map[string]any, bool) {
	items := make(map[string]any, len(list))
	for _, item := range list {
		object, _ := item.(map[string]any)
		value, has := object[key]
		switch value.(type) {
		case string, int64:
		default:
			return nil, false
		}
		text := fmt.Sprint(value)
		if !keyText.MatchString(text) {
			text = fmt.Sprintf("%q", text)
		}
		if _, twice := items[text]; twice || !has {
			return nil, false
		}
		items[text] = item
	}
	return items, true
}

// Items returns the items of a list by all steps of a path that may stand for them: [0], and [name=web].
func Items(list []any) map[string]any {
	items := map[string]any{}
	for i, item := range list {
		items[fmt.Sprintf("[%d]", i)] = item
	}
	for _, key := range itemKeys {
		named, _ := byKey(list, key)
		for value, item := range named {
			items[fmt.Sprintf("[%s=%s]", key, value)] = item
		}
	}
	return items
}

var steps = regexp.MustCompile(`\.[A-Za-z_][A-Za-z0-9_]*|\[(?:"(?:[^"\\]|\\.)*"|[^\]"]+(?:"(?:[^"\\]|\\.)*")?)\]`)

// Steps splits a path.
func Steps(path string) []string { return steps.FindAllString(path, -1) }

var keyText = regexp.MustCompile(`^[A-Za-z0-9_./:-]+$`)

var plain = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// Field returns a step of a path: .name, or ["a.b/c"] for a name with other characters.
func Field(key string) string {
	if plain.MatchString(key) {
		return "." + key
	}
	return fmt.Sprintf("[%q]", key)
}
