// Command gen writes the definitions of the built-in kinds in the form the server embeds for server-side apply.
//
// It takes them from the OpenAPI v3 documents that k8s.io/kubernetes ships under api/openapi-spec and leaves out what
// only people and validators read, which is nine tenths of the text.
//
//	go run ./internal/gen -out definitions.json.gz
package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
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
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return fmt.Errorf("find module %s with go list: %w", module, err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "api/openapi-spec/v3/*_openapi.json"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("module %s has no OpenAPI documents: run go mod download (%w)", module, err)
	}
	definitions := map[string]*spec.Schema{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var document spec3.OpenAPI
		if err := json.Unmarshal(text, &document); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if document.Components == nil {
			continue
		}
		for name, definition := range document.Components.Schemas {
			shrink(definition)
			definitions[name] = definition
		}
	}
	text, err := json.Marshal(definitions)
	if err != nil {
		return err
	}
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := z.Write(text); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return os.WriteFile(out, packed.Bytes(), 0o644)
}

// shrink takes from a schema, in place, what says nothing about how its values are merged.
func shrink(s *spec.Schema) {
	if s == nil {
		return
	}
	s.Description, s.Required, s.Enum = "", nil, nil
	for name, property := range s.Properties {
		shrink(&property)
		s.Properties[name] = property
	}
	for i := range s.AllOf {
		shrink(&s.AllOf[i])
	}
	if s.Items != nil {
		shrink(s.Items.Schema)
	}
	if s.AdditionalProperties != nil {
		shrink(s.AdditionalProperties.Schema)
	}
}
