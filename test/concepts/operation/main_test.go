// Package operation tests sqube against the documentation of running a server: health, audit, priority and fairness.
package operation

import (
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
)

func TestMain(m *testing.M) { kit.Main(m) }
