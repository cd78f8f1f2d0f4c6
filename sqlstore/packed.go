package sqlstore

import (
	"github.com/klauspost/compress/s2"
	"github.com/tidwall/btree"
)

// If a collection does not fit into memory, as many of its values as possible are kept compressed. The objects of a collection
// are alike, so each is compressed with one of them as the dictionary. That makes them a fraction of their size, and unpacking
// takes a fraction of the time of a database read.

// packed is a compressed value.
type packed struct {
	by    *packer
	bytes []byte
}

// packedOverhead is roughly the memory of a compressed value besides its bytes.
const packedOverhead = 48

func (p *packed) memory() int64 {
	if p == nil {
		return 0
	}
	return int64(len(p.bytes)) + packedOverhead
}

// packer compresses the values of one collection.
type packer struct{ dictionary *s2.Dict }

// newPacker returns a packer for values like this one, or nil if it is too short or too long for a dictionary.
func newPacker(like []byte) *packer {
	if len(like) < s2.MinDictSize || len(like) > s2.MaxDictSize {
		return nil
	}
	dictionary := s2.MakeDict(like, nil)
	if dictionary == nil {
		return nil
	}
	return &packer{dictionary}
}

// pack returns r without its value, or with it compressed if that saves at least a third.
func (p *packer) pack(r *Record) *Record {
	bare := r.bare()
	if p == nil || len(r.Value) == 0 || len(r.Value) > largeRow {
		return bare
	}
	compressed := p.dictionary.Encode(nil, r.Value)
	if len(compressed)+packedOverhead > len(r.Value)*2/3 {
		return bare
	}
	bare.packed = &packed{p, append(make([]byte, 0, len(compressed)), compressed...)}
	return bare
}

// unpack returns r with its value, or r itself if the value must be read from the database.
func (r *Record) unpack() *Record {
	if r.packed == nil {
		return r
	}
	value, err := r.packed.by.dictionary.Decode(make([]byte, r.left), r.packed.bytes)
	if err != nil {
		return r
	}
	return r.with(value)
}

// with returns a bare record with its value.
func (r *Record) with(value []byte) *Record {
	whole := *r
	whole.Value, whole.left, whole.packed = value, 0, nil
	return &whole
}

// strip drops the values of a collection, except those that by compresses. by may be nil.
func (col *collection) strip(by *packer) {
	rows := newTree(byKey)
	col.bytes, col.whole, col.packed, col.bare, col.packer = 0, 0, 0, true, by
	col.rows.Scan(func(r *Record) bool {
		r = by.pack(r)
		col.bytes += r.memory()
		col.packed += r.packed.memory()
		rows.Load(r)
		return true
	})
	col.rows, col.current, col.older = rows, nil, nil
}

// excess is what a collection takes beyond three quarters of what it takes now, or of the limit.
func (col *collection) excess(limit int64) int64 { return col.bytes - min(col.bytes, limit)*3/4 }

// thin drops compressed values until the rest fits; see excess.
func (col *collection) thin(limit int64) {
	excess := col.excess(limit)
	rows := newTree(byKey)
	col.rows.Scan(func(r *Record) bool {
		if excess > 0 && r.packed != nil {
			excess -= r.packed.memory()
			col.bytes -= r.packed.memory()
			col.packed -= r.packed.memory()
			r = r.bare()
		}
		rows.Load(r)
		return true
	})
	col.rows, col.current, col.older = rows, nil, nil
}

// packerOf returns a packer for the values of rows.
func packerOf(rows *btree.BTreeG[*Record]) *packer {
	r, ok := rows.GetAt(rows.Len() / 2)
	if !ok {
		return nil
	}
	return newPacker(r.Value)
}
