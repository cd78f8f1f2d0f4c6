package apistorage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/utils/ptr"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore"
)

// Create implements storage.Interface.
func (s *Storage) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) (err error) {
	defer ensureReason(&err)
	ctx, span := s.span(ctx, "Create sqlstore", key)
	defer span.End()
	row, full, err := s.rowKey(key, false)
	if err != nil {
		return err
	}
	if version, err := s.versioner.ObjectResourceVersion(obj); err == nil && version != 0 {
		return badRequest(storage.ErrResourceVersionSetOnCreate)
	}
	if err := s.versioner.PrepareObjectForStorage(obj); err != nil {
		return fmt.Errorf("preparing %q for storage: %w", full, err)
	}
	data, err := s.encode(obj)
	if err != nil {
		return err
	}
	note, err := s.decodeAhead(data, out, full)
	if err != nil {
		return err
	}
	record, err := s.put(ctx, row, full, obj, data, nil, ttl, note)
	if errors.Is(err, sqlstore.ErrConflict) {
		return storage.NewKeyExistsError(full, 0)
	}
	if err != nil {
		return err
	}
	if out == nil {
		return nil
	}
	return s.answer(ctx, record, full, data, obj, out)
}

// maxKeyBytes fits into an index entry on every engine. Only a few resources allow names that long; the others limit them to 253
// bytes.
const maxKeyBytes = 2048

// put replaces previous, or creates the object if previous is nil, and returns the record written. data is obj encoded. It
// returns sqlstore.ErrConflict if previous is not the current version.
func (s *Storage) put(ctx context.Context, row, full string, obj runtime.Object, data []byte, previous *sqlstore.Record, ttl, note uint64) (*sqlstore.Record, error) {
	w, err := s.prepare(ctx, row, full, obj, data, previous)
	if err != nil {
		return nil, err
	}
	w.Note = note
	w.Heartbeat = s.store.HoldsHeartbeats() && isHeartbeat(w)
	if ttl != 0 {
		w.ExpiresAt = time.Now().Add(time.Duration(ttl) * time.Second).UnixMilli()
	}
	revision, err := s.write(ctx, w)
	if err != nil {
		return nil, err
	}
	return &sqlstore.Record{Revision: revision, Key: row, Labels: w.Labels, Fields: w.Fields, Value: w.Value, Note: note}, nil
}

// prepare returns the write that put commits.
func (s *Storage) prepare(ctx context.Context, row, full string, obj runtime.Object, data []byte, previous *sqlstore.Record) (w *sqlstore.Write, err error) {
	defer ensureReason(&err)
	if len(row) > maxKeyBytes {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("metadata.name: may not be more than %d bytes, together with the namespace", maxKeyBytes))
	}
	if !storable(row) {
		return nil, errName
	}
	value, err := s.seal(ctx, data, full)
	if err != nil {
		return nil, storage.NewInternalError(err)
	}
	operation := dialect.Update
	if previous == nil {
		operation = dialect.Create
	}
	w = s.change(operation, row, obj, previous)
	w.Value = value
	if isSealed(value) {
		w.Labels, w.Fields = sqlstore.Withheld, sqlstore.Withheld
	} else {
		labels, fields, err := s.attributes(obj)
		if err != nil {
			return nil, err
		}
		w.Labels, w.Fields = sqlstore.EncodeSet(labels), sqlstore.EncodeSet(fields)
	}
	return w, nil
}

// change returns a write without a value. obj, which may be nil, has the UID.
func (s *Storage) change(operation dialect.Operation, row string, obj runtime.Object, previous *sqlstore.Record) *sqlstore.Write {
	w := &sqlstore.Write{Operation: operation, Resource: s.resource, Key: row, Previous: previous, Labels: "{}", Fields: "{}"}
	w.Namespace, w.Name = split(row)
	if accessor, err := meta.Accessor(obj); err == nil {
		w.UID = string(accessor.GetUID())
	}
	return w
}

func (s *Storage) write(ctx context.Context, w *sqlstore.Write) (int64, error) {
	revision, err := s.store.Write(ctx, w)
	if errors.Is(err, sqlstore.ErrConflict) {
		return 0, err
	}
	if err == nil {
		setCommitted(ctx)
	}
	return revision, ClientError(err)
}

// state is what is stored at a key. If there is nothing, record is nil and object is empty.
type state struct {
	record *sqlstore.Record
	object runtime.Object
	data   []byte
	stale  bool
}

// current reads the state at a key, with a new object of the type of sample.
func (s *Storage) current(ctx context.Context, row, full string, sample runtime.Object) (st *state, err error) {
	defer ensureReason(&err)
	r, _, err := s.get(ctx, row)
	if err != nil {
		return nil, err
	}
	st = &state{record: r}
	v, err := conversion.EnforcePtr(sample)
	if err != nil {
		return nil, err
	}
	if u, ok := sample.(runtime.Unstructured); ok {
		st.object = u.NewEmptyInstance()
	} else {
		st.object = reflect.New(v.Type()).Interface().(runtime.Object)
	}
	if r == nil {
		return st, runtime.SetZeroValue(st.object)
	}
	st.data, st.stale, err = s.open(ctx, r, full, st.object)
	return st, err
}

// GuaranteedUpdate implements storage.Interface. The cached object that callers may pass is ignored: reading the row costs less
// than encoding that object.
func (s *Storage) GuaranteedUpdate(ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, tryUpdate storage.UpdateFunc, _ runtime.Object,
) error {
	ctx, span := s.span(ctx, "Update sqlstore", key)
	defer span.End()
	row, full, err := s.rowKey(key, false)
	if err != nil {
		return err
	}
	for {
		st, err := s.current(ctx, row, full, destination)
		if err != nil {
			return err
		}
		if st.record == nil && !ignoreNotFound {
			return storage.NewKeyNotFoundError(full, 0)
		}
		if err := preconditions.Check(full, st.object); err != nil {
			return err
		}
		var was storage.ResponseMeta
		if st.record != nil {
			was.ResourceVersion = uint64(st.record.Revision)
		}
		updated, ttl, err := tryUpdate(st.object, was)
		if err != nil {
			return err
		}
		if err := s.versioner.PrepareObjectForStorage(updated); err != nil {
			return apierrors.NewInternalError(fmt.Errorf("preparing %q for storage: %w", full, err))
		}
		data, err := s.encode(updated)
		if err != nil {
			return err
		}
		if !st.stale && bytes.Equal(data, st.data) {
			if s.exact != nil {
				return s.readBack(data, destination, st.record.Revision, full)
			}
			return s.answer(ctx, st.record, full, data, updated, destination)
		}
		note, err := s.decodeAhead(data, destination, full)
		if err != nil {
			return err
		}
		record, err := s.put(ctx, row, full, updated, data, st.record, ptr.Deref(ttl, 0), note)
		if errors.Is(err, sqlstore.ErrConflict) {
			continue // another writer was faster: retry on what it wrote
		}
		if err != nil {
			return err
		}
		return s.answer(ctx, record, full, data, updated, destination)
	}
}

// Delete implements storage.Interface. out becomes the last version of the object, with the revision of its deletion.
func (s *Storage) Delete(ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validateDeletion storage.ValidateObjectFunc, _ runtime.Object, opts storage.DeleteOptions,
) error {
	ctx, span := s.span(ctx, "Delete sqlstore", key)
	defer span.End()
	row, full, err := s.rowKey(key, false)
	if err != nil {
		return err
	}
	corrupt := opts.ExpectTransformOrDecodeError && utilfeature.DefaultFeatureGate.Enabled(features.AllowUnsafeMalformedObjectDeletion)
	for {
		st, err := s.current(ctx, row, full, out)
		if corrupt && err == nil && st.record != nil {
			return storage.NewInvalidObjError(full, "unsafe deletion is not allowed because the object is decodable from storage")
		}
		if corrupt && storage.IsCorruptObject(err) {
			st.object, err = nil, nil
		}
		if err != nil {
			return err
		}
		if st.record == nil {
			return storage.NewKeyNotFoundError(full, 0)
		}
		if err := preconditions.Check(full, st.object); err != nil {
			return err
		}
		if err := validateDeletion(ctx, st.object); err != nil {
			return err
		}
		revision, err := s.write(ctx, s.change(dialect.Delete, row, st.object, st.record))
		if errors.Is(err, sqlstore.ErrConflict) {
			continue
		}
		if err != nil || corrupt {
			return err
		}
		if err := s.readBack(st.data, out, st.record.Revision, full); err != nil {
			return err
		}
		return s.setRevision(out, revision, full)
	}
}
