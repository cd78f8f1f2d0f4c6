package sqlstore

import (
	"slices"
	"sort"
	"strings"

	"github.com/tidwall/btree"
)

// walk calls yield with the records of q in a snapshot, ordered by key, until yield returns false. It ignores q.Limit.
func (c *cache) walk(s *snapshot, q Query, yield func(*Record) bool) {
	if q.Exactly != nil {
		if r, ok := s.rows.Get(&Record{Key: *q.Exactly}); ok && q.within(r.Key) && passesAll(q.Terms, r) {
			yield(r)
		}
		return
	}
	if selected := c.narrow(s, q); selected != nil {
		s.walkSelected(selected, q, yield)
		return
	}
	s.rows.Ascend(&Record{Key: q.start()}, func(r *Record) bool {
		switch {
		case !strings.HasPrefix(r.Key, q.Prefix):
			return false
		case !q.within(r.Key), !passesAll(q.Terms, r):
			return true
		}
		return yield(r)
	})
}

// count returns the number of records of q in a snapshot, up to its Limit.
func (c *cache) count(s *snapshot, q Query) (n int64) {
	if len(q.Terms) == 0 && q.Exactly == nil {
		n = int64(s.between(q))
		if q.Limit > 0 {
			n = min(n, int64(q.Limit))
		}
		return n
	}
	c.walk(s, q, func(*Record) bool { n++; return q.Limit == 0 || n < int64(q.Limit) })
	return n
}

// start is the first key that q can include.
func (q *Query) start() string { return max(q.Prefix, q.From, q.After) }

// end is the first key after all keys that q can include, "" if there is none.
func (q *Query) end() string {
	if q.Prefix == "" {
		return ""
	}
	return prefixEnd(q.Prefix)
}

// within reports whether q selects a key, apart from its terms.
func (q *Query) within(key string) bool {
	return strings.HasPrefix(key, q.Prefix) && key >= q.From && (q.After == "" || key > q.After)
}

// between returns the number of rows of q, apart from its terms.
func (s *snapshot) between(q Query) int {
	if s.rows.Len() == 0 {
		return 0
	}
	pivot := &Record{Key: q.start()}
	first := rank(s.rows, pivot)
	if q.After != "" && pivot.Key == q.After {
		if _, ok := s.rows.Get(pivot); ok {
			first++
		}
	}
	if end := q.end(); end != "" {
		return max(rank(s.rows, &Record{Key: end})-first, 0)
	}
	return s.rows.Len() - first
}

// rank returns the number of items before pivot in a tree.
func rank[T any](tree *btree.BTreeG[T], pivot T) int {
	return sort.Search(tree.Len(), func(i int) bool {
		item, _ := tree.GetAt(i)
		return !tree.Less(item, pivot)
	})
}

// selected are the rows in an index that have one of several values.
type selected struct {
	keys   *btree.BTreeG[valueKey]
	values []string
}

// count returns the number of rows with keys from start up to end ("" for no end), up to limit.
func (x *selected) count(start, end string, limit int) (n int) {
	for _, value := range x.values {
		until := valueKey{value, end}
		if end == "" {
			until = valueKey{value + "\x00", ""}
		}
		if n += rank(x.keys, until) - rank(x.keys, valueKey{value, start}); n >= limit {
			return limit
		}
	}
	return n
}

// narrow returns the rows to check for q, or nil if no index would help. It makes at most one index.
func (c *cache) narrow(s *snapshot, q Query) (best *selected) {
	start, end := q.start(), q.end()
	rows := -1 // how many would have to be checked; not known yet
	var missing *Term
	try := func(t *Term, keys *btree.BTreeG[valueKey]) {
		x := &selected{keys, append([]string{unknownValue}, t.values...)}
		if n := x.count(start, end, rows); n < rows {
			best, rows = x, n
		}
	}
	for i := range q.Terms {
		t := &q.Terms[i]
		if values, ok := t.required(); !ok || len(values) > maxPatterns {
			continue
		}
		if rows < 0 {
			if rows = s.between(q); rows < indexFrom {
				return nil
			}
			rows /= rowByKey
		}
		if keys := c.findIndex(q.Resource, s, t.attr); keys != nil {
			try(t, keys)
		} else if missing == nil {
			missing = t
		}
	}
	if missing != nil && rows*rowByKey >= indexFrom {
		if keys := c.makeIndex(q.Resource, s, missing.attr); keys != nil {
			try(missing, keys)
		}
	}
	return best
}

// walkSelected is walk over the selected rows.
func (s *snapshot) walkSelected(x *selected, q Query, yield func(*Record) bool) {
	type cursor struct {
		btree.IterG[valueKey]
		value string
	}
	var cursors []*cursor
	for _, value := range x.values {
		at := &cursor{x.keys.Iter(), value}
		if at.Seek(valueKey{value, q.start()}) && at.Item().value == value {
			cursors = append(cursors, at)
		}
	}
	var pivot Record
	for len(cursors) > 0 {
		first := 0
		for i, at := range cursors {
			if at.Item().key < cursors[first].Item().key {
				first = i
			}
		}
		at := cursors[first]
		key := at.Item().key
		if !strings.HasPrefix(key, q.Prefix) {
			return
		}
		if !at.Next() || at.Item().value != at.value {
			cursors = slices.Delete(cursors, first, first+1)
		}
		if !q.within(key) {
			continue
		}
		pivot.Key = key
		if r, ok := s.rows.Get(&pivot); ok && passesAll(q.Terms, r) && !yield(r) {
			return
		}
	}
}
