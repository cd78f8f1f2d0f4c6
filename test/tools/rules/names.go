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
	targets = regexp.MustCompile("`make ([a-z0-9/-]+)")
	tests   = regexp.MustCompile(`\[(Test\w+)(?:/\w+)?\]\((\S+)\)`)
	folders = regexp.MustCompile(`\]\((\S+)\)`)
)

// names returns a line for each name in the documents that does not exist: tests and their files, folders, metrics, alerts and
// make targets. It knows the tables by their first header.
func names() ([]string, error) {
	var n namesChecked
	makefile := n.read("Makefile")
	alerts := n.read("deploy/chart/files/alerts.yaml")
	source := n.read("server", "sqlstore", "cmd", "dialect")
	documents, err := files("*.md")
	if err != nil {
		return nil, err
	}
	for _, n.document = range documents {
		text := n.read(n.document)
		n.tests(text)
		n.sections(text)
		n.paths(text, "folder")
		n.paths(text, "file")
		for _, metric := range named(text, "metric") {
			short := strings.TrimPrefix(strings.TrimPrefix(metric, "sqube_"), "store_")
			if !strings.Contains(source, `"`+short+`"`) && !strings.Contains(source, `"`+metric+`"`) {
				n.lacks("no metric is called %s", metric)
			}
		}
		for _, alert := range named(text, "alert") {
			if !strings.Contains(alerts, "alert: "+alert+"\n") {
				n.lacks("no alert is called %s", alert)
			}
		}
		for _, target := range targets.FindAllStringSubmatch(text, -1) {
			if !strings.Contains(makefile, "\n"+target[1]+":") {
				n.lacks("the Makefile lacks `make %s`", target[1])
			}
		}
	}
	return n.violations, n.err
}

// namesChecked is the document whose names are being checked, and the findings so far.
type namesChecked struct {
	document   string
	violations []string
	err        error
}

// read returns the text of files, and of the Go files below folders.
func (n *namesChecked) read(paths ...string) string {
	all, err := files(paths...)
	if err != nil {
		n.err = err
	}
	var text strings.Builder
	for _, path := range all {
		content, err := os.ReadFile(path)
		if err != nil {
			n.err = err
		}
		text.Write(content)
	}
	return text.String()
}

func (n *namesChecked) lacks(format string, args ...any) {
	n.violations = append(n.violations, n.document+": "+fmt.Sprintf(format, args...))
}

// path returns the path of a file that the document names relative to itself.
func (n *namesChecked) path(name string) string {
	return filepath.Join(filepath.Dir(n.document), name)
}

// tests checks that the tests that the document links to are in the files' folders, and that each promise names one.
func (n *namesChecked) tests(text string) {
	for _, test := range tests.FindAllStringSubmatch(text, -1) {
		// A folder's tests may be declared in a subfolder that they share.
		folder := filepath.Dir(n.path(test[2]))
		if !declares(folder, test[1]) && !declares(filepath.Dir(folder), test[1]) {
			n.lacks("there is no %s in the folder of %s", test[1], test[2])
		}
	}
	for _, row := range rows(text, "promise") {
		if !tests.MatchString(row[1]) {
			n.lacks("no test verifies: %s", row[0])
		}
	}
}

// sections checks the table of the packages that test the documentation.
func (n *namesChecked) sections(text string) {
	for _, row := range rows(text, "section") {
		for _, folder := range folders.FindAllStringSubmatch(row[1], -1) {
			for _, file := range code.FindAllStringSubmatch(row[2], -1) {
				n.exists(filepath.Join(folder[1], file[1]+"_test.go"))
			}
		}
	}
}

// paths checks a table whose rows start with the names of folders or files.
func (n *namesChecked) paths(text, header string) {
	for _, path := range named(text, header) {
		n.exists(path)
	}
}

func (n *namesChecked) exists(name string) {
	if _, err := os.Stat(n.path(name)); err != nil {
		n.lacks("%v", err)
	}
}

// named returns the names with which the rows of the tables with this first header start.
func named(text, header string) (found []string) {
	for _, row := range rows(text, header) {
		for _, name := range code.FindAllStringSubmatch(row[0], -1) {
			found = append(found, name[1])
		}
	}
	return found
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
