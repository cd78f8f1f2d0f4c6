package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// historyPhases measure what it costs to keep history and to read it.
func historyPhases(n sizes) []phase {
	const without = "create and change ConfigMaps 6 KB, without history"
	return []phase{
		{phaseStart, false, (*session).start, nil},
		{without, false, (*session).historyCosts, []row{cpuMicros.with(false), databaseCPU}},
		{"the same with history", false, func(s *session, _ context.Context) (result, error) { return s.past.kept, nil },
			[]row{cpuMicros.with(false), cpuMicros.dividedBy(without, "of that without history"), databaseCPU, historySize}},
		{"get a ConfigMap", false, historyReads(n.Gets/10, true, false), []row{p50}},
		{"get a ConfigMap as it was, from packed history", false, historyReads(n.Gets/10, true, true), []row{p50}},
		{"list 1,000 ConfigMaps", false, historyReads(5*n.Lists, false, false), []row{p50}},
		{"list 1,000 ConfigMaps as they were, from packed history", false, historyReads(5*n.Lists, false, true), []row{p50}},
		{"change a field of a ConfigMap 6 KB again and again", false, (*session).changeOne, []row{historySize}},
	}
}

const (
	// historyTurns is how often each part with and without history is measured.
	historyTurns = 3
	// historyChanges is how often each object is changed after it was created.
	historyChanges = 3
	// historyRetention is short, so that versions are packed during the measurement.
	historyRetention = time.Second
)

// pastRun is what phases of `bench history` leave for later ones.
type pastRun struct {
	kept     result // what writing costs with history
	objects  kind   // of the last part
	revision []byte // when they had just been created
}

// changed are ConfigMaps of 6 KB with many keys, in the namespace of makeRoom.
func changed(prefix string) kind {
	var keys strings.Builder
	for i := range 75 {
		fmt.Fprintf(&keys, `,"key%d":"what setting number %[1]d of this shop is: %x"`, i, i*i*7919)
	}
	k := configMaps(prefix)
	k.collection = "/api/v1/namespaces/" + prefix + "/configmaps"
	k.body = func(name string, revision int) []byte {
		return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"changed":"%d"%s}}`, name, revision, keys.String())
	}
	return k
}

// makeRoom creates the namespace of such ConfigMaps.
func (s *session) makeRoom(ctx context.Context, k kind) error {
	_, err := s.ask(ctx, post("/api/v1/namespaces", fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, k.prefix)))
	return err
}

// changeField changes the ith of so many objects.
func changeField(ctx context.Context, c *client, k kind, i, objects int) error {
	return c.do(ctx, patch(k.path(i%objects), mediaMergePatch, fmt.Appendf(nil, `{"data":{"changed":"change %d"}}`, i)))
}

// historyCosts writes with and without history in turns, and returns what it costs without. The versions are packed meanwhile.
func (s *session) historyCosts(ctx context.Context) (result, error) {
	const workers = 4
	objects := max(2, s.sizes.Writes/6)
	var parts [2]sample
	var bytes float64
	writes := historyTurns * objects * (1 + historyChanges)
	for turn := range 2 * historyTurns {
		history := []string{"0", "168h"}[turn%2]
		progress("%s: starting with --history %s", s.server.Name, history)
		if err := s.server.Restart(ctx, "--retention", historyRetention.String(), "--history", history); err != nil {
			return result{}, err
		}
		// What was kept in the last turn is removed before anything is measured.
		warm := changed(fmt.Sprintf("warm-%d", turn))
		if err := s.makeRoom(ctx, warm); err != nil {
			return result{}, err
		}
		if _, err := create(warm, workers, objects/4+1)(s, ctx); err != nil {
			return result{}, err
		}
		if _, err := s.load(ctx, workers, objects/2, func(ctx context.Context, c *client, i int) error {
			return changeField(ctx, c, warm, i, objects/4+1)
		}); err != nil {
			return result{}, err
		}
		if err := s.packed(ctx, objects/2); err != nil {
			return result{}, err
		}
		before, err := s.metric(ctx, "history_bytes")
		if err != nil {
			return result{}, err
		}
		s.past.objects = changed(fmt.Sprintf("turn-%d", turn))
		part, err := s.changeAll(ctx, workers, objects)
		if err != nil {
			return result{}, err
		}
		parts[turn%2].add(part)
		after, err := s.metric(ctx, "history_bytes")
		if err != nil {
			return result{}, err
		}
		bytes = after - before
	}
	s.past.kept = parts[1].result(workers, writes)
	s.past.kept.Bytes = int64(bytes) / int64(objects*historyChanges)
	return parts[0].result(workers, writes), nil
}

// changeAll creates objects and changes each of them until their earlier versions have left the log.
func (s *session) changeAll(ctx context.Context, workers, objects int) (m sample, err error) {
	k := s.past.objects
	bodies := k.bodies(objects, 0)
	if err := s.makeRoom(ctx, k); err != nil {
		return m, err
	}
	removed, err := s.metric(ctx, "removed_rows_total")
	if err != nil {
		return m, err
	}
	if m, err = s.sample(ctx, workers, objects, func(ctx context.Context, c *client, i int) error {
		return c.do(ctx, post(k.collection, bodies[i]))
	}); err != nil {
		return m, err
	}
	if s.past.revision, err = s.newest(ctx, k.collection); err != nil {
		return m, err
	}
	changes, err := s.sample(ctx, workers, historyChanges*objects, func(ctx context.Context, c *client, i int) error {
		return changeField(ctx, c, k, i, objects)
	})
	if err != nil {
		return m, err
	}
	m.add(changes)
	return m, s.observe(&m, func() error { return s.packed(ctx, int(removed)+historyChanges*objects) })
}

// packed waits until the server has removed that many versions from the log since it started.
func (s *session) packed(ctx context.Context, versions int) error {
	return until(ctx, "versions leave the log", func() (bool, error) {
		removed, err := s.metric(ctx, "removed_rows_total")
		return err == nil && removed >= float64(versions), fmt.Errorf("%.0f of %d have left it: %w", removed, versions, err)
	})
}

// historyReads reads the objects of the last part, one by one or all at once, as they are or as they were when they had been created.
func historyReads(n int, one, past bool) operation {
	return func(s *session, ctx context.Context) (result, error) {
		k := s.past.objects
		query := ""
		if past {
			query = "?resourceVersionMatch=Exact&resourceVersion=" + string(s.past.revision)
		}
		return s.load(ctx, 1, max(1, n), func(ctx context.Context, c *client, i int) error {
			path := k.collection
			if one {
				path = k.path(i % max(2, s.sizes.Writes/6))
			}
			_, err := c.discard(ctx, get(path+query))
			return err
		})
	}
}

// changeOne changes a field of one object again and again, and returns what history takes for each change.
func (s *session) changeOne(ctx context.Context) (result, error) {
	one := changed("one")
	if err := s.makeRoom(ctx, one); err != nil {
		return result{}, err
	}
	if _, err := create(one, 1, 1)(s, ctx); err != nil {
		return result{}, err
	}
	bytes, err := s.metric(ctx, "history_bytes")
	if err != nil {
		return result{}, err
	}
	removed, err := s.metric(ctx, "removed_rows_total")
	if err != nil {
		return result{}, err
	}
	changes := max(10, s.sizes.Writes/10)
	r, err := s.load(ctx, 1, changes, func(ctx context.Context, c *client, i int) error { return changeField(ctx, c, one, i, 1) })
	if err == nil {
		err = s.packed(ctx, int(removed)+changes)
	}
	if err != nil {
		return r, err
	}
	after, err := s.metric(ctx, "history_bytes")
	r.Bytes = int64(after-bytes) / int64(changes)
	return r, err
}
