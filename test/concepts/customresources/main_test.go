// Package customresources holds sqube to what the documents say of custom resources, from their definitions to their conversion.
package customresources

import (
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
)

func TestMain(m *testing.M) { kit.Main(m) }
