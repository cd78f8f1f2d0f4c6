package concepts

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"strings"
	"testing"
)

// rows is the database beside the server.
type rows struct{ db *sql.DB }

// row is what it holds of one object.
type row struct{ labels, fields, value string }

// live reads the row of an object that exists.
func (r rows) live(t testing.TB, resource, namespace, name string) row {
	t.Helper()
	var found row
	err := r.db.QueryRow("SELECT labels, fields, value FROM log WHERE replaced_by IS NULL AND resource = $1 AND namespace = $2 AND name = $3",
		resource, namespace, name).Scan(&found.labels, &found.fields, &found.value)
	if err != nil {
		t.Fatalf("the row of %s %s: %v", resource, name, err)
	}
	return found
}

// exists says whether an object has a row that is live.
func (r rows) exists(t testing.TB, resource, namespace, name string) (exists bool) {
	t.Helper()
	err := r.db.QueryRow("SELECT EXISTS (SELECT 1 FROM log WHERE replaced_by IS NULL AND resource = $1 AND namespace = $2 AND name = $3)",
		resource, namespace, name).Scan(&exists)
	if err != nil {
		t.Fatal(err)
	}
	return exists
}

// history reads the values of all versions of an object that are still kept.
func (r rows) history(t testing.TB, resource, namespace, name string) (values []string) {
	t.Helper()
	found, err := r.db.Query("SELECT value FROM history WHERE resource = $1 AND namespace = $2 AND name = $3", resource, namespace, name)
	if err != nil {
		t.Fatal(err)
	}
	defer found.Close()
	for found.Next() {
		var value string
		if err := found.Scan(&value); err != nil {
			t.Fatal(err)
		}
		values = append(values, value)
	}
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	return values
}

// edit changes the value of an object. The server must not run.
func (r rows) edit(t testing.TB, resource, namespace, name, value string) {
	t.Helper()
	result, err := r.db.Exec("UPDATE log SET value = $1 WHERE replaced_by IS NULL AND resource = $2 AND namespace = $3 AND name = $4",
		value, resource, namespace, name)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := result.RowsAffected(); n != 1 || err != nil {
		t.Fatalf("%d rows of %s %s, %v", n, resource, name, err)
	}
}

// everything is the row, with what is encrypted as bytes.
func (r row) everything() string {
	text := strings.Join([]string{r.labels, r.fields, r.value}, "\n")
	if ciphertext := r.sealed(); ciphertext != nil {
		text += "\n" + string(ciphertext)
	}
	return text
}

// sealed is what is encrypted, or nil.
func (r row) sealed() []byte {
	var box struct {
		Encrypted []byte `json:"$encrypted"`
	}
	if err := json.Unmarshal([]byte(r.value), &box); err != nil {
		return nil
	}
	return box.Encrypted
}

// ciphertext fails the test if the row is in the clear.
func (r row) ciphertext(t testing.TB) []byte {
	t.Helper()
	ciphertext := r.sealed()
	if ciphertext == nil {
		t.Fatalf("the row is in the clear: %s", r.value)
	}
	return ciphertext
}

// encryptedBy fails the test unless the ciphertext begins so; "" is for a row in the clear.
func (r row) encryptedBy(t testing.TB, prefix string) {
	t.Helper()
	if prefix == "" {
		if ciphertext := r.sealed(); ciphertext != nil {
			t.Errorf("the row is encrypted: %q", ciphertext)
		}
		return
	}
	if ciphertext := r.ciphertext(t); !bytes.HasPrefix(ciphertext, []byte(prefix)) {
		t.Errorf("the ciphertext is not of %s: %.60q", prefix, ciphertext)
	}
}
