package sqlstore

import (
	"encoding/json"
	"strings"
)

// Set is a set of labels or fields in the form that the columns labels and
// fields have, see EncodeSet. It implements labels.Labels and fields.Fields on
// that text, so a selector is decided without decoding the set.
type Set string

// Withheld stands in the columns labels and fields of a version of which
// nothing may be told in the clear: selectors have to ask the object.
const Withheld = "null"

// Sets are the labels and fields by which selectors decide on a version.
type Sets struct{ Labels, Fields Set }

// Sets returns the labels and fields of r.
func (r *Record) Sets() Sets { return Sets{Labels: Set(r.Labels), Fields: Set(r.Fields)} }

// Withheld says whether the row does not tell labels and fields.
func (r *Record) Withheld() bool { return r.Labels == Withheld }

// EncodeSet returns set as the columns labels and fields hold it: a JSON
// object with sorted keys and no spaces, so that a pair is found in it as the
// text "key":"value".
func EncodeSet(set map[string]string) string {
	if len(set) == 0 {
		return "{}"
	}
	text, err := json.Marshal(set)
	if err != nil {
		// A map of strings always has a JSON form.
		panic(err)
	}
	return string(text)
}

// DecodeSet reads what EncodeSet wrote. What is no JSON object of strings, a
// row that somebody edited, counts as empty, and so does Withheld.
func DecodeSet(text string) map[string]string {
	if len(text) <= len("{}") {
		return nil
	}
	set := map[string]string{}
	if json.Unmarshal([]byte(text), &set) != nil {
		return nil
	}
	return set
}

// Lookup implements labels.Labels.
func (s Set) Lookup(key string) (value string, exists bool) {
	text := find(string(s), escape(key))
	if text == "" {
		return "", false
	}
	if strings.IndexByte(text, '\\') < 0 {
		return text[1 : len(text)-1], true
	}
	if json.Unmarshal([]byte(text), &value) != nil {
		return "", false // a row that somebody edited
	}
	return value, true
}

// Has implements labels.Labels and fields.Fields.
func (s Set) Has(key string) bool { return find(string(s), escape(key)) != "" }

// Get implements labels.Labels and fields.Fields.
func (s Set) Get(key string) string {
	value, _ := s.Lookup(key)
	return value
}

// find returns the value that key has in an encoded set as it stands there, in
// quotation marks, or "" where the set has no such key. The key is escaped.
//
// Quotation marks inside a JSON string are escaped, and there are none in the
// names of labels and fields, so the text "key":" stands in an encoded set only
// where the set has that key.
func find(set, key string) string {
	for from := 0; ; {
		i := strings.Index(set[from:], key)
		if i < 0 {
			return ""
		}
		at := from + i
		rest, ok := strings.CutPrefix(set[at+len(key):], `":`)
		if ok && at > 0 && set[at-1] == '"' {
			return quoted(rest)
		}
		if from = at + 1; from > len(set) {
			return ""
		}
	}
}

// quoted returns the JSON string that text begins with, or "" where it begins
// with something else.
func quoted(text string) string {
	if text == "" || text[0] != '"' {
		return ""
	}
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '"':
			return text[:i+1]
		case '\\':
			i++
		}
	}
	return ""
}

// escape returns s as it stands in a JSON string, between the quotation marks.
func escape(s string) string {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			text := quote(s)
			return text[1 : len(text)-1]
		}
	}
	return s
}

func quote(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		// A string always has a JSON form.
		panic(err)
	}
	return string(text)
}
