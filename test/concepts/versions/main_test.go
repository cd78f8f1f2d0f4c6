// Package versions holds sqube to what the documents say of API versions: deprecation, switching on and off, stored versions.
package versions

import (
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
)

func TestMain(m *testing.M) { kit.Main(m) }
