package apistorage

import (
	"context"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sqube/sqube/sqlstore"
)

// Answer is the response to a write: the stored bytes, as a read would send them, without decoding.
type Answer struct {
	raw    Raw
	object runtime.Object // returned by the write; nil before
}

type answerKey struct{}

// WithAnswer returns a context for a write, and the answer that the write fills, with the kind and format of like.
func WithAnswer(ctx context.Context, like Raw) (context.Context, *Answer) {
	a := &Answer{raw: like}
	return context.WithValue(ctx, answerKey{}, a), a
}

// For returns what to send for the object that a write returned: the stored bytes, or the object itself if it is not the one that
// was written.
func (a *Answer) For(object runtime.Object) runtime.Object {
	if a.object == nil || a.object != object {
		return object
	}
	return &a.raw
}

// answer sets into to the object that the writer of a record gets, which is data decoded. written is the object that was encoded
// to data. A custom resource has already been decoded; see decodeAhead.
func (s *Storage) answer(ctx context.Context, r *sqlstore.Record, key string, data []byte, written, into runtime.Object) error {
	if s.exact != nil {
		s.takeNote(r)
		return s.setRevision(into, r.Revision, key)
	}
	a, ok := ctx.Value(answerKey{}).(*Answer)
	if !ok || s.protobuf == nil || !assign(into, written) {
		return s.readBack(data, into, r.Revision, key)
	}
	a.object = into
	a.raw.storage, a.raw.key, a.raw.record, a.raw.revision, a.raw.data = s, key, r, r.Revision, data
	return s.setRevision(into, r.Revision, key)
}

// assign sets into to a shallow copy of obj if they have the same type.
func assign(into, obj runtime.Object) bool {
	to, from := reflect.ValueOf(into), reflect.ValueOf(obj)
	if to.Type() != from.Type() || to.Kind() != reflect.Pointer {
		return false
	}
	to.Elem().Set(from.Elem())
	return true
}
