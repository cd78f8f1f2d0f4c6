package apistorage

import (
	"bytes"
	"strings"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// errName is the answer to an object whose name some engine could not store. Of most resources no name is such; those of
// RBAC let names be almost anything.
var errName = apierrors.NewBadRequest("metadata.name: may not hold NUL, nor what is not UTF-8")

// errText is the answer to an object that would be stored as another than it is. A client can send one as protobuf only:
// in JSON, YAML and CBOR a string is UTF-8, or is made so when it is read.
var errText = apierrors.NewBadRequest("the object holds a string that is not UTF-8")

// storable says whether every engine can store the text in a column of its own.
func storable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsRune(text, 0)
}

// replaced is what encoding/json writes for bytes that are not UTF-8. A U+FFFD that was there before it writes as it is.
const replaced = `\ufffd`

// lossy says whether in JSON of encoding/json a string has lost something.
func lossy(data []byte) bool {
	for {
		i := bytes.Index(data, []byte(replaced))
		if i < 0 {
			return false
		}
		// A backslash before it makes of its own one a character.
		before := data[:i]
		if backslashes := len(before) - len(bytes.TrimRight(before, `\`)); backslashes%2 == 0 {
			return true
		}
		data = data[i+1:]
	}
}
