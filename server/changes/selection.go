package changes

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/history"
)

// The field selectors. Those of the first group are compared with = and !=.
const (
	byNamespace, byMetadataNamespace, byGroup, byResource, byKind, byName = "namespace", "metadata.namespace", "group", "resource", "kind", "name"
	byUser, byImpersonated, byManager, byOperation, byRevision            = "user", "impersonatedUser", "fieldManager", "operation", "metadata.name"

	byField, bySince, byUntil, byAfter, byBefore, byOrder, byTransaction = "field", "since", "until", "afterRevision", "beforeRevision", "order", "transaction"
)

var (
	compared = []string{byNamespace, byMetadataNamespace, byGroup, byResource, byKind, byName, byUser, byImpersonated, byManager, byOperation, byRevision}
	bounding = []string{byField, bySince, byUntil, byAfter, byBefore, byOrder, byTransaction}
)

// checkSelector rejects unknown field selectors, as built-in kinds do.
func checkSelector(label, value string) (string, string, error) {
	if slices.Contains(compared, label) || slices.Contains(bounding, label) {
		return label, value, nil
	}
	return "", "", fmt.Errorf("%q is not a known field selector: only %q", label, slices.Concat(compared, bounding))
}

// Selection selects changes. The zero value selects all.
type Selection struct {
	history.Query
	// Only limits it further, by what is known without the objects; nil for no limit.
	Only func(*history.Change) bool
	// looking is called with the revision of each change that the user may see, before its object is compared; its error ends the read.
	looking func(revision int64) error
	// mostRead ends the read with errTooMuch after so many bytes of objects; 0 for no limit.
	mostRead     int
	terms        []fields.Requirement // of compared
	paths        []string             // changed paths, or prefixes of them
	since, until time.Time            // zero for none
	transaction  string               // the name of one; "" for any or none
}

// Select returns the selection of a field selector, as it is at that moment.
func Select(selector fields.Selector, now time.Time) (*Selection, error) {
	s := &Selection{}
	if selector == nil {
		return s, nil
	}
	for _, r := range selector.Requirements() {
		if slices.Contains(compared, r.Field) {
			s.terms = append(s.terms, r)
		} else if r.Operator == selection.NotEquals {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("the field selector %s can't be negated", r.Field))
		}
		if r.Operator == selection.NotEquals {
			continue
		}
		if err := s.narrow(r.Field, r.Value, now); err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("the field selector %s=%s: %v", r.Field, r.Value, err))
		}
	}
	if group, ok := s.required(byGroup); ok {
		if resource, ok := s.required(byResource); ok && !strings.Contains(resource, ".") {
			s.Resource = &history.Resource{Group: group, Name: resource}
		}
	}
	return s, nil
}

// required returns the value that a term requires.
func (s *Selection) required(field string) (string, bool) {
	for _, t := range s.terms {
		if t.Field == field && t.Operator != selection.NotEquals {
			return t.Value, true
		}
	}
	return "", false
}

// narrow limits what is read by a selector with =.
func (s *Selection) narrow(field, value string, now time.Time) (err error) {
	switch field {
	case byNamespace, byMetadataNamespace:
		s.Namespace = &value
	case byName:
		s.Name = value
	case byUser:
		s.User = &value
	case byImpersonated:
		s.ImpersonatedUser = &value
	case byManager:
		s.FieldManager = &value
	case byOperation:
		s.Operation = &value
	case byResource:
		if parsed := schema.ParseGroupResource(value); parsed.Group != "" {
			s.Resource = &history.Resource{Group: parsed.Group, Name: parsed.Resource}
		}
	case byRevision:
		var revision int64
		if revision, err = parseRevision(value); err == nil {
			s.Between(revision-1, revision+1)
		}
	case byAfter:
		var revision int64
		if revision, err = parseRevision(value); err == nil {
			s.Between(revision, 0)
		}
	case byBefore:
		var revision int64
		if revision, err = parseRevision(value); err == nil {
			s.Between(0, max(revision, 1))
		}
	case byTransaction:
		if s.transaction = value; value == "" {
			err = fmt.Errorf("want the name of a transaction")
		}
	case byField:
		s.paths = append(s.paths, "."+strings.TrimPrefix(value, "."))
	case bySince:
		s.since, err = parseMoment(value, now)
	case byUntil:
		s.until, err = parseMoment(value, now)
	case byOrder:
		if s.NewestFirst = value == "newest"; !s.NewestFirst && value != "oldest" {
			err = fmt.Errorf("want newest or oldest")
		}
	}
	return err
}

// Between limits the selection to revisions after and before others; 0 for no limit.
func (s *Selection) Between(after, before int64) {
	s.After = max(s.After, after)
	if before != 0 && (s.Before == 0 || before < s.Before) {
		s.Before = before
	}
}

// BetweenRowsOf limits the selection to the rows of the last transaction with a name, and returns whether history knows one.
func (s *Selection) BetweenRowsOf(ctx context.Context, store *sqlstore.Store, name string) (known bool, err error) {
	record, last, err := store.RowsOf(ctx, name)
	if err != nil || record == 0 {
		return false, err
	}
	s.Between(record, last+1)
	return true, nil
}

// lastRevision is the limit of revisions in selections: it is never reached, and can be exceeded without an overflow.
const lastRevision = math.MaxInt64 - 1

func parseRevision(text string) (int64, error) {
	revision, err := strconv.ParseInt(text, 10, 64)
	if err != nil || revision < 0 {
		return 0, fmt.Errorf("want a resourceVersion")
	}
	return min(revision, lastRevision), nil
}

// parseMoment reads a time, or how long ago it was. It returns none before the first one that a change can have.
func parseMoment(text string, now time.Time) (time.Time, error) {
	moment, err := time.Parse(time.RFC3339, text)
	if ago, e := time.ParseDuration(text); e == nil && ago >= 0 {
		moment, err = now.Add(-ago), nil
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("want a time such as 2026-11-21T10:00:00Z, or how long ago, such as 10m")
	}
	if first := time.UnixMilli(0); moment.Before(first) {
		return first, nil
	}
	return moment, nil
}

// includesGaps reports whether gaps of a mirror are among what is selected: if that is limited by place and time alone, or to gaps.
func (s *Selection) includesGaps() bool {
	if len(s.paths) > 0 || s.transaction != "" {
		return false
	}
	return !slices.ContainsFunc(s.terms, func(t fields.Requirement) bool {
		switch t.Field {
		case byNamespace, byMetadataNamespace, byGroup, byResource, byRevision:
			return false
		case byOperation:
			return (t.Value == gapOperation) == (t.Operator == selection.NotEquals)
		}
		return true
	})
}

// matchesRow reports whether a change can be selected, without its object. A gap concerns all selections.
func (s *Selection) matchesRow(c *history.Change, gap bool) bool {
	written := time.UnixMilli(c.WrittenAt)
	if !s.since.IsZero() && written.Before(s.since) || !s.until.IsZero() && written.After(s.until) {
		return false
	}
	if gap {
		return true
	}
	if s.Only != nil && !s.Only(c) {
		return false
	}
	return s.matches(func(field string) []string {
		switch field {
		case byNamespace, byMetadataNamespace:
			return []string{c.Namespace}
		case byGroup:
			return []string{c.Group}
		case byName:
			return []string{c.Name}
		case byUser:
			return []string{c.User, c.ImpersonatedUser}
		case byImpersonated:
			return []string{c.ImpersonatedUser}
		case byManager:
			return []string{c.FieldManager}
		case byOperation:
			return []string{string(c.Operation)}
		case byRevision:
			return []string{fmt.Sprint(c.ID)}
		}
		return nil
	}) && s.matchesResource(c)
}

// matchesResource compares resources, which may be given with their group.
func (s *Selection) matchesResource(c *history.Change) bool {
	for _, t := range s.terms {
		if t.Field == byResource {
			same := t.Value == c.Resource || t.Value == c.Resource+"."+c.Group
			if same == (t.Operator == selection.NotEquals) {
				return false
			}
		}
	}
	return true
}

// matchesKind compares the kind, in any case.
func (s *Selection) matchesKind(kind string) bool {
	for _, t := range s.terms {
		if t.Field == byKind && strings.EqualFold(t.Value, kind) == (t.Operator == selection.NotEquals) {
			return false
		}
	}
	return true
}

// matches compares the fields of which values has one or more.
func (s *Selection) matches(values func(field string) []string) bool {
	for _, t := range s.terms {
		if has := values(t.Field); len(has) > 0 && slices.Contains(has, t.Value) == (t.Operator == selection.NotEquals) {
			return false
		}
	}
	return true
}

// matchesPaths reports whether one of the changed paths is, or is below, each path that is selected.
func (s *Selection) matchesPaths(changed []string) bool {
	for _, wanted := range s.paths {
		below := func(path string) bool {
			rest, ok := strings.CutPrefix(path, wanted)
			// A parent that was added or removed as a whole changed too.
			above, has := strings.CutPrefix(wanted, path)
			return ok && (rest == "" || rest[0] == '.' || rest[0] == '[') || has && (above[0] == '.' || above[0] == '[')
		}
		if !slices.ContainsFunc(changed, below) {
			return false
		}
	}
	return true
}
