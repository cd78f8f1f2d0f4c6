package apistorage

import (
	"bytes"
	"context"
	"encoding/json"

	"k8s.io/apiserver/pkg/storage/value"
)

// The column value always holds a JSON object, so that any SQL tool can read
// it: the object itself, or around what is no JSON, because a transformer
// encrypted it, an object with one field. An object that begins with a field of
// that name itself, as custom resources may, is put into such a one too.
type sealed struct {
	Encrypted []byte `json:"$encrypted"`
}

var sealedPrefix = []byte(`{"$encrypted":`)

func isSealed(stored []byte) bool { return bytes.HasPrefix(stored, sealedPrefix) }

// seal runs the transformer over data and returns what is to be stored.
// key authenticates the value: under another key it can't be decrypted.
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

// unseal returns what conceal was given. stale says that it is stored in a
// form that should be written anew, such as under an old encryption key.
func (s *Storage) unseal(ctx context.Context, stored []byte, key string) (data []byte, stale bool, err error) {
	return Decrypt(ctx, s.Transformer, stored, key)
}

// Decrypt returns what the column value of the object at key holds, by the
// transformer of its resource. stale says that it is stored in a form that
// should be written anew. It fails where the transformer does.
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
