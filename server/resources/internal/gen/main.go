// Command gen writes the definitions of the built-in kinds in the form the server embeds for server-side apply, and those of the
// previous minor version of Kubernetes.
//
// It takes them from the OpenAPI v3 documents that k8s.io/kubernetes ships under api/openapi-spec. What the previous minor version is,
// it keeps in releases.json: see releases.go.
//
//	go run ./internal/gen -out definitions.gz -previous previous -steps ../../migrations/sqlite
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-openapi/pkg/schemaconv"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/sqube/sqube/server/resources/internal/definitions"
)

const kubernetes = "k8s.io/kubernetes"

func main() {
	log.SetFlags(0)
	out := flag.String("out", "definitions.gz", "file to write")
	previous := flag.String("previous", "previous", "folder of the previous minor version")
	steps := flag.String("steps", "../../migrations/sqlite", "folder of the steps of the database's schema")
	flag.Parse()
	if err := run(*out, *previous, *steps); err != nil {
		log.Fatalf("gen: %v", err)
	}
}

func run(out, previous, steps string) error {
	release, dir, err := module()
	if err != nil {
		return err
	}
	schemas, err := upstream(dir)
	if err != nil {
		return err
	}
	d, err := define(schemas)
	if err != nil {
		return err
	}
	if err := write(out, d); err != nil {
		return err
	}
	return keepPrevious(previous, release, steps)
}

func write(out string, d *definitions.Definitions) error {
	var text bytes.Buffer
	if err := d.Write(&text); err != nil {
		return err
	}
	return os.WriteFile(out, text.Bytes(), 0o644)
}

// module returns the version of k8s.io/kubernetes in go.mod and its folder in the module cache.
func module() (version, dir string, err error) {
	text, err := exec.Command("go", "list", "-m", "-f", "{{.Version}} {{.Dir}}", kubernetes).Output()
	if err != nil {
		return "", "", fmt.Errorf("find module %s with go list: %w", kubernetes, err)
	}
	version, dir, _ = strings.Cut(strings.TrimSpace(string(text)), " ")
	return version, dir, nil
}

// upstream reads the schemas of all documents in the folder of a version of k8s.io/kubernetes.
func upstream(dir string) (map[string]*spec.Schema, error) {
	files, err := filepath.Glob(filepath.Join(dir, "api/openapi-spec/v3/*_openapi.json"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("module %s is not in the module cache: run go mod download", kubernetes)
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
	d := &definitions.Definitions{Types: converted.Types}
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
	return d, nil
}
