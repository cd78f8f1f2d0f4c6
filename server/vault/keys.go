package vault

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/spf13/pflag"
)

// Options are the flags.
type Options struct {
	// KeyFile is --pki-encryption-key-file.
	KeyFile string
}

const flag = "--pki-encryption-key-file"

// AddFlags adds the flags.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.KeyFile, strings.TrimPrefix(flag, "--"), "", "File with a key for servers that share a database: their authorities and the service account key are then in it, encrypted (AES-256-GCM), and the files under --data-dir are copies. "+
		"A line is 32 bytes in base64; the first one encrypts, all decrypt. Only its owner may be able to open it, or root and a group if it is root's. If unset, keys are only in files.")
}

// Keys are what the file holds: they open and seal.
type Keys struct {
	file  string
	aeads []cipher.AEAD // the first one seals
}

// keySize is that of AES-256.
const keySize = 32

// Load reads the file; it returns nil where none is named. An error tells how to make one.
func (o Options) Load() (*Keys, error) {
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
	k := &Keys{file: o.KeyFile}
	for i, line := range strings.Fields(string(data)) {
		key, err := base64.StdEncoding.DecodeString(line)
		if err != nil || len(key) != keySize {
			return nil, fmt.Errorf("%s %s: key %d is not %d bytes in base64; %s", flag, o.KeyFile, i+1, keySize, o.hint())
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, err
		}
		aead, err := cipher.NewGCMWithRandomNonce(block)
		if err != nil {
			return nil, err
		}
		k.aeads = append(k.aeads, aead)
	}
	if len(k.aeads) == 0 {
		return nil, fmt.Errorf("%s %s holds no key; %s", flag, o.KeyFile, o.hint())
	}
	return k, nil
}

func (o Options) hint() string {
	return "the same file is for all servers on a database, for the first one make it: (umask 077; head -c 32 /dev/urandom | base64 > " + o.KeyFile + ")"
}

var errOpen = errors.New("it holds a secret, and others than its owner may open it")

// readPrivate reads a file that only its owner may open. One that is root's its group may read, too: a Secret that is mounted
// for a user who is not root is that, and a Postgres server takes its keys so.
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
	var refused fs.FileMode = 0o077
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Uid == 0 {
		refused = 0o037
	}
	if info.Mode().Perm()&refused != 0 {
		return nil, errOpen
	}
	return io.ReadAll(f)
}

// purpose is authenticated with what is sealed, so that nothing else that the key may have sealed can take its place.
var purpose = []byte("sqube.io/v1 SharedKeys")

func (k *Keys) seal(text []byte) []byte { return k.aeads[0].Seal(nil, nil, text, purpose) }

// open returns what was sealed; stale says that it was not with the first key.
func (k *Keys) open(sealed []byte) (text []byte, stale bool, err error) {
	for i, aead := range k.aeads {
		if text, err = aead.Open(nil, nil, sealed, purpose); err == nil {
			return text, i > 0, nil
		}
	}
	return nil, false, errors.New(flag + " " + k.file + " does not open the cluster's keys in the database: they were encrypted with another key, give the file that the other servers have")
}
