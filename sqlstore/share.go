package sqlstore

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore/history"
)

// History is evidence, so nobody may make that of others go by writing much. If there is too much, who has most gives way: of all users and
// all namespaces the one with most bytes, and there the namespace or user with most, the oldest first. First go the values; who changed
// which fields, and when, stays. Only if even that takes more than its part of the room, the same rule decides what of it is left out, and a
// record says so.

const (
	// bareShare is the part of the room that blocks without values may take, and objectShare that of one object's values.
	bareShare, objectShare = 4, 16
	// shedSteps is in how many steps an excess is given up at least: between these, another may have most.
	shedSteps = 64
)

// share is how many bytes the changes of a user in a namespace take.
type share struct {
	namespace, user string
	bytes           int64
}

// giveUp makes history give way until it takes no more than so many bytes. If these are less than Options.HistoryBytes, since the disk is full,
// only values are given up for them. It returns how many blocks have changed.
func (s *Store) giveUp(ctx context.Context, limit int64) (n int, err error) {
	for {
		values, valueBytes, err := s.shares(ctx, 0)
		if err != nil {
			return n, err
		}
		bare, bareBytes, err := s.shares(ctx, 1)
		if err != nil {
			return n, err
		}
		changed := 0
		if most := max(limit, s.opts.HistoryBytes) / bareShare; bareBytes > most {
			changed, err = s.shed(ctx, 1, bare, bareBytes-most, leaveOut)
			bareBytes = most
		}
		if excess := valueBytes - max(0, limit-bareBytes); err == nil && excess > 0 {
			var stripped int
			stripped, err = s.giveUpValues(ctx, values, excess, limit/objectShare)
			changed += stripped
		}
		if n += changed; err != nil || changed == 0 {
			return n, err
		}
	}
}

// giveUpValues has values of an excess given up: first of objects that have more than most, then of those who have most.
func (s *Store) giveUpValues(ctx context.Context, values []share, excess, most int64) (n int, err error) {
	if n, err = s.giveUpObjects(ctx, most, excess); n > 0 || err != nil {
		return n, err // there may be no excess any more
	}
	return s.shed(ctx, 0, values, excess, s.strip)
}

// shares returns who has how much history, with values (bare = 0) or without (1), and how much that is together.
func (s *Store) shares(ctx context.Context, bare int) (all []share, bytes int64, err error) {
	b := s.statement().setApart().add("SELECT namespace, user_name, CAST(sum(bytes) AS bigint) FROM past WHERE bare = ")
	b.add(b.arg(bare) + " GROUP BY namespace, user_name")
	err = s.run(ctx, b, func(row dialect.Row) error {
		var h share
		err := row.Scan(&h.namespace, &h.user, &h.bytes)
		all, bytes = append(all, h), bytes+h.bytes
		return err
	})
	return all, bytes, err
}

// surplus returns which shares have to give up how much, for an excess in all.
func surplus(shares []share, excess int64) map[share]int64 {
	type bearer struct {
		bytes  int64
		shares []*share
	}
	users, namespaces := map[string]*bearer{}, map[string]*bearer{}
	bear := func(bearers map[string]*bearer, name string, h *share) {
		if bearers[name] == nil {
			bearers[name] = &bearer{}
		}
		bearers[name].bytes += h.bytes
		bearers[name].shares = append(bearers[name].shares, h)
	}
	left := slices.Clone(shares)
	for i := range left {
		bear(users, left[i].user, &left[i])
		bear(namespaces, left[i].namespace, &left[i])
	}
	bearers := slices.AppendSeq(slices.Collect(maps.Values(users)), maps.Values(namespaces))
	for step := max(excess/shedSteps, 1); excess > 0 && len(bearers) > 0; {
		most := slices.MaxFunc(bearers, func(a, b *bearer) int { return cmp.Compare(a.bytes, b.bytes) })
		if most.bytes == 0 {
			break
		}
		step = min(step, excess)
		slices.SortFunc(most.shares, func(a, b *share) int { return cmp.Compare(b.bytes, a.bytes) })
		given := int64(0)
		for _, h := range most.shares {
			take := min(h.bytes, step-given)
			h.bytes -= take
			users[h.user].bytes -= take
			namespaces[h.namespace].bytes -= take
			if given += take; given == step {
				break
			}
		}
		excess -= given
	}
	given := map[share]int64{}
	for i, h := range left {
		if take := shares[i].bytes - h.bytes; take > 0 {
			given[shares[i]] = take
		}
	}
	return given
}

// editor returns what EditPast does to blocks of one share or object, so that it has that many bytes less.
type editor func(ctx context.Context, blocks []*dialect.Block, surplus *int64) (removed []int64, put []*dialect.Block, err error)

// shed has shares give up an excess. It returns how many blocks have changed.
func (s *Store) shed(ctx context.Context, bare int, shares []share, excess int64, edit editor) (n int, err error) {
	for h, bytes := range surplus(shares, excess) {
		changed, err := s.editPast(ctx, "bare = ? AND namespace = ? AND user_name = ?", []any{bare, h.namespace, h.user}, bytes, edit)
		if n += changed; err != nil {
			return n, err
		}
	}
	return n, nil
}

// giveUpObjects has the objects whose values take more than so many bytes give up the oldest, as far as there is an excess.
func (s *Store) giveUpObjects(ctx context.Context, most, excess int64) (n int, err error) {
	type object struct {
		group, resource, key string
		bytes                int64
	}
	var large []object
	b := s.statement().setApart().add("SELECT api_group, resource, key, CAST(sum(bytes) AS bigint) FROM past WHERE bare = 0 GROUP BY api_group, resource, key HAVING sum(bytes) > ")
	b.add(b.arg(most) + " ORDER BY 4 DESC")
	err = s.run(ctx, b, func(row dialect.Row) error {
		var o object
		err := row.Scan(&o.group, &o.resource, &o.key, &o.bytes)
		large = append(large, o)
		return err
	})
	for _, o := range large {
		surplus := min(o.bytes-most, excess)
		if err != nil || surplus <= 0 {
			break
		}
		var changed int
		changed, err = s.editPast(ctx, "bare = 0 AND api_group = ? AND resource = ? AND key = ?", []any{o.group, o.resource, o.key}, surplus, s.strip)
		n, excess = n+changed, excess-surplus
	}
	return n, err
}

// editPast edits blocks that a condition selects, the oldest first, until they have so many bytes less. What may be needed to pack versions
// that are still in the log stays.
func (s *Store) editPast(ctx context.Context, condition string, args []any, surplus int64, edit editor) (n int, err error) {
	condition += " AND until <= (SELECT packed FROM counter) AND " + dialect.NotLost
	err = s.repeat(ctx, s.opts.Timeout, func(ctx context.Context) (bool, error) {
		changed := 0
		err := s.engine.EditPast(ctx, condition, args, func(blocks []*dialect.Block) ([]int64, []*dialect.Block, error) {
			removed, put, err := edit(ctx, blocks, &surplus)
			changed = max(len(removed), len(put))
			return removed, put, err
		})
		if err == nil {
			n += changed
		}
		return changed > 0 && surplus > 0, err
	})
	return n, err
}

// strip is the editor that takes their values from blocks.
func (s *Store) strip(ctx context.Context, blocks []*dialect.Block, surplus *int64) (_ []int64, put []*dialect.Block, err error) {
	for _, b := range blocks {
		if *surplus <= 0 {
			break
		}
		following, err := s.following(ctx, b)
		if err != nil {
			return nil, nil, err
		}
		bare, err := history.Bare(b, following)
		if err != nil {
			return nil, nil, err
		}
		put = append(put, bare)
		*surplus -= b.Bytes()
	}
	return nil, put, nil
}

// following returns the value that replaced the last version of a block, nil if there is none.
func (s *Store) following(ctx context.Context, b *dialect.Block) (value []byte, err error) {
	if b.Next != nil {
		return b.Next.Value, nil
	}
	err = history.Blocks(ctx, s.engine, "first_id = ?", "first_id", []any{b.Until}, func(next *dialect.Block) error {
		first, err := history.At(next, next.First)
		if err == nil && first != nil {
			value = first.Value
		}
		return err
	})
	if errors.Is(err, history.ErrForgotten) || errors.Is(err, dialect.ErrCorrupt) {
		err = nil
	}
	return value, err
}

// leaveOut is the editor that removes blocks, and records that.
func leaveOut(_ context.Context, blocks []*dialect.Block, surplus *int64) (removed []int64, put []*dialect.Block, err error) {
	n, records := 0, 0
	for ; n < len(blocks) && *surplus > 0; n++ {
		removed = append(removed, blocks[n].First)
		if history.IsLeftOut(blocks[n]) {
			records++ // which remains, together with others
		} else {
			*surplus -= blocks[n].Bytes()
		}
	}
	if put, err = history.LeftOut(blocks[:n]); err != nil || n == records && len(put) == n { // nothing but such records
		return nil, nil, err
	}
	return removed, put, nil
}
