package openapi

import (
	_ "embed" // for the archive
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sqube/sqube/server/openapi/internal/archive"
)

//go:embed builtin/documents.bin
var data []byte

//go:embed builtin/index.json
var index []byte

// builtin is the part of the archive that is served.
type builtin struct {
	release string
	v3      map[string]archive.Document // by path
	head    archive.Swagger             // without fragments
	v2      []archive.Fragment
}

// loadBuiltin reads the archive's index and keeps the entries of group versions that are served.
func loadBuiltin(served []schema.GroupVersion) (*builtin, error) {
	var i archive.Index
	if err := json.Unmarshal(index, &i); err != nil {
		return nil, fmt.Errorf("read the embedded OpenAPI index (run go generate ./server/openapi): %w", err)
	}
	on := map[string]bool{}
	for _, gv := range served {
		on[gv.String()] = true
	}
	b := &builtin{release: i.Release, v3: map[string]archive.Document{}, head: i.V2}
	b.head.Fragments = nil
	for _, d := range i.V3 {
		if d.Owners.Served(on) {
			b.v3[d.Path] = d
		}
	}
	b.v2 = slices.DeleteFunc(i.V2.Fragments, func(f archive.Fragment) bool { return !f.Owners.Served(on) })
	return b, nil
}
