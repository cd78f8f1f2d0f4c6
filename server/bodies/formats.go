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

// step is a container on the way to what stays as it was sent until owners are computed, and therefore takes little.
type step struct {
	opens byte   // how it begins in JSON
	key   string // the one that leads on; "" in a list, where each element does
}

// wayToRaw is metadata.managedFields[].fieldsV1. The same name elsewhere means nothing: that is decoded like everything else.
var wayToRaw = [...]step{{'{', "metadata"}, {'{', "managedFields"}, {'[', ""}, {'{', "fieldsV1"}}

// maxDepth is how deep JSON may be. The decoder checks that first.
const maxDepth = 10000

// countJSON counts without decoding. If data is not JSON, the count does not matter, because the decoder stops where it is wrong.
func countJSON(data []byte, c *counter) error {
	depth, raw := 0, -1   // raw is the depth outside of a value that stays raw, or -1
	way, leads := 0, true // how many of the open containers are on the way, and whether what begins in the last one leads on
	for i := 0; i < len(data); i++ {
		var err error
		switch data[i] {
		case '"':
			begin := i + 1
			i = endOfString(data, begin)
			if depth == way && way > 0 { // if it is no key, a comma or the end follows
				leads = string(data[begin:min(i, len(data))]) == wayToRaw[way-1].key
			}
		case 'n': // null
			if raw < 0 {
				err = c.object()
			} else {
				err = c.value()
			}
		case '{', '[':
			if depth == way && leads && raw < 0 {
				if way == len(wayToRaw) {
					raw = depth
				} else if wayToRaw[way].opens == data[i] {
					leads = wayToRaw[way].key == ""
					way++
				}
			}
			depth++
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
			if depth < way {
				way, leads = depth, false
			}
		case ',':
			if depth == way && way > 0 {
				leads = wayToRaw[way-1].key == ""
			}
			err = c.value()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// countOutline is countJSON for what is not deeper than rawDepth.
func countOutline(data []byte, c *counter) error {
	depth := 0
	for i := 0; i < len(data); i++ {
		var err error
		switch data[i] {
		case '"':
			i = endOfString(data, i+1)
		case '{', '[':
			if depth++; depth <= rawDepth {
				err = c.object()
			}
		case '}', ']':
			depth--
		case ',':
			if depth <= rawDepth {
				err = c.value()
			}
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

// maxCBORDepth is at least how deep CBOR may be. The decoder checks that first.
const maxCBORDepth = 100

// countCBOR counts without decoding. If data is not CBOR, the count does not matter, because the decoder checks that first.
func countCBOR(data []byte, c *counter) error {
	counting := cborCounting{data, c}
	for len(counting.data) > 0 {
		if _, err := counting.item(0, 0); err != nil {
			return err
		}
	}
	return nil
}

// cborCounting counts the items of data, which become fewer.
type cborCounting struct {
	data []byte
	*counter
}

// Where an item is that is not on the way, besides the index in wayToRaw.
const (
	offTheWay = -1
	inRaw     = len(wayToRaw)
)

// item counts the first item, and returns its text if it is one.
func (c *cborCounting) item(at, depth int) (text []byte, err error) {
	if len(c.data) == 0 || depth > maxCBORDepth {
		c.data = nil
		return nil, nil
	}
	head, major, info := c.data[0], c.data[0]>>5, c.data[0]&31
	c.data = c.data[1:]
	argument := uint64(info)
	if info >= 24 && info <= 27 {
		size := 1 << (info - 24)
		if len(c.data) < size {
			c.data = nil
			return nil, nil
		}
		argument = binary.BigEndian.Uint64(append(make([]byte, 8-size, 8), c.data[:size]...))
		c.data = c.data[size:]
	}
	switch {
	case info == cborIndefinite: // the decoder refuses it: what follows counts in full
		return nil, c.object()
	case major == cborBytes || major == cborText:
		if argument > uint64(len(c.data)) {
			c.data = nil
			return nil, nil
		}
		text = c.data[:argument]
		c.data = c.data[argument:]
		return text, c.value()
	case major == cborTag:
		return c.item(at, depth+1)
	case major == cborArray || major == cborMap:
		return nil, c.container(major, argument, at, depth)
	case head == cborNull && at != inRaw:
		return nil, c.object()
	}
	return nil, c.value()
}

// container counts a list or a map with what it holds.
func (c *cborCounting) container(major byte, length uint64, at, depth int) error {
	within := offTheWay // where what leads on is
	if at == inRaw {
		within = inRaw
		if err := c.value(); err != nil {
			return err
		}
	} else {
		if at >= 0 && (wayToRaw[at].opens == '{') == (major == cborMap) {
			within = at + 1
		}
		if err := c.object(); err != nil {
			return err
		}
	}
	for ; length > 0 && len(c.data) > 0; length-- {
		value := within
		if major == cborMap {
			key, err := c.item(offTheWay, depth+1)
			if err != nil {
				return err
			}
			if at != inRaw && within >= 0 && string(key) != wayToRaw[at].key {
				value = offTheWay
			}
		}
		if _, err := c.item(value, depth+1); err != nil {
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
