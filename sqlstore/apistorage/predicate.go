package apistorage

import (
	"k8s.io/apiserver/pkg/storage"

	"github.com/sqube/sqube/sqlstore"
)

// Where possible, a predicate is decided by the labels and fields stored next
// to a value, without decoding it.

// undecided reports whether they do not suffice: the row withholds them, it was
// written before one of the fields was selectable, or the predicate selects by
// something else. Then the object decides.
func undecided(pred *storage.SelectionPredicate, r *sqlstore.Record) bool {
	if sharded(pred) || r.Withheld() && !pred.Empty() {
		return true
	}
	if pred.Field == nil || pred.Field.Empty() {
		return false
	}
	have := r.Sets().Fields
	for _, r := range pred.Field.Requirements() {
		if !have.Has(r.Field) {
			return true
		}
	}
	return false
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

// terms returns the terms of a predicate: conditions that every matching object
// fulfills.
func terms(pred *storage.SelectionPredicate) []sqlstore.Term {
	return append(sqlstore.LabelTerms(pred.Label), sqlstore.FieldTerms(pred.Field)...)
}
