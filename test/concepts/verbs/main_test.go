// Package verbs tests sqube against the documentation of verbs, paths, names, subresources and virtual resources.
package verbs

import (
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
)

func TestMain(m *testing.M) { kit.Main(m) }
