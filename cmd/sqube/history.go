package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sqube/sqube/cmd/sqube/internal/terminal"
	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/server/changes"
	"github.com/sqube/sqube/server/undo"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/fieldpath"
	"github.com/sqube/sqube/sqlstore/inspect"
	"github.com/sqube/sqube/sqlstore/logbackup"
)

func historyCommand() *cobra.Command {
	var i inspector
	var f historyFilter
	var output string
	var kept bool
	cmd := &cobra.Command{
		Use:   "history RESOURCE NAME | --kept",
		Short: "List an object's changes: when, by whom, and which fields",
		Long: `List an object's changes: when, by whom, and which fields. It reads the database, or a
backup's, or an archive (--archive), so it needs no server; sqube changes asks a server.
The list reaches back as far as versions are kept (serve --history), or as far as the
archive. --kept prints since when that is.

` + objectArguments,
		Example: `  sqube history deploy/web -n prod
  sqube history deploy/web -n prod --no-controllers --since 2h
  sqube history deployments.apps -n prod web --archive /mnt/archive/sqube
  sqube history --kept`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if kept {
				if len(args) > 0 {
					return errors.New("--kept is about the whole database: it takes no resource and name")
				}
				return listKept(cmd, i.datastore)
			}
			if output != "" && output != "json" {
				return fmt.Errorf("--output must be json, not %q", output)
			}
			if err := f.parse(time.Now()); err != nil {
				return err
			}
			if err := i.open(cmd.Context(), args); err != nil {
				return err
			}
			defer closing(&err, i.close)
			all := []change{} // not null in JSON
			err = i.history(cmd.Context(), func(v *inspect.Version) error {
				if !f.matches(v) {
					return nil
				}
				c, err := i.change(cmd, v)
				all = append(all, c)
				return err
			})
			if gap := new(logbackup.Gap); err != nil && !errors.As(err, &gap) {
				return i.about(err)
			}
			return errors.Join(printChanges(cmd.OutOrStdout(), output, all), err)
		},
	}
	cmd.AddCommand(purgeCommand())
	i.addFlags(cmd)
	fs := cmd.Flags()
	fs.BoolVar(&kept, "kept", false, "Print how far back versions are kept, and how much space they take.")
	fs.BoolVar(&f.people, "no-controllers", false, "Leave out what controllers, the scheduler and the server itself changed.")
	fs.StringVar(&f.user, "user", "", "Only the changes of this user, or of others in their name, such as jane or system:serviceaccount:prod:robot.")
	fs.StringVar(&f.impersonated, "impersonated-user", "", "Only what others did in the name of this user, by impersonation.")
	fs.StringVar(&f.transaction, "transaction", "", "Only what this transaction did.")
	fs.StringVar(&f.since, "since", "", "Only the changes since then: a time such as 2026-11-21T10:00:00Z, or how long ago, such as 2h.")
	fs.StringVarP(&output, "output", "o", "", "Print the changes as 'json'.")
	return cmd
}

// printChanges prints changes as a table, or as JSON.
func printChanges(out io.Writer, format string, all []change) error {
	if format == "json" {
		text, err := terminal.JSON(all)
		if err == nil {
			_, err = out.Write(text)
		}
		return err
	}
	heads := []string{"REVISION", "TIME", "OPERATION", "USER", "MANAGER", "CHANGED"}
	together := slices.ContainsFunc(all, func(c change) bool { return c.Transaction != "" })
	if together {
		heads = slices.Insert(heads, len(heads)-1, "TRANSACTION")
	}
	table := newTable(out, heads...)
	for _, c := range all {
		cells := []string{fmt.Sprint(c.Revision), c.Time, string(c.Operation), changes.Author(c.User, c.ImpersonatedUser), c.Manager, c.fields()}
		if together {
			cells = slices.Insert(cells, len(cells)-1, c.Transaction)
		}
		table.row(cells...)
	}
	return table.end()
}

// historyFilter selects changes.
type historyFilter struct {
	people       bool
	user, since  string
	impersonated string
	transaction  string
	from         int64 // since in Unix milliseconds
}

// parse reads --since.
func (f *historyFilter) parse(now time.Time) error {
	if f.since == "" {
		return nil
	}
	from, err := ago("--since", f.since, now)
	f.from = from.UnixMilli()
	return err
}

func (f *historyFilter) matches(v *inspect.Version) bool {
	if transaction, _ := sqlstore.SplitAuditID(v.AuditID); f.transaction != "" && f.transaction != transaction {
		return false
	}
	return v.WrittenAt >= f.from && (f.user == "" || f.user == v.User || f.user == v.ImpersonatedUser) && (f.impersonated == "" || v.ImpersonatedUser == f.impersonated) &&
		!(f.people && v.ImpersonatedUser == "" && undo.Automatic(v.User))
}

// change is what history prints of a version.
type change struct {
	Revision  int64             `json:"revision"`
	Time      string            `json:"time"`
	Operation dialect.Operation `json:"operation"`
	User      string            `json:"user"`
	// ImpersonatedUser is the user in whose name User did it, "" if in their own.
	ImpersonatedUser string `json:"impersonatedUser,omitempty"`
	Manager          string `json:"manager"`
	// Transaction is the name of the transaction that made the change with others, "" if none did.
	Transaction string `json:"transaction,omitempty"`
	// Changed are the paths of the fields that an update changed; nil if the previous version is no longer kept.
	Changed []string `json:"changed,omitempty"`
}

// fields returns the changed fields for people.
func (c *change) fields() string {
	if c.Operation == dialect.Update && c.Changed == nil {
		return "(the previous version is no longer kept)"
	}
	return strings.Join(c.Changed, " ")
}

// written returns when a version was written.
func written(v *inspect.Version) string {
	return time.UnixMilli(v.WrittenAt).UTC().Format(time.RFC3339)
}

func (i *inspector) change(cmd *cobra.Command, v *inspect.Version) (change, error) {
	c := change{Revision: v.ID, Time: written(v), Operation: v.Operation, User: v.User, ImpersonatedUser: v.ImpersonatedUser, Manager: v.FieldManager}
	c.Transaction, _ = sqlstore.SplitAuditID(v.AuditID)
	if v.Fields != nil {
		c.Changed = append([]string{}, v.Fields.Paths...)
	}
	if v.Operation != dialect.Update || v.Previous == nil || v.GivenUp {
		return c, nil
	}
	before, err := i.value(cmd.Context(), v.Key, v.Previous)
	if err != nil {
		return c, err
	}
	after, err := i.value(cmd.Context(), v.Key, v.Value)
	if err != nil {
		return c, err
	}
	paths, err := fieldpath.Changed(before, after)
	c.Changed = append([]string{}, paths...)
	return c, err
}
