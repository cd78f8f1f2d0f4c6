package sharedkeys

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

// Resource is that of the rows. No API resource has an underscore in its name.
var Resource = sqlstore.Resource{Group: sqlstore.InternalGroup, Name: "shared_keys"}

// Name is the name of the object that has the keys.
const Name = "cluster"

// object is the value of the row.
type object struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	// Sealed is a pki.Shared in JSON, encrypted.
	Sealed []byte `json:"sealed"`
}

// Store stores shared keys in the cluster's database.
type Store struct {
	store  *sqlstore.Store
	sealer *Sealer
}

// ErrNoKeyFile means that a database holds shared keys, but their encryption keys were not given.
var ErrNoKeyFile = errors.New("the database holds the cluster's keys, encrypted: give the file that the other servers have with " + flag)

// Open returns the shared keys in store. Without a sealer it returns nil, or an error if the store holds shared keys.
func Open(ctx context.Context, store *sqlstore.Store, sealer *Sealer) (pki.SharedStore, error) {
	if sealer != nil {
		return &Store{store, sealer}, nil
	}
	record, _, err := store.Get(ctx, Resource, Name)
	if err == nil && record != nil {
		err = ErrNoKeyFile
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
		w := sqlstore.Internal(Resource, Name, record, nil)
		o := &object{TypeMeta: metav1.TypeMeta{APIVersion: "sqube.io/v1", Kind: "SharedKeys"}, ObjectMeta: metav1.ObjectMeta{Name: Name, UID: uuid.NewUUID()}}
		var kept pki.Shared
		var stale bool
		if record != nil {
			if kept, stale, err = s.sealer.decode(ctx, record.Value, o); err != nil {
				return nil, err
			}
		}
		next, err := change(kept)
		if err != nil {
			// Another server may have written keys since the row was read, and Guard.Check has then refused those made here.
			now, _, readErr := s.store.Get(ctx, Resource, Name)
			if readErr == nil && now != nil && (record == nil || now.Revision != record.Revision) {
				continue
			}
			return nil, err
		}
		if !stale && kept != nil && maps.EqualFunc(next, kept, bytes.Equal) {
			return next, nil
		}
		if w.Value, err = s.sealer.encode(ctx, next, o); err != nil {
			return nil, err
		}
		w.UID = string(o.UID)
		_, err = s.store.Write(ctx, w)
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

// Reseal returns a value of the row, encrypted by another sealer.
func (s *Sealer) Reseal(stored []byte, by *Sealer) ([]byte, error) {
	o := &object{}
	files, _, err := s.decode(context.Background(), stored, o)
	if err != nil {
		return nil, err
	}
	return by.encode(context.Background(), files, o)
}
