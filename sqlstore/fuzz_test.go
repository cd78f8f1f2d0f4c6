package sqlstore

import (
	"maps"
	"path/filepath"
	"testing"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/dialect/sqlite"
	"github.com/sqube/sqube/test/harness"
)

// FuzzSets checks that DecodeSet reverses EncodeSet.
func FuzzSets(f *testing.F) {
	f.Add("app", "web", "tier", "front")
	f.Add("a", `","b":"c`, `"`, "\x00")
	f.Add("", "", "é", "\u2028😀")
	f.Fuzz(func(t *testing.T, key1, value1, key2, value2 string) {
		set := map[string]string{key1: value1, key2: value2}
		for key, value := range set {
			if !utf8.ValidString(key) || !utf8.ValidString(value) {
				return // not a JSON string
			}
		}
		if got := DecodeSet(EncodeSet(set)); !maps.Equal(got, set) {
			t.Errorf("%q comes back as %q", set, got)
		}
	})
}

// FuzzLabelTerms compares the database's decision on a label selector with that of labels.Selector.
func FuzzLabelTerms(f *testing.F) {
	engine := fuzzEngine(f)
	for _, selector := range []string{"app=web", "app!=web", "app in (web,)", "app notin (web)", "app", "!app", "n>4,n<6", "tier=front,app", ""} {
		f.Add("app", "web", "n", "5", selector)
		f.Add("tier", "", "app.kubernetes.io/name", `"app":"web"`, selector)
	}
	f.Add("a", `\`, "b", "a\":\"é", "a,b!=c")
	f.Fuzz(func(t *testing.T, key1, value1, key2, value2, text string) {
		set := labels.Set{key1: value1, key2: value2}
		for key, value := range set {
			if len(content.IsLabelKey(key)) > 0 || !utf8.ValidString(value) {
				return // not a valid label
			}
		}
		for _, selector := range []labels.Selector{parsedLabels(text), labels.SelectorFromValidatedSet(labels.Set{key1: text})} {
			if selector == nil || !utf8.ValidString(selector.String()) {
				continue
			}
			exact, patterns := true, 0
			requirements, _ := selector.Requirements()
			for _, r := range requirements {
				exact = exact && r.Operator() != selection.GreaterThan && r.Operator() != selection.LessThan
				patterns += len(r.ValuesUnsorted())
			}
			passed := passes(t, engine, LabelTerms(selector), EncodeSet(set), "{}")
			if want := selector.Matches(set); want && !passed || exact && patterns <= maxPatterns && want != passed {
				t.Errorf("%q and %q: the database returns %v, the selector %v", selector, set, passed, want)
			}
		}
	})
}

func parsedLabels(text string) labels.Selector {
	selector, err := labels.Parse(text)
	if err != nil {
		return nil
	}
	return selector
}

// FuzzFieldTerms compares the database's decision on a field selector with that of fields.Selector.
func FuzzFieldTerms(f *testing.F) {
	engine := fuzzEngine(f)
	for _, selector := range []string{"metadata.name=a", "metadata.name!=a", "metadata.name=a,spec.nodeName=", "spec.nodeName==n", `metadata.name=a\,b`} {
		f.Add("a", "n", selector)
		f.Add("", `","metadata.name":"a`, selector)
		f.Add("a,b", `\é`+"\x00", selector)
	}
	f.Fuzz(func(t *testing.T, name, node, text string) {
		if !utf8.ValidString(name) || !utf8.ValidString(node) || !utf8.ValidString(text) {
			return // not a JSON string
		}
		set := fields.Set{"metadata.name": name, "spec.nodeName": node}
		selectors := []fields.Selector{fields.OneTermEqualSelector("metadata.name", text), fields.OneTermNotEqualSelector("spec.nodeName", text)}
		if selector, err := fields.ParseSelector(text); err == nil {
			selectors = append(selectors, selector)
		}
		for _, selector := range selectors {
			// If the row lacks a field, the object decides; see FieldTerms.
			known := true
			for _, r := range selector.Requirements() {
				known = known && set.Has(r.Field)
			}
			passed := passes(t, engine, FieldTerms(selector), "{}", EncodeSet(set))
			want := selector.Matches(set)
			if known && len(selector.Requirements()) <= maxPatterns && passed != want {
				t.Errorf("%q and %q: the database returns %v, the selector %v", selector, set, passed, want)
			}
		}
	})
}

func fuzzEngine(f *testing.F) dialect.Engine {
	engine, err := sqlite.Open(f.Context(), filepath.Join(f.TempDir(), "sqube.db"))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		if err := engine.Close(); err != nil {
			f.Error(err)
		}
	})
	return engine
}

// passes reports whether a row with these encoded sets passes the terms.
func passes(t *testing.T, engine dialect.Engine, terms []Term, labels, fields string) (passed bool) {
	t.Helper()
	b := &statement{engine: engine}
	b.add("SELECT count(*) FROM (SELECT " + b.arg(labels) + " AS labels, " + b.arg(fields) + " AS fields) AS log WHERE true")
	for _, term := range boundTerms(terms) {
		b.add(" AND " + term.condition(b))
	}
	err := engine.Query(t.Context(), b.text.String(), b.args, func(row dialect.Row) error { return row.Scan(&passed) })
	harness.Must(t, err)
	return passed
}
