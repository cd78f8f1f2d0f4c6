package apistorage

import (
	"bytes"
	"strings"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// errName is the error for an object with a name that not every engine can store. Most resources allow no such name; those of
// RBAC allow almost anything.
var errName = apierrors.NewBadRequest("metadata.name: must be UTF-8 without NUL")

// errText is the error for an object that would change when it is stored. Only protobuf can carry one: decoders of JSON, YAML and
// CBOR make every string UTF-8.
var errText = apierrors.NewBadRequest("the object has a string that is not UTF-8")

// storable reports whether every engine can store text in a text column.
func storable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsRune(text, 0)
}

// replacement is what encoding/json writes for bytes that are not UTF-8. A U+FFFD in the string itself is written unescaped.
const replacement = `\ufffd`

// lossy reports whether encoding/json replaced a part of a string in data.
func lossy(data []byte) bool {
	for {
		i := bytes.Index(data, []byte(replacement))
		if i < 0 {
			return false
		}
		// After an odd number of backslashes this is not an escape.
		before := data[:i]
		if backslashes := len(before) - len(bytes.TrimRight(before, `\`)); backslashes%2 == 0 {
			return true
		}
		data = data[i+1:]
	}
}
