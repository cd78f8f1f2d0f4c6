package sqlstore

import (
	"bytes"
	"sync"
	"sync/atomic"
)

// encodings are the values of rows in the encoding that readers want, such as protobuf: at most one for each row in memory. An
// encoding is dropped with its row, or when the cache needs its memory.
type encodings struct {
	mu         sync.RWMutex
	byRevision map[int64][]byte
	bytes      atomic.Int64
}

// encodingOverhead is roughly the memory of an encoding besides its bytes.
const encodingOverhead = 64

// Encoding returns the encoding kept for the row of that revision, or nil. It must not be changed.
func (s *Store) Encoding(revision int64) []byte {
	if s == nil {
		return nil // for objects that are not in a store
	}
	e := &s.cache.encodings
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.byRevision[revision]
}

// KeepEncoding keeps a copy of an encoding of a row's value for as long as the row is in memory with its value, and returns the
// copy, or nil if there is no room.
func (s *Store) KeepEncoding(resource Resource, r *Record, encoding []byte) []byte {
	c := s.cache
	c.mu.Lock()
	defer c.mu.Unlock()
	size := int64(len(encoding)) + encodingOverhead
	col := c.collections[resource]
	if col == nil || col.rows == nil || col.bare || c.size()+size > c.budget {
		return nil
	}
	if row, ok := col.rows.Get(r); !ok || row.Revision != r.Revision {
		return nil
	}
	kept := bytes.Clone(encoding)
	c.encodings.put(r.Revision, kept)
	return kept
}

func (e *encodings) put(revision int64, encoding []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.remove(revision)
	if e.byRevision == nil {
		e.byRevision = map[int64][]byte{}
	}
	e.byRevision[revision] = encoding
	e.bytes.Add(int64(len(encoding)) + encodingOverhead)
}

func (e *encodings) drop(revision int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.remove(revision)
}

// remove is drop for a caller that holds e.mu.
func (e *encodings) remove(revision int64) {
	if encoding, ok := e.byRevision[revision]; ok {
		delete(e.byRevision, revision)
		e.bytes.Add(-int64(len(encoding)) - encodingOverhead)
	}
}

// shrink drops encodings until they take no more than that many bytes.
func (e *encodings) shrink(to int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for revision := range e.byRevision {
		if e.bytes.Load() <= max(to, 0) {
			return
		}
		e.remove(revision)
	}
}
