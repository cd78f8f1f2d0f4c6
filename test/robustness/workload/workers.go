package workload

import (
	"context"
	"fmt"

	"github.com/sqube/sqube/test/robustness/history"
)

// How many objects the clients share: few enough for conflicts, and enough for lists of several pages.
const (
	sharedConfigMaps = 12
	sharedHeld       = 3
)

// edit changes the ConfigMaps until ctx is done.
func (c *client) edit(ctx context.Context) {
	known := map[string]history.Object{} // as this client saw them last
	for ctx.Err() == nil {
		name := fmt.Sprintf("shared-%02d", c.random.IntN(sharedConfigMaps))
		last := known[name]
		var o *history.Operation
		switch n := c.random.IntN(100); {
		case n < 20:
			o = c.create(configMaps, name)
		case n < 40:
			o = c.update(configMaps, name, last.Version)
		case n < 48:
			o = c.update(configMaps, name, 0)
		case n < 62:
			o = c.apply(configMaps, name, c.anyGroup())
		case n < 68:
			o = c.delete(configMaps, name, "", 0)
		case n < 73:
			o = c.delete(configMaps, name, last.UID, 0)
		case n < 76:
			o = c.delete(configMaps, name, last.UID, last.Version)
		default:
			o = c.get(configMaps, name)
		}
		if o.Outcome == history.Done && o.Verb != history.Delete {
			known[name] = o.Object
		}
		c.rest(ctx, o.Outcome == history.Unknown || o.Outcome == history.Unsent)
	}
}

// hold takes Leases, or gadgets, until ctx is done, like leader election: it replaces only the version that it has read, and deletes only
// that of gadgets, since an update of a deleted Lease creates it.
func (c *client) hold(ctx context.Context) {
	in := []collection{leases, gadgets}[c.id%2]
	for ctx.Err() == nil {
		name := fmt.Sprintf("shared-%d", c.random.IntN(sharedHeld))
		o := c.get(in, name)
		for o.Outcome == history.Done && ctx.Err() == nil && !c.chance(20) {
			c.rest(ctx, false)
			o = c.update(in, name, o.Object.Version)
		}
		switch {
		case o.Outcome == history.Absent:
			o = c.create(in, name)
		case o.Outcome == history.Done && in.resource == gadgets.resource && c.chance(20):
			o = c.delete(in, name, o.Object.UID, o.Object.Version)
		}
		c.rest(ctx, o.Outcome == history.Unknown || o.Outcome == history.Unsent)
	}
}

// read lists until ctx is done.
func (c *client) read(ctx context.Context) {
	versions := map[string]uint64{} // a past version, by resource
	for ctx.Err() == nil {
		in := collections[c.random.IntN(len(collections))]
		l := &history.List{}
		limit := 0
		if c.chance(30) {
			l.Group = groups[c.random.IntN(len(groups))]
		}
		if c.chance(50) {
			limit = 1 + c.random.IntN(5)
		}
		switch past := versions[in.resource]; {
		case c.chance(20):
			l.Cached = true
		case c.chance(20):
			l.Asked = past
		case c.chance(30):
			l.Asked, l.Exact = past, past != 0
		case c.chance(10):
			l.Asked = c.within.Load()
			l.Exact = l.Asked != 0
		}
		err := c.list(in, l, limit)
		if err == nil && c.chance(10) {
			versions[in.resource] = l.Version()
		} else if isGone(err) {
			delete(versions, in.resource)
		}
		c.rest(ctx, err != nil)
	}
}
