package main

import (
	"context"
	"errors"
	"slices"
	"time"
)

// server is one measured server, with what is known about its processes.
type server struct {
	Name       string
	Kubeconfig string // path of the file
	State      string // where a peer keeps its state: etcd's URL, kine's file or DSN
	PIDs       []int  // the processes whose CPU time and memory are the server's, including a datastore shim
	Database   int    // Postgres' first process, the parent of the others; 0 if there is none or it is not local
	Binaries   []string
	StartUp    time.Duration         // from the first process to 200 from /readyz
	DataSize   func() (int64, error) // bytes of the database, including its logs
	ReadOnly   bool                  // it sends canned responses, so that only the phases of plain requests apply
	Datastore  string                // sqube's --datastore
	Addresses  []string              // of its API servers
	Began      time.Time             // when its first process was last started
	access     credentials

	// launch starts the processes, the last of which serves, and waits until it is ready. The flags follow the server's own. It returns what has started even with an error.
	launch  func(ctx context.Context, flags []string) ([]*process, error)
	running []*process
	closers []func() error // in the order of opening
}

// Start starts the server with these flags after its own.
func (s *server) Start(ctx context.Context, flags ...string) (err error) {
	s.Began = time.Now()
	s.running, err = s.launch(ctx, flags)
	s.StartUp = time.Since(s.Began)
	s.PIDs = nil
	for _, p := range s.running {
		s.PIDs = append(s.PIDs, p.Pid())
	}
	return err
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

// opener starts a server.
type opener struct {
	name string
	open func(context.Context) (*server, error)
}
