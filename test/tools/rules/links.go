package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"
)

var (
	link    = regexp.MustCompile(`(?:\]\(|src(?:set)?=")([^)"\s]+)[)"]`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	fence   = regexp.MustCompile("(?ms)^```.*?^```$")
)

// links returns a line for each link or picture in a document to a file or a heading that does not exist.
func links() ([]string, error) {
	documents, err := files("*.md")
	if err != nil {
		return nil, err
	}
	var violations []string
	for _, name := range documents {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		prose := fence.ReplaceAllString(string(text), "")
		for _, found := range link.FindAllStringSubmatch(prose, -1) {
			if strings.Contains(found[1], "://") {
				continue
			}
			path, anchor, _ := strings.Cut(found[1], "#")
			target := filepath.Join(filepath.Dir(name), path)
			if path == "" {
				target = name
			}
			content, err := read(target)
			if err != nil {
				violations = append(violations, fmt.Sprintf("%s links to %s: %v", name, found[1], err))
			} else if anchor != "" && !anchors(content)[anchor] {
				violations = append(violations, fmt.Sprintf("%s links to %s, a missing heading", name, found[1]))
			}
		}
	}
	return violations, nil
}

// read returns the content of a file, or "" for a folder.
func read(path string) (string, error) {
	if info, err := os.Stat(path); err != nil || info.IsDir() {
		return "", err
	}
	text, err := os.ReadFile(path)
	return string(text), err
}

// anchors returns GitHub's anchors of the headings in a Markdown text.
func anchors(text string) map[string]bool {
	found := map[string]bool{}
	for _, h := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		found[strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				return unicode.ToLower(r)
			}
			return -1
		}, h[1])] = true
	}
	return found
}
