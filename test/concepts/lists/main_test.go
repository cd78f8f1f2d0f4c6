// Package lists tests sqube against the documentation of reads: resource versions, lists, pages, selectors, compression.
package lists

import (
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
)

func TestMain(m *testing.M) { kit.Main(m) }
