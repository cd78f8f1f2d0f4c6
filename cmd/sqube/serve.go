package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/version/verflag"
	"k8s.io/klog/v2"

	"github.com/sqube/sqube/cmd/sqube/internal/datastore"
	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/server"
	"github.com/sqube/sqube/server/controllers"
	"github.com/sqube/sqube/server/controlplane"
	"github.com/sqube/sqube/server/flagcheck"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/apistorage"
	"github.com/sqube/sqube/sqlstore/logbackup"
)

type serveOptions struct {
	server    *server.Options
	database  datastoreFlags
	datastore datastore.Datastore
	envtest   bool // the flag --envtest
	store     sqlstore.Options
	copied    copied
	archiveTo string                 // the flag --archive
	cacheSize resource.QuantityValue // the flag --cache-size
	history   historyOptions
	log       logOptions
	features  featureGates
	emulation emulation
	ignored   ignoredFlagSet

	archivePlace logbackup.Place // nil without --archive
	controlPlane controlplane.Options

	agents servedAgents

	simulatedNodes int // the flag --simulated-nodes

	fleet fleetOptions
}

func serveCommand() *cobra.Command {
	o := &serveOptions{server: server.NewOptions()}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the Kubernetes API",
		Long: `Serve the Kubernetes API over HTTPS.

The first start creates what is missing under --data-dir: certificates, keys, an
administrator's kubeconfig (admin.kubeconfig) and, unless --datastore names another,
the database. Later starts use the same files.

Every flag can also be an environment variable, such as SQUBE_DATA_DIR for
--data-dir, or a line of the file that --config names. The command line overrides
the environment, which overrides the file. An unknown name is an error in the file,
and in the environment if it looks like a misspelled flag.

SIGTERM or SIGINT ends the server when running requests are done; a second one
ends it at once.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) (failed error) {
			verflag.PrintAndExitIfRequested()
			environ := os.Environ()
			if o.envtest {
				environ = nil // the user's settings are not for test servers
			}
			if err := applySettings(cmd, environ); err != nil {
				return flagErrors(cmd, err)
			}
			if err := o.log.start(); err != nil {
				return flagErrors(cmd, err)
			}
			defer klog.Flush()
			warnDeprecated(cmd.Flags())
			if o.envtest {
				if err := o.standIn(cmd); err != nil {
					return flagErrors(cmd, err)
				}
			}
			o.server.Program, _ = os.Executable() // without it, the console tries nothing
			remove, err := o.copied.fetch(cmd, o.server)
			defer closing(&failed, remove)
			if err == nil {
				err = o.complete()
			}
			if err != nil {
				return o.log.logged(flagErrors(cmd, err))
			}
			return o.log.logged(o.run(cmd.Context()))
		},
	}
	o.server.Flags = o.flags()
	useSections(cmd, o.server.Flags)
	o.ignored.addFlags(cmd.Flags())
	addEnvtestFlag(cmd.Flags(), &o.envtest)
	verflag.AddFlags(cmd.Flags())
	cmd.Flags().Lookup("version").Hidden = true // sqube version prints more
	return cmd
}

func (o *serveOptions) flags() *cliflag.NamedFlagSets {
	sections := &cliflag.NamedFlagSets{}
	addConfigFlag(sections.FlagSet("Configuration"))
	o.server.OtherControllers = o.controlPlane.Controllers()
	o.server.AddFlags(sections)
	o.controlPlane.AddFlags(sections.FlagSet("Control plane"))
	o.agents.addFlags(sections.FlagSet("Agents"))
	o.server.SetLogLevel = o.log.setVerbosity
	state := sections.FlagSet(server.StateFlags)
	o.database.addFlags(state)
	state.BoolVar(&o.server.InMemory, "in-memory", false, "Keep the database and the keys in memory only, for tests. The only file on disk is admin.kubeconfig under --data-dir, which the server removes when it stops.")
	o.addSimulatedNodesFlag(state)
	o.fleet.addFlags(sections.FlagSet("Hosted clusters"))
	o.copied.addFlags(state, o.server)
	state.DurationVar(&o.store.Timeout, "datastore-timeout", sqlstore.DefaultTimeout, "How long a request waits for the database, at least 1s. Then it gets 503 or 504 and Retry-After. The server recovers by itself when the database is back.")
	o.cacheSize.Quantity = *resource.NewQuantity(sqlstore.DefaultCacheBytes, resource.BinarySI)
	state.Var(&o.cacheSize, "cache-size", "Memory for objects that are read without the database, such as 128Mi; 0 for none. The most recently read collections are kept. If one does not fit, everything but its objects' values is kept, and as many compressed values as fit.")
	state.DurationVar(&o.store.Retention, "retention", sqlstore.DefaultRetention, "How long replaced and deleted versions of objects are kept for watches that start there, at least 1s, and how long continue tokens are good. Older ones get 410. Lists and gets at exact revisions can go back further: see --history.")
	state.DurationVar(&o.store.CompactInterval, "compact-interval", 0, "How often versions older than --retention are removed. If 0, a tenth of --retention, but at least every 30s; a few are removed together, within another --retention, or two if nothing is written.")
	o.history.addFlags(state)
	state.StringVar(&o.archiveTo, "archive", "", "Folder, or s3://BUCKET/PREFIX, to which every version is written before it is removed, for sqube history, show and restore. While writing fails, versions stay in the database, limited only by --retention-rows. Set the same on all servers of a database.")
	state.Int64Var(&o.store.RetentionRows, "retention-rows", 0, "How many replaced and deleted versions are kept at most, even if they are younger than --retention. 0 for no limit, or at least 100. Checked every --compact-interval.")
	state.DurationVar(&o.store.HeartbeatInterval, "node-heartbeat-interval", 0, "For how long renewals of the Leases of nodes and of API servers that change nothing but times may wait in memory until the newest of each is written to an SQLite database, after that time or with the next other write. If sqube is killed or the machine fails, those that wait are lost, as if they had not been sent. At most 10m; 0 writes each at once.")
	o.log.addFlags(sections.FlagSet("Log"))
	o.features.addFlag(sections.FlagSet("Features"))
	o.emulation.addFlags(sections.FlagSet("Features"), o.server)
	return sections
}

// complete checks all flags before anything is created.
func (o *serveOptions) complete() error {
	var err error
	o.datastore, err = o.database.complete(o.server.DataDir)
	o.selectControlPlane()
	errs := flagcheck.Problems{o.emulation.apply(), o.features.apply(), o.server.Complete(), err, o.ignored.check(), o.completeInMemory(), o.copied.complete(o.server), o.completeControlPlane(), o.completeSimulatedNodes(), o.agents.complete(o.server)}
	errs.Unless(o.store.Timeout >= time.Second, "--datastore-timeout %s must be at least 1s", o.store.Timeout)
	errs.Unless(o.store.Retention >= time.Second, "--retention %s must be at least 1s", o.store.Retention)
	errs.Unless(o.store.CompactInterval >= 0, "--compact-interval %s must not be negative", o.store.CompactInterval)
	errs.Unless(o.store.HeartbeatInterval >= 0 && o.store.HeartbeatInterval <= 10*time.Minute, "--node-heartbeat-interval %s must be between 0 and 10m", o.store.HeartbeatInterval)
	errs.Unless(o.store.RetentionRows == 0 || o.store.RetentionRows >= 100, "--retention-rows %d must be 0 or at least 100", o.store.RetentionRows)
	errs.Unless(o.cacheSize.Sign() >= 0, "--cache-size %s must not be negative", o.cacheSize.String())
	errs = append(errs, o.history.complete(&o.store))
	if o.archiveTo != "" {
		o.archivePlace, err = logbackup.ParsePlace(o.archiveTo)
		errs.Unless(err == nil, "--archive: %w", err)
	}
	if o.store.CacheBytes = o.cacheSize.Value(); o.store.CacheBytes == 0 {
		o.store.CacheBytes = sqlstore.NoCache
	}
	o.datastore.Timeout, o.datastore.NoSync = o.store.Timeout, o.envtest
	o.server.SharedDatastore = o.datastore.Shared()
	o.completeFleet()
	return errors.Join(errs...)
}

// run serves until a signal arrives.
func (o *serveOptions) run(ctx context.Context) (err error) {
	if err := server.CheckClock(); err != nil {
		return err
	}
	listener, err := server.Listen(o.server)
	if err != nil {
		return err
	}
	defer listener.Close()
	defer closing(&err, o.removeInMemoryFiles)

	ctx, stop := untilSignal(ctx, &o.log.stopping)
	defer stop()
	limitMemory()
	go watchMemoryLimit(ctx)
	pace := paceCollector(o.server.Mirror != nil)
	o.store.FollowerMemory, o.store.HeartbeatResource = watchMemory(), apistorage.HeartbeatResource
	var store *sqlstore.Store
	process := server.Process{
		Options: o.server, Store: o.store,
		Open: func(ctx context.Context, options sqlstore.Options) (_ *sqlstore.Store, err error) {
			store, err = o.openStore(ctx, options)
			return store, err
		},
		Built: func(ctx context.Context, s *server.Server) {
			if o.announce(ctx, s) {
				pace(ctx, func() int64 { return store.Stats().Cached })
			}
		},
	}
	if err := process.Run(ctx, listener); err != nil {
		return err
	}
	slog.Info("stopped")
	return nil
}

func (o *serveOptions) openStore(ctx context.Context, options sqlstore.Options) (*sqlstore.Store, error) {
	opened, err := o.datastore.OpenFor(ctx, o.server.DataDir)
	if err != nil {
		return nil, err
	}
	if err := o.copied.fill(ctx, opened, o.server); err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	options.HistoryBytes = o.history.limit(o.datastore, o.server.InMemory)
	engine := dialect.Engine(opened)
	if o.archivePlace != nil {
		engine = o.archive(ctx, engine, &options)
	}
	return sqlstore.Open(ctx, engine, options)
}

// announce prints how to use the server once it is ready. It returns false if ctx ends first.
func (o *serveOptions) announce(ctx context.Context, s *server.Server) bool {
	slog.Info("starting", "address", o.server.URL(), "datastore", o.datastore.String())
	if s.Wait(ctx) != nil {
		return false
	}
	if err := o.datastore.Remember(o.server.DataDir); err != nil {
		slog.Warn("the next start can't tell whether its database is this one", "error", err)
	}
	if err := o.simulateNodes(ctx, s); err != nil {
		slog.Error("simulating nodes failed", "error", err)
	}
	slog.Info("ready", "address", o.server.URL())
	if _, err := daemon.SdNotify(false, daemon.SdNotifyReady); err != nil {
		slog.Warn("notifying systemd failed", "error", err)
	}
	kubeconfig, err := filepath.Abs(s.AdminKubeconfig())
	if err != nil {
		kubeconfig = s.AdminKubeconfig()
	}
	fmt.Printf("sqube serves %s from %s\n  export KUBECONFIG=%s\n  kubectl get namespaces\n", o.server.URL(), o.datastore, kubeconfig)
	o.copied.describe(o.server)
	return true
}

// selectControlPlane makes --control-plane select all controllers and accept bootstrap tokens, unless flags say otherwise. Call it
// before the server's own checks.
func (o *serveOptions) selectControlPlane() {
	given := func(section, flag string) bool { return o.server.Flags.FlagSet(section).Changed(flag) }
	if !o.controlPlane.All {
		return
	}
	if !given(server.ClusterFlags, "controllers") {
		o.server.Controllers = []string{controllers.All}
	}
	if !given(server.AccessFlags, "enable-bootstrap-token-auth") {
		o.server.Access.Authentication.BootstrapToken.Enable = true
	}
}

// completeControlPlane checks the flags of the control plane and applies them to the server's options.
func (o *serveOptions) completeControlPlane() error {
	err := o.controlPlane.Complete(o.server.Controllers, o.server.ServiceClusterIPRange)
	o.server.ControllerSettings = o.controlPlane.Settings()
	o.server.Scheduler = o.controlPlane.SchedulerController()
	return err
}

// completeInMemory checks that an in-memory server would not hide existing data.
func (o *serveOptions) completeInMemory() error {
	if !o.server.InMemory {
		return nil
	}
	if o.database.name != "" {
		return errors.New("--in-memory and --datastore must not be given together")
	}
	keys := filepath.Join(o.server.DataDir, "pki")
	if _, err := os.Lstat(keys); err == nil {
		return fmt.Errorf("--in-memory would replace the admin.kubeconfig of the cluster whose keys are in %s: give another --data-dir", keys)
	}
	o.datastore.Path, o.datastore.Memory = "", true
	return nil
}

// removeInMemoryFiles removes the files that an in-memory server has on disk.
func (o *serveOptions) removeInMemoryFiles() error {
	if !o.server.InMemory {
		return nil
	}
	err := os.Remove(filepath.Join(o.server.DataDir, "admin.kubeconfig"))
	if errors.Is(err, fs.ErrNotExist) { // the server did not get that far
		return nil
	}
	return err
}
