package sqlstore

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// Term narrows a Query, or what a Subscription receives, by one label or field.
//
// The database can apply terms, without anything being decoded. Every row that a selector matches passes its terms, but not every
// row that passes also matches, so the caller still decides with Record.Sets.
type Term struct {
	attr
	// values are the values that the attribute may have, as JSON; nil for any.
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

// unknownValue stands for an attribute's value that is not in the row, so that the object must be decoded.
const unknownValue = ""

// of returns the value of the attribute as JSON, or false if the version does not have it. The value is unknownValue if the row
// withholds its sets, or was written before the field was selectable.
func (a attr) of(r *Record) (value string, has bool) {
	if a.column == fieldColumn {
		return find(r.Fields, a.key), true
	}
	value = find(r.Labels, a.key)
	return value, value != "" || r.Withheld()
}

// required returns the values one of which the attribute must have for a row to pass, or false if there is no such requirement.
func (t Term) required() (values []string, ok bool) {
	return t.values, !t.none && t.values != nil
}

// passes reports whether r passes the term. It decides like condition in the database.
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

func passesAll(terms []Term, r *Record) bool {
	for _, t := range terms {
		if !t.passes(r) {
			return false
		}
	}
	return true
}

// name returns a string that an encoded set contains if it has the attribute.
func (a attr) name() string { return `"` + a.key + `":` }

func (t Term) condition(b *statement) string {
	contains := func(pattern string) string { return b.engine.Contains(string(t.column), b.arg(pattern)) }
	var either []string
	for _, value := range t.values {
		either = append(either, contains(t.name()+value))
	}
	if t.values == nil {
		either = append(either, contains(t.name()))
	}
	text := strings.Join(either, " OR ")
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

// someSet is a string that every encoded set contains, but Withheld does not.
const someSet = "{"

// maxPatterns keeps long selectors from becoming statements that databases reject, or that run long while others wait.
const maxPatterns = 100

// boundTerms returns the first terms that together have at most maxPatterns values. Without the others more rows pass, and the
// caller decides.
func boundTerms(terms []Term) []Term {
	patterns := 0
	for i, term := range terms {
		if patterns += max(len(term.values), 1); patterns > maxPatterns {
			return terms[:i]
		}
	}
	return terms
}

// LabelTerms returns terms that every object matched by selector passes. Rows with withheld labels pass too: their objects must
// be decoded.
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
		t := Term{attr: attr{labelColumn, Escape(r.Key())}}
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

// FieldTerms returns terms that every object matched by selector passes. Rows that lack the field pass too: they were written
// before it was selectable, so their objects must be decoded.
func FieldTerms(selector fields.Selector) []Term {
	if selector == nil {
		return nil
	}
	var terms []Term
	for _, r := range selector.Requirements() {
		t := Term{attr: attr{fieldColumn, Escape(r.Field)}, values: quoteAll(r.Value)}
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

// quoteAll returns the values as JSON, without duplicates.
func quoteAll(values ...string) []string {
	quoted := make([]string, 0, len(values))
	for _, value := range values {
		quoted = append(quoted, quote(value))
	}
	slices.Sort(quoted)
	return slices.Compact(quoted)
}
