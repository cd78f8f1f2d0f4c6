package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// program is a binary that can be built from the module proxy.
type program struct {
	name   string
	module string // directory of its go.mod, from the repository's root
	pkg    string
	cgo    string // CGO_ENABLED as in its releases: kine's have SQLite in C
}

var (
	apiserverProgram = program{"kube-apiserver", ".", "k8s.io/kubernetes/cmd/kube-apiserver", "0"}
	etcdProgram      = program{"etcd", "test/bench/peers", "go.etcd.io/etcd/server/v3", "0"}
	kineProgram      = program{"kine", "test/bench/peers", "github.com/k3s-io/kine", "1"}
)

// binaries builds programs into a directory, each at most once per run.
type binaries struct {
	dir   string
	root  string // of the repository
	built map[string]string
}

// newBinaries finds the repository from the working directory.
func newBinaries(ctx context.Context, dir string) (*binaries, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return nil, fmt.Errorf("go env GOMOD: %w", err)
	}
	file := strings.TrimSpace(string(out))
	if file == "" || file == os.DevNull {
		return nil, errors.New("run the benchmark inside sqube's repository, from which it builds what it measures")
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	return &binaries{dir: dir, root: filepath.Dir(file), built: map[string]string{}}, nil
}

// build returns the path of the program's binary.
func (b *binaries) build(ctx context.Context, p program) (string, error) {
	if path, ok := b.built[p.name]; ok {
		return path, nil
	}
	path := filepath.Join(b.dir, p.name)
	progress("building %s", p.name)
	cmd := exec.CommandContext(ctx, "go", "build", "-tags", "grpcnotrace", "-ldflags", "-s -w", "-o", path, p.pkg)
	cmd.Dir = filepath.Join(b.root, p.module)
	cmd.Env = append(os.Environ(), "CGO_ENABLED="+p.cgo)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", p.name, err, out)
	}
	b.built[p.name] = path
	return path, nil
}

// sqube makes bin/sqube as its users do and returns its path.
func (b *binaries) sqube(ctx context.Context) (string, error) {
	progress("building sqube")
	cmd := exec.CommandContext(ctx, "make", "build")
	cmd.Dir = b.root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("make build: %w\n%s", err, out)
	}
	return filepath.Join(b.root, "bin", "sqube"), nil
}
