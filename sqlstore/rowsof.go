package sqlstore

import (
	"context"
	"errors"
	"strings"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore/history"
)

// SplitAuditID returns the name of the transaction to which a row with this audit id belongs, "" if to none, and the audit id of the request,
// in the cluster that is mirrored if one is. The store alone writes such names: what a client has chosen comes behind.
func SplitAuditID(id string) (transaction, auditID string) {
	if rest, marked := strings.CutPrefix(id, history.TransactionMark); marked {
		transaction, auditID, _ = strings.Cut(rest, "/")
		return transaction, auditID
	}
	_, auditID = SplitMirroredID(id)
	return "", auditID
}

// RowsOf returns the revisions of the record of the last transaction with a name, and of its last row; 0 if history has none.
func (s *Store) RowsOf(ctx context.Context, name string) (record, last int64, err error) {
	b := s.statement().add("SELECT id, fields FROM log WHERE replaced_by IS NULL AND operation = 'create'")
	b.add(" AND api_group = " + b.arg(Transactions.Group) + " AND resource = " + b.arg(Transactions.Name) + " AND key = " + b.arg(name))
	err = s.run(ctx, b, func(row dialect.Row) error {
		var fields string
		err := row.Scan(&record, &fields)
		last = record + (&Record{Fields: fields}).Rows()
		return err
	})
	if err != nil || record != 0 {
		return record, last, err
	}
	creation := string(dialect.Create) // of a record that was changed since, or has expired
	q := history.Query{Resource: &Transactions, Name: name, Operation: &creation, NewestFirst: true, Lazy: true}
	err = s.Changes(ctx, q, func(c *history.Change) error {
		record = c.ID
		return errEnough
	})
	if record == 0 || !errors.Is(err, errEnough) {
		return 0, 0, err
	}
	_, last, err = s.TransactionAt(ctx, record)
	return record, last, err
}
