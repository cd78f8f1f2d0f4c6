package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/sqube/sqube/cmd/sqube/internal/terminal"
	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/server/changes"
	"github.com/sqube/sqube/server/crd"
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
ready for kubectl apply: without its status (unless that is a plain field of a custom
resource) and the fields that the server sets.
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
			plain, err := i.hasPlainStatus(cmd.Context(), stored)
			if err != nil {
				return err
			}
			text, err := shown(stored, whole, plain)
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

// hasPlainStatus reports whether the status of a stored object is a field like others: it is a custom resource whose definition, if that still
// exists, says so.
func (i *inspector) hasPlainStatus(ctx context.Context, stored []byte) (plain bool, err error) {
	name, custom := crd.Definition(schema.GroupResource{Group: i.object.Resource.Group, Resource: i.object.Resource.Name})
	if !custom {
		return false, nil
	}
	version, err := inspect.At(ctx, i.reader, inspect.Object{Resource: definitions, Namespaces: []string{""}, Name: name}, 0)
	if errors.Is(err, inspect.ErrAbsent) || errors.Is(err, inspect.ErrUnknown) {
		return true, nil
	}
	var value []byte
	if err == nil {
		value, err = decrypt(ctx, i.keys, definitions, version.Key, version.Value)
	}
	var definition apiextensionsv1.CustomResourceDefinition
	if err == nil {
		err = json.Unmarshal(value, &definition)
	}
	var object unstructured.Unstructured
	if err == nil {
		err = object.UnmarshalJSON(stored)
	}
	if err != nil {
		return false, fmt.Errorf("customresourcedefinitions.apiextensions.k8s.io %s: %w", name, err)
	}
	return crd.HasPlainStatus(&definition, object.GroupVersionKind().Version), nil
}

// shown returns a stored object as YAML.
func shown(stored []byte, whole, plainStatus bool) ([]byte, error) {
	var object map[string]any
	if err := json.Unmarshal(stored, &object); err != nil { // keeps all digits of integers, unlike encoding/json
		return nil, err
	}
	if !whole {
		undo.Unset(object, plainStatus)
	}
	return terminal.YAML(object)
}
