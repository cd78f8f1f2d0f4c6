package postgres_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/dialect/postgres"
	"github.com/sqube/sqube/test/harness"
)

// witness records with which setting a transaction commits that adds rows to the log or to history.
const witness = `CREATE TABLE witness (setting text);
CREATE FUNCTION witness() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO witness SELECT current_setting('synchronous_commit'); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER witness AFTER INSERT ON log DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION witness();
CREATE CONSTRAINT TRIGGER witness AFTER INSERT ON past DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION witness()`

// TestCommitsAreOnDisk commits, restores and purges in databases with each value of synchronous_commit, directly and through a pooler. A commit is on disk
// unless the DSN says otherwise, and waits for the same standbys as other programs' commits.
func TestCommitsAreOnDisk(t *testing.T) {
	for _, c := range []struct {
		name, setting, parameter, want string
		pooled                         bool
	}{
		{name: "off", setting: "off", want: "on"},
		{name: "local", setting: "local", want: "local"},
		{name: "remote_write", setting: "remote_write", want: "remote_write"},
		{name: "remote_apply", setting: "remote_apply", want: "remote_apply"},
		{name: "off behind a pooler", setting: "off", want: "on", pooled: true},
		{name: "local behind a pooler", setting: "local", want: "local", pooled: true},
		{name: "off in the DSN", setting: "on", parameter: "off", want: "off"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dsn := harness.Postgres(t)
			admin := harness.Connect(t, dsn)
			execute := func(statement string) {
				t.Helper()
				if _, err := admin.Exec(t.Context(), statement, pgx.QueryExecModeSimpleProtocol); err != nil {
					t.Fatal(err)
				}
			}
			_, err := postgres.Migrate(t.Context(), postgres.Database{DSN: dsn})
			harness.Must(t, err)
			execute(witness + "; ALTER DATABASE " + strings.Trim(harness.ParseDSN(t, dsn).Path, "/") + " SET synchronous_commit = " + c.setting)
			switch {
			case c.pooled:
				dsn = harness.PgBouncer(t, dsn)
			case c.parameter != "":
				dsn = withParameter(t, dsn, "synchronous_commit", c.parameter)
			}
			e := open(t, dsn)
			create := func(key string) dialect.Write {
				return dialect.Write{Operation: dialect.Create, Resource: "things", Key: key, Name: key, Labels: "{}", Fields: "{}", Value: []byte("{}")}
			}
			harness.Must(t, e.Load(t.Context(), dialect.Position{Revision: 1}, func(add func(*dialect.LogRow) error) error {
				return add(&dialect.LogRow{ID: 1, Write: create("restored")})
			}, nil))
			for _, key := range []string{"a", "b"} {
				_, err := e.Commit(t.Context(), []dialect.Write{create(key)})
				harness.Must(t, err)
			}
			harness.Must(t, e.Purge(t.Context(), &dialect.Block{First: 1, Until: 1, Resource: "things", Key: "none", Name: "none", Writers: `[["purge","","",""]]`, Versions: "[[0,0,0]]"}))
			rows, err := admin.Query(t.Context(), "SELECT setting FROM witness")
			harness.Must(t, err)
			got, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if want := slices.Repeat([]string{c.want}, 4); err != nil || !slices.Equal(got, want) {
				t.Errorf("a restore, two commits and a purge were made with %q, %v, want %q", got, err, want)
			}
			risks, err := e.UnsafeSettings(t.Context())
			if told := strings.Contains(strings.Join(risks, "\n"), "--datastore sets synchronous_commit=off"); err != nil || told != (c.want == "off") {
				t.Errorf("the unsafe settings are %q, %v", risks, err)
			}
		})
	}
}
