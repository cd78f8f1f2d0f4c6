package main

import (
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/sqube/sqube/cmd/sqube/internal/terminal"
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

// shown returns a stored object as YAML.
func shown(stored []byte, whole bool) ([]byte, error) {
	var object map[string]any
	if err := json.Unmarshal(stored, &object); err != nil { // keeps all digits of integers, unlike encoding/json
		return nil, err
	}
	if !whole {
		applicable(object)
	}
	return terminal.YAML(object)
}

// applicable removes the fields that clients don't set.
func applicable(object map[string]any) {
	delete(object, "status")
	metadata, _ := object["metadata"].(map[string]any)
	for _, field := range []string{"creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid"} {
		delete(metadata, field)
	}
}
