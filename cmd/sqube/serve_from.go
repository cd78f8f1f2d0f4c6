package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/server"
	"github.com/sqube/sqube/sqlstore/inspect"
	"github.com/sqube/sqube/sqlstore/origin"
)

// copied is what a server in memory starts on.
type copied struct {
	from string // the flag --from; "" for an empty cluster
	when string // the flag --at

	at     origin.At
	moment time.Time // once it is copied
}

func (c *copied) addFlags(fs *pflag.FlagSet, o *server.Options) {
	fs.StringVar(&c.from, "from", "", "With --in-memory: start on a copy of a backup, to try things on. What sqube restore takes: a file of sqube backup, a folder or s3://BUCKET/PREFIX of backup --follow or serve --archive, or a database, even one that is served. It does not change. The copy has keys of its own, and no history from before.")
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
	from, failed := sourceDatabase(c.from)
	if failed == nil && !from.Shared() {
		_, failed = os.Stat(from.Path)
	}
	if failed != nil {
		return errors.Join(err, fmt.Errorf("--from: %w", failed))
	}
	o.CopyOf = cmp.Or(from.Path, from.String()) // without a password
	return err
}

// fill fills an empty database.
func (c *copied) fill(ctx context.Context, engine dialect.Engine, o *server.Options) (err error) {
	if c.from == "" {
		return nil
	}
	remove := func() error { return nil }
	c.moment, err = origin.Copy(ctx, engine, c.from, c.at, func(ctx context.Context) (dialect.Reader, error) {
		switch dump, err := isPgDump(c.from); {
		case err != nil:
			return nil, err
		case dump:
			return nil, origin.ErrPgDump
		}
		from, err := sourceDatabase(c.from)
		if err == nil {
			err = from.Complete()
		}
		if err == nil {
			from, remove, err = from.Current(ctx)
		}
		if err != nil {
			return nil, err
		}
		return from.OpenReader(ctx)
	})
	err = errors.Join(err, remove())
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
