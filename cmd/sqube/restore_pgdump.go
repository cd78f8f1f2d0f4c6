package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/sqube/sqube/cmd/sqube/internal/datastore"
	"github.com/sqube/sqube/dialect"
)

// restorePgDump restores an archive of pg_dump.
func (r *restorer) restorePgDump(cmd *cobra.Command, file string) (err error) {
	ctx := cmd.Context()
	switch {
	case !r.target.Shared():
		return errors.New("an archive of pg_dump can only be restored to Postgres: give --datastore postgres://…")
	case r.revision != 0 || r.moment != "":
		return errors.New("--to-revision and --to-time need a database: restore the archive to a database first, then that database")
	}
	revision, aside, err := r.target.RestoreDump(ctx, file, r.force)
	if errors.Is(err, dialect.ErrNotEmpty) {
		return r.notEmpty()
	}
	if err != nil {
		return err
	}
	r.aside = aside
	if _, err := r.target.Migrate(ctx); err != nil { // the archive may have an older schema
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s holds the content of %s, revision %d\n", r.target, file, revision)
	return nil
}

// isPgDump reports whether the source is an archive of pg_dump.
func isPgDump(source string) (bool, error) {
	if datastore.Named(source) {
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
