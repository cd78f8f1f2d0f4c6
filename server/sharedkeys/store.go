package sharedkeys

import (
	"bytes"
	"context"
	"crypto/aes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"strings"
	"syscall"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apiserver/pkg/storage/value"
	aestransformer "k8s.io/apiserver/pkg/storage/value/encrypt/aes"

	"github.com/sqube/sqube/server/pki"
	"github.com/sqube/sqube/sqlstore"
)

// Resource and Name name the row. No API resource has an underscore in its name.
var Resource = sqlstore.Resource{Group: "sqube.io", Name: "shared_keys"}

// Name is the name of the only object.
const Name = "cluster"

// object is the value of the row.
type object struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	// Sealed is a pki.Shared in JSON, encrypted.
	Sealed []byte `json:"sealed"`
}

// author is recorded in the log as the author of the row.
var author = sqlstore.Author{User: "system:apiserver", FieldManager: "sqube"}

// Store stores shared keys in the cluster's database.
type Store struct {
	store  *sqlstore.Store
	sealer *Sealer
}

// Open returns the shared keys in store. Without a sealer it returns nil, or an error if the store holds shared keys.
func Open(ctx context.Context, store *sqlstore.Store, sealer *Sealer) (pki.SharedStore, error) {
	if sealer != nil {
		return &Store{store, sealer}, nil
	}
	record, _, err := store.Get(ctx, Resource, Name)
	if err == nil && record != nil {
		err = errors.New("the database holds the cluster's keys, encrypted: give the file that the other servers have with " + flag)
	}
	return nil, err
}

// Update implements pki.SharedStore. If the keys can't be decrypted, the error names the flag.
func (s *Store) Update(ctx context.Context, change func(pki.Shared) (pki.Shared, error)) (pki.Shared, error) {
	for {
		record, _, err := s.store.Get(ctx, Resource, Name)
		if err != nil {
			return nil, fmt.Errorf("reading the cluster's keys: %w", err)
		}
		w := &sqlstore.Write{
			Operation: "create", Resource: Resource, Key: Name, Name: Name, Previous: record,
			Labels: sqlstore.EncodeSet(nil), Fields: sqlstore.EncodeSet(nil),
		}
		o := &object{TypeMeta: metav1.TypeMeta{APIVersion: "sqube.io/v1", Kind: "SharedKeys"}, ObjectMeta: metav1.ObjectMeta{Name: Name, UID: uuid.NewUUID()}}
		var kept pki.Shared
		var stale bool
		if record != nil {
			w.Operation = "update"
			if kept, stale, err = s.sealer.decode(ctx, record.Value, o); err != nil {
				return nil, err
			}
		}
		next, err := change(kept)
		if err != nil || !stale && kept != nil && maps.EqualFunc(next, kept, bytes.Equal) {
			return next, err
		}
		if w.Value, err = s.sealer.encode(ctx, next, o); err != nil {
			return nil, err
		}
		w.UID = string(o.UID)
		_, err = s.store.Write(sqlstore.WithAuthor(ctx, author), w)
		if err == nil {
			return next, nil
		}
		if !errors.Is(err, sqlstore.ErrConflict) {
			return nil, fmt.Errorf("writing the cluster's keys to the database: %w", err)
		}
	}
}

// Decode decrypts a value of the row.
func (s *Sealer) Decode(stored []byte) (pki.Shared, error) {
	files, _, err := s.decode(context.Background(), stored, &object{})
	return files, err
}

func (s *Sealer) decode(ctx context.Context, stored []byte, o *object) (files pki.Shared, stale bool, err error) {
	if err := json.Unmarshal(stored, o); err != nil {
		return nil, false, fmt.Errorf("the row with the cluster's keys is damaged; restore a backup: %w", err)
	}
	text, stale, err := s.aes.TransformFromStorage(ctx, o.Sealed, purpose)
	if err != nil {
		return nil, false, err
	}
	return files, stale, json.Unmarshal(text, &files)
}

func (s *Sealer) encode(ctx context.Context, files pki.Shared, o *object) ([]byte, error) {
	text, err := json.Marshal(files)
	if err != nil {
		return nil, err
	}
	if o.Sealed, err = s.aes.TransformToStorage(ctx, text, purpose); err != nil {
		return nil, fmt.Errorf("encrypting the cluster's keys: %w", err)
	}
	return json.Marshal(o)
}

// Options holds the flags.
type Options struct {
	// KeyFile is --pki-encryption-key-file.
	KeyFile string
}

const flag = "--pki-encryption-key-file"

// AddFlags adds the flags.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.KeyFile, strings.TrimPrefix(flag, "--"), "", "File with encryption keys for servers that share a database. The database then holds the CAs and the service account key, encrypted with AES-256-GCM, and the files under --data-dir are copies. "+
		"Each line is 32 bytes in base64; the first key encrypts, all keys decrypt. Only the owner may have access to the file; if root owns it, its group may read it. If unset, keys are kept in files only.")
}

// Sealer encrypts and decrypts shared keys with the keys in a file.
type Sealer struct{ aes value.Transformer }

// keySize is the key size of AES-256.
const keySize = 32

// Load reads the file. It returns nil if the flag is unset. Errors explain how to create a file.
func (o Options) Load() (*Sealer, error) {
	if o.KeyFile == "" {
		return nil, nil
	}
	data, err := readPrivate(o.KeyFile)
	switch {
	case errors.Is(err, errOpen):
		return nil, fmt.Errorf("%s %s: %w: run chmod 600 %s, and replace the key if others may have read it", flag, o.KeyFile, err, o.KeyFile)
	case err != nil:
		return nil, fmt.Errorf("%s must name a readable file: %w; %s", flag, err, o.hint())
	}
	var transformers []value.PrefixTransformer
	for i, line := range strings.Fields(string(data)) {
		key, err := base64.StdEncoding.DecodeString(line)
		if err != nil || len(key) != keySize {
			return nil, fmt.Errorf("%s %s: key %d is not %d bytes in base64; %s", flag, o.KeyFile, i+1, keySize, o.hint())
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, err
		}
		transformer, err := aestransformer.NewGCMTransformer(block)
		if err != nil {
			return nil, err
		}
		transformers = append(transformers, value.PrefixTransformer{Transformer: transformer})
	}
	if len(transformers) == 0 {
		return nil, fmt.Errorf("%s %s holds no key; %s", flag, o.KeyFile, o.hint())
	}
	wrongKey := errors.New(flag + " " + o.KeyFile + " can't decrypt the cluster's keys in the database: they were encrypted with another key; use the file that the other servers have")
	return &Sealer{value.NewPrefixTransformers(wrongKey, transformers...)}, nil
}

func (o Options) hint() string {
	return "all servers on a database need the same file; make it for the first one with: (umask 077; head -c 32 /dev/urandom | base64 > " + o.KeyFile + ")"
}

var errOpen = errors.New("it holds a secret, but users other than its owner may open it")

// readPrivate reads a file that only its owner may open. If root owns it, its group may read it too, since Secrets are mounted
// that way for other users. Postgres has the same rule for its keys.
func readPrivate(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	var forbidden fs.FileMode = 0o077
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Uid == 0 {
		forbidden = 0o037
	}
	if info.Mode().Perm()&forbidden != 0 {
		return nil, errOpen
	}
	return io.ReadAll(f)
}

// purpose is authenticated with the encrypted keys, so that nothing else encrypted with the same key can take their place.
var purpose = value.DefaultContext("sqube.io/v1 SharedKeys")
