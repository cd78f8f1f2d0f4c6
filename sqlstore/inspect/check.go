package inspect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/history"
)

// Finding is something wrong in a log.
type Finding struct {
	// Revision and Object name the row; 0 and "" if it is about the whole log.
	Revision int64
	Object   string
	What     string
	// Repair is a statement that fixes it without losing data; "" if there is none.
	Repair string
}

// Checked is how much was checked.
type Checked struct {
	Rows, Objects int64
	// Unread is the number of rows whose value decrypt has left unread. All else about them was checked.
	Unread int64
	// Stored is how many live objects are stored in each form. It leaves out those that were not read.
	Stored map[Stored]int64
}

// Stored is a form in which objects of a resource are stored.
type Stored struct {
	sqlstore.Resource
	APIVersion, Kind string
}

// ErrUnread is what decrypt returns for a value that it has no key for.
var ErrUnread = errors.New("there is no key to read it")

// Check checks every row of the log and calls found for each problem. decrypt decrypts a value, or returns [ErrUnread]. Check returns database errors, and
// dialect.ErrCorrupt if the counter is missing.
//
// In a sound log, the counter is at or ahead of all rows, the versions of an object do not overlap and at most one of them is
// live, every value can be read and is the object named by its row, and every object's namespace exists.
func Check(ctx context.Context, r dialect.Reader, decrypt func(sqlstore.Resource, string, []byte) ([]byte, error), found func(Finding)) (Checked, error) {
	c := checker{Checked: Checked{Stored: map[Stored]int64{}}, decrypt: decrypt, found: found}
	at, err := Read(ctx, r)
	c.from = at.From
	switch {
	case err != nil:
		return c.Checked, err
	case at.Revision == 0:
		return c.Checked, fmt.Errorf("the revision counter is missing: %w", dialect.ErrCorrupt)
	case at.Compacted > at.Revision:
		found(Finding{What: fmt.Sprintf("revision %d counts as compacted, but the newest is %d", at.Compacted, at.Revision)})
	}
	// The counter and the namespaces are read with the rows, since the log may grow.
	const orphaned = "replaced_by IS NULL AND namespace <> '' AND NOT EXISTS (SELECT 1 FROM log n WHERE n.api_group = '' AND n.resource = 'namespaces' AND n.key = log.namespace AND n.replaced_by IS NULL)"
	err = r.Query(ctx, "SELECT (SELECT revision FROM counter), "+orphaned+", "+dialect.Columns+" FROM log ORDER BY api_group, resource, key, id", nil, func(row dialect.Row) error {
		l := &dialect.LogRow{}
		var orphan bool
		if err := l.Scan(row, &c.counter, &orphan); err != nil {
			return err
		}
		c.row(l, orphan)
		return nil
	})
	if err == nil {
		err = history.Blocks(ctx, r, "first_id > 0", "first_id", nil, func(b *dialect.Block) error {
			c.block(b)
			return nil
		})
	}
	if c.newest > c.counter {
		found(Finding{
			What:   fmt.Sprintf("the counter is at %d, behind the newest row, %d", c.counter, c.newest),
			Repair: fmt.Sprintf("UPDATE counter SET revision = %d", c.newest),
		})
	}
	return c.Checked, err
}

type checker struct {
	Checked
	decrypt  func(sqlstore.Resource, string, []byte) ([]byte, error)
	found    func(Finding)
	from     int64 // the first revision that is kept
	counter  int64
	newest   int64 // the highest id
	previous *dialect.LogRow
}

// row checks a row; orphan is set if it is live and its namespace does not exist.
func (c *checker) row(l *dialect.LogRow, orphan bool) {
	c.Rows++
	c.newest = max(c.newest, l.ID, l.ReplacedBy)
	wrong := func(format string, args ...any) {
		c.found(Finding{Revision: l.ID, Object: Name(l), What: fmt.Sprintf(format, args...)})
	}
	if p := c.previous; p != nil && p.Group == l.Group && p.Resource == l.Resource && p.Key == l.Key {
		c.follows(p, l)
	} else {
		c.Objects++
	}
	c.previous = l

	if want := l.Namespace + "/" + l.Name; l.Key != want && (l.Namespace != "" || l.Key != l.Name) {
		wrong("its key is %q", l.Key)
	}
	if l.Operation == dialect.Delete {
		if l.ReplacedBy != l.ID || l.Value != nil {
			wrong("it is a deletion, but does not have the form of one")
		}
		return
	}
	if l.ReplacedBy != 0 && l.ReplacedBy <= l.ID {
		wrong("it was replaced before it was written, at %d", l.ReplacedBy)
	}
	if orphan {
		wrong("there is no namespace %s", l.Namespace)
	}
	if err := c.value(l); err != nil {
		wrong("%v", err)
	}
}

// block checks that versions which have left the log can be read.
func (c *checker) block(b *dialect.Block) {
	if b.IsLost() || history.IsLeftOut(b) {
		return
	}
	versions, err := history.Versions(b)
	if errors.Is(err, history.ErrGivenUp) || errors.Is(err, history.ErrForgotten) && b.Until <= c.from {
		return
	}
	name := &dialect.LogRow{Write: dialect.Write{Group: b.Group, Resource: b.Resource, Namespace: b.Namespace, Name: b.Name}}
	switch {
	case err != nil:
		c.found(Finding{Revision: b.First, Object: Name(name), What: fmt.Sprintf("its versions up to %d can't be read: %v", b.Until, err)})
	case len(versions) == 0 || versions[0].ID != b.First || versions[len(versions)-1].ID > b.Until:
		c.found(Finding{Revision: b.First, Object: Name(name), What: fmt.Sprintf("its versions up to %d are others than its block says", b.Until)})
	}
}

// follows checks that a version begins where the previous one ends, or later.
func (c *checker) follows(p, l *dialect.LogRow) {
	if p.ReplacedBy != 0 && p.ReplacedBy <= l.ID {
		return
	}
	what := fmt.Sprintf("it counts as live, but was followed by %d", l.ID)
	if p.ReplacedBy != 0 {
		what = fmt.Sprintf("it counts as live until %d, but was followed by %d", p.ReplacedBy, l.ID)
	}
	c.found(Finding{
		Revision: p.ID, Object: Name(p), What: what,
		Repair: fmt.Sprintf("UPDATE log SET replaced_by = %d WHERE id = %d", l.ID, p.ID),
	})
}

// value checks that the value is the object of the row.
func (c *checker) value(l *dialect.LogRow) error {
	resource := sqlstore.Resource{Group: l.Group, Name: l.Resource}
	if resource == sqlstore.Transactions {
		return nil
	}
	text, err := c.decrypt(resource, l.Key, l.Value)
	if errors.Is(err, ErrUnread) {
		c.Unread++
		return nil
	}
	if err != nil {
		return err
	}
	var object struct {
		APIVersion, Kind string
		Metadata         struct {
			Name, Namespace, UID string
			Labels               map[string]string
		}
	}
	if err := json.Unmarshal(text, &object); err != nil {
		return fmt.Errorf("its value is not an object: %w", err)
	}
	metadata := &object.Metadata
	switch {
	case object.APIVersion == "" || object.Kind == "":
		return errors.New("its value has no kind")
	case l.ReplacedBy == 0:
		c.Stored[Stored{resource, object.APIVersion, object.Kind}]++
	}
	switch {
	case metadata.UID == "" && metadata.Name == "": // an allocation, which has a name only in its key
		return nil
	case metadata.Name != l.Name || metadata.Namespace != l.Namespace || metadata.UID != l.UID:
		return fmt.Errorf("its value is that of %s/%s with uid %s, not %s", metadata.Namespace, metadata.Name, metadata.UID, l.UID)
	case l.Labels != sqlstore.Withheld && !maps.Equal(sqlstore.DecodeSet(l.Labels), metadata.Labels):
		return fmt.Errorf("its labels are stored as %s", l.Labels)
	}
	return nil
}

// Name returns the object of a row as resource.group namespace/name.
func Name(l *dialect.LogRow) string {
	resource := history.Resource{Group: l.Group, Name: l.Resource}.String()
	if l.Namespace != "" {
		return resource + " " + l.Namespace + "/" + l.Name
	}
	return resource + " " + l.Name
}
