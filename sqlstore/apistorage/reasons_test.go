package apistorage_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
	storeerr "k8s.io/apiserver/pkg/storage/errors"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/storetest"
	"github.com/sqube/sqube/test/engines"
	"github.com/sqube/sqube/test/harness"
)

// TestFailuresAreTheServers makes every part below the registry fail in every way it can, the database also after a commit.
// Whatever the request, the response is a server error with a reason: an error without one might be blamed on the client.
func TestFailuresAreTheServers(t *testing.T) {
	t.Parallel()
	part := errors.New("injected failure")
	var present atomic.Pointer[faults]
	fail := func(with faults) { present.Store(&with) }
	fail(faults{})
	faulty := &storetest.Intercepted{
		Engine:       storetest.OpenEngine(t, engines.SQLite(t)),
		BeforeQuery:  func(context.Context, string) error { return present.Load().query },
		BeforeCommit: func([]dialect.Write) error { return present.Load().before },
		AfterCommit: func([]dialect.Write) error {
			faults := present.Load()
			if faults.committed != nil {
				faults.committed()
			}
			return faults.after
		},
	}
	f := newFixtureOn(t, storetest.Start(t, faulty, sqlstore.Options{CacheBytes: sqlstore.NoCache, Log: slog.New(slog.DiscardHandler)}))
	f.Transformer = trimmed{} // what is encrypted has no labels
	whole := f.Config
	create := func(name string) error {
		pod := &example.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		return storeerr.InterpretCreateError(f.Create(t.Context(), "/pods/ns/"+name, pod, &example.Pod{}, 0), f.GroupResource, name)
	}
	requests := map[string]func(name string) error{
		"create": func(name string) error { return create("new-" + name) },
		"get": func(name string) error {
			return storeerr.InterpretGetError(f.Get(t.Context(), "/pods/ns/"+name, storage.GetOptions{}, &example.Pod{}), f.GroupResource, name)
		},
		"list": func(string) error {
			err := f.GetList(t.Context(), "/pods", storage.ListOptions{Recursive: true, Predicate: storage.Everything}, &example.PodList{})
			return storeerr.InterpretListError(err, f.GroupResource)
		},
		"update": func(name string) error {
			err := f.GuaranteedUpdate(t.Context(), "/pods/ns/"+name, &example.Pod{}, false, nil, storage.SimpleUpdate(func(obj runtime.Object) (runtime.Object, error) {
				obj.(*example.Pod).Labels = map[string]string{"updated": "true"}
				return obj, nil
			}), nil)
			return storeerr.InterpretUpdateError(err, f.GroupResource, name)
		},
		"delete": func(name string) error {
			err := f.Delete(t.Context(), "/pods/ns/"+name, &example.Pod{}, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{})
			return storeerr.InterpretDeleteError(err, f.GroupResource, name)
		},
	}
	reads := []string{"get", "list", "update", "delete"}
	writes := []string{"create", "update", "delete"}
	for _, fault := range []struct {
		name  string
		hits  []string
		begin func()
	}{
		{"nothing can be encoded", []string{"create", "update"}, func() { f.Codec = faultyCodec{Codec: whole.Codec, encode: part} }},
		{"nothing can be decoded", append(reads, "create"), func() { f.Codec = faultyCodec{Codec: whole.Codec, decode: part} }},
		{"nothing can be encrypted", []string{"create", "update"}, func() { f.Transformer = faultyTransformer{whole.Transformer, part, nil} }},
		{"nothing can be decrypted", reads, func() { f.Transformer = faultyTransformer{whole.Transformer, nil, part} }},
		{"nothing has labels", []string{"create", "update"}, func() {
			f.Attributes = func(runtime.Object) (labels.Set, fields.Set, error) { return nil, nil, part }
		}},
		{"reading is unavailable", reads, func() { fail(faults{query: failure(dialect.ErrUnavailable, part)}) }},
		{"reading is damaged", reads, func() { fail(faults{query: failure(dialect.ErrCorrupt, part)}) }},
		{"reading is refused", reads, func() { fail(faults{query: failure(nil, part)}) }},
		{"reading takes too long", reads, func() { fail(faults{query: context.DeadlineExceeded}) }},
		{"writing is unavailable", writes, func() { fail(faults{before: failure(dialect.ErrUnavailable, part)}) }},
		{"the disk is full", writes, func() { fail(faults{before: failure(dialect.ErrFull, part)}) }},
		{"writing is refused", writes, func() { fail(faults{before: failure(nil, part)}) }},
		{"the connection breaks after the commit", writes, func() { fail(faults{after: failure(dialect.ErrUnavailable, part)}) }},
		{"the commit returns damage", writes, func() { fail(faults{after: failure(dialect.ErrCorrupt, part)}) }},
		{"the commit is refused", writes, func() { fail(faults{after: failure(nil, part)}) }},
		{"the commit returns an error that is not an engine's", writes, func() { fail(faults{after: part}) }},
		{"what was committed can't be decoded", []string{"create", "update"}, func() {
			fail(faults{committed: func() { f.Codec = faultyCodec{Codec: whole.Codec, decode: apierrors.NewBadRequest("injected failure")} }})
		}},
		{"the commit takes too long", writes, func() { fail(faults{after: context.DeadlineExceeded}) }},
	} {
		for _, request := range fault.hits {
			t.Run(fault.name+"/"+request, func(t *testing.T) {
				// Each has its own object: some of the writes take effect.
				name := fmt.Sprintf("%x", t.Name())
				harness.Must(t, create(name))
				fault.begin()
				defer func() { f.Config = whole; fail(faults{}) }()
				err := requests[request](name)
				status, ok := err.(apierrors.APIStatus)
				if !ok || status.Status().Code < 500 || status.Status().Reason == metav1.StatusReasonUnknown {
					t.Errorf("got %T %v", err, err)
				}
			})
		}
	}
}

func failure(class, cause error) error {
	if class != nil {
		cause = fmt.Errorf("%w: %w", class, cause)
	}
	return &dialect.Error{Op: "test", Engine: "faulty", Err: cause}
}

// faults are the errors of an engine.
type faults struct {
	query         error
	before, after error // of a commit
	committed     func()
}

type faultyCodec struct {
	runtime.Codec
	encode, decode error
}

// Encode implements runtime.Encoder.
func (c faultyCodec) Encode(obj runtime.Object, w io.Writer) error {
	if c.encode != nil {
		return c.encode
	}
	return c.Codec.Encode(obj, w)
}

// Decode implements runtime.Decoder.
func (c faultyCodec) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if c.decode != nil {
		return nil, nil, c.decode
	}
	return c.Codec.Decode(data, defaults, into)
}

type faultyTransformer struct {
	value.Transformer
	to, from error
}

// TransformToStorage implements value.Write.
func (f faultyTransformer) TransformToStorage(ctx context.Context, data []byte, key value.Context) ([]byte, error) {
	if f.to != nil {
		return nil, f.to
	}
	return f.Transformer.TransformToStorage(ctx, data, key)
}

// TransformFromStorage implements value.Read.
func (f faultyTransformer) TransformFromStorage(ctx context.Context, data []byte, key value.Context) ([]byte, bool, error) {
	if f.from != nil {
		return nil, false, f.from
	}
	return f.Transformer.TransformFromStorage(ctx, data, key)
}
