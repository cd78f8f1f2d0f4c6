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

// openPeer builds and starts kube-apiserver on one of its datastores, each with an empty database and its own defaults.
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
	access, err := newCredentials(dir)
	if err != nil {
		return nil, err
	}
	port, err := harness.FreePort()
	if err != nil {
		return nil, err
	}
	s.Binaries = []string{shim.binary, apiserver}

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
			"--endpoint-reconciler-type", "none", // which refuses to publish a loopback address
		}, o.flags, flags)...)
		if err != nil {
			return running, err
		}
		return append(running, p), p.waitReady(ctx, readyz(port))
	}
	if err := s.Start(ctx); err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(access.Certificate)
	if err != nil {
		return nil, err
	}
	s.Kubeconfig, err = access.kubeconfig(dir, port, ca)
	return s, err
}

// shim is the process that kube-apiserver keeps its state in.
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
