package robustness

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sqube/sqube/test/faults"
)

// kind is a kind of fault.
type kind string

// The kinds. All but the cut and the ended connection last as long as the plan says; a process that is ended stays so for as
// long.
const (
	killServer kind = "SIGKILL"
	// stopServer is followed by a SIGKILL where the server takes long to end.
	stopServer  kind = "SIGTERM"
	pauseServer kind = "SIGSTOP"
	// cutNetwork breaks all connections of a server to Postgres, dropNetwork lets nothing through.
	cutNetwork  kind = "network cut"
	dropNetwork kind = "network drop"
	// killPostgres ends the cluster at once, pausePostgres stops all of its processes.
	killPostgres  kind = "SIGKILL of Postgres"
	pausePostgres kind = "SIGSTOP of Postgres"
	// killConnection ends one connection of any server, in Postgres.
	killConnection kind = "pg_terminate_backend"
	// The disk is the one that the database is on. The clock is the wall clock of a server: it steps, and steps back.
	fullDisk  kind = "full disk"
	failSync  kind = "failing fsync"
	slowSync  kind = "slow fsync"
	stepClock kind = "clock step"
)

// kindsOf returns the kinds that a configuration can have. The more often one is named the more often it comes: what ends the
// only server, or Postgres, keeps everybody from working, so that the others are to come more often.
func kindsOf(c configuration) []kind {
	kinds := []kind{killServer, stopServer, pauseServer, stepClock, fullDisk, failSync, slowSync}
	switch {
	case !c.postgres:
		return append(kinds, pauseServer, stepClock, fullDisk, failSync, slowSync)
	case c.servers > 1:
		kinds = append(kinds, killServer, stopServer)
	}
	connections := []kind{pauseServer, stepClock, killConnection, cutNetwork, dropNetwork}
	return slices.Concat(kinds, connections, connections, []kind{killPostgres, pausePostgres})
}

// target returns what a fault is about. Nothing suffers two at once.
func (f fault) target() string {
	switch f.Kind {
	case killServer, stopServer, pauseServer:
		return fmt.Sprintf("server %d", f.Server)
	case cutNetwork, dropNetwork:
		return fmt.Sprintf("network of server %d", f.Server)
	case stepClock:
		return fmt.Sprintf("clock of server %d", f.Server)
	case fullDisk, failSync, slowSync:
		return "disk"
	default:
		return "Postgres"
	}
}

// offset is by how much a clock is wrong: up to four minutes late, since the certificates are valid from five minutes before
// they are made, or half an hour early, which is more than the retention.
func (f fault) offset() time.Duration { return time.Duration(int64(f.Pick)%(34*60)-4*60) * time.Second }

// delay is by how much a sync takes longer.
func (f fault) delay() time.Duration { return time.Duration(f.Pick%400) * time.Millisecond }

// run makes the faults of a plan come and go, and returns when the last has gone.
func (c *cluster) run(ctx context.Context, plan []fault) {
	var running sync.WaitGroup
	defer running.Wait()
	for _, f := range plan {
		select {
		case <-ctx.Done():
			return
		case <-time.After(f.At - c.recorder.Now() + c.began):
		}
		running.Go(func() {
			c.note("begins: %v", f)
			if err := c.suffer(ctx, f); err != nil {
				c.note("%v: %v", f, err)
			}
			c.note("ends:   %v", f)
		})
	}
}

// suffer makes one fault come and go. Where it can't come, because of another one, it says why.
func (c *cluster) suffer(ctx context.Context, f fault) error {
	last := func() {
		select {
		case <-ctx.Done():
		case <-time.After(f.For):
		}
	}
	s := c.servers[f.Server]
	switch f.Kind {
	case killServer:
		return s.down(syscall.SIGKILL, last)
	case stopServer:
		return s.down(syscall.SIGTERM, last)
	case pauseServer:
		return s.pause(last)
	case cutNetwork:
		s.network.Cut()
	case dropNetwork:
		s.network.Drop()
		last()
		s.network.Resume()
	case killPostgres:
		return c.postgres.kill(last)
	case pausePostgres:
		return c.postgres.pause(last)
	case killConnection:
		return c.postgres.terminate(ctx, f.Pick)
	case fullDisk:
		c.disk.Full(true)
		last()
		c.disk.Full(false)
	case failSync:
		c.disk.FailSync(true)
		last()
		c.disk.FailSync(false)
	case slowSync:
		c.disk.SlowSync(f.delay())
		last()
		c.disk.SlowSync(0)
	case stepClock:
		if err := s.clock(f.offset()); err != nil {
			return err
		}
		last()
		return s.clock(0)
	default:
		return fmt.Errorf("there is no fault %q", f.Kind)
	}
	return nil
}

// down ends the server with a signal, or after the grace time with SIGKILL. It is started again once last has returned.
func (s *server) down(signal syscall.Signal, last func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := syscall.Kill(s.Pid(), signal); err != nil {
		return err
	}
	select {
	case <-s.Ended():
	case <-time.After(grace):
		if err := syscall.Kill(s.Pid(), syscall.SIGKILL); err != nil {
			return err
		}
		<-s.Ended()
	}
	last()
	return nil
}

// pause stops the server and lets it go on.
func (s *server) pause(last func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := syscall.Kill(s.Pid(), syscall.SIGSTOP); err != nil {
		return err
	}
	last()
	return syscall.Kill(s.Pid(), syscall.SIGCONT)
}

// clock sets the server's clock off by so much from the right time, until it is set anew or the server ends.
func (s *server) clock(by time.Duration) error {
	s.mu.Lock() // a process that is stopped could not be changed
	defer s.mu.Unlock()
	return faults.StepClock(s.Pid(), by)
}

// kill ends Postgres as a crash does. It is started again once last has returned.
func (p *postgres) kill(last func()) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer last()
	return p.Kill()
}

// pause stops all processes of Postgres and lets them go on.
func (p *postgres) pause(last func()) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	last()
	return p.Signal(syscall.SIGCONT)
}

// terminate ends one of the servers' connections.
func (p *postgres) terminate(ctx context.Context, pick uint32) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, p.DSN())
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE datname = $1 ORDER BY md5(pid::text || $2::text) LIMIT 1`, p.database, fmt.Sprint(pick))
	return err
}
