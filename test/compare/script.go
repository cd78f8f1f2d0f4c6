package main

import (
	"bufio"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// script is a file of requests, in their order.
type script struct {
	name     string // the file's, without its extension
	requests []request
}

// request is a request of a script, before variables are replaced.
type request struct {
	line     int
	title    string
	method   string
	path     string
	headers  [][2]string
	captures [][2]string // name, and path of a field of the response
	encoding string      // of the body: "", "protobuf" or "cbor"
	until    int         // the status to wait for, if not 0
	each     []choice    // the request is sent once for each combination
	body     string
}

// choice is a variable with the values that it takes in turn.
type choice struct {
	name   string
	values []string
}

// readScripts reads the scripts whose names match.
func readScripts(dir string, names *regexp.Regexp) ([]script, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.http"))
	if err != nil {
		return nil, err
	}
	var scripts []script
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".http")
		if !names.MatchString(name) {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		requests, err := parse(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s:%w", file, err)
		}
		scripts = append(scripts, script{name, requests})
	}
	if len(scripts) == 0 {
		return nil, fmt.Errorf("no script in %s has a name that matches %s", dir, names)
	}
	return scripts, nil
}

// parse parses the text of a script. Errors begin with the line number.
func parse(text string) ([]request, error) {
	var requests []request
	lines := bufio.NewScanner(strings.NewReader(text))
	lines.Buffer(nil, 1<<20)
	var r *request
	inBody := false
	for number := 1; lines.Scan(); number++ {
		line := lines.Text()
		if title, begins := strings.CutPrefix(line, "###"); begins {
			title = strings.TrimSpace(title)
			requests = append(requests, request{line: number, title: title})
			r, inBody = &requests[len(requests)-1], false
			continue
		}
		switch {
		case r == nil: // what the script is about
		case inBody:
			r.body += line + "\n"
		case r.method == "":
			method, path, ok := strings.Cut(line, " ")
			if !ok || !strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "{{") {
				return nil, fmt.Errorf("%d: want a method and a path, not %q", number, line)
			}
			r.method, r.path = method, path
		case line == "":
			inBody = true
		default:
			if err := r.add(line); err != nil {
				return nil, fmt.Errorf("%d: %w", number, err)
			}
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	var all []request
	titles := map[string]bool{"": true}
	for _, r := range requests {
		for _, one := range r.expand() {
			if titles[one.title] {
				return nil, fmt.Errorf("%d: a request needs a unique title, not %q", one.line, one.title)
			}
			titles[one.title] = true
			all = append(all, one)
		}
	}
	return all, nil
}

// expand returns the request once for each combination of the values of its variables.
func (r request) expand() []request {
	if len(r.each) == 0 {
		return []request{r}
	}
	first, rest := r.each[0], r.each[1:]
	var all []request
	for _, value := range first.values {
		in := strings.NewReplacer("{{"+first.name+"}}", value).Replace
		one := r
		one.each, one.title, one.method, one.path, one.body = rest, in(r.title), in(r.method), in(r.path), in(r.body)
		one.headers = nil
		for _, h := range r.headers {
			one.headers = append(one.headers, [2]string{h[0], in(h[1])})
		}
		all = append(all, one.expand()...)
	}
	return all
}

// add parses a line between the request line and the body.
func (r *request) add(line string) error {
	if list, ok := strings.CutPrefix(line, "@for "); ok {
		name, values, ok := strings.Cut(list, "=")
		if !ok {
			return fmt.Errorf("want @for name = value | value, not %q", line)
		}
		c := choice{name: strings.TrimSpace(name)}
		for value := range strings.SplitSeq(values, "|") {
			c.values = append(c.values, strings.TrimSpace(value))
		}
		r.each = append(r.each, c)
		return nil
	}
	if directive, ok := strings.CutPrefix(line, "@"); ok {
		name, value, ok := strings.Cut(directive, "=")
		if !ok {
			return fmt.Errorf("want @name = value, not %q", line)
		}
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		switch name {
		case "body":
			if value != "protobuf" && value != "cbor" {
				return fmt.Errorf("@body is protobuf or cbor, not %q", value)
			}
			r.encoding = value
		case "until":
			code, err := strconv.Atoi(value)
			if err != nil {
				return fmt.Errorf("@until is a status code, not %q", value)
			}
			r.until = code
		default:
			r.captures = append(r.captures, [2]string{name, value})
		}
		return nil
	}
	name, value, ok := strings.Cut(line, ":")
	if !ok {
		return fmt.Errorf("want a header, not %q", line)
	}
	r.headers = append(r.headers, [2]string{strings.TrimSpace(name), strings.TrimSpace(value)})
	return nil
}

// variables are the values of {{name}} on one server.
type variables map[string]string

var variable = regexp.MustCompile(`{{(\w+)}}`)

// in replaces the variables in a string.
func (v variables) in(text string) string {
	return variable.ReplaceAllStringFunc(text, func(reference string) string { return v[strings.Trim(reference, "{}")] })
}

// inPath replaces the variables in a path with their escaped values.
func (v variables) inPath(path string) string {
	return variable.ReplaceAllStringFunc(path, func(reference string) string { return url.QueryEscape(v[strings.Trim(reference, "{}")]) })
}
