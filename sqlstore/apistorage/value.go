package apistorage

import (
	"bytes"
	"context"
	"encoding/json"

	"k8s.io/apiserver/pkg/storage/value"

	"github.com/sqube/sqube/sqlstore"
)

// The column value always contains a JSON object, so that any SQL tool can read it: the API object itself or, if a transformer's
// output is not JSON, an object with the single field $encrypted. An API object that itself begins with that field, as custom
// resources may, is wrapped too.
type sealed struct {
	Encrypted []byte `json:"$encrypted"`
}

var sealedPrefix = []byte(`{"$encrypted":`)

func isSealed(stored []byte) bool { return bytes.HasPrefix(stored, sealedPrefix) }

// seal runs the transformer over data and returns what to store. key authenticates the value: it can't be decrypted under another
// key.
func (s *Storage) seal(ctx context.Context, data []byte, key string) ([]byte, error) {
	out, err := s.Transformer.TransformToStorage(ctx, data, value.DefaultContext(key))
	if err != nil {
		return nil, err
	}
	if len(out) > 0 && out[0] == '{' && !isSealed(out) {
		return out, nil
	}
	return json.Marshal(sealed{out})
}

// unseal returns what was sealed in a record, and notes if the record is exact. stale reports that the value should be rewritten,
// such as under a new encryption key.
func (s *Storage) unseal(ctx context.Context, r *sqlstore.Record, key string) (data []byte, stale bool, err error) {
	if data, stale, err = Decrypt(ctx, s.Transformer, r.Value, key); err != nil {
		return nil, false, untransformable(r, key, err)
	}
	s.takeNote(r)
	return data, stale, nil
}

// Decrypt returns stored, the column value of the object at key, decrypted by the transformer of its resource. stale reports that
// it should be rewritten. It fails if the transformer does.
func Decrypt(ctx context.Context, transformer value.Transformer, stored []byte, key string) (data []byte, stale bool, err error) {
	if isSealed(stored) {
		var box sealed
		if err := json.Unmarshal(stored, &box); err != nil {
			return nil, false, err
		}
		stored = box.Encrypted
	}
	return transformer.TransformFromStorage(ctx, stored, value.DefaultContext(key))
}
