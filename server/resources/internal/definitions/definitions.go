// Package definitions is the embedded form of the types that server-side apply needs of the built-in kinds. It is read in a few
// milliseconds; reading the OpenAPI schemas that it is generated from (see ../gen) takes ten times as long.
package definitions

import (
	"cmp"
	"compress/gzip"
	"encoding/gob"
	"fmt"
	"io"
	"slices"

	"sigs.k8s.io/structured-merge-diff/v6/schema"
)

// Definitions has the kinds and their types.
type Definitions struct {
	Kinds []Kind
	Types []schema.TypeDef
}

// Kind is a kind and the name of its type, "" if only the kind's existence is known.
type Kind struct{ Group, Version, Kind, Type string }

func init() { gob.Register(map[string]any{}) } // for defaults of fields

// Write writes the definitions, sorted. The same definitions give the same bytes.
func (d *Definitions) Write(w io.Writer) error {
	slices.SortFunc(d.Kinds, func(a, b Kind) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Kind, b.Kind))
	})
	slices.SortFunc(d.Types, func(a, b schema.TypeDef) int { return cmp.Compare(a.Name, b.Name) })
	for i := range d.Types {
		sortFields(&d.Types[i].Atom)
	}
	packed, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	if err := gob.NewEncoder(packed).Encode(d); err != nil {
		return err
	}
	return packed.Close()
}

func sortFields(a *schema.Atom) {
	if a.List != nil {
		sortFields(&a.List.ElementType.Inlined)
	}
	if a.Map != nil {
		sortFields(&a.Map.ElementType.Inlined)
		for i := range a.Map.Fields {
			sortFields(&a.Map.Fields[i].Type.Inlined)
		}
		slices.SortFunc(a.Map.Fields, func(a, b schema.StructField) int { return cmp.Compare(a.Name, b.Name) })
	}
}

// Read reads the output of Write. It fails only for other input.
func Read(r io.Reader) (*Definitions, error) {
	unpacked, err := gzip.NewReader(r)
	if err != nil {
		return nil, fmt.Errorf("reading definitions of kinds: %w", err)
	}
	d := &Definitions{}
	if err := gob.NewDecoder(unpacked).Decode(d); err != nil {
		return nil, fmt.Errorf("reading definitions of kinds: %w", err)
	}
	return d, nil
}
