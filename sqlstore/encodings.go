package sqlstore

import (
	"bytes"
	"sync"
	"sync/atomic"
)

// encodings are the values of rows in the encoding that readers want, such as
// protobuf: at most one for each row in memory. An encoding is dropped with its
// row, or when the cache needs its memory.
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
	f := &s.cache.encodings
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.byRevision[revision]
}

// KeepEncoding keeps a copy of an encoding of a row's value for as long as the row is in memory with its value, and returns
// the copy, or nil if there is no room.
func (s *Store) KeepEncoding(resource Resource, r *Record, form []byte) []byte {
	c := s.cache
	c.mu.Lock()
	defer c.mu.Unlock()
	size := int64(len(form)) + encodingOverhead
	col := c.collections[resource]
	if col == nil || col.rows == nil || col.bare || c.size()+size > c.budget {
		return nil
	}
	if row, ok := col.rows.Get(r); !ok || row.Revision != r.Revision {
		return nil
	}
	kept := bytes.Clone(form)
	c.encodings.put(r.Revision, kept)
	return kept
}

func (f *encodings) put(revision int64, form []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.remove(revision)
	if f.byRevision == nil {
		f.byRevision = map[int64][]byte{}
	}
	f.byRevision[revision] = form
	f.bytes.Add(int64(len(form)) + encodingOverhead)
}

func (f *encodings) drop(revision int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.remove(revision)
}

// remove is drop for a caller that holds f.mu.
func (f *encodings) remove(revision int64) {
	if form, ok := f.byRevision[revision]; ok {
		delete(f.byRevision, revision)
		f.bytes.Add(-int64(len(form)) - encodingOverhead)
	}
}

// shrink drops encodings until they take no more than that many bytes.
func (f *encodings) shrink(to int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for revision := range f.byRevision {
		if f.bytes.Load() <= max(to, 0) {
			return
		}
		f.remove(revision)
	}
}
