package apistorage

import (
	"bytes"
	"sync"
	"sync/atomic"

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

// exactRows are the rows that were found to be exact, with the place where the
// resourceVersion is put in. All Storages of a Decorator share one. It holds so
// many rows at the most. What is read moves into the young generation; when that
// is full it becomes the old one, and the one before is forgotten: its rows are
// checked again.
type exactRows struct {
	mu         sync.Mutex
	young, old map[int64]exactRow // by revision
}

type exactRow struct {
	storage uint32 // Storage.id of who found it
	cut     uint32
}

// exactGeneration is how many rows are in each of the two generations, of about
// 30 bytes each.
const exactGeneration = 1 << 17

func newExactRows() *exactRows { return &exactRows{young: map[int64]exactRow{}} }

func (e *exactRows) get(storage uint32, revision int64) (cut int, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	row, ok := e.young[revision]
	if !ok {
		if row, ok = e.old[revision]; ok {
			e.putLocked(revision, row)
		}
	}
	return int(row.cut), ok && row.storage == storage
}

func (e *exactRows) put(revision int64, row exactRow) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.putLocked(revision, row)
}

func (e *exactRows) putLocked(revision int64, row exactRow) {
	if len(e.young) >= exactGeneration {
		e.old, e.young = e.young, map[int64]exactRow{}
	}
	e.young[revision] = row
}

var lastStorage atomic.Uint32

// custom says whether the resource's objects are custom resources.
func (c *Config) custom() bool {
	_, ok := c.NewObject().(*unstructured.Unstructured)
	return ok
}

// cut returns where in the JSON of the row with that revision the
// resourceVersion is put in, if the row is known to be exact.
func (s *Storage) cut(revision int64) (int, bool) {
	if s.exact == nil {
		return 0, false
	}
	return s.exact.get(s.id, revision)
}

// learn compares the JSON of the object with what it was encoded to in full.
func (o *Raw) learn(encoded []byte) {
	if o.storage.exact == nil {
		return
	}
	if cut := cutOf(o.data, encoded, o.appendRevision(nil)); cut >= 0 {
		o.storage.exact.put(o.record.Revision, exactRow{o.storage.id, uint32(cut)})
	}
}

// answer is readBack of a row that was written just now.
func (s *Storage) answer(data []byte, into runtime.Object, revision int64, key string) error {
	if err := s.readBack(data, into, revision, key); err != nil || s.exact == nil {
		return err
	}
	if encoded, err := runtime.Encode(unstructured.UnstructuredJSONScheme, into); err == nil {
		o := Raw{storage: s, record: &sqlstore.Record{Revision: revision}, revision: revision, data: data}
		o.learn(bytes.TrimSuffix(encoded, []byte("\n")))
	}
	return nil
}

// cutOf returns where text has to be put into data to make whole, or -1.
func cutOf(data, whole, text []byte) int {
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
	cut := begin + i
	if !bytes.Equal(whole[cut+len(text):], data[cut:]) {
		return -1
	}
	return cut
}

// decodeExact decodes the JSON of a row that is known to be exact.
func (s *Storage) decodeExact(data []byte, into runtime.Object, revision int64) (done bool, err error) {
	if s.exact == nil {
		return false, nil
	}
	if _, ok := into.(*unstructured.Unstructured); !ok {
		return false, nil
	}
	if _, ok := s.cut(revision); !ok {
		return false, nil
	}
	_, _, err = unstructured.UnstructuredJSONScheme.Decode(data, nil, into)
	return true, err
}
