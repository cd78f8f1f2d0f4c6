package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// churnObjects are updated repeatedly: a third each are Leases, Events and Pods.
const churnObjects = 2000

// churnKinds are their kinds, with formats for the body of a new object, taking its name ("" for the pod of the other phases),
// and for the merge patch of an update, taking its number.
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

// churnPart is the measurement of one server, and the resulting lines of the table.
type churnPart struct {
	name    string
	keeps   bool // all versions
	lines   []string
	measure func(*session, context.Context) ([]figure, error)
}

var churnParts = []churnPart{
	{"size", false, []string{"database, in sizes of its objects"}, (*session).churnSize},
	{"costs", true, churnCostLines(), (*session).churnCosts},
}

// churnAll repeatedly updates the same objects and prints, for each engine, how much larger than its objects the database is
// afterwards, and how much more requests cost while all versions are kept. The argument selects one of these parts.
func churnAll(ctx context.Context, o options, only []string, out io.Writer) error {
	lines := [][]string{{fmt.Sprintf("after %d updates of %d objects", o.sizes.Updates, churnObjects)}}
	for _, engine := range o.sqube {
		lines[0] = append(lines[0], "sqube-"+engine)
	}
	for _, part := range churnParts {
		if len(only) > 0 && only[0] != part.name {
			continue
		}
		first := len(lines)
		for _, line := range part.lines {
			lines = append(lines, []string{line})
		}
		for _, engine := range o.sqube {
			figures, err := churning(ctx, o, engine, part)
			if err != nil {
				return fmt.Errorf("%s: %w", engine, err)
			}
			for i, f := range figures {
				lines[first+i] = append(lines[first+i], fmt.Sprintf("%.2f", f))
			}
		}
	}
	return writeMarkdown(out, lines)
}

// churning measures a part.
func churning(ctx context.Context, o options, engine string, part churnPart) (_ []figure, err error) {
	b, cleanup, err := buildDirectory(ctx, o)
	if err != nil {
		return nil, err
	}
	defer cleanup()
	retention := o.sizes.Retention
	if part.keeps {
		retention = 24 * time.Hour
	}
	o.flags = slices.Concat(o.flags, []string{"--retention", retention.String()})
	progress("sqube-%s: starting with --retention %s", engine, retention)
	server, err := squbeOn(o, b, engine).open(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	dialer, err := newDialer(server.Kubeconfig)
	if err != nil {
		return nil, err
	}
	s := &session{server: server, dialer: dialer, sizes: o.sizes, retention: retention}
	if err := s.makeNamespace(ctx); err != nil {
		return nil, err
	}
	return part.measure(s, ctx)
}

// churnSize returns the size of the database in multiples of its objects' size.
func (s *session) churnSize(ctx context.Context) ([]figure, error) {
	empty, err := s.server.DataSize()
	if err == nil {
		err = s.populate(ctx)
	}
	if err == nil {
		err = s.churn(ctx)
	}
	if err != nil {
		return nil, err
	}
	size, err := s.sizeOver(ctx, empty)
	return []figure{size}, err
}

// sizeOver returns the size of the database in multiples of its objects' size, after giving the server time to settle. Its size
// before the objects, empty, is subtracted.
func (s *session) sizeOver(ctx context.Context, empty int64) (figure, error) {
	full, err := s.server.DataSize()
	if err != nil {
		return 0, err
	}
	progress("%s: the database has %d bytes; waiting for %s", s.server.Name, full, s.sizes.Settle)
	if err := wait(ctx, s.sizes.Settle); err != nil {
		return 0, err
	}
	if full, err = s.server.DataSize(); err != nil {
		return 0, err
	}
	var collections []string
	for _, kind := range churnKinds {
		collections = append(collections, kind.collection)
	}
	live, err := s.liveBytes(ctx, collections)
	progress("%s: the objects have %d bytes; the database had %d before them and has %d", s.server.Name, live, empty, full)
	return figure(full-empty) / figure(live), err
}

// liveBytes returns how many bytes the objects of collections take as JSON, the format in which they are stored.
func (s *session) liveBytes(ctx context.Context, collections []string) (total int64, err error) {
	c, err := s.dialer.dial(ctx)
	if err != nil {
		return 0, err
	}
	defer clients{c}.close()
	for _, collection := range collections {
		n, err := c.discard(ctx, get(collection))
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}

// churn updates the objects in turn.
func (s *session) churn(ctx context.Context) error {
	if s.sizes.Direct {
		return s.updateDirectly(ctx)
	}
	const clients, part = 32, 50_000
	for from := 0; from < s.sizes.Updates; from += part {
		r, err := s.load(ctx, clients, min(part, s.sizes.Updates-from), func(ctx context.Context, c *client, i int) error {
			return churnUpdate(ctx, c, from+i)
		})
		if err != nil {
			return err
		}
		progress("%s: %d of %d updates, %.0f per s", s.server.Name, from+r.Operations, s.sizes.Updates, r.PerSecond)
	}
	return nil
}

// populate creates the objects.
func (s *session) populate(ctx context.Context) error {
	pod, err := podBodies(s.sizes)
	if err != nil {
		return err
	}
	_, err = s.load(ctx, 16, churnObjects, func(ctx context.Context, c *client, i int) error {
		kind, body := churnKinds[i%len(churnKinds)], pod(i)
		if kind.body != "" {
			body = fmt.Appendf(nil, kind.body, podName(i))
		}
		return c.do(ctx, post(kind.collection, body))
	})
	return err
}

// churnUpdate makes the ith update.
func churnUpdate(ctx context.Context, c *client, i int) error {
	object := i % churnObjects
	kind := churnKinds[object%len(churnKinds)]
	path := kind.collection + "/" + podName(object) + kind.subresource
	return c.do(ctx, patch(path, mediaMergePatch, fmt.Appendf(nil, kind.patch, i%1_000_000)))
}
