package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
)

const (
	// internal is the prefix of the packages that Kubernetes does not publish for others to import.
	internal = "k8s.io/kubernetes/"
	// listed is the file that lists what sqube takes from them.
	listed = "server/kubernetes.md"
)

// taken is a package of Kubernetes, and the names in it that files use.
type taken map[string]map[string]bool

func (t taken) add(path, name string) {
	if t[path] == nil {
		t[path] = map[string]bool{}
	}
	if name != "" {
		t[path][name] = true
	}
}

// allowed is a row of the list.
type allowed struct {
	pattern string // of the path below internal, for path.Match
	names   []string
}

// internals returns a line for each package or name of k8s.io/kubernetes that is used and not listed, or listed and not used.
func internals() ([]string, error) {
	text, err := os.ReadFile(listed)
	if err != nil {
		return nil, err
	}
	all, err := files("*.go")
	if err != nil {
		return nil, err
	}
	inPrograms, inTests := taken{}, taken{}
	for _, name := range all {
		into := inPrograms
		if strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "test/") {
			into = inTests
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		take(file, into)
	}
	programs, tests := listedIn(string(text), "package"), listedIn(string(text), "package, in tests")
	violations := slices.Concat(
		unlisted(inPrograms, programs), unlisted(inTests, slices.Concat(programs, tests)),
		unused(inPrograms, programs), unused(inTests, tests))
	slices.Sort(violations)
	return violations, nil
}

// take adds what a file uses of Kubernetes' packages, also by go:linkname.
func take(file *ast.File, into taken) {
	packages := map[string]string{} // by their name in the file
	for _, i := range file.Imports {
		imported, _ := strconv.Unquote(i.Path.Value) // the parser has checked it
		below, ok := strings.CutPrefix(imported, internal)
		if !ok {
			continue
		}
		into.add(below, "")
		if i.Name != nil {
			packages[i.Name.Name] = below
		} else {
			packages[path.Base(below)] = below
		}
	}
	for _, group := range file.Comments {
		for _, comment := range group.List {
			if fields := strings.Fields(comment.Text); len(fields) == 3 && fields[0] == "//go:linkname" {
				if linked, ok := strings.CutPrefix(fields[2], internal); ok {
					dot := strings.LastIndex(linked, ".")
					into.add(linked[:dot], linked[dot+1:])
				}
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if selector, ok := n.(*ast.SelectorExpr); ok {
			// An identifier that the file declares has an Obj, and hides the package of that name.
			if id, ok := selector.X.(*ast.Ident); ok && id.Obj == nil && packages[id.Name] != "" {
				into.add(packages[id.Name], selector.Sel.Name)
			}
		}
		return true
	})
}

// listedIn returns the rows of the tables with this first header. Names are in backticks.
func listedIn(text, header string) []allowed {
	var found []allowed
	for _, row := range rows(text, header) {
		pattern := code.FindStringSubmatch(row[0])
		if pattern == nil { // a heading
			continue
		}
		r := allowed{pattern: pattern[1]}
		for _, name := range code.FindAllStringSubmatch(row[1], -1) {
			r.names = append(r.names, name[1])
		}
		found = append(found, r)
	}
	return found
}

func (r allowed) matches(below string) bool {
	ok, err := path.Match(r.pattern, below)
	return ok && err == nil
}

// unlisted returns a line for each package or name that no row has.
func unlisted(used taken, list []allowed) []string {
	var violations []string
	for below, names := range used {
		rows := slices.DeleteFunc(slices.Clone(list), func(r allowed) bool { return !r.matches(below) })
		if len(rows) == 0 {
			violations = append(violations, fmt.Sprintf("%s does not list the package %s, which is imported", listed, below))
			continue
		}
		for name := range names {
			if !slices.ContainsFunc(rows, func(r allowed) bool { return slices.Contains(r.names, name) }) {
				violations = append(violations, fmt.Sprintf("%s does not list %s of %s, which is used", listed, name, below))
			}
		}
	}
	return violations
}

// unused returns a line for each row, and each name in it, that nothing uses.
func unused(used taken, list []allowed) []string {
	var violations []string
	for _, r := range list {
		names, imported := map[string]bool{}, false
		for below, more := range used {
			if r.matches(below) {
				imported = true
				maps.Copy(names, more)
			}
		}
		if !imported {
			violations = append(violations, fmt.Sprintf("%s lists %s, which is not imported", listed, r.pattern))
			continue
		}
		for _, name := range r.names {
			if !names[name] {
				violations = append(violations, fmt.Sprintf("%s lists %s of %s, which is not used", listed, name, r.pattern))
			}
		}
	}
	return violations
}
