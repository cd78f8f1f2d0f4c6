package transcode

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// Filter removes fields from the messages of one API type, so that less has to be unmarshaled.
type Filter struct {
	fields []*Filter // what to do with each field, by number
	others *Filter   // and with fields of other numbers
}

// What to do with a field, unless it is a message whose own fields are filtered.
var (
	keep = new(Filter)
	drop = new(Filter)
)

// Filter returns a filter that removes managed fields, and from each message in only all fields but those named. Messages are
// named by path, such as "spec.containers"; "" is the object itself.
func (t *Type) Filter(only map[string][]string) (*Filter, error) {
	paths := maps.Clone(only)
	made, err := t.plan.filter("", paths)
	if err == nil && len(paths) > 0 {
		err = fmt.Errorf("no messages have the paths %q", slices.Sorted(maps.Keys(paths)))
	}
	return made, err
}

// filter returns the Filter of the message at a path, and removes the path from only.
func (p *plan) filter(path string, only map[string][]string) (*Filter, error) {
	names, some := only[path]
	delete(only, path)
	made := &Filter{others: keep}
	if some {
		made.others = drop
	}
	missing := slices.Clone(names)
	for i := range p.nodes {
		n := &p.nodes[i]
		becomes := made.others
		if n.nodes == nil {
			f := &p.fields[n.leaf]
			if slices.Contains(names, f.name) {
				becomes = keep
				missing = slices.DeleteFunc(missing, func(name string) bool { return name == f.name })
			}
			if n.leaf == p.managedFields {
				becomes = drop
			}
			below := strings.TrimPrefix(path+"."+f.name, ".")
			if becomes == keep && f.kind == message && !f.mapped && (path == "" && f.objectMeta() || holds(only, below)) {
				var err error
				if becomes, err = f.plan.filter(below, only); err != nil {
					return nil, err
				}
			}
		}
		if more := int(n.number) + 1 - len(made.fields); more > 0 {
			made.fields = append(made.fields, slices.Repeat([]*Filter{made.others}, more)...)
		}
		made.fields[n.number] = becomes
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("the message %q has no fields %q", path, missing)
	}
	return made, nil
}

// holds reports whether a path, or one below it, is in only.
func holds(only map[string][]string, path string) bool {
	for at := range only {
		if at == path || strings.HasPrefix(at, path+".") {
			return true
		}
	}
	return false
}

// Append appends a message to b without the removed fields. Lengths may take more bytes than necessary.
func (f *Filter) Append(b, message []byte) ([]byte, error) {
	from := 0 // start of what has not been appended yet
	for at := 0; at < len(message); {
		number, kind, tag := protowire.ConsumeTag(message[at:])
		if tag < 0 {
			return b, protowire.ParseError(tag)
		}
		size := protowire.ConsumeFieldValue(number, kind, message[at+tag:])
		if size < 0 {
			return b, protowire.ParseError(size)
		}
		field := f.others
		if int(number) < len(f.fields) {
			field = f.fields[number]
		}
		end := at + tag + size
		switch {
		case field == keep:
		case field == drop:
			b = append(b, message[from:at]...)
			from = end
		case kind == protowire.BytesType:
			content, _ := protowire.ConsumeBytes(message[at+tag:])
			prefix := size - len(content)
			b = append(b, message[from:end-len(content)]...)
			from = end
			begin := len(b)
			var err error
			if b, err = field.Append(b, content); err != nil {
				return b, err
			}
			putLength(b[begin-prefix:begin], len(b)-begin)
		}
		at = end
	}
	return append(b, message[from:]...), nil
}

// putLength writes a length that fills b.
func putLength(b []byte, n int) {
	for i := range b {
		b[i] = byte(n&0x7f) | 0x80
		n >>= 7
	}
	b[len(b)-1] &= 0x7f
}
