package datastore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/dialect/sqlite"
	"github.com/sqube/sqube/server/fleet"
	"github.com/sqube/sqube/sqlstore"
)

// Memory are the databases of clusters of a server that keeps nothing on disk. It implements fleet.Databases.
type Memory struct {
	mu  sync.Mutex
	all map[string]*memoryDatabase // by id
}

type memoryDatabase struct {
	*sqlite.Engine
	mu     sync.Mutex
	opened bool
	begins int64 // the revision of the fork
}

// NewMemory returns no databases.
func NewMemory() *Memory { return &Memory{all: map[string]*memoryDatabase{}} }

// make makes a database with an engine, unless there is one, and returns with which revision it begins.
func (m *Memory) make(id string, begins func() (*sqlite.Engine, int64, error)) (int64, error) {
	if d, err := m.find(id); err == nil {
		return d.begins, nil
	}
	engine, revision, err := begins()
	if err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if d := m.all[id]; d != nil {
		return d.begins, engine.Close()
	}
	m.all[id] = &memoryDatabase{Engine: engine, begins: revision}
	return revision, nil
}

func (m *Memory) find(id string) (*memoryDatabase, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if d := m.all[id]; d != nil {
		return d, nil
	}
	return nil, fmt.Errorf("the database %s: %w", id, fs.ErrNotExist)
}

// Create implements fleet.Databases.
func (m *Memory) Create(ctx context.Context, id string) error {
	_, err := m.make(id, func() (*sqlite.Engine, int64, error) {
		engine, err := sqlite.OpenMemory(ctx)
		return engine, 0, err
	})
	return err
}

// Fork implements fleet.Databases.
func (m *Memory) Fork(ctx context.Context, from, to string, at fleet.Moment) (int64, error) {
	return m.make(to, func() (engine *sqlite.Engine, revision int64, err error) {
		original, err := m.find(from)
		if err == nil {
			engine, err = original.CloneMemory(ctx)
		}
		if err != nil {
			return nil, 0, err
		}
		if err := forkTo(ctx, at, &revision)(engine); err != nil {
			return nil, 0, errors.Join(err, engine.Close())
		}
		return engine, revision, nil
	})
}

// Restore implements fleet.Databases, with objects without history.
func (m *Memory) Restore(ctx context.Context, backup, to string, at fleet.Moment) (int64, error) {
	return m.make(to, func() (engine *sqlite.Engine, revision int64, err error) {
		if engine, err = sqlite.OpenMemory(ctx); err != nil {
			return nil, 0, err
		}
		if revision, err = restoreObjects(ctx, engine, backup, at); err != nil {
			return nil, 0, errors.Join(err, engine.Close())
		}
		return engine, revision, nil
	})
}

// Export implements fleet.Databases.
func (m *Memory) Export(ctx context.Context, id, file string) error {
	d, err := m.find(id)
	if err != nil {
		return err
	}
	return d.CopyMemory(ctx, file)
}

// Import implements fleet.Databases.
func (m *Memory) Import(ctx context.Context, id, file string) error {
	_, err := m.make(id, func() (*sqlite.Engine, int64, error) {
		engine, err := sqlite.OpenMemory(ctx)
		if err != nil {
			return nil, 0, err
		}
		if err := importInto(ctx, engine, file); err != nil {
			return nil, 0, errors.Join(err, engine.Close())
		}
		return engine, 0, nil
	})
	return err
}

// Open implements fleet.Databases.
func (m *Memory) Open(ctx context.Context, id string, o sqlstore.Options) (*sqlstore.Store, error) {
	d, err := m.find(id)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	if d.opened {
		err = fmt.Errorf("opening the database %s: %w", id, dialect.ErrLocked)
	}
	d.opened = true
	d.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return sqlstore.Open(ctx, openMemory{d}, o)
}

// openMemory is an open database, which stays when it is closed.
type openMemory struct{ *memoryDatabase }

// Close implements dialect.Engine.
func (o openMemory) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.opened = false
	return nil
}

// Remove implements fleet.Databases.
func (m *Memory) Remove(_ context.Context, id string) error {
	d, err := m.find(id)
	if err != nil {
		return nil // there is none
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.opened {
		return fmt.Errorf("removing the database %s: %w", id, dialect.ErrLocked)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.all, id)
	return d.Engine.Close()
}

// IDs implements fleet.Databases.
func (m *Memory) IDs(context.Context) (ids []string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id := range m.all {
		ids = append(ids, id)
	}
	return ids, nil
}

// Bytes implements fleet.Databases.
func (m *Memory) Bytes(ctx context.Context, id string) (int64, error) {
	d, err := m.find(id)
	if err != nil {
		return 0, err
	}
	space, err := d.Space(ctx)
	return space.Database, err
}
