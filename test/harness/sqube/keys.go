package sqube

import (
	"crypto/rand"
	"encoding/base64"
	"os"
	"path/filepath"
	"testing"

	"github.com/sqube/sqube/test/harness"
)

// KeyFile creates a file for --pki-encryption-key-file, with which the servers on a database share their keys through it.
func KeyFile(t testing.TB) string {
	t.Helper()
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	file := filepath.Join(t.TempDir(), "key")
	harness.Must(t, os.WriteFile(file, []byte(base64.StdEncoding.EncodeToString(key)+"\n"), 0o600))
	return file
}
