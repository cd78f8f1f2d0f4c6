package transcode

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// marshaler is implemented by generated protobuf types.
type marshaler interface{ Marshal() ([]byte, error) }

// kind is how a value is written.
type kind int

const (
	text   kind = iota
	octets      // base64 in JSON
	boolean
	signed // int, int32, int64
	unsigned
	double
	message  // by a plan
	instant  // metav1.Time
	verbatim // the JSON itself, in a message
	custom   // by the methods of its type
)

// value describes a value: of a field, of an element, or in a map.
type value struct {
	kind kind
	bits int          // of signed and unsigned
	plan *plan        // of message
	typ  reflect.Type // of custom
}

// field is a field of a message, as in JSON.
type field struct {
	value
	name     string
	tag      []byte // number and wire type
	repeated bool
	mapped   bool // a map: messages of key and value
}

// objectMeta reports whether the field is the metadata of an object, or of a template or claim.
func (f *field) objectMeta() bool {
	return f.name == "metadata" && f.plan != nil && f.plan.version >= 0
}

// node is a field of a message, as in protobuf: a field of the JSON, or a message whose fields are inline in the JSON.
type node struct {
	number protowire.Number
	leaf   int    // index in plan.fields, if there are no nodes
	zero   []byte // what is written if the JSON has no such field, with the tag; usually nothing
	tag    []byte
	nodes  []node
}

// plan describes how the JSON of a type is turned into its message.
type plan struct {
	fields []field
	names  map[string]int // in fields
	nodes  []node         // by number
	// Fields of metav1.ObjectMeta; -1 in others.
	version, managedFields int
}

// find returns the index of the field with that name, or -1. It tries the field after the previous one first, since encoders
// write fields in the order of the type.
func (p *plan) find(name []byte, before int) int {
	for i := before + 1; i < min(before+8, len(p.fields)); i++ {
		if p.fields[i].name == string(name) {
			return i
		}
	}
	if i, ok := p.names[string(name)]; ok {
		return i
	}
	return -1
}

type planner struct {
	mu    sync.Mutex
	plans map[reflect.Type]*plan
}

var shared = planner{plans: map[reflect.Type]*plan{}}

var (
	timeType      = reflect.TypeFor[metav1.Time]()
	metaType      = reflect.TypeFor[metav1.ObjectMeta]()
	typeMetaType  = reflect.TypeFor[metav1.TypeMeta]()
	verbatimTypes = map[reflect.Type]bool{reflect.TypeFor[metav1.FieldsV1](): true, reflect.TypeFor[runtime.RawExtension](): true}
)

// root returns the plan of the type of an API object.
func (p *planner) root(t reflect.Type) (*plan, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	made, err := p.of(t)
	if err != nil {
		return nil, err
	}
	if i, ok := made.names["metadata"]; !ok || !made.fields[i].objectMeta() {
		return nil, fmt.Errorf("%s has no object metadata", t)
	}
	return made, nil
}

// of returns the plan of a struct. The caller holds p.mu.
func (p *planner) of(t reflect.Type) (*plan, error) {
	if made := p.plans[t]; made != nil {
		return made, nil
	}
	made := &plan{names: map[string]int{}, version: -1, managedFields: -1}
	p.plans[t] = made // before its fields: types may contain themselves
	var err error
	if made.nodes, err = p.nodes(made, t); err != nil {
		delete(p.plans, t)
		return nil, err
	}
	if t == metaType {
		made.version, made.managedFields = made.names["resourceVersion"], made.names["managedFields"]
	}
	return made, nil
}

// nodes adds the fields of t to a plan.
func (p *planner) nodes(to *plan, t reflect.Type) ([]node, error) {
	zero, err := zeros(t)
	if err != nil {
		return nil, err
	}
	var nodes []node
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Type == typeMetaType {
			continue // in the envelope, not in the message
		}
		number, err := protobufNumber(f)
		if err != nil {
			return nil, fmt.Errorf("%s.%s: %w", t, f.Name, err)
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		wire := protowire.BytesType
		n := node{number: number, zero: zero[number]}
		if name == "" && f.Anonymous && f.Type.Kind() == reflect.Struct {
			if n.nodes, err = p.nodes(to, f.Type); err != nil {
				return nil, err
			}
		} else {
			if name == "" || name == "-" {
				return nil, fmt.Errorf("%s.%s has no name in JSON", t, f.Name)
			}
			if _, twice := to.names[name]; twice {
				return nil, fmt.Errorf("%s has two fields %q", t, name)
			}
			made, err := p.field(f.Type)
			if err != nil {
				return nil, fmt.Errorf("%s.%s: %w", t, f.Name, err)
			}
			if !made.mapped {
				wire = made.wire()
			}
			made.name = name
			made.tag = protowire.AppendTag(nil, number, wire)
			n.leaf = len(to.fields)
			to.names[name] = n.leaf
			to.fields = append(to.fields, made)
		}
		n.tag = protowire.AppendTag(nil, number, wire)
		nodes = append(nodes, n)
	}
	slices.SortFunc(nodes, func(a, b node) int { return cmp.Compare(a.number, b.number) })
	return nodes, nil
}

func (p *planner) field(t reflect.Type) (field, error) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	var f field
	var err error
	switch {
	case t.Kind() == reflect.Map && !isMarshaler(t):
		if t.Key().Kind() != reflect.String {
			return f, fmt.Errorf("map keys of type %s are not supported", t.Key())
		}
		f.mapped = true
		f.value, err = p.value(t.Elem())
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8 && !isMarshaler(t):
		f.repeated = true
		f.value, err = p.value(t.Elem())
	default:
		f.value, err = p.value(t)
	}
	return f, err
}

func (p *planner) value(t reflect.Type) (v value, err error) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == timeType:
		return value{kind: instant}, nil
	case verbatimTypes[t]:
		return value{kind: verbatim}, nil
	case isMarshaler(t) && (t.Kind() != reflect.Struct || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]())):
		return value{kind: custom, typ: t}, nil
	}
	switch t.Kind() {
	case reflect.String:
		return value{kind: text}, nil
	case reflect.Bool:
		return value{kind: boolean}, nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return value{kind: signed, bits: t.Bits()}, nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return value{kind: unsigned, bits: t.Bits()}, nil
	case reflect.Float64:
		return value{kind: double}, nil
	case reflect.Struct:
		if !isMarshaler(t) {
			return v, fmt.Errorf("%s is not a message", t)
		}
		made, err := p.of(t)
		return value{kind: message, plan: made}, err
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return value{kind: octets}, nil
		}
	}
	return v, fmt.Errorf("%s is of an unknown kind", t)
}

func (v value) wire() protowire.Type {
	switch v.kind {
	case boolean, signed, unsigned:
		return protowire.VarintType
	case double:
		return protowire.Fixed64Type
	}
	return protowire.BytesType
}

func isMarshaler(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[marshaler]())
}

// zeros returns the fields in the message of a zero t, by number.
func zeros(t reflect.Type) (map[protowire.Number][]byte, error) {
	empty, ok := reflect.New(t).Interface().(marshaler)
	if !ok {
		return nil, fmt.Errorf("%s is not a message", t)
	}
	data, err := empty.Marshal()
	if err != nil {
		return nil, err
	}
	fields := map[protowire.Number][]byte{}
	for len(data) > 0 {
		number, _, n := protowire.ConsumeField(data)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		fields[number] = data[:n:n]
		data = data[n:]
	}
	return fields, nil
}

// protobufNumber parses a tag such as `protobuf:"bytes,1,rep,name=items"`.
func protobufNumber(f reflect.StructField) (protowire.Number, error) {
	parts := strings.Split(f.Tag.Get("protobuf"), ",")
	if len(parts) < 2 {
		return 0, errors.New("it has no protobuf tag")
	}
	n, err := strconv.ParseInt(parts[1], 10, 32)
	return protowire.Number(n), err
}
