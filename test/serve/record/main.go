// Command record writes the database of an older sqube for the tests of upgrades, and that sqube's responses to lists. Run it in the
// root of the repository, with the last sqube of a minor version of Kubernetes:
//
//	go run ./test/serve/record path/to/sqube
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/everykind"
)

const testdata = "test/serve/testdata"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "want the path of an older sqube")
		os.Exit(2)
	}
	if err := record(ctx, os.Args[1]); err != nil {
		fmt.Fprintf(os.Stderr, "record: %v\n", err)
		os.Exit(1)
	}
}

// record has the sqube fill a database, and keeps a copy of that and of the lists, and what a server without flags offers.
func record(ctx context.Context, sqube string) (err error) {
	dir, err := os.MkdirTemp("", "record-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	// The database contains its cluster's keys, encrypted with this one.
	key := filepath.Join(dir, "key")
	text, err := os.ReadFile(filepath.Join(testdata, "older.key"))
	if err != nil {
		return err
	}
	if err := os.WriteFile(key, text, 0o600); err != nil {
		return err
	}
	var name string
	var lists map[string]json.RawMessage
	err = serve(ctx, sqube, dir, append([]string{"--pki-encryption-key-file", key}, everykind.MoreFlags...), func(f *everykind.Filler) (err error) {
		name, lists, err = fill(ctx, f)
		return err
	})
	if err != nil {
		return err
	}
	backup := filepath.Join(dir, "backup")
	if text, err := exec.CommandContext(ctx, sqube, "backup", backup, "--data-dir", dir).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, text)
	}
	database, err := os.ReadFile(backup)
	if err != nil {
		return err
	}
	var offer everykind.Offer
	err = serve(ctx, sqube, filepath.Join(dir, "plain"), nil, func(f *everykind.Filler) (err error) {
		offer, err = f.Offer(ctx)
		return err
	})
	base := filepath.Join(testdata, name)
	return errors.Join(err, harness.WriteGzip(base+".db.gz", database), compressJSON(base+".lists.json.gz", lists), compressJSON(base+".offer.json.gz", offer))
}

// serve runs a server until use returns.
func serve(ctx context.Context, sqube, dir string, flags []string, use func(*everykind.Filler) error) error {
	port, err := harness.FreePort()
	if err != nil {
		return err
	}
	server := exec.CommandContext(ctx, sqube, append([]string{"serve", "--data-dir", dir, "--bind-address", "127.0.0.1", "--secure-port", fmt.Sprint(port)}, flags...)...)
	server.Stderr = os.Stderr
	server.Cancel = func() error { return server.Process.Signal(syscall.SIGTERM) }
	if err := server.Start(); err != nil {
		return err
	}
	f, err := ready(ctx, filepath.Join(dir, "admin.kubeconfig"))
	if err == nil {
		err = use(f)
	}
	return errors.Join(err, server.Process.Signal(syscall.SIGTERM), server.Wait())
}

func ready(ctx context.Context, kubeconfig string) (f *everykind.Filler, err error) {
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err != nil {
			return false, nil // not written yet
		}
		config.QPS = -1
		if f, err = everykind.New(config); err != nil {
			return false, err
		}
		ready, err := f.Client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return err == nil && string(ready) == "ok", nil
	})
	if err != nil {
		err = fmt.Errorf("the server is not ready: %w", err)
	}
	return f, err
}

// fill fills the server and returns its name, such as sqube-1.36, and its lists.
func fill(ctx context.Context, f *everykind.Filler) (name string, lists map[string]json.RawMessage, err error) {
	version, err := f.Client.Discovery().ServerVersion()
	if err != nil {
		return "", nil, err
	}
	for _, step := range []func(context.Context) error{f.Create, f.CreateMore, f.Change, f.Settled} {
		if err := step(ctx); err != nil {
			return "", nil, err
		}
	}
	lists, err = f.Lists(ctx)
	return fmt.Sprintf("sqube-%s.%s", version.Major, strings.TrimSuffix(version.Minor, "+")), lists, err
}

func compressJSON(path string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return harness.WriteGzip(path, data)
}
