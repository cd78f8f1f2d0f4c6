package mirror

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sqube/sqube/server/etcdimport"
	"github.com/sqube/sqube/sqlstore"
)

const (
	// linger is how long an event may wait for others, so that they are written together, and in the order of their resourceVersions whichever
	// watch was faster; most is how many wait.
	linger, most = 500 * time.Millisecond, 200
	// saving is how often the state is written.
	saving = 15 * time.Second
	// gathering is how long gaps of several resources are gathered, which mostly have one cause.
	gathering = 2 * time.Second
	// parting is how long the last writes may take when the follower ends.
	parting = 5 * time.Second
)

// writer writes what the streams have seen, in the order in which they have seen it. An error ends it: then what is stored is read again, and
// the streams go on from there.
type writer struct {
	*Follower
	state *state

	waiting []event
	due     <-chan time.Time // when they are written
	batch   []sqlstore.Authored
	objects map[object]bool // in batch
	told    map[string]bool // the resources of which the log says that objects can't be mirrored
	save    time.Time       // when the state has to be written
	late    *Gap            // what came late, to be written
	lateDue time.Time
}

// The operations of rows.
const creation, update, deletion = "create", "update", "delete"

type object struct {
	resource sqlstore.Resource
	key      string
}

func (w *writer) run(ctx context.Context) error {
	w.objects, w.told, w.save = map[object]bool{}, map[string]bool{}, time.Now().Add(saving)
	clock := time.NewTicker(time.Second)
	defer clock.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), parting)
			defer cancel()
			if err = w.write(last); err == nil {
				err = w.keep(last)
			}
			return err
		case e := <-w.events:
			if w.waiting = append(w.waiting, e); len(w.waiting) == 1 {
				w.due = time.After(linger)
			}
			if len(w.waiting) >= most {
				err = w.write(ctx)
			}
		case <-w.due:
			err = w.write(ctx)
		case now := <-clock.C:
			if w.late != nil && now.After(w.lateDue) {
				err = w.mark(ctx, w.late)
				w.late = nil
			}
			if err == nil && now.After(w.save) {
				err = w.keep(ctx)
			}
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// keep writes how far the follower has come.
func (w *writer) keep(ctx context.Context) error {
	w.save = time.Now().Add(saving)
	return w.Follower.save(ctx, w.state)
}

// write writes what the events tell that wait.
func (w *writer) write(ctx context.Context) error {
	waiting := w.waiting
	w.waiting, w.due = nil, nil
	inOrder(waiting)
	for _, e := range waiting {
		if err := w.take(ctx, e); err != nil {
			return err
		}
	}
	return w.flush(ctx)
}

// inOrder sorts what happened after each other by resourceVersions. Lists and gaps stay where they are.
func inOrder(events []event) {
	for len(events) > 0 {
		n := slices.IndexFunc(events, func(e event) bool { return e.kind != changed && e.kind != bookmark })
		if n < 0 {
			n = len(events)
		}
		slices.SortStableFunc(events[:n], func(a, b event) int { return cmp.Compare(a.at(), b.at()) })
		events = events[min(n+1, len(events)):]
	}
}

// take has an event written.
func (w *writer) take(ctx context.Context, e event) error {
	s := e.stream
	switch e.kind {
	case changed:
		if e.object.ResourceVersion <= s.applied {
			return nil
		}
		if err := w.change(ctx, e); err != nil {
			return err
		}
		s.applied = e.object.ResourceVersion
	case present:
		if s.known[e.object.Object].number == e.object.ResourceVersion {
			return nil
		}
		return w.change(ctx, e)
	case listed, gone:
		for key, was := range s.known {
			if e.kind == gone || !e.keys[key] {
				if err := w.delete(ctx, s, key, was, sqlstore.Author{AuditID: sqlstore.MirroredID(max(e.version, was.number), "")}); err != nil {
					return err
				}
			}
		}
		s.applied = e.version // 0 for a resource that is gone
		w.save = time.Now()
		if err := w.flush(ctx); err != nil {
			return err
		}
	case bookmark:
		s.applied = max(s.applied, e.version)
	case missed:
		if e.gap.Lost {
			return w.mark(ctx, e.gap)
		}
		if w.late == nil {
			w.late, w.lateDue = e.gap, time.Now().Add(gathering)
		} else {
			w.late.add(e.gap)
		}
		return nil
	}
	w.state.reached(s.name(), s.applied)
	return nil
}

// change writes a version of an object, or its deletion.
func (w *writer) change(ctx context.Context, e event) error {
	s, o := e.stream, e.object
	was, exists := s.known[o.Object]
	if o.Write == nil && !e.deleted {
		if o.Reason != etcdimport.Identity && !w.told[s.name()] {
			w.told[s.name()] = true
			w.log.Warn("an object can't be mirrored, and perhaps others of its resource", "resource", s.name(), "object", o.Object, "reason", o.Reason)
		}
		return nil
	}
	author := w.author(ctx, e)
	if e.deleted {
		if !exists {
			return nil
		}
		return w.delete(ctx, s, o.Object, was, author)
	}
	if exists && was.uid != o.Write.UID {
		before := sqlstore.Author{AuditID: sqlstore.MirroredID(o.ResourceVersion, "")} // its deletion was not seen
		if err := w.delete(ctx, s, o.Object, was, before); err != nil {
			return err
		}
	}
	if err := w.add(ctx, o.Write, author); err != nil {
		return err
	}
	s.known[o.Object] = version{o.Write.UID, o.ResourceVersion}
	return nil
}

// author returns who made a version. Of what was there when the follower began, that is not known.
func (w *writer) author(ctx context.Context, e event) sqlstore.Author {
	id := sqlstore.MirroredID(e.object.ResourceVersion, "")
	if e.kind == present && e.stream.applied == 0 {
		return sqlstore.Author{User: sqlstore.ImportAuthor, AuditID: id}
	}
	made := madeOf(e, func() []byte {
		if w.flush(ctx) != nil { // else the next flush fails, too
			return nil
		}
		before, _, err := w.store.Get(ctx, e.stored, e.object.Object)
		if err != nil || before == nil {
			return nil
		}
		return before.Value
	})
	author, known := w.authors.of(made)
	if wait := time.Until(e.arrived.Add(auditDelay)); !known && w.authors.told && e.kind == changed && wait > 0 {
		if w.flush(ctx) == nil { // else the next flush fails, too
			author, known = w.authors.await(ctx, made, wait)
		}
	}
	if !known {
		author = sqlstore.Author{FieldManager: made.manager}
	}
	author.AuditID = sqlstore.MirroredID(e.object.ResourceVersion, author.AuditID)
	return author
}

// delete writes the deletion of an object.
func (w *writer) delete(ctx context.Context, s *stream, key string, was version, author sqlstore.Author) error {
	d := &sqlstore.Write{Operation: deletion, Resource: s.stored, Key: key, UID: was.uid, Labels: sqlstore.EncodeSet(nil), Fields: sqlstore.EncodeSet(nil)}
	d.Namespace, d.Name = splitKey(key)
	delete(s.known, key)
	return w.add(ctx, d, author)
}

// add adds a write to the batch. It writes what is there before if the engine needs it in another order.
func (w *writer) add(ctx context.Context, one *sqlstore.Write, author sqlstore.Author) (err error) {
	o := object{one.Resource, one.Key}
	if w.objects[o] || len(w.batch) >= most {
		if err := w.flush(ctx); err != nil {
			return err
		}
	}
	if one.Previous, _, err = w.store.Get(ctx, one.Resource, one.Key); err != nil {
		return err
	}
	switch {
	case one.Previous == nil && one.Operation == deletion:
		return nil
	case one.Previous != nil && one.Operation == creation:
		one.Operation = update
	}
	if n := len(w.batch); n > 0 && one.Previous != nil && w.batch[n-1].Previous == nil { // replacements come first
		if err := w.flush(ctx); err != nil {
			return err
		}
	}
	w.batch, w.objects[o] = append(w.batch, sqlstore.Authored{Write: one, Author: author}), true
	return nil
}

// flush writes the batch. A row that the database refuses is left out.
func (w *writer) flush(ctx context.Context) error {
	batch := w.batch
	w.batch = nil
	clear(w.objects)
	if len(batch) == 0 {
		return nil
	}
	_, err := w.store.WriteTogether(ctx, batch)
	if err == nil || sqlstore.MayHaveHappened(err) || errors.Is(err, sqlstore.ErrConflict) || errors.Is(err, sqlstore.ErrFull) || errors.Is(err, sqlstore.ErrClosed) {
		return err
	}
	if len(batch) == 1 {
		w.log.Error("the database refuses a version of an object; it is left out", "resource", batch[0].Resource, "object", batch[0].Key, "error", err)
		return nil
	}
	for i := range batch {
		w.batch = batch[i : i+1]
		if err := w.flush(ctx); err != nil {
			return err
		}
	}
	return nil
}

// mark writes a gap into history.
func (w *writer) mark(ctx context.Context, g *Gap) error {
	if err := w.flush(ctx); err != nil {
		return err
	}
	previous, _, err := w.store.Get(ctx, sqlstore.Gaps, gapName)
	if err != nil {
		return err
	}
	one, err := g.write(previous)
	if err == nil {
		_, err = w.store.Write(sqlstore.WithAuthor(ctx, sqlstore.Author{}), one)
	}
	return err
}

// reached notes how far a stream has come, or with 0 that there is none any more.
func (s *state) reached(name string, version int64) {
	for i := range s.Positions {
		if s.Positions[i].Resource == name {
			if s.Positions[i].Version = version; version == 0 {
				s.Positions = append(s.Positions[:i:i], s.Positions[i+1:]...)
			}
			return
		}
	}
	if version != 0 {
		s.Positions = append(s.Positions, position{name, version})
	}
}
