package bodies

import (
	"bytes"
	"encoding/binary"
)

// rawField is the field of managedFields that stays as it was sent until owners are computed, so what it holds takes little.
const rawField = "fieldsV1"

// maxDepth is how deep JSON may be. The decoder checks that first.
const maxDepth = 10000

// countJSON counts without decoding. If data is not JSON, the count does not matter, because the decoder stops where it is wrong.
func countJSON(data []byte, c *counter) error {
	depth, raw := 0, -1 // the depth outside of a rawField, or -1
	for i := 0; i < len(data); i++ {
		var err error
		switch data[i] {
		case '"':
			begin := i + 1
			i = endOfString(data, begin)
			if raw < 0 && string(data[begin:min(i, len(data))]) == rawField {
				raw = depth
			}
		case '{', '[', 'n': // null
			if data[i] != 'n' {
				depth++
			}
			if depth > maxDepth {
				return nil
			}
			if raw >= 0 {
				err = c.value()
			} else {
				err = c.object()
			}
		case '}', ']':
			depth--
			if depth <= raw {
				raw = -1
			}
		case ',':
			if depth == raw { // its value was no object
				raw = -1
			}
			err = c.value()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// endOfString returns the index of the quote that ends a JSON string.
func endOfString(data []byte, begin int) int {
	for i := begin; ; i++ {
		n := bytes.IndexByte(data[i:], '"')
		if n < 0 {
			return len(data)
		}
		i += n
		slashes := i
		for slashes > begin && data[slashes-1] == '\\' {
			slashes--
		}
		if (i-slashes)%2 == 0 {
			return i
		}
	}
}

// The major types of CBOR (RFC 8949, section 3.1), and the parts of a header.
const (
	cborBytes, cborText, cborArray, cborMap, cborTag = 2, 3, 4, 5, 6

	cborIndefinite = 31
	cborNull       = 7<<5 | 22
)

// countCBOR counts without decoding. If data is not CBOR, the count does not matter, because the decoder checks that first.
func countCBOR(data []byte, c *counter) error {
	raw := 0 // how many items belong to the value of a rawField
	for len(data) > 0 {
		head, major, info := data[0], data[0]>>5, data[0]&31
		data = data[1:]
		argument := uint64(info)
		if info >= 24 && info <= 27 {
			size := 1 << (info - 24)
			if len(data) < size {
				return nil
			}
			argument = binary.BigEndian.Uint64(append(make([]byte, 8-size, 8), data[:size]...))
			data = data[size:]
		}
		isRaw := raw > 0
		if isRaw {
			raw--
		}
		var err error
		switch {
		case info == cborIndefinite:
			raw = 0
			err = c.object()
		case major == cborBytes || major == cborText:
			if argument > uint64(len(data)) {
				return nil
			}
			if !isRaw && string(data[:argument]) == rawField {
				raw = 1
			}
			data = data[argument:]
			err = c.value()
		case major == cborArray || major == cborMap:
			if isRaw && argument <= uint64(len(data)) {
				raw += int(argument) * int(major-cborArray+1)
				err = c.value()
			} else {
				err = c.object()
			}
		case major == cborTag:
			if isRaw {
				raw++
			}
		case head == cborNull && !isRaw:
			err = c.object()
		default:
			err = c.value()
		}
		if err != nil {
			return err
		}
	}
	return nil
}
