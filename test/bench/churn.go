package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
)

// churnObjects are updated over and over: a third each Leases, Events and Pods.
const churnObjects = 2000

// churnKinds are the kinds of these, with the body of a new one, of its name ("" for the pod of the other phases), and the
// merge patch of an update, of its number.
var churnKinds = []struct{ collection, body, subresource, patch string }{
	{
		collection: "/apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases",
		body:       `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":%q},"spec":{"holderIdentity":"node","leaseDurationSeconds":40}}`,
		patch:      `{"spec":{"renewTime":"2026-01-01T00:00:00.%06dZ"}}`,
	},
	{
		collection: "/api/v1/namespaces/" + namespace + "/events",
		body: `{"apiVersion":"v1","kind":"Event","metadata":{"name":%q},"involvedObject":{"kind":"Pod","namespace":"` + namespace + `","name":%[1]q},` +
			`"reason":"BackOff","message":"Back-off restarting failed container","type":"Warning","count":1}`,
		patch: `{"count":%d}`,
	},
	{collection: podsPath, subresource: "/status", patch: `{"status":{"message":"probe %d failed"}}`},
}

// churnAll updates the same objects over and over and prints, for each engine, how much larger than its objects the
// database is afterwards, and how much more requests cost while all versions are kept than they did before.
func churnAll(ctx context.Context, o options, out io.Writer) error {
	lines := [][]string{
		{fmt.Sprintf("after %d updates of %d objects", o.sizes.Updates, churnObjects)},
		{"database, in sizes of its objects"},
	}
	for _, cost := range churnRequests {
		lines = append(lines, []string{cost.name + " while all versions are kept, in CPU of before"})
	}
	for _, engine := range o.sqube {
		column := []string{"sqube-" + engine}
		for _, part := range []struct {
			retention string
			measure   func(*session, context.Context) ([]figure, error)
		}{{"10s", (*session).churnSize}, {"24h", (*session).churnCosts}} {
			ratios, err := churning(ctx, o, engine, part.retention, part.measure)
			if err != nil {
				return fmt.Errorf("%s: %w", engine, err)
			}
			for _, ratio := range ratios {
				column = append(column, fmt.Sprintf("%.2f", ratio))
			}
		}
		for i, cell := range column {
			lines[i] = append(lines[i], cell)
		}
	}
	return writeMarkdown(out, lines)
}

// churning measures a server of its own that keeps versions for so long.
func churning(ctx context.Context, o options, engine, retention string, measure func(*session, context.Context) ([]figure, error)) (_ []figure, err error) {
	b, cleanup, err := buildDirectory(ctx, o)
	if err != nil {
		return nil, err
	}
	defer cleanup()
	o.flags = slices.Concat(o.flags, []string{"--retention", retention})
	progress("sqube-%s: starting with --retention %s", engine, retention)
	server, err := openSqube(ctx, o, b, engine)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	dialer, err := newDialer(server.Kubeconfig)
	if err != nil {
		return nil, err
	}
	s := &session{server: server, dialer: dialer, sizes: o.sizes}
	if err := s.makeNamespace(ctx); err != nil {
		return nil, err
	}
	return measure(s, ctx)
}

// churnSize returns how many times its objects the database is large. What it had before them is left out.
func (s *session) churnSize(ctx context.Context) ([]figure, error) {
	empty, err := s.server.DataSize()
	if err != nil {
		return nil, err
	}
	if err := s.churn(ctx); err != nil {
		return nil, err
	}
	progress("%s: waiting for %s", s.server.Name, s.sizes.Settle)
	if err := wait(ctx, s.sizes.Settle); err != nil {
		return nil, err
	}
	full, err := s.server.DataSize()
	if err != nil {
		return nil, err
	}
	live, err := s.liveBytes(ctx)
	progress("%s: the objects have %d bytes; the database had %d before them and has %d", s.server.Name, live, empty, full)
	return []figure{figure(full-empty) / figure(live)}, err
}

// liveBytes returns how many bytes the objects take as JSON, which is how they are stored.
func (s *session) liveBytes(ctx context.Context) (total int64, err error) {
	c, err := s.dialer.dial(ctx)
	if err != nil {
		return 0, err
	}
	defer clients{c}.close()
	for _, kind := range churnKinds {
		n, err := c.discard(ctx, kind.collection, mediaJSON)
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}

// churn makes the objects and updates them in turn.
func (s *session) churn(ctx context.Context) error {
	if err := s.populate(ctx); err != nil {
		return err
	}
	progress("%s: %d updates", s.server.Name, s.sizes.Updates)
	_, err := s.load(ctx, 32, s.sizes.Updates, churnUpdate)
	return err
}

// populate makes the objects.
func (s *session) populate(ctx context.Context) error {
	pod, err := podBodies(0)
	if err != nil {
		return err
	}
	_, err = s.load(ctx, 16, churnObjects, func(ctx context.Context, c *client, i int) error {
		kind, body := churnKinds[i%len(churnKinds)], pod(i)
		if kind.body != "" {
			body = fmt.Appendf(nil, kind.body, podName(i))
		}
		return c.do(ctx, http.MethodPost, kind.collection, mediaJSON, body)
	})
	return err
}

// churnUpdate makes the ith update.
func churnUpdate(ctx context.Context, c *client, i int) error {
	object := i % churnObjects
	kind := churnKinds[object%len(churnKinds)]
	path := kind.collection + "/" + podName(object) + kind.subresource
	return c.do(ctx, http.MethodPatch, path, mediaJSON, fmt.Appendf(nil, kind.patch, i%1_000_000))
}

// churnRequests are the requests whose cost is compared.
var churnRequests = []struct {
	name string
	n    int // at the most
	do   func(context.Context, *client, int) error
}{
	{"get", 3000, func(ctx context.Context, c *client, i int) error {
		object := i % churnObjects
		kind := churnKinds[object%len(churnKinds)]
		return c.do(ctx, http.MethodGet, kind.collection+"/"+podName(object), mediaJSON, nil)
	}},
	{"list", 60, func(ctx context.Context, c *client, i int) error {
		_, err := c.discard(ctx, churnKinds[i%len(churnKinds)].collection, mediaJSON)
		return err
	}},
	{"write", 3000, churnUpdate},
}

// churnCosts returns what each of those requests costs the server and Postgres after the updates, as a multiple of what
// it did before. All updates are kept.
func (s *session) churnCosts(ctx context.Context) ([]figure, error) {
	if err := s.populate(ctx); err != nil {
		return nil, err
	}
	if _, err := s.costs(ctx); err != nil { // once, for caches and plans
		return nil, err
	}
	before, err := s.costs(ctx)
	if err != nil {
		return nil, err
	}
	progress("%s: %d updates", s.server.Name, s.sizes.Updates)
	if _, err := s.load(ctx, 32, s.sizes.Updates, churnUpdate); err != nil {
		return nil, err
	}
	if err := wait(ctx, settle); err != nil {
		return nil, err
	}
	after, err := s.costs(ctx)
	if err != nil {
		return nil, err
	}
	progress("%s: CPU µs each, of get, list and write: before %.0f, after %.0f", s.server.Name, before, after)
	ratios := make([]figure, len(after))
	for i := range after {
		ratios[i] = after[i] / before[i]
	}
	return ratios, nil
}

// costs measures the requests, in microseconds of CPU each.
func (s *session) costs(ctx context.Context) (costs []figure, err error) {
	for _, request := range churnRequests {
		r, err := s.load(ctx, 8, min(request.n, s.sizes.Updates), request.do)
		if err != nil {
			return nil, err
		}
		costs = append(costs, r.CPU+r.DatabaseCPU)
	}
	return costs, nil
}
