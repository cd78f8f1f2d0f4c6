package bodies

import "sigs.k8s.io/json"

const (
	// lineBytes is how long lines become, and the next token.
	lineBytes = 64
	// maxKeyBytes is less than what a key in YAML may have.
	maxKeyBytes = 1000
)

// withLineBreaks adds line breaks to JSON that is on one line. Whatever begins on a line of YAML may turn out to be a key, so the decoder
// keeps all tokens of up to 1024 bytes until the line ends, which takes twice as long. Other data, and all that might be an error in YAML, is
// returned as it is, since errors name lines.
func withLineBreaks(data []byte) []byte {
	var decoded map[string]any
	if strict, err := json.UnmarshalStrict(data, &decoded); err != nil || len(strict) > 0 { // keys twice
		return data
	}
	lines := make([]byte, 0, len(data)+len(data)/lineBytes)
	quoted, begin, line := false, 0, 0 // the begins of the last string and line
	for i, escaped := 0, false; i < len(data); i++ {
		b := data[i]
		if b < ' ' && (b != '\n' || i < len(data)-1) || b > '~' || escaped && b == 'u' {
			return data
		}
		lines = append(lines, b)
		switch {
		case escaped:
			escaped = false
		case b == '\\':
			escaped = true
		case b == '"':
			if quoted = !quoted; quoted {
				begin = i
			}
		case quoted:
		case b == ':' && i-begin > maxKeyBytes:
			return data
		case (b == ',' || b == '{' || b == '[') && i-line >= lineBytes:
			lines, line = append(lines, '\n'), i
		}
	}
	return lines
}
