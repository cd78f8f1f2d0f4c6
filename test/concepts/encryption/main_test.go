// Package encryption tests sqube against the documentation of encryption at
// rest.
package encryption

import (
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
)

func TestMain(m *testing.M) { kit.Main(m) }
