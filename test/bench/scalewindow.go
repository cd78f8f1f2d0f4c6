package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
)

// window reports what the servers, Postgres and the load generator take while act runs, and the starts of pods.
func (s *session) window(ctx context.Context, nodes int, act func() error) (r result, err error) {
	self := []int{os.Getpid()}
	var m sample
	var before, after usage
	sampling, stop := context.WithCancel(ctx)
	average := make(chan memory, 1)
	go func() { average <- s.averageMemory(sampling) }()
	err = s.usage(ctx, self, &before)
	if err == nil {
		err = s.observe(&m, act)
	}
	if err == nil {
		err = s.usage(ctx, self, &after)
	}
	stop()
	servers := <-average
	if err != nil {
		return r, err
	}
	seconds := m.wall.Seconds()
	m.latencies = sorted(s.cluster.starts.take())
	s.scale.recent = m.latencies
	generator, err := readMemory(self)
	return result{
		Operations: len(m.latencies), Seconds: figure(seconds), PerSecond: figure(float64(len(m.latencies)) / seconds),
		P50: milliseconds(quantile(m.latencies, 50)), P99: milliseconds(quantile(m.latencies, 99)), Longest: milliseconds(quantile(m.latencies, 100)),
		Cores: figure(m.cpu.Seconds() / seconds), DatabaseCores: figure(m.databaseCPU.Seconds() / seconds),
		RSS: mebibytes(servers.RSS), Anonymous: mebibytes(servers.Anonymous),
		Nodes: nodes, AnonymousEach: figure(servers.Anonymous-s.scale.emptyMemory.Anonymous) / 1024 / figure(nodes),
		Writes:    figure(float64(after.revision-before.revision) / seconds),
		Sent:      figure(float64(after.received-before.received) / 1000 / seconds),
		LoadCores: figure((after.self - before.self).Seconds() / seconds), LoadRSS: mebibytes(generator.RSS),
		WrittenSecond: figure(float64(after.written-before.written) / 1000 / seconds),
	}, err
}

// usage is what has been used so far.
type usage struct {
	self     time.Duration // CPU time of the load generator
	written  int64         // bytes on the disk
	revision int64         // the newest resourceVersion
	received int64         // bytes by the clients
}

func (s *session) usage(ctx context.Context, self []int, u *usage) (err error) {
	if u.self, err = cpuTime(self); err != nil {
		return err
	}
	if u.written, err = s.logged(ctx); err != nil {
		return err
	}
	u.received = s.dialer.received.Load()
	version, err := s.newest(ctx, "/api/v1/namespaces")
	if err != nil {
		return err
	}
	_, err = fmt.Sscan(string(version), &u.revision)
	return err
}

// logged returns how many bytes the server has written to disk so far. Of Postgres it is the write-ahead log: what the kernel counts
// includes all of a file's large pages that a commit writes a part of.
func (s *session) logged(ctx context.Context) (n int64, err error) {
	if s.server.Database == 0 {
		return s.written()
	}
	err = withConnection(ctx, s.server.Datastore, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint").Scan(&n)
	})
	return n, err
}

// averageMemory returns the average memory of the servers until the context ends: that of one moment depends on how long ago
// garbage was collected.
func (s *session) averageMemory(ctx context.Context) memory {
	var sum memory
	for n := int64(1); ; n++ {
		m, _, err := s.server.memory()
		if err != nil {
			progress("%v", err)
		}
		sum.RSS += m.RSS
		sum.Anonymous += m.Anonymous
		if errors.Is(wait(ctx, time.Second), context.Canceled) {
			return memory{RSS: sum.RSS / n, Anonymous: sum.Anonymous / n}
		}
	}
}
