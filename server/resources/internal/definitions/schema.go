package definitions

import (
	"cmp"
	"slices"

	"sigs.k8s.io/structured-merge-diff/v6/schema"
)

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

// FromSchema is the inverse of Schema, but that it sorts types and fields. Unions are left out: no built-in kind has any.
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
