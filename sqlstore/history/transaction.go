package history

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"

	"github.com/sqube/sqube/dialect"
)

// Transactions has the records of transactions. A record is the first row of its transaction, and says how many rows follow it. They are no
// objects of the API.
var Transactions = Resource{Group: dialect.InternalGroup, Name: "transactions"}

// Records returns the names of the resources of dialect.InternalGroup whose records say what happened to others.
func Records() []string { return []string{Transactions.Name, Gaps.Name, dialect.LostResource, leftOut} }

// MaxTransactionRows is how many rows a transaction has at most, with its record.
const MaxTransactionRows = 1 << 14

// TransactionMark is what the audit id of each row of a transaction begins with.
const TransactionMark = "transaction:"

// recordFields are the fields of a record.
type recordFields struct {
	Rows string `json:"rows"` // how many follow it
}

// RecordFields returns the fields of the record of a transaction that has so many rows beside it.
func RecordFields(rows int) string {
	text, _ := json.Marshal(recordFields{strconv.Itoa(rows)}) // a string can always be encoded
	return string(text)
}

// RecordedRows returns how many rows follow a record with these fields.
func RecordedRows(fields string) int64 {
	var f recordFields
	if json.Unmarshal([]byte(fields), &f) != nil {
		return 0
	}
	rows, _ := strconv.ParseInt(f.Rows, 10, 64)
	return min(rows, MaxTransactionRows)
}

// TransactionEnd returns the revision of the last row of the transaction whose record a row is, 0 if it is none.
func TransactionEnd(row *dialect.LogRow) int64 {
	if row.Group != Transactions.Group || row.Resource != Transactions.Name || row.Operation != dialect.Create {
		return 0
	}
	return row.ID + RecordedRows(row.Fields)
}

// WholeTransaction returns the revision at which the transaction ends that has a row with this revision, or revision if there is none: a
// state between its rows has never been.
func WholeTransaction(ctx context.Context, r dialect.Reader, revision int64) (int64, error) {
	_, end, err := TransactionAt(ctx, r, revision)
	return end, err
}

// TransactionAt returns the first and the last revision of the transaction that has a row with this revision; both are revision if there is
// none. It is cheap for a row of the log that is of no transaction.
func TransactionAt(ctx context.Context, r dialect.Reader, revision int64) (first, last int64, err error) {
	within := true // if its row has left the log, or there never was one
	err = r.Query(ctx, "SELECT audit_id LIKE '"+TransactionMark+"%' FROM log WHERE id = ?", []any{revision}, func(row dialect.Row) error {
		return row.Scan(&within)
	})
	if err != nil || !within {
		return revision, revision, err
	}
	note := func(record int64, fields string) {
		if end := record + RecordedRows(fields); end >= revision {
			first, last = record, end
		}
	}
	// The record may have left the log too. No index is as good as the range of revisions, so the conditions are written so that none fits.
	const inLog = "SELECT id, fields FROM log WHERE id > ? AND id <= ? AND api_group || '' = ? AND resource || '' = ? AND operation = 'create' ORDER BY id DESC LIMIT 1"
	const inPast = "first_id > ? AND first_id <= ? AND past.api_group || '' = ? AND past.resource || '' = ?"
	args := []any{revision - MaxTransactionRows, revision, Transactions.Group, Transactions.Name}
	err = r.Query(ctx, inLog, args, func(row dialect.Row) error {
		var id int64
		var fields string
		err := row.Scan(&id, &fields)
		note(id, fields)
		return err
	})
	if err == nil && last == 0 {
		err = Blocks(ctx, r, inPast, "first_id DESC LIMIT 1", args, func(b *dialect.Block) error {
			fields, err := recordOf(b)
			note(b.First, fields)
			return err
		})
	}
	if err != nil || last == 0 {
		return revision, revision, err
	}
	return first, last, nil
}

// recordOf returns the fields of the record that a block begins with, "" if they are not known.
func recordOf(b *dialect.Block) (fields string, err error) {
	if remnants := remnantsOf(b); len(remnants) > 0 {
		return remnants[0].Record, nil
	}
	versions, err := Versions(b)
	if errors.Is(err, ErrForgotten) || errors.Is(err, errBlock) || err == nil && len(versions) == 0 {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return versions[0].Fields, nil
}
