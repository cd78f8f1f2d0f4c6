// Package transcode turns the JSON of API objects, as written by the storage codec, into the messages of Kubernetes' protobuf
// encoding without building the objects. That takes a tenth of the work.
//
// The tags of an API type map its JSON names to the fields of its message. They are read once, into a plan. The output is, byte
// for byte, what the generated Marshal returns for the decoded object.
//
// Only JSON in the form that encoders write is accepted. Other JSON, such as that of a row edited by hand, needs a real decoder.
package transcode

import (
	"bytes"
	"encoding/base64"
	"math"
	"reflect"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "sigs.k8s.io/json"
)

// Type turns JSON of one API type into messages.
type Type struct{ plan *plan }

// For returns the Type of obj. It returns an error for types without a generated protobuf encoding.
func For(obj runtime.Object) (*Type, error) {
	made, err := shared.root(reflect.TypeOf(obj).Elem())
	if err != nil {
		return nil, err
	}
	return &Type{made}, nil
}

// Append appends to b the message of the object in the JSON data, with the given resourceVersion. If data ends in a space, the
// spaces around verbatim JSON belong to it. exact reports that the message
// unmarshals to the same object as the JSON. It does not if a list is empty: protobuf can't distinguish empty from nil.
//
// It returns an error if data is not in the form that encoders write.
func (t *Type) Append(b, data []byte, resourceVersion string) (message []byte, exact bool, err error) {
	e := encoders.Get().(*encoder)
	e.scanner, e.buffer, e.version, e.exact = scanner{data: data}, b, resourceVersion, true
	err = e.message(t.plan, nil, "")
	if err == nil && e.next() != 0 {
		err = errUnusual
	}
	message, exact = e.buffer, e.exact
	e.scanner, e.buffer, e.fields = scanner{}, nil, e.fields[:0]
	encoders.Put(e)
	return message, exact, err
}

var encoders = sync.Pool{New: func() any { return new(encoder) }}

// encoder appends messages to buffer. It appends fields in the order of the JSON, and sorts those of a message by number when it
// is complete.
type encoder struct {
	scanner
	buffer  []byte
	fields  []span // of the messages that are not yet complete
	order   []byte // a message being sorted
	version string
	exact   bool
}

// span is a part of the buffer. An empty span means no field.
type span struct{ from, to int }

// message appends a message, after its tag and length if it has a tag. It sets a resourceVersion unless that is "".
func (e *encoder) message(p *plan, tag []byte, version string) error {
	from, first := len(e.buffer), len(e.fields)
	for range p.fields {
		e.fields = append(e.fields, span{})
	}
	found, last := false, -1
	_, err := e.names(func(name []byte) error {
		i := p.find(name, last)
		if i < 0 {
			_, err := e.any()
			return err
		}
		last = i
		f := &p.fields[i]
		if e.fields[first+i].to > 0 {
			return errUnusual // decoders take the last of two
		}
		began := len(e.buffer)
		own, inner := tag == nil && f.objectMeta(), "" // own is the metadata of the object itself
		if own {
			inner = e.version
		}
		if err := e.field(f, inner); err != nil {
			return err
		}
		found = found || own && len(e.buffer) > began
		e.fields[first+i] = span{began, len(e.buffer)}
		return nil
	})
	if err != nil {
		return err
	}
	if tag == nil && !found {
		return errUnusual
	}
	if version != "" {
		began := len(e.buffer)
		e.buffer = append(e.buffer, p.fields[p.version].tag...)
		e.buffer = protowire.AppendString(e.buffer, version)
		e.fields[first+p.version] = span{began, len(e.buffer)}
	}
	fields := e.fields[first:]
	e.order = e.arrange(e.order[:0], p.nodes, fields)
	e.fields = e.fields[:first]
	e.buffer = e.buffer[:from]
	if tag != nil {
		e.buffer = append(e.buffer, tag...)
		e.buffer = protowire.AppendVarint(e.buffer, uint64(len(e.order)))
	}
	e.buffer = append(e.buffer, e.order...)
	return nil
}

// arrange appends the fields of a message, ordered by number.
func (e *encoder) arrange(to []byte, nodes []node, fields []span) []byte {
	for i := range nodes {
		n := &nodes[i]
		switch {
		case n.nodes != nil:
			to = append(to, n.tag...)
			to = protowire.AppendVarint(to, uint64(e.size(n.nodes, fields)))
			to = e.arrange(to, n.nodes, fields)
		case fields[n.leaf].to > fields[n.leaf].from:
			to = append(to, e.buffer[fields[n.leaf].from:fields[n.leaf].to]...)
		default:
			to = append(to, n.zero...)
		}
	}
	return to
}

// size returns how many bytes arrange appends.
func (e *encoder) size(nodes []node, fields []span) (size int) {
	for i := range nodes {
		n := &nodes[i]
		switch {
		case n.nodes != nil:
			size += len(n.tag) + protowire.SizeBytes(e.size(n.nodes, fields))
		case fields[n.leaf].to > fields[n.leaf].from:
			size += fields[n.leaf].to - fields[n.leaf].from
		default:
			size += len(n.zero)
		}
	}
	return size
}

// field appends a field, and nothing for null.
func (e *encoder) field(f *field, version string) error {
	if e.null() {
		return nil
	}
	switch {
	case f.repeated:
		n, err := e.each(func() error { return e.value(&f.value, f.tag, "") })
		e.exact = e.exact && n > 0
		return err
	case f.mapped:
		return e.mapping(f)
	}
	return e.value(&f.value, f.tag, version)
}

// The key and the value of a map are fields 1 and 2 of a message.
var keyTag = protowire.AppendTag(nil, 1, protowire.BytesType)

func (e *encoder) mapping(f *field) error {
	valueTag := protowire.AppendTag(nil, 2, f.wire())
	var last []byte
	n, err := e.names(func(name []byte) error {
		if last != nil && bytes.Compare(last, name) >= 0 || !utf8.Valid(name) || e.next() == 'n' {
			return errUnusual // not sorted, or null
		}
		last = name
		from := len(e.buffer)
		e.buffer = append(e.buffer, keyTag...)
		e.buffer = protowire.AppendBytes(e.buffer, name)
		if err := e.value(&f.value, valueTag, ""); err != nil {
			return err
		}
		e.order = append(e.order[:0], e.buffer[from:]...)
		e.buffer = append(e.buffer[:from], f.tag...)
		e.buffer = protowire.AppendBytes(e.buffer, e.order)
		return nil
	})
	e.exact = e.exact && n > 0
	return err
}

// value appends a value after its tag.
func (e *encoder) value(v *value, tag []byte, version string) error {
	if v.kind == message {
		return e.message(v.plan, tag, version)
	}
	e.buffer = append(e.buffer, tag...)
	switch v.kind {
	case text:
		return e.sized(e.appendText)
	case octets:
		return e.sized(e.appendOctets)
	case boolean:
		return e.boolean()
	case signed:
		n, err := strconv.ParseInt(e.number(), 10, v.bits)
		e.buffer = protowire.AppendVarint(e.buffer, uint64(n))
		return err
	case unsigned:
		n, err := strconv.ParseUint(e.number(), 10, v.bits)
		e.buffer = protowire.AppendVarint(e.buffer, n)
		return err
	case double:
		n, err := strconv.ParseFloat(e.number(), 64)
		e.buffer = protowire.AppendFixed64(e.buffer, math.Float64bits(n))
		return err
	case instant:
		return e.sized(e.appendTime)
	}
	raw, err := e.any()
	if err != nil || raw[0] == 'n' {
		return errUnusual
	}
	if v.kind == verbatim {
		raw = e.spaced(raw)
		e.buffer = protowire.AppendVarint(e.buffer, uint64(protowire.SizeTag(1)+protowire.SizeBytes(len(raw))))
		e.buffer = protowire.AppendBytes(append(e.buffer, keyTag...), raw)
		return nil
	}
	return e.sized(func(b []byte) ([]byte, error) { return e.appendCustom(b, v.typ, raw) })
}

// sized appends what put appends, after its length.
func (e *encoder) sized(put func([]byte) ([]byte, error)) (err error) {
	at := len(e.buffer)
	if e.buffer, err = put(append(e.buffer, 0)); err != nil {
		return err
	}
	n := len(e.buffer) - at - 1
	if n < 1<<7 {
		e.buffer[at] = byte(n)
		return nil
	}
	more := protowire.SizeVarint(uint64(n)) - 1
	for range more {
		e.buffer = append(e.buffer, 0)
	}
	copy(e.buffer[at+1+more:], e.buffer[at+1:at+1+n])
	protowire.AppendVarint(e.buffer[:at], uint64(n))
	return nil
}

func (e *encoder) boolean() error {
	e.next()
	switch string(e.literal()) {
	case "true":
		e.buffer = append(e.buffer, 1)
	case "false":
		e.buffer = append(e.buffer, 0)
	default:
		return errUnusual
	}
	return nil
}

func (e *encoder) number() string {
	e.next()
	return string(e.literal())
}

func (e *encoder) appendOctets(b []byte) ([]byte, error) {
	raw, escaped, err := e.quoted()
	if err != nil || escaped {
		return b, errUnusual
	}
	return base64.StdEncoding.AppendDecode(b, raw)
}

// appendTime appends a time of whole seconds, as encoders write it.
func (e *encoder) appendTime(b []byte) ([]byte, error) {
	raw, _, err := e.quoted()
	if err != nil {
		return b, err
	}
	seconds, ok := unixSeconds(raw)
	if !ok {
		return b, errUnusual
	}
	// Timestamp: seconds and nanoseconds, written even if 0.
	b = protowire.AppendVarint(append(b, 1<<3), uint64(seconds))
	return append(b, 2<<3, 0), nil
}

// unixSeconds reads a time like 2006-01-02T15:04:05Z.
func unixSeconds(raw []byte) (int64, bool) {
	var t time.Time
	if len(raw) != len("2006-01-02T15:04:05Z") || t.UnmarshalText(raw) != nil {
		return 0, false
	}
	return t.Unix(), !t.IsZero() // the zero time is not written
}

// quantities caches the messages of quantities: most objects share a few.
var quantities = struct {
	sync.RWMutex
	messages map[string][]byte
}{messages: map[string][]byte{}}

const (
	maxQuantities   = 4096
	longestQuantity = 32
)

var quantityType = reflect.TypeFor[resource.Quantity]()

// appendCustom appends the message of a type that has its own JSON methods.
func (e *encoder) appendCustom(b []byte, t reflect.Type, raw []byte) ([]byte, error) {
	if t != quantityType || len(raw) > longestQuantity {
		return e.appendMarshaled(b, t, raw)
	}
	quantities.RLock()
	message, ok := quantities.messages[string(raw)]
	quantities.RUnlock()
	if ok {
		return append(b, message...), nil
	}
	from := len(b)
	b, err := e.appendMarshaled(b, t, raw)
	if err == nil {
		quantities.Lock()
		if len(quantities.messages) >= maxQuantities {
			clear(quantities.messages)
		}
		quantities.messages[string(raw)] = bytes.Clone(b[from:])
		quantities.Unlock()
	}
	return b, err
}

func (e *encoder) appendMarshaled(b []byte, t reflect.Type, raw []byte) ([]byte, error) {
	v := reflect.New(t).Interface()
	if err := utiljson.UnmarshalCaseSensitivePreserveInts(raw, v); err != nil {
		return b, errUnusual
	}
	if t.Kind() != reflect.Struct && len(raw) <= len("[]") {
		e.exact = false
	}
	data, err := v.(marshaler).Marshal()
	return append(b, data...), err
}
