package sqlstore

import (
	"slices"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// Term narrows a Query, or what a Subscription receives, by one label or field.
//
// Terms are a sieve that decodes nothing, and that the database can apply.
// Every row that a selector matches passes its terms; not every row that
// passes is matched, so the caller still decides with Record.Sets.
type Term struct {
	attr
	// values are those that the attribute may have, as JSON; nil for any.
	values []string
	none   bool // the attribute may have none of these values, or is missing
}

// attr is a label or a field.
type attr struct {
	column column
	key    string // escaped
}

type column string

const (
	labelColumn column = "labels"
	fieldColumn column = "fields"
)

// unknownValue stands for the value of an attribute where the row does not tell it,
// so that the object has to be asked.
const unknownValue = ""

// of returns the value of the attribute, as JSON, or false where a version
// does not have it. The value is unknownValue where the row withholds its sets, or
// lacks the field: it was written before that field could be selected by.
func (a attr) of(r *Record) (value string, has bool) {
	if a.column == fieldColumn {
		return find(r.Fields, a.key), true
	}
	value = find(r.Labels, a.key)
	return value, value != "" || r.Withheld()
}

// required returns the values of which the attribute must have one for a row
// to pass, or false where it may have any or none.
func (t Term) required() (values []string, ok bool) {
	return t.values, !t.none && t.values != nil
}

// passes says whether r passes the term, as condition has the database decide.
func (t Term) passes(r *Record) bool {
	value, has := t.of(r)
	switch {
	case !has:
		return t.none
	case value == unknownValue:
		return true
	}
	return (t.values == nil || slices.Contains(t.values, value)) != t.none
}

// passesAll says whether r passes all terms.
func passesAll(terms []Term, r *Record) bool {
	for _, t := range terms {
		if !t.passes(r) {
			return false
		}
	}
	return true
}

// patterns returns the texts of which an encoded set has one where the
// attribute has one of the values.
func (t Term) patterns() []string {
	key := t.name()
	if t.values == nil {
		return []string{key}
	}
	patterns := make([]string, len(t.values))
	for i, value := range t.values {
		patterns[i] = key + value
	}
	return patterns
}

// name is the text that an encoded set has where it has the attribute.
func (a attr) name() string { return `"` + a.key + `":` }

// condition returns the term as SQL.
func (t Term) condition(b *statement) string {
	text := ""
	contains := func(pattern string) string { return b.engine.Contains(string(t.column), b.arg(pattern)) }
	for _, pattern := range t.patterns() {
		if text != "" {
			text += " OR "
		}
		text += contains(pattern)
	}
	switch {
	case t.none:
		return "NOT (" + text + ")"
	case t.column == fieldColumn:
		text += " OR NOT " + contains(t.name())
	default:
		text += " OR NOT " + contains(someSet)
	}
	return "(" + text + ")"
}

// someSet is a text that every encoded set has, and Withheld has not.
const someSet = "{"

// maxPatterns keeps a long selector from becoming a statement that no database
// would take, or from taking long where others wait.
const maxPatterns = 100

// boundTerms returns as many of terms as have no more than maxPatterns values. What
// is beyond them is not asked for: the sieve gets coarser.
func boundTerms(terms []Term) []Term {
	patterns := 0
	for i, term := range terms {
		if patterns += max(len(term.values), 1); patterns > maxPatterns {
			return terms[:i]
		}
	}
	return terms
}

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
		t := Term{attr: attr{labelColumn, escape(r.Key())}}
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			t.values = quoteAll(r.ValuesUnsorted()...)
		case selection.NotEquals, selection.NotIn:
			t.values, t.none = quoteAll(r.ValuesUnsorted()...), true
		case selection.Exists:
		case selection.DoesNotExist:
			t.none = true
		default: // comparisons of numbers
			continue
		}
		if t.values == nil || len(t.values) > 0 {
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
		t := Term{attr: attr{fieldColumn, escape(r.Field)}, values: quoteAll(r.Value)}
		switch r.Operator {
		case selection.Equals, selection.DoubleEquals:
		case selection.NotEquals:
			t.none = true
		default:
			continue
		}
		terms = append(terms, t)
	}
	return terms
}

// quoteAll returns the values as JSON, each once.
func quoteAll(values ...string) []string {
	quoted := make([]string, 0, len(values))
	for _, value := range values {
		quoted = append(quoted, quote(value))
	}
	slices.Sort(quoted)
	return slices.Compact(quoted)
}
