package dialect

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// MaxAskedRow limits the length of one row that Ask reads, and of what a statement makes on its way, in bytes. No row of the log is as long.
const MaxAskedRow = 8 << 20

// ErrLongRow is returned for a row that is longer.
var ErrLongRow = fmt.Errorf("a row has more than %d MiB", MaxAskedRow>>20)

// ErrNotAsked is returned for a statement that Ask refuses before it runs.
var ErrNotAsked = errors.New("the statement may be one SELECT, WITH or VALUES, or EXPLAIN and one of these")

var asked = regexp.MustCompile(`^(?is:(EXPLAIN\s+(?:QUERY\s+PLAN\s+|ANALYZE\s+)?)?((?:SELECT|WITH|VALUES)\b.*))$`)

// Asked checks how a statement for Ask begins, and returns it without what is before it, its EXPLAIN, and what remains.
func Asked(statement string) (whole, explain, query string, err error) {
	whole = SkipBlank(statement)
	parts := asked.FindStringSubmatch(whole)
	if parts == nil || strings.ContainsRune(whole, 0) {
		return "", "", "", ErrNotAsked
	}
	return whole, parts[1], parts[2], nil
}

// SkipBlank returns a statement from its first character that is not in a comment, a space or a semicolon.
func SkipBlank(statement string) string {
	for {
		statement = strings.TrimLeft(statement, " \t\r\n\f\v;")
		var found bool
		switch {
		case strings.HasPrefix(statement, "--"):
			_, statement, _ = strings.Cut(statement, "\n")
		case strings.HasPrefix(statement, "/*"):
			if _, statement, found = strings.Cut(statement[2:], "*/"); !found {
				return ""
			}
		default:
			return statement
		}
	}
}
