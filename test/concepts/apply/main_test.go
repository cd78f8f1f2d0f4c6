// Package apply tests sqube against the documentation of server-side apply.
package apply

import (
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
)

func TestMain(m *testing.M) { kit.Main(m) }
