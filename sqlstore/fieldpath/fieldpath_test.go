package fieldpath

import (
	"slices"
	"testing"
)

func TestChanged(t *testing.T) {
	for _, test := range []struct {
		before, after string
		want          []string
	}{
		{`{"a":1}`, `{"a":1}`, nil},
		{`{"a":1,"b":{"c":1}}`, `{"a":2,"b":{"c":2,"d":{"e":1}}}`, []string{".a", ".b.c", ".b.d"}},
		{`{"a":1,"b":{"c":1}}`, `{"b":{}}`, []string{".a", ".b.c"}},
		{`{"a":[{"b":1},{"b":2}]}`, `{"a":[{"b":1},{"b":3}]}`, []string{".a[1].b"}},
		{`{"a":[{"name":"x","b":1},{"name":"y"}]}`, `{"a":[{"name":"z w"},{"name":"x","b":2}]}`, []string{`.a[name="z w"]`, ".a[name=x].b", ".a[name=y]"}},
		{`{"a":[{"port":80,"b":1}]}`, `{"a":[{"port":80,"b":2},{"port":443}]}`, []string{".a[port=443]", ".a[port=80].b"}},
		{`{"a":[{"name":"x"},{"name":"y"}]}`, `{"a":[{"name":"y"},{"name":"x"}]}`, []string{".a"}},
		{`{"a":[1,2]}`, `{"a":[1]}`, []string{".a"}},
		{`{"a":null}`, `{"a":{}}`, []string{".a"}},
		{`{"metadata":{"managedFields":[1],"labels":{"x/y.z":"1"}}}`, `{"metadata":{"managedFields":[2],"labels":{}}}`, []string{`.metadata.labels["x/y.z"]`}},
		{``, `{"a":1}`, []string{".a"}},
		{`{"a":9007199254740992}`, `{"a":9007199254740993}`, []string{".a"}},
	} {
		got, err := Changed([]byte(test.before), []byte(test.after))
		if err != nil || !slices.Equal(got, test.want) {
			t.Errorf("from %s to %s: %q, %v instead of %q", test.before, test.after, got, err, test.want)
		}
	}
	if _, err := Changed([]byte("{"), nil); err == nil {
		t.Error("invalid JSON is compared")
	}
}
