package resources

import (
	"bytes"
	"compress/gzip"
	_ "embed" // for the definitions
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// definitions are the OpenAPI v3 schemas of the built-in kinds by name, as gzipped JSON. Upstream's, which are compiled
// from Go (k8s.io/kubernetes/pkg/generated/openapi), would add 8 MB to the binary and double the time this takes.
//
//go:generate go run -tags grpcnotrace ./internal/gen -out definitions.json.gz
//go:embed definitions.json.gz
var definitions []byte

// NewTypeConverter returns what server-side apply knows about the built-in kinds, whichever are served: which lists are
// maps or sets and by which keys (KEP-555). It has the kinds of apiextensions.k8s.io and apiregistration.k8s.io too. It
// fails only when the binary was built with a broken definitions.json.gz.
func NewTypeConverter() (managedfields.TypeConverter, error) {
	unpacked, err := gzip.NewReader(bytes.NewReader(definitions))
	if err != nil {
		return nil, fmt.Errorf("reading the embedded definitions of the built-in kinds: %w", err)
	}
	var schemas map[string]*spec.Schema
	if err := json.NewDecoder(unpacked).Decode(&schemas); err != nil {
		return nil, fmt.Errorf("reading the embedded definitions of the built-in kinds: %w", err)
	}
	converter, err := managedfields.NewTypeConverter(schemas, false)
	if err != nil {
		return nil, fmt.Errorf("understanding the embedded definitions of the built-in kinds: %w", err)
	}
	return converter, nil
}
