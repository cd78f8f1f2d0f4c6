package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/test/harness"
)

// conflicting has the first commits fail as they do on engines that isolate transactions without waiting. The sequence counts them,
// since no rollback resets it.
const conflicting = `
CREATE SEQUENCE conflicts;
CREATE FUNCTION conflict() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF nextval('conflicts') <= 5 OR NEW.key = 'never' THEN RAISE EXCEPTION 'restart transaction' USING ERRCODE = '40001'; END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER conflict BEFORE INSERT ON log FOR EACH ROW EXECUTE FUNCTION conflict();`

// TestConflictingCommits repeats a commit that conflicts with others, with pauses, and no longer than its time.
func TestConflictingCommits(t *testing.T) {
	t.Parallel()
	dsn := harness.Postgres(t)
	e := open(t, dsn)
	conn, err := pgx.Connect(t.Context(), dsn)
	harness.Must(t, err)
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), conflicting)
	harness.Must(t, err)
	create := func(ctx context.Context, key string) error {
		_, err := e.Commit(ctx, []dialect.Write{{Operation: dialect.Create, Resource: "pods", Key: key, Labels: "{}", Fields: "{}", Value: []byte(`{}`)}})
		return err
	}
	harness.Must(t, create(t.Context(), "soon"))
	before := number(t, e, "SELECT last_value FROM conflicts")
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := create(ctx, "never"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a commit that always conflicts: %v", err)
	}
	// Without pauses there are thousands.
	if tries := number(t, e, "SELECT last_value FROM conflicts") - before; tries < 2 || tries > 200 {
		t.Errorf("in a second, it was tried %d times", tries)
	}
}
