package apistorage

import (
	"strings"

	"k8s.io/apiserver/pkg/storage"

	"github.com/sqube/sqube/sqlstore"
)

// Where possible, a predicate is decided by the labels and fields stored next to a value, without decoding it.

// undecided reports whether they do not suffice: the row withholds them, it was written before one of the fields was selectable,
// a field may have changed since, or the predicate selects by something else. Then the object decides.
func (s *Storage) undecided(pred *storage.SelectionPredicate, r *sqlstore.Record) bool {
	if sharded(pred) || r.Withheld() && !pred.Empty() {
		return true
	}
	if pred.Field == nil || pred.Field.Empty() {
		return false
	}
	have := r.Sets().Fields
	for _, required := range pred.Field.Requirements() {
		if !have.Has(required.Field) || !s.lasting(required.Field) && !s.wrote(r) {
			return true
		}
	}
	return false
}

// lasting reports whether a field of every object is as it was when the object was written. Those of a custom resource outside
// its metadata may not be: its schema may have got a default since, or a webhook may convert the object.
func (s *Storage) lasting(field string) bool {
	return s.exact == nil || strings.HasPrefix(field, "metadata.")
}

// wrote reports whether this Storage wrote the row of a custom resource, and the row is exact. Then all its fields are as it
// wrote them.
func (s *Storage) wrote(r *sqlstore.Record) bool {
	_, mine := exactNote(r.Note).offset(s)
	return mine
}

// sharded reports whether a predicate selects a part of the objects by a hash.
func sharded(pred *storage.SelectionPredicate) bool {
	return pred.ShardSelector != nil && !pred.ShardSelector.Empty()
}

// matches reports whether the stored labels and fields of a row match.
func matches(pred *storage.SelectionPredicate, r *sqlstore.Record) bool {
	sets := r.Sets()
	return pred.Label.Matches(sets.Labels) && (pred.Field == nil || pred.Field.Matches(sets.Fields))
}

// terms returns the terms of a predicate: conditions that every matching object fulfills.
func (s *Storage) terms(pred *storage.SelectionPredicate) []sqlstore.Term {
	selector := pred.Field
	if s.exact != nil && selector != nil {
		var err error
		selector, err = selector.Transform(func(field, value string) (string, string, error) {
			if !s.lasting(field) {
				return "", "", nil // removes the requirement
			}
			return field, value, nil
		})
		if err != nil {
			selector = nil // no terms
		}
	}
	return append(sqlstore.LabelTerms(pred.Label), sqlstore.FieldTerms(selector)...)
}
