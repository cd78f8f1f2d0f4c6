package sqlstore

import (
	"encoding/json"
	"strings"
)

// Set is a set of labels or fields as stored in the columns labels and fields; see EncodeSet. It implements labels.Labels and
// fields.Fields on that text, so that selectors are decided without decoding it.
type Set string

// Withheld is stored in place of labels and fields if the value is encrypted. To decide a selector, the object must be decoded.
const Withheld = "null"

// Sets are the labels and fields by which a version can be selected.
type Sets struct{ Labels, Fields Set }

// Sets returns the labels and fields of r.
func (r *Record) Sets() Sets { return Sets{Labels: Set(r.Labels), Fields: Set(r.Fields)} }

// Withheld reports whether the labels and fields of the row are withheld.
func (r *Record) Withheld() bool { return r.Labels == Withheld }

// EncodeSet returns set as stored in the columns labels and fields: a JSON object with sorted keys and no spaces, in which a pair
// can be found as the text "key":"value".
func EncodeSet(set map[string]string) string {
	if len(set) == 0 {
		return "{}"
	}
	text, err := json.Marshal(set)
	if err != nil {
		// A map of strings can always be encoded as JSON.
		panic(err)
	}
	return string(text)
}

// DecodeSet decodes the output of EncodeSet. Anything else, such as Withheld or a row edited by hand, counts as empty.
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
	text := find(string(s), Escape(key))
	if text == "" {
		return "", false
	}
	if strings.IndexByte(text, '\\') < 0 {
		return text[1 : len(text)-1], true
	}
	if json.Unmarshal([]byte(text), &value) != nil {
		return "", false // a row edited by hand
	}
	return value, true
}

// Has implements labels.Labels and fields.Fields.
func (s Set) Has(key string) bool { return find(string(s), Escape(key)) != "" }

// Get implements labels.Labels and fields.Fields.
func (s Set) Get(key string) string {
	value, _ := s.Lookup(key)
	return value
}

// find returns the quoted value of key in an encoded set, or "" if the set has no such key. The key is escaped.
//
// Quotation marks in a JSON string are escaped, and names of labels and fields have none, so the text "key":" occurs in an
// encoded set only if the set has that key.
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

// quoted returns the JSON string that text begins with, or "" if it begins with something else.
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

// Escape returns s as a JSON string without the quotation marks.
func Escape(s string) string {
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
		// A string can always be encoded as JSON.
		panic(err)
	}
	return string(text)
}
