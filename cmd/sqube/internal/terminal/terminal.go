// Package terminal makes of what others have written text that a terminal shows and does nothing else with.
package terminal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"sigs.k8s.io/yaml"
)

// Printable returns text for a terminal. What a terminal would act on instead of showing it, such as escape sequences, line
// breaks and marks that change the direction of text, is escaped as in Go: \x1b, \n, \u202e.
func Printable(text string) string {
	if strings.IndexFunc(text, hidden) < 0 && utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[0])
		case hidden(r):
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		default:
			b.WriteRune(r)
		}
		text = text[size:]
	}
	return b.String()
}

// OneLine returns err with its message on one line: drivers use several for one cause. It returns nil for nil.
func OneLine(err error) error {
	if err == nil {
		return nil
	}
	return oneLine{err}
}

type oneLine struct{ error }

// Error implements error.
func (e oneLine) Error() string { return strings.Join(strings.Fields(e.error.Error()), " ") }

// Unwrap returns the error with all its lines.
func (e oneLine) Unwrap() error { return e.error }

// hidden reports whether a terminal may not show a character.
func hidden(r rune) bool { return !unicode.IsGraphic(r) }

// YAML returns an object in YAML for a terminal and for kubectl alike: in JSON, which is YAML too, where something
// in it has to be escaped. What is beyond 16 bits no terminal acts on, and the two have no escape for it in common.
func YAML(object map[string]any) ([]byte, error) {
	hides := func(r rune) bool { return r != '\n' && r <= 0xffff && hidden(r) }
	text, err := yaml.Marshal(object)
	if err == nil && bytes.IndexFunc(text, hides) < 0 { // an error is that YAML does not take a character
		return text, nil
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(object); err != nil {
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
