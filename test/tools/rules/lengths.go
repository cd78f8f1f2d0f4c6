package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
)

const (
	fileLines     = 500
	functionLines = 80
)

// lengths returns a line for each Go file and function that is too long. The lines of a table in a function do not count, nor,
// in a test, those of nested functions: each is a case.
func lengths() ([]string, error) {
	all, err := files("*.go")
	if err != nil {
		return nil, err
	}
	var violations []string
	for _, name := range all {
		positions := token.NewFileSet()
		file, err := parser.ParseFile(positions, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		if ast.IsGenerated(file) {
			continue
		}
		line := func(p token.Pos) int { return positions.Position(p).Line }
		if n := line(file.FileEnd); n > fileLines {
			violations = append(violations, fmt.Sprintf("%s: %d lines; a file has at most %d", name, n, fileLines))
		}
		test := strings.HasPrefix(name, "test/") || slices.ContainsFunc(file.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"testing"` })
		for _, f := range functions(file) {
			n := line(f.End()) - line(f.Pos()) + 1
			for _, inner := range inside(f, test) {
				n -= line(inner.End()) - line(inner.Pos())
			}
			if n > functionLines {
				violations = append(violations, fmt.Sprintf("%s:%d: %d lines; a function has at most %d", name, line(f.Pos()), n, functionLines))
			}
		}
	}
	return violations, nil
}

// functions returns the functions of a file, including nested ones.
func functions(file *ast.File) []ast.Node {
	var found []ast.Node
	ast.Inspect(file, func(n ast.Node) bool {
		switch n.(type) {
		case *ast.FuncDecl, *ast.FuncLit:
			found = append(found, n)
		}
		return true
	})
	return found
}

// inside returns the outermost tables and functions inside a function.
func inside(f ast.Node, functions bool) []ast.Node {
	var found []ast.Node
	ast.Inspect(f, func(n ast.Node) bool {
		_, table := n.(*ast.CompositeLit)
		_, function := n.(*ast.FuncLit)
		if n == f || !table && !(function && functions) {
			return true
		}
		found = append(found, n)
		return false
	})
	return found
}
