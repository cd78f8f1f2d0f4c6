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

// The stored JSON of a custom resource is not always what must be sent: reading it drops fields that the schema no longer has,
// adds new defaults, repairs metadata and converts other versions. So each row is decoded and encoded once, when it is written or
// first read. If the result is the stored bytes with only the resourceVersion added, the row is exact: from then on its bytes are
// sent, and its JSON is decoded without the schema.
//
// A Storage lives as long as its definition does not change, so an exact row stays exact for as long as the Storage is in use.
// Nothing is assumed about rows written by another process or under an older schema.

// exactRows are the rows known to be exact, up to a limit. All Storages of a Decorator share them. Rows that are read move into
// the young generation. When that is full it becomes the old one, and the old one is dropped: its rows will be checked again.
type exactRows struct {
	mu         sync.Mutex
	young, old map[int64]exactNote // by revision
}

// exactNote describes an exact row: the id of the Storage that checked it, and the offset in the JSON where the resourceVersion
// belongs. 0 means none. It is the Note of rows that this process wrote.
type exactNote uint64

func (s *Storage) noteAt(offset int) exactNote { return exactNote(s.id)<<32 | exactNote(offset) }

// offset returns the offset, or false if another Storage checked the row.
func (n exactNote) offset(s *Storage) (int, bool) { return int(uint32(n)), n>>32 == exactNote(s.id) }

// exactGeneration is how many rows each of the two generations has, at about 30 bytes each.
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

// offset returns where the resourceVersion belongs in the JSON of the row with that revision, if the row is known to be exact.
func (s *Storage) offset(revision int64) (int, bool) {
	if s.exact == nil {
		return 0, false
	}
	return s.exact.get(revision).offset(s)
}

// takeNote records that the row is exact if its writer's note says so.
func (s *Storage) takeNote(r *sqlstore.Record) {
	if r.Note == 0 || s.exact == nil {
		return
	}
	if _, mine := exactNote(r.Note).offset(s); mine && s.exact.get(r.Revision) != exactNote(r.Note) {
		s.exact.put(r.Revision, exactNote(r.Note))
	}
}

// checkExact determines whether a row is exact. obj is its JSON decoded with the schema, with the revision of the row.
func (s *Storage) checkExact(data []byte, obj runtime.Object, revision int64) {
	if s.exact == nil {
		return
	}
	if offset := findOffset(data, obj, revision); offset >= 0 {
		s.exact.put(revision, s.noteAt(offset))
	}
}

// decodeAhead decodes the JSON of a custom resource that is about to be written into the object that its writer will get, and
// returns the note for the row. So the note is known before the row is first read.
func (s *Storage) decodeAhead(data []byte, into runtime.Object, key string) (note uint64, err error) {
	if s.exact == nil || into == nil {
		return 0, nil
	}
	const revision = 1
	if _, _, err = s.Codec.Decode(data, nil, into); err == nil {
		err = s.versioner.UpdateObject(into, revision)
	}
	if err != nil {
		return 0, apierrors.NewInternalError(fmt.Errorf("the object to be written at key %q can't be read back: %w", key, err))
	}
	if offset := findOffset(data, into, revision); offset >= 0 {
		note = uint64(s.noteAt(offset))
	}
	return note, nil
}

// findOffset returns where to insert the resourceVersion into data to get the JSON of obj, which has that revision, or -1.
func findOffset(data []byte, obj runtime.Object, revision int64) int {
	encoded, err := runtime.Encode(unstructured.UnstructuredJSONScheme, obj)
	if err != nil {
		return -1
	}
	return insertOffset(data, bytes.TrimSuffix(encoded, []byte("\n")), (&Raw{revision: revision}).appendRevision(nil))
}

// insertOffset returns where to insert text into data to get whole, or -1.
func insertOffset(data, whole, text []byte) int {
	if len(whole) != len(data)+len(text) {
		return -1
	}
	same := 0
	for same < len(data) && data[same] == whole[same] {
		same++
	}
	// What follows the offset may begin like text.
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

// decodeExact decodes the JSON of a row if it is known to be exact.
func (s *Storage) decodeExact(data []byte, into runtime.Object, revision int64) (done bool, err error) {
	if _, ok := into.(*unstructured.Unstructured); !ok {
		return false, nil
	}
	if _, ok := s.offset(revision); !ok {
		return false, nil
	}
	_, _, err = unstructured.UnstructuredJSONScheme.Decode(data, nil, into)
	return true, err
}
