package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sqube/sqube/cmd/sqube/internal/report"
	"github.com/sqube/sqube/cmd/sqube/internal/terminal"
	"github.com/sqube/sqube/server/changes"
	"github.com/sqube/sqube/server/fleet/v1alpha1"
)

// stateOptions are the flags of sqube cluster state.
type stateOptions struct {
	host
	since         int64
	status, owned bool
}

func hostedStateCommand() *cobra.Command {
	var o stateOptions
	cmd := &cobra.Command{
		Use:   "state NAME",
		Short: "Print what differs in a cluster from when it was forked, or from a revision",
		Long: `Print which objects of a cluster were created, updated or deleted since it was forked, or
since a revision, by whom, and which fields differ. Of a cluster that was not forked, it
is all that exists. What controllers make is left out, and so are statuses, Events and
Leases. Secret values are shown to those who may get them in the cluster.`,
		Example: `  sqube cluster state try-it
  sqube cluster state dev --since 1200 -o json | jq '.items[] | select(.operation == "deleted")'`,
		Args: oneArgument("one NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.since < 0 {
				return fmt.Errorf("--since must be a revision, not %d", o.since)
			}
			if err := o.load(); err != nil {
				return err
			}
			return o.run(cmd, args[0])
		},
	}
	o.addFlags(cmd, "json")
	fs := cmd.Flags()
	fs.Int64Var(&o.since, "since", 0, "Revision from which to compare. If unset, that at which the cluster was forked.")
	fs.BoolVar(&o.status, "status", false, "Compare the status, too.")
	fs.BoolVar(&o.owned, "owned", false, "Also what controllers and the server itself make, Events and Leases.")
	return cmd
}

// run reads all pages.
func (o *stateOptions) run(cmd *cobra.Command, name string) error {
	out := cmd.OutOrStdout()
	var all *v1alpha1.ClusterState
	found := 0
	for token := ""; ; {
		request := o.in(o.fleet.Get(), name).SubResource("state").Param("status", fmt.Sprint(o.status)).Param("owned", fmt.Sprint(o.owned))
		if o.since != 0 {
			request = request.Param("since", fmt.Sprint(o.since))
		}
		if token != "" {
			request = request.Param("continue", token)
		}
		text, err := answer(request.Do(cmd.Context()))
		if err != nil {
			return o.explain(err)
		}
		page := &v1alpha1.ClusterState{}
		if err := decodeJSON(text, page); err != nil {
			return err
		}
		found += len(page.Items)
		token, page.Continue = page.Continue, ""
		switch {
		case o.output == "":
			for i := range page.Items {
				if err := printDifference(out, &page.Items[i]); err != nil {
					return err
				}
			}
		case all == nil:
			all = page
		default:
			all.Items = append(all.Items, page.Items...)
		}
		if token == "" {
			break
		}
	}
	if o.output != "" {
		return o.printObject(out, all)
	}
	if found == 0 {
		_, err := fmt.Fprintln(cmd.ErrOrStderr(), "Nothing differs.")
		return err
	}
	return nil
}

// printDifference prints what happened to an object, and the fields that differ.
func printDifference(out io.Writer, d *v1alpha1.ObjectDifference) error {
	text := &strings.Builder{}
	version, _ := schema.ParseGroupVersion(d.APIVersion)
	line := fmt.Sprintf("%-7s  %s", d.Operation, report.Name(schema.GroupResource{Group: version.Group, Resource: d.Resource}, d.Namespace, d.Name))
	if d.Recreated {
		line += " (deleted and created again)"
	}
	if d.User != "" {
		line += " by " + changes.Author(d.User, d.ImpersonatedUser)
	}
	fmt.Fprintln(text, terminal.Printable(line+" at "+d.Time.UTC().Format(time.RFC3339)))
	fields := make([]changes.FieldChange, 0, len(d.Changed))
	for _, f := range d.Changed {
		fields = append(fields, changes.FieldChange(f))
	}
	for _, field := range report.Fields(fields) {
		fmt.Fprintln(text, "    "+terminal.Printable(field))
	}
	_, err := io.WriteString(out, text.String())
	return err
}

// decodeJSON decodes an answer.
func decodeJSON(text []byte, into any) error {
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("the server's answer can't be read: %w", err)
	}
	return nil
}
