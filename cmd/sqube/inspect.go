package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sqube/sqube/cmd/sqube/internal/datastore"
	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/server/encryption"
	"github.com/sqube/sqube/sqlstore/inspect"
	"github.com/sqube/sqube/sqlstore/logbackup"
)

// inspector is shared by the commands that read one object from the database, without a server.
type inspector struct {
	datastore  datastore.Datastore
	namespace  string
	encryption encryption.Options
	archiveIn  string // the flag --archive

	archive logbackup.Place // nil without --archive
	object  inspect.Object
	known   bool // whether the resource is built in or defined
	reader  dialect.Reader
	keys    *encryption.Encryption
}

// objectArguments explains how the commands name an object.
const objectArguments = `Name the object as for kubectl: "pod web", "deploy/web", "deployments.apps web".
Without --namespace, the object can be in the namespace default or in none. This works
whether the server runs or not.`

func (i *inspector) addFlags(cmd *cobra.Command) {
	addDatastoreFlags(cmd, &i.datastore)
	cmd.Flags().StringVarP(&i.namespace, "namespace", "n", "", "Namespace of the object. If unset, default.")
	addEncryptionFlag(cmd, &i.encryption)
	cmd.Flags().StringVar(&i.archiveIn, "archive", "", "Folder, or s3://BUCKET/PREFIX, that serve --archive or backup --follow writes, for versions that are no longer in the database.")
}

// resourceAndName reads the arguments RESOURCE NAME or RESOURCE/NAME.
func resourceAndName(args []string) (resource, name string, err error) {
	if len(args) == 1 {
		args = strings.SplitN(args[0], "/", 2)
	}
	if len(args) != 2 || args[0] == "" || args[1] == "" {
		return "", "", errors.New("want a resource and a name, such as deployments.apps web")
	}
	return args[0], args[1], nil
}

// open parses the arguments and opens the database and the archive.
func (i *inspector) open(ctx context.Context, args []string) (err error) {
	resource, name, err := resourceAndName(args)
	if err != nil {
		return err
	}
	i.object = inspect.Object{Namespaces: []string{i.namespace}, Name: name}
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
		return err
	}
	if i.object.Resource, i.known, err = i.resolve(ctx, resource); err != nil {
		return errors.Join(err, i.close())
	}
	return nil
}

func (i *inspector) close() error {
	i.keys.Close()
	return i.reader.Close()
}

// history calls yield with every version of the object in the archive, then with those that are only in the database. If files of the
// archive are gone, it returns a logbackup.Gap in the end.
func (i *inspector) history(ctx context.Context, yield func(*inspect.Version) error) error {
	last := &inspect.Version{}
	var gap *logbackup.Gap
	if i.archive != nil {
		err := logbackup.History(ctx, i.archive, i.object, func(v *inspect.Version) error {
			last = v
			return yield(v)
		})
		if err != nil && !errors.Is(err, inspect.ErrUnknown) && !errors.As(err, &gap) {
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
	switch {
	case gap != nil && (err == nil || errors.Is(err, inspect.ErrUnknown)):
		return gap
	case errors.Is(err, inspect.ErrUnknown) && last.ID > 0:
		return nil
	}
	return err
}

// revisionAt returns the revision that the text of a flag names: a revision, or a time.
func (i *inspector) revisionAt(ctx context.Context, flag, text string) (int64, error) {
	if revision, err := strconv.ParseInt(text, 10, 64); err == nil || text == "" {
		return revision, nil
	}
	moment, err := parseMoment(flag, "a revision, or a time", text)
	if err != nil {
		return 0, err
	}
	m, err := inspect.RevisionAt(ctx, i.reader, moment)
	if i.archive != nil && errors.Is(err, inspect.ErrForgotten) {
		m, err = logbackup.RevisionAt(ctx, i.archive, moment)
	}
	if err != nil {
		return 0, fmt.Errorf("%s %s: %w", flag, text, err)
	}
	if doubt := m.Doubt(); doubt != "" {
		fmt.Fprintf(os.Stderr, "%s %s: %s\n", flag, text, doubt)
	}
	return m.Revision, nil
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

// called returns what the object is called in messages.
func (i *inspector) called() string {
	return fmt.Sprintf("%s %s", schema.GroupResource{Group: i.object.Resource.Group, Resource: i.object.Resource.Name}, i.object.Name)
}

// about adds the object to an error.
func (i *inspector) about(err error) error {
	if errors.Is(err, inspect.ErrUnknown) && !i.known {
		return fmt.Errorf("%s: %w; and no resource has that name (kubectl api-resources lists them)", i.called(), err)
	}
	return fmt.Errorf("%s: %w", i.called(), err)
}
