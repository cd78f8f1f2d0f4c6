package bodies

import (
	"bytes"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

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
