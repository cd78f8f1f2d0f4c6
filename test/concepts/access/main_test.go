// Package access tests sqube against the documentation of authentication and authorization: who a client is, and what it may
// do.
package access

import (
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
)

func TestMain(m *testing.M) { kit.Main(m) }
