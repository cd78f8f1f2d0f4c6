package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

var (
	code    = regexp.MustCompile("`([^`]+)`")
	targets = regexp.MustCompile("`make ([a-z0-9-]+)")
	tests   = regexp.MustCompile(`\[(\w+)\]\((\S+)\)`)
)

// names returns a line for each name in the READMEs that does not exist: tests and their files, folders, metrics, alerts and
// make targets.
func names() ([]string, error) {
	var n namesChecked
	n.read(&n.readme, "README.md")
	n.read(&n.makefile, "Makefile")
	n.read(&n.alerts, "deploy/chart/files/alerts.yaml")
	n.read(&n.testReadme, "test/README.md")
	n.read(&n.deployReadme, "deploy/README.md")
	n.read(&n.source, "server", "sqlstore", "cmd", "dialect")
	if n.err != nil {
		return nil, n.err
	}
	n.promises()
	n.sections()
	n.paths("README.md", n.readme, "folder", "")
	n.paths("test/README.md", n.testReadme, "folder", "test")
	n.paths("deploy/README.md", n.deployReadme, "file", "deploy")
	for _, row := range rows(n.readme, "metric") {
		for _, metric := range code.FindAllStringSubmatch(row[0], -1) {
			short := strings.TrimPrefix(strings.TrimPrefix(metric[1], "sqube_"), "store_")
			if !strings.Contains(n.source, `"`+short+`"`) && !strings.Contains(n.source, `"`+metric[1]+`"`) {
				n.lacks("README.md: no metric is called %s", metric[1])
			}
		}
	}
	for _, row := range rows(n.readme, "alert") {
		for _, alert := range code.FindAllStringSubmatch(row[0], -1) {
			if !strings.Contains(n.alerts, "alert: "+alert[1]+"\n") {
				n.lacks("README.md: no alert is called %s", alert[1])
			}
		}
	}
	for _, text := range []string{n.readme, n.testReadme, n.deployReadme} {
		for _, target := range targets.FindAllStringSubmatch(text, -1) {
			if !strings.Contains(n.makefile, "\n"+target[1]+":") {
				n.lacks("a README names `make %s`, which the Makefile lacks", target[1])
			}
		}
	}
	return n.violations, n.err
}

// namesChecked is what names checks, and its findings.
type namesChecked struct {
	readme, testReadme, deployReadme, makefile, alerts string
	source                                             string // all of sqube's
	violations                                         []string
	err                                                error
}

// read reads files, and the Go files below folders.
func (n *namesChecked) read(into *string, paths ...string) {
	all, err := files(paths...)
	if err != nil {
		n.err = err
	}
	for _, path := range all {
		text, err := os.ReadFile(path)
		if err != nil {
			n.err = err
		}
		*into += string(text)
	}
}

func (n *namesChecked) lacks(format string, args ...any) {
	n.violations = append(n.violations, fmt.Sprintf(format, args...))
}

// promises checks the table of promises: each names the tests that verify it, and their files.
func (n *namesChecked) promises() {
	for _, row := range rows(n.readme, "promise") {
		if strings.HasPrefix(row[0], "**") { // a heading
			continue
		}
		found := tests.FindAllStringSubmatch(row[1], -1)
		if len(found) == 0 {
			n.lacks("README.md: no test verifies: %s", row[0])
		}
		for _, test := range found {
			// A folder's tests may be declared in a subfolder that they share.
			folder := filepath.Dir(test[2])
			if !declares(folder, test[1]) && !declares(filepath.Dir(folder), test[1]) {
				n.lacks("README.md: there is no %s in the folder of %s", test[1], test[2])
			}
		}
	}
}

// sections checks the table of the packages that test the documentation.
func (n *namesChecked) sections() {
	for _, row := range rows(n.readme, "section") {
		for _, folder := range tests.FindAllStringSubmatch(row[1], -1) {
			for _, file := range code.FindAllStringSubmatch(row[2], -1) {
				n.exists("README.md", filepath.Join(folder[2], file[1]+"_test.go"))
			}
		}
	}
}

// paths checks a table whose rows start with the names of folders or files.
func (n *namesChecked) paths(readme, text, header, below string) {
	for _, row := range rows(text, header) {
		for _, path := range code.FindAllStringSubmatch(row[0], -1) {
			n.exists(readme, filepath.Join(below, path[1]))
		}
	}
}

func (n *namesChecked) exists(readme, path string) {
	if _, err := os.Stat(path); err != nil {
		n.lacks("%s: %v", readme, err)
	}
}

// rows returns the cells of the tables with this first header in a Markdown text.
func rows(text, header string) [][]string {
	var found [][]string
	inside := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			inside = false
			continue
		}
		cells := strings.Split(strings.TrimSuffix(strings.TrimPrefix(line, "| "), " |"), " | ")
		switch {
		case cells[0] == header:
			inside = true
		case inside && !strings.HasPrefix(cells[0], "---"):
			found = append(found, cells)
		}
	}
	return found
}

// declares reports whether a folder has a test.
func declares(folder, test string) bool {
	files, _ := filepath.Glob(filepath.Join(folder, "*_test.go")) // the pattern is valid
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil && strings.Contains(string(text), "\nfunc "+test+"(t *testing.T)") {
			return true
		}
	}
	return false
}
