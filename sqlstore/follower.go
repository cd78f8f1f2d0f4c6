package sqlstore

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"
)

// ErrSlow ends a follower that keeps too much in memory because it, or its
// process, fell too far behind. It can begin again from the last revision that
// it saw; if that is too old by now, Replay says so.
var ErrSlow = errors.New("the watcher is too slow")

// Client is where a follower sends what it reads. The zero value is one that
// needs no ending.
type Client struct {
	// Disconnect makes a write that is under way to the client fail, and all after it.
	// It is called once at the most. Optional.
	Disconnect func()

	follower atomic.Pointer[Follower]
}

// Advance says that the client has taken a part of what is being sent to it.
func (c *Client) Advance() {
	if f := c.follower.Load(); f != nil {
		f.Advance()
	}
}

type clientKey struct{}

// WithClient makes followers under the returned context send to c.
func WithClient(ctx context.Context, c *Client) context.Context {
	return context.WithValue(ctx, clientKey{}, c)
}

// clientFrom returns the client that WithClient put into ctx.
func clientFrom(ctx context.Context) *Client {
	if c, ok := ctx.Value(clientKey{}).(*Client); ok {
		return c
	}
	return &Client{}
}

// FollowBytes is how much a follower reads for itself at a time: it ends with
// the record whose value reaches it.
const FollowBytes = 256 << 10

// Cost is how much memory a record takes on its way to a client, of so many bytes as
// stored: as it is, decoded and encoded.
func Cost(bytes int) int { return 3 * (bytes + recordOverhead) }

// Follower reads the log and what comes after. What it keeps in memory
// until its client has taken it is counted, together with that of all others;
// where it is too much the slowest are ended, see memory.
type Follower struct {
	store  *Store
	memory *memory
	ctx    context.Context
	cancel context.CancelCauseFunc
	client *Client

	held     atomic.Int64 // bytes, those that it shares with others included
	reserved atomic.Int64 // bytes of them, of what it read for itself
	// advanced is when it last got on, reading when it last began to read; see
	// memory.clock.
	advanced, reading atomic.Int64
	ended             atomic.Bool
	sub               atomic.Pointer[Subscription]
}

// Follow returns a Follower for the client in ctx, under whose Context it shall
// run. The caller must let go of all that it has received, and then Close it.
func (s *Store) Follow(ctx context.Context) *Follower {
	f := &Follower{store: s, memory: s.memory, client: clientFrom(ctx)}
	f.ctx, f.cancel = context.WithCancelCause(ctx)
	f.client.follower.Store(f)
	f.Advance()
	s.memory.add(f)
	return f
}

// Context ends with that which Follow was given, with Stop, and with cause ErrSlow
// when the follower is ended.
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

// Advance says that the client has taken what was last sent to it.
func (f *Follower) Advance() { f.advanced.Store(int64(f.memory.clock())) }

// progress is when the follower last got on.
func (f *Follower) progress() time.Duration {
	return time.Duration(f.advanced.Load())
}

// end ends the follower. Its client's connection is cut off, since a client
// that takes nothing would not see the end otherwise.
func (f *Follower) end() {
	f.memory.slow.Add(1)
	f.cancel(ErrSlow)
	if sub := f.sub.Load(); sub != nil {
		sub.end(ErrSlow)
	}
	if f.client.Disconnect != nil {
		go f.client.Disconnect()
	}
}

// Hold counts bytes that several followers have made of what they received.
func (s *Store) Hold(bytes int) { s.memory.hold(int64(bytes)) }

// Release takes bytes back that Hold has counted.
func (s *Store) Release(bytes int) { s.memory.release(int64(bytes)) }

// Hold counts bytes that the follower has made of what it received.
func (f *Follower) Hold(bytes int) {
	f.held.Add(int64(bytes))
	f.memory.hold(int64(bytes))
}

// Share says that so many bytes more, or less, of those that Store.Hold counts
// are in use because of this follower.
func (f *Follower) Share(bytes int) { f.held.Add(int64(bytes)) }

// Release takes bytes back that Hold has counted.
func (f *Follower) Release(bytes int) {
	f.held.Add(-int64(bytes))
	f.memory.release(int64(bytes))
}

// Read waits until there is memory for what the follower is about to read of a
// resource, and then reads it. It returns the cause of the follower's Context if
// that ends before, or the error of read, which returns the Cost of what it
// has read.
func (f *Follower) Read(resource Resource, read func() (cost int, err error)) error {
	expected := f.memory.expected(resource)
	if err := f.memory.reserve(f.ctx, int64(expected)); err != nil {
		return err
	}
	f.Advance()
	f.reading.Store(int64(f.memory.clock()))
	f.held.Add(int64(expected))
	f.reserved.Add(int64(expected))
	cost, err := read()
	f.memory.learn(resource, cost)
	f.adjust(cost - expected)
	return err
}

// Forget lets go of what Read has read, of that cost.
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
		f.Advance() // until now there was nothing to do
	}
}

// Done lets go of a change that a Subscription or Replay has given.
func (f *Follower) Done(c *Change) {
	if c.Watchers == 0 {
		f.Forget(c.cost())
		return
	}
	f.held.Add(-c.size())
	c.letGo(f.memory)
}

// letGo takes the change's bytes back once nobody holds it any more.
func (c *Change) letGo(m *memory) {
	if c.holders.Add(-1) == 0 {
		m.release(c.size())
	}
}

// Replay calls yield with the changes behind revision from, up to and including
// to, that Subscribe with the same resource, prefix and terms would bring; yield has
// to let go of each with Done. It returns ErrCompacted when they are no longer all kept, having
// yielded some or none of them in order.
func (f *Follower) Replay(resource Resource, prefix string, terms []Term, from, to int64, yield func(*Change) error) error {
	i := &interest{resource, prefix, boundTerms(terms)}
	spans := f.store.cache.missed(i, from, to)
	if len(spans) == 0 && from < to {
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

// replay reads the first changes of a span for a client that knows everything up to from.
func (f *Follower) replay(i *interest, from int64, s span) (changes []*Change, read int64, err error) {
	changes, read, err = f.store.changes(f.ctx, s.from, s.to, &i.resource, maxChanges, FollowBytes)
	if err != nil {
		return nil, 0, err
	}
	// Asked afterwards: rows that were missing from the read above had been
	// declared compacted before it.
	if err := f.stillKept(from); err != nil {
		return nil, 0, err
	}
	return slices.DeleteFunc(changes, func(c *Change) bool { return !i.match(c.Record.Key) }), read, nil
}

// stillKept returns ErrCompacted unless all changes behind from are kept.
func (f *Follower) stillKept(from int64) error {
	at, err := f.store.Position(f.ctx)
	if err == nil && from < at.Compacted {
		err = ErrCompacted
	}
	return err
}
