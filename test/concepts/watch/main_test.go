// Package watch holds sqube to what the documents say of watches, bookmarks and streaming lists.
package watch

import (
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
)

func TestMain(m *testing.M) { kit.Main(m) }
