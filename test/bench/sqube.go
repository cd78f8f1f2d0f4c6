package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// squbePrefix begins the names of sqube's servers, which end in the engine's.
const squbePrefix = "sqube-"

// squbeOn starts sqube on an engine.
func squbeOn(o options, b *binaries, engine string) opener {
	opener := opener{name: squbePrefix + engine, servers: o.plane.servers(engine)}
	if o.plane.nodes {
		opener.nodes = o.sizes.Nodes
	}
	opener.prepare = func(ctx context.Context, s *server) error { return prepareSqube(ctx, o, b, engine, s) }
	return opener
}

func prepareSqube(ctx context.Context, o options, b *binaries, engine string, s *server) (err error) {
	binary := o.binary
	if binary == "" {
		binary, err = b.sqube(ctx)
	} else {
		binary, err = filepath.Abs(binary)
	}
	if err != nil {
		return err
	}
	s.Binaries = []string{binary}
	switch engine {
	case "sqlite":
		path := filepath.Join(s.dir, "bench.db")
		s.Datastore = "sqlite://" + path
		s.DataSize = func() (int64, error) { return filesSize(path + "*") }
	case "postgres":
		db, err := newDatabase(ctx, o, s)
		if err != nil {
			return err
		}
		s.Datastore, s.Database = db.DSN, db.Server
	default:
		return fmt.Errorf("sqube runs on sqlite and postgres, not on %q", engine)
	}
	flags := slices.Concat(o.squbeFlags, o.flags)
	if o.plane.runs {
		flags = append(flags, "--control-plane", "--service-cluster-ip-range", "10.0.0.0/16")
	}
	if o.plane.clusters {
		flags = append(flags, "--clusters")
	}
	if o.plane.retention {
		flags = append(flags, "--retention", o.sizes.Retention.String())
	}
	if len(s.ports) > 1 {
		flags = append(flags, "--pki-encryption-key-file", s.access.EncryptionKey)
	}
	data := func(i int) string { return filepath.Join(s.dir, "server-"+strconv.Itoa(i)) }
	for i := range s.ports {
		if err := os.MkdirAll(data(i), 0o700); err != nil {
			return err
		}
	}
	s.admin = filepath.Join(data(0), "data", "admin.kubeconfig")
	s.commands = func(further []string) (all []*command) {
		for i, port := range s.ports {
			all = append(all, &command{dir: data(i), binary: binary, ready: readyz(port), args: slices.Concat([]string{
				"serve",
				"--data-dir", filepath.Join(data(i), "data"),
				"--datastore", s.Datastore,
				"--bind-address", "127.0.0.1",
				"--secure-port", strconv.Itoa(port),
				"--token-auth-file", s.access.TokenFile,
			}, flags, further)})
		}
		return all
	}
	return nil
}
