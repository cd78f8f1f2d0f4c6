package robustness

import (
	"context"
	"errors"
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

// The kinds. All but the cut and the terminated connection last as long as planned; a killed process stays down for that time.
const (
	killServer kind = "SIGKILL"
	// stopServer is followed by a SIGKILL if the server takes too long to exit.
	stopServer  kind = "SIGTERM"
	pauseServer kind = "SIGSTOP"
	// cutNetwork closes all connections of a server to Postgres, dropNetwork drops all packets.
	cutNetwork  kind = "network cut"
	dropNetwork kind = "network drop"
	// killPostgres kills the cluster, pausePostgres stops all of its processes.
	killPostgres  kind = "SIGKILL of Postgres"
	pausePostgres kind = "SIGSTOP of Postgres"
	// killConnection terminates one connection of any server, in Postgres.
	killConnection kind = "pg_terminate_backend"
	// The disk is the database's. The clock is the wall clock of a server: it steps, and steps back.
	fullDisk  kind = "full disk"
	failSync  kind = "failing fsync"
	slowSync  kind = "slow fsync"
	stepClock kind = "clock step"
)

// kindsOf returns the kinds of a configuration. A kind that is listed more often occurs more often: a fault that ends the only
// server, or Postgres, stops all work, so the others occur more often.
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

// target returns what a fault affects. A target has only one fault at a time.
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

// offset is how wrong a clock is: up to four minutes behind, since certificates are valid from five minutes before they are
// issued, or up to half an hour ahead, which is more than the retention.
func (f fault) offset() time.Duration { return time.Duration(int64(f.Pick)%(34*60)-4*60) * time.Second }

// delay is how much longer a sync takes.
func (f fault) delay() time.Duration { return time.Duration(f.Pick%400) * time.Millisecond }

// run causes the faults of a plan, and returns when the last has ended.
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

const (
	// writesBeforeKill is how many writes are acknowledged at least between two kills, which can then happen at any moment of the load.
	writesBeforeKill = 30
	// killEvery is how much of a duration a kill stands for.
	killEvery = 1500 * time.Millisecond
)

// kill kills what the configuration says, and returns how often.
func (c *cluster) kill(ctx context.Context, config configuration, seed uint64, duration time.Duration) (killed int, err error) {
	random := newRandom(seed, config.name)
	for ; killed < int(duration/killEvery); killed++ {
		end := time.Now().Add(settleTimeout)
		for until := c.recorder.Acknowledged() + writesBeforeKill + random.IntN(writesBeforeKill); c.recorder.Acknowledged() < until; {
			if time.Now().After(end) {
				return killed, errors.New("no more writes are acknowledged")
			}
			time.Sleep(time.Millisecond)
		}
		f := fault{Kind: config.kills[random.IntN(len(config.kills))], For: minFor}
		c.note("begins: %v", f)
		if err := c.suffer(ctx, f); err != nil {
			return killed, err
		}
	}
	return killed, nil
}

// suffer causes one fault and ends it. If another fault prevents it, the error says why.
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
		return fmt.Errorf("unknown fault %q", f.Kind)
	}
	return nil
}

// down ends the server with a signal, or with SIGKILL after the grace time. It is restarted once last has returned.
func (s *server) down(signal syscall.Signal, last func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := syscall.Kill(s.Pid(), signal); err != nil {
		return err
	}
	select {
	case <-s.Exited():
	case <-time.After(grace):
		if err := syscall.Kill(s.Pid(), syscall.SIGKILL); err != nil {
			return err
		}
		<-s.Exited()
	}
	last()
	return nil
}

// pause stops the server and resumes it.
func (s *server) pause(last func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := syscall.Kill(s.Pid(), syscall.SIGSTOP); err != nil {
		return err
	}
	last()
	return syscall.Kill(s.Pid(), syscall.SIGCONT)
}

// clock sets how far the server's clock is from the right time, until it is set again or the server exits.
func (s *server) clock(by time.Duration) error {
	s.mu.Lock() // a stopped process can't be changed
	defer s.mu.Unlock()
	return faults.StepClock(s.Pid(), by)
}

// kill ends Postgres like a crash. It is restarted once last has returned.
func (p *postgres) kill(last func()) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer last()
	return p.Kill()
}

// pause stops all processes of Postgres and resumes them.
func (p *postgres) pause(last func()) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	last()
	return p.Signal(syscall.SIGCONT)
}

// terminate terminates one of the servers' connections.
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
