package apistorage

import (
	"bytes"
	"fmt"
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sqube/sqube/sqlstore"
)

// The JSON of a custom resource is not always what is to be sent: reading it
// drops fields that the schema no longer has, adds defaults that are new,
// repairs metadata and converts other versions. So each row is decoded and
// encoded in full once, when it is written or first read. If that gives the
// stored bytes with nothing but the resourceVersion put in, the row is exact:
// from then on its bytes are sent, and its JSON is decoded without the schema.
//
// A Storage lives as long as its definition stays as it is, so what it has found
// out about a row holds for as long as the Storage is in use. Nothing is assumed
// of rows that another process or an older schema has written.

// exactRows are the rows that were found to be exact. All Storages of a Decorator
// share one. It holds so many rows at the most. What is read moves into the
// young generation; when that is full it becomes the old one, and the one before
// is forgotten: its rows are checked again.
type exactRows struct {
	mu         sync.Mutex
	young, old map[int64]exactNote // by revision
}

// exactNote is what is known of an exact row: by the Storage of which id, and
// where in the JSON the resourceVersion is put in. 0 is none. It is the note of
// rows that were written here.
type exactNote uint64

func (s *Storage) noteAt(offset int) exactNote { return exactNote(s.id)<<32 | exactNote(offset) }

// offset returns the place, or false where another Storage has found it.
func (n exactNote) offset(s *Storage) (int, bool) { return int(uint32(n)), n>>32 == exactNote(s.id) }

// exactGeneration is how many rows are in each of the two generations, of about
// 30 bytes each.
const exactGeneration = 1 << 17

func newExactRows() *exactRows { return &exactRows{young: map[int64]exactNote{}} }

func (e *exactRows) get(revision int64) exactNote {
	e.mu.Lock()
	defer e.mu.Unlock()
	note, ok := e.young[revision]
	if !ok {
		if note, ok = e.old[revision]; ok {
			e.putLocked(revision, note)
		}
	}
	return note
}

func (e *exactRows) put(revision int64, note exactNote) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.putLocked(revision, note)
}

func (e *exactRows) putLocked(revision int64, note exactNote) {
	if len(e.young) >= exactGeneration {
		e.old, e.young = e.young, map[int64]exactNote{}
	}
	e.young[revision] = note
}

var lastStorage atomic.Uint32

// custom says whether the resource's objects are custom resources.
func (c *Config) custom() bool {
	_, ok := c.NewObject().(*unstructured.Unstructured)
	return ok
}

// offset returns where in the JSON of the row with that revision the
// resourceVersion is put in, if the row is known to be exact.
func (s *Storage) offset(revision int64) (int, bool) {
	if s.exact == nil {
		return 0, false
	}
	return s.exact.get(revision).offset(s)
}

// takeNote takes over what the writer of a row knows of it.
func (s *Storage) takeNote(r *sqlstore.Record) {
	if r.Note == 0 || s.exact == nil {
		return
	}
	if _, mine := exactNote(r.Note).offset(s); mine && s.exact.get(r.Revision) != exactNote(r.Note) {
		s.exact.put(r.Revision, exactNote(r.Note))
	}
}

// checkExact compares the JSON of a row with the object that it was decoded to by the
// schema, as of the row's revision.
func (s *Storage) checkExact(data []byte, obj runtime.Object, revision int64) {
	if s.exact == nil {
		return
	}
	if offset := findOffset(data, obj, revision); offset >= 0 {
		s.exact.put(revision, s.noteAt(offset))
	}
}

// decodeAhead decodes the JSON of a custom resource, which is about to be written,
// into what its writer will be answered with, and returns the note for the row.
// So it is known before anyone reads the row.
func (s *Storage) decodeAhead(data []byte, into runtime.Object, key string) (note uint64, err error) {
	if s.exact == nil || into == nil {
		return 0, nil
	}
	const revision = 1
	if _, _, err = s.Codec.Decode(data, nil, into); err == nil {
		err = s.versioner.UpdateObject(into, revision)
	}
	if err != nil {
		return 0, apierrors.NewInternalError(fmt.Errorf("what would be written at key %q can't be read: %w", key, err))
	}
	if offset := findOffset(data, into, revision); offset >= 0 {
		note = uint64(s.noteAt(offset))
	}
	return note, nil
}

// findOffset returns where the resourceVersion is put into data to make the JSON of
// obj, which has that revision, or -1.
func findOffset(data []byte, obj runtime.Object, revision int64) int {
	encoded, err := runtime.Encode(unstructured.UnstructuredJSONScheme, obj)
	if err != nil {
		return -1
	}
	return insertOffset(data, bytes.TrimSuffix(encoded, []byte("\n")), (&Raw{revision: revision}).appendRevision(nil))
}

// insertOffset returns where text has to be put into data to make whole, or -1.
func insertOffset(data, whole, text []byte) int {
	if len(whole) != len(data)+len(text) {
		return -1
	}
	same := 0
	for same < len(data) && data[same] == whole[same] {
		same++
	}
	// What follows the place may begin like the text.
	begin := max(0, same-len(text))
	i := bytes.Index(whole[begin:min(len(whole), same+len(text))], text)
	if i < 0 {
		return -1
	}
	offset := begin + i
	if !bytes.Equal(whole[offset+len(text):], data[offset:]) {
		return -1
	}
	return offset
}

// decodeExact decodes the JSON of a row that is known to be exact.
func (s *Storage) decodeExact(data []byte, into runtime.Object, revision int64) (done bool, err error) {
	if s.exact == nil {
		return false, nil
	}
	if _, ok := into.(*unstructured.Unstructured); !ok {
		return false, nil
	}
	if _, ok := s.offset(revision); !ok {
		return false, nil
	}
	_, _, err = unstructured.UnstructuredJSONScheme.Decode(data, nil, into)
	return true, err
}
