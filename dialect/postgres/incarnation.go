package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
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

// leapBy is how far the counter leaps: further than commits can have been
// lost, and seldom enough for the numbers to last. leapPerSecond is how much
// further for each second since the last write that is there, more than any
// cluster commits: a backup that is restored twice has the same counter twice,
// and clients have seen what was written in between.
const (
	leapBy        = 1_000_000_000
	leapPerSecond = 10_000
)

// adoptLog notes which incarnation of the server has the log, where that is not
// known yet.
func adoptLog(ctx context.Context, config *pgx.ConnConfig, n nature) error {
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "UPDATE counter SET incarnation = "+n.incarnation+" WHERE incarnation = ''")
	return errors.Join(err, conn.Close(ctx))
}

// leap has the counter leap where it has to.
func (e *Engine) leap(ctx context.Context, conn *pgconn.PgConn) error {
	seen, incarnation := e.seen.Load(), e.nature.incarnation
	ahead := fmt.Sprintf(`greatest(revision, %d) + %d
+ greatest(0, coalesce(floor(extract(epoch FROM now()) - (SELECT written_at FROM log ORDER BY id DESC LIMIT 1) / 1000), 0))::bigint * %d`,
		seen, leapBy, leapPerSecond)
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
RETURNING revision, %s`, e.nature.incarnation, e.nature.planAnew)
}

// behind says whether err is that of bump.
func behind(err error) bool {
	var answer *pgconn.PgError
	return errors.As(err, &answer) && answer.Code == "22012"
}

// saw remembers a revision.
func (e *Engine) saw(revision int64) {
	for {
		seen := e.seen.Load()
		if revision <= seen || e.seen.CompareAndSwap(seen, revision) {
			return
		}
	}
}

// leapNow is leap on any connection.
func (e *Engine) leapNow(ctx context.Context) error {
	return e.writer.AcquireFunc(ctx, func(conn *pgxpool.Conn) error { return e.leap(ctx, conn.Conn().PgConn()) })
}
