package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

// measureAll measures the servers in turns and prints the table, even after an error.
func measureAll(ctx context.Context, o options, suite suite, out io.Writer) error {
	openers, cleanup, err := plan(ctx, o)
	if err != nil {
		return err
	}
	defer cleanup()
	var results []result
	var missed error
	for round := 1; round <= o.rounds; round++ {
		for _, opener := range openers {
			progress("%s: starting, round %d of %d", opener.name, round, o.rounds)
			r, err := measureOne(ctx, opener, o.sizes, suite, round, out)
			results = append(results, r...)
			if targets := (*missedTargets)(nil); errors.As(err, &targets) {
				missed, err = errors.Join(missed, fmt.Errorf("%s: %w", opener.name, err)), nil
			}
			if err != nil {
				return errors.Join(err, writeTable(out, suite.rows(), results))
			}
		}
	}
	return errors.Join(writeTable(out, suite.rows(), results), missed)
}

// measureOne measures a server from its start with an empty store to its end.
func measureOne(ctx context.Context, opener opener, sizes sizes, suite suite, round int, out io.Writer) (_ []result, err error) {
	s, err := opener.open(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", opener.name, err)
	}
	defer func() {
		if closeErr := s.Close(); closeErr != nil {
			err = errors.Join(err, fmt.Errorf("end %s: %w", opener.name, closeErr))
		}
	}()
	return measure(ctx, s, sizes, suite, round, out)
}

// plan lists the servers to measure.
func plan(ctx context.Context, o options) ([]opener, func(), error) {
	b, cleanup, err := buildDirectory(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	var openers []opener
	for _, engine := range o.sqube {
		openers = append(openers, squbeOn(o, b, engine))
	}
	for _, peer := range o.peers {
		openers = append(openers, opener{peer, 0, 1, func(ctx context.Context, s *server) error { return preparePeer(ctx, o, b, s) }})
	}
	if o.floor {
		openers = append(openers, opener{floorName, 0, 1, func(_ context.Context, s *server) error { return prepareFloor(s, o.sizes.Pods) }})
	}
	return openers, cleanup, nil
}

// buildDirectory prepares the directory for binaries, a temporary one unless the flag names one.
func buildDirectory(ctx context.Context, o options) (*binaries, func(), error) {
	if o.binDir != "" {
		b, err := newBinaries(ctx, o.binDir)
		return b, func() {}, err
	}
	dir, err := os.MkdirTemp("", "sqube-bench-bin-")
	if err != nil {
		return nil, nil, err
	}
	cleanup := func() {
		if err := os.RemoveAll(dir); err != nil {
			progress("removing the binaries: %v", err)
		}
	}
	b, err := newBinaries(ctx, dir)
	if err != nil {
		cleanup()
	}
	return b, cleanup, err
}

// hold starts one server with additional flags, prints the path of its kubeconfig and, on a second line, where a peer keeps its
// state, and waits for the end of ctx.
func hold(ctx context.Context, o options, name string, flags []string, out io.Writer) (err error) {
	o.flags = flags
	o.sqube, o.peers, o.floor = nil, names{name}, false
	switch name {
	case squbePrefix + "sqlite":
		o.sqube, o.peers = names{"sqlite"}, nil
	case squbePrefix + "postgres":
		o.sqube, o.peers = names{"postgres"}, nil
	}
	openers, cleanup, err := plan(ctx, o)
	if err != nil {
		return err
	}
	defer cleanup()
	s, err := openers[0].open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if _, err := fmt.Fprintf(out, "%s\n%s\n", s.Kubeconfig, s.State); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}
