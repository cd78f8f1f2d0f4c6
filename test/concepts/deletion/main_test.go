// Package deletion tests sqube against the documentation of deletion: finalizers, garbage collection, collections, namespaces.
package deletion

import (
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
)

func TestMain(m *testing.M) { kit.Main(m) }
