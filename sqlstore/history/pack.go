package history

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/sqube/sqube/dialect"
)

// Pack returns a dialect.Packer that leaves out the versions that rules thin out: those that differ from the version before only in
// what a rule names.
func Pack(rules Rules) dialect.Packer {
	return func(leaving []*dialect.Replaced, last []*dialect.Block) ([]*dialect.Block, error) {
		p := packer{rules: rules, open: map[object]*block{}}
		for _, b := range last {
			p.reopen(b)
		}
		for _, r := range leaving {
			p.add(r)
		}
		return p.close()
	}
}

type object struct{ group, resource, key string }

// packer packs the rows of one batch.
type packer struct {
	rules   Rules
	open    map[object]*block
	changed []*block
	text    []byte
}

// reopen prepares a block for further versions. A damaged one stays as it is, and the next version begins another one.
func (p *packer) reopen(stored *dialect.Block) {
	b := &block{Block: *stored}
	known, err := rows(stored)
	if err != nil || len(known) == 0 || known[len(known)-1].Operation == dialect.Delete {
		return
	}
	newest := known[len(known)-1]
	b.lastID, b.lastAt = newest.ID, newest.WrittenAt
	if b.data, err = decompress(stored.Data); err != nil {
		return
	}
	err = errors.Join(json.Unmarshal([]byte(stored.Writers), &b.writers), json.Unmarshal([]byte(stored.Versions), &b.versions),
		texts(b.data, func(i int, text []byte) (bool, error) {
			if i == 0 {
				b.first = len(text)
			}
			b.last = append(b.last[:0], text...)
			return true, nil
		}))
	if err == nil {
		p.open[object{b.Group, b.Resource, b.Key}] = b
	}
}

// add adds a version to the open block of its object, or begins another one.
func (p *packer) add(r *dialect.Replaced) {
	of := object{r.Group, r.Resource, r.Key}
	p.text = appendText(p.text[:0], &r.LogRow)
	b := p.open[of]
	if b == nil || !b.continues(r) || b.full() {
		b = &block{Block: dialect.Block{
			First: r.ID, FirstAt: r.WrittenAt, Group: r.Group, Resource: r.Resource, Key: r.Key, Namespace: r.Namespace, Name: r.Name,
		}, first: len(p.text), lastID: r.ID, lastAt: r.WrittenAt}
		b.append(r, p.text)
		p.open[of] = b
	} else if r.Operation == dialect.Delete || !p.rules.thin(r, b.writers[b.versions[len(b.versions)-1][2]], b.last, p.text) {
		b.append(r, p.text)
	}
	b.Until, b.UntilAt = r.ReplacedBy, r.ReplacedAt
	if !b.dirty {
		b.dirty = true
		p.changed = append(p.changed, b)
	}
	if r.Operation == dialect.Delete {
		delete(p.open, of)
	}
}

// continues reports whether r came after the last version of the block.
func (b *block) continues(r *dialect.Replaced) bool {
	return r.ID == b.Until && r.Operation != dialect.Create
}

func (b *block) full() bool {
	return len(b.data) >= max(maxBlock, 2*b.first) || len(b.versions) >= maxVersions
}

func (b *block) append(r *dialect.Replaced, text []byte) {
	w := writer{r.Operation, r.User, r.FieldManager, r.UID}
	n := 0
	for n < len(b.writers) && b.writers[n] != w {
		n++
	}
	if n == len(b.writers) {
		b.writers = append(b.writers, w)
	}
	b.versions = append(b.versions, [3]int64{r.ID - b.lastID, r.WrittenAt - b.lastAt, int64(n)})
	delta := appendDelta(nil, b.last, text)
	b.data = append(binary.AppendUvarint(b.data, uint64(len(delta))), delta...)
	b.last = append(b.last[:0], text...)
	b.lastID, b.lastAt = r.ID, r.WrittenAt
}

// close returns the blocks that have changed.
func (p *packer) close() ([]*dialect.Block, error) {
	closed := make([]*dialect.Block, len(p.changed))
	for i, b := range p.changed {
		writers, err := json.Marshal(b.writers)
		if err != nil {
			return nil, err
		}
		versions, err := json.Marshal(b.versions)
		if err != nil {
			return nil, err
		}
		if b.Data, err = compress(b.data); err != nil {
			return nil, fmt.Errorf("compressing history: %w", err)
		}
		b.Writers, b.Versions = string(writers), string(versions)
		closed[i] = &b.Block
	}
	return closed, nil
}
