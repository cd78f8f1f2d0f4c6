package servertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/dialect/sqlite"
	"github.com/sqube/sqube/server/kubecopy"
	"github.com/sqube/sqube/server/wholefile"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/origin"
)

// openDatabase opens a database in memory, and fills it with a copy.
func (s *Server) openDatabase(ctx context.Context, o Options) (err error) {
	if o.base != nil {
		return s.forkDatabase(ctx, o)
	}
	if o.From == "" && (o.AtRevision != 0 || !o.At.IsZero()) {
		return errors.New("Options.At and Options.AtRevision need Options.From")
	}
	if s.engine, err = sqlite.OpenMemory(ctx); err != nil || o.From == "" {
		return err
	}
	if s.moment, err = copyTo(ctx, s.engine, o); err != nil {
		return errors.Join(fmt.Errorf("Options.From %s: %w", o.From, err), s.engine.Close())
	}
	return nil
}

// Fork starts another server on a copy of this one, which goes on: with its objects and their history, but with keys of its own, as Options.From
// does. It takes milliseconds, so that each test can have a fork of a server that TestMain has filled. The fork can be in a bubble, and this
// server outside of it. Options.CRDs and Webhooks are what the fork has beside those of this server; Options.From must be empty.
func (s *Server) Fork(t testing.TB, o Options) *Server {
	t.Helper()
	o.base = s
	return Run(t, o)
}

// forkDatabase opens a copy of another server's database in memory.
func (s *Server) forkDatabase(ctx context.Context, o Options) (err error) {
	if o.From != "" {
		return errors.New("Options.From is not for Server.Fork")
	}
	if s.engine, err = o.base.engine.CloneMemory(ctx); err != nil {
		return err
	}
	revision, err := origin.Fork(ctx, s.engine, origin.At{Revision: o.AtRevision, Time: o.At})
	if err == nil {
		err = s.engine.Query(ctx, "SELECT written_at FROM log WHERE id <= ? ORDER BY id DESC LIMIT 1", []any{revision}, func(row dialect.Row) error {
			var at int64
			defer func() { s.moment = time.UnixMilli(at) }()
			return row.Scan(&at)
		})
	}
	if err != nil {
		return errors.Join(fmt.Errorf("forking a server: %w", err), s.engine.Close())
	}
	return nil
}

// Save writes the state of the running server to a new file, for Options.From.
func (s *Server) Save(file string) error {
	return wholefile.Create(file, func(f *os.File) error { return s.engine.CopyMemory(context.Background(), f.Name()) })
}

// copyTo fills an empty database with what Options.From had at Options.At, and returns that moment.
func copyTo(ctx context.Context, to dialect.Engine, o Options) (moment time.Time, err error) {
	if o.AtRevision != 0 && !o.At.IsZero() {
		return moment, errors.New("give one of Options.At and Options.AtRevision")
	}
	if name, ok := strings.CutPrefix(o.From, kubecopy.Prefix); ok {
		return copyCluster(ctx, to, name, o)
	}
	remove := func() error { return nil }
	moment, err = origin.Copy(ctx, to, o.From, origin.At{Revision: o.AtRevision, Time: o.At}, func(ctx context.Context) (dialect.Reader, error) {
		var current string
		switch dump, err := origin.IsPgDump(o.From); {
		case err != nil:
			return nil, err
		case dump:
			return nil, origin.ErrPgDump
		}
		if err = sqlite.Complete(o.From); err != nil {
			return nil, err
		}
		if current, remove, err = sqlite.Current(ctx, o.From); err != nil {
			return nil, err
		}
		return sqlite.OpenReader(ctx, current)
	})
	return moment, errors.Join(err, remove())
}

// collisions is far more than the objects of a cluster that have resourceVersions of others, and get new ones.
const collisions = 1 << 20

// copyCluster fills an empty database with what a user may read of a cluster, and returns when that was.
func copyCluster(ctx context.Context, to dialect.Engine, context string, o Options) (moment time.Time, err error) {
	if o.AtRevision != 0 || !o.At.IsZero() {
		return moment, errors.New("Options.At and Options.AtRevision are for backups: a cluster is copied as it is")
	}
	config, err := kubecopy.Config(context)
	if err != nil {
		return moment, err
	}
	from, err := kubecopy.Open(ctx, config, kubecopy.Options{UserAgent: "sqube (servertest)"})
	if err != nil {
		return moment, err
	}
	return origin.Fill(ctx, to, from.Revision+collisions, origin.At{}, func(yield func(*dialect.LogRow) error) error {
		return from.Each(ctx, func(row *kubecopy.Row) error {
			if row.Write == nil {
				return nil
			}
			return yield(row.Write.LogRow(row.Revision, sqlstore.Author{User: sqlstore.ImportAuthor}, time.Now()))
		})
	})
}
