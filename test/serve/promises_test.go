package serve

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sqube/sqube/test/harness"
)

// TestPromises looks at the README's table of what sqube promises: each line names tests that there are, and the files where
// they hold it.
func TestPromises(t *testing.T) {
	t.Parallel()
	root, err := harness.Repository()
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(readme), "\n## What sqube promises\n")
	section, _, _ = strings.Cut(section, "\n## ")
	promise := regexp.MustCompile(`(?m)^\| [^*-].* \| (.*) \|$`)
	link := regexp.MustCompile(`\[(\w+)\]\((\S+)\)`)
	promises := promise.FindAllStringSubmatch(section, -1)[1:] // the first is the head of the table
	if len(promises) < 20 {
		t.Errorf("the table has %d promises", len(promises))
	}
	for _, p := range promises {
		tests := link.FindAllStringSubmatch(p[1], -1)
		if len(tests) == 0 {
			t.Errorf("no test holds: %s", p[0])
		}
		for _, test := range tests {
			file := filepath.Join(root, test[2])
			if _, err := os.Stat(file); err != nil {
				t.Error(err)
			}
			// What several tests of a folder share may have one below.
			if folder := filepath.Dir(file); !declares(t, folder, test[1]) && !declares(t, filepath.Dir(folder), test[1]) {
				t.Errorf("there is no %s beside %s", test[1], test[2])
			}
		}
	}
}

// declares says whether a test is in a folder.
func declares(t *testing.T, folder, test string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "\nfunc "+test+"(t *testing.T)") {
			return true
		}
	}
	return false
}
