// Package watch tests sqube against the documentation of watches, bookmarks and streaming lists.
package watch

import (
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
)

func TestMain(m *testing.M) { kit.Main(m) }
