package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/sqube/sqube/cmd/sqube/internal/datastore"
	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore/history"
	"github.com/sqube/sqube/sqlstore/logbackup"
)

// packedState packs the versions that a backup of sqube backup --follow has. It puts them into a database of its own, batch by batch, as the
// server wrote them, and has them packed as the server does. Of the others, only those that will be replaced stay in its log.
type packedState struct {
	*logbackup.State
	dir    string
	engine datastore.Scratch
	pack   dialect.Packer
	rows   []*dialect.LogRow
	live   []int64 // of rows
	bytes  int
	last   int64 // revision
}

// packBytes is how much of the versions is in memory.
const packBytes = 1 << 20

func newPackedState(s *logbackup.State, dir string) (*packedState, error) {
	rules, err := history.ParseRules(history.DefaultRules)
	return &packedState{State: s, dir: dir, pack: history.Pack(rules), last: s.From}, err
}

// contents returns what the database is to be filled with. Its rows are to be read before its past.
func (p *packedState) contents(ctx context.Context) *contents {
	past := &dialect.Past{UpTo: p.Revision, From: p.From, At: p.Began.UnixMilli()}
	past.Blocks = func(add func(*dialect.Block) error) error {
		err := history.Blocks(ctx, p.engine, "first_id > 0", "first_id", nil, add)
		return errors.Join(err, p.engine.Close())
	}
	return &contents{past: past, rows: func(yield func(*dialect.LogRow) error) (err error) {
		if p.engine, err = datastore.OpenScratch(ctx, filepath.Join(p.dir, "past.db")); err != nil {
			return err
		}
		err = p.Versions(ctx, func(row *dialect.LogRow, live bool) error {
			if err := p.add(ctx, row, live); err != nil || !live {
				return err
			}
			return yield(row)
		})
		if err == nil {
			err = p.flush(ctx)
		}
		if err != nil {
			err = errors.Join(err, p.engine.Close())
		}
		return err
	}}
}

func (p *packedState) add(ctx context.Context, row *dialect.LogRow, live bool) error {
	if row.ID-p.last >= dialect.RevisionJump { // what was in between was lost
		lost := dialect.RecordLost(fmt.Sprint(p.last+1), fmt.Sprint(row.ID), fmt.Sprint(row.WrittenAt), "x''")
		if err := p.engine.Exec(ctx, lost); err != nil {
			return err
		}
	}
	p.last = max(p.last, row.ID)
	if live && row.Replaces == 0 {
		return nil // nothing to pack
	}
	p.rows = append(p.rows, row)
	if live {
		p.live = append(p.live, row.ID)
	}
	if p.bytes += len(row.Value); p.bytes < packBytes && len(p.rows) < packRows {
		return nil
	}
	return p.flush(ctx)
}

// packRows bounds a batch of small rows.
const packRows = 2000

// flush packs what was replaced so far.
func (p *packedState) flush(ctx context.Context) error {
	err := p.engine.Append(ctx, p.rows)
	for n := 1; err == nil && n > 0; {
		n, err = p.engine.Compact(ctx, p.last, packRows, p.pack)
	}
	if err != nil {
		return err
	}
	live, err := json.Marshal(p.live)
	if err == nil {
		err = p.engine.Exec(ctx, "DELETE FROM log WHERE id IN (SELECT value FROM json_each(?))", string(live))
	}
	p.rows, p.live, p.bytes = p.rows[:0], p.live[:0], 0
	return err
}
