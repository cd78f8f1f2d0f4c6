package sqlite

import (
	"context"
	"database/sql"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/sqube/sqube/dialect"
)

// A machine that is restored from a snapshot of its disk lacks what was committed since, and clients have seen those revisions.
// It boots, as after a power failure, which can't be told apart. So after each boot the counter jumps ahead once, by more than
// can have been committed since its last commit. It does the same if the files look like an older state; see mark. After a crash, the
// log goes on beyond the mark: whether the last commits are in the write-ahead log is not known. Clients that know a revision in between
// get 410 and list again; all others continue.

// bootID names the boot of this machine, "" if that is unknown (proc_sys_kernel(5)).
var bootID = func() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // other systems have none
	return strings.TrimSpace(string(id))
}

// noteStart makes the counter jump if commits may be missing, and reads which revisions were skipped. Then it writes the mark.
func (e *Engine) noteStart(ctx context.Context) error {
	say, err := e.resume(ctx)
	if lacksSpace(err) && e.reserve.releaseAll() == nil {
		var again func()
		if again, err = e.resume(ctx); again != nil { // the first time may have come as far as the jump
			say = again
		}
	}
	if err == nil && say != nil {
		say()
	}
	return err
}

// resume returns nil, or what says why the counter has jumped.
func (e *Engine) resume(ctx context.Context) (say func(), err error) {
	l, err := e.findEnd(ctx)
	if err == nil {
		err = dialect.CheckRevision(l.Revision)
	}
	if err != nil {
		return nil, err
	}
	boot, next, now := bootID(), l.Revision, time.Now()
	switch why := l.lost(e.path); {
	case why != "":
		say = func() { warnLost(why) }
	case boot != "" && l.boot != "" && boot != l.boot && l.used:
		say = func() {
			slog.Info("the machine was restarted, perhaps from a snapshot that lacks the last writes: resourceVersions jump ahead")
		}
	case l.mark == nil && e.held && e.crashed:
		next += dialect.MaxHeld + 1
	}
	if say != nil {
		next, l.WrittenAt = l.Beyond(now), max(l.WrittenAt, now.UnixMilli()) // the time until now is not to be counted again
	}
	if l.mark != nil && l.mark.Most > l.Revision { // or the same, if the database was closed
		next = max(next, l.mark.Most+1)
	}
	if err := dialect.CheckRevision(next); err != nil {
		return nil, err
	}
	if err := e.skip(ctx, next, l.WrittenAt, boot); err != nil {
		return nil, failure("open", err)
	}
	return say, e.startMark(&l, next)
}

// findEnd reads how the log ends.
func (e *Engine) findEnd(ctx context.Context) (l end, err error) {
	l.closed, l.copied = !e.crashed, e.foreign
	err = e.writer.QueryRowContext(ctx, "SELECT revision, written_at, boot, EXISTS (SELECT 1 FROM log) FROM counter").Scan(&l.Revision, &l.WrittenAt, &l.boot, &l.used)
	if err != nil {
		return l, failure("open", err)
	}
	var held bool
	l.boot, held = strings.CutSuffix(l.boot, holds)
	e.held = e.held || held
	if e.noSync {
		l.copied = false
		return l, nil
	}
	if l.mark, err = readMark(e.path); l.mark != nil {
		l.ownMark = l.mark.isOwn(e.path)
	}
	return l, err
}

// skip makes the counter jump to a revision, unless it is there, and records the boot. writtenAt is the time of the jump. History records
// what was skipped; the counter does so only for an older sqube.
func (e *Engine) skip(ctx context.Context, next, writtenAt int64, boot string) error {
	return e.transact(ctx, "open", func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE counter SET revision = ?1, skipped_until = ?1, written_at = ?2,
skipped_after = CASE WHEN revision = skipped_until THEN skipped_after ELSE revision END WHERE revision < ?1`, next, writtenAt)
		if err == nil { // two jumps in a row are one
			_, err = tx.ExecContext(ctx, dialect.RecordLost("skipped_after + 1", "skipped_until", "written_at", "x''")+
				" FROM counter WHERE skipped_until > skipped_after AND skipped_until > compacted ON CONFLICT (first_id) DO UPDATE SET until = excluded.until WHERE until < excluded.until")
		}
		if err == nil {
			_, err = tx.ExecContext(ctx, "UPDATE counter SET boot = ?1 WHERE boot <> ?1", boot)
		}
		if err != nil {
			return err
		}
		rows, err := tx.QueryContext(ctx, "SELECT first_id - 1, until FROM past WHERE "+dialect.Lost+" AND until > (SELECT compacted FROM counter) ORDER BY first_id")
		if err != nil {
			return err
		}
		defer rows.Close()
		e.skipped = nil
		for rows.Next() {
			var s dialect.Skipped
			if err := rows.Scan(&s.After, &s.Until); err != nil {
				return err
			}
			e.skipped = append(e.skipped, s)
		}
		return rows.Err()
	})
}

// holds is at the end of the recorded boot while a process holds rows; see dialect.MaxHeld. An older sqube takes it for another boot.
const holds = " holds"

// MayHold implements dialect.Engine.
func (e *Engine) MayHold(ctx context.Context) (bool, error) {
	err := e.reach(e.mark.last.Load())
	if err == nil {
		_, err = e.writer.ExecContext(ctx, "UPDATE counter SET boot = boot || ?1 WHERE boot NOT LIKE '%' || ?1", holds)
	}
	return err == nil, failure("open", err)
}

// Held implements dialect.Engine.
func (e *Engine) Held() bool { return e.held }

// Skipped implements dialect.Engine.
func (e *Engine) Skipped() dialect.Skips { return e.skipped }

// UnsafeSettings implements dialect.Engine.
func (e *Engine) UnsafeSettings(context.Context) ([]string, error) { return nil, nil }
