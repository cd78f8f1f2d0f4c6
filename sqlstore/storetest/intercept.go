package storetest

import (
	"context"
	"sync"

	"github.com/sqube/sqube/dialect"
)

// intercepted is an engine whose commits a test can delay or fail.
type intercepted struct {
	dialect.Engine
	// before, if set, is called before each commit. If it fails, its error is
	// returned and nothing is committed.
	before func(group []dialect.Write) error
	// after, if set, is called after each commit. Its error is returned
	// although the group is committed.
	after func(group []dialect.Write) error
}

// Commit implements dialect.Engine.
func (e *intercepted) Commit(ctx context.Context, group []dialect.Write) (dialect.Committed, error) {
	if e.before != nil {
		if err := e.before(group); err != nil {
			return dialect.Committed{}, err
		}
	}
	committed, err := e.Engine.Commit(ctx, group)
	if err == nil && e.after != nil {
		err = e.after(group)
	}
	return committed, err
}

// gate is a before that holds up the commit of a write to the key "gate" until
// it is opened, so that the writes that arrive meanwhile form one group.
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
