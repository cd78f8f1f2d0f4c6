package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sqube/sqube/cmd/sqube/internal/logbackup"
	"github.com/sqube/sqube/dialect"
)

// isFollowed reports whether the source is a backup of sqube backup --follow.
func isFollowed(source string) bool {
	if strings.HasPrefix(source, "s3://") {
		return true
	}
	info, err := os.Stat(source)
	return err == nil && info.IsDir()
}

// fromFollowed restores a backup of sqube backup --follow.
func (r *restorer) fromFollowed(cmd *cobra.Command, source string, moment time.Time) (err error) {
	place, err := logbackup.ParsePlace(source)
	if err != nil {
		return err
	}
	if r.list {
		return printSpans(cmd, place)
	}
	dir, err := os.MkdirTemp("", "sqube-restore-")
	if err != nil {
		return err
	}
	defer closing(&err, func() error { return os.RemoveAll(dir) })
	backup, state, err := fetch(cmd.Context(), place, r.revision, moment, r.history, dir)
	if err != nil {
		return err
	}
	if state.Moment != nil {
		r.found(cmd, moment, state.Moment)
	}
	newest, ended := backup.Newest()
	c := &contents{rows: func(yield func(*dialect.LogRow) error) error { return state.Rows(cmd.Context(), yield) }}
	if r.history > 0 {
		packed, err := newPackedState(state, dir)
		if err != nil {
			return err
		}
		c = packed.contents(cmd.Context())
	}
	return r.fill(cmd, place.String(), state.Revision, newest, ended, c)
}

// fetch copies the needed files of a backup to an empty folder.
func fetch(ctx context.Context, place logbackup.Place, revision int64, moment time.Time, before time.Duration, dir string) (backup *logbackup.Backup, state *logbackup.State, err error) {
	err = logbackup.Retry(func(try int) (err error) {
		if backup, err = logbackup.Open(ctx, place); err == nil {
			state, err = backup.Fetch(ctx, revision, moment, before, fmt.Sprintf("%s/%d", dir, try))
		}
		return err
	})
	return backup, state, err
}

// printSpans prints the times that a backup covers. It returns an error about what lacks in between.
func printSpans(cmd *cobra.Command, place logbackup.Place) error {
	var backup *logbackup.Backup
	err := logbackup.Retry(func(int) (err error) {
		backup, err = logbackup.Open(cmd.Context(), place)
		return err
	})
	if err != nil {
		return err
	}
	table := newTable(cmd.OutOrStdout(), "FROM", "TO", "FROM REVISION", "TO REVISION", "SIZE")
	for _, s := range backup.Spans {
		table.row(s.Began.UTC().Format(time.RFC3339), s.Ended.UTC().Format(time.RFC3339), fmt.Sprint(s.From), fmt.Sprint(s.To), size(s.Size))
	}
	return errors.Join(table.end(), backup.Lost())
}
