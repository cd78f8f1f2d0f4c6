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

// A standby that is promoted may lack the last commits of the primary before
// it, unless replication was synchronous; so does a server that was restored
// from a base backup. Had the counter been at 1005 there, and is at 1000 here,
// it must not hand out 1001 to 1005 again: clients have seen those with other
// contents. Which of them were seen nobody can tell any more.
//
// So the counter's row tells in which incarnation of the server it was last
// raised, and nothing is committed, and over a direct connection nothing read,
// in another one before the counter has leapt: far ahead, with all before it
// forgotten. Whoever watches, or lists page by page, is then answered with 410
// and begins anew. A counter behind what this process saw leaps as well, where
// the server has no incarnation to tell.

// recordIncarnation notes which incarnation of the server has the log, where that is not
// known yet.
func recordIncarnation(ctx context.Context, config *pgx.ConnConfig, n capabilities) error {
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "UPDATE counter SET incarnation = "+n.incarnation+" WHERE incarnation = ''")
	return errors.Join(err, conn.Close(ctx))
}

// jumpRevision has the counter leap where it has to.
func (e *Engine) jumpRevision(ctx context.Context, conn *pgconn.PgConn) error {
	seen, incarnation := e.seen.Load(), e.capabilities.incarnation
	ahead := fmt.Sprintf(`greatest(revision, %d) + %d
+ greatest(0, coalesce(floor(extract(epoch FROM now()) - (SELECT written_at FROM log ORDER BY id DESC LIMIT 1) / 1000), 0))::bigint * %d`,
		seen, dialect.RevisionJump, dialect.RevisionJumpPerSecond)
	results, err := conn.Exec(ctx, fmt.Sprintf(`UPDATE counter SET revision = %[1]s, compacted = %[1]s, incarnation = %[2]s
WHERE revision < %[3]d OR incarnation <> %[2]s`, ahead, incarnation, seen)).ReadAll()
	if err == nil && results[0].CommandTag.RowsAffected() > 0 {
		slog.Warn("Postgres failed over, or was restored, and may lack the last writes: resourceVersions leap ahead, and all watches begin anew", "seen", seen)
	}
	return err
}

// bump returns the statement that raises the counter by its first parameter.
// It fails with a division by zero where the counter has to leap first.
func (e *Engine) bump() string {
	return fmt.Sprintf(`UPDATE counter SET revision = revision + $1::bigint / CASE WHEN revision >= $2::bigint AND incarnation = %s THEN 1 ELSE 0 END
RETURNING revision, %s`, e.capabilities.incarnation, e.capabilities.replan)
}

// counterBehind says whether err is that of bump.
func counterBehind(err error) bool {
	var answer *pgconn.PgError
	return errors.As(err, &answer) && answer.Code == "22012"
}

// noteRevision remembers a revision.
func (e *Engine) noteRevision(revision int64) {
	for {
		seen := e.seen.Load()
		if revision <= seen || e.seen.CompareAndSwap(seen, revision) {
			return
		}
	}
}

// jumpNow is leap on any connection.
func (e *Engine) jumpNow(ctx context.Context) error {
	return e.writer.AcquireFunc(ctx, func(conn *pgxpool.Conn) error { return e.jumpRevision(ctx, conn.Conn().PgConn()) })
}
