// Package definitions is the embedded form of the types that server-side apply needs of the built-in kinds: JSON with one-letter
// names, which is read in a few milliseconds. Reading the OpenAPI schemas that it is generated from (see ../gen) takes ten times
// as long.
package definitions

import (
	"cmp"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"sigs.k8s.io/structured-merge-diff/v6/schema"
)

// Definitions has the kinds and their types.
type Definitions struct {
	Kinds []Kind `json:"kinds"`
	Types []Type `json:"types"`
}

// Kind is a kind and the name of its type, "" if only the kind's existence is known.
type Kind struct {
	Group   string `json:"g,omitempty"`
	Version string `json:"v"`
	Kind    string `json:"k"`
	Type    string `json:"t,omitempty"`
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

// Ref is a schema.TypeRef: the name of a type, or an inlined type.
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

// Sort sorts the kinds.
func (d *Definitions) Sort() {
	slices.SortFunc(d.Kinds, func(a, b Kind) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Kind, b.Kind))
	})
}

// Write writes the definitions. The same definitions give the same bytes.
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

// Read reads the output of Write. It fails only for other input.
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

// Schema returns the types as structured-merge-diff takes them.
func (d *Definitions) Schema() []schema.TypeDef {
	types := make([]schema.TypeDef, len(d.Types))
	for i, t := range d.Types {
		types[i] = schema.TypeDef{Name: t.Name, Atom: t.Atom.schema()}
	}
	return types
}

func (a *Atom) schema() (s schema.Atom) {
	if a == nil {
		return s
	}
	if a.Scalar != "" {
		s.Scalar = &a.Scalar
	}
	if l := a.List; l != nil {
		s.List = &schema.List{ElementType: l.Element.schema(), ElementRelationship: l.Relationship, Keys: l.Keys}
	}
	if m := a.Map; m != nil {
		s.Map = &schema.Map{ElementType: m.Element.schema(), ElementRelationship: m.Relationship}
		if m.Fields != nil {
			s.Map.Fields = make([]schema.StructField, len(m.Fields))
		}
		for i := range m.Fields {
			f := &m.Fields[i]
			s.Map.Fields[i] = schema.StructField{Name: f.Name, Type: f.Type.schema(), Default: f.Default}
		}
	}
	return s
}

func (r *Ref) schema() schema.TypeRef {
	s := schema.TypeRef{Inlined: r.Inlined.schema()}
	if r.Name != "" {
		s.NamedType = &r.Name
	}
	if r.Relationship != "" {
		s.ElementRelationship = &r.Relationship
	}
	return s
}

// FromSchema is the inverse of Schema, except that it sorts types and fields. Unions are omitted: no built-in kind has any.
func FromSchema(types []schema.TypeDef) []Type {
	var d []Type
	for _, t := range types {
		d = append(d, Type{Name: t.Name, Atom: fromAtom(t.Atom)})
	}
	slices.SortFunc(d, func(a, b Type) int { return cmp.Compare(a.Name, b.Name) })
	return d
}

func fromAtom(s schema.Atom) (a Atom) {
	if s.Scalar != nil {
		a.Scalar = *s.Scalar
	}
	if l := s.List; l != nil {
		a.List = &List{Element: fromRef(l.ElementType), Relationship: l.ElementRelationship, Keys: l.Keys}
	}
	if m := s.Map; m != nil {
		a.Map = &Map{Element: fromRef(m.ElementType), Relationship: m.ElementRelationship}
		for _, f := range m.Fields {
			a.Map.Fields = append(a.Map.Fields, Field{Name: f.Name, Type: fromRef(f.Type), Default: f.Default})
		}
		slices.SortFunc(a.Map.Fields, func(a, b Field) int { return cmp.Compare(a.Name, b.Name) })
	}
	return a
}

func fromRef(s schema.TypeRef) (r Ref) {
	if s.NamedType != nil {
		r.Name = *s.NamedType
	}
	if s.ElementRelationship != nil {
		r.Relationship = *s.ElementRelationship
	}
	if s.Inlined != (schema.Atom{}) {
		inlined := fromAtom(s.Inlined)
		r.Inlined = &inlined
	}
	return r
}
