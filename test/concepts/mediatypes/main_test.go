// Package mediatypes tests sqube against the documentation of media types: JSON, YAML, protobuf and CBOR.
package mediatypes

import (
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
)

func TestMain(m *testing.M) { kit.Main(m) }
