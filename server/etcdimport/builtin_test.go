package etcdimport

import (
	"testing"

	"github.com/sqube/sqube/server/crd"
	"github.com/sqube/sqube/server/encryption"
)

// TestBuiltIn checks that custom resources are never stored in place of built-in ones.
func TestBuiltIn(t *testing.T) {
	keys, err := encryption.Load(encryption.Options{}, "")
	if err != nil {
		t.Fatal(err)
	}
	resources, err := builtIn(keys)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range resources {
		if !crd.BuiltIn(r.name) {
			t.Errorf("%s is not known to be built in", r.name)
		}
	}
}
