package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/server/sharedkeys"
	"github.com/sqube/sqube/sqlstore/inspect"
)

// ownKeys returns the row with the keys of the hosted cluster whose database is replaced, nil if there is none. The cluster keeps its keys: those
// of a backup can be another cluster's, and then nobody may use them here.
func (r *restorer) ownKeys(cmd *cobra.Command) (keys *dialect.LogRow) {
	if r.target.Cluster == "" {
		return nil
	}
	reader, err := r.target.OpenReader(cmd.Context())
	if err == nil {
		err = inspect.Live(cmd.Context(), reader, sharedkeys.Resource, func(row *dialect.LogRow) error {
			keys = row
			return nil
		})
		defer closing(&err, reader.Close)
	}
	if err != nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "the keys of %s can't be read, so it gets new ones, and its kubeconfigs and tokens are worth nothing any more: %v\n", r.target.Cluster, err)
		return nil
	}
	return keys
}

// isKeys reports whether a row has the keys of a cluster.
func isKeys(row *dialect.LogRow) bool {
	return row.Group == sharedkeys.Resource.Group && row.Resource == sharedkeys.Resource.Name
}
