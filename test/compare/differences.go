package main

import (
	"bufio"
	"fmt"
	"os"
	"regexp"
	"strings"
)

// difference explains answers that are not the same on purpose.
type difference struct {
	line    int
	pattern string // of "script/title", with * for anything
	reason  string
	form    *regexp.Regexp
	used    bool
}

// readDifferences reads a file of lines "PATTERN -- REASON". Empty lines and those that begin with # are comments.
func readDifferences(path string) ([]*difference, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var all []*difference
	lines := bufio.NewScanner(file)
	for number := 1; lines.Scan(); number++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		pattern, reason, ok := strings.Cut(line, " -- ")
		if !ok {
			return nil, fmt.Errorf("%s:%d: want PATTERN -- REASON", path, number)
		}
		pattern = strings.TrimSpace(pattern)
		form := "^" + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*") + "$"
		all = append(all, &difference{line: number, pattern: pattern, reason: strings.TrimSpace(reason), form: regexp.MustCompile(form)})
	}
	return all, lines.Err()
}

// explain returns the reason why the answers to a request differ, or "".
func explain(all []*difference, script, title string) string {
	for _, d := range all {
		if d.form.MatchString(script + "/" + title) {
			d.used = true
			return d.reason
		}
	}
	return ""
}
