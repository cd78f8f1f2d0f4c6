package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
that have not been packed yet (serve --retention) can still be read until then. The
values are erased from the files of the database; what is printed says what is left.
Backups, archives, and Postgres' write-ahead log and standbys are not touched. It takes
the right to delete the collection of changes, in all namespaces if the object has none.`,
		Example: `  sqube history purge secret/door -n shop
  sqube history purge clusterrole/leaked`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.load(); err != nil {
				return err
			}
			resource, namespace, name, err := c.object(args, namespace)
			if err != nil {
				return err
			}
			raw, err := c.client.Delete().NamespaceIfScoped(namespace, namespace != "").Resource(changes.Resource).
				Param("fieldSelector", fmt.Sprintf("resource=%s,name=%s,namespace=%s", resource, name, namespace)).Do(cmd.Context()).Raw()
			var done metav1.Status
			if err == nil {
				err = json.Unmarshal(raw, &done)
			}
			if err != nil {
				return terminal.OneLine(err)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), done.Message)
			return err
		},
	}
	c.addFlags(cmd.Flags())
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "Namespace of the object. If unset, the context's.")
	return cmd
}
