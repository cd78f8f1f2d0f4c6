package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sqube/sqube/cmd/sqube/internal/datastore"
	"github.com/sqube/sqube/sqlstore/history"
	"github.com/sqube/sqube/sqlstore/inspect"
)

// maxGaveWay is how many of those who gave way are listed.
const maxGaveWay = 10

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
	if err := table.end(); err != nil {
		return err
	}
	var gaveWay []history.GaveWay
	until := int64(0)
	err = history.EachGaveWay(cmd.Context(), reader, func(g history.GaveWay) { gaveWay, until = append(gaveWay, g), max(until, g.Until) })
	if err != nil || len(gaveWay) == 0 {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "\nSome values up to revision %d were given up for room (--history-bytes), of those who wrote most:\n", until)
	if err != nil {
		return err
	}
	table = newTable(cmd.OutOrStdout(), "USER", "NAMESPACE", "UP TO REVISION", "BLOCKS")
	for _, g := range gaveWay[:min(len(gaveWay), maxGaveWay)] {
		table.row(g.User, g.Namespace, fmt.Sprint(g.Until), fmt.Sprint(g.Blocks))
	}
	return table.end()
}
