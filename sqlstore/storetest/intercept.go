package storetest

import (
	"context"
	"sync"

	"github.com/sqube/sqube/dialect"
)

// Intercepted is an engine whose reads and commits a test can delay or fail.
type Intercepted struct {
	dialect.Engine
	// BeforeQuery, if set, is called before each read. If it fails, its error is returned and nothing is read.
	BeforeQuery func(ctx context.Context, statement string) error
	// BeforeCommit, if set, is called before each commit. If it fails, its error is returned and nothing is committed.
	BeforeCommit func(group []dialect.Write) error
	// AfterCommit, if set, is called after each commit. Its error is returned although the group is committed.
	AfterCommit func(group []dialect.Write) error
}

// Query implements dialect.Engine.
func (e *Intercepted) Query(ctx context.Context, statement string, args []any, row func(dialect.Row) error) error {
	if e.BeforeQuery != nil {
		if err := e.BeforeQuery(ctx, statement); err != nil {
			return err
		}
	}
	return e.Engine.Query(ctx, statement, args, row)
}

// Commit implements dialect.Engine.
func (e *Intercepted) Commit(ctx context.Context, group []dialect.Write) (dialect.Committed, error) {
	return e.commit(group, func() (dialect.Committed, error) { return e.Engine.Commit(ctx, group) })
}

// CommitAll implements dialect.Engine.
func (e *Intercepted) CommitAll(ctx context.Context, group []dialect.Write, required []dialect.Required) (dialect.Committed, error) {
	return e.commit(group, func() (dialect.Committed, error) { return e.Engine.CommitAll(ctx, group, required) })
}

func (e *Intercepted) commit(group []dialect.Write, commit func() (dialect.Committed, error)) (dialect.Committed, error) {
	if e.BeforeCommit != nil {
		if err := e.BeforeCommit(group); err != nil {
			return dialect.Committed{}, err
		}
	}
	committed, err := commit()
	if err == nil && e.AfterCommit != nil {
		err = e.AfterCommit(group)
	}
	return committed, err
}

// gate has a BeforeCommit that holds up the commit of a write to the key "gate" until it is opened, so that the writes that
// arrive meanwhile form one group.
type gate struct {
	held, opened chan struct{}

	mu     sync.Mutex
	groups [][]string // keys
}

func newGate() *gate { return &gate{held: make(chan struct{}), opened: make(chan struct{})} }

func (g *gate) before(group []dialect.Write) error {
	g.mu.Lock()
	var keys []string
	for _, w := range group {
		keys = append(keys, w.Key)
	}
	g.groups = append(g.groups, keys)
	g.mu.Unlock()
	if group[0].Key == "gate" {
		close(g.held)
		<-g.opened
	}
	return nil
}

// largest returns the size of the largest group.
func (g *gate) largest() (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, keys := range g.groups {
		n = max(n, len(keys))
	}
	return n
}
