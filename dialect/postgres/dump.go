package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sqube/sqube/dialect"
)

// Dump writes a snapshot of the log in a database to an empty file with pg_dump, and verifies it with pg_restore. Its
// error says so if these programs are missing. Servers may keep running meanwhile.
func Dump(ctx context.Context, d Database, to *os.File) error {
	args := []string{"--format=custom", "--no-owner", "--no-privileges"}
	for _, o := range logObjects {
		args = append(args, "--table="+o.name)
	}
	// Postgres' programs write to the open file: files that they create may be world-readable.
	if err := run(ctx, d, program{name: "pg_dump", args: args, stdout: to}); err != nil {
		return err
	}
	if _, err := to.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return run(ctx, Database{}, program{name: "pg_restore", args: []string{"--file=" + os.DevNull}, stdin: to})
}

// RestoreDump restores what Dump wrote to the file from into the database, as Replace does, and returns its revision. The
// counter jumps ahead of it and of the log that it replaces; see dialect.RevisionJump.
func RestoreDump(ctx context.Context, d Database, from string, force bool, now time.Time) (revision int64, aside string, err error) {
	conn, err := connect(ctx, d)
	if err != nil {
		return 0, "", err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	if err := lockRestore(ctx, conn); err != nil {
		return 0, "", err
	}
	place, there, err := find(ctx, conn)
	if err != nil {
		return 0, "", err
	}
	var before []string
	var replaced dialect.End
	if there {
		if !force {
			return 0, "", dialect.ErrNotEmpty
		}
		if err := awaitUnserved(ctx, conn); err != nil {
			return 0, "", err
		}
		replaced = endOf(ctx, conn)
		if err := dialect.CheckRevision(replaced.Revision); err != nil {
			return 0, "", err
		}
		aside, before = putAside(conn, place, now)
	}
	after := append(conn.flush,
		"RESET search_path", // which pg_restore empties
		"SELECT revision FROM counter",
		jumpRestored(fmt.Sprintf("greatest(%s, %d)", beyond("revision", "(SELECT max(written_at) FROM log)"), replaced.Beyond(now))),
	)
	output, err := pipeToPsql(ctx, d, before, program{name: "pg_restore", args: []string{"--no-owner", "--no-privileges", "--file=-", from}}, after)
	if err != nil {
		return 0, "", err
	}
	lines := strings.Fields(output)
	if len(lines) > 0 {
		revision, err = strconv.ParseInt(lines[len(lines)-1], 10, 64)
	}
	return revision, aside, err
}

// jumpRestored returns the statement that sets the counter of a restored log to a revision. Its schema may be an older one. It forgets which
// database the log was in: otherwise the first server would make the counter jump again.
func jumpRestored(revision string) string {
	return fmt.Sprintf(`DO $do$ DECLARE name text; BEGIN
IF to_regclass('past') IS NULL THEN UPDATE counter SET revision = %[1]s, compacted = %[1]s;
ELSE EXECUTE $sql$%[2]s$sql$;
END IF;
FOR name IN SELECT attname FROM pg_attribute WHERE attrelid = 'counter'::regclass AND attname IN ('incarnation', 'database', 'written_at') LOOP
EXECUTE format('UPDATE counter SET %%I = %%L', name, CASE name WHEN 'written_at' THEN greatest((SELECT max(written_at) FROM log), %[4]s)::text ELSE '' END);
END LOOP;
IF (SELECT revision > %[3]d FROM counter) THEN RAISE EXCEPTION 'resourceVersions would come to more than %[3]d, near the end of 64 bits';
END IF; END $do$`, revision, jump(revision, "one = one", ""), dialect.MaxRevision, sqlNow)
}

// pipeToPsql runs, with psql and in one transaction, the statements in before, the output of script, and the statements in after.
// It returns psql's output. If anything fails on the way, the transaction has no COMMIT.
func pipeToPsql(ctx context.Context, d Database, before []string, script program, after []string) (output string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	in, out := io.Pipe()
	failed := make(chan error, 1)
	go func() {
		writer := &scriptWriter{to: out}
		script.stdout = writer
		_, err := io.WriteString(out, "BEGIN;\n"+lines(before))
		if err == nil {
			err = run(ctx, Database{}, script)
		}
		if err == nil {
			err = writer.flush()
		}
		if err == nil {
			_, err = io.WriteString(out, lines(after)+"COMMIT;\n")
		}
		failed <- err
		out.CloseWithError(err)
	}()
	var stdout strings.Builder
	args := []string{"--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1", "--file=-"}
	err = run(ctx, d, program{name: "psql", args: args, stdin: in, stdout: &stdout, writes: true})
	cancel()
	in.CloseWithError(errors.New("psql has ended"))
	unread := <-failed
	var exit *exec.ExitError
	if unread != nil && !errors.As(err, &exit) { // without the rest of the script, psql succeeds but does not commit
		err = unread
	}
	return stdout.String(), err
}

// lines returns statements as input for psql.
func lines(statements []string) string {
	return strings.Join(append(slices.Clone(statements), ""), ";\n")
}

type program struct {
	name   string
	args   []string
	stdin  io.Reader
	stdout io.Writer
	writes bool // needs a primary, not a standby
}

// run runs a program, on a database if d names one. Secrets appear neither in the program's arguments, which
// other users of the machine can see, nor in the error.
func run(ctx context.Context, d Database, p program) error {
	cmd := exec.CommandContext(ctx, p.name, p.args...)
	cmd.Env = os.Environ()
	if d.DSN != "" {
		t, err := newTarget(d.DSN)
		if err != nil {
			return err
		}
		if d.Password != nil {
			password, err := d.Password.password(ctx)
			if err != nil {
				return err
			}
			t.env = []string{"PGPASSWORD=" + password}
		}
		if p.writes {
			t.findPrimary()
		}
		file, err := t.serviceFile()
		if err != nil {
			return err
		}
		defer file.Close()
		cmd.Args = append(cmd.Args, "--dbname="+t.address)
		cmd.ExtraFiles = []*os.File{file} // becomes descriptor 3
		cmd.Env = append(append(cmd.Env, t.env...), "PGSERVICEFILE=/dev/fd/3")
	}
	var stderr strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.stdin, p.stdout, &stderr
	switch err := cmd.Run(); {
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("%s is not installed here (Debian: postgresql-client)", p.name)
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("%s: %w: %s", p.name, err, strings.TrimSpace(stderr.String()))
	}
	return nil
}
