package sqlstore

import (
	"context"
	"strconv"

	"github.com/sqube/sqube/dialect"
)

// Transactions has the records of transactions. They are no objects of the API.
var Transactions = Resource{Group: InternalGroup, Name: "transactions"}

// transactionMark precedes the name of a transaction in the audit id that its rows have, and a slash the id of its request.
const transactionMark = "transaction:"

// TransactionID returns the audit id of the rows of a transaction.
func TransactionID(name, auditID string) string { return transactionMark + name + "/" + auditID }

// rowsField is the field of a record that says how many rows follow it.
const rowsField = "rows"

// recordOf returns the write of the record of a transaction that has so many rows beside it.
func recordOf(name string, rows int, expiresAt int64, value []byte) *Write {
	return &Write{
		Operation: dialect.Create, Resource: Transactions, Key: name, Name: name, ExpiresAt: expiresAt,
		Labels: "{}", Fields: EncodeSet(map[string]string{rowsField: strconv.Itoa(rows)}), Value: value,
	}
}

// Rows returns how many rows follow the record of a transaction.
func (r *Record) Rows() int64 {
	rows, _ := strconv.ParseInt(r.Sets().Fields.Get(rowsField), 10, 64)
	return rows
}

// lastOf returns the revision of the last row of the transaction whose record a change is, 0 if it is none.
func lastOf(c *Change) int64 {
	if c.Resource != Transactions || c.Operation != dialect.Create {
		return 0
	}
	return c.Record.Revision + c.Record.Rows()
}

// WholeTransaction returns the revision at which the transaction ends that has a row with this revision, or revision if there is none.
func (s *Store) WholeTransaction(ctx context.Context, revision int64) (int64, error) {
	return revision, nil
}
