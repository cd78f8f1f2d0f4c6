package postgres

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sqube/sqube/dialect"
)

// Dump has pg_dump write the database that dsn names, as of one moment, to the file to, and pg_restore check it. Where
// these programs are not there the error says what to run elsewhere. Servers may go on meanwhile.
func Dump(ctx context.Context, dsn, to string) error {
	if err := run(ctx, dsn, "pg_dump", "--format=custom", "--no-owner", "--no-privileges", "--file="+to); err != nil {
		return err
	}
	return run(ctx, "", "pg_restore", "--list", to)
}

// Undump has pg_restore put what Dump wrote into the database that dsn names, which must hold none of it, in one
// transaction.
func Undump(ctx context.Context, dsn, from string) error {
	return run(ctx, dsn, "pg_restore", "--no-owner", "--no-privileges", "--single-transaction", "--exit-on-error", from)
}

// run runs one of Postgres' programs on a database, with its password in the environment, where other users of the
// machine can't see it.
func run(ctx context.Context, dsn, program string, args ...string) error {
	env := os.Environ()
	if dsn != "" {
		plain, password, err := libpq(dsn)
		if err != nil {
			return err
		}
		if password != "" {
			env = append(env, "PGPASSWORD="+password)
		}
		args = append(args, "--dbname="+plain)
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = env
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = nil, &said
	switch err := cmd.Run(); {
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("%s is not installed here (Debian: postgresql-client); where it is, run: %s %s", program, program, strings.Join(args, " "))
	case err != nil:
		return fmt.Errorf("%s: %w: %s", program, err, strings.TrimSpace(said.String()))
	}
	return nil
}

// libpq returns dsn without what only pgx knows, and without the password, which it returns beside it.
func libpq(dsn string) (plain, password string, err error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return "", "", errors.New("the DSN is not a URL")
	}
	if u.User != nil {
		password, _ = u.User.Password()
		u.User = url.User(u.User.Username())
	}
	query := u.Query()
	for name := range query {
		if strings.HasPrefix(name, "pool_") {
			query.Del(name)
		}
	}
	u.RawQuery = query.Encode()
	return u.String(), password, nil
}

// belongings are the tables and views of a log. Indexes go with their tables.
var belongings = []string{"VIEW objects", "VIEW history", "TABLE log", "TABLE counter", "TABLE schema_migrations"}

// PutAside moves the log in the database that dsn names to a schema of its own, whose name it returns, or "" where there
// is none. It returns dialect.ErrLocked when other sessions of sqube are connected.
func PutAside(ctx context.Context, dsn string, now time.Time) (aside string, err error) {
	config, err := parse(dsn)
	if err != nil {
		return "", err
	}
	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig)
	if err != nil {
		return "", withHint(err)
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	var there bool
	if err := conn.QueryRow(ctx, "SELECT to_regclass('log') IS NOT NULL").Scan(&there); err != nil || !there {
		return "", err
	}
	if err := unserved(ctx, conn); err != nil {
		return "", err
	}
	aside = "before_restore_" + strings.ReplaceAll(now.UTC().Format("20060102t150405.000z"), ".", "_")
	return aside, pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "CREATE SCHEMA "+aside); err != nil {
			return err
		}
		for _, name := range belongings {
			if _, err := tx.Exec(ctx, "ALTER "+name+" SET SCHEMA "+aside); err != nil {
				return err
			}
		}
		return nil
	})
}

// InSchema returns dsn for what PutAside moved to a schema.
func InSchema(dsn, schema string) string {
	separator := "?"
	if strings.Contains(dsn, "?") {
		separator = "&"
	}
	return dsn + separator + "search_path=" + schema
}

// Unserved returns dialect.ErrLocked when sessions of sqube are connected to the database that dsn names.
func Unserved(ctx context.Context, dsn string) error {
	config, err := parse(dsn)
	if err != nil {
		return err
	}
	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig)
	if err != nil {
		return withHint(err)
	}
	return errors.Join(unserved(ctx, conn), conn.Close(context.WithoutCancel(ctx)))
}

// unserved looks for sessions beside that of conn.
func unserved(ctx context.Context, conn *pgx.Conn) error {
	var others int
	const sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1 AND pid <> pg_backend_pid()"
	if err := conn.QueryRow(ctx, sessions, conn.Config().RuntimeParams["application_name"]).Scan(&others); err != nil {
		return err
	}
	if others > 0 {
		return fmt.Errorf("%w (%d connections): stop that one first", dialect.ErrLocked, others)
	}
	return nil
}

// Mend runs a statement that changes the log by hand.
func (e *Engine) Mend(ctx context.Context, statement string, args ...any) error {
	if _, err := e.writer.Exec(ctx, statement, args...); err != nil {
		return failure(ctx, "mend", err)
	}
	return nil
}
