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
	sqube      names    // engines to run sqube on
	peers      names    // peers to run
	floor      bool     // measure the transport's limit too
	rounds     int      // how often each server is measured
	kubeconfig string   // a server that runs already
	pids       names    // its processes
	name       string   // how the table calls it
	binary     string   // sqube's binary; "" builds bin/sqube
	binDir     string   // where the peers' binaries are built
	postgres   string   // DSN of a server for the databases; "" starts one
	memory     string   // GOMEMLIMIT of the API servers
	squbeFlags []string // further ones of sqube
	flags      []string // further ones of the server to hold
	quick      bool
	plane      plane
	sizes      sizes
}

// environment is what the API servers get beside the benchmark's own.
func (o options) environment() []string {
	if o.memory == "" {
		return nil
	}
	return []string{"GOMEMLIMIT=" + o.memory}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run is the command without its process: arguments and a recorded run in, figures out.
func run(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) > 0 && args[0] == floorCommand {
		return serveFloor(ctx, args[1:])
	}
	o, rest, err := parse(args)
	if err != nil {
		return err
	}
	command := ""
	if len(rest) > 0 {
		command, rest = rest[0], rest[1:]
	}
	switch {
	case command == "hold" && len(rest) > 0:
		return hold(ctx, o, rest[0], rest[1:], out)
	case command == "churn":
		return churnAll(ctx, o, rest, out)
	case len(rest) > 0:
		return fmt.Errorf("unexpected argument %q; see --help", rest[0])
	case command == "table":
		return tableOf(in, out)
	case command == "plot":
		return plotOf(in, out)
	}
	suite, err := suiteOf(command)
	if err != nil {
		return err
	}
	if o.plane = suite.plane; o.plane.runs && o.kubeconfig != "" {
		return fmt.Errorf("%s starts the servers that it measures; leave --kubeconfig out", command)
	}
	o.floor = o.floor && !o.plane.runs
	return measureAll(ctx, o, suite, out)
}

// parse reads the flags. Their defaults are the command's, and with --quick the quick sizes.
func parse(args []string) (options, []string, error) {
	o, rest, err := parseWith(defaultSizes, args)
	if err == nil && o.quick {
		o, rest, err = parseWith(quickSizes, args)
	} else if err == nil && len(rest) > 0 {
		if suite, unknown := suiteOf(rest[0]); unknown == nil && suite.sizes != nil {
			o, rest, err = parseWith(*suite.sizes, args)
		}
	}
	if err != nil {
		return o, nil, err
	}
	if o.rounds < 1 || o.rounds > 1 && o.kubeconfig != "" {
		return o, nil, errors.New("--rounds must be at least 1, and 1 with --kubeconfig, since each round begins with an empty server")
	}
	return o, rest, o.sizes.validate()
}

func parseWith(defaults sizes, args []string) (options, []string, error) {
	o := options{sqube: names{"sqlite", "postgres"}, sizes: defaults}
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.Var(&o.sqube, "sqube", "engines to measure sqube on, of sqlite and postgres; empty for none")
	fs.Var(&o.peers, "peers", "peers to build and measure in the same run, of etcd, kine-sqlite and kine-postgres")
	fs.BoolVar(&o.floor, "floor", true, "measure the transport's limit too")
	fs.IntVar(&o.rounds, "rounds", 1, "how often to measure each server, in turns; the table shows medians")
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "also measure the running server that this file names; it gets a namespace \"bench\" with all that is created in it")
	fs.Var(&o.pids, "pid", "processes of the server of --kubeconfig, its datastore included; by default the one that listens on its port")
	fs.StringVar(&o.name, "name", "given", "how to call the server of --kubeconfig")
	fs.StringVar(&o.binary, "binary", "", "sqube's binary; by default bin/sqube, which is built")
	fs.Func("sqube-flag", "a further flag of sqube, such as --cache-size=64Mi; may be given more than once", func(s string) error {
		o.squbeFlags = append(o.squbeFlags, s)
		return nil
	})
	fs.StringVar(&o.binDir, "bin-dir", "", "directory for the peers' binaries; by default one that is removed at the end")
	fs.StringVar(&o.postgres, "postgres", os.Getenv("SQUBE_TEST_POSTGRES"), "DSN of a Postgres server to make databases on; by default one is started")
	fs.StringVar(&o.memory, "gomemlimit", "", "GOMEMLIMIT of sqube and kube-apiserver, such as 400MiB; by default none")
	fs.BoolVar(&o.quick, "quick", false, "small sizes: a check that everything works, whose figures say little")
	o.sizes.flags(fs)
	err := fs.Parse(args)
	return o, fs.Args(), err
}

// names is a flag of names with commas between them.
type names []string

func (l *names) String() string { return strings.Join(*l, ",") }

func (l *names) Set(s string) error {
	*l = nil
	for name := range strings.SplitSeq(s, ",") {
		if name = strings.TrimSpace(name); name != "" {
			*l = append(*l, name)
		}
	}
	return nil
}

// numbers reads the list as process ids.
func (l names) numbers() ([]int, error) {
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
