// Command gen writes the OpenAPI documents of the built-in APIs in the form the server embeds.
//
// It takes the documents in api/openapi-spec of k8s.io/kubernetes, adds what upstream's snapshot lacks (the release, and enums,
// which kube-apiserver publishes by default), renders each as JSON, and v2 also as protobuf, compresses every piece, and writes
// them to one archive with an index.
//
//	go run ./internal/gen -out builtin
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
	generated "k8s.io/kubernetes/pkg/generated/openapi"

	"github.com/sqube/sqube/server/openapi/internal/archive"
)

const module = "k8s.io/kubernetes"

func main() {
	log.SetFlags(0)
	out := flag.String("out", "builtin", "folder to write the archive and its index to")
	flag.Parse()
	if err := run(*out); err != nil {
		log.Fatalf("gen: %v", err)
	}
}

func run(out string) error {
	dir, release, err := upstream()
	if err != nil {
		return err
	}
	w := &archive.Writer{}
	index := archive.Index{Release: release}
	enums := enums(generated.GetOpenAPIDefinitions(func(name string) spec.Ref { return spec.MustCreateRef("#/" + name) }))
	if index.V3, err = version3(w, filepath.Join(dir, "v3"), release, enums); err != nil {
		return err
	}
	if index.V2, err = version2(w, filepath.Join(dir, "swagger.json"), release, enums); err != nil {
		return err
	}
	return w.WriteFiles(out, index)
}

// upstream returns the folder of the documents in the module cache, and their release.
func upstream() (dir, release string, err error) {
	b, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}\n{{.Version}}", module).Output()
	if err != nil {
		return "", "", fmt.Errorf("find module %s with go list: %w", module, err)
	}
	lines := strings.Fields(string(b))
	if len(lines) != 2 {
		return "", "", fmt.Errorf("module %s is not in the module cache: run go mod download", module)
	}
	return filepath.Join(lines[0], "api", "openapi-spec"), lines[1], nil
}

// object is a JSON object whose numbers are kept as written.
type object = map[string]any

// readDocument reads an upstream document and sets the release in it.
func readDocument(path, release string) (object, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	d := json.NewDecoder(f)
	d.UseNumber()
	var doc object
	if err := d.Decode(&doc); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	info, ok := doc["info"].(object)
	if !ok {
		return nil, fmt.Errorf("%s: has no info object", path)
	}
	info["version"] = release
	return doc, nil
}

// enumHeader begins the list of values in the description of an enum, or of a list of enums.
const enumHeader = "Possible enum values:"

// enums adds enums to schemas. Upstream's snapshot is made with the feature gate OpenAPIEnums disabled, because clients are
// generated from it; in a server it is enabled.
type enums map[string]common.OpenAPIDefinition

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
