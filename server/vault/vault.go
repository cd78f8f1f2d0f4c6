package vault

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/sqube/sqube/server/pki"
	"github.com/sqube/sqube/sqlstore"
)

// Resource and Name name the row. No API resource has an underscore in its name.
var Resource = sqlstore.Resource{Group: "sqube.io", Name: "shared_keys"}

// Name is that of the one object.
const Name = "cluster"

// object is the value of the row.
type object struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	// Sealed is a pki.Shared in JSON, sealed.
	Sealed []byte `json:"sealed"`
}

// author is who the log says it was.
var author = sqlstore.Author{User: "system:apiserver", FieldManager: "sqube"}

// Vault is a pki.Vault in a store.
type Vault struct {
	store *sqlstore.Store
	keys  *Keys
}

var _ pki.Vault = (*Vault)(nil)

// Open returns the vault in store that keys open. Without keys it returns nil, or an error where the store has one.
func Open(ctx context.Context, store *sqlstore.Store, keys *Keys) (pki.Vault, error) {
	if keys != nil {
		return &Vault{store, keys}, nil
	}
	record, _, err := store.Get(ctx, Resource, Name)
	if err == nil && record != nil {
		err = errors.New("the database holds the cluster's keys, encrypted: name the file with their key, which the other servers have, with " + flag)
	}
	return nil, err
}

// Update implements pki.Vault. Its errors name the flag where the key is another, and are those of the store otherwise.
func (v *Vault) Update(ctx context.Context, change func(pki.Shared) (pki.Shared, error)) (pki.Shared, error) {
	for {
		record, _, err := v.store.Get(ctx, Resource, Name)
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
			if kept, stale, err = v.keys.decode(record.Value, o); err != nil {
				return nil, err
			}
		}
		next, err := change(kept)
		if err != nil || !stale && kept != nil && maps.EqualFunc(next, kept, bytes.Equal) {
			return next, err
		}
		if w.Value, err = v.keys.encode(next, o); err != nil {
			return nil, err
		}
		w.UID = string(o.UID)
		_, err = v.store.Write(sqlstore.WithAuthor(ctx, author), w)
		if err == nil {
			return next, nil
		}
		if !errors.Is(err, sqlstore.ErrConflict) {
			return nil, fmt.Errorf("keeping the cluster's keys in the database: %w", err)
		}
	}
}

// Decode returns what a value of the row holds.
func (k *Keys) Decode(value []byte) (pki.Shared, error) {
	files, _, err := k.decode(value, &object{})
	return files, err
}

func (k *Keys) decode(value []byte, o *object) (files pki.Shared, stale bool, err error) {
	if err := json.Unmarshal(value, o); err != nil {
		return nil, false, fmt.Errorf("the row of the cluster's keys is damaged, restore a backup: %w", err)
	}
	text, stale, err := k.open(o.Sealed)
	if err != nil {
		return nil, false, err
	}
	return files, stale, json.Unmarshal(text, &files)
}

func (k *Keys) encode(files pki.Shared, o *object) ([]byte, error) {
	text, err := json.Marshal(files)
	if err != nil {
		return nil, err
	}
	o.Sealed = k.seal(text)
	return json.Marshal(o)
}
