package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sqube/sqube/sqlstore/inspect"
)

// unarchive restores what pg_dump wrote.
func (r *restoration) unarchive(cmd *cobra.Command, file string) (err error) {
	ctx := cmd.Context()
	switch {
	case !r.target.Shared():
		return errors.New("what Postgres' pg_dump wrote goes to Postgres only: give --datastore postgres://…")
	case r.revision != 0 || r.moment != "":
		return errors.New("--to-revision and --to-time need a database: restore the archive to one of its own, then that as it was")
	}
	if err := r.putAside(ctx); err != nil {
		return err
	}
	status, err := r.target.Status(ctx)
	if err != nil {
		return err
	}
	if status.Current != 0 {
		return r.notEmpty()
	}
	if err := r.target.Undump(ctx, file); err != nil {
		return err
	}
	engine, err := r.target.Open(ctx)
	if err != nil {
		return err
	}
	defer closing(&err, engine.Close)
	at, newest, err := inspect.Position(ctx, engine)
	if err != nil {
		return err
	}
	counter := beyond(at.Revision, newest, time.Now())
	if err := engine.Mend(ctx, "UPDATE counter SET revision = $1, compacted = $2", counter.Revision, counter.Compacted); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s holds what %s does, of revision %d\n", r.target, file, at.Revision)
	return nil
}

// isArchive says whether the source is a file that pg_dump wrote.
func isArchive(source string) (bool, error) {
	if strings.Contains(source, "://") {
		return false, nil
	}
	f, err := os.Open(source)
	if err != nil {
		return false, err
	}
	defer f.Close()
	magic := make([]byte, 5)
	if _, err := io.ReadFull(f, magic); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return false, err
	}
	return bytes.Equal(magic, []byte("PGDMP")), nil
}
