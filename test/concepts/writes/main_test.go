// Package writes tests sqube against the documentation of writes: updates, patches, dry run, field validation, generated
// values.
package writes

import (
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
)

func TestMain(m *testing.M) { kit.Main(m) }
