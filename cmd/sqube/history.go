package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sqube/sqube/cmd/sqube/internal/logbackup"
	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore/inspect"
)

func historyCommand() *cobra.Command {
	var i inspector
	cmd := &cobra.Command{
		Use:   "history RESOURCE NAME",
		Short: "List an object's changes: when, by whom, and which fields",
		Long: `List an object's changes: when, by whom, and which fields. The list reaches back as
far as versions are kept (serve --retention), or as far as an archive (--archive).

` + objectArguments,
		Example: `  sqube history deployments.apps -n prod web
  sqube history deployments.apps -n prod web --archive /mnt/archive/sqube`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if err := i.open(cmd.Context(), args); err != nil {
				return err
			}
			defer closing(&err, i.close)
			table := newTable(cmd.OutOrStdout(), "REVISION", "TIME", "OPERATION", "USER", "MANAGER", "CHANGED")
			err = i.history(cmd.Context(), func(v *inspect.Version) error {
				changed, err := i.changed(cmd, v)
				if err != nil {
					return err
				}
				table.row(fmt.Sprint(v.ID), time.UnixMilli(v.WrittenAt).UTC().Format(time.RFC3339), string(v.Operation), v.User, v.FieldManager, changed)
				return nil
			})
			if gap := new(logbackup.Gap); err != nil && !errors.As(err, &gap) {
				return i.about(err)
			}
			return errors.Join(table.end(), err)
		},
	}
	i.addFlags(cmd)
	return cmd
}

// changed returns the paths of the fields that an update changed.
func (i *inspector) changed(cmd *cobra.Command, v *inspect.Version) (string, error) {
	if v.Operation != dialect.Update {
		return "", nil
	}
	if v.Previous == nil {
		return "(the previous version is no longer kept)", nil
	}
	before, err := i.value(cmd.Context(), v.Key, v.Previous)
	if err != nil {
		return "", err
	}
	after, err := i.value(cmd.Context(), v.Key, v.Value)
	if err != nil {
		return "", err
	}
	paths, err := inspect.Changed(before, after)
	return strings.Join(paths, " "), err
}
