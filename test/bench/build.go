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
	static bool // built as the release is, without cgo
}

var (
	squbeProgram     = program{name: "sqube", module: ".", pkg: "./cmd/sqube", static: true}
	apiserverProgram = program{name: "kube-apiserver", module: ".", pkg: "k8s.io/kubernetes/cmd/kube-apiserver"}
	etcdProgram      = program{name: "etcd", module: "test/bench/peers", pkg: "go.etcd.io/etcd/server/v3"}
	kineProgram      = program{name: "kine", module: "test/bench/peers", pkg: "github.com/k3s-io/kine"}
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
	cmd.Env = os.Environ()
	if p.static {
		cmd.Env = append(cmd.Env, "CGO_ENABLED=0")
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", p.name, err, out)
	}
	b.built[p.name] = path
	return path, nil
}
