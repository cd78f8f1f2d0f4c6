// Package customresources tests sqube against the documentation of custom resources, from their definitions to their
// conversion.
package customresources

import (
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
)

func TestMain(m *testing.M) { kit.Main(m) }
