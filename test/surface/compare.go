package surface

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sqube/sqube/test/compare/differences"
	"github.com/sqube/sqube/test/harness"
)

// Upstream returns what there is to see of the kube-apiserver and kube-controller-manager in go.mod. Its commands find out, since in
// this process their packages would register flags, metrics and feature gates.
func Upstream(t testing.TB) []Item {
	t.Helper()
	var items []Item
	for _, command := range []string{"apiserver", "manager"} {
		cmd := exec.CommandContext(t.Context(), "go", "run", "./test/surface/"+command)
		cmd.Dir = repository(t)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as everything but the tests under the race detector: it is built already
		output, err := cmd.Output()
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w\n%s", err, exit.Stderr)
		}
		if err != nil {
			t.Fatalf("go run ./test/surface/%s: %v", command, err)
		}
		some, err := Parse(bytes.NewReader(output))
		harness.Must(t, err)
		items = append(items, some...)
	}
	return items
}

func repository(t testing.TB) string {
	t.Helper()
	root, err := harness.Repository()
	harness.Must(t, err)
	return root
}

// Explained are the lines of differences.txt about the surface.
type Explained []*differences.Difference

// ReadExplained reads them.
func ReadExplained(t testing.TB) Explained {
	t.Helper()
	all, err := differences.Read(filepath.Join(repository(t), "test/compare/differences.txt"))
	harness.Must(t, err)
	return slices.DeleteFunc(all, func(d *differences.Difference) bool { return !d.Surface() })
}

// missing and added are what a difference names if sqube lacks an item, or has one that kube-apiserver does not have.
const (
	missing = "missing"
	added   = "added"
)

// explains reports whether a line explains that a field of an item differs.
func (e Explained) explains(i Item, field string) bool {
	for _, d := range e {
		if !d.Matches("surface/" + i.Title()) {
			continue
		}
		for at := range d.Fields {
			if d.Fields[at].Name == field {
				d.Fields[at].Used = true
				return true
			}
		}
	}
	return false
}

// Missing reports whether a line says that sqube lacks an item.
func (e Explained) Missing(i Item) bool { return e.explains(i, missing) }

// Compare fails the test for each difference between the items of one kind that no line explains, and for each line about that kind
// that explains none. Of flags and metrics, sqube has more than kube-apiserver.
func (e Explained) Compare(t *testing.T, kind string, upstream, sqube []Item) {
	t.Helper()
	want, got := Index(only(kind, upstream)), Index(only(kind, sqube))
	if len(want) == 0 {
		t.Errorf("upstream has no %s", kind)
	}
	for _, title := range slices.Sorted(maps.Keys(want)) {
		i, found := got[title]
		if !found {
			if !e.explains(want[title], missing) {
				t.Errorf("kube-apiserver has, and sqube lacks\n\t%s", want[title])
			}
			continue
		}
		for _, field := range Differing(want[title], i) {
			if !e.explains(i, field) {
				t.Errorf("%s: %s is %q, in kube-apiserver %q", title, field, i.Fields[field], want[title].Fields[field])
			}
		}
	}
	for _, title := range slices.Sorted(maps.Keys(got)) {
		if _, found := want[title]; !found && kind != "flag" && kind != "metric" && !e.explains(got[title], added) {
			t.Errorf("sqube has, and kube-apiserver lacks\n\t%s", got[title])
		}
	}
	for _, d := range e {
		if !strings.HasPrefix(d.Pattern, "surface/"+kind+" ") {
			continue
		}
		for _, field := range d.Fields {
			if !field.Used && !field.Sometimes {
				t.Errorf("differences.txt:%d: %s: %s no longer differs", d.Line, d.Pattern, field.Name)
			}
		}
	}
}

func only(kind string, items []Item) []Item {
	return slices.DeleteFunc(slices.Clone(items), func(i Item) bool { return i.Kind != kind })
}
