package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sqube/sqube/cmd/sqube/internal/datastore"
	"github.com/sqube/sqube/server/pki"
)

func certsCommand() *cobra.Command {
	var dataDir string
	cmd := &cobra.Command{
		Use:   "certs",
		Short: "List the server's certificates and when they expire",
		Long: `List the certificates under --data-dir and when they expire, whether the server runs
or not. A running server renews its own certificates 30 days before that, and extends
the authorities a year before. The command fails if one has expired.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if datastore.InMemory(dataDir) {
				return fmt.Errorf("the server of %s runs with --in-memory and keeps its certificates in memory only", dataDir)
			}
			certificates, err := pki.Certificates(dataDir)
			if err != nil {
				return err
			}
			var expired error
			table := newTable(cmd.OutOrStdout(), "CERTIFICATE", "OF", "SIGNED BY", "EXPIRES", "LEFT")
			for _, c := range certificates {
				if time.Now().After(c.NotAfter) {
					expired = errors.New("certificates have expired: start the server, which renews its own")
				}
				table.row(c.File, c.Subject.CommonName, c.Issuer.CommonName, c.NotAfter.UTC().Format(time.RFC3339), left(c.NotAfter))
			}
			return errors.Join(table.end(), expired)
		},
	}
	addSharedFlags(cmd, &dataDir, "Folder of the server.")
	return cmd
}
