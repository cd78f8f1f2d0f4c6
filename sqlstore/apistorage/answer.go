package apistorage

import (
	"context"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sqube/sqube/sqlstore"
)

// Answer is what the client of a write is sent: the bytes that were stored, as
// a read would send them. Nothing is decoded for it.
type Answer struct {
	raw    Raw
	object runtime.Object // that the write returns, once something is written
}

type answerKey struct{}

// WithAnswer returns a context whose write puts what it stored into the answer.
// The answer is of the kind and in the format of like.
func WithAnswer(ctx context.Context, like Raw) (context.Context, *Answer) {
	a := &Answer{raw: like}
	return context.WithValue(ctx, answerKey{}, a), a
}

// For returns what to send for the object that a write returned: the stored
// bytes, or the object itself where it is not the one that was written.
func (a *Answer) For(object runtime.Object) runtime.Object {
	if a.object == nil || a.object != object {
		return object
	}
	return &a.raw
}

// answer makes into the object that the writer of a record gets: what data is
// decoded to, which written was encoded to. A custom resource is that already,
// see rehearse.
func (s *Storage) answer(ctx context.Context, r *sqlstore.Record, key string, data []byte, written, into runtime.Object) error {
	if s.exact != nil {
		s.takeNote(r)
		return s.versioner.UpdateObject(into, uint64(r.Revision))
	}
	a, ok := ctx.Value(answerKey{}).(*Answer)
	if !ok || s.protobuf == nil || !assign(into, written) {
		return s.readBack(data, into, r.Revision, key)
	}
	a.object = into
	a.raw.storage, a.raw.key, a.raw.record, a.raw.revision, a.raw.data = s, key, r, r.Revision, data
	return s.versioner.UpdateObject(into, uint64(r.Revision))
}

// assign makes into a shallow copy of obj, if both have the same type.
func assign(into, obj runtime.Object) bool {
	to, from := reflect.ValueOf(into), reflect.ValueOf(obj)
	if to.Type() != from.Type() || to.Kind() != reflect.Pointer {
		return false
	}
	to.Elem().Set(from.Elem())
	return true
}
