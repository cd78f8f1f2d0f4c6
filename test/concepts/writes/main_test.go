// Package writes holds sqube to what the documents say of writes: updates, patches, dry run, field validation, generated values.
package writes

import (
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
)

func TestMain(m *testing.M) { kit.Main(m) }
