package history

import (
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/sqube/sqube/dialect"
)

// Pack returns a dialect.Packer that leaves out the versions that rules thin out: those that differ from the version before only in
// what a rule names.
func Pack(rules Rules) dialect.Packer {
	return func(leaving []*dialect.Replaced, last []*dialect.Block) ([]*dialect.Block, error) {
		p := packer{rules: rules, open: map[object]*block{}, purged: map[object]int64{}}
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

// Purged returns a block that stands for all versions of an object that were replaced up to a revision: with who purged them, and when. first
// is the first of them. Versions that are still in the log are left out when they leave it.
func Purged(first *dialect.LogRow, until int64, by *dialect.Write) (*dialect.Block, error) {
	p := packer{open: map[object]*block{}}
	p.add(&dialect.Replaced{LogRow: dialect.LogRow{ID: first.ID, ReplacedBy: until, Write: dialect.Write{
		Operation: dialect.Purge, Group: first.Group, Resource: first.Resource, Key: first.Key, Namespace: first.Namespace, Name: first.Name, UID: first.UID,
		WrittenAt: by.WrittenAt, User: by.User, ImpersonatedUser: by.ImpersonatedUser, CredentialID: by.CredentialID,
		FieldManager: by.FieldManager, Address: by.Address, AuditID: by.AuditID, Labels: "{}", Fields: "{}",
	}}})
	blocks, err := p.close()
	if err != nil {
		return nil, err
	}
	return blocks[0], nil
}

// packer packs the rows of one batch.
type packer struct {
	rules      Rules
	open       map[object]*block
	purged     map[object]int64 // up to which revision
	changed    []*block
	text, next []byte // of the version to add, and of the one that replaced it
}

// reopen prepares an open block for further versions. A damaged one stays as it is, and the next version begins another one.
func (p *packer) reopen(stored *dialect.Block) {
	b := &block{Block: *stored, lastID: stored.First, lastAt: stored.FirstAt}
	versions, ok := parseVersions(stored.Versions)
	if !ok || json.Unmarshal([]byte(stored.Writers), &b.writers) != nil {
		return
	}
	for _, v := range versions {
		b.lastID, b.lastAt, b.writer = b.lastID+v[0], b.lastAt+v[1], int(v[2])
	}
	if b.writer < 0 || b.writer >= len(b.writers) {
		return
	}
	of := object{b.Group, b.Resource, b.Key}
	if b.writers[b.writer].operation == dialect.Purge {
		p.purged[of] = b.Until
	} else if b.data, ok = parseData(stored.Data); ok && b.open && !isBare(stored) {
		b.count, b.versions, b.weight = len(versions), []byte(stored.Versions[1:len(stored.Versions)-1]), len(b.recent)+b.size
		p.open[of] = b
	}
}

// add adds a version to the open block of its object, or begins another one.
func (p *packer) add(r *dialect.Replaced) {
	of := object{r.Group, r.Resource, r.Key}
	if r.ReplacedBy <= p.purged[of] {
		return
	}
	p.text = appendText(p.text[:0], &r.LogRow)
	b := p.continued(p.open[of], r)
	if b == nil {
		b = &block{Block: dialect.Block{
			First: r.ID, FirstAt: r.WrittenAt, Group: r.Group, Resource: r.Resource, Key: r.Key, Namespace: r.Namespace, Name: r.Name,
		}, lastID: r.ID, lastAt: r.WrittenAt}
		p.open[of] = b
	}
	p.next = p.next[:0]
	if b.open = r.Next != nil && r.Operation != dialect.Delete; b.open {
		p.next = appendText(p.next, r.Next)
	} else {
		delete(p.open, of)
	}
	if before, thin := p.rules.thin(r, b, p.text); thin {
		b.replaceNewest(appendDelta(nil, p.next, before))
	} else {
		b.append(r, appendDelta(nil, p.next, p.text))
	}
	b.Until, b.UntilAt = r.ReplacedBy, r.ReplacedAt()
	p.change(b)
}

// change notes that a block has to be stored.
func (p *packer) change(b *block) {
	if !b.dirty {
		b.dirty = true
		p.changed = append(p.changed, b)
	}
}

// continued returns an object's open block if r is its next version, nil if there is none that does not end with it.
func (p *packer) continued(b *block, r *dialect.Replaced) *block {
	if b == nil || r.ID != b.Until || r.Operation == dialect.Create {
		return nil
	}
	if len(b.recent)+b.size < max(maxBlock, len(p.text)) && b.count < maxVersions {
		return b
	}
	// r is about to leave the log, so the last version can no longer be a difference from it.
	if last, err := b.newest(p.text); err == nil {
		b.replaceNewest(appendDelta(nil, nil, last))
		b.open = false
		p.change(b)
	}
	return nil
}

func (b *block) append(r *dialect.Replaced, delta []byte) {
	w := writer{r.Operation, r.User, r.FieldManager, r.UID, r.ImpersonatedUser, r.CredentialID}
	n := 0
	for n < len(b.writers) && b.writers[n] != w {
		n++
	}
	if n == len(b.writers) {
		b.writers = append(b.writers, w)
	}
	b.versions = appendVersion(b.versions, [3]int64{r.ID - b.lastID, r.WrittenAt - b.lastAt, int64(n)})
	b.writer = n
	b.count++
	b.recent = append(appendSized(nil, delta), b.recent...)
	b.lastID, b.lastAt = r.ID, r.WrittenAt
	b.charge(r.User, len(delta))
}

// charge notes how much a user has added to the block, and finds the one who has added most, if that is more than half.
func (b *block) charge(user string, bytes int) {
	if user == b.User {
		b.weight += bytes
	} else if b.weight -= bytes; b.weight < 0 {
		b.User, b.weight = user, -b.weight
	}
}

// appendSized appends data after its length.
func appendSized(to, data []byte) []byte {
	return append(binary.AppendUvarint(to, uint64(len(data))), data...)
}

// close returns the blocks that have changed.
func (p *packer) close() ([]*dialect.Block, error) {
	closed := make([]*dialect.Block, len(p.changed))
	for i, b := range p.changed {
		writers, err := json.Marshal(b.writers)
		if err == nil {
			b.Data, err = b.encode()
		}
		if err != nil {
			return nil, fmt.Errorf("packing history: %w", err)
		}
		b.Writers, b.Versions = string(writers), "["+string(b.versions)+"]"
		closed[i] = &b.Block
	}
	return closed, nil
}

// UpTo returns the blocks of a block's versions that were replaced at or before a revision: none, or itself, if that holds for all. Of a damaged
// one, it also returns an error; the block that it returns then has the same versions without what was in them.
func UpTo(b *dialect.Block, revision int64) ([]*dialect.Block, error) {
	if b.Until <= revision {
		return []*dialect.Block{b}, nil
	}
	cut := *b
	versions, err := rows(b)
	if b.IsLost() || IsLeftOut(b) || len(versions) > 0 && versions[0].Operation == dialect.Purge {
		cut.Until = revision + 1
		return []*dialect.Block{&cut}, nil
	}
	n := len(versions)
	for n > 0 && versions[n-1].ID > revision {
		n--
	}
	if err != nil || n < 2 {
		return nil, err
	}
	all := len(versions)
	versions = versions[:n]
	if err := fill(b, versions, 0, all); err != nil {
		recorded, _ := parseVersions(b.Versions)
		var kept []byte
		for _, v := range recorded[:n-1] {
			kept = appendVersion(kept, v)
		}
		cut.Until, cut.UntilAt, cut.Versions, cut.Data = versions[n-1].ID, versions[n-1].WrittenAt, "["+string(kept)+"]", []byte{}
		if remnants := remnantsOf(b); len(remnants) == all {
			without, err := bare(&cut, remnants[:n-1])
			return []*dialect.Block{without}, err
		}
		return []*dialect.Block{&cut}, err
	}
	p := packer{open: map[object]*block{}}
	for i, version := range versions[:n-1] {
		p.add(&dialect.Replaced{LogRow: *version, Next: versions[i+1]})
	}
	return p.close()
}
