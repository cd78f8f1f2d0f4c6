package sharedkeys

import (
	"crypto/aes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/storage/value"
	aestransformer "k8s.io/apiserver/pkg/storage/value/encrypt/aes"
)

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
		transformer, err := newTransformer(key)
		if err != nil {
			return nil, err
		}
		transformers = append(transformers, transformer)
	}
	if len(transformers) == 0 {
		return nil, fmt.Errorf("%s %s holds no key; %s", flag, o.KeyFile, o.hint())
	}
	wrongKey := errors.New(flag + " " + o.KeyFile + " can't decrypt the cluster's keys in the database: they were encrypted with another key; use the file that the other servers have")
	return &Sealer{value.NewPrefixTransformers(wrongKey, transformers...)}, nil
}

// NewSealer returns a sealer with one key of 32 bytes.
func NewSealer(key []byte) (*Sealer, error) {
	transformer, err := newTransformer(key)
	if err != nil {
		return nil, err
	}
	return &Sealer{value.NewPrefixTransformers(errors.New("the cluster's keys were encrypted with another key"), transformer)}, nil
}

func newTransformer(key []byte) (value.PrefixTransformer, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return value.PrefixTransformer{}, err
	}
	transformer, err := aestransformer.NewGCMTransformer(block)
	return value.PrefixTransformer{Transformer: transformer}, err
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
