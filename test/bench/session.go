package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// phaseTimeout limits one phase, in addition to --duration, so that a hanging server ends the run.
const phaseTimeout = 20 * time.Minute

// session is the measurement of one server.
type session struct {
	server    *server
	dialer    *dialer
	sizes     sizes
	emptySize int64         // bytes of the database before there were objects
	opened    openedWatches // watches that stay open over several phases
	revision  int           // of the bodies that `bench size` has written
	cluster   *cluster      // nil if there is no control plane
	scale     scaleRun
	past      pastRun
	fleet     fleetRun
	bare      result   // what the server of definitions takes without them
	missed    []string // targets
}

// measure runs the phases against a server, prints a line for each and returns the results.
func measure(ctx context.Context, s *server, sizes sizes, suite suite, round int, out io.Writer) ([]result, error) {
	dialer, err := newDialer(s.Kubeconfig)
	if err != nil {
		return nil, err
	}
	session := &session{server: s, dialer: dialer, sizes: sizes}
	defer session.closeWatches()
	defer func() { session.cluster.close() }()
	defer session.closeFleet()
	var results []result
	for _, p := range suite.phases(sizes) {
		if s.ReadOnly && !p.floor {
			continue
		}
		progress("%s: %s", s.Name, p.name)
		r, err := session.phase(ctx, p)
		if err != nil {
			return results, fmt.Errorf("%s: %s: %w", s.Name, p.name, err)
		}
		r.Command, r.Round = suite.name, round
		results = append(results, r)
		if err := r.write(out); err != nil {
			return results, err
		}
	}
	return results, session.judge()
}

func (s *session) phase(ctx context.Context, p phase) (result, error) {
	ctx, cancel := context.WithTimeout(ctx, phaseTimeout+s.sizes.Duration)
	defer cancel()
	r, err := s.profiled(ctx, p)
	r.Server, r.Phase = s.server.Name, p.name
	return r, err
}

// load runs op for the numbers 0 to n-1, from that many clients at once, each with its own connection, and measures. The first
// error ends it.
func (s *session) load(ctx context.Context, clients, n int, op func(ctx context.Context, c *client, i int) error) (result, error) {
	m, err := s.sample(ctx, clients, n, op)
	return m.result(clients, n), err
}

// sample is load without condensing the measurements.
func (s *session) sample(ctx context.Context, clients, n int, op func(ctx context.Context, c *client, i int) error) (sample, error) {
	return s.sampleAt(ctx, 0, clients, n, op)
}

// sampleAt is sample at a pace: so many operations are due each second, and the latency of each counts from then on. 0 is for no pace.
func (s *session) sampleAt(ctx context.Context, pace, clients, n int, op func(ctx context.Context, c *client, i int) error) (sample, error) {
	all, err := s.dialer.dialAll(ctx, clients)
	if err != nil {
		return sample{}, err
	}
	defer all.close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	m := sample{latencies: make([]time.Duration, n)}
	err = s.observe(&m, func() error {
		var next atomic.Int64
		start := time.Now()
		var workers sync.WaitGroup
		for _, c := range all {
			workers.Go(func() {
				for {
					i := int(next.Add(1)) - 1
					if i >= n || ctx.Err() != nil {
						return
					}
					began := time.Now()
					if pace > 0 {
						began = start.Add(time.Duration(i) * time.Second / time.Duration(pace))
						if wait(ctx, time.Until(began)) != nil {
							return
						}
					}
					if err := op(ctx, c, i); err != nil {
						cancel(err)
						return
					}
					m.latencies[i] = time.Since(began)
				}
			})
		}
		workers.Wait()
		return context.Cause(ctx)
	})
	return m, err
}

// observe adds to the sample the wall time while act runs, and the CPU time that the server uses meanwhile.
func (s *session) observe(m *sample, act func() error) error {
	cpu, database, err := s.cpu()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := act(); err != nil {
		return err
	}
	m.wall += time.Since(began)
	cpuAfter, databaseAfter, err := s.cpu()
	m.cpu += cpuAfter - cpu
	m.databaseCPU += databaseAfter - database
	return err
}

// cpu returns the CPU time that the server has used so far, with Postgres', and Postgres' part of it.
func (s *session) cpu() (all, database time.Duration, err error) {
	if all, err = cpuTime(s.server.PIDs); err != nil {
		return 0, 0, err
	}
	database, err = treeCPUTime(s.server.Database)
	return all + database, database, err
}

// closeWatches ends the watches that are open over several phases, if there are any.
func (s *session) closeWatches() {
	s.opened.close()
	s.opened = openedWatches{}
}

// makeNamespace creates the namespace and the service account that pods need, unless a controller of the server is faster.
func (s *session) makeNamespace(ctx context.Context) error {
	c, err := s.dialer.dial(ctx)
	if err != nil {
		return err
	}
	defer clients{c}.close()
	for _, object := range []struct{ path, body string }{
		{"/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"` + namespace + `"}}`},
		{"/api/v1/namespaces/" + namespace + "/serviceaccounts", `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default"}}`},
	} {
		err := c.do(ctx, post(object.path, []byte(object.body)))
		if err != nil && !isStatus(err, http.StatusConflict) {
			return err
		}
	}
	return nil
}

// ask sends requests one after the other over one connection, and returns the last answer.
func (s *session) ask(ctx context.Context, requests ...request) ([]byte, error) {
	c, err := s.dialer.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer clients{c}.close()
	for _, r := range requests {
		if err := c.do(ctx, r); err != nil {
			return nil, err
		}
	}
	return c.answer.Bytes(), nil
}

// newest returns the resourceVersion that a collection has now.
func (s *session) newest(ctx context.Context, collection string) ([]byte, error) {
	answer, err := s.ask(ctx, get(collection+"?limit=1"))
	if err != nil {
		return nil, err
	}
	return resourceVersion(answer)
}

// progress prints a line about the progress on stderr.
func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}
