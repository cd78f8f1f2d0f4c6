package fleet

import (
	"context"
	"slices"
	"strings"
	"testing"
)

// idsOnly is a Databases that has only names.
type idsOnly struct {
	Databases
	ids []string
}

func (d idsOnly) IDs(context.Context) ([]string, error) { return d.ids, nil }

// TestUnknownDatabases checks which databases the host reports as unknown. It does not touch them.
func TestUnknownDatabases(t *testing.T) {
	f := New(Config{Databases: idsOnly{ids: []string{"known", "deleted", "lost"}}})
	c := f.addForTest("x", "a")
	c.id = "known"
	got, err := f.unknown(t.Context(), func(yield func(string)) error { yield("deleted"); return nil })
	if err != nil || !slices.Equal(got, []string{"lost"}) {
		t.Errorf("got %s, %v", strings.Join(got, " "), err)
	}
}
