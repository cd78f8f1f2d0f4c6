// Package admission tests sqube against the documentation of admission: built-in plugins, webhooks and policies.
package admission

import (
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
)

func TestMain(m *testing.M) { kit.Main(m) }
