// Command gen writes the definitions of the built-in kinds in the form the server embeds for server-side apply.
//
// It takes them from the OpenAPI v3 documents that k8s.io/kubernetes ships under api/openapi-spec.
//
//	go run ./internal/gen -out definitions.json.gz
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-openapi/pkg/schemaconv"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/sqube/sqube/server/resources/internal/definitions"
)

const module = "k8s.io/kubernetes"

func main() {
	log.SetFlags(0)
	out := flag.String("out", "definitions.json.gz", "file to write")
	flag.Parse()
	if err := run(*out); err != nil {
		log.Fatalf("gen: %v", err)
	}
}

func run(out string) error {
	schemas, err := upstream()
	if err != nil {
		return err
	}
	d, err := define(schemas)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if err := d.Write(&text); err != nil {
		return err
	}
	return os.WriteFile(out, text.Bytes(), 0o644)
}

// upstream reads the schemas of all documents.
func upstream() (map[string]*spec.Schema, error) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return nil, fmt.Errorf("find module %s with go list: %w", module, err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "api/openapi-spec/v3/*_openapi.json"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("module %s is not in the module cache: run go mod download", module)
	}
	schemas := map[string]*spec.Schema{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		document := spec3.OpenAPI{Components: &spec3.Components{}}
		if err := json.Unmarshal(text, &document); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for name, schema := range document.Components.Schemas {
			schemas[name] = schema
		}
	}
	return schemas, nil
}

// define converts schemas to definitions.
func define(schemas map[string]*spec.Schema) (*definitions.Definitions, error) {
	converted, err := schemaconv.ToSchemaFromOpenAPI(schemas, false)
	if err != nil {
		return nil, err
	}
	d := &definitions.Definitions{Types: definitions.FromSchema(converted.Types)}
	for name, schema := range schemas {
		var kinds []metav1.GroupVersionKind
		if err := schema.Extensions.GetObject("x-kubernetes-group-version-kind", &kinds); err != nil {
			return nil, fmt.Errorf("kinds of %s: %w", name, err)
		}
		if len(kinds) != 1 {
			continue // no kind, or DeleteOptions and WatchEvent, which are in every group version and never stored
		}
		d.Kinds = append(d.Kinds, definitions.Kind{Group: kinds[0].Group, Version: kinds[0].Version, Kind: kinds[0].Kind, Type: name})
	}
	slices.SortFunc(d.Kinds, func(a, b definitions.Kind) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Kind, b.Kind))
	})
	return d, nil
}
