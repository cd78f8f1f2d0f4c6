package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sqube/sqube/test/harness"
)

// TestWhatHoldsVacuumBack leaves transactions open for a long time, as counted in those that come after.
func TestWhatHoldsVacuumBack(t *testing.T) {
	server := harness.NewPostgresServer(t)
	dsn := server.Database(t)
	e := open(t, dsn)
	held := func() string {
		t.Helper()
		space, err := e.Space(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if space.Database < 1<<20 {
			t.Errorf("the database has %d bytes", space.Database)
		}
		return strings.Join(space.HeldBack, "\n")
	}
	session := func() (execute func(string, ...any), pid uint32) {
		t.Helper()
		conn, err := pgx.Connect(t.Context(), dsn)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		return func(statement string, args ...any) {
			t.Helper()
			if _, err := conn.Exec(t.Context(), statement, args...); err != nil {
				t.Fatalf("%s: %v", statement, err)
			}
		}, conn.PgConn().PID()
	}
	reader, pid := session()
	reader("BEGIN ISOLATION LEVEL REPEATABLE READ")
	reader("SELECT count(*) FROM log")
	preparer, _ := session()
	preparer("BEGIN")
	preparer("UPDATE counter SET compacted = compacted WHERE false")
	preparer("SELECT pg_current_xact_id()")
	preparer("PREPARE TRANSACTION 'forgotten'")

	if said := held(); said != "" {
		t.Errorf("of young transactions it says\n%s", said)
	}
	others, _ := session()
	others("CREATE TABLE unrelated (n int)")
	others(`DO $$ BEGIN FOR i IN 1..50100 LOOP BEGIN INSERT INTO unrelated VALUES (i); EXCEPTION WHEN division_by_zero THEN NULL; END; END LOOP; END $$`)

	said := ""
	for wanted := fmt.Sprintf("the transaction of process %d (user ", pid); !strings.Contains(said, wanted); said = held() {
		select {
		case <-time.After(100 * time.Millisecond):
		case <-t.Context().Done():
			t.Fatalf("it does not say %q, but\n%s", wanted, said)
		}
	}
	for _, want := range []string{
		fmt.Sprintf("SELECT pg_terminate_backend(%d)", pid),
		"the prepared transaction forgotten (user ", "ROLLBACK PREPARED 'forgotten'",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("it does not say %q, but\n%s", want, said)
		}
	}
	if again := held(); again != said {
		t.Errorf("and then it says\n%s", again)
	}
	reader("ROLLBACK")
	preparer("ROLLBACK PREPARED 'forgotten'")
	if said := held(); said != "" {
		t.Errorf("after their end it says\n%s", said)
	}
}
