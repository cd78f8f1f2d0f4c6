package servertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/dialect/sqlite"
	"github.com/sqube/sqube/server/wholefile"
	"github.com/sqube/sqube/sqlstore/origin"
)

// openDatabase opens a database in memory, and fills it with a copy.
func (s *Server) openDatabase(ctx context.Context, o Options) (err error) {
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

// Save writes the state of the running server to a new file, for Options.From.
func (s *Server) Save(file string) error {
	return wholefile.Create(file, func(f *os.File) error { return s.engine.CopyMemory(context.Background(), f.Name()) })
}

// copyTo fills an empty database with what Options.From had at Options.At, and returns that moment.
func copyTo(ctx context.Context, to dialect.Engine, o Options) (moment time.Time, err error) {
	if o.AtRevision != 0 && !o.At.IsZero() {
		return moment, errors.New("give one of Options.At and Options.AtRevision")
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
