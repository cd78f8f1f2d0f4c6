package kit

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"strings"
	"testing"

	"github.com/sqube/sqube/test/harness"
)

// Rows gives access to the server's database.
type Rows struct{ DB *sql.DB }

// Row is the database row of one object.
type Row struct{ Labels, fields, Value string }

// Live reads the live row of an object.
func (r Rows) Live(t testing.TB, resource, namespace, name string) Row {
	t.Helper()
	var found Row
	err := r.DB.QueryRow("SELECT labels, fields, value FROM log WHERE replaced_by IS NULL AND resource = $1 AND namespace = $2 AND name = $3",
		resource, namespace, name).Scan(&found.Labels, &found.fields, &found.Value)
	if err != nil {
		t.Fatalf("the row of %s %s: %v", resource, name, err)
	}
	return found
}

// Exists reports whether an object has a live row.
func (r Rows) Exists(t testing.TB, resource, namespace, name string) (exists bool) {
	t.Helper()
	err := r.DB.QueryRow("SELECT EXISTS (SELECT 1 FROM log WHERE replaced_by IS NULL AND resource = $1 AND namespace = $2 AND name = $3)",
		resource, namespace, name).Scan(&exists)
	harness.Must(t, err)
	return exists
}

// History reads the values of all versions of an object that are still kept.
func (r Rows) History(t testing.TB, resource, namespace, name string) (values []string) {
	t.Helper()
	found := Must(r.DB.Query("SELECT value FROM history WHERE resource = $1 AND namespace = $2 AND name = $3", resource, namespace, name))(t)
	defer found.Close()
	for found.Next() {
		var value string
		harness.Must(t, found.Scan(&value))
		values = append(values, value)
	}
	harness.Must(t, found.Err())
	return values
}

// Edit changes the value of an object. The server must not be running.
func (r Rows) Edit(t testing.TB, resource, namespace, name, value string) {
	t.Helper()
	result := Must(r.DB.Exec("UPDATE log SET value = $1 WHERE replaced_by IS NULL AND resource = $2 AND namespace = $3 AND name = $4",
		value, resource, namespace, name))(t)
	if n, err := result.RowsAffected(); n != 1 || err != nil {
		t.Fatalf("%d rows of %s %s, %v", n, resource, name, err)
	}
}

// Everything returns the row, with encrypted parts as bytes.
func (r Row) Everything() string {
	text := strings.Join([]string{r.Labels, r.fields, r.Value}, "\n")
	if ciphertext := r.sealed(); ciphertext != nil {
		text += "\n" + string(ciphertext)
	}
	return text
}

// sealed returns the ciphertext, or nil.
func (r Row) sealed() []byte {
	var box struct {
		Encrypted []byte `json:"$encrypted"`
	}
	if err := json.Unmarshal([]byte(r.Value), &box); err != nil {
		return nil
	}
	return box.Encrypted
}

// Ciphertext returns the ciphertext, and fails the test if the row is in the clear.
func (r Row) Ciphertext(t testing.TB) []byte {
	t.Helper()
	ciphertext := r.sealed()
	if ciphertext == nil {
		t.Fatalf("the row is in the clear: %s", r.Value)
	}
	return ciphertext
}

// EncryptedBy fails the test unless the ciphertext has this prefix; "" is for a row in the clear.
func (r Row) EncryptedBy(t testing.TB, prefix string) {
	t.Helper()
	if prefix == "" {
		if ciphertext := r.sealed(); ciphertext != nil {
			t.Errorf("the row is encrypted: %q", ciphertext)
		}
		return
	}
	if ciphertext := r.Ciphertext(t); !bytes.HasPrefix(ciphertext, []byte(prefix)) {
		t.Errorf("the ciphertext does not begin with %s: %.60q", prefix, ciphertext)
	}
}
