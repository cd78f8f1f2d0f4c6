package pki

import (
	"bytes"
	"context"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"maps"
	"path/filepath"
)

// Shared has the files that all servers of a cluster share: the authorities and the service account key, in PEM, by their names
// under pki.
type Shared map[string][]byte

// SharedStore stores the shared files in a place that all servers of a cluster can reach; see package sharedkeys.
type SharedStore interface {
	// Update replaces the content, which is nil at first, with the result of change, and returns the new content. It calls change
	// again if another server was faster, also after an error of change. Other errors of change are returned unchanged. change must not
	// modify its argument.
	Update(ctx context.Context, change func(Shared) (Shared, error)) (Shared, error)
}

// Guard tells a cluster's shared files from others.
type Guard interface {
	// Check is called before anything is written. Ensure returns its error unchanged.
	Check(context.Context, Shared) error
	// Record is called when the files have been written, so that a start that ends in between is not refused the next time. It makes
	// the files the cluster's, unless others have become that since Check; then it returns an error, which Ensure returns unchanged.
	Record(context.Context, Shared) error
}

// CA returns the certificates of the authorities that are trusted, in PEM.
func (s Shared) CA() []byte { return s[caCert] }

// ServiceAccountKey returns the private key that signs service account tokens, in PEM.
func (s Shared) ServiceAccountKey() []byte { return s[serviceAccountKey] }

// The names in Shared.
const (
	caCert, caKey                     = "ca.crt", "ca.key"
	frontProxyCACert, frontProxyCAKey = "front-proxy-ca.crt", "front-proxy-ca.key"
	serviceAccountKey                 = "sa.key"
)

// sharedFiles lists the names in the order of writing: a key is on disk before its certificate.
var sharedFiles = []string{caKey, caCert, frontProxyCAKey, frontProxyCACert, serviceAccountKey}

// ensureShared updates the shared files, from the shared store if there is one.
func (p *PKI) ensureShared(ctx context.Context) error {
	local, err := p.readShared()
	if err != nil {
		return err
	}
	complete := func(files Shared) (Shared, error) {
		if files == nil {
			files = local
		}
		files, err := p.complete(files)
		if err == nil && p.opts.Guard != nil {
			err = p.opts.Guard.Check(ctx, files)
		}
		return files, err
	}
	var files Shared
	if p.opts.SharedStore == nil {
		files, err = complete(nil)
	} else if files, err = p.opts.SharedStore.Update(ctx, complete); err == nil {
		err = p.differ(local, files)
	}
	if err != nil {
		return err
	}
	for _, name := range sharedFiles {
		if !bytes.Equal(files[name], local[name]) {
			if err := writeFile(p.path(name), files[name]); err != nil {
				return err
			}
		}
	}
	if p.opts.Guard != nil {
		if err := p.opts.Guard.Record(ctx, files); err != nil {
			return err
		}
	}
	return p.use(files)
}

// readShared returns the shared files that exist.
func (p *PKI) readShared() (Shared, error) {
	files := Shared{}
	for _, name := range sharedFiles {
		read := readFile
		if filepath.Ext(name) == ".key" {
			read = readPrivate
		}
		data, err := read(p.path(name))
		if err != nil {
			return nil, err
		}
		if data != nil {
			files[name] = data
		}
	}
	return files, nil
}

// use sets the authorities from files.
func (p *PKI) use(files Shared) (err error) {
	p.trust = files[caCert]
	if p.ca, err = p.authority(caName, files); err == nil && files[frontProxyCACert] != nil {
		p.frontProxyCA, err = p.authority(frontProxyCAName, files)
	}
	return err
}

func (p *PKI) authority(name string, files Shared) (*authority, error) {
	pair := p.pair(name)
	cert, err := parseCert(pair.CertFile, files[name+".crt"])
	if err != nil {
		return nil, err
	}
	key, err := parseKey(pair.KeyFile, files[name+".key"])
	if err != nil {
		return nil, err
	}
	return openAuthority(pair, cert, key, p.opts.now())
}

// complete returns files after adding missing ones and extending authorities that expire soon.
func (p *PKI) complete(files Shared) (Shared, error) {
	files = maps.Clone(files)
	if err := p.completeAuthority(files, caName, "sqube-ca"); err != nil {
		return nil, err
	}
	if err := p.completeAuthority(files, frontProxyCAName, "front-proxy-ca"); err != nil {
		return nil, err
	}
	key, err := parseKey(p.ServiceAccountKey, files[serviceAccountKey])
	if err == nil && key == nil {
		_, files[serviceAccountKey], err = newKey()
	}
	return files, err
}

func (p *PKI) completeAuthority(files Shared, name, commonName string) error {
	pair, certName, keyName, now := p.pair(name), name+".crt", name+".key", p.opts.now()
	if files[certName] == nil {
		// With a new certificate for an existing key, everything that the key has signed stays valid.
		key, err := parseKey(pair.KeyFile, files[keyName])
		if err == nil && key == nil {
			key, files[keyName], err = newKey()
		}
		if err != nil {
			return err
		}
		if files[certName], err = selfSign(commonName, key, now); err != nil {
			return &FileError{pair.CertFile, err, "check that its key is an ECDSA or RSA key"}
		}
	}
	a, err := p.authority(name, files)
	if err != nil {
		return err
	}
	if a.key == nil {
		if p.opts.SharedStore != nil {
			return &FileError{pair.KeyFile, errors.New("it is missing, and the other servers need it too"), "put it in the same folder as its certificate"}
		}
		return nil
	}
	// An authority from elsewhere must be renewed by its owner.
	if a.cert.Subject.CommonName == commonName && a.cert.NotAfter.Sub(now) < extendBefore {
		extended, err := a.extend(now)
		if err != nil {
			return &FileError{pair.CertFile, err, "it expires soon: replace it"}
		}
		_, others := pem.Decode(files[certName]) // added by an administrator, to be trusted too
		files[certName] = append(extended, others...)
	}
	return nil
}

// differ returns an error if a local file is not a copy, possibly an older one, of the shared file: it would be lost.
func (p *PKI) differ(local, shared Shared) error {
	for name := range local {
		mine, err := p.publicKey(name, local)
		if err != nil {
			return err
		}
		others, err := p.publicKey(name, shared)
		if err != nil {
			return err
		}
		if !mine.Equal(others) {
			return &FileError{p.path(name), errors.New("it does not have the key that the servers on this database share"),
				"move " + p.folder() + " aside to use theirs; everything that its keys have signed then becomes invalid"}
		}
	}
	return nil
}

// publicKey is implemented by all public keys of the standard library.
type publicKey interface{ Equal(crypto.PublicKey) bool }

func (p *PKI) publicKey(name string, files Shared) (publicKey, error) {
	if filepath.Ext(name) == ".crt" {
		cert, err := parseCert(p.path(name), files[name])
		if err != nil {
			return nil, err
		}
		return cert.PublicKey.(publicKey), nil
	}
	key, err := parseKey(p.path(name), files[name])
	if err != nil {
		return nil, err
	}
	return key.Public().(publicKey), nil
}

// CAPublicKey returns the public key of CA in PKIX form.
func (p *PKI) CAPublicKey() ([]byte, error) { return x509.MarshalPKIXPublicKey(p.ca.cert.PublicKey) }
