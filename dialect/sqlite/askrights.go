package sqlite

import (
	"bytes"
	"strings"
	"unicode/utf8"
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/sqube/sqube/dialect"
)

// readable are the tables and views that a statement of Ask may read, and SQLite's functions that return rows.
var readable = wordsOf("objects history log past counter json_each json_tree")

// callable are the functions that it may call: those that compute something from their arguments in a time that is proportional to their
// length. SQLite can't interrupt a function.
var callable = wordsOf(`-> ->> abs acos acosh asin asinh atan atan2 atanh avg ceil ceiling char coalesce concat concat_ws cos cosh count cume_dist
current_date current_time current_timestamp date datetime degrees dense_rank exp first_value floor format glob group_concat hex if ifnull iif instr json
json_array json_array_insert json_array_length json_error_position json_extract json_group_array json_group_object json_insert json_object json_pretty
json_quote json_remove json_replace json_set json_type json_valid jsonb jsonb_array jsonb_array_insert jsonb_extract jsonb_group_array
jsonb_group_object jsonb_insert jsonb_object jsonb_remove jsonb_replace jsonb_set julianday lag last_value lead length like likelihood likely ln
log log10 log2 lower ltrim max min mod nth_value ntile nullif octet_length percent_rank pi pow power printf quote radians random randomblob
rank replace round row_number rtrim sign sin sinh sqlite_version sqrt strftime string_agg substr substring subtype sum tan tanh time timediff
total trim trunc typeof unicode unistr unistr_quote unixepoch unlikely upper zeroblob`)

func wordsOf(text string) map[string]bool {
	words := map[string]bool{}
	for word := range strings.FieldsSeq(text) {
		words[word] = true
	}
	return words
}

// authorize is SQLite's question whether a statement may do something (https://www.sqlite.org/c3ref/set_authorizer.html). So no spelling hides
// what it reads.
func authorize(_ *libc.TLS, _ uintptr, action int32, first, second, _, _ uintptr) int32 {
	allowed := false
	switch action {
	case sqlite3.SQLITE_SELECT, sqlite3.SQLITE_RECURSIVE:
		allowed = true
	case sqlite3.SQLITE_FUNCTION:
		allowed = callable[strings.ToLower(libc.GoString(second))]
	case sqlite3.SQLITE_READ:
		table := strings.ToLower(libc.GoString(first))
		allowed = readable[table]
		// A count of rows reads no column. Then the name may be one that the statement itself has given with WITH.
		if !allowed && libc.GoString(second) == "" {
			allowed = !strings.HasPrefix(table, "sqlite_") && !strings.HasPrefix(table, "pragma_") && table != "dbstat" && table != "schema_migrations"
		}
	}
	if allowed {
		return sqlite3.SQLITE_OK
	}
	return sqlite3.SQLITE_DENY
}

// maxPattern limits the length of the patterns of LIKE and GLOB, and of what trim removes: the time is that times the length of the text.
const maxPattern = 200

// restrict limits what statements on the connection may do.
func (a *asking) restrict() error {
	for limit, most := range map[int32]int32{
		sqlite3.SQLITE_LIMIT_ATTACHED: 0, sqlite3.SQLITE_LIMIT_LENGTH: dialect.MaxAskedRow, sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
		sqlite3.SQLITE_LIMIT_COLUMN: maxAskedColumns, sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: maxPattern,
	} {
		sqlite3.Xsqlite3_limit(a.tls, a.db, limit, most)
	}
	const flags = sqlite3.SQLITE_UTF8 | sqlite3.SQLITE_DETERMINISTIC | sqlite3.SQLITE_INNOCUOUS
	for _, f := range []struct {
		name      string
		arguments int32
		do        func(*libc.TLS, uintptr, int32, uintptr)
	}{
		{"instr", 2, instr}, {"replace", 3, replace}, {"trim", 1, trim}, {"trim", 2, trim}, {"ltrim", 1, trimLeft}, {"ltrim", 2, trimLeft},
		{"rtrim", 1, trimRight}, {"rtrim", 2, trimRight},
	} {
		code := sqlite3.Xsqlite3_create_function_v2(a.tls, a.db, a.text(f.name), f.arguments, flags, 0, pointerTo(f.do), 0, 0, 0)
		if err := a.failure(a.db, code); err != nil {
			return err
		}
	}
	return a.failure(a.db, sqlite3.Xsqlite3_set_authorizer(a.tls, a.db, pointerTo(authorize), 0))
}

// What follows replaces functions of SQLite whose time is the product of the lengths of their arguments: an hour for a few MiB.

// argument returns an argument of a function, as text unless it is a BLOB and blobs are wanted; false for NULL.
func argument(tls *libc.TLS, arguments uintptr, i int, blob bool) (value []byte, ok bool) {
	v := load(arguments + uintptr(i)*unsafe.Sizeof(arguments))
	if sqlite3.Xsqlite3_value_type(tls, v) == sqlite3.SQLITE_NULL {
		return nil, false
	}
	var p uintptr
	if blob {
		p = sqlite3.Xsqlite3_value_blob(tls, v)
	} else {
		p = sqlite3.Xsqlite3_value_text(tls, v)
	}
	if n := int(sqlite3.Xsqlite3_value_bytes(tls, v)); p != 0 && n > 0 {
		value = libc.GoBytes(p, n)
	}
	return value, true
}

func isBlob(tls *libc.TLS, arguments uintptr, i int) bool {
	return sqlite3.Xsqlite3_value_type(tls, load(arguments+uintptr(i)*unsafe.Sizeof(arguments))) == sqlite3.SQLITE_BLOB
}

func resultText(tls *libc.TLS, at uintptr, text []byte) {
	const transient = ^uintptr(0) // SQLite copies it
	p, err := libc.CString(string(text))
	if err != nil {
		sqlite3.Xsqlite3_result_error_nomem(tls, at)
		return
	}
	sqlite3.Xsqlite3_result_text(tls, at, p, int32(len(text)), transient)
	libc.Xfree(tls, p)
}

func instr(tls *libc.TLS, at uintptr, _ int32, arguments uintptr) {
	blobs := isBlob(tls, arguments, 0) && isBlob(tls, arguments, 1)
	in, ok := argument(tls, arguments, 0, blobs)
	part, known := argument(tls, arguments, 1, blobs)
	if !ok || !known {
		return
	}
	i := bytes.Index(in, part)
	if !blobs && i > 0 {
		i = utf8.RuneCount(in[:i])
	}
	sqlite3.Xsqlite3_result_int64(tls, at, int64(i)+1)
}

func replace(tls *libc.TLS, at uintptr, _ int32, arguments uintptr) {
	in, first := argument(tls, arguments, 0, false)
	part, second := argument(tls, arguments, 1, false)
	by, third := argument(tls, arguments, 2, false)
	switch {
	case !first || !second:
	case len(part) == 0:
		resultText(tls, at, in)
	case !third:
	case len(in)+bytes.Count(in, part)*(len(by)-len(part)) > dialect.MaxAskedRow:
		sqlite3.Xsqlite3_result_error_toobig(tls, at)
	default:
		resultText(tls, at, bytes.ReplaceAll(in, part, by))
	}
}

func trim(tls *libc.TLS, at uintptr, n int32, arguments uintptr) {
	trimWith(tls, at, n, arguments, bytes.Trim)
}

func trimLeft(tls *libc.TLS, at uintptr, n int32, arguments uintptr) {
	trimWith(tls, at, n, arguments, bytes.TrimLeft)
}

func trimRight(tls *libc.TLS, at uintptr, n int32, arguments uintptr) {
	trimWith(tls, at, n, arguments, bytes.TrimRight)
}

func trimWith(tls *libc.TLS, at uintptr, n int32, arguments uintptr, cut func([]byte, string) []byte) {
	in, ok := argument(tls, arguments, 0, false)
	characters := []byte(" ")
	if n == 2 && ok {
		characters, ok = argument(tls, arguments, 1, false)
	}
	switch {
	case !ok:
	case len(characters) > maxPattern:
		sqlite3.Xsqlite3_result_error_toobig(tls, at)
	default:
		resultText(tls, at, cut(in, string(characters)))
	}
}
