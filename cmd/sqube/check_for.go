package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/server/crd"
	"github.com/sqube/sqube/server/resources/previous"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/inspect"
)

// chooseVersion has the check look for what an older version does not know.
func (c *check) chooseVersion(version string) error {
	known, err := previous.Read()
	if err != nil {
		return err
	}
	if "v"+strings.TrimPrefix(version, "v") != known.String() {
		return fmt.Errorf("--for %s: this sqube knows only what %s knows, the version before its own", version, known)
	}
	if c.repair {
		return errors.New("--for repairs nothing: leave out --repair")
	}
	c.previous = known
	return nil
}

// blockRows is how many findings form a block of the table, whose columns are as wide as in no other. So the table takes a
// bounded amount of memory.
const blockRows = 1000

// canGoBack prints what the previous version does not know.
func (c *check) canGoBack(cmd *cobra.Command, reader dialect.Reader) error {
	ctx := cmd.Context()
	var findings, objects, unread int64
	var out table
	found := func(revision int64, object, what string) error {
		if findings%blockRows == 0 {
			out = newTable(cmd.OutOrStdout(), "REVISION", "OBJECT", "FINDING")
		}
		findings++
		out.row(number(revision), object, what)
		if findings%blockRows == 0 {
			return out.end()
		}
		return nil
	}
	status, err := c.datastore.Status(ctx)
	if schema := c.previous.UnknownSchema(status.Current); err == nil && schema != "" {
		err = found(0, "", schema)
	}
	if err != nil {
		return err
	}
	err = inspect.Each(ctx, reader, func(row *dialect.LogRow) error {
		objects++
		lines, err := c.unknown(ctx, row)
		if errors.Is(err, inspect.ErrUnread) {
			unread++
			return nil
		}
		if err != nil {
			lines = []string{err.Error()}
		}
		for _, line := range lines {
			if err := found(row.ID, inspect.Name(row), line); err != nil {
				return err
			}
		}
		return nil
	})
	if findings%blockRows != 0 {
		err = errors.Join(out.end(), err)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", c.datastore, err)
	}
	if findings > 0 {
		err = fmt.Errorf("%s: %s does not know all of it: %d findings in %d objects", c.datastore, c.previous, findings, objects)
	}
	if unread > 0 {
		err = errors.Join(err, c.unread(unread, objects))
	}
	if err == nil {
		fmt.Fprintf(cmd.OutOrStdout(), "%s: %d objects, and %s knows all that is in them: it can serve this database\n", c.datastore, objects, c.previous)
	}
	return err
}

// unknown returns what the previous version does not know of a row. Custom resources are the same in every version.
func (c *check) unknown(ctx context.Context, row *dialect.LogRow) ([]string, error) {
	if !crd.BuiltIn(schema.GroupResource{Group: row.Group, Resource: row.Resource}) {
		return nil, nil
	}
	value, err := c.decode(ctx)(sqlstore.Resource{Group: row.Group, Name: row.Resource}, row.Key, row.Value)
	if err != nil {
		return nil, err
	}
	return c.previous.Unknown(value)
}
