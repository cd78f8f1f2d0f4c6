package sharedkeys

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sqube/sqube/dialect/sqlite"
	"github.com/sqube/sqube/server/pki"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/test/harness"
)

func newKey() string {
	key := make([]byte, keySize)
	_, _ = rand.Read(key) // never fails
	return base64.StdEncoding.EncodeToString(key)
}

func load(t *testing.T, lines ...string) *Sealer {
	t.Helper()
	file := filepath.Join(t.TempDir(), "key")
	harness.Must(t, os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	keys, err := Options{KeyFile: file}.Load()
	harness.Must(t, err)
	return keys
}

func newStore(t *testing.T) *sqlstore.Store {
	t.Helper()
	engine, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "sqube.db"))
	harness.Must(t, err)
	store, err := sqlstore.Open(t.Context(), engine, sqlstore.Options{})
	harness.Must(t, err)
	t.Cleanup(func() { store.Close() })
	return store
}

// update stores want if v is empty, and returns the content of v.
func update(ctx context.Context, v pki.SharedStore, want pki.Shared) (pki.Shared, error) {
	return v.Update(ctx, func(kept pki.Shared) (pki.Shared, error) {
		if kept != nil {
			return kept, nil
		}
		return want, nil
	})
}

func open(t *testing.T, store *sqlstore.Store, keys *Sealer) pki.SharedStore {
	t.Helper()
	v, err := Open(t.Context(), store, keys)
	harness.Must(t, err)
	return v
}

func TestTheFirstWins(t *testing.T) {
	store, key := newStore(t), newKey()
	var mu sync.Mutex
	var results []pki.Shared
	var wg sync.WaitGroup
	for i := range 8 {
		v := open(t, store, load(t, key))
		wg.Go(func() {
			files, err := update(t.Context(), v, pki.Shared{"ca.key": {byte(i)}})
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			results = append(results, files)
		})
	}
	wg.Wait()
	for _, files := range results {
		if !maps.EqualFunc(files, results[0], bytes.Equal) {
			t.Errorf("one server has %v, another %v", files, results[0])
		}
	}
}

// TestRefusedMeanwhile lets another server store its keys while this one's are checked, and so refused: it uses the other's.
func TestRefusedMeanwhile(t *testing.T) {
	store, key := newStore(t), newKey()
	this, other := open(t, store, load(t, key)), open(t, store, load(t, key))
	refused := errors.New("refused")
	files, err := this.Update(t.Context(), func(kept pki.Shared) (pki.Shared, error) {
		if kept != nil {
			return kept, nil
		}
		_, err := update(t.Context(), other, pki.Shared{"ca.key": {1}})
		harness.Must(t, err)
		return nil, refused
	})
	if err != nil || !bytes.Equal(files["ca.key"], []byte{1}) {
		t.Errorf("got %v, %v", files, err)
	}
	if _, err := this.Update(t.Context(), func(pki.Shared) (pki.Shared, error) { return nil, refused }); err != refused {
		t.Errorf("refused keys that nobody changes: %v", err)
	}
}

func TestKeysAreReplacedOneAfterTheOther(t *testing.T) {
	store, old, fresh := newStore(t), newKey(), newKey()
	want := pki.Shared{"ca.key": []byte("secret")}
	for _, lines := range [][]string{{old}, {old, fresh}, {fresh, old}, {fresh}} {
		files, err := update(t.Context(), open(t, store, load(t, lines...)), want)
		if err != nil || !maps.EqualFunc(files, want, bytes.Equal) {
			t.Fatalf("with %d keys: %v, %v", len(lines), files, err)
		}
	}
	if _, err := update(t.Context(), open(t, store, load(t, old)), want); err == nil || !strings.Contains(err.Error(), "another key") {
		t.Errorf("with the old key: %v", err)
	}
	if _, err := Open(t.Context(), store, nil); err == nil || !strings.Contains(err.Error(), flag) {
		t.Errorf("without a key: %v", err)
	}
	record, _, err := store.Get(t.Context(), Resource, Name)
	if err != nil || bytes.Contains(record.Value, []byte("secret")) || bytes.Contains(record.Value, []byte(base64.StdEncoding.EncodeToString([]byte("secret")))) {
		t.Errorf("the row is %s, %v", record.Value, err)
	}
	if files, err := load(t, fresh).Decode(record.Value); err != nil || string(files["ca.key"]) != "secret" {
		t.Errorf("the row holds %v, %v", files, err)
	}
}

// TestFormat decrypts a row that was written with crypto/cipher: a random nonce before the ciphertext.
func TestFormat(t *testing.T) {
	line := newKey()
	key, err := base64.StdEncoding.DecodeString(line)
	harness.Must(t, err)
	block, err := aes.NewCipher(key)
	harness.Must(t, err)
	aead, err := cipher.NewGCMWithRandomNonce(block)
	harness.Must(t, err)
	row, err := json.Marshal(object{Sealed: aead.Seal(nil, nil, []byte(`{"ca.key":"c2VjcmV0"}`), []byte("sqube.io/v1 SharedKeys"))})
	harness.Must(t, err)
	if files, err := load(t, line).Decode(row); err != nil || string(files["ca.key"]) != "secret" {
		t.Errorf("%v, %v", files, err)
	}
}

func TestWrongKeyFiles(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"empty": "", "short": "c2hvcnQ=", "text": "not base64!", "second": newKey() + "\nx"} {
		file := filepath.Join(dir, name)
		harness.Must(t, os.WriteFile(file, []byte(content), 0o600))
	}
	for _, name := range []string{"empty", "short", "text", "second", "missing"} {
		file := filepath.Join(dir, name)
		_, err := Options{KeyFile: file}.Load()
		if err == nil || !strings.Contains(err.Error(), flag) || !strings.Contains(err.Error(), "base64 > "+file) || strings.Contains(err.Error(), "c2hv") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if keys, err := (Options{}).Load(); keys != nil || err != nil {
		t.Errorf("no file: %v, %v", keys, err)
	}
}

func TestOpenKeyFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	harness.Must(t, os.WriteFile(file, []byte(newKey()), 0o600))
	root := os.Geteuid() == 0
	for mode, taken := range map[os.FileMode]bool{0o600: true, 0o400: true, 0o440: root, 0o640: root, 0o660: false, 0o644: false, 0o604: false, 0o602: false, 0o666: false} {
		harness.Must(t, os.Chmod(file, mode))
		keys, err := Options{KeyFile: file}.Load()
		switch {
		case taken && (err != nil || keys == nil):
			t.Errorf("%o: %v", mode, err)
		case !taken && (err == nil || !strings.Contains(err.Error(), "chmod 600 "+file)):
			t.Errorf("%o: %v", mode, err)
		}
	}
	if root { // another user's file has no group
		harness.Must(t, os.Chown(file, 65534, 65534))
		harness.Must(t, os.Chmod(file, 0o640))
		if _, err := (Options{KeyFile: file}).Load(); err == nil {
			t.Error("a file that another user's group may read is accepted")
		}
	}
}
