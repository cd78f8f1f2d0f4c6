package main

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/sqube/sqube/cmd/sqube/internal/datastore"
	"github.com/sqube/sqube/cmd/sqube/internal/terminal"
	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/migrations"
	"github.com/sqube/sqube/server/kubecopy"
	"github.com/sqube/sqube/sqlstore"
)

// clusterCopy is a copy of a cluster, which is read through its API.
type clusterCopy struct {
	cluster
	options kubecopy.Options
}

func copyCommand() *cobra.Command {
	var c clusterCopy
	cmd := &cobra.Command{
		Use:   "copy FILE",
		Short: "Copy a cluster, of any kind, into a file: to look at, and to try things on",
		Long: `Copy what a user may read of a cluster into a new file: of any Kubernetes from 1.25 on,
through its API, as of one moment. The cluster is only read, a page at a time. What could
not be read or stored is listed.

The values of Secrets are not stored: each is replaced by as many letters x, unless
--secrets is given.`,
		Example: `  sqube copy --context prod prod.db
  sqube console prod.db
  sqube serve --in-memory --from prod.db
  sqube serve --in-memory --from kube:prod`,
		Args: oneArgument("one FILE, to be created"),
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(cmd, args[0]) },
	}
	c.cluster.addFlags(cmd.Flags())
	c.addFlags(cmd.Flags())
	return cmd
}

func (c *clusterCopy) addFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&c.options.Secrets, "secrets", false, "Store the values of Secrets.")
	fs.StringSliceVarP(&c.options.Namespaces, "namespace", "n", nil, "Namespaces whose objects are copied; can be repeated. If unset, all.")
	fs.StringSliceVar(&c.options.Without, "without", nil, "Resources that are not copied, such as events or leases.coordination.k8s.io.")
}

func (c *clusterCopy) run(cmd *cobra.Command, file string) error {
	if datastore.Named(file) {
		return errors.New("want a file to be created")
	}
	cmd.SetContext(untilInterrupt(cmd.Context()))
	report, err := c.copy(cmd, file)
	if err != nil {
		return err
	}
	if err := report.print(cmd.OutOrStdout()); err != nil {
		return err
	}
	taken, _ := report.total()
	fmt.Fprintf(cmd.OutOrStdout(), "\n%s holds %d objects, as of revision %d", file, taken, report.revision)
	if !c.options.Secrets {
		fmt.Fprint(cmd.OutOrStdout(), ", without the values of Secrets")
	}
	fmt.Fprintf(cmd.OutOrStdout(), "\nLook at it: sqube console %s\nTry things: sqube serve --in-memory --from %s\n", file, file)
	return nil
}

// copyReport is an importReport of a cluster.
type copyReport struct {
	importReport
	revision int64
}

// copy reads the cluster into a new file.
func (c *clusterCopy) copy(cmd *cobra.Command, file string) (*copyReport, error) {
	ctx := cmd.Context()
	log := klog.CaptureState()
	defer log.Restore()
	klog.SetLogger(logr.Discard()) // the libraries log for servers
	if err := c.load(); err != nil {
		return nil, err
	}
	var read atomic.Int64
	defer progress(cmd, func() string { return fmt.Sprintf("%d objects", read.Load()) })()
	c.options.Progress = func(n int) { read.Store(int64(n)) }
	c.options.UserAgent = "sqube/" + migrations.Release + " (copy)"
	from, err := kubecopy.Open(ctx, c.config, c.options)
	if err != nil {
		return nil, terminal.OneLine(fmt.Errorf("reading %s: %w", c.config.Host, err))
	}
	report := &copyReport{newImportReport(), from.Revision}
	counter, err := jumpedCounter(time.Now(), dialect.End{Revision: from.Revision})
	if err != nil {
		return nil, err
	}
	_, err = datastore.Datastore{Path: file}.Fill(ctx, false, func(engine datastore.Engine, _ dialect.End) error {
		return engine.Load(ctx, counter, func(add func(*dialect.LogRow) error) error {
			return from.Each(ctx, func(row *kubecopy.Row) error {
				report.add(&row.Result)
				if row.Write == nil {
					return nil
				}
				return add(row.Write.LogRow(row.Revision, sqlstore.Author{User: sqlstore.ImportAuthor}, time.Now()))
			})
		}, nil)
	})
	if errors.Is(err, dialect.ErrNotEmpty) {
		return nil, fmt.Errorf("%s exists: give another FILE", file)
	}
	if err != nil {
		return nil, terminal.OneLine(fmt.Errorf("copying %s: %w", c.config.Host, err))
	}
	for _, unread := range from.Unread {
		report.skippedFor(skippedKey{unread.Resource, unread.Reason})
	}
	for _, later := range from.Unaligned {
		report.skippedFor(skippedKey{later.Resource, "it was read a little later than the rest: " + later.Reason})
	}
	return report, nil
}

// copyOf copies a source that is a cluster into a new file. It shows progress on the screen of cmd.
func copyOf(cmd *cobra.Command, source, file string) (*copyReport, error) {
	var c clusterCopy
	c.overrides.CurrentContext = strings.TrimPrefix(source, kubecopy.Prefix)
	return c.copy(cmd, file)
}
