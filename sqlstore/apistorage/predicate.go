package apistorage

import (
	"encoding/json"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/storage"

	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/apistorage/transcode"
)

// Where possible, a predicate is decided without decoding the object: by the labels and fields stored next to its value, and a shard by
// the UID or the namespace.

// decide reports whether the object of a record matches the predicate. It is undecided if what is stored does not suffice: the row
// withholds it, it was written before one of the fields was selectable, or a field may have changed since. Then the object decides.
func (s *Storage) decide(pred *storage.SelectionPredicate, r *sqlstore.Record) (matched, decided bool) {
	if pred.Empty() {
		return true, true
	}
	if r.Withheld() {
		return false, false
	}
	if sharded(pred) {
		if matched, decided := inShard(pred, r); !matched {
			return false, decided
		}
	}
	sets := r.Sets()
	if pred.Field != nil && !pred.Field.Empty() {
		for _, required := range pred.Field.Requirements() {
			if !sets.Fields.Has(required.Field) || !s.lasting(required.Field) && !s.wrote(r) {
				return false, false
			}
		}
	}
	return (pred.Label == nil || pred.Label.Matches(sets.Labels)) && (pred.Field == nil || pred.Field.Matches(sets.Fields)), true
}

// inShard is decide for the part of the predicate that selects a shard.
func inShard(pred *storage.SelectionPredicate, r *sqlstore.Record) (matched, decided bool) {
	metadata, err := transcode.Field(r.Value, "metadata")
	if err != nil {
		return false, false
	}
	text, err := transcode.Field(metadata, "uid")
	if err != nil {
		return false, false
	}
	var of metav1.PartialObjectMetadata
	if json.Unmarshal(text, &of.UID) != nil {
		return false, false
	}
	of.Namespace, of.Name = split(r.Key)
	matched, err = pred.MatchesSharding(&of)
	return matched, err == nil
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
