package access

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/sqube/sqube/server/pki"
	"github.com/sqube/sqube/server/sharedkeys"
)

// ClusterKeys returns a function that returns the public keys of the authorities whose client certificates are accepted, and those that
// verify service account tokens: the keys in the server's own files, which belong in the folder own, and in the files that flags
// name. The options need not be complete. Errors name the flag that has to change.
func (o *Options) ClusterKeys(own string) func(pki.Shared) (sharedkeys.Keys, error) {
	return func(files pki.Shared) (keys sharedkeys.Keys, err error) {
		if keys.CA, err = o.authorities(files, own); err == nil && o.SigningEndpoint == "" {
			keys.ServiceAccount, err = o.accountKeys(files, own)
		}
		return keys, err
	}
}

func (o *Options) authorities(files pki.Shared, own string) ([]sharedkeys.Key, error) {
	keys, err := certificateKeys(files.CA(), filepath.Join(own, "ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("reading the CA of client certificates: %w", err)
	}
	if path := o.Authentication.ClientCert.ClientCA; path != "" {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, errClientCA(err)
		}
		more, err := certificateKeys(data, path)
		if err != nil {
			return nil, errClientCA(err)
		}
		keys = append(keys, more...)
	}
	return keys, nil
}

func certificateKeys(data []byte, path string) (keys []sharedkeys.Key, err error) {
	certs, err := certutil.ParseCertsPEM(data)
	if err != nil {
		return nil, err
	}
	for _, cert := range certs {
		keys = append(keys, sharedkeys.NewKey(cert.RawSubjectPublicKeyInfo, absolute(path)))
	}
	return keys, nil
}

func (o *Options) accountKeys(files pki.Shared, own string) (keys []sharedkeys.Key, err error) {
	add := func(path string, found ...any) error {
		for _, key := range found {
			info, err := x509.MarshalPKIXPublicKey(key)
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			keys = append(keys, sharedkeys.NewKey(info, absolute(path)))
		}
		return nil
	}
	path, private := o.SigningKeyFile, any(nil)
	if path != "" {
		private, err = keyutil.PrivateKeyFromFile(path)
	} else {
		path = filepath.Join(own, "sa.key")
		private, err = keyutil.ParsePrivateKeyPEM(files.ServiceAccountKey())
	}
	if err != nil {
		return nil, errSigningKey(err)
	}
	public, err := publicKey(private)
	if err != nil {
		return nil, errSigningKey(err)
	}
	if err := add(path, public); err != nil {
		return nil, err
	}
	for _, path := range o.Authentication.ServiceAccounts.KeyFiles {
		found, err := verifyingKeys(path)
		if err != nil {
			return nil, errKeyFile(err)
		}
		if err := add(path, found...); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

// absolute returns path for readers who do not know the server's working directory.
func absolute(path string) string {
	if full, err := filepath.Abs(path); err == nil {
		return full
	}
	return path
}

// signingKey returns the private key in a PEM file, RSA or ECDSA in PKCS #1, SEC 1 or PKCS #8, and its public key.
func signingKey(path string) (private, public any, err error) {
	private, err = keyutil.PrivateKeyFromFile(path)
	if err != nil {
		return nil, nil, err
	}
	public, err = publicKey(private)
	return private, public, err
}

func errSigningKey(err error) error {
	return fmt.Errorf("--service-account-signing-key-file must hold a private key in PEM: %w", err)
}

func errKeyFile(err error) error {
	return fmt.Errorf("--service-account-key-file must hold keys in PEM: %w", err)
}

// verifyingKeys returns the public keys in a PEM file, including those in certificates and private keys. Other blocks, such as EC
// PARAMETERS, are skipped.
//
// keyutil.PublicKeysFromFile, which kube-apiserver uses, does not support EC keys in PKCS #8, the format of openssl genpkey.
func verifyingKeys(path string) ([]any, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var keys []any
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		text := pem.EncodeToMemory(block)
		if found, err := keyutil.ParsePublicKeysPEM(text); err == nil {
			keys = append(keys, found...)
		} else if private, err := keyutil.ParsePrivateKeyPEM(text); err == nil {
			public, err := publicKey(private)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			keys = append(keys, public)
		}
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%s holds no RSA or ECDSA key", path)
	}
	return keys, nil
}

func publicKey(private any) (any, error) {
	switch key := private.(type) {
	case *rsa.PrivateKey, *ecdsa.PrivateKey:
		return key.(crypto.Signer).Public(), nil
	}
	return nil, fmt.Errorf("a key of type %T can't sign service account tokens: use RSA or ECDSA", private)
}

// equal reports whether two public keys are the same.
func equal(a, b any) bool {
	key, ok := a.(interface{ Equal(crypto.PublicKey) bool })
	return ok && key.Equal(b)
}
