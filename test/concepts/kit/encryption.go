package kit

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sqube/sqube/test/harness"
)

// EncryptionFile is a file for --encryption-provider-config.
type EncryptionFile struct{ Path string }

// NewEncryptionFile returns a file that does not exist yet.
func NewEncryptionFile(t *testing.T) EncryptionFile {
	return EncryptionFile{filepath.Join(t.TempDir(), "encryption.yaml")}
}

// Write replaces the file as a whole, since the server may read it at any moment.
func (c EncryptionFile) Write(t *testing.T, text string) {
	t.Helper()
	harness.Must(t, os.WriteFile(c.Path+".new", []byte(text), 0o600))
	harness.Must(t, os.Rename(c.Path+".new", c.Path))
}

// EncryptionConfig returns the text of a file with these rules.
func EncryptionConfig(rules ...string) string {
	return "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n" + strings.Join(rules, "")
}

// EncryptionRule returns a rule that encrypts a resource with the first of the providers, and decrypts it with all of them.
func EncryptionRule(resource string, providers ...string) string {
	return fmt.Sprintf("- {resources: [%q], providers: [{%s}]}\n", resource, strings.Join(providers, "}, {"))
}

// IdentityProvider is the provider that does not encrypt.
const IdentityProvider = "identity: {}"

// The providers that encrypt with a key, which is derived from a string.

func AESCBC(key string) string    { return keyed("aescbc", key) }
func AESGCM(key string) string    { return keyed("aesgcm", key) }
func Secretbox(key string) string { return keyed("secretbox", key) }

func keyed(provider, key string) string {
	secret := sha256.Sum256([]byte(key))
	return fmt.Sprintf("%s: {keys: [{name: %s, secret: %s}]}", provider, key, base64.StdEncoding.EncodeToString(secret[:]))
}
