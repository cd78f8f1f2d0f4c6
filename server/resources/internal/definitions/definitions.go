// Package definitions is the form in which a binary carries what server-side apply has to know about the built-in kinds:
// JSON with one-letter names, which is read in a few milliseconds. The OpenAPI schemas that it is made from (see ../gen)
// take ten times as long to read and understand.
package definitions

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"

	"sigs.k8s.io/structured-merge-diff/v6/schema"
)

// Definitions are types, and which of them describes which kind.
type Definitions struct {
	Kinds []Kind `json:"kinds"`
	Types []Type `json:"types"`
}

// Kind says which type describes a kind.
type Kind struct {
	Group   string `json:"g,omitempty"`
	Version string `json:"v"`
	Kind    string `json:"k"`
	Type    string `json:"t"`
}

// Type is a schema.TypeDef.
type Type struct {
	Name string `json:"n"`
	Atom
}

// Atom is a schema.Atom: what a value may be.
type Atom struct {
	Scalar schema.Scalar `json:"s,omitempty"`
	List   *List         `json:"l,omitempty"`
	Map    *Map          `json:"m,omitempty"`
}

// Ref is a schema.TypeRef: the name of a type, or a type of its own.
type Ref struct {
	Name         string                     `json:"n,omitempty"`
	Inlined      *Atom                      `json:"i,omitempty"`
	Relationship schema.ElementRelationship `json:"r,omitempty"`
}

// List is a schema.List.
type List struct {
	Element      Ref                        `json:"e,omitzero"`
	Relationship schema.ElementRelationship `json:"r,omitempty"`
	Keys         []string                   `json:"k,omitempty"`
}

// Map is a schema.Map.
type Map struct {
	Fields       []Field                    `json:"f,omitempty"`
	Element      Ref                        `json:"e,omitzero"`
	Relationship schema.ElementRelationship `json:"r,omitempty"`
}

// Field is a schema.StructField.
type Field struct {
	Name    string `json:"n"`
	Type    Ref    `json:"t,omitzero"`
	Default any    `json:"d,omitempty"`
}

// Write writes the definitions, always the same for the same ones.
func (d *Definitions) Write(w io.Writer) error {
	packed, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(packed).Encode(d); err != nil {
		return err
	}
	return packed.Close()
}

// Read reads what Write wrote. It fails only for other input.
func Read(r io.Reader) (*Definitions, error) {
	unpacked, err := gzip.NewReader(r)
	if err != nil {
		return nil, fmt.Errorf("reading definitions of kinds: %w", err)
	}
	d := &Definitions{}
	if err := json.NewDecoder(unpacked).Decode(d); err != nil {
		return nil, fmt.Errorf("reading definitions of kinds: %w", err)
	}
	return d, nil
}
