package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sqube/sqube/cmd/sqube/internal/datastore"
	"github.com/sqube/sqube/sqlstore/inspect"
)

// listKept prints what a database keeps, and what the versions take in it that are older than --retention.
func listKept(cmd *cobra.Command, d datastore.Datastore) (err error) {
	reader, err := d.OpenReader(cmd.Context())
	if err != nil {
		return err
	}
	defer closing(&err, reader.Close)
	kept, err := inspect.Read(cmd.Context(), reader)
	switch {
	case err != nil:
		return err
	case kept.Newest.IsZero():
		return fmt.Errorf("nothing has been written to %s yet", d)
	}
	table := newTable(cmd.OutOrStdout(), "FROM", "TO", "FROM REVISION", "TO REVISION", "PACKED")
	table.row(kept.Earliest.UTC().Format(time.RFC3339), kept.Newest.UTC().Format(time.RFC3339), fmt.Sprint(max(kept.From, 1)), fmt.Sprint(kept.Revision), size(kept.Packed))
	return table.end()
}
