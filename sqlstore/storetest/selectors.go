package storetest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/test/harness"
)

// Keys are valid; values need not be, since rows may come from anywhere and selectors from any client.
var (
	someKeys   = []string{"a", "b", "app.kubernetes.io/name", "metadata.name", ".spec.x", "a.b", "c_d", "e-f"}
	someValues = []string{
		"", "a", "b", "aa", "A", `"`, `\`, `\"`, `"a":"b"`, `a","b":"`, `,`, `:`, `{}`, `'`, `''`, `' OR 1=1 --`, `%`, `_`, `a%`, `$1`, `?`, `;`,
		"é", "e\u0301", "日本語", "😀", "<b>&", "\u2028", "\u00a0", "\t", "\n", "\x00", "\x7f", "\xff", "\ufffd", "null", "true", "1", "01",
		strings.Repeat("x", 300),
	}
)

// testSelectors reads with the terms of random selectors. A term may pass objects that the selector does not match, but must
// never drop one that it does.
func testSelectors(t *testing.T, s *sqlstore.Store) {
	random := rand.New(rand.NewPCG(9, 10))
	randomSet := func() map[string]string {
		set := map[string]string{}
		for _, key := range someKeys {
			if random.IntN(2) == 0 {
				set[key] = someValues[random.IntN(len(someValues))]
			}
		}
		return set
	}
	type sets struct{ labels, fields map[string]string }
	stored := map[string]sets{}
	for i := range 150 {
		w := put(fmt.Sprintf("%03d", i), `{}`, nil)
		stored[w.Key] = sets{randomSet(), randomSet()}
		w.Labels, w.Fields = sqlstore.EncodeSet(stored[w.Key].labels), sqlstore.EncodeSet(stored[w.Key].fields)
		must(t, s, w)
	}

	withheld := put("withheld", `{}`, nil)
	withheld.Labels, withheld.Fields = sqlstore.Withheld, sqlstore.Withheld
	must(t, s, withheld)

	kept := 0
	for range 200 {
		byLabel, byField := randomLabelSelector(t, random), randomFieldSelector(random)
		passed := map[string]bool{}
		q := sqlstore.Query{Resource: things, Terms: append(sqlstore.LabelTerms(byLabel), sqlstore.FieldTerms(byField)...)}
		all, _, err := records(t.Context(), s, q)
		if err != nil {
			t.Fatalf("labels %q, fields %q: %v", byLabel, byField, err)
		}
		for _, r := range all {
			passed[r.Key] = true
		}
		for key, sets := range stored {
			if byLabel.Matches(labels.Set(sets.labels)) && byField.Matches(fields.Set(sets.fields)) && !passed[key] {
				t.Errorf("labels %q, fields %q drop %v", byLabel, byField, sets)
			}
		}
		if !passed[withheld.Key] {
			t.Errorf("labels %q, fields %q drop an object with withheld labels and fields", byLabel, byField)
		}
		kept += len(stored) + 1 - len(passed)
	}
	if kept == 0 {
		t.Error("no term ever dropped anything")
	}

	// A selector may be longer than any database accepts as a condition.
	var long []string
	for i := range 3000 {
		long = append(long, fmt.Sprintf("!k%d", i), fmt.Sprintf("k%d notin (a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q,r,s,t,u,v,w,x,y,z)", i))
	}
	selector, err := labels.Parse(strings.Join(long, ","))
	harness.Must(t, err)
	if n, err := s.Count(t.Context(), sqlstore.Query{Resource: things, Terms: sqlstore.LabelTerms(selector)}); err != nil || n != int64(len(stored)+1) {
		t.Errorf("a selector of %d requirements finds %d objects, %v", len(long), n, err)
	}
}

func randomLabelSelector(t *testing.T, random *rand.Rand) labels.Selector {
	selector := labels.NewSelector()
	if random.IntN(3) == 0 {
		return labels.SelectorFromValidatedSet(labels.Set{someKeys[random.IntN(len(someKeys))]: someValues[random.IntN(len(someValues))]})
	}
	for range random.IntN(3) {
		operator := []selection.Operator{selection.Exists, selection.DoesNotExist, selection.In, selection.NotIn, selection.Equals, selection.NotEquals}[random.IntN(6)]
		var values []string
		switch operator {
		case selection.In, selection.NotIn:
			values = []string{"a", "b", "", "aa"}[:1+random.IntN(4)]
		case selection.Equals, selection.NotEquals:
			values = []string{[]string{"a", "", "b", "1"}[random.IntN(4)]}
		}
		key := []string{"a", "b", "app.kubernetes.io/name", "c_d"}[random.IntN(4)]
		r, err := labels.NewRequirement(key, operator, values)
		harness.Must(t, err)
		selector = selector.Add(*r)
	}
	return selector
}

func randomFieldSelector(random *rand.Rand) fields.Selector {
	var all []fields.Selector
	for range random.IntN(3) {
		key, value := someKeys[random.IntN(len(someKeys))], someValues[random.IntN(len(someValues))]
		if random.IntN(2) == 0 {
			all = append(all, fields.OneTermEqualSelector(key, value))
		} else {
			all = append(all, fields.OneTermNotEqualSelector(key, value))
		}
	}
	return fields.AndSelectors(all...)
}
