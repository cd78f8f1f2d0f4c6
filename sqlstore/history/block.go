package history

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/sqube/sqube/dialect"
)

// The data of a block, before compression, has for each version the length of its delta from the version before, and the delta. That of
// the first version is from nothing. The text of a version is
//
//	labels fields address audit-id value, each preceded by its length, then expires-at
//
// where a deletion's value is empty.

const (
	// maxBlock ends a block: reading any of its versions means reading all before it, and adding one means writing all again. A block
	// may be twice as long as its first version.
	maxBlock = 32 << 10
	// maxVersions ends a block of very small changes.
	maxVersions = 1000
)

var errBlock = errors.New("a block of history is damaged")

// writer is an element of the column writers.
type writer struct {
	operation               dialect.Operation
	user, fieldManager, uid string
}

// MarshalJSON implements json.Marshaler.
func (w writer) MarshalJSON() ([]byte, error) {
	return json.Marshal([...]string{string(w.operation), w.user, w.fieldManager, w.uid})
}

// UnmarshalJSON implements json.Unmarshaler.
func (w *writer) UnmarshalJSON(text []byte) error {
	var fields [4]string
	err := json.Unmarshal(text, &fields)
	w.operation, w.user, w.fieldManager, w.uid = dialect.Operation(fields[0]), fields[1], fields[2], fields[3]
	return err
}

// block is a dialect.Block in memory.
type block struct {
	dialect.Block
	writers  []writer
	versions [][3]int64 // as in the column versions
	data     []byte     // without compression
	first    int        // the length of the first version
	last     []byte     // the text of the last one
	lastID   int64
	lastAt   int64
	dirty    bool
}

// rows returns the versions of a block, the oldest first, without what is in its data.
func rows(b *dialect.Block) ([]*dialect.LogRow, error) {
	var writers []writer
	var versions [][3]int64
	if err := errors.Join(json.Unmarshal([]byte(b.Writers), &writers), json.Unmarshal([]byte(b.Versions), &versions)); err != nil {
		return nil, fmt.Errorf("%w: revision %d: %w", errBlock, b.First, err)
	}
	found := make([]*dialect.LogRow, len(versions))
	id, at := b.First, b.FirstAt
	for i, v := range versions {
		if v[2] < 0 || v[2] >= int64(len(writers)) {
			return nil, fmt.Errorf("%w: revision %d has no writer %d", errBlock, b.First, v[2])
		}
		id, at = id+v[0], at+v[1]
		w := writers[v[2]]
		row := &dialect.LogRow{ID: id, ReplacedBy: b.Until, Write: dialect.Write{
			Operation: w.operation, Group: b.Group, Resource: b.Resource, Key: b.Key, Namespace: b.Namespace, Name: b.Name, UID: w.uid,
			WrittenAt: at, User: w.user, FieldManager: w.fieldManager,
		}}
		if i > 0 {
			found[i-1].ReplacedBy, row.Replaces = id, found[i-1].ID
		}
		found[i] = row
	}
	return found, nil
}

// texts calls yield with the text of each version of the data of a block, until it returns false. A text is only valid during the call.
func texts(data []byte, yield func(i int, text []byte) (bool, error)) error {
	var text, next []byte
	for i := 0; len(data) > 0; i++ {
		delta, rest, ok := cutBytes(data)
		if !ok {
			return errBlock
		}
		var err error
		if next, err = applyDelta(next[:0], text, delta); err != nil {
			return err
		}
		text, next, data = next, text, rest
		if more, err := yield(i, text); err != nil || !more {
			return err
		}
	}
	return nil
}

func appendText(to []byte, row *dialect.LogRow) []byte {
	for _, part := range [...]string{row.Labels, row.Fields, row.Address, row.AuditID} {
		to = append(binary.AppendUvarint(to, uint64(len(part))), part...)
	}
	to = append(binary.AppendUvarint(to, uint64(len(row.Value))), row.Value...)
	return binary.AppendUvarint(to, uint64(row.ExpiresAt))
}

func setText(row *dialect.LogRow, text []byte) error {
	for _, part := range [...]*string{&row.Labels, &row.Fields, &row.Address, &row.AuditID} {
		cut, rest, ok := cutBytes(text)
		if !ok {
			return errBlock
		}
		*part, text = string(cut), rest
	}
	value, rest, ok := cutBytes(text)
	expires, n := binary.Uvarint(rest)
	if !ok || n <= 0 {
		return errBlock
	}
	row.ExpiresAt = int64(expires)
	if row.Operation != dialect.Delete {
		row.Value = append([]byte{}, value...)
	}
	return nil
}

// One encoder and one decoder serve all: their tables are large. The window is that of blocks.
var (
	encoder = sync.OnceValues(func() (*zstd.Encoder, error) {
		return zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(64<<10), zstd.WithLowerEncoderMem(true),
			zstd.WithEncoderCRC(true), zstd.WithSingleSegment(true))
	})
	decoder = sync.OnceValues(func() (*zstd.Decoder, error) {
		return zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(maxData))
	})
)

// maxData is more than any block has: an object of a few megabytes, whose block is twice as long, and its last version.
const maxData = 64 << 20

func compress(data []byte) ([]byte, error) {
	e, err := encoder()
	if err != nil {
		return nil, err
	}
	return e.EncodeAll(data, make([]byte, 0, len(data)/4)), nil
}

func decompress(data []byte) ([]byte, error) {
	d, err := decoder()
	if err != nil {
		return nil, err
	}
	return d.DecodeAll(data, nil)
}
