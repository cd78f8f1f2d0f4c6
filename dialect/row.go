package dialect

import (
	"context"
	"errors"
	"unsafe"
)

// Columns lists the columns of the table log in the order of LogRow.Values.
const Columns = "id, replaces, replaced_by, operation, api_group, resource, key, namespace, name, uid, written_at, expires_at, user_name, field_manager, labels, fields, value, address, audit_id, impersonated_user, credential_id"

// LogRow is a row of the log.
type LogRow struct {
	ID int64 `json:"id"`
	// ReplacedBy is the id of the row that replaced this one, 0 while it is live.
	ReplacedBy int64 `json:"-"`
	Write
}

// Values returns preceding and the columns of the row, in the order of Columns.
func (r *LogRow) Values(preceding ...any) []any {
	var replacedBy, expiresAt, value any
	if r.ReplacedBy != 0 {
		replacedBy = r.ReplacedBy
	}
	if r.ExpiresAt != 0 {
		expiresAt = r.ExpiresAt
	}
	if r.Operation != Delete {
		value = unsafe.String(unsafe.SliceData(r.Value), len(r.Value)) // not copied: the value does not change
	}
	return append(preceding, r.ID, r.Replaces, replacedBy, string(r.Operation), r.Group, r.Resource, r.Key, r.Namespace, r.Name, r.UID,
		r.WrittenAt, expiresAt, r.User, r.FieldManager, r.Labels, r.Fields, value, r.Address, r.AuditID,
		r.ImpersonatedUser, r.CredentialID)
}

// Scan reads a row whose first columns go to preceding. The others are Columns.
func (r *LogRow) Scan(row Row, preceding ...any) error {
	var operation string
	var replacedBy, expiresAt *int64
	if err := row.Scan(append(preceding, &r.ID, &r.Replaces, &replacedBy, &operation, &r.Group, &r.Resource, &r.Key, &r.Namespace, &r.Name, &r.UID,
		&r.WrittenAt, &expiresAt, &r.User, &r.FieldManager, &r.Labels, &r.Fields, &r.Value, &r.Address, &r.AuditID,
		&r.ImpersonatedUser, &r.CredentialID)...); err != nil {
		return err
	}
	r.Operation = Operation(operation)
	if replacedBy != nil {
		r.ReplacedBy = *replacedBy
	}
	if expiresAt != nil {
		r.ExpiresAt = *expiresAt
	}
	return nil
}

// Rows calls yield with the rows of the log that a statement selects: rest is what follows its FROM log.
func Rows(ctx context.Context, r Reader, rest string, args []any, yield func(*LogRow) error) error {
	return r.Query(ctx, "SELECT "+Columns+" FROM log "+rest, args, func(row Row) error {
		l := &LogRow{}
		if err := l.Scan(row); err != nil {
			return err
		}
		return yield(l)
	})
}

// ErrNotEmpty is returned if a log to be filled has rows.
var ErrNotEmpty = errors.New("the database is not empty")

// CheckEmpty returns ErrNotEmpty if the log has rows.
func CheckEmpty(ctx context.Context, r Reader) error {
	return r.Query(ctx, "SELECT id FROM log LIMIT 1", nil, func(Row) error { return ErrNotEmpty })
}
