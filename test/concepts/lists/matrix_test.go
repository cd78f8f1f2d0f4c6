package lists

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
)

// listTable tests each combination of list parameters (API concepts, "Semantics for get and list") on a collection that has
// changed between two revisions.
type listTable struct {
	c        *kit.Cluster
	path     string // to list
	selector string // limits the list to the promise's objects
	// then and now are the names in the collection at two revisions: that of the version, and the newest.
	then, now            []string
	thenVersion, version string
	token                string // continues after the first two names of then
}

// newTable fills the collection at writePath. It is read there, or as given by reads: a path and a selector.
func newTable(t *testing.T, c *kit.Cluster, writePath string, object func(name string) map[string]any, reads ...string) *listTable {
	t.Helper()
	path, selector := writePath, ""
	if len(reads) == 2 {
		path, selector = reads[0], reads[1]
	}
	for _, name := range []string{"a", "b", "c", "d"} {
		c.Post(t, writePath, object(name)).Created(t)
	}
	first := c.Get(t, path+"?limit=2"+selector).OK(t)
	c.Delete(t, writePath+"/b").OK(t)
	last := c.Post(t, writePath, object("e")).Created(t)
	return &listTable{
		c: c, path: path, selector: selector, token: first.Text(t, "metadata", "continue"),
		then: []string{"a", "b", "c", "d"}, thenVersion: first.ResourceVersion(t),
		now: []string{"a", "c", "d", "e"}, version: last.ResourceVersion(t),
	}
}

// cell checks the response to a list with a limit, 0 for none.
type cell func(t *testing.T, a kit.Answer, limit int)

// The cells of the table. "Not older than" uses the revision of the last write, "exact" that of then.

func (l *listTable) mostRecent(t *testing.T, a kit.Answer, limit int) { l.shows(t, a, l.now, limit) }

func (l *listTable) notOlder(t *testing.T, a kit.Answer, limit int) { l.shows(t, a, l.now, limit) }

// anyState accepts either state.
func (l *listTable) anyState(t *testing.T, a kit.Answer, limit int) {
	state := l.now
	if slices.Contains(a.OK(t).Names(t), "b") {
		state = l.then
	}
	l.shows(t, a, state, anyLimit(t, a, state, limit))
}

// anyLimit returns 0 if a limit was ignored: at resourceVersion 0, kube-apiserver sends everything.
func anyLimit(t *testing.T, a kit.Answer, state []string, limit int) int {
	if len(a.Names(t)) == len(state) {
		return 0
	}
	return limit
}

func (l *listTable) exact(t *testing.T, a kit.Answer, limit int) {
	l.shows(t, a, l.then, limit)
	l.isThen(t, a)
}

func (l *listTable) continued(t *testing.T, a kit.Answer, limit int) {
	l.shows(t, a, l.then[2:], limit)
	l.isThen(t, a)
}

func (l *listTable) continuedAny(t *testing.T, a kit.Answer, limit int) {
	l.continued(t, a, anyLimit(t, a.OK(t), l.then[2:], limit))
}

func (l *listTable) isThen(t *testing.T, a kit.Answer) {
	if a.ResourceVersion(t) != l.thenVersion {
		t.Errorf("%s: the list is from revision %s instead of %s", a.Request, a.ResourceVersion(t), l.thenVersion)
	}
}

func (l *listTable) shows(t *testing.T, a kit.Answer, state []string, limit int) {
	t.Helper()
	a.OK(t)
	var remaining any
	if limit > 0 && limit < len(state) {
		if l.selector == "" {
			remaining = float64(len(state) - limit)
		}
		state = state[:limit]
		if a.Text(t, "metadata", "continue") == "" {
			t.Errorf("%s: no continue token", a.Request)
		}
	} else if token := a.Text(t, "metadata", "continue"); token != "" {
		t.Errorf("%s: a continue token although nothing remains: %s", a.Request, token)
	}
	kit.Equal(t, a.Names(t), state)
	kit.Equal(t, a.Value(t, "metadata", "remainingItemCount"), remaining)
}

// invalid expects the parameters to be rejected.
func invalid(parts ...string) cell {
	return func(t *testing.T, a kit.Answer, _ int) {
		a.Invalid(t, append(parts, `ListOptions.meta.k8s.io "" is invalid`)...)
	}
}

func (l *listTable) check(t *testing.T) {
	noVersion := invalid("resourceVersionMatch is forbidden unless resourceVersion is provided")
	exactZero := invalid(`resourceVersionMatch "exact" is forbidden for resourceVersion "0"`)
	noMatch := invalid("resourceVersionMatch is forbidden when continue is provided")
	unknown := invalid(`resourceVersionMatch: Unsupported value: "About": supported values: "Exact", "NotOlderThan", ""`)
	withToken := func(t *testing.T, a kit.Answer, _ int) {
		a.BadRequest(t, "specifying resource version is not allowed when using continue")
	}
	for _, row := range []struct {
		match            string
		limit            int
		continued        bool
		unset, zero, set cell
	}{
		{"", 0, false, l.mostRecent, l.anyState, l.notOlder},
		{"", 2, false, l.mostRecent, l.anyState, l.exact},
		{"", 0, true, l.continued, l.continuedAny, withToken}, // the documentation has no row for a token without a limit
		{"", 1, true, l.continued, l.continuedAny, withToken},
		{"Exact", 0, false, noVersion, exactZero, l.exact},
		{"Exact", 2, false, noVersion, exactZero, l.exact},
		{"Exact", 2, true, noMatch, noMatch, noMatch},
		{"NotOlderThan", 0, false, noVersion, l.anyState, l.notOlder},
		{"NotOlderThan", 2, false, noVersion, l.anyState, l.notOlder},
		{"NotOlderThan", 2, true, noMatch, noMatch, noMatch},
		{"About", 0, false, unknown, unknown, unknown},
		{"About", 2, false, unknown, unknown, unknown},
		{"About", 2, true, unknown, unknown, unknown},
	} {
		parameters := "?resourceVersionMatch=" + row.match
		if row.limit > 0 {
			parameters += fmt.Sprintf("&limit=%d", row.limit)
		}
		if row.continued {
			parameters += "&continue=" + url.QueryEscape(l.token)
		}
		set := l.version
		if row.match == "Exact" || row.match == "" && row.limit > 0 {
			set = l.thenVersion
		}
		for version, check := range map[string]cell{"": row.unset, "&resourceVersion=": row.unset, "&resourceVersion=0": row.zero, "&resourceVersion=" + set: row.set} {
			check(t, l.c.Get(t, l.path+parameters+version+l.selector), row.limit)
		}
	}
}

// continueToken returns a token in the server's format, for a revision and a start key. To clients, tokens are opaque.
func continueToken(revision int64, start string) string {
	text, err := json.Marshal(map[string]any{"v": "meta.k8s.io/v1", "rv": revision, "start": start})
	if err != nil {
		panic(err)
	}
	return encoded(string(text))
}

func encoded(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
