// Package previous knows what the previous minor version of Kubernetes knows: which kinds it can decode, and their fields. So it tells
// what an older binary would not read, or would drop from objects, in a database that this one has written.
package previous

import (
	"bytes"
	_ "embed" // for the files of ../internal/gen
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/utils/ptr"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"

	"github.com/sqube/sqube/server/resources/internal/definitions"
	"github.com/sqube/sqube/sqlstore/fieldpath"
)

//go:embed definitions.gz
var embedded []byte

//go:embed releases.json
var releases []byte

// Version is the previous minor version.
type Version struct {
	Release
	name   string
	kinds  map[schema.GroupVersionKind]smd.TypeRef
	stored map[schema.GroupKind][]string // the versions of a kind
	types  smd.Schema
}

// Read returns the previous minor version. It returns an error only if the binary was built with broken files.
func Read() (*Version, error) {
	var r Releases
	if err := json.Unmarshal(releases, &r); err != nil {
		return nil, fmt.Errorf("%s: %w", ReleasesFile, err)
	}
	release, err := version.ParseSemantic(r.Previous.Kubernetes)
	if err != nil {
		return nil, err
	}
	d, err := definitions.Read(bytes.NewReader(embedded))
	if err != nil {
		return nil, err
	}
	return known(d, r.Previous, fmt.Sprintf("v%d.%d", release.Major(), release.Minor())), nil
}

func known(d *definitions.Definitions, release Release, name string) *Version {
	v := &Version{
		Release: release, name: name,
		kinds: map[schema.GroupVersionKind]smd.TypeRef{}, stored: map[schema.GroupKind][]string{}, types: smd.Schema{Types: d.Types},
	}
	for _, k := range d.Kinds {
		kind := schema.GroupVersionKind{Group: k.Group, Version: k.Version, Kind: k.Kind}
		v.kinds[kind] = named(k.Type)
		v.stored[kind.GroupKind()] = append(v.stored[kind.GroupKind()], k.Version)
	}
	return v
}

func named(name string) smd.TypeRef { return smd.TypeRef{NamedType: &name} }

// String returns the version's name, such as v1.36.
func (v *Version) String() string { return v.name }

// UnknownSchema returns what is to be said of the schema of a database, "" if this version's last sqube opens it.
func (v *Version) UnknownSchema(schema uint) string {
	if schema <= v.Schema {
		return ""
	}
	return fmt.Sprintf("the schema is %d, and the last sqube with %s knows those up to %d", schema, v, v.Schema)
}

// Unknown returns what this version does not know of a stored object of a built-in resource: a line for its kind or version, or one
// for each field that it would drop. It returns an error if the value is no object in JSON.
func (v *Version) Unknown(value []byte) ([]string, error) {
	var object map[string]any
	if err := json.Unmarshal(value, &object); err != nil {
		return nil, fmt.Errorf("its value is not an object: %w", err)
	}
	var named metav1.TypeMeta
	named.APIVersion, _ = object["apiVersion"].(string)
	named.Kind, _ = object["kind"].(string)
	kind := named.GroupVersionKind()
	definition, ok := v.kinds[kind]
	switch versions := v.stored[kind.GroupKind()]; {
	case len(versions) == 0:
		return []string{fmt.Sprintf("%s does not have this resource", v)}, nil
	case !ok:
		return []string{fmt.Sprintf("it is stored in version %s, and %s knows %s", kind.Version, v, strings.Join(versions, ", "))}, nil
	}
	missing := map[string]bool{}
	v.walk("", definition, object, missing)
	var lines []string
	for _, path := range slices.Sorted(maps.Keys(missing)) {
		lines = append(lines, fmt.Sprintf("%s does not have the field %s", v, path))
	}
	return lines, nil
}

// Types of which OpenAPI does not tell all.
const (
	schemaOr = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOr" // those that hold a schema begin so
	fieldsV1 = "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1"
	anything = "__untyped_deduced_" // the members of a struct without fields
)

// walk adds the paths of fields that are not defined to missing, each list's and map's items as [*].
func (v *Version) walk(path string, ref smd.TypeRef, value any, missing map[string]bool) {
	name := ptr.Deref(ref.NamedType, "")
	if strings.HasPrefix(name, schemaOr) {
		ref = named(strings.TrimSuffix(schemaOr, "Or"))
	}
	atom, _ := v.types.Resolve(ref)
	if strings.HasPrefix(name, schemaOr) {
		atom.List = &smd.List{ElementType: ref}
	}
	if atom.Scalar != nil || name == fieldsV1 {
		return // it has no fields, or any
	}
	switch value := value.(type) {
	case []any:
		if atom.List != nil {
			for _, item := range value {
				v.walk(path+"[*]", atom.List.ElementType, item, missing)
			}
		}
	case map[string]any:
		if atom.Map != nil {
			v.members(path, atom.Map, value, missing)
		}
	}
}

func (v *Version) members(path string, m *smd.Map, object map[string]any, missing map[string]bool) {
	for name, value := range object {
		switch field, known := m.FindField(name); {
		case known:
			v.walk(path+fieldpath.Field(name), field.Type, value, missing)
		case len(m.Fields) == 0 && ptr.Deref(m.ElementType.NamedType, "") != anything:
			v.walk(path+"[*]", m.ElementType, value, missing)
		case !empty(value):
			missing[path+fieldpath.Field(name)] = true
		}
	}
}

// empty reports whether a value has no content. A struct that is not a pointer is stored as {} if it is not set.
func empty(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case map[string]any:
		return len(value) == 0
	case []any:
		return len(value) == 0
	}
	return false
}
