package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqube/sqube/dialect"
)

// A promoted standby may lack the last commits of the former primary, unless replication was synchronous, and so may a server
// restored from a base backup. If the counter was at 1005 there and is at 1000 here, revisions 1001 to 1005 must not be reused:
// clients may have seen them with other contents.
//
// So the counter's row records the incarnation in which it was last raised. In another incarnation, nothing is committed, nor
// read over a direct connection, until the counter has jumped far ahead and all earlier revisions are declared compacted. Clients
// that watch or list in pages then get 410 and start over. If the server has no incarnation, the counter jumps when it is behind
// what this process has seen.
//
// On the same server, a copy of the database, such as from pg_dump, may lack the last commits too. So the row also records the OIDs of the
// database and of its own table.

// recordIncarnation records the server's incarnation and the database in the counter's row, if none are recorded yet.
func recordIncarnation(ctx context.Context, config *pgxpool.Config, c capabilities) error {
	conn, err := dial(ctx, config)
	if err != nil {
		return err
	}
	var revision int64
	_, err = conn.Exec(ctx, "UPDATE counter SET incarnation = "+c.incarnation+" WHERE incarnation = ''")
	if err == nil {
		_, err = conn.Exec(ctx, "UPDATE counter SET database = "+c.database+" WHERE database = ''")
	}
	if err == nil {
		err = conn.QueryRow(ctx, "SELECT revision FROM counter", pgx.QueryExecModeExec).Scan(&revision)
	}
	if err == nil {
		err = dialect.CheckRevision(revision)
	}
	return errors.Join(err, conn.Close(ctx))
}

// jumpRevision makes the counter jump if necessary.
func (e *Engine) jumpRevision(ctx context.Context, conn *pgconn.PgConn) error {
	seen, c := e.seen.Load(), e.capabilities
	to := fmt.Sprintf("greatest(%s, %d)", beyond("revision", "written_at"), seen+dialect.RevisionJump)
	condition := fmt.Sprintf("WHERE revision < %d OR incarnation <> %s OR database <> %s", seen, c.incarnation, c.database)
	statement := jump(to, "incarnation = "+c.incarnation+", database = "+c.database, condition)
	results, err := conn.Exec(ctx, statement+" RETURNING (SELECT database <> "+c.database+" AND incarnation = "+c.incarnation+" FROM before)").ReadAll()
	if err != nil || len(results[0].Rows) == 0 {
		return err
	}
	why := "Postgres failed over or was restored"
	if string(results[0].Rows[0][0]) == "t" {
		why = "the database is a copy of another, such as from pg_dump"
	}
	slog.Warn(why+", and may lack the last writes: resourceVersions jump ahead, and all watches start over", "seen", seen)
	return nil
}

// beyond is the expression for dialect.End.Beyond.
func beyond(revision, writtenAt string) string {
	return fmt.Sprintf(`%s + %d + CASE WHEN coalesce(%[3]s, 0) = 0 THEN 0
ELSE greatest(0, floor(extract(epoch FROM now()) - greatest(%[3]s, %d) / 1000))::bigint * %d END`,
		revision, dialect.RevisionJump, writtenAt, dialect.FirstTime.UnixMilli(), dialect.RevisionJumpPerSecond)
}

// sqlNow is the server's time in Unix milliseconds.
const sqlNow = `floor(extract(epoch FROM now()) * 1000)::bigint`

// jump returns the statement that sets the counter to a revision, an expression of its columns, if it meets a condition. What is beyond
// all that may have been written until now is not to be counted again.
func jump(revision, also, condition string) string {
	return fmt.Sprintf(`WITH before AS (SELECT * FROM counter),
jumped AS (UPDATE counter SET revision = %[1]s, compacted = %[1]s, written_at = greatest(written_at, `+sqlNow+`), %s, %s %s RETURNING revision, written_at)
%s FROM before, jumped`, revision, dialect.Jumped(revision), also, condition,
		dialect.RecordLost("before.revision + 1", "jumped.revision", "jumped.written_at", "''::bytea"))
}

// bump returns the statement that raises the counter by n, unless it is behind what this process has seen. It fails with a division by zero if
// the counter must jump first, or if the log is a cluster's that another server owns. About at and ahead, see dialect.CommitTime.
func (e *Engine) bump(n, at, ahead int64) (statement string, arguments []any) {
	owned, arguments := e.cluster.owned([]any{n, e.seen.Load(), at, ahead})
	return fmt.Sprintf(`UPDATE counter SET revision = revision + $1::bigint / CASE WHEN revision >= $2::bigint AND incarnation = %s%s THEN 1 ELSE 0 END,
  written_at = CASE WHEN written_at > $4::bigint THEN $3::bigint ELSE greatest(written_at, $3) END
RETURNING revision, written_at, %s, %s`, e.capabilities.incarnation, owned, e.capabilities.replan, e.capabilities.flush), arguments
}

// MayHold implements dialect.Engine: other servers may write to the database.
func (e *Engine) MayHold(context.Context) (bool, error) { return false, nil }

// Held implements dialect.Engine.
func (e *Engine) Held() bool { return false }
