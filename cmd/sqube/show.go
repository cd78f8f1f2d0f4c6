package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/sqube/sqube/cmd/sqube/internal/terminal"
	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/server/changes"
	"github.com/sqube/sqube/server/undo"
	"github.com/sqube/sqube/sqlstore/inspect"
	"github.com/sqube/sqube/sqlstore/logbackup"
)

func showCommand() *cobra.Command {
	var i inspector
	var at string
	var whole bool
	cmd := &cobra.Command{
		Use:   "show RESOURCE NAME",
		Short: "Print an object as it is, or as it was at a revision or a time, ready for kubectl apply",
		Long: `Print an object as it is, or as it was at a revision (see sqube history) or a time,
ready for kubectl apply: without its status and the fields that the server sets.
Of a deleted object, it prints the last version, and on standard error when and by whom
the object was deleted.

` + objectArguments,
		Example: "  sqube show deployments.apps -n prod web --at 4711 | kubectl apply -f -",
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if err := i.open(cmd.Context(), args); err != nil {
				return err
			}
			defer closing(&err, i.close)
			revision, err := i.revisionAt(cmd.Context(), "--at", at)
			if err != nil {
				return err
			}
			version, err := i.at(cmd.Context(), revision)
			if revision == 0 && (errors.Is(err, inspect.ErrAbsent) || errors.Is(err, inspect.ErrUnknown) && i.archive != nil) {
				version, err = i.deleted(cmd.Context(), cmd.ErrOrStderr())
			}
			if err != nil {
				return i.about(err)
			}
			stored, err := i.value(cmd.Context(), version.Key, version.Value)
			if err != nil {
				return i.about(err)
			}
			text, err := shown(stored, whole)
			if err != nil {
				return i.about(err)
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
	i.addFlags(cmd)
	cmd.Flags().StringVar(&at, "at", "", "Revision (resourceVersion), or time such as 2026-11-21T10:00:00Z, at which to show the object. If unset, now.")
	cmd.Flags().BoolVar(&whole, "whole", false, "Print the whole stored object.")
	return cmd
}

// deleted returns the last version of an object that does not exist any more, and writes to notes when and by whom it was deleted.
func (i *inspector) deleted(ctx context.Context, notes io.Writer) (last *inspect.Version, err error) {
	var end *inspect.Version
	err = i.history(ctx, func(v *inspect.Version) error {
		if v.Operation == dialect.Delete {
			end = v
		} else {
			last, end = v, nil
		}
		return nil
	})
	if gap := new(logbackup.Gap); err != nil && !errors.As(err, &gap) {
		return nil, err
	}
	if end == nil {
		return nil, cmp.Or(err, inspect.ErrUnknown)
	}
	how := fmt.Sprintf("deleted at %s by %s (revision %d)", written(end), terminal.Printable(changes.Author(end.User, end.ImpersonatedUser)), end.ID)
	if last == nil || end.Replaces != last.ID {
		return nil, fmt.Errorf("it was %s, and its last version is no longer kept", how)
	}
	fmt.Fprintf(notes, "%s was %s. This is its last version, of revision %d.\n", terminal.Printable(i.called()), how, last.ID)
	return last, nil
}

// shown returns a stored object as YAML.
func shown(stored []byte, whole bool) ([]byte, error) {
	var object map[string]any
	if err := json.Unmarshal(stored, &object); err != nil { // keeps all digits of integers, unlike encoding/json
		return nil, err
	}
	if !whole {
		undo.Unset(object)
	}
	return terminal.YAML(object)
}
