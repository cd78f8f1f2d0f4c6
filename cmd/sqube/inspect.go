package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sqube/sqube/cmd/sqube/internal/datastore"
	"github.com/sqube/sqube/cmd/sqube/internal/logbackup"
	"github.com/sqube/sqube/cmd/sqube/internal/terminal"
	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/server/encryption"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/inspect"
)

// inspector is shared by the commands that read one object from the database, without a server.
type inspector struct {
	datastore  datastore.Datastore
	namespace  string
	encryption encryption.Options
	archiveIn  string // the flag --archive

	archive logbackup.Place // nil without --archive
	object  inspect.Object
	reader  dialect.Reader
	keys    *encryption.Encryption
}

// objectArguments explains how the commands name an object.
const objectArguments = `Name the object by its plural resource, with a dot and the API group if it has one,
and its name: "pods web", "deployments.apps web" or "deployments.apps/web". Without
--namespace, the object can be in the namespace default or in none. This works
whether the server runs or not.`

func (i *inspector) addFlags(cmd *cobra.Command) {
	addDatastoreFlags(cmd, &i.datastore)
	cmd.Flags().StringVarP(&i.namespace, "namespace", "n", "", "Namespace of the object. If unset, default.")
	addEncryptionFlag(cmd, &i.encryption)
	cmd.Flags().StringVar(&i.archiveIn, "archive", "", "Folder, or s3://BUCKET/PREFIX, that serve --archive or backup --follow writes, for versions that are no longer in the database.")
	cmd.Args = cobra.RangeArgs(1, 2)
}

// open parses the arguments and opens the database and the archive.
func (i *inspector) open(ctx context.Context, args []string) (err error) {
	if len(args) == 1 {
		args = strings.SplitN(args[0], "/", 2)
	}
	if len(args) != 2 || args[0] == "" || args[1] == "" {
		return errors.New("want a resource and a name, such as deployments.apps web")
	}
	resource, group, _ := strings.Cut(args[0], ".")
	i.object = inspect.Object{Resource: sqlstore.Resource{Group: group, Name: resource}, Namespaces: []string{i.namespace}, Name: args[1]}
	if i.namespace == "" {
		i.object.Namespaces = []string{"default", ""}
	}
	if i.archiveIn != "" {
		if i.archive, err = logbackup.ParsePlace(i.archiveIn); err != nil {
			return fmt.Errorf("--archive: %w", err)
		}
	}
	if i.keys, err = encryption.Load(i.encryption, ""); err != nil {
		return err
	}
	if i.reader, err = i.datastore.OpenReader(ctx); err != nil {
		i.keys.Close()
	}
	return err
}

func (i *inspector) close() error {
	i.keys.Close()
	return i.reader.Close()
}

// history calls yield with every version of the object in the archive, then with those that are only in the database.
func (i *inspector) history(ctx context.Context, yield func(*inspect.Version) error) error {
	last := &inspect.Version{}
	if i.archive != nil {
		err := logbackup.History(ctx, i.archive, i.object, func(v *inspect.Version) error {
			last = v
			return yield(v)
		})
		if err != nil && !errors.Is(err, inspect.ErrUnknown) {
			return err
		}
	}
	err := inspect.History(ctx, i.reader, i.object, func(v *inspect.Version) error {
		if v.ID <= last.ID {
			return nil
		}
		if v.Replaces == last.ID {
			v.Previous = last.Value
		}
		return yield(v)
	})
	if errors.Is(err, inspect.ErrUnknown) && last.ID > 0 {
		return nil
	}
	return err
}

// at returns the object as it was at a revision, 0 for now, from the archive if the database does not hold it.
func (i *inspector) at(ctx context.Context, revision int64) (*inspect.Version, error) {
	version, err := inspect.At(ctx, i.reader, i.object, revision)
	if i.archive != nil && errors.Is(err, inspect.ErrForgotten) {
		return logbackup.At(ctx, i.archive, i.object, revision)
	}
	return version, err
}

// value decrypts a stored form of the object.
func (i *inspector) value(ctx context.Context, key string, stored []byte) ([]byte, error) {
	if stored == nil {
		return nil, nil
	}
	return decrypt(ctx, i.keys, i.object.Resource, key, stored)
}

// about adds the object to an error.
func (i *inspector) about(err error) error {
	if err == nil {
		return nil
	}
	resource := schema.GroupResource{Group: i.object.Resource.Group, Resource: i.object.Resource.Name}
	return fmt.Errorf("%s %s: %w", resource, i.object.Name, err)
}

func historyCommand() *cobra.Command {
	var i inspector
	cmd := &cobra.Command{
		Use:   "history RESOURCE NAME",
		Short: "List an object's changes: when, by whom, and which fields",
		Long: `List an object's changes: when, by whom, and which fields. The list reaches back as
far as versions are kept (serve --retention), or as far as an archive (--archive).

` + objectArguments,
		Example: `  sqube history deployments.apps -n prod web
  sqube history deployments.apps -n prod web --archive /mnt/archive/sqube`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if err := i.open(cmd.Context(), args); err != nil {
				return err
			}
			defer closing(&err, i.close)
			table := newTable(cmd.OutOrStdout(), "REVISION", "TIME", "OPERATION", "USER", "MANAGER", "CHANGED")
			err = i.history(cmd.Context(), func(v *inspect.Version) error {
				changed, err := i.changed(cmd, v)
				if err != nil {
					return err
				}
				table.row(fmt.Sprint(v.ID), time.UnixMilli(v.WrittenAt).UTC().Format(time.RFC3339), string(v.Operation), v.User, v.FieldManager, changed)
				return nil
			})
			if err != nil {
				return i.about(err)
			}
			return table.end()
		},
	}
	i.addFlags(cmd)
	return cmd
}

// changed returns the paths of the fields that an update changed.
func (i *inspector) changed(cmd *cobra.Command, v *inspect.Version) (string, error) {
	if v.Operation != dialect.Update {
		return "", nil
	}
	if v.Previous == nil {
		return "(the previous version is no longer kept)", nil
	}
	before, err := i.value(cmd.Context(), v.Key, v.Previous)
	if err != nil {
		return "", err
	}
	after, err := i.value(cmd.Context(), v.Key, v.Value)
	if err != nil {
		return "", err
	}
	paths, err := inspect.Changed(before, after)
	return strings.Join(paths, " "), err
}

func showCommand() *cobra.Command {
	var i inspector
	var revision int64
	var whole bool
	cmd := &cobra.Command{
		Use:   "show RESOURCE NAME",
		Short: "Print an object as it is, or as it was at a revision, ready for kubectl apply",
		Long: `Print an object as it is, or as it was at a revision (see sqube history), ready for
kubectl apply: without its status and the fields that the server sets.

` + objectArguments,
		Example: "  sqube show deployments.apps -n prod web --at 4711 | kubectl apply -f -",
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if err := i.open(cmd.Context(), args); err != nil {
				return err
			}
			defer closing(&err, i.close)
			version, err := i.at(cmd.Context(), revision)
			if err != nil {
				return i.about(err)
			}
			stored, err := i.value(cmd.Context(), version.Key, version.Value)
			if err != nil {
				return i.about(err)
			}
			var object map[string]any
			if err := json.Unmarshal(stored, &object); err != nil {
				return i.about(err)
			}
			if !whole {
				applicable(object)
			}
			text, err := terminal.YAML(object)
			if err != nil {
				return i.about(err)
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
	i.addFlags(cmd)
	cmd.Flags().Int64Var(&revision, "at", 0, "Revision (resourceVersion) at which to show the object. If unset, the newest.")
	cmd.Flags().BoolVar(&whole, "whole", false, "Print the whole stored object.")
	return cmd
}

// applicable removes the fields that clients don't set.
func applicable(object map[string]any) {
	delete(object, "status")
	metadata, _ := object["metadata"].(map[string]any)
	for _, field := range []string{"creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid"} {
		delete(metadata, field)
	}
}
