package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/server"
	"github.com/sqube/sqube/server/kubecopy"
	"github.com/sqube/sqube/sqlstore/inspect"
	"github.com/sqube/sqube/sqlstore/origin"
)

// copied is what a server in memory starts on.
type copied struct {
	from string // the flag --from; "" for an empty cluster
	when string // the flag --at

	at     origin.At
	dir    string    // has the copy of a cluster; "" if the source is none
	moment time.Time // once it is copied
}

// fetch copies a source that is a cluster into a private folder, which remove removes. The server gets the range of Services of a source that
// is a cluster or a database, unless its flag is set.
func (c *copied) fetch(cmd *cobra.Command, o *server.Options) (remove func() error, err error) {
	remove = func() error { return nil }
	if c.from == "" || !o.InMemory {
		return remove, nil
	}
	if strings.HasPrefix(c.from, kubecopy.Prefix) && c.when == "" { // else complete says what is wrong
		if c.dir, err = os.MkdirTemp("", "sqube-copy-"); err != nil {
			return remove, err
		}
		remove = func() error { return os.RemoveAll(c.dir) }
		if _, err := copyOf(cmd, c.from, c.file()); err != nil {
			return remove, err
		}
	}
	if ranges := c.serviceRanges(cmd.Context()); len(ranges) > 0 && !cmd.Flags().Changed("service-cluster-ip-range") {
		o.ServiceClusterIPRange = strings.Join(ranges, ",")
	}
	return remove, nil
}

// serviceRanges returns the range of Services in a source that is a database, nil if it is not known.
func (c *copied) serviceRanges(ctx context.Context) (ranges []string) {
	if origin.IsFollowed(c.file()) {
		return nil
	}
	reader, remove, err := c.open(ctx)
	if err != nil {
		return nil // fill says so
	}
	const kubernetes = "SELECT value FROM log WHERE api_group = 'networking.k8s.io' AND resource = 'servicecidrs' AND key = 'kubernetes' AND replaced_by IS NULL"
	err = reader.Query(ctx, kubernetes, nil, func(row dialect.Row) error {
		var value []byte
		var cidr networkingv1.ServiceCIDR
		if err := row.Scan(&value); err != nil || json.Unmarshal(value, &cidr) != nil { // it is encrypted
			return err
		}
		ranges = cidr.Spec.CIDRs
		return nil
	})
	if errors.Join(err, reader.Close(), remove()) != nil {
		return nil
	}
	return ranges
}

// open opens a source that is a database. remove is to be called after it was closed.
func (c *copied) open(ctx context.Context) (reader dialect.Reader, remove func() error, err error) {
	remove = func() error { return nil }
	switch dump, err := isPgDump(c.file()); {
	case err != nil:
		return nil, remove, err
	case dump:
		return nil, remove, origin.ErrPgDump
	}
	from, err := sourceDatabase(c.file())
	if err == nil {
		err = from.Complete()
	}
	if err == nil {
		from, remove, err = from.Current(ctx)
	}
	if err != nil {
		return nil, remove, err
	}
	reader, err = from.OpenReader(ctx)
	return reader, remove, err
}

// file is the database that is copied.
func (c *copied) file() string {
	if c.dir == "" {
		return c.from
	}
	return filepath.Join(c.dir, "cluster.db")
}

func (c *copied) addFlags(fs *pflag.FlagSet, o *server.Options) {
	fs.StringVar(&c.from, "from", "", "With --in-memory: start on a copy of a backup, to try things on. What sqube restore takes: a file of sqube backup, a folder or s3://BUCKET/PREFIX of backup --follow or serve --archive, or a database, even one that is served; or kube:CONTEXT, a cluster of any kind that a kubeconfig reaches, as sqube copy copies it, without the values of Secrets. It does not change. The copy has keys of its own, and no history from before.")
	classify(fs, "from")
	fs.StringVar(&c.when, "at", "", "With --from: the revision, time such as 2026-11-21T10:00:00Z, or how long ago, such as 10h, whose state is copied. If unset, the newest.")
	fs.StringSliceVar(&o.Outbound, "from-outbound", nil, "With --from: addresses, HOST or HOST:PORT, to which the server may connect because objects of the cluster name them: nodes, pods, webhooks, aggregated API servers. '*' for all. If unset, none: their requests fail, and admission goes on as if there were no webhooks.")
}

func (c *copied) complete(o *server.Options) (err error) {
	switch {
	case c.from == "" && (c.when != "" || len(o.Outbound) > 0):
		return errors.New("--at and --from-outbound need --from")
	case c.from == "":
		return nil
	case !o.InMemory:
		return errors.New("--from needs --in-memory: to serve a backup for good, sqube restore it first")
	case strings.HasPrefix(c.from, kubecopy.Prefix) && c.when != "":
		return errors.New("--at is for backups: a cluster is copied as it is now")
	}
	if c.when != "" {
		if c.at.Revision, err = strconv.ParseInt(c.when, 10, 64); err != nil {
			c.at.Revision = 0
			c.at.Time, err = ago("--at", c.when, time.Now())
		}
	}
	o.CopyOf, o.KeysVary = c.from, true
	if origin.IsFollowed(c.from) {
		return err
	}
	from, failed := sourceDatabase(c.file())
	if failed == nil && !from.Shared() {
		_, failed = os.Stat(from.Path)
	}
	if failed != nil {
		return errors.Join(err, fmt.Errorf("--from: %w", failed))
	}
	if c.dir == "" {
		o.CopyOf = cmp.Or(from.Path, from.String()) // without a password
	}
	return err
}

// fill fills an empty database.
func (c *copied) fill(ctx context.Context, engine dialect.Engine, o *server.Options) (err error) {
	if c.from == "" {
		return nil
	}
	remove := func() error { return nil }
	c.moment, err = origin.Copy(ctx, engine, c.file(), c.at, func(ctx context.Context) (reader dialect.Reader, err error) {
		reader, remove, err = c.open(ctx)
		return reader, err
	})
	err = errors.Join(err, remove())
	if c.dir != "" {
		err = errors.Join(err, os.RemoveAll(c.dir))
	}
	if err == nil {
		err = decryptable(ctx, engine, o.Encryption)
	}
	if err != nil {
		return fmt.Errorf("--from %s: %w", o.CopyOf, err)
	}
	return nil
}

// describe prints what is served.
func (c *copied) describe(o *server.Options) {
	if c.from != "" {
		fmt.Printf("  a copy of %s, as of %s; it calls no webhooks, nodes or other servers without --from-outbound\n", o.CopyOf, inspect.Stamp(c.moment))
	}
}
