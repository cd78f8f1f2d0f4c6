package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sqube/sqube/cmd/sqube/internal/datastore"
)

func migrateCommand() *cobra.Command {
	var d datastore.Datastore
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Upgrade a database's schema, or show its state",
		Long:  "Upgrade a database's schema, or show its state. serve upgrades the schema whenever it starts.",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	addDatastoreFlags(cmd, &d)
	cmd.AddCommand(&cobra.Command{
		Use:   "up",
		Short: "Apply all missing schema steps",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			done := progress(cmd, func() string { return "applying the missing steps" })
			before, err := d.Migrate(cmd.Context())
			done()
			if err != nil {
				return err
			}
			note := "there was nothing to do"
			switch {
			case before.Interrupted:
				note = fmt.Sprintf("step %d had been interrupted", before.Current)
			case before.Current < before.Newest:
				note = fmt.Sprintf("it had schema %d", before.Current)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s has schema %d, the newest: %s\n", d, before.Newest, note)
			return nil
		},
	}, &cobra.Command{
		Use:   "status",
		Short: "Show the schema versions of the database and of this binary",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			status, err := d.Status(cmd.Context())
			if err != nil {
				return err
			}
			note := "up to date"
			switch {
			case status.Current > status.Newest:
				note = "the database is newer than this binary: use a newer sqube"
			case status.Interrupted:
				note = "the last step was interrupted: run sqube migrate up"
			case status.Current < status.Newest:
				note = "run sqube migrate up, or serve"
			}
			by := ""
			if status.Release != "" {
				by = ", made by sqube " + status.Release
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s has schema %d of %d%s: %s\n", d, status.Current, status.Newest, by, note)
			return nil
		},
	})
	return cmd
}
