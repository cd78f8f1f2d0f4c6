package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/sqube/sqube/dialect"
)

// longAgo is how many transactions must have begun since an open one did before that is reported as holding vacuum back. Each of
// them left at least one dead row.
const longAgo = 50_000

// holders lists what holds vacuum back, oldest first: vacuum removes no row that one of them may still see. Meanwhile short
// transactions look just as old, since they see what the oldest sees. Other users' transactions are visible only to a superuser
// or a member of pg_read_all_stats.
const holders = `
SELECT kind, name, about FROM (
  SELECT 'transaction', pid::text, concat_ws(', ', 'user ' || usename, nullif(application_name, ''), 'begun ' || to_char(xact_start, 'YYYY-MM-DD HH24:MI:SS TZ')),
         greatest(age(backend_xmin), age(backend_xid))
  FROM pg_stat_activity
  WHERE coalesce(datname, current_database()) = current_database() AND backend_type <> 'autovacuum worker'
    AND coalesce(xact_start < now() - interval '5 seconds', true)
  UNION ALL
  SELECT 'slot', slot_name::text, CASE WHEN active THEN 'in use' ELSE 'not in use' END, age(xmin) FROM pg_replication_slots
  UNION ALL
  SELECT 'prepared', gid, 'user ' || owner || ', prepared ' || to_char(prepared, 'YYYY-MM-DD HH24:MI:SS TZ'), age(transaction)
  FROM pg_prepared_xacts WHERE database = current_database()
) AS holder(kind, name, about, age) WHERE age > $1 ORDER BY age DESC LIMIT 5`

// remedies are sentences about holders, with placeholders for their name and description.
var remedies = map[string]string{
	"transaction": "the transaction of process %[1]s (%[2]s) holds vacuum back: end it there, or with SELECT pg_terminate_backend(%[1]s)",
	"slot":        "the replication slot %[1]s (%[2]s) holds vacuum back: let its standby catch up, or SELECT pg_drop_replication_slot('%[1]s')",
	"prepared":    "the prepared transaction %[1]s (%[2]s) holds vacuum back: COMMIT PREPARED '%[1]s', or ROLLBACK PREPARED '%[1]s'",
}

// Space implements dialect.Engine. It leaves out what the server can't report.
func (e *Engine) Space(ctx context.Context) (space dialect.Space, err error) {
	err = e.pool.row(ctx, e.size(), nil, &space.Database)
	if err != nil && !unsupported(err) {
		return space, failure(ctx, "measure", err)
	}
	if e.cluster != nil { // the host reports what holds vacuum back, once for all
		return space, nil
	}
	err = e.pool.rows(ctx, func(rows pgx.Rows) (err error) {
		space.HeldBack, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
			var kind, name, about string
			err := row.Scan(&kind, &name, &about)
			return fmt.Sprintf(remedies[kind], name, about), err
		})
		return err
	}, holders, longAgo)
	if err != nil && !unsupported(err) {
		return space, failure(ctx, "measure", err)
	}
	return space, nil
}

// unsafe are sentences about settings with which a commit that was acknowledged can be lost, by the setting that is off.
var unsafe = map[string]string{
	"fsync":              "the setting fsync of Postgres is off: if its machine fails, acknowledged writes can be lost and the database destroyed; set fsync = on in postgresql.conf and reload it",
	"full_page_writes":   "the setting full_page_writes of Postgres is off: if its machine fails, the database can be destroyed, unless its file system writes whole pages, as ZFS does; set full_page_writes = on in postgresql.conf and reload it",
	"synchronous_commit": "--datastore sets synchronous_commit=off: if Postgres' machine fails, the last acknowledged writes are lost; remove that from the DSN",
}

// UnsafeSettings implements dialect.Engine. It leaves out what the server does not have. A session that commits sets synchronous_commit
// itself unless the DSN does.
func (e *Engine) UnsafeSettings(ctx context.Context) ([]string, error) {
	const off = "SELECT name FROM pg_settings WHERE setting = 'off' AND (name IN ('fsync', 'full_page_writes') OR name = '" + synchronous + "' AND $1) ORDER BY name"
	if e.cluster != nil { // the host's server is the cluster's
		return nil, nil
	}
	var sentences []string
	err := e.pool.rows(ctx, func(rows pgx.Rows) (err error) {
		sentences, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
			var name string
			err := row.Scan(&name)
			return unsafe[name], err
		})
		return err
	}, off, durabilityGiven(e.pool.Config().ConnConfig))
	if unsupported(err) {
		return nil, nil
	}
	return sentences, failure(ctx, "measure", err)
}
