package sqlstore

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/btree"
)

// index orders the keys of a collection by the values of one label or field, so that the cost of a selection depends on what it
// selects. Rows whose value is unknown are under unknownValue; rows without the label are not in the index.
//
// It is made from a snapshot when a selection first needs it, concurrently with writes, and then follows the changes. Most
// changes affect no labels or fields, and so no index.
type index struct {
	keys  *btree.BTreeG[valueKey]
	bytes int64
	used  time.Time // the last time
}

// valueKey is one row in an index.
type valueKey struct {
	value string // as JSON, or unknownValue
	key   string
}

func byValue(a, b valueKey) bool {
	if a.value != b.value {
		return a.value < b.value
	}
	return a.key < b.key
}

const (
	// indexFrom is how many rows a query must look at for an index to pay off.
	indexFrom = 64
	// rowByKey is how many times longer it takes to find a row by key than to reach it in a scan.
	rowByKey = 3
	// maxIndexes limits the indexes of a collection by labels, and those by fields: clients must not be able to exhaust the
	// memory.
	maxIndexes = 8
	// idleIndex is how long an index must be unused before another may replace it: making one costs more than a selection without
	// it.
	idleIndex = time.Minute
	// indexOverhead is roughly the memory of a row in an index besides its strings.
	indexOverhead = 64
)

func newTree[T any](less func(a, b T) bool) *btree.BTreeG[T] {
	return btree.NewBTreeGOptions(less, btree.Options{Degree: treeDegree, NoLocks: true})
}

func (k valueKey) memory() int64 { return int64(len(k.value)+len(k.key)) + indexOverhead }

func newIndex(rows *btree.BTreeG[*Record], a attr) *index {
	keys := map[string][]string{} // by value, in order
	rows.Scan(func(r *Record) bool {
		if value, has := a.of(r); has {
			keys[value] = append(keys[value], r.Key)
		}
		return true
	})
	x := &index{keys: newTree(byValue)}
	for _, value := range slices.Sorted(maps.Keys(keys)) {
		own := strings.Clone(value) // value is a substring of all of a row's labels, and would keep them in memory
		for _, key := range keys[value] {
			k := valueKey{own, key}
			x.keys.Load(k)
			x.bytes += k.memory()
		}
	}
	return x
}

// change updates the index for a row that was replaced; nil for none.
func (x *index) change(a attr, before, after *Record) {
	if before != nil && after != nil && before.Labels == after.Labels && before.Fields == after.Fields {
		return
	}
	var had, has valueKey
	var did, does bool
	if before != nil {
		had.key = before.Key
		had.value, did = a.of(before)
	}
	if after != nil {
		has.key = after.Key
		has.value, does = a.of(after)
	}
	if did == does && had == has {
		return
	}
	if did {
		x.keys.Delete(had)
		x.bytes -= had.memory()
	}
	if does {
		has.value = x.kept(has.value)
		x.keys.Set(has)
		x.bytes += has.memory()
	}
}

// kept returns a copy of value, the one already in the index if possible.
func (x *index) kept(value string) string {
	kept := ""
	x.keys.Ascend(valueKey{value: value}, func(k valueKey) bool {
		kept = k.value
		return false
	})
	if kept == value {
		return kept
	}
	return strings.Clone(value)
}

type indexing struct {
	missed []rowChange // since the snapshot it is made from
}

// rowChange is a row before and after a change; nil for none.
type rowChange struct{ before, after *Record }

// findIndex returns the index of a snapshot by a, or nil if there is none.
func (c *cache) findIndex(resource Resource, snap *snapshot, a attr) *btree.BTreeG[valueKey] {
	c.mu.Lock()
	defer c.mu.Unlock()
	if col := c.collections[resource]; col != nil && col.indexes[a] != nil {
		col.indexes[a].used = time.Now()
	}
	return snap.indexes[a]
}

// makeIndex makes the index of a snapshot by a. It returns nil if it can't: the snapshot is no longer the newest, or there is no
// room.
func (c *cache) makeIndex(resource Resource, snap *snapshot, a attr) *btree.BTreeG[valueKey] {
	begun := c.beginIndex(resource, snap, a)
	if begun == nil {
		return nil
	}
	return c.endIndex(resource, snap, a, begun, newIndex(snap.rows, a))
}

// endIndex keeps the index of a snapshot by a if there is room, and returns its state for the snapshot.
func (c *cache) endIndex(resource Resource, snap *snapshot, a attr, begun *indexing, x *index) *btree.BTreeG[valueKey] {
	keys := x.keys.Copy()
	c.mu.Lock()
	defer c.mu.Unlock()
	col := c.collections[resource]
	if col == nil || col.indexing != begun {
		return keys // the collection is no longer in memory
	}
	col.indexing = nil
	for _, row := range begun.missed {
		x.change(a, row.before, row.after)
	}
	if c.bytes+x.bytes > c.room() {
		col.unindexed = time.Now().Add(refillAfter)
		return keys
	}
	if col.indexes == nil {
		col.indexes = map[attr]*index{}
	}
	x.used = time.Now()
	col.indexes[a] = x
	c.bytes += x.bytes
	c.encodings.shrink(c.room() - c.bytes)
	snap.indexes[a] = keys
	if col.current != nil && col.current != snap {
		col.current.indexes[a] = x.keys.Copy()
	}
	return keys
}

// beginIndex starts to collect changes for an index by a. It returns nil if none can be made.
func (c *cache) beginIndex(resource Resource, snap *snapshot, a attr) *indexing {
	c.mu.Lock()
	defer c.mu.Unlock()
	col := c.collections[resource]
	if col == nil || col.current != snap || col.indexes[a] != nil || col.indexing != nil ||
		time.Now().Before(col.unindexed) || !c.makeRoom(col, a.column) {
		return nil
	}
	col.indexing = &indexing{}
	return col.indexing
}

// makeRoom ensures that a collection may have another index by labels, or by fields. If it has too many, makeRoom drops the least
// recently used, or returns false if all are in use.
func (c *cache) makeRoom(col *collection, of column) bool {
	n := 0
	var oldest attr
	var found *index
	for a, x := range col.indexes {
		if a.column != of {
			continue
		}
		if n++; found == nil || x.used.Before(found.used) {
			oldest, found = a, x
		}
	}
	if n < maxIndexes {
		return true
	}
	if time.Since(found.used) < idleIndex {
		return false
	}
	delete(col.indexes, oldest)
	if col.current != nil {
		delete(col.current.indexes, oldest)
	}
	c.bytes -= found.bytes
	return true
}

// dropIndexes drops the indexes of a collection. No new one is made for a while.
func (c *cache) dropIndexes(col *collection) {
	c.bytes -= col.indexBytes()
	col.indexes, col.unindexed = nil, time.Now().Add(refillAfter)
	if col.current != nil {
		clear(col.current.indexes)
	}
}

func (col *collection) indexBytes() (bytes int64) {
	for _, x := range col.indexes {
		bytes += x.bytes
	}
	return bytes
}

// reindex updates the indexes for a change of a row.
func (col *collection) reindex(before, after *Record) {
	for a, x := range col.indexes {
		x.change(a, before, after)
	}
	if col.indexing != nil {
		col.indexing.missed = append(col.indexing.missed, rowChange{before, after})
	}
}
