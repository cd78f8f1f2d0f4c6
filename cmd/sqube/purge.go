package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sqube/sqube/cmd/sqube/internal/terminal"
	"github.com/sqube/sqube/server/changes"
)

func purgeCommand() *cobra.Command {
	var c cluster
	var namespace string
	cmd := &cobra.Command{
		Use:   "purge RESOURCE NAME",
		Short: "Remove an object's earlier versions for good",
		Long: `Remove an object's earlier versions for good, such as those of a Secret that has leaked.
What the object is now stays, and so does a record of who purged it, and when. Versions
that have not been packed yet (serve --retention) can still be read until then. Backups
and archives are not touched. It takes the right to delete the collection of changes.`,
		Example: "  sqube history purge secret/door -n shop",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.load(); err != nil {
				return err
			}
			resource, namespace, name, err := c.object(args, namespace)
			if err != nil {
				return err
			}
			err = c.client.Delete().NamespaceIfScoped(namespace, namespace != "").Resource(changes.Resource).
				Param("fieldSelector", fmt.Sprintf("resource=%s,name=%s", resource, name)).Do(cmd.Context()).Error()
			if err != nil {
				return terminal.OneLine(err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "the earlier versions of %s %s are purged\n", resource, name)
			return err
		},
	}
	c.addFlags(cmd.Flags())
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "Namespace of the object. If unset, the context's.")
	return cmd
}
