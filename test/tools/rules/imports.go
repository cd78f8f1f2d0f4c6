package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// module is the path of sqube's module, the prefix of the import paths of its folders.
const module = "github.com/sqube/sqube"

// rule forbids the packages in a folder to import some others. Folders of sqube start with a dot, other packages are import
// paths; each includes everything below it.
type rule struct {
	folder string
	except []string // folders below folder that may
	never  []string
	unless []string // packages in never that are allowed
	reason string
}

var rules = []rule{
	{
		folder: "./server",
		except: []string{"./server/servertest"}, // a complete sqube
		never:  []string{"./dialect", "./migrations", "database/sql"},
		reason: "the server accesses rows only through sqlstore",
	},
	{
		folder: "./sqlstore",
		never:  []string{"./server", "./dialect/sqlite", "./dialect/postgres", "modernc.org/sqlite", "github.com/jackc/pgx"},
		unless: []string{"./server/wholefile"}, // which knows files only
		reason: "the log is the same on every engine, and independent of HTTP",
	},
	{
		folder: "./dialect",
		never:  []string{"./sqlstore", "./server", "k8s.io"},
		unless: []string{"./server/wholefile"}, // which knows files only
		reason: "an engine is only what differs between databases",
	},
	{
		folder: "./dialect/sqlite",
		never:  []string{"./dialect/postgres", "github.com/jackc/pgx"},
		reason: "engines are independent of each other",
	},
	{
		folder: "./dialect/postgres",
		never:  []string{"./dialect/sqlite", "modernc.org/sqlite"},
		reason: "engines are independent of each other",
	},
	{
		folder: "./cmd",
		except: []string{"./cmd/sqube/internal/datastore"},
		never:  []string{"./dialect/sqlite", "./dialect/postgres"},
		reason: "commands are the same on every engine",
	},
	{
		folder: "./migrations",
		never:  []string{"./server", "./sqlstore", "./dialect", "./cmd", "k8s.io"},
		reason: "the schema is below everything else",
	},
	{
		folder: ".",
		except: []string{"./test", "./sqlstore/storetest"},
		never:  []string{"./test"},
		reason: "the tests see sqube from outside",
	},
	{
		folder: ".",
		except: []string{"./cmd/sqube/internal/etcdsource", "./test/import"},
		never:  []string{"go.etcd.io", "k8s.io/apiserver/pkg/storage/etcd3"},
		unless: []string{"k8s.io/apiserver/pkg/storage/etcd3/metrics"},
		reason: "the state is rows",
	},
}

// pkg is the output of `go list -json` for a package.
type pkg struct {
	ImportPath string
	Imports    []string
}

// imports returns a line for each import that a rule forbids.
func imports() ([]string, error) {
	packages, err := list()
	if err != nil {
		return nil, err
	}
	return check(packages, rules), nil
}

// list returns the packages of the module and what each imports.
func list() ([]pkg, error) {
	cmd := exec.Command("go", "list", "-tags", "grpcnotrace", "-json=ImportPath,Imports", "./...")
	cmd.Stderr = os.Stderr
	stdout, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("running go list: %w", err)
	}
	var packages []pkg
	for decoder := json.NewDecoder(strings.NewReader(string(stdout))); ; {
		var p pkg
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, fmt.Errorf("running go list: %w", err)
		}
		packages = append(packages, p)
	}
}

// check returns a line for each import that a rule forbids. It considers only direct imports, so sqlstore may be between the
// server and the engines.
func check(packages []pkg, rules []rule) []string {
	var violations []string
	for _, p := range packages {
		for _, r := range rules {
			if !within(p.ImportPath, r.folder) || anyWithin(p.ImportPath, r.except) {
				continue
			}
			for _, path := range p.Imports {
				if anyWithin(path, r.never) && !anyWithin(path, r.unless) {
					violations = append(violations, fmt.Sprintf("%s must not import %s: %s", p.ImportPath, path, r.reason))
				}
			}
		}
	}
	return violations
}

func anyWithin(path string, folders []string) bool {
	for _, folder := range folders {
		if within(path, folder) {
			return true
		}
	}
	return false
}

// within reports whether the import path is the folder or below it.
func within(path, folder string) bool {
	if folder == "." {
		folder = module
	} else if rest, own := strings.CutPrefix(folder, "./"); own {
		folder = module + "/" + rest
	}
	return path == folder || strings.HasPrefix(path, folder+"/")
}
