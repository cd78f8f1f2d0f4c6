package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/sqube/sqube/test/harness"
)

// openPeer builds and starts kube-apiserver on one of its datastores, with an empty database and default settings.
func openPeer(ctx context.Context, o options, b *binaries, name string) (_ *server, err error) {
	s := &server{Name: name}
	defer closeOnError(s, &err)
	dir, err := s.tempDir()
	if err != nil {
		return nil, err
	}
	shim, err := shimOf(ctx, o, b, s, dir)
	if err != nil {
		return nil, err
	}
	apiserver, err := b.build(ctx, apiserverProgram)
	if err != nil {
		return nil, err
	}
	access, err := newCredentials(dir, 0)
	if err != nil {
		return nil, err
	}
	port, err := harness.FreePort()
	if err != nil {
		return nil, err
	}
	s.Binaries, s.Addresses = []string{shim.binary, apiserver}, []string{loopback(port)}
	var programs []controlProgram
	if o.plane.runs {
		if programs, err = controlPrograms(ctx, b, access); err != nil {
			return nil, err
		}
		for _, program := range programs {
			s.Binaries = append(s.Binaries, program.binary)
		}
	}
	ca, err := os.ReadFile(access.Certificate)
	if err != nil {
		return nil, err
	}
	if s.Kubeconfig, err = access.kubeconfig(dir, port, ca); err != nil {
		return nil, err
	}

	s.launch = func(ctx context.Context, flags []string) ([]*process, error) {
		datastore, err := start(dir, nil, shim.binary, shim.args...)
		if err != nil {
			return nil, err
		}
		running := []*process{datastore}
		if err := datastore.waitReady(ctx, accepts(shim.port)); err != nil {
			return running, err
		}
		p, err := start(dir, o.environment(), apiserver, slices.Concat([]string{
			"--etcd-servers", "http://" + loopback(shim.port),
			"--bind-address", "127.0.0.1",
			"--secure-port", strconv.Itoa(port),
			"--tls-cert-file", access.Certificate, "--tls-private-key-file", access.Key,
			"--token-auth-file", access.TokenFile,
			"--authorization-mode", "RBAC",
			"--service-cluster-ip-range", "10.0.0.0/16",
			"--service-account-issuer", "https://kubernetes.default.svc",
			"--service-account-key-file", access.Key, "--service-account-signing-key-file", access.Key,
			"--endpoint-reconciler-type", "none", // the default rejects a loopback address
		}, o.flags, flags)...)
		if err != nil {
			return running, err
		}
		running = append(running, p)
		if err := p.waitReady(ctx, readyz(port)); err != nil {
			return running, err
		}
		for _, program := range programs {
			p, err := start(dir, nil, program.binary, append(program.args, "--kubeconfig", s.Kubeconfig)...)
			if err != nil {
				return running, err
			}
			running = append(running, p)
		}
		return running, nil
	}
	return s, s.Start(ctx)
}

// controlProgram is a program that runs alongside kube-apiserver in a cluster.
type controlProgram struct {
	binary string
	args   []string
}

// controlPrograms builds kube-controller-manager and kube-scheduler. They open no port and have no client-side rate limit.
func controlPrograms(ctx context.Context, b *binaries, access credentials) ([]controlProgram, error) {
	manager, err := b.build(ctx, managerProgram)
	if err != nil {
		return nil, err
	}
	scheduler, err := b.build(ctx, schedulerProgram)
	limits := []string{"--secure-port=0", "--kube-api-qps=1000", "--kube-api-burst=1000"}
	return []controlProgram{
		{manager, append([]string{
			"--root-ca-file", access.Certificate, "--service-account-private-key-file", access.Key,
			"--cluster-signing-cert-file", access.Certificate, "--cluster-signing-key-file", access.Key,
		}, limits...)},
		{scheduler, limits},
	}, err
}

// shim is the datastore process of kube-apiserver.
type shim struct {
	binary string
	args   []string
	port   int
}

// shimOf prepares the datastore of a peer.
func shimOf(ctx context.Context, o options, b *binaries, s *server, dir string) (shim, error) {
	port, err := harness.FreePort()
	if err != nil {
		return shim{}, err
	}
	d := shim{port: port}
	endpoint := ""
	switch s.Name {
	case "etcd":
		data := filepath.Join(dir, "etcd")
		s.DataSize = func() (int64, error) { return filesSize(data) }
		s.State = "http://" + loopback(port)
		peerPort, err := harness.FreePort()
		if err != nil {
			return d, err
		}
		client, peer := "http://"+loopback(port), "http://"+loopback(peerPort)
		d.args = []string{
			"--data-dir", data, "--log-level", "error",
			"--listen-client-urls", client, "--advertise-client-urls", client,
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default=" + peer,
		}
		d.binary, err = b.build(ctx, etcdProgram)
		return d, err
	case "kine-sqlite":
		data := filepath.Join(dir, "db") // where kine puts its file by default, under its working directory
		s.DataSize = func() (int64, error) { return filesSize(data) }
		s.State = filepath.Join(data, "state.db")
		endpoint = "sqlite://" // without a path: kine's default, with its default settings
	case "kine-postgres":
		db, err := newDatabase(ctx, o, s)
		if err != nil {
			return d, err
		}
		s.Database, endpoint, s.State = db.Server, db.DSN, db.DSN
	default:
		return d, fmt.Errorf("the peers are etcd, kine-sqlite and kine-postgres, not %q", s.Name)
	}
	d.args = []string{"--listen-address", "tcp://" + loopback(port), "--metrics-bind-address", "0", "--endpoint", endpoint}
	d.binary, err = b.build(ctx, kineProgram)
	return d, err
}
