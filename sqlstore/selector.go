package sqlstore

import (
	"encoding/json"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// Term narrows a Query by a text that the encoded labels or fields of a row
// must, or must not, contain.
//
// Terms are a first sieve which the database applies without decoding
// anything. Every row that a selector matches passes its terms; not every row
// that passes is matched, so the caller still decides with Record.Sets.
type Term struct {
	column string
	anyOf  []string
	none   bool   // the row must contain none of anyOf
	absent string // a row without this text passes too
}

// passes says whether r passes the term, as condition has the database decide.
func (t Term) passes(r *Record) bool {
	text := r.Labels
	if t.column == "fields" {
		text = r.Fields
	}
	if t.absent != "" && !strings.Contains(text, t.absent) {
		return !t.none
	}
	for _, pattern := range t.anyOf {
		if strings.Contains(text, pattern) {
			return !t.none
		}
	}
	return t.none
}

// condition returns the term as SQL.
func (t Term) condition(b *statement) string {
	parts := make([]string, 0, len(t.anyOf)+1)
	for _, pattern := range t.anyOf {
		parts = append(parts, b.engine.Contains(t.column, b.arg(pattern)))
	}
	if t.absent != "" {
		parts = append(parts, "NOT "+b.engine.Contains(t.column, b.arg(t.absent)))
	}
	text := "(" + strings.Join(parts, " OR ") + ")"
	if t.none {
		return "NOT " + text
	}
	return text
}

// someSet is a text that every encoded set has, and Withheld has not.
const someSet = "{"

// maxPatterns keeps a long selector from becoming a statement that no database
// would take. What is beyond it is not asked for: the sieve gets coarser.
const maxPatterns = 100

// LabelTerms returns terms that hold for every object that selector matches.
// A row whose labels are withheld passes: its object has to be asked.
func LabelTerms(selector labels.Selector) []Term {
	if selector == nil {
		return nil
	}
	requirements, selectable := selector.Requirements()
	if !selectable {
		return nil
	}
	var terms []Term
	for _, r := range requirements {
		t := Term{column: "labels"}
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			t.anyOf, t.absent = pairs(r.Key(), r.ValuesUnsorted()), someSet
		case selection.NotEquals, selection.NotIn:
			t.anyOf, t.none = pairs(r.Key(), r.ValuesUnsorted()), true
		case selection.Exists:
			t.anyOf, t.absent = []string{quote(r.Key()) + ":"}, someSet
		case selection.DoesNotExist:
			t.anyOf, t.none = []string{quote(r.Key()) + ":"}, true
		default: // comparisons of numbers
			continue
		}
		if len(t.anyOf) > 0 {
			terms = append(terms, t)
		}
	}
	return terms
}

// FieldTerms returns terms that hold for every object that selector matches.
// A row that lacks the field passes: it was written before the field could be
// selected by, so its object has to be asked.
func FieldTerms(selector fields.Selector) []Term {
	if selector == nil {
		return nil
	}
	var terms []Term
	for _, r := range selector.Requirements() {
		t := Term{column: "fields", anyOf: pairs(r.Field, []string{r.Value})}
		switch r.Operator {
		case selection.Equals, selection.DoubleEquals:
			t.absent = quote(r.Field) + ":"
		case selection.NotEquals:
			t.none = true
		default:
			continue
		}
		terms = append(terms, t)
	}
	return terms
}

// pairs returns key with each value as EncodeSet writes them. Quotation marks
// inside a JSON string are escaped, and there are none in the names of labels
// and fields, so the text of a pair stands in an encoded set only where the set
// has that pair.
func pairs(key string, values []string) []string {
	texts := make([]string, len(values))
	for i, value := range values {
		texts[i] = quote(key) + ":" + quote(value)
	}
	return texts
}

func quote(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		// A string always has a JSON form.
		panic(err)
	}
	return string(text)
}
