package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// options are the command's flags.
type options struct {
	sqube      names    // engines to run sqube on
	peers      names    // peers to run
	floor      bool     // measure the transport's limit too
	rounds     int      // how often each server is measured
	binary     string   // sqube's binary; "" builds bin/sqube
	binDir     string   // where the peers' binaries are built
	postgres   string   // DSN of a server for the databases; "" starts one
	squbeFlags []string // additional flags of sqube
	flags      []string // additional flags of the server to hold
	quick      bool
	plane      plane
	sizes      sizes
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

// run is the command: it takes arguments and a recorded run, and prints figures.
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
	o.plane = suite.plane
	o.floor = o.floor && !o.plane.runs && !o.plane.clusters
	return measureAll(ctx, o, suite, out)
}

// parse parses the flags. Their defaults are the command's, or the quick sizes with --quick.
func parse(args []string) (options, []string, error) {
	o, rest, err := parseWith(defaultSizes, args)
	if err == nil && o.quick {
		o, rest, err = parseWith(quickSizes, args)
	} else if err == nil && len(rest) > 0 {
		if suite, unknown := suiteOf(rest[0]); unknown == nil && suite.sizes != nil {
			own := defaultSizes
			suite.sizes(&own)
			o, rest, err = parseWith(own, args)
		}
	}
	if err != nil {
		return o, nil, err
	}
	if o.rounds < 1 {
		return o, nil, errors.New("--rounds must be at least 1")
	}
	return o, rest, o.sizes.validate()
}

func parseWith(defaults sizes, args []string) (options, []string, error) {
	o := options{sqube: names{"sqlite", "postgres"}, sizes: defaults}
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.Var(&o.sqube, "sqube", "engines to measure sqube on, of sqlite and postgres; empty for none")
	fs.Var(&o.peers, "peers", "peers to build and measure in the same run, of etcd, kine-sqlite, kine-file (kine on SQLite without its default parameters) and kine-postgres")
	fs.BoolVar(&o.floor, "floor", true, "measure the transport's limit too")
	fs.IntVar(&o.rounds, "rounds", 1, "how often to measure each server, in turns; the table shows medians")
	fs.StringVar(&o.binary, "binary", "", "sqube's binary; by default it builds bin/sqube")
	fs.Func("sqube-flag", "an additional flag of sqube, such as --cache-size=64Mi; may be repeated", func(s string) error {
		o.squbeFlags = append(o.squbeFlags, s)
		return nil
	})
	fs.StringVar(&o.binDir, "bin-dir", "", "directory for the peers' binaries; by default a temporary one")
	fs.StringVar(&o.postgres, "postgres", os.Getenv("SQUBE_TEST_POSTGRES"), "DSN of a Postgres server for the databases; by default one is started")
	fs.BoolVar(&o.quick, "quick", false, "small sizes, to check that everything works; the figures mean little")
	o.sizes.flags(fs)
	err := fs.Parse(args)
	return o, fs.Args(), err
}

// names is a flag of comma-separated names.
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
