package main

import (
	"crypto/sha512"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
	generated "k8s.io/kubernetes/pkg/generated/openapi"

	"github.com/sqube/sqube/server/openapi/internal/archive"
	"github.com/sqube/sqube/server/openapi/internal/swagger"
)

const v3Suffix = "_openapi.json"

// version3 stores every OpenAPI v3 document of the folder. File names are document paths with "__" for "/".
func version3(w *archive.Writer, dir, release string, enums enums) ([]archive.Document, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, f := range files {
		if name, ok := strings.CutSuffix(f.Name(), v3Suffix); ok {
			paths = append(paths, strings.ReplaceAll(name, "__", "/"))
		}
	}
	// kube-apiserver serves /logs only with --enable-logs-handler.
	paths = slices.DeleteFunc(paths, func(p string) bool { return p == "logs" })

	var docs []archive.Document
	for _, path := range paths {
		file := filepath.Join(dir, strings.ReplaceAll(path, "/", "__")+v3Suffix)
		doc, err := readDocument(file, release)
		if err != nil {
			return nil, err
		}
		if components, ok := doc["components"].(object); ok {
			if schemas, ok := components["schemas"].(object); ok {
				enums.restore(schemas)
			}
		}
		text, err := swagger.JSON(doc)
		if err != nil {
			return nil, err
		}
		d := archive.Document{Path: path, Owners: owners("/"+path, paths), ETag: fmt.Sprintf("%X", sha512.Sum512(text))}
		if d.JSON, err = w.Add(text); err != nil {
			return nil, err
		}
		docs = append(docs, d)
	}
	return docs, nil
}

// owners returns the group versions for which a request path exists: its own, or for the discovery path of a group, all versions of
// the group. A path that always exists has no owners.
func owners(path string, v3Paths []string) []string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) > 1:
		return []string{parts[1]}
	case parts[0] == "apis" && len(parts) > 2:
		return []string{parts[1] + "/" + parts[2]}
	case parts[0] == "apis" && len(parts) == 2:
		var versions []string
		for _, p := range v3Paths {
			if version, ok := strings.CutPrefix(p, "apis/"+parts[1]+"/"); ok {
				versions = append(versions, parts[1]+"/"+version)
			}
		}
		return versions
	}
	return nil
}

// enumHeader begins the list of values in the description of an enum, or of a list of enums.
const enumHeader = "Possible enum values:"

// enums adds enums to schemas. Upstream's snapshot is made with the feature gate OpenAPIEnums disabled, because clients are
// generated from it; in a server it is enabled.
type enums map[string]common.OpenAPIDefinition

func newEnums() enums {
	return generated.GetOpenAPIDefinitions(func(name string) spec.Ref { return spec.MustCreateRef("#/" + name) })
}

// restore changes the schemas (by definition name) in place.
func (e enums) restore(schemas object) {
	for name, schema := range schemas {
		if definition, ok := e[name]; ok {
			restore(schema, &definition.Schema)
		}
	}
}

func restore(schema any, from *spec.Schema) {
	to, ok := schema.(object)
	if !ok || from == nil {
		return
	}
	if len(from.Enum) > 0 {
		to["enum"] = from.Enum
	}
	if strings.Contains(from.Description, enumHeader) {
		to["description"] = from.Description
	}
	if properties, ok := to["properties"].(object); ok {
		for name, property := range from.Properties {
			restore(properties[name], &property)
		}
	}
	if from.Items != nil {
		restore(to["items"], from.Items.Schema)
	}
	if from.AdditionalProperties != nil {
		restore(to["additionalProperties"], from.AdditionalProperties.Schema)
	}
}
