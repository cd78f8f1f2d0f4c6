package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// wearPhases measures how much a server writes to its disk, which is what wears out a memory card.
func wearPhases(n sizes) []phase {
	return []phase{
		{phaseStart, false, (*session).start, nil},
		// First, or it would include the compaction of the others' versions.
		{"10 nodes renew their Leases, each every 10 s", false, wear(leases, leaseNodes, renewSlowly(n.Duration)), []row{written, writtenYear}},
		{"update ConfigMap (PUT) 1 KB, 1 client", false, wear(worn(1), wornObjects, update(1, max(1, n.Writes/2))), []row{written, p50}},
		{"update ConfigMap (PUT) 1 KB, 64 clients", false, wear(worn(64), wornObjects, update(64, 2*n.Writes)), []row{written, perSecond}},
	}
}

// wornObjects is how many objects are updated in turn.
const wornObjects = 100

// worn are the objects that that many clients update.
func worn(clients int) kind { return configMaps(fmt.Sprintf("worn-by-%d", clients)) }

// update updates existing objects, without a precondition.
func update(clients, n int) operation {
	return func(s *session, ctx context.Context) (result, error) {
		k := worn(clients)
		return s.load(ctx, clients, n, func(ctx context.Context, c *client, i int) error {
			object := i % wornObjects
			return c.do(ctx, put(k.path(object), k.body(k.name(object), 1+i/wornObjects)))
		})
	}
}

// leaseNodes is how many nodes renew their Leases, each every leaseEvery like kubelets.
const (
	leaseNodes = 10
	leaseEvery = 10 * time.Second
)

// renewSlowly renews existing Leases for that long.
func renewSlowly(duration time.Duration) operation {
	return func(s *session, ctx context.Context) (result, error) {
		due := time.NewTicker(leaseEvery / leaseNodes)
		defer due.Stop()
		var versions [leaseNodes][]byte
		return s.load(ctx, 1, max(1, int(duration/(leaseEvery/leaseNodes))), func(ctx context.Context, c *client, i int) (err error) {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-due.C:
			}
			node := i % leaseNodes
			if versions[node] == nil {
				if err := c.do(ctx, get(leases.path(node))); err != nil {
					return err
				}
				if versions[node], err = resourceVersion(c.answer.Bytes()); err != nil {
					return err
				}
			}
			if err := c.do(ctx, put(leases.path(node), withVersion(leases.body(leases.name(node), 1+i), versions[node]))); err != nil {
				return err
			}
			versions[node], err = resourceVersion(c.answer.Bytes())
			return err
		})
	}
}

// wear creates objects, then adds to the result of an operation on them how much the server has written to disk meanwhile and
// in the rest period afterwards.
func wear(k kind, objects int, op operation) operation {
	return func(s *session, ctx context.Context) (result, error) {
		if _, err := create(k, 1, objects)(s, ctx); err != nil {
			return result{}, err
		}
		if err := wait(ctx, s.sizes.Rest); err != nil {
			return result{}, err
		}
		before, err := s.written()
		if err != nil {
			return result{}, err
		}
		r, err := op(s, ctx)
		if err != nil {
			return r, err
		}
		if err := wait(ctx, s.sizes.Rest); err != nil {
			return r, err
		}
		after, err := s.written()
		const year = 365 * 24 * time.Hour
		bytes := figure(after - before)
		r.Written = bytes / 1000 / figure(r.Operations)
		r.WrittenYear = bytes / 1e9 * figure(year.Seconds()) / r.Seconds
		return r, err
	}
}

// written returns how many bytes the server and its Postgres have written to disk so far.
func (s *session) written() (total int64, err error) {
	for _, pid := range s.server.PIDs {
		n, err := writtenBy(pid)
		if err != nil {
			return 0, err
		}
		total += n
	}
	if s.server.Database == 0 {
		return total, nil
	}
	children, err := childrenOf(s.server.Database)
	if err != nil {
		return 0, err
	}
	for _, pid := range append(children, s.server.Database) {
		n, err := writtenBy(pid)
		if err != nil && !ended(err) { // if it has, its parent counts what it wrote
			return 0, err
		}
		total += n
	}
	return total, nil
}

// writtenBy reads write_bytes of /proc/PID/io (proc_pid_io(5)): whole pages, counted when they become due to be written. It is
// 0 if the files are in memory.
func writtenBy(pid int) (int64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		return 0, fmt.Errorf("what process %d has written: %w", pid, err)
	}
	for line := range strings.Lines(string(raw)) {
		if count, found := strings.CutPrefix(line, "write_bytes: "); found {
			return strconv.ParseInt(strings.TrimSpace(count), 10, 64)
		}
	}
	return 0, fmt.Errorf("/proc/%d/io has no write_bytes", pid)
}
