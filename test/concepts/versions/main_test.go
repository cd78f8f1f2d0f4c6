// Package versions tests sqube against the documentation of API versions: deprecation, enabling and disabling, stored versions.
package versions

import (
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
)

func TestMain(m *testing.M) { kit.Main(m) }
