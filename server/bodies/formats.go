package bodies

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protowire"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
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

// protobufMagic precedes a runtime.Unknown.
var protobufMagic = []byte{'k', '8', 's', 0}

// countProtobuf counts without decoding. If data is not protobuf of a known kind, the count does not matter, because the decoder stops
// where it is wrong.
func countProtobuf(data []byte, kinds Kinds, c *counter) error {
	data, ok := bytes.CutPrefix(data, protobufMagic)
	if !ok || kinds == nil {
		return nil
	}
	unknown := runtime.Unknown{}
	if unknown.Unmarshal(data) != nil {
		return nil
	}
	var kind schema.GroupVersionKind
	if unknown.Kind != "" {
		kind = schema.FromAPIVersionAndKind(unknown.APIVersion, unknown.Kind)
	}
	if t := kinds(kind); t != nil {
		return countMessage(unknown.Raw, t, c)
	}
	return nil
}

// countMessage counts a message of the Go type t, or the value of another field.
func countMessage(data []byte, t reflect.Type, c *counter) error {
	if t.Kind() != reflect.Struct && t.Kind() != reflect.Map {
		t = t.Elem()
	}
	if err := c.object(); err != nil {
		return err
	}
	fields := messageFields(t)
	for len(data) > 0 {
		number, wire, n := protowire.ConsumeTag(data)
		if n < 0 {
			return nil
		}
		data = data[n:]
		size := protowire.ConsumeFieldValue(number, wire, data)
		if size < 0 {
			return nil
		}
		value := data[:size]
		data = data[size:]
		message := fields[number]
		var err error
		if wire == protowire.BytesType && message != nil {
			content, _ := protowire.ConsumeBytes(value)
			err = countMessage(content, message, c)
		} else {
			err = c.value()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// messages are the results of messageFields.
var messages sync.Map

// messageFields returns the types of a message's fields that are messages, by number. An entry of a map is a message whose field 2 is
// the value.
func messageFields(t reflect.Type) map[protowire.Number]reflect.Type {
	if fields, ok := messages.Load(t); ok {
		return fields.(map[protowire.Number]reflect.Type)
	}
	fields := map[protowire.Number]reflect.Type{}
	add := func(number protowire.Number, t reflect.Type) {
		for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
			t = t.Elem()
		}
		if t.Kind() == reflect.Struct || t.Kind() == reflect.Map {
			fields[number] = t
		}
	}
	if t.Kind() == reflect.Map {
		add(2, t.Elem())
	} else {
		for i := range t.NumField() {
			// As in `protobuf:"bytes,2,rep,name=containers"`.
			if parts := strings.Split(t.Field(i).Tag.Get("protobuf"), ","); len(parts) > 1 {
				if number, err := strconv.Atoi(parts[1]); err == nil {
					add(protowire.Number(number), t.Field(i).Type)
				}
			}
		}
	}
	messages.Store(t, fields)
	return fields
}

const (
	// nodeBytes is what a node of YAML takes while it is parsed.
	nodeBytes = 512
	// maxYAMLValues is less than maxValues, because decoding YAML takes more. The same can be sent as JSON.
	maxYAMLValues = 128 << 10
	// maxYAMLText is how much text there may be, with that which aliases repeat.
	maxYAMLText = 8 << 20
)

// countYAML parses data if it is long or has aliases, which are counted as often as they are used. Clients send JSON as YAML, too.
func countYAML(data []byte, c *counter) error {
	aliases := bytes.IndexByte(data, '&') >= 0 && bytes.IndexByte(data, '*') >= 0
	if !aliases && len(data) <= smallBytes {
		return nil
	}
	if json.Valid(data) {
		if err := countJSON(data, c); err != nil {
			return err
		}
		return c.reserve(c.values * nodeBytes)
	}
	n := separators(data)
	if n > maxValues {
		return errTooMuch
	}
	if err := c.reserve(n * nodeBytes); err != nil {
		return err
	}
	var document yaml.Node
	if err := yaml.Unmarshal(data, &document); err != nil && !aliases {
		return nil // the decoder says what is wrong
	} else if err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("the body is not valid YAML: %v", err))
	}
	all := expansions{}.of(&document)
	if all.objects > maxObjects || all.values > maxYAMLValues || all.text > maxYAMLText {
		return errTooMuch
	}
	c.objects, c.values = all.objects, all.values
	return c.reserve(all.text)
}

// separators returns at least half the number of values in a YAML document: each value follows one of these.
func separators(data []byte) int {
	n := 1
	for i, b := range data {
		switch b {
		case ',', '[', '{', '\n':
			n++
		case '-', ':', '?':
			if i+1 == len(data) || data[i+1] <= ' ' {
				n++
			}
		}
	}
	return n
}

// expansion is what a node holds, with its aliases replaced.
type expansion struct{ objects, values, text int }

// enough is more than any limit. Counts stop there instead of overflowing.
const enough = 1 << 40

func (e *expansion) add(other expansion) {
	e.objects = min(e.objects+other.objects, enough)
	e.values = min(e.values+other.values, enough)
	e.text = min(e.text+other.text, enough)
}

// expansions are the counts of the nodes that have an anchor.
type expansions map[*yaml.Node]expansion

func (known expansions) of(node *yaml.Node) expansion {
	if node.Kind == yaml.AliasNode {
		return known.of(node.Alias)
	}
	if e, ok := known[node]; ok {
		return e
	}
	if node.Anchor != "" {
		known[node] = expansion{enough, enough, enough} // while it is counted, in case it holds itself
	}
	e := expansion{values: 1, text: len(node.Value)}
	if node.Kind != yaml.ScalarNode || node.Tag == "!!null" {
		e.objects = 1
	}
	for _, child := range node.Content {
		e.add(known.of(child))
	}
	if node.Anchor != "" {
		known[node] = e
	}
	return e
}
