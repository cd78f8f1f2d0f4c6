package sqlstore

import (
	"context"
	"errors"
	"strings"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore/history"
)

// SplitAuditID returns the name of the transaction to which a row with this audit id belongs, "" if to none, and the audit id of the request.
// The store alone writes such names: what a client has chosen comes behind.
func SplitAuditID(id string) (transaction, auditID string) {
	if rest, marked := strings.CutPrefix(id, history.TransactionMark); marked {
		transaction, auditID, _ = strings.Cut(rest, "/")
		return transaction, auditID
	}
	return "", id
}

// RowsOf returns the revisions of the record of the last transaction with a name, and of its last row. Both are 0 if history has none. If
// history does not have how many rows there are, the latter is 0.
func (s *Store) RowsOf(ctx context.Context, name string) (record, last int64, err error) {
	note := func(operation dialect.Operation, id int64, fields string) {
		if operation == dialect.Create {
			record = id
			if fields != "" {
				last = id + (&Record{Fields: fields}).Rows()
			}
		}
	}
	b := s.statement().add("SELECT id, operation, fields FROM log WHERE replaced_by IS NULL")
	b.add(" AND api_group = " + b.arg(Transactions.Group) + " AND resource = " + b.arg(Transactions.Name) + " AND key = " + b.arg(name))
	err = s.run(ctx, b, func(row dialect.Row) error {
		var operation, fields string
		var id int64
		err := row.Scan(&id, &operation, &fields)
		note(dialect.Operation(operation), id, fields)
		return err
	})
	if err != nil || record != 0 {
		return record, last, err
	}
	creation := string(dialect.Create) // of a record that was changed since, or has expired
	q := history.Query{Resource: &Transactions, Name: name, Operation: &creation, NewestFirst: true, Lazy: true}
	err = s.Changes(ctx, q, func(c *history.Change) error {
		if err := c.Load(ctx); err != nil && !errors.Is(err, history.ErrForgotten) {
			return err
		}
		note(c.Operation, c.ID, c.LogRow.Fields)
		return errEnough
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return record, last, err
}
