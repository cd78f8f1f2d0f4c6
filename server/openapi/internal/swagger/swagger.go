// Package swagger renders parts of an OpenAPI v2 document. Concatenated, they are a whole document.
package swagger

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	"google.golang.org/protobuf/proto"
)

// Object is a JSON object.
type Object = map[string]any

// The sections of a document that are split into parts.
const (
	Paths       = "paths"
	Definitions = "definitions"
	Parameters  = "parameters"
)

// Sections lists them.
var Sections = []string{Paths, Definitions, Parameters}

// Part has some of the paths, definitions and parameters of a document, by section and name.
type Part map[string]Object

// Add adds the content of from.
func (p Part) Add(from Part) {
	for section, values := range from {
		for name, value := range values {
			p.Set(section, name, value)
		}
	}
}

// Set sets one value.
func (p Part) Set(section, name string, value any) {
	if p[section] == nil {
		p[section] = Object{}
	}
	p[section][name] = value
}

// Take moves the values for which fits returns true to a new part.
func (p Part) Take(fits func(section, name string) bool) Part {
	taken := Part{}
	for section, values := range p {
		maps.DeleteFunc(values, func(name string, value any) bool {
			if !fits(section, name) {
				return false
			}
			taken.Set(section, name, value)
			return true
		})
	}
	return taken
}

// Names lists the names in all sections. They are all different: paths begin with a slash, parameters end in a hash, definitions
// are type names.
func (p Part) Names() []string {
	var names []string
	for _, section := range Sections {
		names = append(names, slices.Sorted(maps.Keys(p[section]))...)
	}
	return names
}

// Members renders an object without its braces, sorted by key and compact. For an empty object it returns nil.
func Members(o Object) ([]byte, error) {
	if len(o) == 0 {
		return nil, nil
	}
	text, err := JSON(o)
	if err != nil {
		return nil, err
	}
	return text[1 : len(text)-1], nil
}

// JSON renders a value compactly, with sorted keys, and without the escapes that only HTML needs.
func JSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("render OpenAPI: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// Proto renders the part as a Document message in which only its three fields are set. A sequence of messages is read as one
// message with the fields of all, and with their lists joined (https://protobuf.dev/programming-guides/encoding/#last-one-wins).
func (p Part) Proto() ([]byte, error) {
	message, err := parse(Object{"swagger": "2.0", "info": Object{"title": "", "version": ""}}, p)
	if err != nil {
		return nil, err
	}
	return marshal(&openapi_v2.Document{
		Paths: message.Paths, Definitions: message.Definitions, Parameters: message.Parameters,
	})
}

// HeadProto renders everything in a document except its parts.
func HeadProto(head Object) ([]byte, error) {
	message, err := parse(head, Part{})
	if err != nil {
		return nil, err
	}
	return marshal(message)
}

func parse(head Object, p Part) (*openapi_v2.Document, error) {
	doc := maps.Clone(head)
	doc[Paths] = Object{} // required
	for section, values := range p {
		doc[section] = values
	}
	text, err := JSON(doc)
	if err != nil {
		return nil, err
	}
	message, err := openapi_v2.ParseDocument(text)
	if err != nil {
		return nil, fmt.Errorf("render OpenAPI v2 as protobuf: %w", err)
	}
	return message, nil
}

func marshal(m proto.Message) ([]byte, error) {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("render OpenAPI v2 as protobuf: %w", err)
	}
	return b, nil
}
