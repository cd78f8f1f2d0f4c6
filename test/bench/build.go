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
	module string // directory of its go.mod, relative to the repository's root
	pkg    string
	cgo    string // CGO_ENABLED as in its releases: kine's use SQLite in C
}

var (
	// kube-apiserver has the version of the Kubernetes libraries that sqube uses.
	apiserverProgram = program{"kube-apiserver", ".", "k8s.io/kubernetes/cmd/kube-apiserver", "0"}
	managerProgram   = program{"kube-controller-manager", ".", "k8s.io/kubernetes/cmd/kube-controller-manager", "0"}
	schedulerProgram = program{"kube-scheduler", ".", "k8s.io/kubernetes/cmd/kube-scheduler", "0"}
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
		return nil, errors.New("run the benchmark inside sqube's repository, from which it builds the servers")
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	return &binaries{dir: dir, root: filepath.Dir(file), built: map[string]string{}}, nil
}

// build returns the path of the program's binary.
func (b *binaries) build(ctx context.Context, p program) (string, error) {
	return b.once(p.name, func() (string, error) {
		modfile, err := b.modfile(p)
		if err != nil {
			return "", err
		}
		path := filepath.Join(b.dir, p.name)
		cmd := exec.CommandContext(ctx, "go", "build", "-mod=mod", "-modfile", modfile, "-tags", "grpcnotrace", "-ldflags", "-s -w", "-o", path, p.pkg)
		cmd.Dir = filepath.Join(b.root, p.module)
		cmd.Env = append(os.Environ(), "CGO_ENABLED="+p.cgo)
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build %s: %w\n%s", p.name, err, out)
		}
		return path, nil
	})
}

// modfile copies the program's go.mod and go.sum, so that the build may add to go.sum the hashes of modules that only the
// program needs, which `go mod tidy` removes.
func (b *binaries) modfile(p program) (string, error) {
	modfile := filepath.Join(b.dir, p.name+".mod")
	for from, to := range map[string]string{"go.mod": modfile, "go.sum": strings.TrimSuffix(modfile, ".mod") + ".sum"} {
		content, err := os.ReadFile(filepath.Join(b.root, p.module, from))
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(to, content, 0o644); err != nil {
			return "", err
		}
	}
	return modfile, nil
}

// sqube builds bin/sqube as users do and returns its path.
func (b *binaries) sqube(ctx context.Context) (string, error) {
	return b.once("sqube", func() (string, error) {
		cmd := exec.CommandContext(ctx, "make", "build")
		cmd.Dir = b.root
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("make build: %w\n%s", err, out)
		}
		return filepath.Join(b.root, "bin", "sqube"), nil
	})
}

// once calls make unless the binary of that name has already been built, and returns its path.
func (b *binaries) once(name string, make func() (string, error)) (string, error) {
	if path, ok := b.built[name]; ok {
		return path, nil
	}
	progress("building %s", name)
	path, err := make()
	if err == nil {
		b.built[name] = path
	}
	return path, err
}
