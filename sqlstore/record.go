package sqlstore

import (
	"context"
	"math"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore/history"
)

// Internal returns the write of a row that is no object of the API: in the place of previous, or the first one if that is nil.
func Internal(resource Resource, key string, previous *Record, value []byte) *Write {
	w := &Write{
		Operation: dialect.Create, Resource: resource, Key: key, Name: key, Previous: previous, Labels: EncodeSet(nil), Fields: EncodeSet(nil), Value: value,
	}
	if previous != nil {
		w.Operation = dialect.Update
	}
	return w
}

// InternalDeletion returns the write that deletes a row of Internal.
func InternalDeletion(resource Resource, key string, previous *Record) *Write {
	w := Internal(resource, key, previous, nil)
	w.Operation, w.UID = dialect.Delete, key
	return w
}

// Transactions has the records of transactions. They are no objects of the API.
var Transactions = history.Transactions

// Unconfirmed has what the server has to take back if it is not confirmed, by the name of the transaction.
var Unconfirmed = Resource{Group: InternalGroup, Name: "unconfirmed"}

// Written has how much users have written lately whose writes are limited.
var Written = Resource{Group: InternalGroup, Name: "written"}

// TransactionID returns the audit id of the rows of a transaction: its name, and the audit id of the request that made it.
func TransactionID(name, auditID string) string {
	return history.TransactionMark + name + "/" + auditID
}

// recordOf returns the write of the record of a transaction that has so many rows beside it.
func recordOf(name string, rows int, expiresAt int64, value []byte) *Write {
	w := Internal(Transactions, name, nil, value)
	w.ExpiresAt, w.Fields = expiresAt, history.RecordFields(rows)
	return w
}

// Rows returns how many rows follow the record of a transaction.
func (r *Record) Rows() int64 { return history.RecordedRows(r.Fields) }

// endOf returns the revision of the last row of the transaction whose record a change is, 0 if it is none.
func endOf(c *Change) int64 {
	if c.Resource != Transactions || c.Operation != dialect.Create {
		return 0
	}
	return c.Record.Revision + c.Record.Rows()
}

// WholeTransaction returns the revision at which the transaction ends that has a row with this revision, or revision if there is none. States
// that a client names by their revisions are read there: nobody must see one in which only a part of a transaction has happened.
func (s *Store) WholeTransaction(ctx context.Context, revision int64) (int64, error) {
	_, last, err := s.TransactionAt(ctx, revision)
	return last, err
}

// TransactionAt returns the first and the last revision of the transaction that has a row with this revision; both are revision if there is
// none.
func (s *Store) TransactionAt(ctx context.Context, revision int64) (first, last int64, err error) {
	if revision <= 0 || revision > s.hub.at() {
		return revision, revision, nil
	}
	return history.TransactionAt(ctx, settled{s.engine, s}, revision)
}

// wholeChanges returns the first changes after revision from and up to to, which are both at the end of a commit, and the revision up to which
// they are complete. It ends with the last row of a transaction, if with any.
func (s *Store) wholeChanges(ctx context.Context, from, to int64) (changes []*Change, read int64, err error) {
	changes, read, err = s.changes(ctx, from, to, nil, maxChanges, maxChangeBytes)
	for err == nil {
		record, end := joinTransactions(changes)
		switch {
		case read >= end:
			return changes, read, nil
		case record > 0:
			return changes[:record], changes[record].Record.Revision - 1, nil
		}
		var more []*Change
		more, read, err = s.changes(ctx, read, end, nil, math.MaxInt32, math.MaxInt)
		changes = append(changes, more...)
	}
	return nil, 0, err
}

// joinTransactions marks the changes that later ones of the same transaction follow. It returns the index of the last record among them, and
// the revision at which its transaction ends; 0 if there is none.
func joinTransactions(changes []*Change) (record int, end int64) {
	for i, c := range changes {
		if last := endOf(c); last > 0 {
			record, end = i, last
		}
		c.followed = c.Record.Revision < end
	}
	return record, end
}
