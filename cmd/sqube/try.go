package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/cmd/sqube/internal/manifests"
	"github.com/sqube/sqube/cmd/sqube/internal/report"
	"github.com/sqube/sqube/cmd/sqube/internal/terminal"
	"github.com/sqube/sqube/server/transaction"
	"github.com/sqube/sqube/server/trial"
)

// tryOptions are the flags of sqube try.
type tryOptions struct {
	from  string
	span  time.Duration
	files manifests.Files
}

func tryCommand() *cobra.Command {
	var o tryOptions
	cmd := &cobra.Command{
		Use:   "try -f FILE",
		Short: "Try a change on a copy of a cluster, and print what it does",
		RunE:  o.run,
	}
	o.files.AddFlags(cmd.Flags(), "apply")
	cmd.Flags().StringVar(&o.from, "from", "", "The copy.")
	cmd.Flags().DurationVar(&o.span, "for", 10*time.Minute, "How long the cluster is watched after the change, in its own time.")
	return cmd
}

func (o *tryOptions) run(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		result, err := trial.Run(cmd.Context(), trial.Options{From: o.from, For: o.span, User: "kubernetes-admin", Groups: []string{user.SystemPrivilegedGroup},
			Command: func(ctx context.Context, kubeconfig []byte) error {
				f, err := os.CreateTemp("", "")
				if err != nil {
					return err
				}
				if _, err := f.Write(kubeconfig); err != nil {
					return err
				}
				f.Close()
				c := exec.CommandContext(ctx, args[0], args[1:]...)
				c.Stdout, c.Stderr, c.Env = os.Stdout, os.Stderr, append(os.Environ(), "KUBECONFIG="+f.Name())
				return c.Run()
			}})
		if err != nil {
			return err
		}
		return report.Text(cmd.OutOrStdout(), result, 0)
	}
	objects, err := o.files.Read(cmd.InOrStdin())
	if err != nil {
		return terminal.OneLine(err)
	}
	manifests.Sort(objects)
	if o.from == "" {
		return errors.New("--from must be given")
	}
	result, err := trial.Run(cmd.Context(), trial.Options{From: o.from, For: o.span, User: "kubernetes-admin", Groups: []string{user.SystemPrivilegedGroup},
		Change: func(ctx context.Context, config *rest.Config) error {
			client, err := transaction.NewClient(config, nil)
			if err != nil {
				return err
			}
			t := client.New("")
			t.FieldManager = "kubectl"
			for _, o := range objects {
				t.Apply(o.Unstructured, false)
			}
			_, err = t.Commit(ctx)
			return err
		}})
	if err != nil {
		return err
	}
	return report.Text(cmd.OutOrStdout(), result, 0)
}
