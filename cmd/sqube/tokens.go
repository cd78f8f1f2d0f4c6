package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/sqube/sqube/cmd/sqube/internal/join"
)

func tokenListCommand() *cobra.Command {
	var a administrator
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List bootstrap tokens",
		Long:  `List bootstrap tokens, also those of kubeadm and kubectl. The server must run.`,
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, _, err := a.client()
			if err != nil {
				return err
			}
			tokens, err := join.ListTokens(cmd.Context(), client)
			if err != nil {
				return err
			}
			table := newTable(cmd.OutOrStdout(), "TOKEN", "EXPIRES", "LEFT", "USAGES", "DESCRIPTION", "GROUPS")
			for _, token := range tokens {
				expires, remaining := "never", ""
				if token.Expires != nil {
					expires, remaining = token.Expires.UTC().Format(time.RFC3339), left(token.Expires.Time)
				}
				table.row(token.Token.String(), expires, remaining, strings.Join(token.Usages, ","), token.Description, strings.Join(token.Groups, ","))
			}
			return table.end()
		},
	}
	a.addFlags(cmd)
	return cmd
}

func tokenDeleteCommand() *cobra.Command {
	var a administrator
	cmd := &cobra.Command{
		Use:     "delete TOKEN...",
		Short:   "Delete bootstrap tokens, so that no more nodes can join with them",
		Long:    `Delete bootstrap tokens, so that no more nodes can join with them. Nodes that have joined stay. The server must run.`,
		Example: "  sqube token delete 4bxtz9",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("want tokens or their ids, the part before the dot (see %s --help)", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			client, _, err := a.client()
			if err != nil {
				return err
			}
			for _, token := range args {
				id, err := join.DeleteToken(cmd.Context(), client, token)
				if err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "token %s is deleted\n", id)
			}
			return nil
		},
	}
	a.addFlags(cmd)
	return cmd
}

// left returns how long it is until a time.
func left(until time.Time) string {
	if d := time.Until(until); d > 0 {
		return duration.HumanDuration(d)
	}
	return "expired"
}
