package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"

	"github.com/sqube/sqube/server"
	"github.com/sqube/sqube/sqlstore"
)

type serveOptions struct {
	server    *server.Options
	datastore datastore
	log       logOptions
}

func serveCommand() *cobra.Command {
	o := &serveOptions{server: server.NewOptions()}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the Kubernetes API",
		Long: `Serve the Kubernetes API over HTTPS.

The first start makes what is missing under --data-dir: certificates, keys, a
kubeconfig for the administrator (admin.kubeconfig) and, unless --datastore names
another, the database. Later starts use them again.

SIGTERM or SIGINT ends the server when running requests are done; a second one
ends it at once.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	o.addFlags(cmd.Flags())
	return cmd
}

func (o *serveOptions) addFlags(fs *pflag.FlagSet) {
	o.server.AddFlags(fs)
	o.datastore.addFlag(fs)
	runtime.Must(logsapi.AddFeatureGates(utilfeature.DefaultMutableFeatureGate))
	utilfeature.DefaultMutableFeatureGate.AddFlag(fs)
	o.log.addFlags(fs)
	fs.SortFlags = false
}

// run serves until a signal comes.
func (o *serveOptions) run(ctx context.Context) error {
	if err := o.log.start(); err != nil {
		return err
	}
	defer klog.Flush()
	if err := o.server.Complete(); err != nil {
		return err
	}
	if err := o.datastore.complete(o.server.DataDir); err != nil {
		return err
	}
	o.server.SharedDatastore = o.datastore.shared()
	listener, err := server.Listen(o.server)
	if err != nil {
		return err
	}
	defer listener.Close()

	ctx, stop := untilSignal(ctx)
	defer stop()
	engine, err := o.datastore.open(ctx)
	if err != nil {
		return err
	}
	store, err := sqlstore.Open(ctx, engine, sqlstore.Options{Log: slog.Default()})
	if err != nil {
		return err
	}
	s, err := server.New(ctx, o.server, store)
	if err == nil {
		go o.announce(ctx, s)
		err = s.Run(ctx, listener)
	}
	if closing := store.Close(); err == nil && closing != nil {
		err = fmt.Errorf("closing the database: %w", closing)
	}
	if err == nil {
		slog.Info("stopped")
	}
	return err
}

// announce says, once the server is ready, how to use it.
func (o *serveOptions) announce(ctx context.Context, s *server.Server) {
	slog.Info("starting", "address", o.server.URL(), "datastore", o.datastore.String())
	if s.Wait(ctx) != nil {
		return // told to stop before
	}
	slog.Info("ready", "address", o.server.URL())
	fmt.Printf("sqube serves %s from %s\n  export KUBECONFIG=%s\n  kubectl get namespaces\n", o.server.URL(), &o.datastore, absolute(s.AdminKubeconfig()))
}

func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

// untilSignal returns a context that ends with the first SIGTERM or SIGINT.
// The second one ends the process.
func untilSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	go func() {
		name := <-signals
		slog.Info("stopping; once more ends at once", "signal", name.String())
		cancel()
		<-signals
		os.Exit(1)
	}()
	return ctx, cancel
}
