package sqlstore

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore/history"
)

// Rows that a mirror writes follow another cluster. Their audit ids begin with the resourceVersion that the object has there, so that every row
// has it, encrypted or not, and history and archives have it too.

// mirrorMark is what the audit id of each row of a mirror begins with.
const mirrorMark = "mirror:"

// MirroredID returns the audit id of a row that mirrors a version with a resourceVersion, which a request with this audit id has made; "" if
// that is not known.
func MirroredID(version int64, auditID string) string {
	return mirrorMark + strconv.FormatInt(version, 10) + "/" + auditID
}

// SplitMirroredID returns the resourceVersion in the cluster that a row with this audit id mirrors, 0 if it mirrors none, and the audit id of
// the request there.
func SplitMirroredID(id string) (version int64, auditID string) {
	rest, marked := strings.CutPrefix(id, mirrorMark)
	number, auditID, cut := strings.Cut(rest, "/")
	if version, err := strconv.ParseInt(number, 10, 64); marked && cut && err == nil {
		return version, auditID
	}
	return 0, id
}

// Mirror and Gaps have the records of a mirror: how far it has followed, and what it has not seen as it happened. They are no objects of the
// API.
var (
	Mirror = Resource{Group: InternalGroup, Name: "mirror"}
	Gaps   = history.Gaps
)

// Mirrored is what the log knows of an object of another cluster.
type Mirrored struct {
	Resource Resource
	Key, UID string
	Version  int64 // there; 0 if the row does not mirror one
	Deleted  bool
}

// Mirrored calls yield with the live objects, and with the deletions that are still in the log.
func (s *Store) Mirrored(ctx context.Context, yield func(Mirrored)) error {
	b := s.statement().add("SELECT api_group, resource, key, uid, operation, audit_id FROM log WHERE replaced_by IS NULL OR operation = 'delete'")
	return s.run(ctx, b, func(row dialect.Row) error {
		var m Mirrored
		var operation dialect.Operation
		var id string
		if err := row.Scan(&m.Resource.Group, &m.Resource.Name, &m.Key, &m.UID, &operation, &id); err != nil {
			return err
		}
		m.Deleted = operation == dialect.Delete
		m.Version, _ = SplitMirroredID(id)
		yield(m)
		return nil
	})
}

// Authored is a write with its author.
type Authored struct {
	*Write
	Author Author
}

// WriteTogether commits writes in their order, all or none of them. Those that replace a version come before those that create an object, and
// no two are of one object. It returns the revision of the first one, which those of the others follow, and errors like Write: ErrConflict if
// one of them conflicts.
func (s *Store) WriteTogether(ctx context.Context, writes []Authored) (first int64, err error) {
	began := time.Now()
	w := &whole{}
	for _, one := range writes {
		w.rows = append(w.rows, &pending{row: one.row(one.Author), note: one.Note, previous: one.Previous})
	}
	w.rows[0].result = make(chan outcome, 1)
	first, err = s.writeWhole(ctx, w)
	failure := s.noteFailure(ctx, err)
	for _, one := range writes {
		s.opts.OnRequest(string(one.Operation), one.Resource, began, failure)
	}
	return first, err
}
