package undo

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"

	"github.com/sqube/sqube/test/harness"
)

// TestMerge takes back a change of an object that has changed since. Conflicts leave what is, and force overwrites it.
func TestMerge(t *testing.T) {
	for name, test := range map[string]struct {
		before, after, now, want, forced string
		conflicts                        []string
	}{
		"a field":                         {`{"a":1}`, `{"a":2}`, `{"a":2,"b":3}`, `{"a":1,"b":3}`, "", nil},
		"a field that is back":            {`{"a":1}`, `{"a":2}`, `{"a":1}`, `{"a":1}`, "", nil},
		"a field that has changed":        {`{"a":1}`, `{"a":2}`, `{"a":3}`, `{"a":3}`, `{"a":1}`, []string{".a"}},
		"an added field":                  {`{}`, `{"m":{"a":1}}`, `{"m":{"a":1}}`, `{}`, "", nil},
		"an added field among others":     {`{}`, `{"m":{"a":1}}`, `{"m":{"a":1,"b":2}}`, `{"m":{"b":2}}`, "", nil},
		"a removed field":                 {`{"m":{"a":1}}`, `{"m":{}}`, `{"m":{"b":2}}`, `{"m":{"a":1,"b":2}}`, "", nil},
		"a removed field that is new":     {`{"m":{"a":1}}`, `{"m":{}}`, `{"m":{"a":2}}`, `{"m":{"a":2}}`, `{"m":{"a":1}}`, []string{".m.a"}},
		"an element":                      {`{"l":[{"name":"x","v":1}]}`, `{"l":[{"name":"x","v":2}]}`, `{"l":[{"name":"y"},{"name":"x","v":2}]}`, `{"l":[{"name":"y"},{"name":"x","v":1}]}`, "", nil},
		"an added element":                {`{"l":[{"name":"x"}]}`, `{"l":[{"name":"x"},{"name":"y"}]}`, `{"l":[{"name":"x","v":1},{"name":"y"}]}`, `{"l":[{"name":"x","v":1}]}`, "", nil},
		"a removed element, in its place": {`{"l":[{"name":"x"},{"name":"y"}]}`, `{"l":[{"name":"y"}]}`, `{"l":[{"name":"y","v":1}]}`, `{"l":[{"name":"x"},{"name":"y","v":1}]}`, "", nil},
		"a list without names":            {`{"l":[1]}`, `{"l":[1,2]}`, `{"l":[1,2,3]}`, `{"l":[1,2,3]}`, `{"l":[1]}`, []string{".l"}},
	} {
		t.Run(name, func(t *testing.T) {
			parse := func(text string) (o map[string]any) {
				harness.Must(t, json.Unmarshal([]byte(text), &o))
				return o
			}
			if test.forced == "" {
				test.forced = test.want
			}
			for force, want := range map[bool]string{false: test.want, true: test.forced} {
				m := merge{force: force}
				got := m.fields("", parse(test.before), parse(test.after), parse(test.now))
				if !reflect.DeepEqual(got, parse(want)) || fmt.Sprint(m.conflicts) != fmt.Sprint(test.conflicts) {
					t.Errorf("with force %t, it becomes %v with conflicts in %v", force, got, m.conflicts)
				}
				var patched map[string]any
				patch, err := json.Marshal(mergePatch(parse(test.now), got))
				if err == nil {
					patched = apply(parse(test.now), parse(string(patch)))
				}
				if !reflect.DeepEqual(patched, got) {
					t.Errorf("the patch %s makes %v", patch, patched)
				}
			}
		})
	}
}

// apply applies a JSON merge patch.
func apply(to, patch map[string]any) map[string]any {
	for key, value := range patch {
		inner, isMap := value.(map[string]any)
		was, wasMap := to[key].(map[string]any)
		switch {
		case value == nil:
			delete(to, key)
		case isMap && wasMap:
			to[key] = apply(was, inner)
		default:
			to[key] = value
		}
	}
	return to
}
