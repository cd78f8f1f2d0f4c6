package access

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"encoding/pem"
	"fmt"
	"os"

	"k8s.io/client-go/util/keyutil"
)

// signingKey returns the private key in a PEM file, RSA or ECDSA in PKCS #1, SEC 1 or PKCS #8, and its public key.
func signingKey(path string) (private, public any, err error) {
	private, err = keyutil.PrivateKeyFromFile(path)
	if err != nil {
		return nil, nil, err
	}
	public, err = publicKey(private)
	return private, public, err
}

// errSigningKey is about --service-account-signing-key-file.
func errSigningKey(err error) error {
	return fmt.Errorf("--service-account-signing-key-file must hold a private key in PEM: %w", err)
}

// errKeyFile is about --service-account-key-file.
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
