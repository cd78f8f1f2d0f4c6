package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
)

// options are the command's flags.
type options struct {
	sqube      list     // engines to run sqube on
	peers      list     // peers to run
	floor      bool     // measure the transport's limit too
	kubeconfig string   // a server that runs already
	pids       list     // its processes
	name       string   // how the table calls it
	binary     string   // sqube's binary; "" builds bin/sqube
	binDir     string   // where the peers' binaries are built
	postgres   string   // DSN of a server for the databases; "" starts one
	flags      []string // further ones of the server to hold
	quick      bool
	sizes      sizes
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run is the command without its process: arguments in, figures out.
func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) > 0 && args[0] == floorCommand {
		return serveFloor(ctx, args[1:])
	}
	o, rest, err := parse(args)
	if err != nil {
		return err
	}
	if len(rest) > 1 && rest[0] == "hold" {
		return hold(ctx, o, rest[1], rest[2:], out)
	}
	if len(rest) > 0 && rest[0] == "churn" {
		return churnAll(ctx, o, rest[1:], out)
	}
	if len(rest) > 0 {
		return fmt.Errorf("unexpected argument %q; see --help", rest[0])
	}
	return measureAll(ctx, o, out)
}

func parse(args []string) (options, []string, error) {
	o := options{sqube: list{"sqlite", "postgres"}, sizes: defaultSizes}
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.Var(&o.sqube, "sqube", "engines to measure sqube on, of sqlite and postgres; empty for none")
	fs.Var(&o.peers, "peers", "peers to build and measure in the same run, of etcd, kine-sqlite and kine-postgres")
	fs.BoolVar(&o.floor, "floor", true, "measure the transport's limit too")
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "also measure the running server that this file names; it gets a namespace \"bench\" with all that is created in it")
	fs.Var(&o.pids, "pid", "processes of the server of --kubeconfig, its datastore included; by default the one that listens on its port")
	fs.StringVar(&o.name, "name", "given", "how to call the server of --kubeconfig")
	fs.StringVar(&o.binary, "binary", "", "sqube's binary; by default bin/sqube, which is built")
	fs.StringVar(&o.binDir, "bin-dir", "", "directory for the peers' binaries; by default one that is removed at the end")
	fs.StringVar(&o.postgres, "postgres", os.Getenv("SQUBE_TEST_POSTGRES"), "DSN of a Postgres server to make databases on; by default one is started")
	fs.BoolVar(&o.quick, "quick", false, "small sizes: a check that everything works, whose figures say little")
	fs.IntVar(&o.sizes.Pods, "pods", o.sizes.Pods, "pods to create and to list")
	fs.IntVar(&o.sizes.Writes, "writes", o.sizes.Writes, "ConfigMaps to create with 64 clients, and updates of them; a half of it with 16 clients")
	fs.IntVar(&o.sizes.Gets, "gets", o.sizes.Gets, "single reads")
	fs.IntVar(&o.sizes.Lists, "lists", o.sizes.Lists, "lists of each kind")
	fs.IntVar(&o.sizes.Watchers, "watchers", o.sizes.Watchers, "watchers of the fan-out")
	fs.IntVar(&o.sizes.Events, "events", o.sizes.Events, "creates that the watchers see")
	fs.DurationVar(&o.sizes.Idle, "idle", o.sizes.Idle, "how long to observe a server that has nothing to do")
	fs.IntVar(&o.sizes.Updates, "updates", o.sizes.Updates, "updates that churn makes")
	fs.BoolVar(&o.sizes.Direct, "direct", false, "churn makes its updates through the store alone, with the server stopped, rather than by requests: minutes for a million")
	fs.DurationVar(&o.sizes.Retention, "retention", o.sizes.Retention, "for how long churn has versions kept, where it has not all of them kept")
	fs.DurationVar(&o.sizes.Settle, "settle", o.sizes.Settle, "how long after its last update churn looks at the size of the database")
	if err := fs.Parse(args); err != nil {
		return o, nil, err
	}
	if o.quick {
		given := map[string]bool{}
		fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
		o.sizes = o.sizes.quick(given)
	}
	return o, fs.Args(), o.sizes.validate()
}

// list is a flag of names with commas between them.
type list []string

func (l *list) String() string { return strings.Join(*l, ",") }

func (l *list) Set(s string) error {
	*l = nil
	for name := range strings.SplitSeq(s, ",") {
		if name = strings.TrimSpace(name); name != "" {
			*l = append(*l, name)
		}
	}
	return nil
}

// numbers reads the list as process ids.
func (l list) numbers() ([]int, error) {
	var ids []int
	for _, s := range l {
		n, err := strconv.Atoi(s)
		if err != nil {
			return nil, fmt.Errorf("--pid %q is not a process id", s)
		}
		ids = append(ids, n)
	}
	return ids, nil
}
