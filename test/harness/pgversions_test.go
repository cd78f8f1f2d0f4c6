package harness

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestVersionsArePinned checks that each version of Postgres that tests can run on has a package with a checksum.
func TestVersionsArePinned(t *testing.T) {
	var lock struct {
		Packages map[string]struct{ Version, Integrity string }
	}
	Must(t, json.Unmarshal(packageLock, &lock))
	for _, major := range []string{"14", "15", "16", "17", "18"} {
		p := lock.Packages["node_modules/postgres-"+major+"-amd64"]
		if !strings.HasPrefix(p.Version, major+".") || !strings.HasPrefix(p.Integrity, "sha512-") {
			t.Errorf("Postgres %s is %+v", major, p)
		}
	}
}
