// Package tables holds sqube to what the documents say of Tables and of metadata alone.
package tables

import (
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
)

func TestMain(m *testing.M) { kit.Main(m) }
