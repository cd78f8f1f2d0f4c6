// Package mediatypes holds sqube to what the documents say of media types: JSON, YAML, protobuf and CBOR.
package mediatypes

import (
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
)

func TestMain(m *testing.M) { kit.Main(m) }
