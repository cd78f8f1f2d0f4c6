package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/test/harness"
)

// server is one measured server, with what is known about its processes.
type server struct {
	Name       string
	Kubeconfig string // path of the file
	State      string // where a peer keeps its state: etcd's URL, kine's file or DSN
	PIDs       []int  // the processes whose CPU time and memory are the server's, including a datastore shim, without Postgres
	Database   int    // Postgres' first process, the parent of the others, whose share counts too; 0 if there is none or it is not local
	Binaries   []string
	StartUp    time.Duration         // from the first process to 200 from /readyz
	DataSize   func() (int64, error) // bytes of the database, including its logs
	ReadOnly   bool                  // it sends canned responses, so that only the phases of plain requests apply
	Datastore  string                // sqube's --datastore
	Addresses  []string              // of its API servers
	Began      time.Time             // when its first process was last started
	BeganAt    time.Duration         // the CPU time that Postgres had used by then

	dir      string // for its files, removed when it is closed
	ports    []int  // of its API servers
	access   credentials
	admin    string                          // the kubeconfig that the server itself writes, with its authority; "" if it uses the credentials' certificate
	commands func(flags []string) []*command // its processes in the order of their starts; the flags follow its own
	running  []*process
	closers  []func() error // in the order of opening
}

// opener starts a server.
type opener struct {
	name    string
	nodes   int // that get a token
	servers int // API servers
	prepare func(context.Context, *server) error
}

// open starts the server with an empty database. What it has started is stopped if that fails.
func (o opener) open(ctx context.Context) (_ *server, err error) {
	s := &server{Name: o.name}
	defer func() {
		if err != nil {
			if closeErr := s.Close(); closeErr != nil {
				err = fmt.Errorf("%w (and on closing: %w)", err, closeErr)
			}
		}
	}()
	if s.dir, err = os.MkdirTemp("", "sqube-bench-"); err != nil {
		return nil, err
	}
	s.onClose(func() error { return os.RemoveAll(s.dir) })
	if s.access, err = newCredentials(s.dir, o.nodes); err != nil {
		return nil, err
	}
	for range o.servers {
		port, err := harness.FreePort()
		if err != nil {
			return nil, err
		}
		s.ports, s.Addresses = append(s.ports, port), append(s.Addresses, loopback(port))
	}
	ca, err := os.ReadFile(s.access.Certificate)
	if err != nil {
		return nil, err
	}
	if s.Kubeconfig, err = s.access.kubeconfig(s.dir, s.ports[0], ca); err != nil {
		return nil, err
	}
	if err := o.prepare(ctx, s); err != nil {
		return nil, err
	}
	if err := s.Start(ctx); err != nil || s.admin == "" {
		return s, err
	}
	admin, err := loadKubeconfig(s.admin)
	if err != nil {
		return nil, err
	}
	if err := rest.LoadTLSFiles(admin); err != nil {
		return nil, err
	}
	s.Kubeconfig, err = s.access.kubeconfig(s.dir, s.ports[0], admin.CAData)
	return s, err
}

// Start starts the server with these flags after its own, and waits until it is ready.
func (s *server) Start(ctx context.Context, flags ...string) error {
	before, err := treeCPUTime(s.Database)
	if err != nil {
		return err
	}
	s.Began, s.BeganAt, s.PIDs = time.Now(), before, nil
	for _, c := range s.commands(flags) {
		p, err := c.start()
		if err != nil {
			return err
		}
		s.running, s.PIDs = append(s.running, p), append(s.PIDs, p.Pid())
		if err := p.waitReady(ctx, c.ready); err != nil {
			return err
		}
	}
	s.StartUp = time.Since(s.Began)
	return nil
}

// Stop stops the server's processes in reverse order. Stopping twice is harmless.
func (s *server) Stop() error {
	var errs []error
	for _, p := range slices.Backward(s.running) {
		errs = append(errs, p.Stop())
	}
	s.running = nil
	return errors.Join(errs...)
}

// Restart stops the server and starts it on its stored state, with these flags after its own.
func (s *server) Restart(ctx context.Context, flags ...string) error {
	if err := s.Stop(); err != nil {
		return err
	}
	return s.Start(ctx, flags...)
}

// onClose registers a function to call when the server is closed.
func (s *server) onClose(f func() error) { s.closers = append(s.closers, f) }

// Close stops the server and what was started for it, in reverse order. Closing twice is harmless.
func (s *server) Close() error {
	errs := []error{s.Stop()}
	for _, f := range slices.Backward(s.closers) {
		errs = append(errs, f())
	}
	s.closers = nil
	return errors.Join(errs...)
}
