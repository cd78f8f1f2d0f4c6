package logbackup

import (
	"encoding/json"
	"unicode/utf8"

	"github.com/sqube/sqube/dialect"
)

// record is a row of the log as a line of JSON. Fields have the names of columns, except that a value that is not text is in
// sealed_value, in base64. replaced_by is not stored: it follows from later rows.
type record struct {
	ID           int64  `json:"id"`
	Replaces     int64  `json:"replaces,omitempty"`
	Operation    string `json:"operation"`
	Group        string `json:"api_group,omitempty"`
	Resource     string `json:"resource"`
	Key          string `json:"key"`
	Namespace    string `json:"namespace,omitempty"`
	Name         string `json:"name"`
	UID          string `json:"uid,omitempty"`
	WrittenAt    int64  `json:"written_at"`
	ExpiresAt    int64  `json:"expires_at,omitempty"`
	User         string `json:"user_name,omitempty"`
	FieldManager string `json:"field_manager,omitempty"`
	Address      string `json:"address,omitempty"`
	AuditID      string `json:"audit_id,omitempty"`
	Labels       string `json:"labels,omitempty"`
	Fields       string `json:"fields,omitempty"`
	Value        string `json:"value,omitempty"`
	Sealed       []byte `json:"sealed_value,omitempty"`
}

func encodeRow(row *dialect.LogRow) *record {
	r := &record{
		ID: row.ID, Replaces: row.Replaces, Operation: string(row.Operation), Group: row.Group, Resource: row.Resource, Key: row.Key,
		Namespace: row.Namespace, Name: row.Name, UID: row.UID, WrittenAt: row.WrittenAt, ExpiresAt: row.ExpiresAt,
		User: row.User, FieldManager: row.FieldManager, Address: row.Address, AuditID: row.AuditID, Labels: row.Labels, Fields: row.Fields,
	}
	if utf8.Valid(row.Value) {
		r.Value = string(row.Value)
	} else {
		r.Sealed = row.Value
	}
	return r
}

func decodeRow(line []byte) (*dialect.LogRow, error) {
	var r record
	if err := json.Unmarshal(line, &r); err != nil {
		return nil, err
	}
	row := &dialect.LogRow{ID: r.ID, Write: dialect.Write{
		Operation: dialect.Operation(r.Operation), Replaces: r.Replaces, Group: r.Group, Resource: r.Resource, Key: r.Key,
		Namespace: r.Namespace, Name: r.Name, UID: r.UID, WrittenAt: r.WrittenAt, ExpiresAt: r.ExpiresAt,
		User: r.User, FieldManager: r.FieldManager, Address: r.Address, AuditID: r.AuditID, Labels: r.Labels, Fields: r.Fields,
	}}
	switch {
	case r.Sealed != nil:
		row.Value = r.Sealed
	case row.Operation != dialect.Delete:
		row.Value = []byte(r.Value)
	}
	return row, nil
}
