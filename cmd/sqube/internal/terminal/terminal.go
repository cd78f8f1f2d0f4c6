// Package terminal makes untrusted text safe to print on a terminal.
package terminal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"sigs.k8s.io/yaml"
)

// Printable returns text for a terminal. Characters that a terminal would interpret, such as escape sequences, line breaks and marks
// that change the direction of text, are escaped as in Go: \x1b, \n, \u202e.
func Printable(text string) string {
	quoted := strconv.QuoteToGraphic(text)
	return unquoted.Replace(quoted[1 : len(quoted)-1])
}

// unquoted restores the characters that need an escape only within quotes.
var unquoted = strings.NewReplacer(`\\`, `\`, `\"`, `"`)

// OneLine returns err with its message on one line: drivers use several for one cause. It returns nil for nil.
func OneLine(err error) error {
	if err == nil {
		return nil
	}
	return oneLine{err}
}

type oneLine struct{ error }

func (e oneLine) Error() string { return strings.Join(strings.Fields(e.error.Error()), " ") }

// Unwrap returns the error with all its lines.
func (e oneLine) Unwrap() error { return e.error }

// YAML returns an object as YAML for a terminal and for kubectl. If something must be escaped, it is JSON, which is YAML too.
// Terminals don't interpret characters beyond 16 bits, for which the two have no common escape.
func YAML(object map[string]any) ([]byte, error) {
	text, err := yaml.Marshal(object)
	if err == nil && bytes.IndexFunc(text, hides) < 0 { // YAML does not support some characters
		return text, nil
	}
	return JSON(object)
}

// hides reports whether JSON escapes a character that encoding/json doesn't.
func hides(r rune) bool { return r != '\n' && r <= 0xffff && !unicode.IsGraphic(r) }

// JSON returns a value as JSON for a terminal.
func JSON(value any) ([]byte, error) { return encode(value, "  ") }

// JSONLine is JSON on one line.
func JSONLine(value any) ([]byte, error) { return encode(value, "") }

func encode(value any, indent string) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", indent)
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	var escaped bytes.Buffer
	for _, r := range b.String() {
		if hides(r) {
			fmt.Fprintf(&escaped, `\u%04x`, r)
		} else {
			escaped.WriteRune(r)
		}
	}
	return escaped.Bytes(), nil
}
