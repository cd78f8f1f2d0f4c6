// Package aggregation tests sqube against the documentation of aggregated APIs, discovery and OpenAPI.
package aggregation

import (
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
)

func TestMain(m *testing.M) { kit.Main(m) }
