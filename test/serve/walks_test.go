package serve

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/sqube/sqube/test/harness"
)

// maxWalkFiles is the most files that a newcomer should have to open to follow one request.
const maxWalkFiles = 8

// TestWalks checks the walks through the code in server/README.md: that the named files declare the named
// functions, and that no walk is long or returns to a file.
func TestWalks(t *testing.T) {
	t.Parallel()
	root, err := harness.Repository()
	harness.Must(t, err)
	readme, err := os.ReadFile(filepath.Join(root, "server", "README.md"))
	harness.Must(t, err)
	walks := regexp.MustCompile(`(?m)(?:^\d+\. .*\n(?:^ {3}.*\n)*)+`).FindAllString(string(readme), -1)
	if len(walks) != 7 {
		t.Errorf("server/README.md has %d walks; want a list, a create, a watch event, a custom resource's get, another server's write, a continue token and a request to a hosted cluster", len(walks))
	}
	step := regexp.MustCompile("(?m)^\\d+\\. `(\\S+)`, ((?:`[\\w.]+`(?:, )?)+): ")
	for _, walk := range walks {
		steps := step.FindAllStringSubmatch(walk, -1)
		if n := len(regexp.MustCompile(`(?m)^\d+\. `).FindAllString(walk, -1)); n != len(steps) || n > maxWalkFiles {
			t.Errorf("%d of %d steps name a file and functions, and at most %d are wanted:\n%s", len(steps), n, maxWalkFiles, walk)
		}
		seen := map[string]bool{}
		for _, s := range steps {
			file, functions := s[1], regexp.MustCompile(`[\w.]+`).FindAllString(s[2], -1)
			if seen[file] {
				t.Errorf("a walk returns to %s", file)
			}
			seen[file] = true
			declared := functionsIn(t, filepath.Join(root, file))
			for _, function := range functions {
				if !declared[function] {
					t.Errorf("%s does not declare %s", file, function)
				}
			}
		}
	}
}

// functionsIn returns the names of the functions in a file, those of methods with their type: Type.Method.
func functionsIn(t *testing.T, file string) map[string]bool {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Error(err)
		return nil
	}
	names := map[string]bool{}
	for _, declaration := range parsed.Decls {
		function, ok := declaration.(*ast.FuncDecl)
		if !ok {
			continue
		}
		name := function.Name.Name
		if function.Recv != nil {
			receiver := function.Recv.List[0].Type
			if pointer, ok := receiver.(*ast.StarExpr); ok {
				receiver = pointer.X
			}
			if named, ok := receiver.(*ast.Ident); ok {
				name = named.Name + "." + name
			}
		}
		names[name] = true
	}
	return names
}
