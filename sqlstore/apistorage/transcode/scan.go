package transcode

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"unicode/utf16"
	"unicode/utf8"
)

// errUnusual is the error for JSON that encoding/json would not write for the type.
var errUnusual = errors.New("the JSON is not what an encoder wrote")

// scanner reads JSON.
type scanner struct {
	data []byte
	at   int
}

// next skips spaces and returns the next byte without consuming it; 0 at the end.
func (s *scanner) next() byte {
	for ; s.at < len(s.data); s.at++ {
		switch c := s.data[s.at]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// consume consumes c, or returns false if c is not next.
func (s *scanner) consume(c byte) bool {
	if s.next() != c {
		return false
	}
	s.at++
	return true
}

// null consumes a null, or returns false if that is not next.
func (s *scanner) null() bool {
	if s.next() != 'n' || !bytes.HasPrefix(s.data[s.at:], []byte("null")) {
		return false
	}
	s.at += len("null")
	return true
}

// quoted consumes a string and returns it without unescaping, and whether it has escapes.
func (s *scanner) quoted() (raw []byte, escaped bool, err error) {
	if !s.consume('"') {
		return nil, false, errUnusual
	}
	data := s.data
	for i := s.at; i < len(data); i++ {
		switch data[i] {
		case '"':
			raw, s.at = data[s.at:i], i+1
			return raw, escaped, nil
		case '\\':
			escaped = true
			i++
		}
	}
	return nil, false, errUnusual
}

// appendText appends a string to b.
func (s *scanner) appendText(b []byte) ([]byte, error) {
	raw, escaped, err := s.quoted()
	if err != nil {
		return b, err
	}
	if !utf8.Valid(raw) {
		return b, errUnusual
	}
	if !escaped {
		return append(b, raw...), nil
	}
	return appendUnescaped(b, raw)
}

func appendUnescaped(b, raw []byte) ([]byte, error) {
	for {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 {
			return append(b, raw...), nil
		}
		b = append(b, raw[:i]...)
		if raw = raw[i+1:]; len(raw) == 0 {
			return b, errUnusual
		}
		c := raw[0]
		raw = raw[1:]
		switch c {
		case '"', '\\', '/':
			b = append(b, c)
		case 'b':
			b = append(b, '\b')
		case 'f':
			b = append(b, '\f')
		case 'n':
			b = append(b, '\n')
		case 'r':
			b = append(b, '\r')
		case 't':
			b = append(b, '\t')
		case 'u':
			r, ok := hex4(raw)
			if !ok {
				return b, errUnusual
			}
			raw = raw[4:]
			if utf16.IsSurrogate(r) {
				low, ok := rune(0), false
				if bytes.HasPrefix(raw, []byte(`\u`)) {
					low, ok = hex4(raw[2:])
				}
				if r = utf16.DecodeRune(r, low); !ok || r == utf8.RuneError {
					return b, errUnusual
				}
				raw = raw[6:]
			}
			b = utf8.AppendRune(b, r)
		default:
			return b, errUnusual
		}
	}
}

func hex4(b []byte) (r rune, ok bool) {
	var two [2]byte
	if len(b) < 4 {
		return 0, false
	}
	_, err := hex.Decode(two[:], b[:4])
	return rune(binary.BigEndian.Uint16(two[:])), err == nil
}

// any consumes a value of any kind and returns its JSON.
func (s *scanner) any() ([]byte, error) {
	c := s.next()
	start := s.at
	switch c {
	case '"':
		_, _, err := s.quoted()
		return s.data[start:s.at], err
	case '{', '[':
		n := ObjectEnd(s.data[start+1:])
		if n == 0 {
			return nil, errUnusual
		}
		s.at = start + 1 + n
		return s.data[start:s.at], nil
	case 0, ',', ':', '}', ']':
		return nil, errUnusual
	}
	return s.literal(), nil
}

// spaced returns the value that was just consumed, with the spaces around it if the JSON ends in a space.
func (s *scanner) spaced(value []byte) []byte {
	if !bytes.HasSuffix(s.data, []byte(" ")) {
		return value
	}
	begin := s.at - len(value)
	s.next()
	return s.data[len(bytes.TrimRight(s.data[:begin], " \t\n\r")):s.at]
}

// Field returns the JSON of a field of a JSON object. It does not read what follows the field.
func Field(data []byte, name string) (value []byte, err error) {
	s := scanner{data: data}
	_, err = s.names(func(at []byte) error {
		found, err := s.any()
		if err == nil && string(at) == name {
			value, err = found, errFound
		}
		return err
	})
	switch {
	case errors.Is(err, errFound):
		return value, nil
	case err == nil:
		err = fmt.Errorf("the object has no %s", name)
	}
	return nil, err
}

// errFound stops reading an object.
var errFound = errors.New("found")

// ObjectEnd returns the length of the rest of a JSON object or array, where data begins after its first byte; 0 if it does not
// end.
func ObjectEnd(data []byte) int {
	depth := 1
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		case '"':
			for i++; i < len(data) && data[i] != '"'; i++ {
				if data[i] == '\\' {
					i++
				}
			}
		}
	}
	return 0
}

// literal consumes and returns a number, true, false or null.
func (s *scanner) literal() []byte {
	start := s.at
	for ; s.at < len(s.data); s.at++ {
		switch s.data[s.at] {
		case ',', ':', '{', '}', '[', ']', '"', ' ', '\t', '\n', '\r':
			if s.at == start {
				s.at++ // so that callers make progress
			}
			return s.data[start:s.at]
		}
	}
	return s.data[start:]
}

// each calls visit for each element of an array. visit must consume the element.
func (s *scanner) each(visit func() error) (n int, err error) {
	if !s.consume('[') {
		return 0, errUnusual
	}
	for ; !s.consume(']'); n++ {
		if n > 0 && !s.consume(',') {
			return n, errUnusual
		}
		if err := visit(); err != nil {
			return n, err
		}
	}
	return n, nil
}

// names calls visit with each name of an object. visit must consume the value.
func (s *scanner) names(visit func(name []byte) error) (n int, err error) {
	if !s.consume('{') {
		return 0, errUnusual
	}
	for ; !s.consume('}'); n++ {
		if n > 0 && !s.consume(',') {
			return n, errUnusual
		}
		name, escaped, err := s.quoted()
		if err == nil && escaped {
			name, err = appendUnescaped(nil, name)
		}
		if err != nil || !s.consume(':') {
			return n, errUnusual
		}
		if err := visit(name); err != nil {
			return n, err
		}
	}
	return n, nil
}
