package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/sqube/sqube/dialect"
)

// cluster is what an Engine on the log of a cluster has besides.
//
// One server at a time owns it, and so is the only one that writes: the engine neither listens nor polls. Who owns the log is in the column
// database of its counter, behind the OIDs: the epoch, which each new owner raises. A commit takes the counter's lock and compares, so one of
// a former owner fails and changes nothing, however late it comes. What else changes the log compares too.
type cluster struct {
	host  *Host
	id    string
	fence string // the value of that column while the log is ours
}

// ensureOwned fails with a division by zero unless the counter has the fence that is its parameter. It must see what was committed before
// the locks of its transaction were taken, so it is a statement of its own after them.
const ensureOwned = "SELECT 1 / count(*) FROM counter WHERE database = $1"

// owned returns the condition that the counter has the fence, as a continuation of another condition. The fence is one of the arguments, since
// a connection remembers what it knows of a statement by its text.
func (c *cluster) owned(arguments []any) (condition string, all []any) {
	if c == nil {
		return "", arguments
	}
	return fmt.Sprintf(" AND database = $%d", len(arguments)+1), append(arguments, c.fence)
}

// isTaken reports whether a statement failed because another server owns the log, or because the database has failed over: what this
// server has in memory may then not be in the log.
func (c *cluster) isTaken(err error) bool {
	return c != nil && codeOf(err) == "22012"
}

// taken gives the cluster up, and returns the error for its writer.
func (c *cluster) taken(op string) error {
	c.host.lose(c.id, c.fence)
	return &dialect.Error{Op: op, Engine: "postgres", Err: fmt.Errorf("%w (cluster database %s): the write had no effect, and can be sent again", dialect.ErrTaken, c.id)}
}

// close leaves the cluster to others. The connections are the host's.
func (c *cluster) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
	defer cancel()
	return c.host.release(ctx, c.id, c.fence)
}

// errPooled is returned for what needs a session of its own that names the schema once, which no pooler gives.
var errPooled = errors.New("a pooler is in front of the server")

// wholeSession waits for the one session that clusters may open beside the pools, or returns false if wait is not set and another has it.
func (c *cluster) wholeSession(ctx context.Context, wait bool) (end func(), mine bool, err error) {
	if c == nil {
		return func() {}, true, nil
	}
	end = func() { <-c.host.session }
	select {
	case c.host.session <- struct{}{}:
		return end, true, nil
	default:
	}
	if !wait {
		return nil, false, nil
	}
	select {
	case c.host.session <- struct{}{}:
		return end, true, nil
	case <-ctx.Done():
		return nil, false, ctx.Err()
	}
}

// local is a statement that names the schema for the rest of a transaction, "" for a log that the session finds by itself.
func (c *cluster) local() string {
	if c == nil {
		return ""
	}
	return "; SET LOCAL search_path = " + schemaOf(c.id)
}

// size is the statement that measures the database, or the schema of a cluster.
func (e *Engine) size() string {
	if e.cluster == nil {
		return "SELECT pg_database_size(current_database())"
	}
	return bytesOf("'" + schemaOf(e.cluster.id) + "'")
}

// bytesOf returns the statement that measures the schema that an expression names.
func bytesOf(schema string) string {
	return "SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class WHERE relkind = 'r' AND relnamespace = to_regnamespace(" + schema + ")"
}
