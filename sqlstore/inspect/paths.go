package inspect

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/util/json" // keeps all digits of integers
)

// Changed returns the sorted paths of the fields in which two stored objects differ, such as ".spec.replicas" and
// ".spec.containers[0].image". A field that only one of them has is one path. It ignores managedFields, which every write
// changes. Nil stands for an object without fields.
func Changed(before, after []byte) ([]string, error) {
	old, err := decode(before)
	if err != nil {
		return nil, err
	}
	now, err := decode(after)
	if err != nil {
		return nil, err
	}
	var paths []string
	differ("", old, now, &paths)
	slices.Sort(paths)
	return paths, nil
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

func differ(path string, before, after any, paths *[]string) {
	if reflect.DeepEqual(before, after) {
		return
	}
	switch b := before.(type) {
	case map[string]any:
		if a, ok := after.(map[string]any); ok {
			for key := range b {
				differ(path+Field(key), b[key], a[key], paths)
			}
			for key := range a {
				if _, both := b[key]; !both {
					*paths = append(*paths, path+Field(key))
				}
			}
			return
		}
	case []any:
		if a, ok := after.([]any); ok && len(a) == len(b) {
			for i := range b {
				differ(fmt.Sprintf("%s[%d]", path, i), b[i], a[i], paths)
			}
			return
		}
	}
	*paths = append(*paths, path)
}

var plain = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// Field returns a step of a path: .name, or ["a.b/c"] for a name with other characters.
func Field(key string) string {
	if plain.MatchString(key) {
		return "." + key
	}
	return fmt.Sprintf("[%q]", key)
}
