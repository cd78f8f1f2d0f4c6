package history

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/sqube/sqube/dialect"
)

// A block has for each version, the newest first, the length of its delta from the one after it, and the delta. As long as the row that
// replaced the newest version is in the log, the block is open, and that version is a difference from this row; else from nothing. So
// another version is added without reading the others. The text of a version is
//
//	labels fields address audit-id value, each preceded by its length, then expires-at
//
// where a deletion's value is empty. See data for how that is stored.

const (
	// maxBlock ends a block: reading any of its versions means reading all after it. A block may be as long as its last version.
	maxBlock = 16 << 10
	// maxVersions ends a block of very small changes.
	maxVersions = 500
	// maxRecent is how much of an open block is not compressed: so few bytes are not worth it, and to add others means compressing all again.
	maxRecent = 2 << 10
)

var errBlock = errors.New("a block of history is damaged")

// writer is an element of the column writers.
type writer struct {
	operation                                               dialect.Operation
	user, fieldManager, uid, impersonatedUser, credentialID string
}

// MarshalJSON implements json.Marshaler.
func (w writer) MarshalJSON() ([]byte, error) {
	all := []string{string(w.operation), w.user, w.fieldManager, w.uid, w.impersonatedUser, w.credentialID}
	for len(all) > 4 && all[len(all)-1] == "" { // the others are always there
		all = all[:len(all)-1]
	}
	return json.Marshal(all)
}

// UnmarshalJSON implements json.Unmarshaler.
func (w *writer) UnmarshalJSON(text []byte) error {
	var fields [6]string // those that are missing remain empty
	err := json.Unmarshal(text, &fields)
	w.operation, w.user, w.fieldManager, w.uid = dialect.Operation(fields[0]), fields[1], fields[2], fields[3]
	w.impersonatedUser, w.credentialID = fields[4], fields[5]
	return err
}

// block is a dialect.Block in memory.
type block struct {
	dialect.Block
	data
	writers  []writer
	versions []byte // of the column versions, without brackets around it
	count    int    // of versions
	writer   int    // of the last version
	lastID   int64
	lastAt   int64
	weight   int // how many bytes the user of the block has written more than all others
	dirty    bool
}

// data is the column data: of a block that is not open, all deltas, compressed. Of an open block
//
//	openData recent packed, each preceded by its length
type data struct {
	open   bool
	recent []byte // the newest deltas
	packed []byte // the others, compressed
	size   int    // of packed, before compression
}

// openData and bareData can't begin compressed data.
const openData, bareData = 1, 2

// parseData parses the column data, or returns false.
func parseData(stored []byte) (d data, ok bool) {
	if len(stored) == 0 || stored[0] != openData {
		return data{packed: stored}, len(stored) > 0
	}
	recent, rest, ok := cutBytes(stored[1:])
	size, n := binary.Uvarint(rest)
	if !ok || n <= 0 || size > maxData {
		return data{}, false
	}
	return data{open: true, recent: recent, size: int(size), packed: rest[n:]}, true
}

// unpack makes all deltas recent. Those that are damaged are left out: sqube check reports that they are missing.
func (d *data) unpack() {
	if len(d.packed) > 0 {
		older, _ := decompress(d.packed)
		d.recent, d.packed, d.size = append(slices.Clip(d.recent), older...), nil, 0
	}
}

// encode returns the column data.
func (d *data) encode() (stored []byte, err error) {
	if !d.open {
		d.unpack()
		return compress(d.recent)
	}
	if len(d.recent) > maxRecent {
		d.unpack()
		older := d.recent
		if _, rest, _ := cutBytes(d.recent); len(d.recent)-len(rest) <= maxRecent {
			older = rest // the newest is needed for the next
		}
		d.recent = d.recent[:len(d.recent)-len(older)]
		d.size = len(older)
		if d.packed, err = compress(older); err != nil {
			return nil, err
		}
	}
	stored = append(make([]byte, 0, len(d.recent)+len(d.packed)+8), openData)
	return append(binary.AppendUvarint(appendSized(stored, d.recent), uint64(d.size)), d.packed...), nil
}

// newest returns the text of the newest version, with that of the one after it.
func (d *data) newest(next []byte) ([]byte, error) {
	if len(d.recent) == 0 {
		d.unpack()
	}
	delta, _, ok := cutBytes(d.recent)
	if !ok {
		return nil, errBlock
	}
	return applyDelta(nil, next, delta)
}

// replaceNewest replaces the delta that newest has applied.
func (d *data) replaceNewest(delta []byte) {
	_, older, _ := cutBytes(d.recent)
	d.recent = append(appendSized(nil, delta), older...)
}

// appendVersion appends an element of the column versions. Writing and reading them takes much of the time of packing.
func appendVersion(to []byte, v [3]int64) []byte {
	if len(to) > 0 {
		to = append(to, ',')
	}
	for i, number := range v {
		to = strconv.AppendInt(append(to, "[,,"[i]), number, 10)
	}
	return append(to, ']')
}

// parseVersions parses the column versions, or returns false.
func parseVersions(text string) (versions [][3]int64, ok bool) {
	text, ok = strings.CutPrefix(text, "[")
	text, closed := strings.CutSuffix(text, "]")
	if !ok || !closed {
		return nil, false
	}
	versions = make([][3]int64, 0, len(text)/10+1)
	for text != "" {
		var v [3]int64
		for i, end := range [...]byte{',', ',', ']'} {
			text = text[1:] // [ or ,
			n := strings.IndexByte(text, end)
			if n < 0 {
				return nil, false
			}
			var err error
			if v[i], err = strconv.ParseInt(text[:n], 10, 64); err != nil {
				return nil, false
			}
			text = text[n:]
		}
		if text = text[1:]; text != "" && !strings.HasPrefix(text, ",[") {
			return nil, false
		}
		text = strings.TrimPrefix(text, ",")
		versions = append(versions, v)
	}
	return versions, true
}

// rows returns the versions of a block, the oldest first, without what is in its data.
func rows(b *dialect.Block) ([]*dialect.LogRow, error) {
	var writers []writer
	versions, ok := parseVersions(b.Versions)
	if err := json.Unmarshal([]byte(b.Writers), &writers); err != nil || !ok {
		return nil, fmt.Errorf("%w: the versions from revision %d", errBlock, b.First)
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
			WrittenAt: at, User: w.user, ImpersonatedUser: w.impersonatedUser, CredentialID: w.credentialID, FieldManager: w.fieldManager,
		}}
		if i > 0 {
			found[i-1].ReplacedBy, row.Replaces = id, found[i-1].ID
		}
		found[i] = row
	}
	return found, nil
}

// texts calls yield with the texts of n versions, which are those of a block, the last one first, until it returns false. A text is only
// valid during the call.
func texts(b *dialect.Block, n int, yield func(i int, text []byte) (bool, error)) error {
	if isBare(b) {
		return ErrGivenUp
	}
	d, ok := parseData(b.Data)
	if !ok {
		return errBlock
	}
	var text, next []byte
	if d.open {
		if b.Next == nil {
			return ErrForgotten
		}
		text = appendText(nil, b.Next)
	}
	for i := n - 1; i >= 0; i-- {
		if len(d.recent) == 0 {
			older, err := decompress(d.packed)
			if err != nil {
				return err
			}
			d.recent, d.packed = older, nil
		}
		delta, rest, ok := cutBytes(d.recent)
		if !ok {
			return errBlock
		}
		var err error
		if next, err = applyDelta(next[:0], text, delta); err != nil {
			return err
		}
		text, next, d.recent = next, text, rest
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
	if row.Operation != dialect.Delete && row.Operation != dialect.Purge {
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

// Prepare makes what all of a process's stores share. A bubble of testing/synctest must not make it: the others could not use it then.
func Prepare() error {
	data, err := compress(nil)
	if err == nil {
		_, err = decompress(data)
	}
	return err
}

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
