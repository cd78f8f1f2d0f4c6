package sqlstore

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"
)

// ErrSlow ends a follower that holds too much memory because its client, or this process, fell too far behind. A new follower can
// begin from the last revision seen; Replay returns ErrCompacted if that is too old by then.
var ErrSlow = errors.New("the watcher is too slow")

// Client receives what a follower reads. The zero value is a client that need not be disconnected.
type Client struct {
	// Disconnect makes the current write to the client and all later ones fail. It is called at most once. Optional.
	Disconnect func()

	follower atomic.Pointer[Follower]
}

// Advance records that the client has received part of what is being sent.
func (c *Client) Advance() {
	if f := c.follower.Load(); f != nil {
		f.Advance()
	}
}

type clientKey struct{}

// WithClient returns a context whose followers send to c.
func WithClient(ctx context.Context, c *Client) context.Context {
	return context.WithValue(ctx, clientKey{}, c)
}

func clientFrom(ctx context.Context) *Client {
	if c, ok := ctx.Value(clientKey{}).(*Client); ok {
		return c
	}
	return &Client{}
}

// FollowBytes is how much a follower reads for itself at a time: up to the record whose value reaches it.
const FollowBytes = 256 << 10

// Cost is the memory that a record takes while it is sent to a client: its stored, decoded and encoded forms. bytes is the length
// of its value.
func Cost(bytes int) int { return 3 * (bytes + recordOverhead) }

// Follower is one watch: it replays changes from the log and then subscribes to new ones. What it holds in memory until its
// client has received it counts towards a limit for all followers. Beyond the limit, the slowest are ended; see memory.
type Follower struct {
	store  *Store
	memory *memory
	ctx    context.Context
	cancel context.CancelCauseFunc
	client *Client

	held     atomic.Int64 // bytes, including those shared with others
	reserved atomic.Int64 // the part of held that it read for itself
	// advanced is when its client last received something, reading when the follower last began to read; see memory.clock.
	advanced, reading atomic.Int64
	// awaitsStore is set while it reads: its client can't receive anything yet.
	awaitsStore atomic.Bool
	ended       atomic.Bool
	sub         atomic.Pointer[Subscription]
}

// Follow returns a Follower for the client in ctx. The caller works under the follower's Context, releases everything it
// received, and then calls Close.
func (s *Store) Follow(ctx context.Context) *Follower {
	f := &Follower{store: s, memory: s.memory, client: clientFrom(ctx)}
	f.ctx, f.cancel = context.WithCancelCause(ctx)
	f.client.follower.Store(f)
	f.Advance()
	s.memory.add(f)
	return f
}

// Context ends with the context given to Follow, with Stop, and with cause ErrSlow if the follower is too slow.
func (f *Follower) Context() context.Context { return f.ctx }

// Stop ends the Context.
func (f *Follower) Stop() { f.cancel(context.Canceled) }

// Close ends the follower.
func (f *Follower) Close() {
	f.Stop()
	if sub := f.sub.Load(); sub != nil {
		sub.Close()
	}
	f.memory.remove(f)
}

// Advance records that the client has received what was last sent.
func (f *Follower) Advance() { f.advanced.Store(int64(f.memory.clock())) }

// progress is when the follower last advanced.
func (f *Follower) progress() time.Duration {
	return time.Duration(f.advanced.Load())
}

// end ends the follower, once, and disconnects its client: a client that does not read would not notice otherwise.
func (f *Follower) end() {
	if !f.ended.CompareAndSwap(false, true) {
		return
	}
	f.memory.slow.Add(1)
	f.cancel(ErrSlow)
	if sub := f.sub.Load(); sub != nil {
		sub.end(ErrSlow)
	}
	if f.client.Disconnect != nil {
		go f.client.Disconnect()
	}
}

// Hold counts bytes that are derived from a change for several followers.
func (s *Store) Hold(bytes int) { s.memory.hold(int64(bytes)) }

// Release releases bytes counted by Hold.
func (s *Store) Release(bytes int) { s.memory.release(int64(bytes)) }

// Hold counts bytes that the follower derived from what it received.
func (f *Follower) Hold(bytes int) {
	f.held.Add(int64(bytes))
	f.memory.hold(int64(bytes))
}

// Share adds to the bytes, counted by Store.Hold, that this follower uses. A negative number subtracts.
func (f *Follower) Share(bytes int) { f.held.Add(int64(bytes)) }

// Release releases bytes counted by Hold.
func (f *Follower) Release(bytes int) {
	f.held.Add(-int64(bytes))
	f.memory.release(int64(bytes))
}

// Read waits until there is memory for what the follower is about to read of a resource, and then calls read, which returns the
// Cost of what it has read. It returns the error of read, or the cause of the follower's Context if that ends first.
func (f *Follower) Read(resource Resource, read func() (cost int, err error)) error {
	expected := f.memory.expected(resource)
	if err := f.memory.reserve(f.ctx, int64(expected)); err != nil {
		return err
	}
	f.Advance()
	f.reading.Store(int64(f.memory.clock()))
	f.held.Add(int64(expected))
	f.reserved.Add(int64(expected))
	f.awaitsStore.Store(true)
	cost, err := read()
	f.Advance()
	f.awaitsStore.Store(false)
	f.memory.learn(resource, cost)
	f.adjust(cost - expected)
	return err
}

// Forget releases what Read has read, of that cost.
func (f *Follower) Forget(cost int) { f.adjust(-cost) }

func (f *Follower) adjust(bytes int) {
	f.held.Add(int64(bytes))
	f.reserved.Add(int64(bytes))
	f.memory.adjust(int64(bytes))
}

// receive counts a change that the follower gets from the hub.
func (f *Follower) receive(c *Change) {
	c.holders.Add(1)
	if size := c.size(); f.held.Add(size) == size {
		f.Advance() // it was idle until now
	}
}

// Done releases a change from a Subscription or Replay.
func (f *Follower) Done(c *Change) {
	if c.Watchers == 0 {
		f.Forget(c.cost())
		return
	}
	f.held.Add(-c.size())
	c.release(f.memory)
}

// release releases the bytes of the change once no follower holds it.
func (c *Change) release(m *memory) {
	if c.holders.Add(-1) == 0 {
		m.release(c.size())
	}
}

// Replay calls yield with the changes after revision from and up to to that a subscription with the same resource, prefix and
// terms would receive, in order. yield must release each with Done. Replay returns ErrCompacted, possibly after some changes, if
// not all are kept.
func (f *Follower) Replay(resource Resource, prefix string, terms []Term, from, to int64, yield func(*Change) error) error {
	if from >= to {
		return nil
	}
	i := &interest{resource, prefix, boundTerms(terms)}
	spans := f.store.cache.missed(i, from, to)
	if len(spans) == 0 {
		return f.stillKept(from)
	}
	for _, s := range spans {
		for s.from < s.to {
			var changes []*Change
			var read int64
			err := f.Read(resource, func() (cost int, err error) {
				changes, read, err = f.replay(i, from, s)
				for _, c := range changes {
					cost += c.cost()
				}
				return cost, err
			})
			for n, c := range changes {
				if changes[n] = nil; err == nil {
					err = yield(c)
				} else {
					f.Done(c)
				}
			}
			if err != nil {
				return err
			}
			s.from, from = read, read
		}
	}
	return nil
}

// replay reads the first changes of a span for a client that has seen everything up to from.
func (f *Follower) replay(i *interest, from int64, s span) (changes []*Change, read int64, err error) {
	changes, read, err = f.store.changes(f.ctx, s.from, s.to, &i.resource, maxChanges, FollowBytes)
	if err != nil {
		return nil, 0, err
	}
	// Read after the changes: a row is declared compacted before it is removed.
	if err := f.stillKept(from); err != nil {
		return nil, 0, err
	}
	if f.store.isLost(i.resource, from) || i.resource == f.store.opts.HeartbeatResource && s.from < f.store.superseded.newest.Load() {
		return nil, 0, ErrCompacted
	}
	return slices.DeleteFunc(changes, func(c *Change) bool { return !i.match(c.Record.Key) }), read, nil
}

// stillKept returns ErrCompacted unless all changes after from are kept.
func (f *Follower) stillKept(from int64) error {
	at, err := f.store.Position(f.ctx)
	if err == nil && (from < at.Compacted || f.store.engine.Skipped().Has(from)) {
		err = ErrCompacted
	}
	return err
}
