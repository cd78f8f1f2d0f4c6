// Package sharedkeys stores the keys that all servers of a cluster share in the cluster's database, encrypted with a key from a
// file that is never in the database.
//
// They are one row of the log, so backup, restore, history and check treat them like any object. API resources can't have the
// row's resource name. A write replaces only the row that it read, so servers that start at the same time end up with the same
// keys.
//
// Another row has the fingerprints of the keys, wherever the keys are, so that no server with other keys serves the database.
package sharedkeys

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/klog/v2"

	"github.com/sqube/sqube/server/pki"
	"github.com/sqube/sqube/sqlstore"
)

// ReplaceFlag is the name of the flag that lets a server replace the keys of a cluster.
const ReplaceFlag = "replace-keys"

// fingerprintsName is the name of the object that has the fingerprints of the cluster's keys. They are no secret.
const fingerprintsName = "fingerprints"

// Key is a public key that a server trusts.
type Key struct {
	// Fingerprint is the SHA-256 of the SubjectPublicKeyInfo (RFC 5280, 4.1.2.7) in hex, as in kubeadm's --discovery-token-ca-cert-hash.
	Fingerprint string `json:"sha256"`
	// File has the key, or the certificate with it.
	File string `json:"file"`
}

// NewKey returns a key from its SubjectPublicKeyInfo in DER and the path of its file.
func NewKey(info []byte, file string) Key {
	sum := sha256.Sum256(info)
	return Key{hex.EncodeToString(sum[:]), file}
}

// Keys are the public keys that make a server one of its cluster.
type Keys struct {
	// CA has the authorities of client certificates.
	CA []Key `json:"ca"`
	// ServiceAccount has the keys that verify service account tokens. It is empty if another process has them.
	ServiceAccount []Key `json:"serviceAccount,omitempty"`
}

// Guard compares a server's keys with those of the cluster that the database belongs to. It implements [pki.Guard].
//
// A key of each kind must be in both, so that an authority may be extended, and keys replaced one after the other: add the new one
// everywhere, then remove the old one. The latest server's keys are recorded.
type Guard struct {
	Store *sqlstore.Store
	// Keys returns the server's keys, of which files are a part.
	Keys func(files pki.Shared) (Keys, error)
	// Replace is the value of ReplaceFlag, which names the keys that the server may replace.
	Replace string
}

// fingerprints is the value of the row.
type fingerprints struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	// Host is the name of the host of the server that wrote this.
	Host      string    `json:"host"`
	WrittenAt time.Time `json:"writtenAt"`
	Keys      `json:",inline"`
}

// Check implements pki.Guard. The error says which keys differ, and what to do.
func (g *Guard) Check(ctx context.Context, files pki.Shared) error {
	_, err := g.next(ctx, files)
	return err
}

// Record implements pki.Guard. Of several servers that are the first on a database, one wins; the others get the error of Check. A full
// disk is no error, since clients could then not free space: a later call records the keys.
func (g *Guard) Record(ctx context.Context, files pki.Shared) error {
	for {
		w, err := g.next(ctx, files)
		if err != nil || w == nil {
			return err
		}
		switch _, err := g.Store.Write(ctx, w); {
		case errors.Is(err, sqlstore.ErrConflict):
		case errors.Is(err, sqlstore.ErrFull):
			klog.ErrorS(err, "The database has no space to record which keys its cluster has; trying again later")
			return nil
		case err != nil:
			return fmt.Errorf("recording in the database which keys its cluster has: %w", err)
		default:
			return nil
		}
	}
}

// next returns the write that records the server's keys, nil if they are recorded, or the error of Check.
func (g *Guard) next(ctx context.Context, files pki.Shared) (*sqlstore.Write, error) {
	own, err := g.Keys(files)
	if err != nil {
		return nil, err
	}
	record, _, err := g.Store.Get(ctx, Resource, fingerprintsName)
	if err != nil {
		return nil, fmt.Errorf("reading which keys the database's cluster has: %w", err)
	}
	w := sqlstore.Internal(Resource, fingerprintsName, record, nil)
	o := &fingerprints{
		TypeMeta:   metav1.TypeMeta{APIVersion: "sqube.io/v1", Kind: "KeyFingerprints"},
		ObjectMeta: metav1.ObjectMeta{Name: fingerprintsName, UID: uuid.NewUUID()},
	}
	if record != nil {
		if err := json.Unmarshal(record.Value, o); err != nil {
			return nil, fmt.Errorf("the row with the fingerprints of the cluster's keys is damaged; restore a backup: %w", err)
		}
		if len(own.ServiceAccount) == 0 {
			own.ServiceAccount = o.ServiceAccount
		}
		if same(own.CA, o.CA) && same(own.ServiceAccount, o.ServiceAccount) {
			return nil, nil
		}
		if others := o.others(own); len(others) > 0 && g.Replace != o.Keys.id() {
			return nil, refusal(o, others)
		}
	}
	o.Keys, o.WrittenAt = own, time.Now().UTC().Truncate(time.Second)
	if o.Host, err = os.Hostname(); err != nil {
		o.Host = "unknown"
	}
	w.UID = string(o.UID)
	w.Value, err = json.Marshal(o)
	return w, err
}

// difference is a kind of key that the server and the cluster have no common one of.
type difference struct {
	kind       string
	own, other []Key
}

func (o *fingerprints) others(own Keys) (found []difference) {
	for _, d := range []difference{{"CA", own.CA, o.CA}, {"service account key", own.ServiceAccount, o.ServiceAccount}} {
		common := slices.ContainsFunc(d.own, func(k Key) bool { return has(d.other, k) })
		if !common && len(d.own) > 0 && len(d.other) > 0 {
			found = append(found, d)
		}
	}
	return found
}

func refusal(o *fingerprints, others []difference) error {
	var kinds, theirs, here []string
	for _, d := range others {
		kinds = append(kinds, "another "+d.kind)
		theirs = append(theirs, files(d.other)...)
		here = append(here, files(d.own)...)
	}
	where := strings.Join(theirs, ", ")
	if !slices.Equal(theirs, here) {
		where += "; here they are " + strings.Join(here, ", ")
	}
	return fmt.Errorf("the database belongs to a cluster with %s, which host %s recorded at %s (%s). Copy that server's pki folder, and what its flags name, to this one. "+
		"For a new cluster, name an empty database. If this server's keys shall replace the cluster's, whose kubeconfigs and tokens then become invalid, add --%s=%s",
		strings.Join(kinds, " and "), o.Host, o.WrittenAt.Format(time.RFC3339), where, ReplaceFlag, o.Keys.id())
}

func files(keys []Key) (paths []string) {
	for _, k := range keys {
		if !slices.Contains(paths, k.File) {
			paths = append(paths, k.File)
		}
	}
	return paths
}

func has(keys []Key, key Key) bool {
	return slices.ContainsFunc(keys, func(k Key) bool { return k.Fingerprint == key.Fingerprint })
}

// same reports whether a and b have the same fingerprints.
func same(a, b []Key) bool {
	subset := func(a, b []Key) bool {
		return !slices.ContainsFunc(a, func(k Key) bool { return !has(b, k) })
	}
	return subset(a, b) && subset(b, a)
}

// id identifies the keys, for --replace-keys.
func (k Keys) id() string {
	var prints []string
	for _, keys := range [][]Key{k.CA, k.ServiceAccount} {
		for _, key := range keys {
			prints = append(prints, key.Fingerprint)
		}
	}
	slices.Sort(prints)
	sum := sha256.Sum256([]byte(strings.Join(slices.Compact(prints), " ")))
	return hex.EncodeToString(sum[:4])
}
