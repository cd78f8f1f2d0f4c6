// Package agent has what answers to agents need: marks around text that is not the server's own, pages, and a record of trials.
package agent

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/sqube/sqube/cmd/sqube/internal/terminal"
)

// MostText is how many bytes of text an answer has at most, besides what the server says itself.
const MostText = 24 << 10

// Data marks text that comes from a cluster. Nobody can know the mark beforehand, so the text can't end it. Characters that are not seen are
// escaped.
func Data(text string) string {
	mark := "data-" + rand.Text()[:16]
	return "<" + mark + ">\n" + Visible(strings.TrimSuffix(text, "\n")) + "\n</" + mark + ">"
}

// Visible returns text in which the characters that are not seen are escaped.
func Visible(text string) string {
	lines := strings.Split(strings.ToValidUTF8(text, "\ufffd"), "\n")
	for i, line := range lines {
		cells := strings.Split(strings.TrimSuffix(line, "\r"), "\t")
		for j, cell := range cells {
			cells[j] = terminal.Printable(cell)
		}
		lines[i] = strings.Join(cells, "\t")
	}
	return strings.Join(lines, "\n")
}

// mostWhole is how many bytes a text has at most that is shown in pages.
const mostWhole = 1 << 20

// Text is a text that does not become too long.
type Text struct{ strings.Builder }

// Write implements io.Writer.
func (t *Text) Write(p []byte) (int, error) {
	if t.Len()+len(p) > mostWhole {
		return 0, errors.New("there is too much to show: ask for an object, for fewer resources, or for a shorter time")
	}
	return t.Builder.Write(p)
}

var errPage = errors.New("this page is not of the same text: it has changed, or the other arguments are not the same; ask without page")

// Page returns the part of a text at which a token points, "" for the first, and the token of the next part, "" if there is none. The parts are whole
// lines, unless a line is too long.
func Page(text, token string, most int) (part, next string, err error) {
	hash := sha256.Sum256([]byte(text))
	sum := hex.EncodeToString(hash[:6])
	begin := 0
	if token != "" {
		at, of, _ := strings.Cut(token, "-")
		if begin, err = strconv.Atoi(at); err != nil || of != sum || begin < 0 || begin >= len(text) {
			return "", "", errPage
		}
	}
	part = text[begin:]
	if len(part) <= most {
		return part, "", nil
	}
	end := strings.LastIndexByte(part[:most], '\n') + 1
	if end == 0 {
		end = most
		for end > 0 && !utf8.RuneStart(part[end]) {
			end--
		}
	}
	return part[:end], fmt.Sprintf("%d-%s", begin+end, sum), nil
}
