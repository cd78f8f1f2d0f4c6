package kubectl

import (
	"regexp"
	"strings"
)

// placeholders replace what differs between runs. They are applied in order.
var placeholders = []struct {
	pattern     *regexp.Regexp
	replacement string
}{
	{regexp.MustCompile(`https://127\.0\.0\.1:\d+`), "<server>"},
	{regexp.MustCompile(`(TargetPort: +)\d+/TCP`), "$1<port>/TCP"},
	{regexp.MustCompile(`"serverAddress":"[^"]*"`), `"serverAddress":"<address>"`},
	{regexp.MustCompile(`\beyJ[\w-]+\.[\w-]+\.[\w-]+`), "<token>"},
	{regexp.MustCompile(`(?s)-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----`), "<certificate>"},
	{regexp.MustCompile(`\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`), "<uid>"},
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "<time>"},
	{regexp.MustCompile(`\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d \+0000`), "<time>"},
	{regexp.MustCompile(`("?resourceVersion"?: ?)"\d+"`), `$1"<version>"`},
	{regexp.MustCompile(`(Resource Version:) +\d+`), "$1  <version>"},
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)? \+0000( UTC)?`), "<time>"},
	{regexp.MustCompile(`(?m)^([IWE])\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ `), "$1<time> "},
	// Once in a hundred times, kubectl logs its own --timeout: it notices the end of its list or watch before the timeout.
	{regexp.MustCompile(`(?m)^[EI]<time> reflector\.go:\d+\] "(Failed to watch" err=".*context deadline exceeded|Warning: watch ended with error".*very short watch).*\n`), ""},
	{regexp.MustCompile(`\bX509SHA256=[0-9a-f]{64}`), "X509SHA256=<sum>"},
	{regexp.MustCompile(`\bkube-api-access-\w{5}\b`), "kube-api-access-<n>"},
	{regexp.MustCompile(`/(LIVE|MERGED)-\d+/`), "/$1-<n>/"},
	{regexp.MustCompile(`kubectl-edit-\w+`), "kubectl-edit-<n>"},
}

var (
	ageHeader = regexp.MustCompile(`(^| )(AGE|Age|LAST SEEN)( |$)`)
	age       = regexp.MustCompile(`(^|  +)(\d+s|\d+m(\d+s)?)(  |$)`)
	gaps      = regexp.MustCompile(`(\S) {2,}`)
)

// normalize replaces what differs between runs, so that the output of two runs is the same, except for the widths of columns.
func normalize(output, dir string) string {
	output = strings.ReplaceAll(output, dir, "<dir>")
	for _, p := range placeholders {
		output = p.pattern.ReplaceAllString(output, p.replacement)
	}
	lines := strings.Split(output, "\n")
	inTable := false
	for i, line := range lines {
		if ageHeader.MatchString(line) {
			inTable = true
		} else if line == "" {
			inTable = false
		} else if inTable {
			// Twice, since neighbouring columns share the gap between them.
			line = age.ReplaceAllString(line, "$1<age>$4")
			line = age.ReplaceAllString(line, "$1<age>$4")
		}
		lines[i] = strings.TrimRight(line, " ")
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}

// same reports whether two normalized outputs differ at most in the widths of columns.
func same(a, b string) bool {
	return gaps.ReplaceAllString(a, "$1  ") == gaps.ReplaceAllString(b, "$1  ")
}
