package accuracy

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sqube/sqube/test/compare/differences"
)

// diff returns what differs between the outcomes of a scenario in a cluster and in a trial, and is not explained.
func diff(name string, made, tried outcome, explained []*differences.Difference) []string {
	titles := map[string]bool{}
	for title := range made {
		titles[title] = true
	}
	for title := range tried {
		titles[title] = true
	}
	var found []string
	for title := range titles {
		x, here := made[title]
		y, there := tried[title]
		paths := []string{"missing"} // from the trial
		if here && there {
			paths = differing(x, y)
		} else if there {
			paths = []string{"added"}
		}
		for _, path := range paths {
			if !explain(explained, name+"/"+title, path) {
				found = append(found, fmt.Sprintf("%s/%s [%s]: made %s\n\ttried %s", name, title, path, at(x, path), at(y, path)))
			}
		}
	}
	slices.Sort(found)
	return found
}

// explaining protects differences.Field.Used.
var explaining sync.Mutex

// explain reports whether a difference is on purpose.
func explain(all []*differences.Difference, title, path string) bool {
	explaining.Lock()
	defer explaining.Unlock()
	for _, d := range all {
		for i := range d.Fields {
			if f := &d.Fields[i]; d.Matches(title) && (path == f.Name || strings.HasPrefix(path, f.Name+".")) {
				f.Used = true
				return true
			}
		}
	}
	return false
}

// unused fails the test for what is explained and does not differ.
func unused(t *testing.T, explained []*differences.Difference) {
	for _, d := range explained {
		for _, f := range d.Fields {
			if !f.Used && !f.Sometimes {
				t.Errorf("differences.txt:%d: %s: %s no longer differs", d.Line, d.Pattern, f.Name)
			}
		}
	}
}
