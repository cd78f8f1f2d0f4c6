// Command record writes the recordings for the tests of sqube import: the state that a kube-apiserver has written to etcd and
// to kine, and its responses to lists. It builds and starts what it needs. Run it in the root of the repository:
//
//	go run ./test/import/record
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/everykind"
)

const testdata = "test/import/testdata"

// recordings are the benchmark's peers with the flags of their kube-apiservers. One of them stores custom resources as CBOR.
var recordings = map[string][]string{
	"etcd":          {"--feature-gates=CBORServingAndStorage=true"},
	"kine-sqlite":   nil,
	"kine-postgres": nil,
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	for name, flags := range recordings {
		if err := record(ctx, name, flags); err != nil {
			fmt.Fprintf(os.Stderr, "record %s: %v\n", name, err)
			os.Exit(1)
		}
	}
}

// Answers are what the kube-apiserver of a recording has returned.
type Answers struct {
	Token string                     // of a service account
	Lists map[string]json.RawMessage // by path
}

// record starts a kube-apiserver, fills it, and writes its state and responses.
func record(ctx context.Context, name string, flags []string) (err error) {
	encryption, err := filepath.Abs(filepath.Join(testdata, "encryption.yaml"))
	if err != nil {
		return err
	}
	held, err := harness.Hold(ctx, name, append(flags, "--encryption-provider-config="+encryption)...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, held.Close()) }()
	config, err := clientcmd.BuildConfigFromFlags("", held.Kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1
	state, err := openState(ctx, name, held.State)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, state.close()) }()
	f, err := everykind.New(config)
	if err != nil {
		return err
	}
	var answers Answers
	for _, step := range []func() error{
		func() error { return f.Create(ctx) },
		func() error { return f.Change(ctx) },
		func() error { return addForms(ctx, state, f) },
		func() (err error) { answers.Token, err = f.Token(ctx); return err },
		func() (err error) { answers.Lists, err = f.Lists(ctx); return err },
		func() error { return addUnreadable(ctx, state) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	data, err := json.Marshal(answers)
	if err != nil {
		return err
	}
	// The benchmark's servers sign tokens with this key.
	key, err := os.ReadFile(filepath.Join(filepath.Dir(held.Kubeconfig), "tls.key"))
	if err != nil {
		return err
	}
	saved, err := state.save(ctx)
	if err != nil {
		return err
	}
	base := filepath.Join(testdata, name)
	return errors.Join(harness.WriteGzip(base+".answers.json.gz", data), harness.WriteGzip(base+".sa.key.gz", key), harness.WriteGzip(base+".state.gz", saved))
}
