package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sqube/sqube/cmd/sqube/internal/datastore"
	"github.com/sqube/sqube/server/pki"
	"github.com/sqube/sqube/server/sharedkeys"
	"github.com/sqube/sqube/sqlstore/inspect"
)

func kubeconfigCommand() *cobra.Command {
	var dataDir, address, user string
	var database datastoreFlags
	var key sharedkeys.Options
	var groups []string
	var lifetime time.Duration
	cmd := &cobra.Command{
		Use:   "kubeconfig",
		Short: "Print a kubeconfig with a new client certificate for a user",
		Long: `Print a kubeconfig with a new client certificate for a user. The CA under --data-dir
signs it or, with --pki-encryption-key-file, the one in the database; the server can
then be on another machine. RBAC decides what the user may do; the group
system:masters may do everything. A certificate can't be revoked, so give it a short
lifetime.`,
		Example: "  sqube kubeconfig --user jane --group developers --lifetime 8h > jane.kubeconfig",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if user == "" {
				return errors.New("--user must be given")
			}
			if lifetime <= 0 {
				return errors.New("--lifetime must be more than 0")
			}
			keys, err := openAuthority(cmd.Context(), database, dataDir, key)
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
	addSharedFlags(cmd, &dataDir, "Folder of the server.")
	database.addFlags(fs)
	key.AddFlags(fs)
	fs.StringVar(&address, "server", "", "URL of the server. If unset, the local URL of the server last started with --data-dir.")
	fs.StringVar(&user, "user", "", "User name.")
	fs.StringArrayVar(&groups, "group", nil, "Group of the user. May be repeated.")
	fs.DurationVar(&lifetime, "lifetime", 24*time.Hour, "How long the certificate is valid.")
	return cmd
}

// openAuthority opens the cluster's CA, in the database or under the data directory.
func openAuthority(ctx context.Context, database datastoreFlags, dataDir string, key sharedkeys.Options) (*pki.PKI, error) {
	keys, err := key.Load()
	if err != nil {
		return nil, err
	}
	d, err := database.database(dataDir)
	if err != nil {
		return nil, err
	}
	if keys == nil {
		if datastore.InMemory(dataDir) {
			return nil, fmt.Errorf("the server of %s runs with --in-memory and keeps its CA in memory only: use its admin.kubeconfig", dataDir)
		}
		authority, missing := pki.Open(dataDir)
		if missing == nil {
			return authority, nil
		}
		switch _, err := sharedRow(ctx, d); {
		case err == nil:
			return nil, sharedkeys.ErrNoKeyFile
		case database.name != "" && !errors.Is(err, inspect.ErrUnknown):
			return nil, err
		}
		return nil, missing
	}
	row, err := sharedRow(ctx, d)
	if errors.Is(err, inspect.ErrUnknown) {
		return nil, fmt.Errorf("%s holds no keys: start a server with the same --pki-encryption-key-file first", d)
	}
	if err != nil {
		return nil, err
	}
	files, err := keys.Decode(row.Value)
	if err != nil {
		return nil, err
	}
	return pki.OpenShared(files, dataDir)
}

// sharedRow returns the row of a database that holds the cluster's keys, encrypted, or inspect.ErrUnknown.
func sharedRow(ctx context.Context, d datastore.Datastore) (row *inspect.Version, err error) {
	reader, err := d.OpenReader(ctx)
	if err != nil {
		return nil, err
	}
	defer closing(&err, reader.Close)
	return inspect.At(ctx, reader, inspect.Object{Resource: sharedkeys.Resource, Namespaces: []string{""}, Name: sharedkeys.Name}, 0)
}
