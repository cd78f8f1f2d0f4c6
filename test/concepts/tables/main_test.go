// Package tables tests sqube against the documentation of Tables and of partial object metadata.
package tables

import (
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
)

func TestMain(m *testing.M) { kit.Main(m) }
