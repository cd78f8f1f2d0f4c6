package logbackup

import (
	"encoding/json"
	"unicode/utf8"

	"github.com/sqube/sqube/dialect"
)

// record is a row of the log as a line of JSON. A value that is not text is in sealed_value, in base64. replaced_by is not stored: it
// follows from later rows.
type record struct {
	*dialect.LogRow
	Value  string `json:"value,omitempty"`
	Sealed []byte `json:"sealed_value,omitempty"`
}

func encodeRow(row *dialect.LogRow) *record {
	if utf8.Valid(row.Value) {
		return &record{LogRow: row, Value: string(row.Value)}
	}
	return &record{LogRow: row, Sealed: row.Value}
}

func decodeRow(line []byte) (*dialect.LogRow, error) {
	r := record{LogRow: &dialect.LogRow{}}
	if err := json.Unmarshal(line, &r); err != nil {
		return nil, err
	}
	switch {
	case r.Sealed != nil:
		r.LogRow.Value = r.Sealed
	case r.Operation != dialect.Delete:
		r.LogRow.Value = []byte(r.Value)
	}
	return r.LogRow, nil
}
