package postgres_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/sqube/sqube/test/harness"
)

// standby creates a replication slot and sends feedback as a standby whose reads need the rows changed by transactions from xmin
// on. Then it disconnects.
func standby(t *testing.T, dsn, slot string, xmin uint32) {
	t.Helper()
	config, err := pgconn.ParseConfig(dsn)
	harness.Must(t, err)
	config.RuntimeParams["replication"] = "true"
	conn, err := pgconn.ConnectConfig(t.Context(), config)
	harness.Must(t, err)
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), "CREATE_REPLICATION_SLOT "+slot+" PHYSICAL RESERVE_WAL").ReadAll(); err != nil {
		t.Fatal(err)
	}
	system, err := conn.Exec(t.Context(), "IDENTIFY_SYSTEM").ReadAll()
	harness.Must(t, err)
	position := system[0].Rows[0][2]
	feedback := make([]byte, 1+8, 1+8+4*4) // its type and a time; then xmin and its epoch, and the same for the catalogs
	feedback[0] = 'h'
	for _, n := range []uint32{xmin, 0, 0, 0} {
		feedback = binary.BigEndian.AppendUint32(feedback, n)
	}
	frontend := conn.Frontend()
	frontend.Send(&pgproto3.Query{String: fmt.Sprintf("START_REPLICATION SLOT %s PHYSICAL %s", slot, position)})
	frontend.Send(&pgproto3.CopyData{Data: feedback})
	frontend.Send(&pgproto3.CopyDone{})
	harness.Must(t, frontend.Flush())
	for {
		switch message, err := frontend.Receive(); message := message.(type) {
		case *pgproto3.ReadyForQuery:
			return
		case *pgproto3.ErrorResponse:
			t.Fatal(message.Message)
		default:
			harness.Must(t, err)
		}
	}
}

// TestWhatHoldsVacuumBack leaves transactions open while many later ones run.
func TestWhatHoldsVacuumBack(t *testing.T) {
	server := harness.NewPostgresServer(t)
	dsn := server.Database(t)
	e := open(t, dsn)
	held := func() string {
		t.Helper()
		space, err := e.Space(t.Context())
		harness.Must(t, err)
		if space.Database < 1<<20 {
			t.Errorf("the database has %d bytes", space.Database)
		}
		return strings.Join(space.HeldBack, "\n")
	}
	session := func() (execute func(string, ...any), pid uint32) {
		t.Helper()
		conn := harness.Connect(t, dsn)
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

	standby(t, dsn, "standby", uint32(number(t, e, "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint")))

	if report := held(); report != "" {
		t.Errorf("young transactions are reported:\n%s", report)
	}
	others, _ := session()
	others("CREATE TABLE unrelated (n int)")
	others(`DO $$ BEGIN FOR i IN 1..50100 LOOP BEGIN INSERT INTO unrelated VALUES (i); EXCEPTION WHEN division_by_zero THEN NULL; END; END LOOP; END $$`)

	report := ""
	for wanted := fmt.Sprintf("the transaction of process %d (user ", pid); !strings.Contains(report, wanted); report = held() {
		select {
		case <-time.After(100 * time.Millisecond):
		case <-t.Context().Done():
			t.Fatalf("no %q in the report:\n%s", wanted, report)
		}
	}
	for _, want := range []string{
		fmt.Sprintf("SELECT pg_terminate_backend(%d)", pid),
		"the prepared transaction forgotten (user ", "ROLLBACK PREPARED 'forgotten'",
		"the replication slot standby (not in use) ", "pg_drop_replication_slot('standby')",
	} {
		if !strings.Contains(report, want) {
			t.Errorf("no %q in the report:\n%s", want, report)
		}
	}
	if again := held(); again != report {
		t.Errorf("a second report differs:\n%s", again)
	}
	reader("ROLLBACK")
	preparer("ROLLBACK PREPARED 'forgotten'")
	others("SELECT pg_drop_replication_slot('standby')")
	if report := held(); report != "" {
		t.Errorf("after their end, the report is\n%s", report)
	}
}
