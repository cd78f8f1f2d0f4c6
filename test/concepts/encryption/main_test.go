// Package encryption holds sqube to what the documents say of encryption at rest.
package encryption

import (
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
)

func TestMain(m *testing.M) { kit.Main(m) }
