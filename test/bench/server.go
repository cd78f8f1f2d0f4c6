package main

import (
	"context"
	"errors"
	"time"
)

// server is one server under measurement, with what is known of the processes behind it.
type server struct {
	Name       string
	Kubeconfig string // path of the file
	State      string // where a peer keeps its state: etcd's URL, kine's file or DSN
	PIDs       []int  // the processes whose CPU time and memory are the server's, a datastore shim included
	Database   int    // Postgres' first process, of which the others are children; 0 when there is none or it is not local
	Binaries   []string
	StartUp    time.Duration         // from the first process to /readyz answering 200; 0 when it ran already
	DataSize   func() (int64, error) // bytes of the database, its logs included; nil when unknown
	ReadOnly   bool                  // it answers with ready bytes, so that only the phases of plain requests apply
	closers    []func() error        // in the order of opening

	Datastore string // what sqube was given as --datastore
	Stop      func() error
	Restart   func(ctx context.Context, flags ...string) error // stops it and starts it with these flags behind its own
}

// onClose registers what ends with the server.
func (s *server) onClose(f func() error) { s.closers = append(s.closers, f) }

// Close ends what was started for the server, the last first. Closing twice is harmless.
func (s *server) Close() error {
	var errs []error
	for i := len(s.closers) - 1; i >= 0; i-- {
		errs = append(errs, s.closers[i]())
	}
	s.closers = nil
	return errors.Join(errs...)
}

// opener starts a server, or finds one that runs.
type opener struct {
	name string
	open func(context.Context) (*server, error)
}

// given returns the server that --kubeconfig names.
func given(o options) (*server, error) {
	pids, err := o.pids.numbers()
	if err != nil {
		return nil, err
	}
	if len(pids) == 0 {
		config, err := loadKubeconfig(o.kubeconfig)
		if err != nil {
			return nil, err
		}
		pid, err := listenerOf(config.Host)
		if err != nil {
			return nil, err
		}
		pids = []int{pid}
	}
	return &server{Name: o.name, Kubeconfig: o.kubeconfig, PIDs: pids}, nil
}
