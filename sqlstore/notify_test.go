package sqlstore_test

import (
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqube/sqube/dialect/postgres"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/storetest"
	"github.com/sqube/sqube/test/harness"
)

// replica opens the log on a Postgres database, like a server.
func replica(t *testing.T, dsn string, opts sqlstore.Options) *sqlstore.Store {
	t.Helper()
	engine, err := postgres.Open(t.Context(), dsn)
	harness.Must(t, err)
	return storetest.Start(t, engine, opts)
}

// admin executes statements, each in one session, on the database at dsn.
func admin(t *testing.T, dsn string) (execute func(statements ...string)) {
	t.Helper()
	conn := harness.Connect(t, dsn)
	return func(statements ...string) {
		t.Helper()
		for _, statement := range statements {
			if _, err := conn.Exec(t.Context(), statement); err != nil {
				t.Fatalf("%s: %v", statement, err)
			}
		}
	}
}

// fullQueue returns a database, and functions that fill the server's queue of notifications and empty it. Since version 17 it can be
// made small. On older ones, where it holds 8 GB, a function fails a commit in the same way.
func fullQueue(t *testing.T, server *harness.PostgresServer) (dsn string, fill, empty func()) {
	dsn = server.Database(t)
	if major(t, dsn) >= 17 {
		admin(t, dsn)("ALTER SYSTEM SET max_notify_queue_pages = 64")
		harness.Must(t, server.Stop())
		harness.Must(t, server.Start())
		listener := admin(t, server.DSN())
		listener("LISTEN other", "BEGIN", "SELECT 1")
		sender := harness.Connect(t, dsn)
		fill = func() {
			var err error
			for err == nil {
				_, err = sender.Exec(t.Context(), "SELECT pg_notify('others', n || repeat('-', 7000)) FROM generate_series(1, 10) n")
			}
			if !strings.Contains(err.Error(), "too many notifications in the NOTIFY queue") {
				t.Fatal(err)
			}
		}
		return dsn, fill, func() { listener("COMMIT") }
	}
	execute := admin(t, dsn)
	execute("CREATE TABLE full_queue ()", "CREATE TABLE notifications ()",
		`CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
RAISE EXCEPTION 'too many notifications in the NOTIFY queue' USING ERRCODE = 'program_limit_exceeded'; END$$`,
		"CREATE CONSTRAINT TRIGGER full_queue AFTER INSERT ON notifications DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION fail()",
		`CREATE FUNCTION public.pg_notify(channel text, payload text) RETURNS void LANGUAGE plpgsql AS $$BEGIN
IF EXISTS (SELECT FROM full_queue) THEN INSERT INTO notifications DEFAULT VALUES; ELSE PERFORM pg_catalog.pg_notify(channel, payload); END IF; END$$`,
		`CREATE FUNCTION public.pg_notification_queue_usage() RETURNS float8 LANGUAGE sql AS 'SELECT count(*)::float8 FROM full_queue'`)
	u := harness.ParseDSN(t, dsn)
	q := u.Query()
	q.Set("search_path", "public,pg_catalog")
	u.RawQuery = q.Encode()
	return u.String(), func() { execute("INSERT INTO full_queue DEFAULT VALUES") }, func() { execute("DELETE FROM full_queue") }
}

// revokedNotify returns a database of a user who loses the right to notify, and gets it back.
func revokedNotify(t *testing.T, server *harness.PostgresServer) (dsn string, revoke, grant func()) {
	dsn = server.Database(t)
	u := harness.ParseDSN(t, dsn)
	execute := admin(t, dsn)
	execute("CREATE ROLE ordinary LOGIN PASSWORD 'ordinary'", "ALTER DATABASE "+strings.TrimPrefix(u.Path, "/")+" OWNER TO ordinary")
	u.User = url.UserPassword("ordinary", "ordinary")
	return u.String(), func() { execute("REVOKE EXECUTE ON FUNCTION pg_notify FROM PUBLIC") },
		func() { execute("GRANT EXECUTE ON FUNCTION pg_notify TO PUBLIC") }
}

func major(t *testing.T, dsn string) (version int) {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), dsn)
	harness.Must(t, err)
	defer pool.Close()
	harness.Must(t, pool.QueryRow(t.Context(), "SELECT current_setting('server_version_num')::int / 10000").Scan(&version))
	return version
}

// TestWithoutNotifications makes commits fail because of NOTIFY. They succeed without it, polls find them, and NOTIFY comes back.
func TestWithoutNotifications(t *testing.T) {
	for _, test := range []struct {
		name, reason string
		prepare      func(*testing.T, *harness.PostgresServer) (dsn string, block, unblock func())
	}{
		{"full queue", "end it (SELECT pg_terminate_backend(pid))", fullQueue},
		{"no right", "permission denied for function pg_notify", revokedNotify},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dsn, block, unblock := test.prepare(t, harness.NewPostgresServer(t))
			var log storetest.Lines
			writer := replica(t, dsn, sqlstore.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
			polling := replica(t, dsn, sqlstore.Options{PollInterval: 50 * time.Millisecond})
			notified := replica(t, dsn, sqlstore.Options{PollInterval: time.Hour})
			at, err := writer.Position(t.Context())
			harness.Must(t, err)
			h := &storetest.History{}
			load := storetest.Load{Writers: 4, Writes: 20, Keys: 10}
			load.Run(t, writer, h)
			if writer.Stats().Unnotified != 0 {
				t.Fatalf("the log has\n%s", &log)
			}

			block()
			load.Run(t, writer, h)
			if first := writer.Stats().Unnotified; first <= 0 || writer.Stats().Unnotified <= first {
				t.Errorf("others have not been notified for %s", first)
			}
			follower := storetest.StartFollow(t, polling, at.Revision)
			storetest.Eventually(t, "the other store has polled", func() bool { return polling.Stats().Revision >= writer.Stats().Revision })

			unblock()
			listening := storetest.StartFollow(t, notified, at.Revision)
			storetest.Eventually(t, "it notifies again", func() bool {
				storetest.Load{Writers: 1, Writes: 1, Keys: 1}.Run(t, writer, h)
				return writer.Stats().Unnotified == 0
			})
			storetest.Finish(t, writer, h)
			for _, f := range []*storetest.Followed{follower, listening} {
				storetest.Equal(t, "what another store received", storetest.ShowChanges(f.Changes()), h.Changes(at.Revision, 1<<62))
			}
			for _, message := range []string{"other servers can't be notified of writes", test.reason, "are notified of writes again"} {
				if n := strings.Count(log.String(), message); n != 1 {
					t.Errorf("%q was logged %d times:\n%s", message, n, &log)
				}
			}
		})
	}
}
