// Package apistorage is k8s.io/apiserver's storage.Interface on the log of package sqlstore.
//
// A Storage serves one resource. It turns objects into rows and back with the resource's codec. Package sqlstore decides which
// rows, at which revision and in which order.
//
// Responses in the storage version are made of the stored JSON, without decoding it: see raw.go, and exact.go for custom
// resources. A watch is a goroutine: see watch.go.
package apistorage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/client-go/tools/cache"

	"github.com/sqube/sqube/sqlstore"
)

// Config describes a resource to be stored.
type Config struct {
	GroupResource schema.GroupResource
	// Prefix is the prefix of every key from a caller: a slash and everything up to the namespace or name, without a trailing
	// slash.
	Prefix string
	// Codec encodes objects in the storage version and decodes them.
	Codec runtime.Codec
	// Transformer encrypts and decrypts the output of the codec. Optional.
	Transformer value.Transformer
	// NewObject and NewList make empty objects to decode into.
	NewObject, NewList func() runtime.Object
	// Attributes returns the labels of an object and its selectable fields. It is nil if objects can be selected by labels only.
	Attributes storage.AttrFunc
}

// Storage implements storage.Interface for one resource.
type Storage struct {
	Config
	store     *sqlstore.Store
	resource  sqlstore.Resource
	versioner versioner
	// prefix is Config.Prefix with a trailing slash.
	prefix string
	// protobuf is nil for kinds without a generated protobuf encoding.
	protobuf *protobufKind
	// decodedBudget is for lists of objects, heldBudget for protobuf lists. They are shared by all storages of a Decorator.
	decodedBudget, heldBudget *Budget
	// exact is nil for built-in resources. It is shared in the same way.
	exact *exactRows
	id    uint32 // unique among Storages of custom resources
	// sized is set by EnableResourceSizeEstimation.
	sized bool
}

var _ storage.Interface = (*Storage)(nil)

// New returns the storage of a resource.
func New(store *sqlstore.Store, c Config) (*Storage, error) {
	if !strings.HasPrefix(c.Prefix, "/") || len(c.Prefix) < 2 || strings.HasSuffix(c.Prefix, "/") {
		return nil, fmt.Errorf("resource prefix %q of %s: want a slash and a path", c.Prefix, c.GroupResource)
	}
	if c.Transformer == nil {
		c.Transformer = identity.NewEncryptCheckTransformer()
	}
	s := &Storage{
		Config:        c,
		store:         store,
		resource:      sqlstore.Resource{Group: c.GroupResource.Group, Name: c.GroupResource.Resource},
		prefix:        c.Prefix + "/",
		decodedBudget: NewBudget(listBudgetBytes),
		heldBudget:    NewBudget(heldBudgetBytes),
	}
	if _, custom := c.NewObject().(*unstructured.Unstructured); custom {
		s.exact, s.id = newExactRows(), lastStorage.Add(1)
	}
	return s, nil
}

// Decorator returns the function by which generic.RESTOptions builds storages on store. kinds are the built-in kinds, or nil for
// none.
func Decorator(store *sqlstore.Store, kinds *Kinds) generic.StorageDecorator {
	return PartDecorator(store, kinds, 1)
}

// PartDecorator is Decorator for one store of many in a process: its long lists may use one part of so many of the memory.
func PartDecorator(store *sqlstore.Store, kinds *Kinds, parts int) generic.StorageDecorator {
	decodedBudget, heldBudget, exact := NewBudget(listBudgetBytes/parts), NewBudget(heldBudgetBytes/parts), newExactRows()
	return func(config *storagebackend.ConfigForResource, prefix string, _ func(runtime.Object) (string, error),
		newObject, newList func() runtime.Object, attributes storage.AttrFunc, _ storage.IndexerFuncs, _ *cache.Indexers,
	) (storage.Interface, factory.DestroyFunc, error) {
		s, err := New(store, Config{
			GroupResource: config.GroupResource,
			Prefix:        strings.TrimSuffix(prefix, "/"),
			Codec:         config.Codec,
			Transformer:   config.Transformer,
			NewObject:     newObject,
			NewList:       newList,
			Attributes:    attributes,
		})
		if err != nil {
			return nil, nil, err
		}
		s.decodedBudget, s.heldBudget = decodedBudget, heldBudget
		s.protobuf = kinds.protobufKindOf(newObject(), config.EncodeVersioner)
		if s.exact != nil {
			s.exact = exact
		}
		return s, func() {}, nil
	}
}

// versioner is upstream's, but an invalid resourceVersion in an object is a bad request: only clients send objects with one,
// stored objects have none.
type versioner struct{ storage.APIObjectVersioner }

// ObjectResourceVersion implements storage.Versioner.
func (v versioner) ObjectResourceVersion(obj runtime.Object) (uint64, error) {
	version, err := v.APIObjectVersioner.ObjectResourceVersion(obj)
	if err != nil {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("invalid resource version: %v", err))
	}
	return version, nil
}

// Versioner implements storage.Interface.
func (s *Storage) Versioner() storage.Versioner { return s.versioner }

// ReadinessCheck implements storage.Interface: an open log is ready. The health check tests whether its database can be reached.
func (s *Storage) ReadinessCheck() error { return nil }

// RequestWatchProgress implements storage.Interface. Watches always know their progress, so there is nothing to request.
func (s *Storage) RequestWatchProgress(context.Context) error { return nil }

// GetCurrentResourceVersion implements storage.Interface.
func (s *Storage) GetCurrentResourceVersion(ctx context.Context) (uint64, error) {
	at, err := s.store.Position(ctx)
	return uint64(at.Revision), ClientError(err)
}

// CompactRevision implements storage.Interface. It returns 0 if reading the database fails, since the interface has no error.
func (s *Storage) CompactRevision() int64 {
	at, err := s.store.Position(context.Background())
	if err != nil {
		return 0
	}
	return at.Compacted
}

// EnableResourceSizeEstimation implements storage.Interface. The database knows the sizes, so keys is not called.
func (s *Storage) EnableResourceSizeEstimation(keys storage.KeysFunc) error {
	if keys == nil {
		return errors.New("the function that lists keys is nil")
	}
	if s.sized {
		return errors.New("size estimation is already enabled")
	}
	s.sized = true
	return nil
}

// Stats implements storage.Interface.
func (s *Storage) Stats(ctx context.Context) (storage.Stats, error) {
	objects, bytes, err := s.store.Size(ctx, s.resource)
	stats := storage.Stats{ObjectCount: objects}
	if s.sized && objects > 0 {
		stats.EstimatedAverageObjectSizeBytes = bytes / objects
	}
	return stats, ClientError(err)
}

// rowKey returns, for a key from a caller, the key of the row or the prefix of the keys of rows: "namespace/name", or "name"
// without namespaces. full is that with Config.Prefix, as errors and continue tokens show it.
func (s *Storage) rowKey(key string, recursive bool) (row, full string, err error) {
	defer ensureReason(&err)
	full, err = storage.PrepareKey(s.prefix, key, recursive)
	if err != nil {
		return "", "", err
	}
	return strings.TrimPrefix(full, s.prefix), full, nil
}

// split splits the key of a row into namespace and name.
func split(row string) (namespace, name string) {
	if i := strings.LastIndexByte(row, '/'); i >= 0 {
		return row[:i], row[i+1:]
	}
	return "", row
}

// span starts the trace span of an operation, if requests are traced.
func (s *Storage) span(ctx context.Context, name, key string) (context.Context, trace.Span) {
	ctx, span := sqlstore.StartSpan(ctx, name)
	if span.IsRecording() {
		span.SetAttributes(attribute.String("resource", s.GroupResource.String()), attribute.String("key", key))
	}
	return ctx, span
}

// encode completes obj and returns its JSON in the storage version, without a resourceVersion: that is the id of the row.
func (s *Storage) encode(obj runtime.Object) (data []byte, err error) {
	defer ensureReason(&err)
	if s.protobuf != nil && s.protobuf.complete != nil {
		s.protobuf.complete(obj)
	}
	obj, kept, err := s.protobuf.keepJSON(obj)
	if err != nil {
		return nil, err
	}
	data, err = runtime.Encode(s.Codec, obj)
	if err != nil {
		return nil, err
	}
	if lossy(data) {
		return nil, errText
	}
	return kept.restore(bytes.TrimSuffix(data, []byte("\n")))
}

// decode decodes the output of encode into an object, with that revision.
func (s *Storage) decode(data []byte, into runtime.Object, revision int64) error {
	_, err := s.decodeParts(data, into, revision, false)
	return err
}

// decodeParts is decode, but with cells it may leave out what no cell of a Table shows. asStored reports that the metadata of the
// object are known to be as stored.
func (s *Storage) decodeParts(data []byte, into runtime.Object, revision int64, cells bool) (asStored bool, err error) {
	if _, err := conversion.EnforcePtr(into); err != nil {
		return false, err
	}
	var encoding []byte
	if s.protobuf != nil {
		encoding = s.store.Encoding(revision)
	}
	done, asStored, err := s.protobuf.decode(data, encoding, into, revision, cells)
	if err == nil && !done {
		done, err = s.decodeExact(data, into, revision)
	}
	if err == nil && !done {
		_, _, err = s.Codec.Decode(data, nil, into)
	}
	if err == nil {
		err = s.versioner.UpdateObject(into, uint64(revision))
	}
	if err == nil && !done {
		s.checkExact(data, into, revision)
	}
	return asStored, err
}

// readBack decodes data that was written, to return it as of a revision. After a commit, no error is the client's fault.
func (s *Storage) readBack(data []byte, into runtime.Object, revision int64, key string) error {
	return afterCommit(s.decode(data, into, revision), key)
}

// setRevision sets the revision of an object whose write has been committed.
func (s *Storage) setRevision(obj runtime.Object, revision int64, key string) error {
	return afterCommit(s.versioner.UpdateObject(obj, uint64(revision)), key)
}

// open unseals and decodes a record into an object.
func (s *Storage) open(ctx context.Context, r *sqlstore.Record, key string, into runtime.Object) (data []byte, stale bool, err error) {
	data, stale, err = s.unseal(ctx, r, key)
	if err != nil {
		return nil, false, err
	}
	if err := s.decode(data, into, r.Revision); err != nil {
		return nil, false, s.undecodable(r, key, err)
	}
	return data, stale, nil
}

// view decodes a record for a reader. For a PartialObjectMetadata, it decodes only the metadata.
func (s *Storage) view(ctx context.Context, r *sqlstore.Record, key string, into runtime.Object) error {
	if partial, ok := into.(*metav1.PartialObjectMetadata); ok {
		return s.viewMetadata(ctx, r, key, partial)
	}
	_, _, err := s.open(ctx, r, key, into)
	return err
}

// attributes returns the labels and fields by which obj can be selected.
func (s *Storage) attributes(obj runtime.Object) (labels.Set, fields.Set, error) {
	if s.Attributes != nil {
		return s.Attributes(obj)
	}
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return nil, nil, err
	}
	return accessor.GetLabels(), nil, nil
}
