package sqlstore

import (
	"bytes"
	"time"

	"github.com/tidwall/btree"
)

// collection has the rows of one resource in the cache.
type collection struct {
	rows *btree.BTreeG[*Record] // nil while it is not in memory
	// filled is the revision of the list that filled it, which includes older changes.
	filled int64
	// changed is the revision of the last change.
	changed int64
	bytes   int64 // memory of the rows
	values  int64 // length of their values, in memory or not
	whole   int64 // length of those that are in memory as they are
	packed  int64 // memory of the compressed ones
	used    int64 // cache.clock at the last read

	bare     bool    // values may be left in the database
	packer   *packer // compresses values while there is room; nil for none
	pass     *pass   // makes its rows smaller; nil if none does
	stripped int64   // cache.clock when it became bare

	indexes  map[attr]*index
	indexing *indexing // nil if no index is being made
	// unindexed is the time until which no index is made, because one did not fit.
	unindexed time.Time

	filling *filling
	// retry is when the collection may be read into memory again, after it or its values did not fit.
	retry time.Time
	pause time.Duration // the last pause before retry

	current *snapshot // nil if none has been needed since the last change
	older   []*snapshot
	dropped int64 // total bytes of rows that changes have removed
}

// snapshot is the state of a collection from revision from up to revision to.
type snapshot struct {
	rows     *btree.BTreeG[*Record]
	from, to int64 // to is 0 for the current state
	bare     bool  // see collection
	values   int64
	dropped  int64 // collection.dropped when it was the current one
	// indexes are those of the collection in that state, guarded by cache.mu.
	indexes map[attr]*btree.BTreeG[valueKey]
}

// add adds a row to the collection and returns the one it replaces. In a bare collection, by compresses its value, or is nil to
// leave it in the database.
func (col *collection) add(r *Record, by *packer) (before *Record) {
	if col.bare {
		r = by.pack(r)
	} else {
		own := *r // r is part of a Change, which would keep all previous versions in memory, each keeping the one before
		if cap(r.Value) > len(r.Value)+len(r.Value)/4 {
			// The encoder's buffer is larger than the value.
			own.Value = bytes.Clone(r.Value)
		}
		r = &own
	}
	before, _ = col.rows.Set(r)
	col.bytes += r.memory()
	col.values += int64(r.length())
	col.whole += int64(len(r.Value))
	col.packed += r.packed.memory()
	col.forget(before)
	return before
}

// forget subtracts a row from the totals; nil for none.
func (col *collection) forget(r *Record) {
	if r != nil {
		col.bytes -= r.memory()
		col.values -= int64(r.length())
		col.whole -= int64(len(r.Value))
		col.packed -= r.packed.memory()
		col.dropped += r.memory()
	}
}

// retire makes the current snapshot, which ends at revision to, an older one.
func (col *collection) retire(to int64) {
	if col.current != nil {
		col.current.to = to
		col.older = append(col.older, col.current)
		col.current = nil
	}
	if len(col.older) > maxSnapshots {
		col.dropOldest()
	}
}

func (col *collection) dropOldest() {
	col.older[0] = nil
	col.older = col.older[1:]
}

// olderBytes returns the memory of rows that only older snapshots have.
func (col *collection) olderBytes() int64 {
	if len(col.older) == 0 {
		return 0
	}
	return col.dropped - col.older[0].dropped
}

// at returns the snapshot at a revision, or nil if there is none.
func (col *collection) at(revision int64) *snapshot {
	if revision == 0 || revision >= col.changed {
		if col.current == nil {
			indexes := make(map[attr]*btree.BTreeG[valueKey], len(col.indexes))
			for a, x := range col.indexes {
				indexes[a] = x.keys.Copy()
			}
			col.current = &snapshot{rows: col.rows.Copy(), from: col.changed, bare: col.bare, values: col.values, dropped: col.dropped, indexes: indexes}
		}
		return col.current
	}
	for _, s := range col.older {
		if s.from <= revision && revision <= s.to {
			return s
		}
	}
	return nil
}
