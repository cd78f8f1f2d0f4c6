package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/sqube/sqube/test/harness"
)

// preparePeer builds kube-apiserver on one of its datastores, with default settings.
func preparePeer(ctx context.Context, o options, b *binaries, s *server) error {
	shim, err := shimOf(ctx, o, b, s)
	if err != nil {
		return err
	}
	apiserver, err := b.build(ctx, apiserverProgram)
	if err != nil {
		return err
	}
	s.Binaries = []string{shim.binary, apiserver}
	var programs []*command
	if o.plane.runs {
		if programs, err = controlPrograms(ctx, b, s); err != nil {
			return err
		}
	}
	for _, program := range programs {
		s.Binaries = append(s.Binaries, program.binary)
	}
	s.commands = func(flags []string) []*command {
		serve := &command{dir: s.dir, binary: apiserver, ready: readyz(s.ports[0]), args: slices.Concat([]string{
			"--etcd-servers", "http://" + loopback(shim.port),
			"--bind-address", "127.0.0.1",
			"--secure-port", strconv.Itoa(s.ports[0]),
			"--tls-cert-file", s.access.Certificate, "--tls-private-key-file", s.access.Key,
			"--token-auth-file", s.access.TokenFile,
			"--authorization-mode", "RBAC",
			"--service-cluster-ip-range", "10.0.0.0/16",
			"--service-account-issuer", "https://kubernetes.default.svc",
			"--service-account-key-file", s.access.Key, "--service-account-signing-key-file", s.access.Key,
			"--endpoint-reconciler-type", "none", // the default rejects a loopback address
		}, o.flags, flags)}
		return append([]*command{{dir: s.dir, binary: shim.binary, args: shim.args, ready: accepts(shim.port)}, serve}, programs...)
	}
	return nil
}

// controlPrograms builds kube-controller-manager and kube-scheduler. They open no port and have no client-side rate limit.
func controlPrograms(ctx context.Context, b *binaries, s *server) ([]*command, error) {
	manager, err := b.build(ctx, managerProgram)
	if err != nil {
		return nil, err
	}
	scheduler, err := b.build(ctx, schedulerProgram)
	flags := []string{"--secure-port=0", "--kube-api-qps=1000", "--kube-api-burst=1000", "--kubeconfig", s.Kubeconfig}
	started := func(context.Context) error { return nil }
	return []*command{
		{dir: s.dir, binary: manager, ready: started, args: slices.Concat(flags, []string{
			"--root-ca-file", s.access.Certificate, "--service-account-private-key-file", s.access.Key,
			"--cluster-signing-cert-file", s.access.Certificate, "--cluster-signing-key-file", s.access.Key,
		})},
		{dir: s.dir, binary: scheduler, ready: started, args: flags},
	}, err
}

// shim is the datastore process of kube-apiserver.
type shim struct {
	binary string
	args   []string
	port   int
}

// shimOf prepares the datastore of a peer.
func shimOf(ctx context.Context, o options, b *binaries, s *server) (shim, error) {
	port, err := harness.FreePort()
	if err != nil {
		return shim{}, err
	}
	d := shim{port: port}
	endpoint := ""
	switch s.Name {
	case "etcd":
		data := filepath.Join(s.dir, "etcd")
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
		data := filepath.Join(s.dir, "db") // where kine puts its file by default, under its working directory
		s.DataSize = func() (int64, error) { return filesSize(data) }
		s.State = filepath.Join(data, "state.db")
		endpoint = "sqlite://" // without a path: kine's default, with its default settings
	case "kine-file":
		s.State = filepath.Join(s.dir, "kine.db")
		s.DataSize = func() (int64, error) { return filesSize(s.State + "*") }
		endpoint = "sqlite://" + s.State // as k0smotron's benchmark names a file: without the parameters that kine sets by default
	case "kine-postgres":
		db, err := newDatabase(ctx, o, s)
		if err != nil {
			return d, err
		}
		s.Database, endpoint, s.State = db.Server, db.DSN, db.DSN
	default:
		return d, fmt.Errorf("the peers are etcd, kine-sqlite, kine-file and kine-postgres, not %q", s.Name)
	}
	d.args = []string{"--listen-address", "tcp://" + loopback(port), "--metrics-bind-address", "0", "--endpoint", endpoint}
	d.binary, err = b.build(ctx, kineProgram)
	return d, err
}
