package history

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/sqube/sqube/dialect"
)

// Rules name fields whose changes are not worth a version, such as when a Lease was renewed last: by resource, in the form
// resource.group.
type Rules map[string][]string

// DefaultRules are those for the heartbeats of nodes and controllers, and for Events that happen again.
var DefaultRules = []string{
	"leases.coordination.k8s.io:renewTime", "nodes:lastHeartbeatTime", "pods:lastProbeTime",
	"events:count", "events:lastTimestamp", "events:lastObservedTime",
}

// ParseRules parses rules of the form RESOURCE.GROUP:FIELD, where FIELD is the name of a field anywhere in the object whose value is a
// number or a time.
func ParseRules(texts []string) (Rules, error) {
	rules := Rules{}
	for _, text := range texts {
		resource, field, ok := strings.Cut(text, ":")
		if !ok || resource == "" || field == "" || strings.ContainsAny(field, `."\`) {
			return nil, fmt.Errorf("%q is not a rule of the form RESOURCE.GROUP:FIELD, such as %s", text, DefaultRules[0])
		}
		rules[resource] = append(rules[resource], field)
	}
	return rules, nil
}

// managedTime is what follows the time of an entry of managedFields, which changes with each write of its manager.
var managedTime = []byte(`,"fieldsType":`)

// thin reports whether a version, whose text is now, differs from the one before, which is the newest of a block, only in what the rules for
// its resource name, and in the times of managedFields. Then it also returns the text before. An encrypted value always differs.
func (rules Rules) thin(r *dialect.Replaced, b *block, now []byte) (before []byte, thin bool) {
	name := r.Resource
	if r.Group != "" {
		name += "." + r.Group
	}
	fields := rules[name]
	if r.Operation != dialect.Update || fields == nil || b.count == 0 || b.writers[b.writer].uid != r.UID {
		return nil, false
	}
	var was dialect.LogRow
	before, err := b.newest(now)
	if err != nil || setText(&was, before) != nil || was.Labels != r.Labels || was.Fields != r.Fields {
		return nil, false
	}
	return before, sameBut(fields, was.Value, r.Value)
}

// sameBut reports whether two JSON texts differ only in numbers and times of some fields.
func sameBut(fields []string, old, now []byte) bool {
	for {
		n := commonPrefix(old, now)
		if n == len(old) && n == len(now) {
			return true
		}
		begin := bytes.LastIndexByte(old[:n], ':') // of a value, or in a time
		for begin > 0 && old[begin-1] != '"' {
			begin = bytes.LastIndexByte(old[:begin], ':')
		}
		if begin < 0 {
			return false
		}
		begin++
		oldEnd, nowEnd := scalarEnd(old[begin:]), scalarEnd(now[begin:])
		if oldEnd == 0 || nowEnd == 0 || begin+max(oldEnd, nowEnd) < n {
			return false
		}
		field := old[:begin-2]
		field = field[bytes.LastIndexByte(field, '"')+1:]
		managed := string(field) == "time" && bytes.HasPrefix(old[begin+oldEnd:], managedTime)
		if !managed && !slices.Contains(fields, string(field)) {
			return false
		}
		old, now = old[begin+oldEnd:], now[begin+nowEnd:]
	}
}

// scalarEnd returns the length of the number or the time at the beginning of a JSON text, 0 if there is none.
func scalarEnd(text []byte) int {
	if len(text) > 0 && text[0] == '"' {
		end := bytes.IndexByte(text[1:], '"') + 1
		if end > 0 && isTime(text[1:end]) {
			return end + 1
		}
		return 0
	}
	n := 0
	for n < len(text) && '0' <= text[n] && text[n] <= '9' {
		n++
	}
	return n
}

// isTime reports whether text is a time of RFC 3339 in UTC, as the API writes them.
func isTime(text []byte) bool {
	const form = "0000-00-00T00:00:00"
	if len(text) <= len(form) || text[len(text)-1] != 'Z' {
		return false
	}
	for i, c := range text[:len(text)-1] {
		digit := '0' <= c && c <= '9'
		switch {
		case i >= len(form):
			if !digit && c != '.' {
				return false
			}
		case form[i] == '0' && !digit, form[i] != '0' && c != form[i]:
			return false
		}
	}
	return true
}
