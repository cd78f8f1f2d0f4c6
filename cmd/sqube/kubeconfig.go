package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/sqube/sqube/server/pki"
)

func kubeconfigCommand() *cobra.Command {
	var dataDir, address, user string
	var groups []string
	var lifetime time.Duration
	cmd := &cobra.Command{
		Use:   "kubeconfig",
		Short: "Print a kubeconfig with a new client certificate for a user",
		Long: `Print a kubeconfig with a new client certificate for a user, signed by the
authority under --data-dir. What the user may do is decided by RBAC; the group
system:masters may do everything. A certificate can't be taken back, so give it
a short life.`,
		Example: "  sqube kubeconfig --user jane --group developers --lifetime 8h > jane.kubeconfig",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if user == "" {
				return errors.New("--user must be given")
			}
			if lifetime <= 0 {
				return errors.New("--lifetime must be more than 0")
			}
			keys, err := pki.Open(dataDir, pki.Options{})
			if err != nil {
				return err
			}
			text, err := keys.Kubeconfig(address, user, groups, lifetime)
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&dataDir, "data-dir", "./data", "Folder of the server that the kubeconfig is for.")
	fs.StringVar(&address, "server", "https://127.0.0.1:6443", "URL of the server.")
	fs.StringVar(&user, "user", "", "User name.")
	fs.StringArrayVar(&groups, "group", nil, "Group that the user is in. May be given more than once.")
	fs.DurationVar(&lifetime, "lifetime", 24*time.Hour, "How long the certificate is valid.")
	return cmd
}
