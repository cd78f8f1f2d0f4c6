package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore/logbackup"
	"github.com/sqube/sqube/sqlstore/origin"
)

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
	backup, state, err := origin.Fetch(cmd.Context(), place, origin.At{Revision: r.revision, Time: moment}, r.history, dir)
	if err != nil {
		return err
	}
	r.found(cmd, moment, state.Moment)
	newest, ended := backup.Newest()
	c := &contents{rows: func(yield func(*dialect.LogRow) error) error { return state.Rows(cmd.Context(), yield) }}
	if r.history > 0 {
		packed, err := newPackedState(state, dir)
		if err != nil {
			return err
		}
		c = packed.contents(cmd.Context())
	}
	return r.fill(cmd, place.String(), state.Revision, endOf(newest, ended), c)
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
