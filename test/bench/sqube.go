package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/test/harness"
)

// squbePrefix begins the names of sqube's servers, which end in the engine's.
const squbePrefix = "sqube-"

// openSqube starts sqube on an engine, with an empty database.
func openSqube(ctx context.Context, o options, b *binaries, engine string) (_ *server, err error) {
	s := &server{Name: squbePrefix + engine}
	defer closeOnError(s, &err)
	dir, err := s.tempDir()
	if err != nil {
		return nil, err
	}
	binary := o.binary
	if binary == "" {
		binary, err = b.sqube(ctx)
	} else {
		binary, err = filepath.Abs(binary)
	}
	if err != nil {
		return nil, err
	}
	s.Binaries = []string{binary}
	switch engine {
	case "sqlite":
		path := filepath.Join(dir, "bench.db")
		s.Datastore = "sqlite://" + path
		s.DataSize = func() (int64, error) { return filesSize(path + "*") }
	case "postgres":
		db, err := newDatabase(ctx, o, s)
		if err != nil {
			return nil, err
		}
		s.Datastore, s.Database = db.DSN, db.Server
	default:
		return nil, fmt.Errorf("sqube runs on sqlite and postgres, not on %q", engine)
	}
	nodes := 0
	if o.plane.nodes {
		nodes = o.sizes.Nodes
	}
	if s.access, err = newCredentials(dir, nodes); err != nil {
		return nil, err
	}
	flags := slices.Concat(o.squbeFlags, o.flags)
	if o.plane.runs {
		flags = append(flags, "--control-plane", "--service-cluster-ip-range", "10.0.0.0/16")
	}
	if o.plane.retention {
		flags = append(flags, "--retention", o.sizes.Retention.String())
	}
	count := o.plane.servers(engine)
	if count > 1 {
		flags = append(flags, "--pki-encryption-key-file", s.access.EncryptionKey)
	}
	var ports []int
	for range count {
		port, err := harness.FreePort()
		if err != nil {
			return nil, err
		}
		ports = append(ports, port)
		s.Addresses = append(s.Addresses, loopback(port))
	}
	data := func(i int) string { return filepath.Join(dir, "server-"+strconv.Itoa(i)) }
	s.launch = func(ctx context.Context, further []string) (running []*process, err error) {
		for i, port := range ports {
			if err := os.MkdirAll(data(i), 0o700); err != nil {
				return running, err
			}
			p, err := start(data(i), o.environment(), binary, slices.Concat([]string{"serve",
				"--data-dir", filepath.Join(data(i), "data"),
				"--datastore", s.Datastore,
				"--bind-address", "127.0.0.1",
				"--secure-port", strconv.Itoa(port),
				"--token-auth-file", s.access.TokenFile}, flags, further)...)
			if err != nil {
				return running, err
			}
			running = append(running, p)
			if err := p.waitReady(ctx, readyz(port)); err != nil {
				return running, err
			}
		}
		return running, nil
	}
	if err := s.Start(ctx); err != nil {
		return nil, err
	}
	// The server has created its own certificate; the kubeconfig it wrote for the administrator has the authority.
	admin, err := loadKubeconfig(filepath.Join(data(0), "data", "admin.kubeconfig"))
	if err != nil {
		return nil, err
	}
	if err := rest.LoadTLSFiles(admin); err != nil {
		return nil, err
	}
	s.Kubeconfig, err = s.access.kubeconfig(dir, ports[0], admin.CAData)
	return s, err
}

// tempDir creates a directory that is removed when the server is closed.
func (s *server) tempDir() (string, error) {
	dir, err := os.MkdirTemp("", "sqube-bench-")
	if err == nil {
		s.onClose(func() error { return os.RemoveAll(dir) })
	}
	return dir, err
}

// closeOnError stops what an opener has started if it fails.
func closeOnError(s *server, err *error) {
	if *err != nil {
		if closeErr := s.Close(); closeErr != nil {
			*err = fmt.Errorf("%w (and on closing: %w)", *err, closeErr)
		}
	}
}
