package robustness

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/test/faults"
	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
	"github.com/sqube/sqube/test/robustness/history"
	"github.com/sqube/sqube/test/robustness/patroni"
)

const (
	// restartPause is how long a process stays down before it is restarted, as under a service manager.
	restartPause = 100 * time.Millisecond
	// grace is how long a server may take to shut down gracefully, which it can't while requests wait for the database.
	grace = 2 * time.Second
)

// cluster is the servers of one run and their database. Each is restarted whenever it exits.
type cluster struct {
	recorder  *history.Recorder
	datastore string        // the --datastore, bypassing the network faults
	began     time.Duration // when the faults began
	servers   []*server
	postgres  *postgres        // nil on SQLite, and with Patroni
	patroni   *patroni.Cluster // nil without
	disk      *faults.Disk     // that of the database

	mu  sync.Mutex
	log strings.Builder // of the faults
}

// server is one of the servers. mu is held while it is started, stopped or paused.
type server struct {
	*sqube.Server
	number  int
	network *faults.Proxy // to Postgres; nil on SQLite
	mu      sync.Mutex
}

// postgres is the database server. mu is held while it is started, stopped or paused.
type postgres struct {
	*harness.PostgresServer
	database string
	mu       sync.Mutex
}

// startCluster starts the servers of a configuration, which share their keys, and waits until they are ready.
func startCluster(t *testing.T, c configuration, recorder *history.Recorder) *cluster {
	t.Helper()
	cl := &cluster{recorder: recorder, disk: faults.NewDisk(t)}
	if c.postgres {
		cl.postgres = &postgres{PostgresServer: harness.NewFaultyPostgresServer(t, cl.disk.Run)}
		cl.datastore = cl.postgres.Database(t)
		cl.postgres.database = strings.TrimPrefix(harness.ParseDSN(t, cl.datastore).Path, "/")
	} else if c.patroni {
		cl.patroni = patroni.Start(t)
		cl.datastore = cl.patroni.DSN(c.haproxy)
	} else {
		cl.datastore = harness.SQLite(t)
	}
	first := ""
	for i := range c.servers {
		s := &server{number: i}
		dir := t.TempDir()
		if first == "" {
			first = dir
		} else if err := os.CopyFS(filepath.Join(dir, "pki"), os.DirFS(filepath.Join(first, "pki"))); err != nil {
			t.Fatal(err)
		}
		options := sqube.Options{
			Datastore: cl.datastore, DataDir: dir,
			// A clock that is ahead must compact the log in that time.
			Args: []string{"--compact-interval", "200ms"},
		}
		if c.skew && i == 0 {
			options.Binary = *oldFlag
		}
		if c.postgres {
			dsn := harness.ParseDSN(t, cl.datastore)
			s.network = faults.NewProxy(t, dsn.Host)
			dsn.Host = s.network.Addr()
			options.Datastore = dsn.String()
		} else if !c.patroni {
			options.Prepare = cl.disk.Run
		}
		s.Server = sqube.Start(t, options)
		cl.servers = append(cl.servers, s)
	}
	return cl
}

// configs returns the administrator's client configuration for each server.
func (c *cluster) configs(t *testing.T) (configs []*rest.Config) {
	for _, s := range c.servers {
		configs = append(configs, s.Config(t))
	}
	return configs
}

// supervise restarts the processes that exit until ctx is done. The returned function waits for it to end.
func (c *cluster) supervise(ctx context.Context) (wait func()) {
	var running sync.WaitGroup
	for _, s := range c.servers {
		running.Go(func() {
			c.keep(ctx, fmt.Sprintf("server %d", s.number), &s.mu, func() <-chan struct{} { return s.Exited() }, s.Relaunch)
		})
	}
	if p := c.postgres; p != nil {
		running.Go(func() {
			c.keep(ctx, "Postgres", &p.mu, p.Ended, func() error {
				if err := p.Kill(); err != nil { // it has exited, which the harness may not have noticed
					return err
				}
				return p.Start()
			})
		})
	}
	return running.Wait
}

// keep restarts a process whenever it exits.
func (c *cluster) keep(ctx context.Context, name string, mu *sync.Mutex, ended func() <-chan struct{}, start func() error) {
	for {
		mu.Lock()
		end := ended()
		mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-end:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(restartPause):
		}
		mu.Lock()
		c.note("%s has exited and is restarted", name)
		if err := start(); err != nil {
			c.note("%s does not start: %v", name, err)
		}
		mu.Unlock()
	}
}

// inspect runs sqube check on the database while servers use it.
func (c *cluster) inspect(t *testing.T) []error {
	out, err := exec.CommandContext(t.Context(), sqube.Binary(t), "check", "--datastore", c.datastore).CombinedOutput()
	if err != nil {
		return []error{fmt.Errorf("sqube check: %w: %s", err, out)}
	}
	return nil
}

// note writes a line into the log of the faults.
func (c *cluster) note(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Fprintf(&c.log, "%12s  %s\n", c.recorder.Now().Round(time.Millisecond), fmt.Sprintf(format, args...))
}
