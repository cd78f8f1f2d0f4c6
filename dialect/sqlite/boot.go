package sqlite

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/sqube/sqube/dialect"
)

// A machine that is restored from a snapshot of its disk lacks what was committed since, and clients have seen those revisions.
// It boots, as after a power failure, which can't be told apart. So after each boot the counter jumps ahead once, by more than
// can have been committed since its last commit. Clients that know a revision in between get 410 and list again; all others
// continue.

// bootID names the boot of this machine, "" if that is unknown (proc_sys_kernel(5)).
var bootID = func() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // other systems have none
	return strings.TrimSpace(string(id))
}

// noteBoot makes the counter jump if it was last raised in another boot, and reads which revisions were skipped.
func (e *Engine) noteBoot(ctx context.Context) error {
	if id := bootID(); id != "" {
		jumped, err := e.jump(ctx, id)
		if lacksSpace(err) && e.reserve.release() == nil {
			jumped, err = e.jump(ctx, id)
		}
		if err != nil {
			return err
		}
		if jumped {
			slog.Info("the machine was restarted, perhaps from a snapshot that lacks the last writes: resourceVersions jump ahead")
		}
	}
	err := e.skipHeld(ctx)
	if lacksSpace(err) && e.reserve.release() == nil {
		err = e.skipHeld(ctx)
	}
	if err != nil {
		return err
	}
	err = e.writer.QueryRowContext(ctx, "SELECT skipped_after, skipped_until FROM counter").Scan(&e.skipped.After, &e.skipped.Until)
	return failure("open", err)
}

// jump records the boot, and makes the counter jump if another one was recorded. Only one range is kept: revisions before an
// earlier one's end count as compacted.
func (e *Engine) jump(ctx context.Context, boot string) (jumped bool, err error) {
	ahead := fmt.Sprintf("revision + %d + max(0, (?2 - written_at) / 1000) * %d", dialect.RevisionJump, dialect.RevisionJumpPerSecond)
	result, err := e.writer.ExecContext(ctx, fmt.Sprintf(`UPDATE counter SET compacted = max(compacted, skipped_until), %[2]s,
skipped_after = revision, skipped_until = %[1]s, revision = %[1]s, boot = ?1
WHERE boot NOT IN ('', ?1, ?1 || '`+holds+`') AND EXISTS (SELECT 1 FROM log)`, ahead, dialect.Jumped("max(compacted, skipped_until)")), boot, time.Now().UnixMilli())
	if err != nil {
		return false, err
	}
	if n, err := result.RowsAffected(); err != nil {
		return true, err
	} else if n > 0 {
		return true, e.recordSkipped(ctx)
	}
	_, err = e.writer.ExecContext(ctx, "UPDATE counter SET boot = ?1 WHERE boot NOT IN (?1, ?1 || ?2)", boot, holds)
	return false, err
}

// holds is at the end of the recorded boot while a process holds rows; see dialect.MaxHeld. An older sqube takes it for another boot.
const holds = " holds"

// MayHold implements dialect.Engine.
func (e *Engine) MayHold(ctx context.Context) (bool, error) {
	_, err := e.writer.ExecContext(ctx, "UPDATE counter SET boot = boot || ?", holds)
	return err == nil, failure("open", err)
}

// skipHeld skips the revisions that the process before may have issued without a commit, if it was killed.
func (e *Engine) skipHeld(ctx context.Context) error {
	var boot string
	if err := e.writer.QueryRowContext(ctx, "SELECT boot FROM counter").Scan(&boot); err != nil {
		return err
	}
	if boot, e.held = strings.CutSuffix(boot, holds); !e.held {
		return nil
	}
	skip := 0
	if e.crashed {
		skip = dialect.MaxHeld + 1
	}
	const compacted = "CASE WHEN ?2 = 0 OR revision = skipped_until THEN compacted ELSE max(compacted, skipped_until) END"
	_, err := e.writer.ExecContext(ctx, `UPDATE counter SET boot = ?1, compacted = `+compacted+`, `+dialect.Jumped(compacted)+`,
skipped_after = CASE WHEN ?2 = 0 OR revision = skipped_until THEN skipped_after ELSE revision END,
skipped_until = CASE WHEN ?2 = 0 THEN skipped_until ELSE revision + ?2 END,
revision = revision + ?2`, boot, skip)
	if err == nil && skip > 0 {
		err = e.recordSkipped(ctx)
	}
	return err
}

// recordSkipped records in history the revisions that were skipped last: the counter has only one range of them.
func (e *Engine) recordSkipped(ctx context.Context) error {
	_, err := e.writer.ExecContext(ctx, dialect.RecordLost("skipped_after + 1", "skipped_until", "written_at", "x''")+" FROM counter WHERE true ON CONFLICT DO NOTHING")
	return err
}

// Held implements dialect.Engine.
func (e *Engine) Held() bool { return e.held }

// Skipped implements dialect.Engine.
func (e *Engine) Skipped() dialect.Skipped { return e.skipped }

// UnsafeSettings implements dialect.Engine.
func (e *Engine) UnsafeSettings(context.Context) ([]string, error) { return nil, nil }
