package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"

	"github.com/sqube/sqube/cmd/sqube/internal/terminal"
	"github.com/sqube/sqube/server/changes"
	"github.com/sqube/sqube/server/transaction"
	"github.com/sqube/sqube/server/transactions"
)

// confirmOptions are the flags of sqube confirm.
type confirmOptions struct {
	cluster
	all bool
}

func confirmCommand() *cobra.Command {
	var o confirmOptions
	cmd := &cobra.Command{
		Use:   "confirm [NAME...]",
		Short: "Confirm transactions that the server would take back otherwise",
		Long: `Confirm transactions that were made with --confirm-within: their changes stay. The server
takes back what nobody has confirmed by its deadline. Without a name, the transactions
are listed that wait to be confirmed.

You can confirm your own transactions, and those of others if you may update
transactions/confirm.`,
		Example: `  sqube confirm
  sqube confirm apply-x7k2p
  sqube confirm --all`,
		RunE: o.run,
	}
	o.addFlags(cmd.Flags())
	cmd.Flags().BoolVar(&o.all, "all", false, "Confirm all of your own transactions that wait to be confirmed.")
	return cmd
}

func (o *confirmOptions) run(cmd *cobra.Command, names []string) error {
	if o.all && len(names) > 0 {
		return errors.New("--all and names must not be given together")
	}
	if err := o.load(); err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if !o.all && len(names) == 0 {
		return o.printUnconfirmed(cmd.Context(), out)
	}
	if o.all {
		waiting, err := o.unconfirmed(cmd.Context())
		if err != nil {
			return err
		}
		who, err := o.whoAmI(cmd.Context())
		if err != nil {
			return err
		}
		for i := range waiting {
			if waiting[i].Status.User == who {
				names = append(names, waiting[i].Name)
			}
		}
		if len(names) == 0 {
			return errors.New("none of your transactions waits to be confirmed")
		}
	}
	client, err := transaction.NewClient(o.config, nil)
	if err != nil {
		return err
	}
	var failed []error
	for _, name := range names {
		if err := confirm(cmd.Context(), client, out, name); err != nil {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// whoAmI returns the name of the user as whom requests are sent.
func (c *cluster) whoAmI(ctx context.Context) (string, error) {
	client, err := authenticationclient.NewForConfig(c.config)
	if err != nil {
		return "", err
	}
	review, err := client.SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", terminal.OneLine(err)
	}
	return review.Status.UserInfo.Username, nil
}

// unconfirmed returns the transactions that wait to be confirmed, or could not be taken back.
func (c *cluster) unconfirmed(ctx context.Context) (waiting []transactions.Transaction, err error) {
	list := &transactions.TransactionList{}
	if err := c.client.Get().Resource(transactions.Resource).Do(ctx).Into(list); err != nil {
		return nil, terminal.OneLine(err)
	}
	for _, t := range list.Items {
		if t.Status.State == transactions.AwaitsConfirmation || t.Status.State == transactions.TakingBackFailed {
			waiting = append(waiting, t)
		}
	}
	return waiting, nil
}

// printUnconfirmed lists the transactions that wait to be confirmed.
func (c *cluster) printUnconfirmed(ctx context.Context, out io.Writer) error {
	waiting, err := c.unconfirmed(ctx)
	if err != nil {
		return err
	}
	if len(waiting) == 0 {
		_, err := fmt.Fprintln(out, "No transaction waits to be confirmed.")
		return err
	}
	table := newTable(out, "NAME", "USER", "AGE", "OPERATIONS", "STATE", "DEADLINE", "MESSAGE")
	for i := range waiting {
		t := &waiting[i]
		table.row(t.Name, t.Status.User, duration.HumanDuration(time.Since(t.CreationTimestamp.Time)), fmt.Sprint(len(t.Status.Operations)), string(t.Status.State),
			cmp.Or(untilDeadline(t.Status.Deadline), changes.None), cmp.Or(t.Status.Message, changes.None))
	}
	return table.end()
}

// untilDeadline returns how long there is until a deadline, "" after it.
func untilDeadline(deadline *metav1.Time) string {
	if deadline == nil || time.Until(deadline.Time) < 0 {
		return ""
	}
	return duration.HumanDuration(time.Until(deadline.Time))
}
